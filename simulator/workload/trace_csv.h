/* SPDX-License-Identifier: Apache-2.0 */
/* Traces as CSV files: columns by the names in the header, in any order. */
#ifndef MD_SIMULATOR_WORKLOAD_TRACE_CSV_H
#define MD_SIMULATOR_WORKLOAD_TRACE_CSV_H

#include "simulator/workload/trace_text.h"

/* Whether the line has a column of times, and therefore is a header, good or bad. */
bool md_sim_csv_is_header(const char *line, size_t bytes);
/* These return false, with what is wrong. */
bool md_sim_csv_begin(struct md_sim_csv *csv, const char *line, size_t bytes, struct md_sim_row_error *error);
bool md_sim_csv_row(const struct md_sim_csv *csv, const char *line, size_t bytes, struct md_sim_row *row,
		    struct md_sim_row_error *error);

#endif
