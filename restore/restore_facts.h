/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine says it is, against what the artifact was made with. */
#ifndef MD_RESTORE_RESTORE_FACTS_H
#define MD_RESTORE_RESTORE_FACTS_H

#include "restore/restore.h"

/* The first fact said so far that the artifact does not have, or has with another value. */
enum md_status md_restore_facts_compare(struct md_restore *r, struct md_error *err);
/* An engine of which no facts were recorded, by how it was started. */
enum md_status md_restore_arguments_compare(const struct md_restore *r, struct md_error *err);
/* The limits of the context that is restored in, against those that the graphs were made with. */
enum md_status md_restore_limits_check(struct md_restore *r, struct md_error *err) MD_REQUIRES(r->lock);
/*
 * Whether code may be loaded. Not while a limit is too low: the engine may still raise it, and the driver
 * lets nobody change the heap once code that uses it is loaded.
 */
bool md_restore_limits_fit(struct md_restore *r) MD_REQUIRES(r->lock);
/* The engine has set a limit. Takes lock. */
void md_restore_limits_changed(struct md_restore *r);
/* As md_restore_facts_compare, and the first fact of the artifact that was not said at all. Under lock, open. */
enum md_status md_restore_facts_check(struct md_restore *r, struct md_error *err);
/* Before graphs are handed out: refuses everything when a fact was not said. Waits for the artifact. */
void md_restore_facts_settle(struct md_restore *r, uint64_t deadline_ns);
/*
 * Refuses the whole artifact for good, says why once, and frees all that was made, but for graphs that were handed out:
 * these go with medusa_release. No lock may be held.
 */
void md_restore_refuse_all(struct md_restore *r, const struct md_error *why);

#endif
