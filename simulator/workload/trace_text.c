/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of a trace's line: numbers with a bound, fractions, and how an error is told. */
#include "simulator/workload/trace_text.h"

#include <stdarg.h>
#include <stdio.h>

bool md_sim_row_wrong(struct md_sim_row_error *error, const char *field, const struct md_sim_text *value,
		      const char *format, ...)
{
	va_list arguments;
	*error = (struct md_sim_row_error){.field = field};
	if (value) {
		error->value = value->at;
		error->value_bytes = (size_t)(value->end - value->at);
	}
	va_start(arguments, format);
	vsnprintf(error->what, sizeof(error->what), format, arguments);
	va_end(arguments);
	return false;
}

bool md_sim_text_byte(struct md_sim_text *text, char byte)
{
	if (text->at == text->end || *text->at != byte)
		return false;
	text->at++;
	return true;
}

void md_sim_text_blanks(struct md_sim_text *text)
{
	while (text->at < text->end && (*text->at == ' ' || *text->at == '\t'))
		text->at++;
}

bool md_sim_text_digits(struct md_sim_text *text, uint64_t max, uint64_t *value)
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

bool md_sim_text_fraction(struct md_sim_text *text, uint64_t scale, uint64_t *value)
{
	const char *start;
	*value = 0;
	if (!md_sim_text_byte(text, '.'))
		return true;
	start = text->at;
	for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++) {
		scale /= 10;
		*value += scale * (uint64_t)(*text->at - '0');
	}
	return text->at > start;
}
