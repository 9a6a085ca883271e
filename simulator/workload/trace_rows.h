/* SPDX-License-Identifier: Apache-2.0 */
/* One line of a trace, in each of the formats in which traces are published. */
#ifndef MD_SIMULATOR_WORKLOAD_TRACE_ROWS_H
#define MD_SIMULATOR_WORKLOAD_TRACE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MD_SIM_PAIR_MAX 256

struct md_sim_row {
	uint64_t at;          /* ns since the start of the format's time */
	const char *function; /* borrowed from the line, or pair; function_bytes 0: the trace does not say */
	size_t function_bytes;
	uint32_t context, generated;
	const char *model; /* borrowed; NULL: the trace does not say */
	size_t model_bytes;
	char pair[MD_SIM_PAIR_MAX]; /* MODEL/ADAPTER, or MODEL */
};

/* An error in a line: its column, and a sentence. */
struct md_sim_row_error {
	const char *field, *what;
};

struct md_sim_row_form {
	const char *name;
	const char *head; /* a file of this format begins like this */
	bool header;      /* the first line is a header, exactly `head` */
	bool models;      /* rows name model and adapter, and functions are made of them (trace_functions.h) */
	bool from_first;  /* times count from the first request, not from the start */
	bool (*parse)(const char *line, size_t bytes, struct md_sim_row *row, struct md_sim_row_error *error);
};

/* Recognizes the format of a file by its first line; NULL: none of them. */
const struct md_sim_row_form *md_sim_row_form(const char *line, size_t bytes);

#endif
