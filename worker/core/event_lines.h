/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of a stream of events (text/event-stream of the HTML standard) while it comes in pieces that are cut anywhere.
 * A line ends with LF, CR or CR LF; a byte order mark at the stream's beginning is no part of its first line.
 */
#ifndef MD_WORKER_CORE_EVENT_LINES_H
#define MD_WORKER_CORE_EVENT_LINES_H

#include <stdbool.h>
#include <stddef.h>

/* Begins as zeros. */
struct md_event_lines {
	unsigned mark; /* bytes of the byte order mark that have come; more than it has: the first line has begun */
	bool cr;       /* the last byte was one, which has ended a line: a LF now belongs to it */
	bool by_cr;    /* the last line has ended with a CR: the next one may, too */
	bool within;   /* a line has begun, or what may be a part of the mark, and its end has not come */
};

#define MD_EVENT_MARK "\xef\xbb\xbf" /* the byte order mark in UTF-8 */
#define MD_EVENT_MARK_SIZE 3u

/* The bytes of a line that are in one piece: a part of it, or all. */
struct md_event_part {
	const char *bytes;
	size_t size;
	bool begins; /* nothing of the line came before */
	bool ends;   /* the line's end came, too */
};

/*
 * Reads on at *at, and moves it behind what was read. False: nothing is left before `end` but what belongs to no line. The
 * bytes of a part are those of the piece, or static.
 */
bool md_event_lines_next(struct md_event_lines *lines, const char **at, const char *end, struct md_event_part *part);

#endif
