/* SPDX-License-Identifier: Apache-2.0 */
/* Traces as CSV files: our own, and Azure's LLM inference traces; columns by the names in the header, in any order. */
#include "simulator/workload/trace_csv.h"

#include <string.h>
#include <strings.h>

#define NS_PER_S UINT64_C(1000000000)

enum kind { SECONDS, TIMESTAMP, FUNCTION, MODEL, ADAPTER, CONTEXT, GENERATED, TENANT, KINDS };

/* A header names columns in letters of either case. */
static const struct column {
	const char *name;
	enum kind kind;
	bool needed; /* its cells must not be empty */
} columns[] = {
    {"seconds", SECONDS, true},      {"TIMESTAMP", TIMESTAMP, true},   {"function", FUNCTION, false},
    {"model", MODEL, true},          {"adapter", ADAPTER, false},      {"context", CONTEXT, false},
    {"generated", GENERATED, false}, {"ContextTokens", CONTEXT, true}, {"GeneratedTokens", GENERATED, true},
    {"tenant", TENANT, false},
};

#define COLUMNS (sizeof(columns) / sizeof(columns[0]))
#define KNOWN "seconds or TIMESTAMP, function, or model and adapter, context, generated, tenant"

_Static_assert(KINDS == MD_SIM_CSV_COLUMNS, "a header has each kind of column once at most");

/* ---- cells ---- */

/*
 * Takes a cell, without blanks around it and without its quotes, and the comma behind it: then there is one more, perhaps
 * an empty one. NULL, or what is wrong.
 */
static const char *take_cell(struct md_sim_text *line, struct md_sim_text *cell, bool *more)
{
	md_sim_text_blanks(line);
	if (md_sim_text_byte(line, '"')) {
		cell->at = line->at;
		cell->end = memchr(line->at, '"', (size_t)(line->end - line->at));
		if (!cell->end)
			return "its quotes do not end in this line";
		line->at = cell->end + 1;
		if (line->at < line->end && *line->at == '"')
			return "quotes within quotes are not taken";
		md_sim_text_blanks(line);
		*more = md_sim_text_byte(line, ',');
		return *more || line->at == line->end ? NULL : "there is something behind its quotes";
	}
	const char *comma = memchr(line->at, ',', (size_t)(line->end - line->at));
	*cell = (struct md_sim_text){line->at, comma ? comma : line->end};
	line->at = comma ? comma + 1 : line->end;
	*more = comma != NULL;
	while (cell->end > cell->at && (cell->end[-1] == ' ' || cell->end[-1] == '\t'))
		cell->end--;
	return NULL;
}

/* ---- the header ---- */

static const struct column *find_column(struct md_sim_text name)
{
	size_t bytes = (size_t)(name.end - name.at);
	for (size_t i = 0; i < COLUMNS; i++)
		if (strlen(columns[i].name) == bytes && strncasecmp(columns[i].name, name.at, bytes) == 0)
			return &columns[i];
	return NULL;
}

bool md_sim_csv_is_header(const char *line, size_t bytes)
{
	struct md_sim_text rest = {line, line + bytes}, cell;
	bool more = true;
	while (more && !take_cell(&rest, &cell, &more)) {
		const struct column *column = find_column(cell);
		if (column && (column->kind == SECONDS || column->kind == TIMESTAMP))
			return true;
	}
	return false;
}

static bool check_kinds(const bool seen[KINDS], struct md_sim_row_error *error)
{
	if (seen[SECONDS] && seen[TIMESTAMP])
		return md_sim_row_wrong(error, "header", NULL, "it has seconds and TIMESTAMP; one of them");
	if (seen[FUNCTION] && (seen[MODEL] || seen[ADAPTER]))
		return md_sim_row_wrong(error, "header", NULL,
					"it has function, and model or adapter; either says whose a request is");
	if (seen[ADAPTER] && !seen[MODEL])
		return md_sim_row_wrong(error, "header", NULL, "it has adapter, and no model");
	return true;
}

bool md_sim_csv_begin(struct md_sim_csv *csv, const char *line, size_t bytes, struct md_sim_row_error *error)
{
	struct md_sim_text rest = {line, line + bytes}, cell;
	bool seen[KINDS] = {false}, more = true;
	*csv = (struct md_sim_csv){0};
	while (more) {
		const char *wrong = take_cell(&rest, &cell, &more);
		const struct column *column = wrong ? NULL : find_column(cell);
		if (wrong)
			return md_sim_row_wrong(error, "header", NULL, "%s", wrong);
		if (!column)
			return md_sim_row_wrong(error, "header", &cell, "there is no such column; there are " KNOWN);
		if (seen[column->kind])
			return md_sim_row_wrong(error, "header", &cell, "this column is given twice");
		seen[column->kind] = true;
		csv->columns[csv->count++] = (uint8_t)(column - columns);
	}
	csv->timestamps = seen[TIMESTAMP];
	csv->models = seen[MODEL];
	return check_kinds(seen, error);
}

/* ---- values ---- */

/* "12", "12.5", ".5" or "12." */
static bool parse_seconds(struct md_sim_text text, uint64_t *ns)
{
	uint64_t seconds = 0, fraction;
	bool whole = text.at < text.end && *text.at != '.';
	if (text.at == text.end)
		return false;
	if (whole && !md_sim_text_digits(&text, MD_SIM_SECONDS_MAX, &seconds))
		return false;
	if (whole && text.end - text.at == 1 && *text.at == '.')
		text.at = text.end;
	if (!md_sim_text_fraction(&text, NS_PER_S, &fraction) || text.at != text.end)
		return false;
	*ns = seconds * NS_PER_S + fraction;
	return true;
}

/* Days since 1970 of a date in the Gregorian calendar; the year begins in March, so that leap days come last. */
static uint64_t days_of(uint64_t year, uint64_t month, uint64_t day)
{
	uint64_t shifted = month > 2 ? year : year - 1;
	uint64_t of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
	return shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + of_year - 719468;
}

static uint64_t days_of_month(uint64_t year, uint64_t month)
{
	return month == 12 ? 31 : days_of(year, month + 1, 1) - days_of(year, month, 1);
}

/* "2023-11-16 18:17:03.9799600", perhaps with "+00:00" */
static bool parse_timestamp(struct md_sim_text text, uint64_t *ns)
{
	uint64_t part[6], fraction;
	static const uint64_t most[6] = {2060, 12, 31, 23, 59, 60};
	static const char after[6] = "-- ::";
	for (int i = 0; i < 6; i++)
		if (!md_sim_text_digits(&text, most[i], &part[i]) || (i < 5 && !md_sim_text_byte(&text, after[i])))
			return false;
	if (part[0] < 1970 || !part[1] || !part[2] || part[2] > days_of_month(part[0], part[1]) ||
	    !md_sim_text_fraction(&text, NS_PER_S, &fraction))
		return false;
	if (text.at != text.end && ((size_t)(text.end - text.at) != 6 || memcmp(text.at, "+00:00", 6)))
		return false;
	*ns =
	    (((days_of(part[0], part[1], part[2]) * 24 + part[3]) * 60 + part[4]) * 60 + part[5]) * NS_PER_S + fraction;
	return true;
}

static bool parse_tokens(struct md_sim_text text, uint32_t *tokens)
{
	uint64_t value = 0;
	if (text.at < text.end && (!md_sim_text_digits(&text, MD_SIM_TOKENS_MAX, &value) || text.at != text.end))
		return false;
	*tokens = (uint32_t)value;
	return true;
}

/* MODEL/ADAPTER, or MODEL, as the row's function */
static bool join_names(struct md_sim_row *row, struct md_sim_text model, struct md_sim_text adapter,
		       struct md_sim_row_error *error)
{
	size_t adapter_bytes = adapter.at ? (size_t)(adapter.end - adapter.at) : 0;
	row->model = model.at;
	row->model_bytes = (size_t)(model.end - model.at);
	if (row->model_bytes + adapter_bytes >= sizeof(row->pair))
		return md_sim_row_wrong(error, adapter_bytes ? "adapter" : "model", NULL,
					"names of up to 254 bytes together are expected");
	memcpy(row->pair, model.at, row->model_bytes);
	row->pair[row->model_bytes] = '/';
	if (adapter_bytes)
		memcpy(row->pair + row->model_bytes + 1, adapter.at, adapter_bytes);
	row->function = row->pair;
	row->function_bytes = row->model_bytes + (adapter_bytes ? 1 + adapter_bytes : 0);
	return true;
}

/* NULL, or what is wrong with a cell; names are kept in `names`. */
static const char *parse_cell(const struct column *column, struct md_sim_text cell, struct md_sim_row *row,
			      struct md_sim_text names[KINDS])
{
	bool empty = cell.at == cell.end;
	switch (column->kind) {
	case SECONDS:
		return parse_seconds(cell, &row->at) ? NULL : "seconds such as 12.5 are expected, up to 3000000000";
	case TIMESTAMP:
		return parse_timestamp(cell, &row->at) ? NULL : "a time such as 2023-11-16 18:17:03.97996 is expected";
	case CONTEXT:
		return (!column->needed || !empty) && parse_tokens(cell, &row->context) ? NULL : MD_SIM_TOKENS_WANTED;
	case GENERATED:
		return (!column->needed || !empty) && parse_tokens(cell, &row->generated) ? NULL : MD_SIM_TOKENS_WANTED;
	default:
		names[column->kind] = cell;
		if (memchr(cell.at, '\0', (size_t)(cell.end - cell.at)))
			return "there is a zero byte in it";
		return column->needed && empty ? "a model's name is expected" : NULL;
	}
}

bool md_sim_csv_row(const struct md_sim_csv *csv, const char *line, size_t bytes, struct md_sim_row *row,
		    struct md_sim_row_error *error)
{
	struct md_sim_text rest = {line, line + bytes}, cells[MD_SIM_CSV_COLUMNS], names[KINDS] = {{0}};
	uint32_t count = 0;
	bool more = true;
	while (more) {
		struct md_sim_text cell;
		const char *wrong = take_cell(&rest, &cell, &more);
		if (wrong)
			return md_sim_row_wrong(error, count < csv->count ? columns[csv->columns[count]].name : "line",
						NULL, "%s", wrong);
		if (count < csv->count)
			cells[count] = cell;
		count++;
	}
	if (count != csv->count)
		return md_sim_row_wrong(error, "line", NULL, "%u columns are expected, as in the header; it has %u",
					csv->count, count);
	for (uint32_t i = 0; i < count; i++) {
		const struct column *column = &columns[csv->columns[i]];
		const char *wrong = parse_cell(column, cells[i], row, names);
		if (wrong)
			return md_sim_row_wrong(error, column->name, &cells[i], "%s", wrong);
	}
	row->tenant = names[TENANT].at;
	row->tenant_bytes = names[TENANT].at ? (size_t)(names[TENANT].end - names[TENANT].at) : 0;
	if (csv->models)
		return join_names(row, names[MODEL], names[ADAPTER], error);
	row->function = names[FUNCTION].at;
	row->function_bytes = names[FUNCTION].at ? (size_t)(names[FUNCTION].end - names[FUNCTION].at) : 0;
	return true;
}
