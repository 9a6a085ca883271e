/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/accounting/usage_scan.h"

#include <jansson.h>
#include <string.h>

static const char key[] = "\"usage\"";

static void take_count(struct md_usage_scan *scan, const json_t *object, const char *name, const char *other,
		       uint64_t *count)
{
	const json_t *value = json_object_get(object, name);
	value = value ? value : json_object_get(object, other);
	if (!json_is_integer(value) || json_integer_value(value) < 0)
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

static void begin_anew(struct md_usage_scan *scan)
{
	scan->state = MD_SCAN_KEY;
	scan->matched = 0;
	scan->escaped = false;
}

static void scan_key(struct md_usage_scan *scan, char byte)
{
	if (byte == '"' && !scan->matched)
		scan->matched = !scan->escaped;
	else if (scan->matched && byte == key[scan->matched])
		scan->matched++;
	else
		scan->matched = byte == '"' && !scan->escaped;
	scan->escaped = byte == '\\' && !scan->escaped;
	if (scan->matched == sizeof(key) - 1)
		scan->state = MD_SCAN_COLON;
}

static void scan_colon(struct md_usage_scan *scan, char byte)
{
	if (byte == ':' || byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r')
		return;
	begin_anew(scan); /* null, or no object */
	if (byte != '{')
		return;
	scan->state = MD_SCAN_OBJECT;
	scan->object[0] = '{';
	scan->size = scan->depth = 1;
	scan->in_text = scan->text_escaped = false;
}

static void scan_object(struct md_usage_scan *scan, char byte)
{
	if (scan->size == MD_USAGE_OBJECT_MAX) {
		begin_anew(scan);
		return;
	}
	scan->object[scan->size++] = byte;
	if (scan->in_text) {
		scan->in_text = byte != '"' || scan->text_escaped;
		scan->text_escaped = byte == '\\' && !scan->text_escaped;
		return;
	}
	scan->in_text = byte == '"';
	scan->depth += byte == '{';
	scan->depth -= byte == '}';
	if (scan->depth)
		return;
	take_object(scan);
	begin_anew(scan);
}

void md_usage_scan(struct md_usage_scan *scan, const char *bytes, size_t size)
{
	for (const char *at = bytes, *end = bytes + size; at < end; at++) {
		if (scan->state == MD_SCAN_KEY && !scan->matched && !scan->escaped) {
			/* most of an answer holds nothing of it: the letters are looked for, then what stands before */
			const char *found = memmem(at, (size_t)(end - at), "\"usag", 5);
			const char *last = end - at > 6 ? end - 6 : at;
			at = found && found < last ? found : last;
			scan->escaped = at > bytes && at[-1] == '\\';
		}
		if (scan->state == MD_SCAN_KEY)
			scan_key(scan, *at);
		else if (scan->state == MD_SCAN_COLON)
			scan_colon(scan, *at);
		else
			scan_object(scan, *at);
	}
}
