/* SPDX-License-Identifier: Apache-2.0 */
/* Engines outlive the daemon: what an earlier one has left is adopted, and what this one has is written down. */
#ifndef MD_WORKER_CORE_ADOPT_H
#define MD_WORKER_CORE_ADOPT_H

#include <stdbool.h>

#include "base/status.h"

struct md_model;
struct md_worker;

/*
 * Looks at what lies in the folder, which worker->processes has (else nothing happens). Engines of models that are as they
 * were are theirs, and the scheduler is told; other engines are told to end. What is no record is named, and stays.
 */
enum md_status md_adopt_begin(struct md_worker *worker, const char *folder, struct md_error *err);
/* The daemon ends, and its engines do, too. Without a beginning nothing happens. */
void md_adopt_end(struct md_worker *worker);
void md_adopt_serves(struct md_worker *worker); /* the configuration may have another adopt_time */

void md_adopt_note(struct md_model *model); /* its engine's state has changed */
/* For the next daemon: the engine of this model is told to load an adapter. */
void md_adopt_note_adapter(struct md_model *model, const char *name, const char *path);
void md_adopt_drop_adapter(struct md_model *model, const char *name); /* it has none of this name any more */
/* Calls take for each adapter that earlier daemons have told this engine, which was adopted, to load. */
void md_adopt_each_adapter(struct md_model *model, void (*take)(void *context, const char *name, const char *path),
			   void *context);
/* Engines that nobody wants have not ended yet: ports and memory are not free. */
bool md_adopt_has_strays(const struct md_worker *worker);

#endif
