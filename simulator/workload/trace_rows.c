/* SPDX-License-Identifier: Apache-2.0 */
/* One line of a trace: Azure's LLM inference traces, Mooncake's JSON lines, and our own CSV. */
#include "simulator/workload/trace_rows.h"

#include <string.h>

#define SECONDS_MAX 3000000000u /* since a start, or since 1970 */
#define TOKENS_MAX 100000000u
#define NS_PER_S UINT64_C(1000000000)

static bool wrong(struct md_sim_row_error *error, const char *field, const char *what)
{
	*error = (struct md_sim_row_error){field, what};
	return false;
}

struct text {
	const char *at, *end;
};

static bool take_byte(struct text *text, char byte)
{
	if (text->at == text->end || *text->at != byte)
		return false;
	text->at++;
	return true;
}

/* Reads at least one digit; false if there is none, or if the number exceeds max. */
static bool take_digits(struct text *text, uint64_t max, uint64_t *value)
{
	const char *start = text->at;
	*value = 0;
	for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++) {
		*value = *value * 10 + (uint64_t)(*text->at - '0');
		if (*value > max)
			return false;
	}
	return text->at > start;
}

/* Reads ".5" behind whole units, in units of 1/scale; further digits are dropped. */
static bool take_fraction(struct text *text, uint64_t scale, uint64_t *value)
{
	const char *start;
	*value = 0;
	if (!take_byte(text, '.'))
		return true;
	start = text->at;
	for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++) {
		scale /= 10;
		*value += scale * (uint64_t)(*text->at - '0');
	}
	return text->at > start;
}

/* Takes the text up to the next comma, and the comma. */
static struct text take_column(struct text *line)
{
	struct text column = {line->at, memchr(line->at, ',', (size_t)(line->end - line->at))};
	if (!column.end)
		column.end = line->end;
	line->at = column.end < line->end ? column.end + 1 : line->end;
	return column;
}

static bool parse_tokens(struct text column, bool needed, const char *field, uint32_t *tokens,
			 struct md_sim_row_error *error)
{
	uint64_t value = 0;
	if (column.at == column.end && !needed) {
		*tokens = 0;
		return true;
	}
	if (!take_digits(&column, TOKENS_MAX, &value) || column.at != column.end)
		return wrong(error, field, "a number of tokens up to 100000000 is expected");
	*tokens = (uint32_t)value;
	return true;
}

static bool has_columns(const char *line, size_t bytes, size_t count)
{
	for (const char *end = line + bytes; line < end; line++)
		count -= *line == ',';
	return count == 1;
}

/* ---- Azure ---- */

/* Days since 1970 of a date in the Gregorian calendar; the year begins in March, so that leap days come last. */
static uint64_t days_of(uint64_t year, uint64_t month, uint64_t day)
{
	uint64_t shifted = month > 2 ? year : year - 1;
	uint64_t of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
	return shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + of_year - 719468;
}

/* "2023-11-16 18:17:03.9799600", perhaps with "+00:00" */
static bool parse_timestamp(struct text text, uint64_t *ns)
{
	uint64_t part[6], fraction;
	static const uint64_t most[6] = {2060, 12, 31, 23, 59, 60};
	static const char after[6] = "-- ::";
	for (int i = 0; i < 6; i++)
		if (!take_digits(&text, most[i], &part[i]) || (i < 5 && !take_byte(&text, after[i])))
			return false;
	if (part[0] < 1970 || !part[1] || !part[2] || !take_fraction(&text, NS_PER_S, &fraction))
		return false;
	if (text.at != text.end && ((size_t)(text.end - text.at) != 6 || memcmp(text.at, "+00:00", 6)))
		return false;
	*ns =
	    (((days_of(part[0], part[1], part[2]) * 24 + part[3]) * 60 + part[4]) * 60 + part[5]) * NS_PER_S + fraction;
	return true;
}

static bool parse_azure(const char *line, size_t bytes, struct md_sim_row *row, struct md_sim_row_error *error)
{
	struct text text = {line, line + bytes};
	if (!has_columns(line, bytes, 3))
		return wrong(error, "line", "three columns are expected");
	if (!parse_timestamp(take_column(&text), &row->at))
		return wrong(error, "TIMESTAMP", "a time such as 2023-11-16 18:17:03.97996 is expected");
	return parse_tokens(take_column(&text), true, "ContextTokens", &row->context, error) &&
	       parse_tokens(take_column(&text), true, "GeneratedTokens", &row->generated, error);
}

/* ---- our own ---- */

static bool parse_seconds(struct text text, uint64_t *ns)
{
	uint64_t seconds, fraction;
	if (!take_digits(&text, SECONDS_MAX, &seconds) || !take_fraction(&text, NS_PER_S, &fraction) ||
	    text.at != text.end)
		return false;
	*ns = seconds * NS_PER_S + fraction;
	return true;
}

static bool parse_own(const char *line, size_t bytes, struct md_sim_row *row, struct md_sim_row_error *error)
{
	struct text text = {line, line + bytes}, name;
	if (!has_columns(line, bytes, 4))
		return wrong(error, "line", "four columns are expected");
	if (!parse_seconds(take_column(&text), &row->at))
		return wrong(error, "seconds", "seconds such as 12.5 are expected");
	name = take_column(&text);
	row->function = name.at;
	row->function_bytes = (size_t)(name.end - name.at);
	return parse_tokens(take_column(&text), false, "context", &row->context, error) &&
	       parse_tokens(take_column(&text), false, "generated", &row->generated, error);
}

/* ---- our own, of models with adapters ---- */

static bool parse_models(const char *line, size_t bytes, struct md_sim_row *row, struct md_sim_row_error *error)
{
	struct text text = {line, line + bytes}, model, adapter;
	if (!has_columns(line, bytes, 5))
		return wrong(error, "line", "five columns are expected");
	if (!parse_seconds(take_column(&text), &row->at))
		return wrong(error, "seconds", "seconds such as 12.5 are expected");
	model = take_column(&text);
	adapter = take_column(&text);
	row->model = model.at;
	row->model_bytes = (size_t)(model.end - model.at);
	size_t adapter_bytes = (size_t)(adapter.end - adapter.at);
	if (!row->model_bytes)
		return wrong(error, "model", "a model's name is expected");
	if (row->model_bytes + adapter_bytes >= sizeof(row->pair) || memchr(line, '\0', bytes))
		return wrong(error, "adapter", "names of up to 254 bytes, without zeros, are expected");
	memcpy(row->pair, model.at, row->model_bytes);
	row->pair[row->model_bytes] = '/';
	memcpy(row->pair + row->model_bytes + 1, adapter.at, adapter_bytes);
	row->function = row->pair;
	row->function_bytes = row->model_bytes + (adapter_bytes ? 1 + adapter_bytes : 0);
	return parse_tokens(take_column(&text), false, "context", &row->context, error) &&
	       parse_tokens(take_column(&text), false, "generated", &row->generated, error);
}

/* ---- Mooncake ---- */

static void skip_blanks(struct text *text)
{
	while (text->at < text->end && (*text->at == ' ' || *text->at == '\t'))
		text->at++;
}

static bool take_string(struct text *text, struct text *string)
{
	if (!take_byte(text, '"'))
		return false;
	string->at = text->at;
	for (; text->at < text->end; text->at++) {
		if (*text->at == '\\' && text->end - text->at > 1)
			text->at++;
		else if (*text->at == '"')
			break;
	}
	string->end = text->at;
	return take_byte(text, '"');
}

/* Skips a value that contains no object: a string, a word, a number, or a list of these. */
static bool skip_value(struct text *text)
{
	struct text string;
	int depth = 0;
	do {
		const char *start;
		skip_blanks(text);
		while (take_byte(text, '[')) {
			depth++;
			skip_blanks(text);
		}
		start = text->at;
		if (!take_string(text, &string))
			while (text->at < text->end && !strchr(",[]{}:\" \t", *text->at))
				text->at++;
		if (text->at == start && !(depth && start < text->end && *start == ']'))
			return false;
		skip_blanks(text);
		while (depth && take_byte(text, ']')) {
			depth--;
			skip_blanks(text);
		}
	} while (depth && take_byte(text, ','));
	return depth == 0;
}

enum { MOONCAKE_TIME, MOONCAKE_INPUT, MOONCAKE_OUTPUT, MOONCAKE_FIELDS };
static const char *const mooncake_fields[MOONCAKE_FIELDS] = {"timestamp", "input_length", "output_length"};

static bool take_member(struct text *text, int field, struct md_sim_row *row, struct md_sim_row_error *error)
{
	uint64_t value, fraction;
	if (field == MOONCAKE_FIELDS)
		return skip_value(text) || wrong(error, "line", "a value is expected");
	if (field == MOONCAKE_TIME) {
		if (!take_digits(text, SECONDS_MAX * UINT64_C(1000), &value) ||
		    !take_fraction(text, 1000000, &fraction))
			return wrong(error, mooncake_fields[field], "milliseconds are expected");
		row->at = value * 1000000 + fraction;
		return true;
	}
	if (!take_digits(text, TOKENS_MAX, &value))
		return wrong(error, mooncake_fields[field], "a number of tokens up to 100000000 is expected");
	*(field == MOONCAKE_INPUT ? &row->context : &row->generated) = (uint32_t)value;
	return true;
}

static int field_of(struct text name)
{
	int i = 0;
	while (i < MOONCAKE_FIELDS && (strlen(mooncake_fields[i]) != (size_t)(name.end - name.at) ||
				       memcmp(mooncake_fields[i], name.at, (size_t)(name.end - name.at))))
		i++;
	return i;
}

static bool parse_mooncake(const char *line, size_t bytes, struct md_sim_row *row, struct md_sim_row_error *error)
{
	struct text text = {line, line + bytes}, name;
	bool seen[MOONCAKE_FIELDS + 1] = {false};
	if (!take_byte(&text, '{'))
		return wrong(error, "line", "an object is expected");
	do {
		skip_blanks(&text);
		if (!take_string(&text, &name))
			return wrong(error, "line", "a name in quotes is expected");
		skip_blanks(&text);
		if (!take_byte(&text, ':'))
			return wrong(error, "line", "a colon is expected");
		skip_blanks(&text);
		int field = field_of(name);
		if (!take_member(&text, field, row, error))
			return false;
		if (field < MOONCAKE_FIELDS && seen[field])
			return wrong(error, mooncake_fields[field], "it is given twice");
		seen[field] = true;
		skip_blanks(&text);
	} while (take_byte(&text, ','));
	if (!take_byte(&text, '}') || (skip_blanks(&text), text.at != text.end))
		return wrong(error, "line", "the object does not end where the line does");
	for (int i = 0; i < MOONCAKE_FIELDS; i++)
		if (!seen[i])
			return wrong(error, mooncake_fields[i], "it is missing");
	return true;
}

/* ---- which one ---- */

static const struct md_sim_row_form forms[] = {
    {"Azure LLM inference", "TIMESTAMP,ContextTokens,GeneratedTokens", .header = true, .from_first = true,
     .parse = parse_azure},
    {"CSV", "seconds,function,context,generated", .header = true, .parse = parse_own},
    {"CSV", "seconds,model,adapter,context,generated", .header = true, .models = true, .parse = parse_models},
    {"Mooncake", "{", .parse = parse_mooncake},
};

const struct md_sim_row_form *md_sim_row_form(const char *line, size_t bytes)
{
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		size_t length = strlen(forms[i].head);
		if (forms[i].header ? bytes == length : bytes >= length)
			if (memcmp(line, forms[i].head, length) == 0)
				return &forms[i];
	}
	return NULL;
}
