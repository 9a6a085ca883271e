/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of constant bindings, from which contents may have been made. */
#ifndef MD_RESTORE_CONSTANTS_H
#define MD_RESTORE_CONSTANTS_H

#include "restore/restore.h"

/* Loads the hash kernel, or waits for the thread that loads it; does nothing if no hash is to be compared. No lock. */
void md_restore_constants_prepare(struct md_restore *r);
void md_restore_constants_finish(struct md_restore *r);
/* True if a binding that the graph depends on has not been hashed. */
bool md_restore_constants_open(const struct md_restore *r, const struct md_restore_graph *graph)
    MD_REQUIRES(md_restore_lock);
/* MD_ERR_MISMATCH names the first binding whose hash differs from the artifact's. */
enum md_status md_restore_constants_check(const struct md_restore *r, const struct md_restore_graph *graph,
					  struct md_error *err) MD_REQUIRES(md_restore_lock);
/* Forgets the hash of a binding that was bound again. */
void md_restore_constants_rebound(struct md_restore *r, uint32_t binding) MD_REQUIRES(md_restore_lock);
/*
 * Hashes all open bindings, once the work that the engine has submitted is done, and refuses
 * the graphs whose contents were made from other bytes. After an error the caller may try
 * again. The first function is called with work held, the second one without a lock.
 */
enum md_status md_restore_constants_hash(struct md_restore *r, struct md_error *err) MD_REQUIRES(md_restore_work);
enum md_status md_restore_constants_settle(struct md_restore *r, struct md_error *err);

#endif
