/* SPDX-License-Identifier: Apache-2.0 */
/* Aligned tables: cells are collected, and then printed in columns of the width that they need. */
#ifndef MD_SIMULATOR_REPORT_TABLE_H
#define MD_SIMULATOR_REPORT_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define MD_TABLE_COLUMNS_MAX 12

struct md_table {
	unsigned columns;
	bool right[MD_TABLE_COLUMNS_MAX];
	char **cells; /* row by row, column titles first; owned */
	size_t count, capacity;
	bool failed; /* out of memory: what was collected is printed, with a line that says so */
};

/* titles: "LABEL|>BATCH|>NODES"; a '>' aligns the column to the right. */
void md_table_init(struct md_table *table, const char *titles);
/* Escapes the text (base/plain.h). */
void md_table_cell(struct md_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void md_table_bytes(struct md_table *table, uint64_t bytes); /* a cell like "1.5 MiB" */
/* Prints each row after indent spaces, and releases the table. Prints nothing but a dash when there are no rows. */
void md_table_print(struct md_table *table, unsigned indent, FILE *out);

#define MD_TABLE_BYTES_TEXT 32
const char *md_table_format_bytes(uint64_t bytes, char text[MD_TABLE_BYTES_TEXT]);

#endif
