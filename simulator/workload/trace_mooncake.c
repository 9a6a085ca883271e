/* SPDX-License-Identifier: Apache-2.0 */
/* Mooncake's traces: a JSON object in each line. */
#include "simulator/workload/trace_mooncake.h"

#include <string.h>

static bool take_string(struct md_sim_text *text, struct md_sim_text *string)
{
	if (!md_sim_text_byte(text, '"'))
		return false;
	string->at = text->at;
	for (; text->at < text->end; text->at++) {
		if (*text->at == '\\' && text->end - text->at > 1)
			text->at++;
		else if (*text->at == '"')
			break;
	}
	string->end = text->at;
	return md_sim_text_byte(text, '"');
}

/* Skips a value that contains no object: a string, a word, a number, or a list of these. */
static bool skip_value(struct md_sim_text *text)
{
	struct md_sim_text string;
	int depth = 0;
	do {
		const char *start;
		md_sim_text_blanks(text);
		while (md_sim_text_byte(text, '[')) {
			depth++;
			md_sim_text_blanks(text);
		}
		start = text->at;
		if (!take_string(text, &string))
			while (text->at < text->end && !strchr(",[]{}:\" \t", *text->at))
				text->at++;
		if (text->at == start && !(depth && start < text->end && *start == ']'))
			return false;
		md_sim_text_blanks(text);
		while (depth && md_sim_text_byte(text, ']')) {
			depth--;
			md_sim_text_blanks(text);
		}
	} while (depth && md_sim_text_byte(text, ','));
	return depth == 0;
}

enum { MOONCAKE_TIME, MOONCAKE_INPUT, MOONCAKE_OUTPUT, MOONCAKE_FIELDS };
static const char *const mooncake_fields[MOONCAKE_FIELDS] = {"timestamp", "input_length", "output_length"};

/* Up to what ends a value; for messages. */
static struct md_sim_text value_at(const struct md_sim_text *text)
{
	struct md_sim_text value = {text->at, text->at};
	while (value.end < text->end && *value.end != ',' && *value.end != '}')
		value.end++;
	return value;
}

/* A number that is written with an exponent, or is followed by what ends no value. */
static bool goes_on(const struct md_sim_text *text)
{
	return text->at < text->end && !strchr(",} \t", *text->at);
}

static bool take_member(struct md_sim_text *text, int field, struct md_sim_row *row, struct md_sim_row_error *error)
{
	const struct md_sim_text whole = value_at(text);
	uint64_t value, fraction;
	if (field == MOONCAKE_FIELDS)
		return skip_value(text) || md_sim_row_wrong(error, "line", NULL, "a value is expected");
	if (field == MOONCAKE_TIME) {
		if (!md_sim_text_digits(text, MD_SIM_SECONDS_MAX * UINT64_C(1000), &value) ||
		    !md_sim_text_fraction(text, 1000000, &fraction) || goes_on(text))
			return md_sim_row_wrong(error, mooncake_fields[field], &whole,
						"milliseconds are expected, up to 3000000000000, without an exponent");
		row->at = value * 1000000 + fraction;
		return true;
	}
	if (!md_sim_text_digits(text, MD_SIM_TOKENS_MAX, &value) || goes_on(text))
		return md_sim_row_wrong(error, mooncake_fields[field], &whole, MD_SIM_TOKENS_WANTED);
	*(field == MOONCAKE_INPUT ? &row->context : &row->generated) = (uint32_t)value;
	return true;
}

static int field_of(struct md_sim_text name)
{
	int i = 0;
	while (i < MOONCAKE_FIELDS && (strlen(mooncake_fields[i]) != (size_t)(name.end - name.at) ||
				       memcmp(mooncake_fields[i], name.at, (size_t)(name.end - name.at))))
		i++;
	return i;
}

bool md_sim_mooncake_row(const char *line, size_t bytes, struct md_sim_row *row, struct md_sim_row_error *error)
{
	struct md_sim_text text = {line, line + bytes}, name;
	bool seen[MOONCAKE_FIELDS + 1] = {false};
	if (!md_sim_text_byte(&text, '{'))
		return md_sim_row_wrong(error, "line", NULL, "an object is expected");
	do {
		md_sim_text_blanks(&text);
		if (!take_string(&text, &name))
			return md_sim_row_wrong(error, "line", NULL, "a name in quotes is expected");
		md_sim_text_blanks(&text);
		if (!md_sim_text_byte(&text, ':'))
			return md_sim_row_wrong(error, "line", NULL, "a colon is expected");
		md_sim_text_blanks(&text);
		int field = field_of(name);
		if (!take_member(&text, field, row, error))
			return false;
		if (field < MOONCAKE_FIELDS && seen[field])
			return md_sim_row_wrong(error, mooncake_fields[field], NULL, "it is given twice");
		seen[field] = true;
		md_sim_text_blanks(&text);
	} while (md_sim_text_byte(&text, ','));
	if (!md_sim_text_byte(&text, '}') || (md_sim_text_blanks(&text), text.at != text.end))
		return md_sim_row_wrong(error, "line", NULL, "the object does not end where the line does");
	for (int i = 0; i < MOONCAKE_FIELDS; i++)
		if (!seen[i])
			return md_sim_row_wrong(error, mooncake_fields[i], NULL, "it is missing");
	return true;
}
