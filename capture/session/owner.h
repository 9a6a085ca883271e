/* SPDX-License-Identifier: Apache-2.0 */
/* Which process of a program writes the trace. */
#ifndef MD_CAPTURE_SESSION_OWNER_H
#define MD_CAPTURE_SESSION_OWNER_H

#include "capture/capture.h"
#include "format/trace/part_file.h"

/* The file to write, or NULL, and said why, when another process records to this trace. */
struct md_trace_part *md_capture_own(const char *path);
void md_capture_disown(void);           /* in a forked child */
void md_capture_disowned_warn(void);    /* once, when that child uses the device */
bool md_capture_lacks_files_warn(void); /* the limit of open files is too low for two */
void md_capture_not_asked_warn(void);   /* there is no MEDUSA_TRACE */

#endif
