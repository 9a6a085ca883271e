/* SPDX-License-Identifier: Apache-2.0 */
/* Reads lines of JSON strictly: one flat object, unescaped in place. */
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

struct scan {
	char *line;
	size_t size, at;
	struct md_error *err;
};

static enum md_status bad(const struct scan *s, const char *what)
{
	return md_error_set(s->err, MD_ERR_CORRUPT, "byte %zu: %s", s->at, what);
}

static char here(const struct scan *s)
{
	return s->at < s->size ? s->line[s->at] : '\0';
}

static void skip_blanks(struct scan *s)
{
	while (here(s) == ' ' || here(s) == '\t')
		s->at++;
}

static enum md_status expect(struct scan *s, char wanted)
{
	skip_blanks(s);
	if (here(s) != wanted)
		return md_error_set(s->err, MD_ERR_CORRUPT, "byte %zu: expected '%c'", s->at, wanted);
	s->at++;
	return MD_OK;
}

/* ---- strings ---- */

static int hex_digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

static bool read_hex(struct scan *s, int digits, uint32_t *value)
{
	*value = 0;
	for (int i = 0; i < digits; i++, s->at++) {
		int digit = hex_digit(here(s));
		if (digit < 0)
			return false;
		*value = *value << 4 | (uint32_t)digit;
	}
	return true;
}

static char *put_point(char *out, uint32_t point)
{
	static const uint32_t leads[] = {0, 0xc0, 0xe0, 0xf0};
	if (point < 0x80) {
		*out++ = (char)point;
		return out;
	}
	int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
	*out++ = (char)(leads[more] | point >> 6 * more);
	while (more--)
		*out++ = (char)(0x80 | (point >> 6 * more & 0x3f));
	return out;
}

/* Called behind the backslash. The result is never longer than the escape sequence. */
static enum md_status unescape(struct scan *s, char **out)
{
	static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
	char c = here(s);
	const char *found = c ? strchr(names, c) : NULL;
	uint32_t point, low = 0;
	s->at++;
	if (found) {
		*(*out)++ = values[found - names];
		return MD_OK;
	}
	if (c != 'u' || !read_hex(s, 4, &point))
		return bad(s, "not a valid escape sequence");
	if (point >= 0xd800 && point < 0xdc00) {
		bool pair = here(s) == '\\' && s->at + 1 < s->size && s->line[s->at + 1] == 'u';
		s->at += pair ? 2 : 0;
		if (!pair || !read_hex(s, 4, &low) || low < 0xdc00 || low > 0xdfff)
			return bad(s, "an unpaired surrogate");
		point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
	} else if (!point || (point >= 0xdc00 && point < 0xe000)) {
		return bad(s, "an escape sequence that stands for no character");
	}
	*out = put_point(*out, point);
	return MD_OK;
}

static enum md_status read_text(struct scan *s, const char **text)
{
	MD_FORWARD(expect(s, '"'));
	char *out = s->line + s->at;
	*text = out;
	while (here(s) != '"') {
		size_t length = s->at < s->size ? md_utf8_length(s->line + s->at, NULL) : 0;
		if (s->at >= s->size)
			return bad(s, "the line ends within a string");
		if (!length || length > s->size - s->at || (unsigned char)here(s) < 0x20)
			return bad(s, "invalid UTF-8, or a control character");
		if (here(s) == '\\') {
			s->at++;
			MD_FORWARD(unescape(s, &out));
			continue;
		}
		memmove(out, s->line + s->at, length);
		out += length;
		s->at += length;
	}
	s->at++;
	*out = '\0'; /* not beyond the closing quote */
	return MD_OK;
}

/* ---- values ---- */

static enum md_status read_number(struct scan *s, uint64_t *number)
{
	size_t start = s->at;
	*number = 0;
	for (; here(s) >= '0' && here(s) <= '9'; s->at++) {
		unsigned digit = (unsigned)(here(s) - '0');
		if (*number > (UINT64_MAX - digit) / 10)
			return bad(s, "a number of more than 64 bits");
		*number = *number * 10 + digit;
	}
	if (s->at == start || (s->line[start] == '0' && s->at > start + 1))
		return bad(s, "expected a string, a whole number, true or false");
	return MD_OK;
}

static enum md_status read_value(struct scan *s, struct md_json_field *field)
{
	skip_blanks(s);
	if (here(s) == '"') {
		field->kind = MD_JSON_TEXT;
		return read_text(s, &field->text);
	}
	for (uint64_t truth = 0; truth < 2; truth++) {
		const char *word = truth ? "true" : "false";
		if (s->size - s->at < strlen(word) || strncmp(s->line + s->at, word, strlen(word)) != 0)
			continue;
		s->at += strlen(word);
		field->kind = MD_JSON_BOOL;
		field->number = truth;
		return MD_OK;
	}
	field->kind = MD_JSON_NUMBER;
	return read_number(s, &field->number);
}

/* ---- KEY_hex ---- */

/* Decodes the hexadecimal digits of a KEY_hex value in place. */
static bool decode(char *text)
{
	char *out = text;
	for (; *text; text += 2) {
		int high = hex_digit(text[0]), low = high < 0 ? -1 : hex_digit(text[1]);
		if (low < 0 || !(high | low))
			return false;
		*out++ = (char)(high << 4 | low);
	}
	*out = '\0';
	return true;
}

/* KEY_hex comes directly after KEY and replaces its value. False: it is an ordinary field. */
static bool replaces(const struct md_json_field *hex, const struct md_json_field *before)
{
	size_t length = before ? strlen(before->key) : 0;
	return before && !before->exact && before->kind == MD_JSON_TEXT && hex->kind == MD_JSON_TEXT &&
	       !strncmp(hex->key, before->key, length) && !strcmp(hex->key + length, "_hex");
}

static enum md_status add_field(struct scan *s, struct md_json_field field, struct md_json_field *fields, size_t room,
				size_t *count)
{
	if (replaces(&field, *count ? &fields[*count - 1] : NULL)) {
		if (!decode((char *)field.text))
			return bad(s, "expected hexadecimal digits, two for each byte");
		fields[*count - 1].text = field.text;
		fields[*count - 1].exact = true;
		return MD_OK;
	}
	for (size_t i = 0; i < *count; i++)
		if (!strcmp(fields[i].key, field.key))
			return bad(s, "a key that is given twice");
	if (*count == room)
		return md_error_set(s->err, MD_ERR_TOO_LARGE, "byte %zu: more than %zu fields", s->at, room);
	fields[(*count)++] = field;
	return MD_OK;
}

enum md_status md_json_read_line(char *line, size_t size, struct md_json_field *fields, size_t room, size_t *count,
				 struct md_error *err)
{
	struct scan s = {.line = line, .size = size, .err = err};
	*count = 0;
	MD_FORWARD(expect(&s, '{'));
	skip_blanks(&s);
	for (bool more = here(&s) != '}'; more;) {
		struct md_json_field field = {0};
		skip_blanks(&s);
		MD_FORWARD(read_text(&s, &field.key));
		MD_FORWARD(expect(&s, ':'));
		MD_FORWARD(read_value(&s, &field));
		MD_FORWARD(add_field(&s, field, fields, room, count));
		skip_blanks(&s);
		more = here(&s) == ',';
		s.at += more;
	}
	MD_FORWARD(expect(&s, '}'));
	skip_blanks(&s);
	return s.at == s.size ? MD_OK : bad(&s, "there is data after the object");
}
