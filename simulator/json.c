/* SPDX-License-Identifier: Apache-2.0 */
/* JSON writer. */
#include "simulator/json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

void md_json_init(struct md_json *json, FILE *out)
{
	*json = (struct md_json){.out = out};
}

int md_json_utf8_length(const char *bytes)
{
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *text = (const unsigned char *)bytes;
	int length = text[0] < 0x80             ? 1
		     : (text[0] & 0xe0) == 0xc0 ? 2
		     : (text[0] & 0xf0) == 0xe0 ? 3
		     : (text[0] & 0xf8) == 0xf0 ? 4
						: 0;
	uint32_t point;

	if (length < 2)
		return length;
	point = text[0] & (0x7fu >> length);
	for (int i = 1; i < length; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		point = point << 6 | (text[i] & 0x3f);
	}
	return point < smallest[length] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000) ? 0 : length;
}

static void write_text(FILE *out, const char *value)
{
	const unsigned char *at = (const unsigned char *)value;

	fputc('"', out);
	while (*at) {
		int length = md_json_utf8_length((const char *)at);
		if (!length) {
			fputs("\\ufffd", out);
			length = 1;
		} else if (*at == '"' || *at == '\\') {
			fprintf(out, "\\%c", *at);
		} else if (*at == '\n') {
			fputs("\\n", out);
		} else if (*at < 0x20 || *at == 0x7f) {
			fprintf(out, "\\u%04x", *at);
		} else {
			fwrite(at, 1, (size_t)length, out);
		}
		at += length;
	}
	fputc('"', out);
}

/* What stands before a value: the comma, the line, the key. */
static void lead(struct md_json *json, const char *key)
{
	if (json->depth) {
		bool *filled = &json->filled[json->depth - 1];
		assert(json->list[json->depth - 1] == (key == NULL));
		fputs(*filled ? ",\n" : "\n", json->out);
		*filled = true;
		fprintf(json->out, "%*s", (int)(2 * json->depth), "");
	}
	if (key) {
		write_text(json->out, key);
		fputs(": ", json->out);
	}
}

static void begin(struct md_json *json, const char *key, bool list)
{
	lead(json, key);
	assert(json->depth < MD_JSON_DEPTH_MAX);
	json->filled[json->depth] = false;
	json->list[json->depth++] = list;
	fputc(list ? '[' : '{', json->out);
}

void md_json_object(struct md_json *json, const char *key)
{
	begin(json, key, false);
}

void md_json_list(struct md_json *json, const char *key)
{
	begin(json, key, true);
}

void md_json_end(struct md_json *json)
{
	assert(json->depth);
	json->depth--;
	if (json->filled[json->depth])
		fprintf(json->out, "\n%*s", (int)(2 * json->depth), "");
	fputc(json->list[json->depth] ? ']' : '}', json->out);
	if (!json->depth)
		fputc('\n', json->out);
}

void md_json_text(struct md_json *json, const char *key, const char *value)
{
	lead(json, key);
	if (value)
		write_text(json->out, value);
	else
		fputs("null", json->out);
}

void md_json_number(struct md_json *json, const char *key, uint64_t value)
{
	lead(json, key);
	fprintf(json->out, "%" PRIu64, value);
}

void md_json_signed(struct md_json *json, const char *key, int64_t value)
{
	lead(json, key);
	fprintf(json->out, "%" PRId64, value);
}

static void write_real(FILE *out, double value)
{
	if (isfinite(value))
		fprintf(out, "%.6g", value);
	else
		fputs("null", out);
}

void md_json_real(struct md_json *json, const char *key, double value)
{
	lead(json, key);
	write_real(json->out, value);
}

void md_json_reals(struct md_json *json, const char *key, const double *values, size_t count)
{
	lead(json, key);
	fputc('[', json->out);
	for (size_t i = 0; i < count; i++) {
		fputs(i ? ", " : "", json->out);
		write_real(json->out, values[i]);
	}
	fputc(']', json->out);
}

void md_json_bool(struct md_json *json, const char *key, bool value)
{
	lead(json, key);
	fputs(value ? "true" : "false", json->out);
}
