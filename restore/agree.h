/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one job restore a graph together, or capture it live together: they agree before any of them launches it. */
#ifndef MD_RESTORE_AGREE_H
#define MD_RESTORE_AGREE_H

#include "ranks/rank.h"
#include "restore/restore.h"

/* Reads which rank this process is. */
void md_restore_agree_init(void);
/* This process as a rank that meets others; NULL: it meets nobody, and restores no graph that communicates. */
const struct md_rank *md_restore_together(void);
/*
 * Called when medusa_graph_get is about to answer own, with the reason in *err: asks the other ranks, until deadline. If
 * one of them cannot restore the graph, it is taken back, and the answer is an error that names the rank.
 */
enum md_status md_restore_agree(struct md_restore *r, const char *label, unsigned batch, enum md_status own,
				uint64_t deadline_ns, struct md_error *err);
/*
 * Whether this rank hands the graph out whatever becomes of the other ranks: another graph of its group was handed out in all of them.
 * All graphs of the group are ready then, and the engine's own copy of what they hand on to each other is out of date.
 */
bool md_restore_is_promised(const struct md_restore *r, const struct md_restore_graph *graph) MD_RESTORE_HELD;
/*
 * Asks whether all ranks can answer the KV capacity from their artifacts, as own says of this one: to measure it, an engine runs a
 * forward, for which ranks that were answered would not be there.
 */
enum md_status md_restore_agree_capacity(struct md_restore *r, enum md_status own, struct md_error *err);
/* The engine has captured the graph live. If it has not asked for it, the other ranks are told so. */
void md_restore_agree_captured(struct md_restore *r, const char *label, unsigned batch);

#endif
