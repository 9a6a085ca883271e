/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a stream of events may be cut so that what stands before is whole: behind an event's blank line, and behind a
 * comment that stands between two events, as engines send to keep a connection open.
 */
#ifndef MD_WORKER_CORE_EVENT_BORDER_H
#define MD_WORKER_CORE_EVENT_BORDER_H

#include "worker/core/event_lines.h"

/* Begins as zeros. */
struct md_event_border {
	struct md_event_lines lines;
	bool comment; /* the line that has begun is one */
	bool pending; /* a line of an event has begun, and its blank line has not come */
};

/* The bytes of the next piece of the stream that stand before its last border; 0: it has none. */
size_t md_event_border_find(struct md_event_border *border, const char *bytes, size_t size);

#endif
