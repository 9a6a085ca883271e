/* SPDX-License-Identifier: Apache-2.0 */
/* What a cold start would lack when the engine asks for a graph. */
#ifndef MD_RESTORE_VERIFY_ASKED_H
#define MD_RESTORE_VERIFY_ASKED_H

#include "restore/restore.h"

/*
 * The engine asks for a graph: what a cold start would lack at this moment fails it. What is loaded and written
 * from then on, until it labels the graph, counts as its live capture's, which a cold start leaves out. No lock.
 */
void md_verify_asked(struct md_restore *r, const char *label, unsigned batch);
void md_verify_labelled(struct md_restore *r, const char *label, unsigned batch);

#endif
