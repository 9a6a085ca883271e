/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of constant bindings. */
#ifndef MD_CAPTURE_RECORD_CONSTANT_HASHES_H
#define MD_CAPTURE_RECORD_CONSTANT_HASHES_H

#include "capture/capture.h"

/* Contents were saved: from here on the trace must tell from which constants they may have been made. */
void md_capture_constants_needed(void) MD_CAPTURE_HELD;
enum md_capture_constants {
	MD_CONSTANTS_NEW,      /* constants without a hash */
	MD_CONSTANTS_ASKED,    /* the same, when the engine asks for a graph, also if no contents were saved */
	MD_CONSTANTS_LABELLED, /* constants with a hash, which nobody should have written since the engine asked */
	MD_CONSTANTS_LEFT,     /* the same, at a last look: what is gone by then is passed over */
	MD_CONSTANTS_AGAIN,    /* constants with a hash, which should not have changed */
	MD_CONSTANTS_SEQUENCE, /* everything that was just bound by sequence */
};
/* Writes the hashes to the trace if contents were saved. The driver may be called. */
void md_capture_constants_put(enum md_capture_constants which) MD_CAPTURE_HELD;
/*
 * Called when a graph was labelled: looks for constants that were written since the engine asked for graphs. An engine
 * may have thousands of graphs, so looks take at most a twentieth of the time since the first one. A look that is put off
 * is made up for at a later label, when the engine launches another graph than the one that it has just labelled, at a
 * mark, or when the recording ends.
 */
void md_capture_constants_labelled(CUgraphExec exec) MD_CAPTURE_HELD;
void md_capture_constants_launching(CUgraphExec exec) MD_CAPTURE_HELD;
void md_capture_constants_last_look(void) MD_CAPTURE_HELD;

#endif
