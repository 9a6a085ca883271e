/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/accounting/usage_scan.h"

/* The text is whole. What is no JSON object has no counts, whatever came in it. */
static void take_counts(struct md_usage_scan *scan)
{
	const struct md_usage_counts *counts = md_usage_text_counts(&scan->text);
	if (counts && counts->told[0])
		scan->prompt = counts->of[0];
	if (counts && counts->told[1])
		scan->completion = counts->of[1];
	for (int kind = 0; counts && kind < 2; kind++)
		scan->wrong[kind] = counts->wrong[kind] || (scan->wrong[kind] && !counts->told[kind]);
	if (counts && counts->told_cached) {
		scan->told_cached = true;
		scan->cached = counts->cached;
		scan->of = scan->prompt + (counts->apart ? counts->cached : 0);
	}
	scan->told = scan->told || (counts && (counts->told[0] || counts->told[1]));
}

/* ---- streams ---- */

static const char data[] = "data:", line_end[] = "\n", done[] = "[DONE]";

#define FIELD_DATA (sizeof(data) - 1)
#define FIELD_OTHER (FIELD_DATA + 1)
#define DONE (sizeof(done) - 1)
#define DONE_OTHER (DONE + 1)

/* A space in front of it is no part of a value. */
static void match_done(struct md_usage_scan *scan, const char *at, const char *end)
{
	for (; at < end && scan->done < DONE_OTHER; at++)
		if (scan->done || *at != ' ')
			scan->done = scan->done < DONE && *at == done[scan->done] ? scan->done + 1 : DONE_OTHER;
}

/*
 * The values of an event's fields "data" are one text, with line ends between them. One more in front of it, and the space
 * that is no part of a value, mean nothing there.
 */
static void take_line(struct md_usage_scan *scan, const struct md_event_part *part)
{
	const char *at = part->bytes, *end = at + part->size;
	if (part->begins)
		scan->field = 0;
	for (; at < end && scan->field < FIELD_DATA; at++) {
		scan->field = *at == data[scan->field] ? scan->field + 1 : FIELD_OTHER;
		if (scan->field == FIELD_DATA)
			md_usage_text_read(&scan->text, line_end, line_end + 1);
	}
	if (scan->field != FIELD_DATA)
		return;
	match_done(scan, at, end);
	md_usage_text_read(&scan->text, at, end);
}

static void scan_events(struct md_usage_scan *scan, const char *at, const char *end)
{
	struct md_event_part part;
	while (md_event_lines_next(&scan->lines, &at, end, &part)) {
		if (part.size) {
			take_line(scan, &part);
		} else if (part.begins) {
			take_counts(scan);
			scan->text = (struct md_usage_text){0};
			scan->ended = scan->done == DONE || (scan->ended && !scan->done);
			scan->done = 0;
		}
	}
}

void md_usage_scan(struct md_usage_scan *scan, const char *bytes, size_t size)
{
	if (scan->kind == MD_ANSWER_JSON)
		md_usage_text_read(&scan->text, bytes, bytes + size);
	else if (scan->kind == MD_ANSWER_EVENTS)
		scan_events(scan, bytes, bytes + size);
}

bool md_usage_scan_is_whole(const struct md_usage_scan *scan)
{
	return scan->kind == MD_ANSWER_JSON ? md_usage_text_counts(&scan->text) != NULL
					    : scan->kind == MD_ANSWER_EVENTS && scan->ended;
}

bool md_usage_scan_is_half(const struct md_usage_scan *scan)
{
	return scan->kind == MD_ANSWER_JSON && scan->text.expect != MD_TEXT_BAD && scan->text.depth;
}

void md_usage_scan_end(struct md_usage_scan *scan)
{
	if (scan->kind == MD_ANSWER_JSON)
		take_counts(scan);
}
