/* SPDX-License-Identifier: Apache-2.0 */
/* What a cold start would lack when the engine asks for a graph. */
#ifndef MD_RESTORE_VERIFY_ASKED_H
#define MD_RESTORE_VERIFY_ASKED_H

#include "restore/restore.h"

/*
 * The engine asks for a graph: fails it if a cold start would lack something at this moment. What is loaded and written
 * until the engine labels the graph counts as part of its live capture, which a cold start leaves out. No lock.
 */
void md_verify_asked(struct md_restore *r, const char *label, unsigned batch);
void md_verify_labelled(struct md_restore *r, const char *label, unsigned batch);

#endif
