/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/accounting/usage_text.h"

#include <string.h>

#include "worker/core/json_plain.h"

/* ---- names ---- */

/* The first of two that is there counts: OpenAI's, or that of Anthropic and of OpenAI's Responses. */
static const char *const counted[4] = {"prompt_tokens", "input_tokens", "completion_tokens", "output_tokens"};
/* Of the prompt, what a cache had: OpenAI's, in the details of its count, and Anthropic's, which that count does not have. */
enum { CACHED = 4, CACHED_APART };
static const char *const details[2] = {"prompt_tokens_details", "input_tokens_details"};
static const char cached[] = "cached_tokens", cached_apart[] = "cache_read_input_tokens";

static bool is_name(const struct md_usage_text *text, const char *name)
{
	return text->size == strlen(name) && !memcmp(text->name, name, text->size);
}

static void put_name(struct md_usage_text *text, char byte)
{
	if (text->size < MD_USAGE_NAME_MAX)
		text->name[text->size] = byte;
	text->size += text->size <= MD_USAGE_NAME_MAX;
}

/* Whether the name that was read last is one of an object that is watched. */
static bool is_watched(const struct md_usage_text *text)
{
	return text->watched == text->depth;
}

/* ---- counts ---- */

static void set_count(struct md_usage_text *text, int which, bool good)
{
	bool null = text->token == MD_TEXT_WORD && *text->word == 'u';
	text->found[which] = good ? MD_COUNT_GOOD : null ? MD_COUNT_NULL : MD_COUNT_BAD;
	text->values[which] = text->value;
}

/* A member of an object with counts has this value. */
static void note_value(struct md_usage_text *text, bool good)
{
	if (!text->in_usage || !is_watched(text))
		return;
	if (text->in_details) {
		if (is_name(text, cached))
			set_count(text, CACHED, good);
		return;
	}
	for (int i = 0; i < 4; i++)
		if (is_name(text, counted[i]))
			set_count(text, i, good);
	if (is_name(text, cached_apart))
		set_count(text, CACHED_APART, good);
}

static void begin_usage(struct md_usage_text *text)
{
	text->in_usage = true;
	memset(text->found, 0, sizeof(text->found));
}

static void end_usage(struct md_usage_text *text)
{
	text->in_usage = false;
	for (int kind = 0; kind < 2; kind++) {
		int at = 2 * kind + !text->found[2 * kind];
		if (text->found[at] == MD_COUNT_GOOD || text->found[at] == MD_COUNT_BAD)
			text->counts.wrong[kind] = text->found[at] == MD_COUNT_BAD;
		if (text->found[at] != MD_COUNT_GOOD)
			continue;
		text->counts.told[kind] = true;
		text->counts.of[kind] = text->values[at];
	}
	for (int at = CACHED; at <= CACHED_APART; at++)
		if (text->found[at] == MD_COUNT_GOOD) {
			text->counts.told_cached = true;
			text->counts.cached = text->values[at];
			text->counts.apart = at == CACHED_APART;
		}
}

/* ---- objects and lists ---- */

static void fail(struct md_usage_text *text)
{
	text->expect = MD_TEXT_BAD;
}

static bool in_object(const struct md_usage_text *text)
{
	unsigned level = text->depth - 1;
	return text->objects[level / 64] >> level % 64 & 1;
}

/* Whether the object that opens has counts, or may have an object with counts. */
static void watch(struct md_usage_text *text)
{
	bool usage = text->depth && is_name(text, "usage");
	bool inner = text->depth == 1 && (is_name(text, "message") || is_name(text, "response"));
	if (is_watched(text) && text->in_usage && !text->in_details &&
	    (is_name(text, details[0]) || is_name(text, details[1]))) {
		text->watched++;
		text->in_details = true;
		return;
	}
	if (!is_watched(text) || text->in_usage || (text->depth && !usage && !inner))
		return;
	text->watched++;
	if (usage)
		begin_usage(text);
}

static void enter(struct md_usage_text *text, bool object)
{
	uint64_t bit = UINT64_C(1) << text->depth % 64, *bits = &text->objects[text->depth / 64];
	note_value(text, false);
	if (text->depth == MD_USAGE_LEVELS_MAX) {
		fail(text);
		return;
	}
	if (object)
		watch(text);
	*bits = object ? *bits | bit : *bits & ~bit;
	text->depth++;
	text->expect = object ? MD_TEXT_FIRST_NAME : MD_TEXT_FIRST_VALUE;
}

static void leave(struct md_usage_text *text)
{
	if (is_watched(text)) {
		if (text->in_details)
			text->in_details = false;
		else if (text->in_usage)
			end_usage(text);
		text->watched--;
	}
	text->depth--;
	text->expect = text->depth ? MD_TEXT_NEXT : MD_TEXT_END;
}

/* ---- strings ---- */

static void begin_string(struct md_usage_text *text, bool name)
{
	text->token = MD_TEXT_STRING;
	text->is_name = name;
	text->escaped = false;
	text->hex = text->more = 0;
	if (name)
		text->size = 0;
	else
		note_value(text, false);
}

static void end_string(struct md_usage_text *text)
{
	text->token = MD_TEXT_NO_TOKEN;
	text->expect = text->is_name ? MD_TEXT_COLON : MD_TEXT_NEXT;
}

/* Characters that are in no name that is looked for are all the same. */
static void put(struct md_usage_text *text, char byte)
{
	if (text->is_name)
		put_name(text, byte);
}

static void take_hex(struct md_usage_text *text, unsigned char byte)
{
	unsigned letter = (byte | 0x20u) - 'a';
	unsigned digit = byte >= '0' && byte <= '9' ? byte - (unsigned)'0' : letter < 6 ? letter + 10 : 16;
	if (digit == 16)
		fail(text);
	text->code = text->code << 4 | digit;
	if (!--text->hex)
		put(text, text->code < 0x80 ? (char)text->code : '\0');
}

static void take_escaped(struct md_usage_text *text, char byte)
{
	text->escaped = false;
	text->code = 0;
	if (byte == 'u')
		text->hex = 4;
	else if (byte && strchr("\"\\/bfnrt", byte))
		put(text, '\0');
	else
		fail(text);
}

/* The first byte of a character of several (RFC 3629): no surrogates, nothing longer than it must be. */
static void begin_character(struct md_usage_text *text, unsigned char byte)
{
	text->more = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
	text->low = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
	text->high = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
	if (byte < 0xc2 || byte > 0xf4)
		fail(text);
}

static void go_on_character(struct md_usage_text *text, unsigned char byte)
{
	if (byte < text->low || byte > text->high)
		fail(text);
	text->low = 0x80;
	text->high = 0xbf;
	if (!--text->more)
		put(text, '\0');
}

static void take_of_string(struct md_usage_text *text, unsigned char byte)
{
	if (text->more)
		go_on_character(text, byte);
	else if (text->hex)
		take_hex(text, byte);
	else if (text->escaped)
		take_escaped(text, (char)byte);
	else if (byte == '"')
		end_string(text);
	else if (byte == '\\')
		text->escaped = true;
	else if (byte < ' ')
		fail(text);
	else if (byte >= 0x80)
		begin_character(text, byte);
	else
		put(text, (char)byte);
}

static const char *read_string(struct md_usage_text *text, const char *at, const char *end)
{
	while (at < end && text->token == MD_TEXT_STRING && text->expect != MD_TEXT_BAD) {
		if (!text->is_name && !text->more && !text->hex && !text->escaped)
			at = md_json_plain_skip(at, end);
		if (at < end)
			take_of_string(text, (unsigned char)*at++);
	}
	return at;
}

/* ---- numbers and words ---- */

static void begin_number(struct md_usage_text *text)
{
	text->token = MD_TEXT_NUMBER;
	text->number = MD_NUMBER_SIGN;
	text->negative = false;
	text->value = 0;
}

static void end_number(struct md_usage_text *text)
{
	bool integer = text->number == MD_NUMBER_ZERO || text->number == MD_NUMBER_DIGITS;
	if (text->number == MD_NUMBER_SIGN || text->number == MD_NUMBER_DOT || text->number == MD_NUMBER_E ||
	    text->number == MD_NUMBER_E_SIGN) {
		fail(text);
		return;
	}
	text->token = MD_TEXT_NO_TOKEN;
	text->expect = MD_TEXT_NEXT;
	note_value(text, integer && text->value <= MD_USAGE_COUNT_MAX && (!text->negative || !text->value));
}

static void take_digit(struct md_usage_text *text, char byte)
{
	switch (text->number) {
	case MD_NUMBER_SIGN:
		text->number = byte == '0' ? MD_NUMBER_ZERO : MD_NUMBER_DIGITS;
		text->value = (uint64_t)(byte - '0');
		break;
	case MD_NUMBER_ZERO:
		fail(text);
		break;
	case MD_NUMBER_DIGITS:
		if (text->value <= MD_USAGE_COUNT_MAX)
			text->value = text->value * 10 + (uint64_t)(byte - '0');
		break;
	case MD_NUMBER_DOT:
		text->number = MD_NUMBER_FRACTION;
		break;
	case MD_NUMBER_E:
	case MD_NUMBER_E_SIGN:
		text->number = MD_NUMBER_E_DIGITS;
		break;
	default:
		break;
	}
}

/* False: the byte is no part of the number, which has ended before it. */
static bool take_of_number(struct md_usage_text *text, char byte)
{
	bool integer = text->number == MD_NUMBER_ZERO || text->number == MD_NUMBER_DIGITS;
	if (byte >= '0' && byte <= '9')
		take_digit(text, byte);
	else if (byte == '-' && text->number == MD_NUMBER_SIGN && !text->negative)
		text->negative = true;
	else if (byte == '.' && integer)
		text->number = MD_NUMBER_DOT;
	else if ((byte == 'e' || byte == 'E') && (integer || text->number == MD_NUMBER_FRACTION))
		text->number = MD_NUMBER_E;
	else if ((byte == '+' || byte == '-') && text->number == MD_NUMBER_E)
		text->number = MD_NUMBER_E_SIGN;
	else
		return false;
	return true;
}

static const char *read_number(struct md_usage_text *text, const char *at, const char *end)
{
	while (at < end && text->expect != MD_TEXT_BAD) {
		if (!take_of_number(text, *at)) {
			end_number(text);
			break;
		}
		at++;
	}
	return at;
}

static void begin_word(struct md_usage_text *text, char byte)
{
	static const char *const words[] = {"true", "false", "null"};
	for (int i = 0; i < 3; i++)
		if (*words[i] == byte) {
			text->token = MD_TEXT_WORD;
			text->word = words[i] + 1;
			note_value(text, false);
			return;
		}
	fail(text);
}

static const char *read_word(struct md_usage_text *text, const char *at, const char *end)
{
	for (; at < end && *text->word; at++)
		if (*at != *text->word++) {
			fail(text);
			return at;
		}
	if (*text->word)
		return at;
	text->token = MD_TEXT_NO_TOKEN;
	text->expect = MD_TEXT_NEXT;
	return at;
}

/* ---- what stands between them ---- */

/* True: the byte begins a number, and is the first one of it. */
static bool begin_value(struct md_usage_text *text, char byte)
{
	if (byte == '{' || byte == '[')
		enter(text, byte == '{');
	else if (byte == '"')
		begin_string(text, false);
	else if (byte == '-' || (byte >= '0' && byte <= '9'))
		begin_number(text);
	else
		begin_word(text, byte);
	return text->token == MD_TEXT_NUMBER;
}

static void take_next(struct md_usage_text *text, char byte)
{
	bool object = in_object(text);
	if (byte == ',')
		text->expect = object ? MD_TEXT_NAME : MD_TEXT_VALUE;
	else if (byte == (object ? '}' : ']'))
		leave(text);
	else
		fail(text);
}

/* Returns how many bytes it has used: 0 or 1. */
static size_t take_byte(struct md_usage_text *text, char byte)
{
	if (byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t')
		return 1;
	switch (text->expect) {
	case MD_TEXT_BEGIN:
		if (byte == '{')
			enter(text, true);
		else
			fail(text); /* an answer is an object */
		break;
	case MD_TEXT_FIRST_NAME:
	case MD_TEXT_NAME:
		if (byte == '"')
			begin_string(text, true);
		else if (byte == '}' && text->expect == MD_TEXT_FIRST_NAME)
			leave(text);
		else
			fail(text);
		break;
	case MD_TEXT_COLON:
		text->expect = byte == ':' ? MD_TEXT_VALUE : MD_TEXT_BAD;
		break;
	case MD_TEXT_FIRST_VALUE:
		if (byte == ']')
			leave(text);
		else
			return !begin_value(text, byte);
		break;
	case MD_TEXT_VALUE:
		return !begin_value(text, byte);
	case MD_TEXT_NEXT:
		take_next(text, byte);
		break;
	default:
		fail(text);
	}
	return 1;
}

void md_usage_text_read(struct md_usage_text *text, const char *at, const char *end)
{
	while (at < end && text->expect != MD_TEXT_BAD) {
		switch (text->token) {
		case MD_TEXT_STRING:
			at = read_string(text, at, end);
			break;
		case MD_TEXT_NUMBER:
			at = read_number(text, at, end);
			break;
		case MD_TEXT_WORD:
			at = read_word(text, at, end);
			break;
		default:
			at += take_byte(text, *at);
		}
	}
}

const struct md_usage_counts *md_usage_text_counts(const struct md_usage_text *text)
{
	return text->expect == MD_TEXT_END ? &text->counts : NULL;
}
