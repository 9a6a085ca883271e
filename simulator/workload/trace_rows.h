/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a trace, in each of the formats in which traces are published. */
#ifndef MD_SIMULATOR_WORKLOAD_TRACE_ROWS_H
#define MD_SIMULATOR_WORKLOAD_TRACE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MD_SIM_PAIR_MAX 256

struct md_sim_row {
	uint64_t at;          /* ns since the start of the format's time */
	const char *function; /* borrowed from the text, or pair; function_bytes 0: the trace does not say */
	size_t function_bytes;
	uint32_t context, generated;
	const char *model; /* borrowed; NULL: the trace does not say */
	size_t model_bytes;
	const char *tenant; /* borrowed; tenant_bytes 0: the trace does not say */
	size_t tenant_bytes;
	char pair[MD_SIM_PAIR_MAX]; /* MODEL/ADAPTER, or MODEL */
};

/* An error in a line: its column (NULL: none), the value (borrowed; NULL: none), and a sentence. */
struct md_sim_row_error {
	const char *field, *value;
	size_t value_bytes;
	char what[200];
};

#define MD_SIM_CSV_COLUMNS 8

/* Which columns a CSV file has, by its header. */
struct md_sim_csv {
	uint8_t columns[MD_SIM_CSV_COLUMNS]; /* indices in trace_csv.c's table */
	uint32_t count;
	bool timestamps, models;
};

struct md_sim_rows {
	const char *form; /* "CSV"; NULL as long as the first line that is not empty has not been read */
	bool models;      /* rows name model and adapter, and functions are made of them (trace_functions.h) */
	uint32_t line;    /* of the row, or of the error, that was read last */
	const char *at, *end;
	struct md_sim_csv csv;
	bool objects; /* JSON lines */
};

enum md_sim_rows_result { MD_SIM_ROWS_ROW, MD_SIM_ROWS_WRONG, MD_SIM_ROWS_END };

/* The text is borrowed until the last row was read; the first line that is not empty decides its form. */
void md_sim_rows_init(struct md_sim_rows *rows, const char *text, size_t bytes);
enum md_sim_rows_result md_sim_rows_next(struct md_sim_rows *rows, struct md_sim_row *row,
					 struct md_sim_row_error *error);

#endif
