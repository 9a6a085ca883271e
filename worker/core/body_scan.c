/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/body_scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "worker/core/json_plain.h"

/* What may come next. */
enum step { VALUE, FIRST_ELEMENT, KEY, FIRST_KEY, AFTER, END, FAILED };

struct scan {
	const char *text, *at, *end;
	struct md_body_object *object;
	struct md_body_failure *failure;
	uint32_t depth, values;
	uint64_t objects[MD_BODY_LEVELS_MAX / 64 + 1]; /* a bit for each level: it is an object, and no array */
};

static enum step fail(struct scan *scan, const char *why)
{
	*scan->failure = (struct md_body_failure){.at = (size_t)(scan->at - scan->text), .why = why};
	return FAILED;
}

static enum step fail_wanted(struct scan *scan, const char *why)
{
	return fail(scan, scan->at == scan->end ? "the text ends too early" : why);
}

/* The next byte, behind white space; 0: none. */
static char next(struct scan *scan)
{
	while (scan->at < scan->end &&
	       (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\r' || *scan->at == '\t'))
		scan->at++;
	return scan->at < scan->end ? *scan->at : '\0';
}

static bool is_digit(const struct scan *scan)
{
	return scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9';
}

/* ---- texts ---- */

static bool take_escape(struct scan *scan)
{
	static const char digits[] = "0123456789abcdefABCDEF";
	const char *letter = scan->at + 1;
	if (letter < scan->end && *letter && strchr("\"\\/bfnrt", *letter)) {
		scan->at += 2;
		return true;
	}
	if (letter == scan->end || *letter != 'u' || scan->end - letter < 5)
		return false;
	for (int i = 1; i <= 4; i++)
		if (!letter[i] || !strchr(digits, letter[i]))
			return false;
	scan->at += 6;
	return true;
}

/* From one quotation mark to behind the other. */
static bool take_text(struct scan *scan)
{
	for (scan->at++;;) {
		scan->at = md_json_plain_skip(scan->at, scan->end);
		if (scan->at == scan->end)
			return fail(scan, "the text ends within quotation marks"), false;
		unsigned char byte = (unsigned char)*scan->at;
		if (byte == '"')
			return scan->at++, true;
		if (byte < ' ')
			return fail(scan, "a control character stands in quotation marks"), false;
		if (byte == '\\') {
			if (!take_escape(scan))
				return fail(scan, "JSON does not have this escape sequence"), false;
			continue;
		}
		size_t length = byte < 0x80 ? 1 : md_utf8_length(scan->at, NULL);
		if (!length || length > (size_t)(scan->end - scan->at))
			return fail(scan, "this is no UTF-8"), false;
		scan->at += length;
	}
}

/* ---- numbers and words ---- */

static bool take_digits(struct scan *scan)
{
	bool any = is_digit(scan);
	while (is_digit(scan))
		scan->at++;
	return any;
}

static bool take_number(struct scan *scan)
{
	scan->at += *scan->at == '-';
	if (scan->at < scan->end && *scan->at == '0')
		scan->at++;
	else if (!take_digits(scan))
		return false;
	if (scan->at < scan->end && *scan->at == '.') {
		scan->at++;
		if (!take_digits(scan))
			return false;
	}
	if (scan->at < scan->end && (*scan->at == 'e' || *scan->at == 'E')) {
		scan->at++;
		scan->at += scan->at < scan->end && (*scan->at == '+' || *scan->at == '-');
		return take_digits(scan);
	}
	return true;
}

static bool take_word(struct scan *scan, const char *word)
{
	size_t size = strlen(word);
	if ((size_t)(scan->end - scan->at) < size || memcmp(scan->at, word, size) != 0)
		return false;
	scan->at += size;
	return true;
}

/* ---- arrays, objects and their values ---- */

static struct md_body_member *last_member(struct scan *scan)
{
	return &scan->object->members[scan->object->count - 1];
}

static bool in_object(const struct scan *scan)
{
	uint32_t level = scan->depth - 1;
	return scan->objects[level / 64] >> level % 64 & 1;
}

static enum step enter(struct scan *scan)
{
	uint64_t bit = UINT64_C(1) << scan->depth % 64, *bits = &scan->objects[scan->depth / 64];
	if (scan->depth == MD_BODY_LEVELS_MAX)
		return fail(scan, "there are more than 10,000 levels of brackets");
	bool object = *scan->at++ == '{';
	*bits = object ? *bits | bit : *bits & ~bit;
	scan->depth++;
	return object ? FIRST_KEY : FIRST_ELEMENT;
}

/* A value has ended. */
static enum step end_value(struct scan *scan)
{
	if (scan->depth == 1)
		last_member(scan)->value_size = (size_t)(scan->at - scan->text) - last_member(scan)->value;
	return AFTER;
}

static enum step leave(struct scan *scan)
{
	if (--scan->depth == 0)
		scan->object->close = (size_t)(scan->at - scan->text);
	scan->at++;
	return scan->depth ? end_value(scan) : END;
}

static enum step take_value(struct scan *scan)
{
	char first = next(scan);
	if (scan->values++ == MD_BODY_VALUES_MAX)
		return fail(scan, "there are more than 10,000,000 values");
	if (scan->depth == 1)
		last_member(scan)->value = (size_t)(scan->at - scan->text);
	if (first == '{' || first == '[')
		return enter(scan);
	if (first == '"')
		return take_text(scan) ? end_value(scan) : FAILED;
	if (first == '-' || is_digit(scan))
		return take_number(scan) ? end_value(scan) : fail_wanted(scan, "a digit is wanted");
	if (take_word(scan, "true") || take_word(scan, "false") || take_word(scan, "null"))
		return end_value(scan);
	return fail_wanted(scan, "a value is wanted");
}

static bool add_member(struct scan *scan, size_t key, size_t size)
{
	struct md_body_object *object = scan->object;
	if (object->count == MD_BODY_MEMBERS_MAX)
		return fail(scan, "the object has more than 4,096 members"), false;
	if (!MD_ARRAY_GROW(object->members, object->count, object->room)) {
		fail(scan, "out of memory for the members of the object");
		scan->failure->no_memory = true;
		return false;
	}
	object->members[object->count++] = (struct md_body_member){.key = key, .key_size = size};
	return true;
}

static enum step take_key(struct scan *scan)
{
	if (next(scan) != '"')
		return fail_wanted(scan, "a name in quotation marks is wanted");
	size_t key = (size_t)(scan->at - scan->text) + 1;
	if (!take_text(scan))
		return FAILED;
	if (scan->depth == 1 && !add_member(scan, key, (size_t)(scan->at - scan->text) - key - 1))
		return FAILED;
	if (next(scan) != ':')
		return fail_wanted(scan, "a colon is wanted");
	scan->at++;
	return VALUE;
}

static enum step take_after(struct scan *scan)
{
	bool object = in_object(scan);
	char byte = next(scan);
	if (byte == (object ? '}' : ']'))
		return leave(scan);
	if (byte != ',')
		return fail_wanted(scan, object ? "a comma or } is wanted" : "a comma or ] is wanted");
	scan->at++;
	return object ? KEY : VALUE;
}

static enum step take_step(struct scan *scan, enum step step)
{
	switch (step) {
	case FIRST_ELEMENT:
		return next(scan) == ']' ? leave(scan) : take_value(scan);
	case FIRST_KEY:
		return next(scan) == '}' ? leave(scan) : take_key(scan);
	case KEY:
		return take_key(scan);
	case AFTER:
		return take_after(scan);
	default:
		return take_value(scan);
	}
}

static enum step begin(struct scan *scan)
{
	if (next(scan) != '{')
		return fail_wanted(scan, "an object is wanted, which begins with {");
	scan->object->open = (size_t)(scan->at - scan->text);
	return enter(scan);
}

bool md_body_scan(const char *text, size_t size, struct md_body_object *object, struct md_body_failure *failure)
{
	struct scan scan = {.text = text, .at = text, .end = text + size, .object = object, .failure = failure};
	*object = (struct md_body_object){0};
	enum step step = begin(&scan);
	while (step != END && step != FAILED)
		step = take_step(&scan, step);
	if (step == END && (next(&scan) || scan.at < scan.end))
		step = fail(&scan, "something follows the object");
	if (step == FAILED)
		md_body_object_finish(object);
	return step == END;
}

void md_body_object_finish(struct md_body_object *object)
{
	free(object->members);
	*object = (struct md_body_object){0};
}
