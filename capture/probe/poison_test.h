/* SPDX-License-Identifier: Apache-2.0 */
/* When graphs are put to the poison test, which finds the private memory whose contents matter. */
#ifndef MD_CAPTURE_PROBE_POISON_TEST_H
#define MD_CAPTURE_PROBE_POISON_TEST_H

#include "capture/capture.h"

void md_capture_probe_exec(CUgraphExec exec);     /* unless it has been tested; inside a hook, lock not held */
void md_capture_probe_leaving(CUgraphExec exec);  /* the same before it is destroyed, with the check of handed memory */
void md_capture_probe_context(CUcontext context); /* all graphs of a context, NULL: all */

#endif
