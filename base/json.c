/* SPDX-License-Identifier: Apache-2.0 */
/* JSON writer. */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/utf8.h"

void md_json_init(struct md_json *json, FILE *out)
{
	*json = (struct md_json){.out = out};
}

void md_json_init_line(struct md_json *json, FILE *out)
{
	*json = (struct md_json){.out = out, .one_line = true};
}

/* Characters that a terminal would act upon are escaped; all of them lie below U+10000. */
static void write_text(FILE *out, const char *value)
{
	fputc('"', out);
	while (*value) {
		uint32_t point = 0;
		size_t length = md_utf8_length(value, &point);
		if (!length)
			fputs("\\ufffd", out);
		else if (point == '"' || point == '\\')
			fprintf(out, "\\%c", (char)point);
		else if (point == '\n')
			fputs("\\n", out);
		else if (md_utf8_acts(point))
			fprintf(out, "\\u%04" PRIx32, point);
		else
			fwrite(value, 1, length, out);
		value += length ? length : 1;
	}
	fputc('"', out);
}

/* Writes what precedes a value: the comma, the line break, the key. */
static void lead_named(struct md_json *json, const char *key, const char *suffix)
{
	if (json->depth) {
		bool *filled = &json->filled[json->depth - 1];
		fputs(*filled ? "," : "", json->out);
		if (!json->one_line)
			fprintf(json->out, "\n%*s", (int)(2 * json->depth), "");
		else if (*filled)
			fputc(' ', json->out);
		*filled = true;
	}
	if (key)
		fprintf(json->out, "\"%s%s\": ", key, suffix);
}

static void lead(struct md_json *json, const char *key)
{
	lead_named(json, key, "");
}

static void begin(struct md_json *json, const char *key, bool list)
{
	lead(json, key);
	if (json->depth == MD_JSON_DEPTH_MAX)
		return; /* no caller nests so deep */
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
	json->depth--;
	if (json->filled[json->depth] && !json->one_line)
		fprintf(json->out, "\n%*s", (int)(2 * json->depth), "");
	fputc(json->list[json->depth] ? ']' : '}', json->out);
	if (!json->depth)
		fputc('\n', json->out);
}

void md_json_text(struct md_json *json, const char *key, const char *value)
{
	lead(json, key);
	if (!value) {
		fputs("null", json->out);
		return;
	}
	write_text(json->out, value);
	if (!key || md_utf8_valid(value))
		return;
	lead_named(json, key, "_hex");
	fputc('"', json->out);
	for (; *value; value++)
		fprintf(json->out, "%02x", (unsigned char)*value);
	fputc('"', json->out);
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

void md_json_numbers(struct md_json *json, const char *key, const uint64_t *values, size_t count)
{
	lead(json, key);
	fputc('[', json->out);
	for (size_t i = 0; i < count; i++)
		fprintf(json->out, "%s%" PRIu64, i ? ", " : "", values[i]);
	fputc(']', json->out);
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
