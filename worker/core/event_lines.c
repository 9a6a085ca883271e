/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the ends of lines in a stream of events, piece by piece. */
#include "worker/core/event_lines.h"

#include <string.h>

static const char mark[] = MD_EVENT_MARK;

#define MARK_SIZE MD_EVENT_MARK_SIZE

/* True: what came of the mark is none, but the beginning of the first line. */
static bool pass_mark(struct md_event_lines *lines, const char **at, const char *end, struct md_event_part *part)
{
	while (lines->mark < MARK_SIZE && *at < end && **at == mark[lines->mark]) {
		lines->mark++;
		(*at)++;
	}
	lines->within = lines->mark % MARK_SIZE;
	if (lines->mark < MARK_SIZE && *at == end)
		return false;
	*part = (struct md_event_part){.bytes = mark, .size = lines->mark % MARK_SIZE, .begins = true};
	lines->mark = MARK_SIZE + 1;
	return lines->within;
}

/* The first of both; NULL: there is none. Looking for the one first that ended the last line goes over no byte often. */
static const char *find_end(const char *at, const char *end, bool by_cr)
{
	const char *one = memchr(at, by_cr ? '\r' : '\n', (size_t)(end - at));
	const char *other = memchr(at, by_cr ? '\n' : '\r', (size_t)((one ? one : end) - at));
	return other ? other : one;
}

/* The second half of CR LF. */
static void pass_lf(struct md_event_lines *lines, const char **at, const char *end)
{
	if (*at == end)
		return;
	*at += lines->cr && **at == '\n';
	lines->cr = false;
}

bool md_event_lines_next(struct md_event_lines *lines, const char **at, const char *end, struct md_event_part *part)
{
	if (lines->mark <= MARK_SIZE && pass_mark(lines, at, end, part))
		return true;
	pass_lf(lines, at, end);
	if (*at == end)
		return false;
	const char *stop = find_end(*at, end, lines->by_cr);
	*part = (struct md_event_part){
	    .bytes = *at, .size = (size_t)((stop ? stop : end) - *at), .begins = !lines->within, .ends = stop};
	*at = stop ? stop + 1 : end;
	lines->within = !stop;
	lines->cr = stop && *stop == '\r';
	lines->by_cr = stop ? lines->cr : lines->by_cr;
	pass_lf(lines, at, end);
	return true;
}
