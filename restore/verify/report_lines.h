/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a verify run. */
#ifndef MD_RESTORE_VERIFY_REPORT_LINES_H
#define MD_RESTORE_VERIFY_REPORT_LINES_H

#include "format/verify_line.h"
#include "restore/restore.h"

/* Lines of the report: a comparison begins; its verdict; MEDUSA_UNTIL was reached; the end. False: it cannot be written. */
bool md_verify_report_begin(const char *label, unsigned batch);
void md_verify_report(const char *label, unsigned batch, enum md_verdict verdict, uint64_t bytes, const char *reason);
void md_verify_report_until(void);
void md_verify_report_end(void);

#endif
