/* SPDX-License-Identifier: Apache-2.0 */
/* The facts, arguments and limits of the engine, against the artifact's. */
#ifndef MD_RESTORE_RESTORE_FACTS_H
#define MD_RESTORE_RESTORE_FACTS_H

#include "restore/restore.h"

/* Names the first stated fact that the artifact does not have, or has with another value. */
enum md_status md_restore_facts_compare(struct md_restore *r, struct md_error *err);
/* Compares the arguments, for an engine that states no facts. */
enum md_status md_restore_arguments_compare(const struct md_restore *r, struct md_error *err);
/* Compares the limits of the context with those in which the graphs were made. */
enum md_status md_restore_limits_check(struct md_restore *r, struct md_error *err) MD_REQUIRES(md_restore_lock);
/*
 * The same, with the lock released meanwhile, because the driver may answer only after it has made the graph that the
 * background is making. Whatever was known under the lock before must be looked at again.
 */
enum md_status md_restore_limits_ask(struct md_restore *r, struct md_error *err) MD_REQUIRES(md_restore_lock);
/*
 * Whether code may be loaded: not while a limit is too low. The engine may still raise it, and the driver lets nobody
 * change the heap once code that uses it is loaded.
 */
bool md_restore_limits_fit(struct md_restore *r) MD_REQUIRES(md_restore_lock);
/* The engine has set a limit. Takes lock. */
void md_restore_limits_changed(struct md_restore *r);
/*
 * As md_restore_facts_compare; also names the first fact of the
 * artifact that was never stated. Under lock, with an open artifact.
 */
enum md_status md_restore_facts_check(struct md_restore *r, struct md_error *err);
/* Before graphs are handed out: refuses the artifact when a fact was not stated. Waits until the artifact is open. */
void md_restore_facts_settle(struct md_restore *r, uint64_t deadline_ns);
/*
 * Refuses the whole artifact for good, says why once, and frees everything except graphs that were handed out: these go
 * with medusa_release. No lock may be held.
 */
void md_restore_refuse_all(struct md_restore *r, const struct md_error *why);
/* Likewise, when ranks agree on nothing more; md_restore_is_promised says which graphs are handed out nevertheless. */
void md_restore_part(struct md_restore *r, const struct md_error *why);

#endif
