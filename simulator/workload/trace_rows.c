/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a trace: its lines, and the form that the first one decides. */
#include "simulator/workload/trace_rows.h"

#include <string.h>

#include "simulator/workload/trace_csv.h"
#include "simulator/workload/trace_mooncake.h"

void md_sim_rows_init(struct md_sim_rows *rows, const char *text, size_t bytes)
{
	*rows = (struct md_sim_rows){.at = text, .end = text + bytes};
	if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) /* the byte order mark that some programs write */
		rows->at += 3;
}

/* The next line that is not empty, without its end; false: there is none. */
static bool next_line(struct md_sim_rows *rows, struct md_sim_text *line)
{
	while (rows->at < rows->end) {
		const char *stop = memchr(rows->at, '\n', (size_t)(rows->end - rows->at));
		*line = (struct md_sim_text){rows->at, stop ? stop : rows->end};
		rows->at = stop ? stop + 1 : rows->end;
		rows->line++;
		line->end -= line->end > line->at && line->end[-1] == '\r';
		if (line->at < line->end)
			return true;
	}
	return false;
}

static bool begin(struct md_sim_rows *rows, struct md_sim_text line, struct md_sim_row_error *error)
{
	size_t bytes = (size_t)(line.end - line.at);
	if (*line.at == '{') {
		rows->form = "Mooncake";
		rows->objects = true;
		return true;
	}
	if (!md_sim_csv_is_header(line.at, bytes))
		return md_sim_row_wrong(error, NULL, NULL,
					"neither TIMESTAMP,ContextTokens,GeneratedTokens nor seconds,function,context,"
					"generated nor seconds,model,adapter,context,generated nor a JSON object");
	if (!md_sim_csv_begin(&rows->csv, line.at, bytes, error))
		return false;
	rows->form = rows->csv.timestamps ? "Azure LLM inference" : "CSV";
	rows->models = rows->csv.models;
	return true;
}

enum md_sim_rows_result md_sim_rows_next(struct md_sim_rows *rows, struct md_sim_row *row,
					 struct md_sim_row_error *error)
{
	struct md_sim_text line;
	bool right;
	*row = (struct md_sim_row){0};
	if (!next_line(rows, &line))
		return MD_SIM_ROWS_END;
	if (!rows->form) {
		if (!begin(rows, line, error))
			return MD_SIM_ROWS_WRONG;
		if (!rows->objects && !next_line(rows, &line))
			return MD_SIM_ROWS_END;
	}
	if (rows->objects)
		right = md_sim_mooncake_row(line.at, (size_t)(line.end - line.at), row, error);
	else
		right = md_sim_csv_row(&rows->csv, line.at, (size_t)(line.end - line.at), row, error);
	return right ? MD_SIM_ROWS_ROW : MD_SIM_ROWS_WRONG;
}
