/* SPDX-License-Identifier: Apache-2.0 */
/* Statements of the engine from before it uses the device. */
#ifndef MD_CAPTURE_API_EARLY_H
#define MD_CAPTURE_API_EARLY_H

#include "capture/capture.h"

/* True: the statement was kept, because the recording has not begun. A call of the API does not begin it. */
enum md_capture_early { MD_EARLY_FACT, MD_EARLY_MARK, MD_EARLY_STAGE };
bool md_capture_said_early(enum md_capture_early kind, const char *name, const char *value, uint64_t ns);
void md_capture_put_early(void); /* writes them, once the recording has begun; lock not held */

#endif
