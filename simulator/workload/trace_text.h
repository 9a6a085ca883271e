/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of a trace's line: numbers with a bound, fractions, and how an error is told. */
#ifndef MD_SIMULATOR_WORKLOAD_TRACE_TEXT_H
#define MD_SIMULATOR_WORKLOAD_TRACE_TEXT_H

#include "simulator/workload/trace_rows.h"

#define MD_SIM_SECONDS_MAX 3000000000u /* since a start, or since 1970 */
#define MD_SIM_TOKENS_MAX 100000000u
#define MD_SIM_TOKENS_WANTED "a number of tokens up to 100000000 is expected"

struct md_sim_text {
	const char *at, *end; /* no NUL behind it */
};

/* Returns false. value NULL: the error is not about a value. */
bool md_sim_row_wrong(struct md_sim_row_error *error, const char *field, const struct md_sim_text *value,
		      const char *format, ...) __attribute__((format(printf, 4, 5)));

bool md_sim_text_byte(struct md_sim_text *text, char byte); /* takes that byte, if it is next */
void md_sim_text_blanks(struct md_sim_text *text);          /* skips blanks and tabs */
/* Reads at least one digit; false if there is none, or if the number exceeds max. */
bool md_sim_text_digits(struct md_sim_text *text, uint64_t max, uint64_t *value);
/* Reads ".5" behind whole units, in units of 1/scale; further digits are dropped. */
bool md_sim_text_fraction(struct md_sim_text *text, uint64_t scale, uint64_t *value);

#endif
