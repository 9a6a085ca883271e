/* SPDX-License-Identifier: Apache-2.0 */
/* Aligned tables. */
#include "simulator/report/table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/plain.h"

static void add(struct md_table *table, char *text)
{
	if (!text || !MD_ARRAY_GROW(table->cells, table->count, table->capacity)) {
		free(text);
		table->failed = true;
		return;
	}
	table->cells[table->count++] = text;
}

/* Cells are single lines, whatever the text contains. */
static char *plain(char *text)
{
	size_t room = text ? 4 * strlen(text) + 1 : 0;
	char *made = text ? malloc(room) : NULL;
	if (made)
		md_plain_copy(made, room, text);
	free(text);
	return made;
}

void md_table_init(struct md_table *table, const char *titles)
{
	*table = (struct md_table){0};
	while (table->columns < MD_TABLE_COLUMNS_MAX) {
		size_t length = strcspn(titles, "|");
		bool right = titles[0] == '>';
		table->right[table->columns++] = right;
		add(table, strndup(titles + right, length - right));
		if (!titles[length])
			break;
		titles += length + 1;
	}
}

void md_table_cell(struct md_table *table, const char *format, ...)
{
	va_list arguments;
	char *text = NULL;
	if (table->failed)
		return;
	va_start(arguments, format);
	if (vasprintf(&text, format, arguments) < 0)
		text = NULL;
	va_end(arguments);
	add(table, plain(text));
}

const char *md_table_format_bytes(uint64_t bytes, char text[MD_TABLE_BYTES_TEXT])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes;
	unsigned unit = 0;
	for (; value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
		value /= 1024;
	snprintf(text, MD_TABLE_BYTES_TEXT, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return text;
}

void md_table_bytes(struct md_table *table, uint64_t bytes)
{
	char text[MD_TABLE_BYTES_TEXT];
	md_table_cell(table, "%s", md_table_format_bytes(bytes, text));
}

static void print_row(const struct md_table *table, size_t row, const size_t *widths, unsigned indent, FILE *out)
{
	fprintf(out, "%*s", (int)indent, "");
	for (unsigned c = 0; c < table->columns && row + c < table->count; c++) {
		const char *text = table->cells[row + c];
		bool last = c + 1 == table->columns;
		if (table->right[c])
			fprintf(out, "%*s", (int)widths[c], text);
		else
			fprintf(out, "%-*s", last ? 0 : (int)widths[c], text);
		fputs(last ? "" : "  ", out);
	}
	fputc('\n', out);
}

void md_table_print(struct md_table *table, unsigned indent, FILE *out)
{
	size_t widths[MD_TABLE_COLUMNS_MAX] = {0};
	for (size_t i = 0; i < table->count; i++) {
		size_t length = strlen(table->cells[i]);
		if (length > widths[i % table->columns])
			widths[i % table->columns] = length;
	}
	if (table->count <= table->columns)
		fprintf(out, "%*s-\n", (int)indent, "");
	else
		for (size_t row = 0; row < table->count; row += table->columns)
			print_row(table, row, widths, indent, out);
	if (table->failed)
		fprintf(out, "%*s(out of memory for all rows: the table is cut off)\n", (int)indent, "");
	for (size_t i = 0; i < table->count; i++)
		free(table->cells[i]);
	free(table->cells);
	*table = (struct md_table){0};
}
