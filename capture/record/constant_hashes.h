/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of what the engine has bound as constant. */
#ifndef MD_CAPTURE_RECORD_CONSTANT_HASHES_H
#define MD_CAPTURE_RECORD_CONSTANT_HASHES_H

#include "capture/capture.h"

/* Contents were saved: from here on it counts what they may have been made of. */
void md_capture_constants_needed(void) MD_CAPTURE_HELD;
enum md_capture_constants {
	MD_CONSTANTS_NEW,      /* those that have no hash yet */
	MD_CONSTANTS_AGAIN,    /* those that have: they should still have the same */
	MD_CONSTANTS_SEQUENCE, /* all that is bound by sequence, just now */
};
/* To the trace, if it counts. The driver may be called. */
void md_capture_constants_put(enum md_capture_constants which) MD_CAPTURE_HELD;

#endif
