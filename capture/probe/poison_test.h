/* SPDX-License-Identifier: Apache-2.0 */
/* When graphs are put to the poison test, which shows what private memory has contents that matter. */
#ifndef MD_CAPTURE_PROBE_POISON_TEST_H
#define MD_CAPTURE_PROBE_POISON_TEST_H

#include "capture/capture.h"

void md_capture_probe_exec(CUgraphExec exec);     /* if it has not been; inside a hook, lock not held */
void md_capture_probe_leaving(CUgraphExec exec);  /* the same before it is destroyed, and who writes what others read */
void md_capture_probe_context(CUcontext context); /* all graphs of a context, NULL: all */

#endif
