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
/* The engine has captured the graph live. If it has not asked for it, the other ranks are told so. */
void md_restore_agree_captured(struct md_restore *r, const char *label, unsigned batch);

#endif
