/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine says before it uses the device. */
#ifndef MD_CAPTURE_API_EARLY_H
#define MD_CAPTURE_API_EARLY_H

#include "capture/capture.h"

/* True when it was kept, as recording has not begun; the API alone does not begin it. */
enum md_capture_early { MD_EARLY_FACT, MD_EARLY_MARK, MD_EARLY_STAGE };
bool md_capture_said_early(enum md_capture_early kind, const char *name, const char *value, uint64_t ns);
void md_capture_put_early(void); /* recording has begun, or never will; lock not held */

#endif
