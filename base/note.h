/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes about replays that may break their process: written before the replay, completed after it, read by the command.
 */
#ifndef MD_BASE_NOTE_H
#define MD_BASE_NOTE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

/*
 * The poison test and the proof replay graphs in the engine's own process, with memory and parameters that the graphs
 * never had. A kernel may fault, which breaks the context for good, or never end; neither can be mended inside the
 * process. So a line is written to a file (MEDUSA_NOTES) before each such test. If the process dies, the command that
 * started it reads which test was under way, and starts the engine again with that test left out (MEDUSA_LEAVE_OUT). A
 * line is
 *
 * PID EVENT TEST LABEL BATCH GRAPH WHY
 *
 * separated by tabs. Bytes that are not printable ASCII, and %, are written as %XX. LABEL is "%" for a graph without
 * one.
 */
enum md_note_event {
	MD_NOTE_BEGUN,
	MD_NOTE_ENDED,
	MD_NOTE_BROKE,    /* the context has an error that does not go away */
	MD_NOTE_HUNG,     /* a replay does not end */
	MD_NOTE_LEFT_OUT, /* written by the command */
	MD_NOTE_STOPPED,  /* no test: the recording of this process has stopped, and can no longer be completed */
};

#define MD_NOTE_RECORDING "recording" /* no test, either */
#define MD_NOTE_POISON "poison test"
#define MD_NOTE_PROOF "proof"
#define MD_NOTE_BORDER "trial of an address between two bindings" /* its label names a parameter, not a graph */

/* The subject of a note. A graph without a label (NULL) is identified by its number in the process. */
struct md_note_of {
	const char *test, *label;
	unsigned batch;
	uint64_t graph;
};

struct md_note {
	long pid;
	enum md_note_event event;
	struct md_note_of of;
	const char *why;
	char *text; /* owned; the strings point into it */
};

/* Reads the next note; false at the end. Lines that are not notes are skipped, and so is a line without its end. */
bool md_note_read(FILE *in, struct md_note *out);
/* Reads all notes of a file; the caller owns *list. MD_ERR_NOT_FOUND or another error if it cannot be read. */
enum md_status md_note_list(const char *path, struct md_note **list, size_t *count, struct md_error *err);
void md_note_list_finish(struct md_note *list, size_t count);
bool md_note_write(FILE *out, const struct md_note *note);
void md_note_finish(struct md_note *note);
bool md_note_same(const struct md_note_of *a, const struct md_note_of *b);

/* ---- in the engine's process; one test at a time ---- */

/* Whether a command reads the notes and ends this process when a note says that the process is broken. */
bool md_note_is_read(void);
/* what: the part of the test that comes next, "" for the whole test. A second call replaces the first. */
void md_note_begin(const struct md_note_of *of, const char *what);
/* The same for the test that is under way, if there is one: which of its replays comes next. */
void md_note_phase(const char *what);
void md_note_end(void);
/*
 * event: BROKE or HUNG. Does not return until the process is ended, because nothing right can come of it any more;
 * returns if nobody has ended it after half a minute.
 */
void md_note_break(enum md_note_event event, const char *why);
/* STOPPED. No other note of this process follows. */
void md_note_stopped(const char *why);
/* Why the command wants this test left out; NULL: it does not. */
const char *md_note_left_out(const struct md_note_of *of);
/* How many notes leave out this kind of test. */
unsigned md_note_left_out_count(const char *test);

#endif
