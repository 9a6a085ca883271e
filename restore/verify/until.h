/* SPDX-License-Identifier: Apache-2.0 */
/* Where the report ends, by MEDUSA_UNTIL. */
#ifndef MD_RESTORE_VERIFY_UNTIL_H
#define MD_RESTORE_VERIFY_UNTIL_H

#include "restore/restore.h"
#include "restore/verify/live_graphs.h"

/* True if MEDUSA_UNTIL was reached just now; the end is reported once. */
bool md_verify_until_mark(const char *name) MD_REQUIRES(md_verify_table_lock);
bool md_verify_until_graphs(size_t labelled) MD_REQUIRES(md_verify_table_lock);
void md_verify_until_end(void) MD_REQUIRES(md_verify_table_lock);
/* Whether the end was reported and the command is ended for it; no comparison may be made then. */
bool md_verify_until_over(void) MD_REQUIRES(md_verify_table_lock);

#endif
