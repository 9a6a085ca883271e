/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adapters that daemons have loaded into an engine, and that the configuration does not have any more: an engine that was
 * adopted may have them, or a load has ended late. They take places, and leave. What somebody else has loaded stays until its place
 * is wanted (adapter_foreign.h), and what the engine's own command names stays.
 */
#ifndef MD_WORKER_CORE_ADAPTER_STRAYS_H
#define MD_WORKER_CORE_ADAPTER_STRAYS_H

#include <stdbool.h>
#include <stddef.h>

struct md_model;

void md_adapter_strays_note(struct md_model *adapter); /* its engine is told to load it */
/* The engine has unloaded this adapter, and whatever else had its name. */
void md_adapter_strays_left(struct md_model *adapter);
void md_adapter_strays_adopt(struct md_model *model);  /* what earlier daemons have loaded into the engine */
void md_adapter_strays_forget(struct md_model *model); /* the engine has ended; nothing is under way any more */
/* Which are there, by the answer to GET /v1/models. True: some are, and will be unloaded. */
bool md_adapter_strays_find(struct md_model *model, const char *answer, size_t size);
/* A configured adapter finds no place: one that somebody else has loaded leaves, if there is one that may. */
bool md_adapter_strays_evict(struct md_model *model, const char *answer, size_t size);
void md_adapter_strays_unload(struct md_model *model);     /* the next one */
bool md_adapter_strays_wait(const struct md_model *model); /* some have not left yet */

#endif
