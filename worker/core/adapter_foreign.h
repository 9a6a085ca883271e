/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adapters that clients have loaded into an engine under /upstream/NAME/, and that no configuration knows. They may have places
 * that nobody else wants; where a configured adapter finds none, the one that was used longest ago leaves.
 */
#ifndef MD_WORKER_CORE_ADAPTER_FOREIGN_H
#define MD_WORKER_CORE_ADAPTER_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>

struct md_model;
struct md_worker_job;

/* A request goes to an engine as it is: which adapter it uses is remembered until it has ended, and as the last use. */
void md_adapter_foreign_begin(struct md_worker_job *job);
void md_adapter_foreign_end(struct md_worker_job *job);
void md_adapter_foreign_forget(struct md_model *model); /* the engine has ended */
/*
 * By the answer to GET /v1/models: if all places are taken, the name and the path of the adapter that leaves for another one, which the
 * caller frees. False: there is room, or none that no request uses and that may leave.
 */
bool md_adapter_foreign_pick(const struct md_model *model, const char *answer, size_t size, char **name, char **path);

#endif
