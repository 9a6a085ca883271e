/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/accounting/usage_scan.h"

#include <jansson.h>
#include <string.h>

/* ---- the object ---- */

static void take_count(struct md_usage_scan *scan, const json_t *object, const char *name, const char *other,
		       uint64_t *count)
{
	const json_t *value = json_object_get(object, name);
	value = value ? value : json_object_get(object, other);
	if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > MD_USAGE_COUNT_MAX)
		return;
	*count = (uint64_t)json_integer_value(value);
	scan->told = true;
}

static void take_object(struct md_usage_scan *scan)
{
	json_t *object = json_loadb(scan->object, scan->size, 0, NULL);
	take_count(scan, object, "prompt_tokens", "input_tokens", &scan->prompt);
	take_count(scan, object, "completion_tokens", "output_tokens", &scan->completion);
	json_decref(object);
}

/* An object that is too large is left out; the rest of it is gone over as of any other. */
static void collect(struct md_usage_scan *scan, const char *from, const char *to)
{
	struct md_usage_text *text = &scan->text;
	size_t size = (size_t)(to - from);
	text->collects = size <= sizeof(scan->object) - scan->size;
	if (!text->collects)
		return;
	memcpy(scan->object + scan->size, from, size);
	scan->size += size;
	if (text->depth > text->level)
		return;
	text->collects = false;
	take_object(scan);
}

/* ---- what is gone over ---- */

/* Up to the end of a string. */
static const char *skip_string(struct md_usage_text *text, const char *at, const char *end)
{
	at += text->escaped;
	for (;;) {
		const char *mark = memchr(at, '"', (size_t)(end - at)), *stop = mark ? mark : end, *first = stop;
		while (first > at && first[-1] == '\\')
			first--;
		text->escaped = (stop - first) % 2;
		if (!mark)
			return end;
		at = mark + 1;
		if (!text->escaped)
			break;
	}
	text->in_string = false;
	return at;
}

/* Up to a string, or the end of what is open in there. */
static const char *skip_deep(struct md_usage_text *text, const char *at, const char *end)
{
	static const signed char steps[256] = {['"'] = 2, ['{'] = 1, ['['] = 1, ['}'] = -1, [']'] = -1};
	while (at < end) {
		int step = steps[(unsigned char)*at++];
		if (!step)
			continue;
		text->in_string = step == 2;
		if (text->in_string)
			return at;
		text->depth = step > 0 ? text->depth + 1 : text->depth - 1;
		if (text->depth == text->level)
			return at;
	}
	return end;
}

/* ---- names ---- */

static void put_name(struct md_usage_text *text, char byte)
{
	if (text->size < MD_USAGE_NAME_MAX)
		text->name[text->size] = byte;
	text->size += text->size <= MD_USAGE_NAME_MAX;
}

/* A character that is in no name that is looked for stands for all others. */
static void put_hex(struct md_usage_text *text, char byte)
{
	unsigned digit = byte >= '0' && byte <= '9' ? (unsigned)(byte - '0') : ((unsigned char)byte | 0x20u) - 'a' + 10;
	text->code = digit < 16 ? text->code << 4 | digit : 0xffff;
	if (!--text->hex)
		put_name(text, text->code < 0x80 ? (char)text->code : '\0');
}

static void put_escaped(struct md_usage_text *text, char byte)
{
	text->escaped = false;
	text->code = 0;
	text->hex = byte == 'u' ? 4 : 0;
	if (!text->hex)
		put_name(text, '\0');
}

static const char *read_name(struct md_usage_text *text, const char *at, const char *end)
{
	for (; at < end; at++) {
		if (text->hex)
			put_hex(text, *at);
		else if (text->escaped)
			put_escaped(text, *at);
		else if (*at == '\\')
			text->escaped = true;
		else if (*at == '"')
			break;
		else
			put_name(text, *at);
	}
	if (at == end)
		return end;
	text->in_name = false;
	text->expect = MD_TEXT_COLON;
	return at + 1;
}

static bool is_name(const struct md_usage_text *text, const char *name)
{
	return text->size == strlen(name) && !memcmp(text->name, name, text->size);
}

/* ---- the levels at which names are read ---- */

static void open_object(struct md_usage_scan *scan)
{
	struct md_usage_text *text = &scan->text;
	bool first = text->expect == MD_TEXT_BEGIN;
	bool inner = text->level == 1 && (is_name(text, "message") || is_name(text, "response"));
	text->collects = text->level && is_name(text, "usage");
	text->depth++;
	text->level += first || inner;
	text->expect = first || inner ? MD_TEXT_NAME : MD_TEXT_NEXT;
	scan->object[0] = '{';
	scan->size = 1;
}

static void close_object(struct md_usage_text *text)
{
	text->depth--;
	text->level--;
	text->expect = text->level ? MD_TEXT_NEXT : MD_TEXT_OVER;
}

static void begin_string(struct md_usage_text *text)
{
	text->in_name = text->expect == MD_TEXT_NAME;
	text->in_string = !text->in_name;
	text->escaped = false;
	text->hex = text->size = 0;
	text->expect = MD_TEXT_NEXT;
}

/* A byte that can't be there ends the text: nothing is counted of what no reader of JSON would take. */
static void take_byte(struct md_usage_scan *scan, char byte)
{
	struct md_usage_text *text = &scan->text;
	bool value = text->expect == MD_TEXT_VALUE, begin = text->expect == MD_TEXT_BEGIN;
	bool next = text->expect == MD_TEXT_NEXT, name = text->expect == MD_TEXT_NAME;
	if (byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r')
		return;
	if (byte == '"' && (name || value)) {
		begin_string(text);
	} else if (byte == '{' && (value || begin)) {
		open_object(scan);
	} else if (byte == '[' && value) {
		text->depth++;
		text->expect = MD_TEXT_NEXT;
	} else if (byte == '}' && (next || name)) {
		close_object(text);
	} else if (byte == ':' && text->expect == MD_TEXT_COLON) {
		text->expect = MD_TEXT_VALUE;
	} else if (byte == ',' && next) {
		text->expect = MD_TEXT_NAME;
	} else if ((value || next) && !strchr("\"{}[]:,", byte)) {
		text->expect = MD_TEXT_NEXT; /* of a number, or a word */
	} else {
		text->expect = MD_TEXT_OVER;
	}
}

static void scan_text(struct md_usage_scan *scan, const char *at, const char *end)
{
	struct md_usage_text *text = &scan->text;
	while (at < end && text->expect != MD_TEXT_OVER) {
		const char *from = at;
		bool collects = text->collects;
		if (text->in_string)
			at = skip_string(text, at, end);
		else if (text->in_name)
			at = read_name(text, at, end);
		else if (text->depth > text->level)
			at = skip_deep(text, at, end);
		else
			take_byte(scan, *at++);
		if (collects)
			collect(scan, from, at);
	}
}

/* ---- streams ---- */

static const char data[] = "data:", line_end[] = "\n";

#define FIELD_DATA (sizeof(data) - 1)
#define FIELD_OTHER (FIELD_DATA + 1)

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
			scan_text(scan, line_end, line_end + 1);
	}
	if (scan->field == FIELD_DATA)
		scan_text(scan, at, end);
}

static void scan_events(struct md_usage_scan *scan, const char *at, const char *end)
{
	struct md_event_part part;
	while (md_event_lines_next(&scan->lines, &at, end, &part)) {
		if (part.size)
			take_line(scan, &part);
		else if (part.begins)
			scan->text = (struct md_usage_text){0};
	}
}

void md_usage_scan(struct md_usage_scan *scan, const char *bytes, size_t size)
{
	if (scan->kind == MD_ANSWER_JSON)
		scan_text(scan, bytes, bytes + size);
	else if (scan->kind == MD_ANSWER_EVENTS)
		scan_events(scan, bytes, bytes + size);
}
