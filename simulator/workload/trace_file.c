/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a trace: its lines, in whichever form, and which function each belongs to. */
#include <inttypes.h>
#include <math.h> /* fmin is exact */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simulator/workload/builder.h"
#include "simulator/workload/trace_rows.h"

/* ---- functions ---- */

static enum md_status start_zipf(struct md_sim_builder *builder)
{
	uint32_t count = builder->functions->count;
	double sum = 0;
	builder->cumulated = malloc(count * sizeof(*builder->cumulated));
	if (!builder->cumulated)
		return md_sim_builder_memory(builder);
	for (uint32_t i = 0; i < count; i++)
		builder->cumulated[i] = sum += md_sim_pow(i + 1.0, -builder->options->zipf);
	return MD_OK;
}

static uint32_t next_function(struct md_sim_builder *builder)
{
	uint64_t turn = builder->mapped++;
	return builder->cumulated ? md_sim_builder_draw(builder) : (uint32_t)(turn % builder->functions->count);
}

static int compare_functions(const void *a, const void *b, void *functions)
{
	const struct md_sim_function *all = functions;
	return strcmp(all[*(const uint32_t *)a].name, all[*(const uint32_t *)b].name);
}

static enum md_status start_names(struct md_sim_builder *builder)
{
	uint32_t count = builder->functions->count;
	builder->by_name = malloc(count * sizeof(*builder->by_name));
	if (!builder->by_name)
		return md_sim_builder_memory(builder);
	for (uint32_t i = 0; i < count; i++)
		builder->by_name[i] = i;
	qsort_r(builder->by_name, count, sizeof(*builder->by_name), compare_functions, builder->functions->functions);
	return MD_OK;
}

/* Like strcmp, for a name and a text that has no NUL behind it but may contain one. */
static int compare_text(const char *name, const char *text, size_t bytes)
{
	size_t length = strlen(name);
	int order = memcmp(name, text, length < bytes ? length : bytes);
	return order ? order : (length > bytes) - (length < bytes);
}

static bool find_function(const struct md_sim_builder *builder, const struct md_sim_row *row, uint32_t *function)
{
	uint32_t low = 0, high = builder->functions->count;
	uint64_t index = 0;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		const char *name = builder->functions->functions[builder->by_name[middle]].name;
		int order = compare_text(name, row->function, row->function_bytes);
		if (order == 0) {
			*function = builder->by_name[middle];
			return true;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (size_t i = 0; i < row->function_bytes; i++) {
		char digit = row->function[i];
		if (digit < '0' || digit > '9' || i == 9)
			return false;
		index = index * 10 + (uint64_t)(digit - '0');
	}
	*function = (uint32_t)index;
	return index < builder->functions->count;
}

/* The speed that offers the wanted load: the load at speed 1 is known when the requests are. */
static enum md_status speed_of(struct md_sim_builder *builder, double *speed)
{
	const struct md_sim_workload_options *options = builder->options;
	*speed = options->speed > 0 ? options->speed : 1;
	if (options->load <= 0)
		return MD_OK;
	double base = md_sim_offered_load(builder);
	if (builder->out.end < 2 || base <= 0)
		return md_error_set(builder->err, MD_ERR_INVALID, "%s: load %g: %s", builder->name, options->load,
				    base <= 0 ? "its requests compute nothing" : "all requests arrive at once");
	*speed = options->load / base;
	return MD_OK;
}

/* The first line with a request at that time; the text has been read without an error. */
static uint32_t line_at(const char *text, size_t bytes, uint64_t at)
{
	struct md_sim_rows rows;
	struct md_sim_row row;
	struct md_sim_row_error wrong;
	md_sim_rows_init(&rows, text, bytes);
	while (md_sim_rows_next(&rows, &row, &wrong) == MD_SIM_ROWS_ROW)
		if (row.at == at)
			return rows.line;
	return 0;
}

/* Requests keep no lines, so those at a long gap are looked up again. */
static void note_gap(struct md_sim_builder *builder, const char *text, size_t bytes)
{
	struct md_sim_workload *out = &builder->out;
	const struct md_sim_request *requests = out->requests;
	size_t behind = 0;
	for (size_t i = 1; i < out->count; i++) {
		uint64_t gap = requests[i].at - requests[i - 1].at;
		if (gap <= MD_SIM_GAP_NS || gap <= out->gap_ns)
			continue;
		out->gap_ns = gap;
		behind = i;
	}
	if (!behind)
		return;
	bool few_before = behind <= out->count - behind;
	out->gap_lines[0] = line_at(text, bytes, requests[few_before ? behind - 1 : behind].at);
	out->gap_lines[1] = line_at(text, bytes, requests[few_before ? behind : behind - 1].at);
}

/* Sorts the requests, and moves the first one to time 0, and all to the wanted speed or load and to the wanted end. */
static enum md_status finish_requests(struct md_sim_builder *builder, const char *text, size_t bytes)
{
	struct md_sim_workload *out = &builder->out;
	double speed;
	out->reordered = !builder->sorted;
	out->mapped = builder->mapped;
	md_sim_builder_sort(builder);
	note_gap(builder, text, bytes);
	uint64_t first = out->requests[0].at;
	for (size_t i = 0; i < out->count; i++)
		out->requests[i].at -= first;
	out->end = out->requests[out->count - 1].at + 1;
	MD_FORWARD(speed_of(builder, &speed));
	for (size_t i = 0; i < out->count && speed != 1; i++)
		out->requests[i].at = (uint64_t)fmin((double)out->requests[i].at / speed, 9e18);
	out->end = builder->options->duration_ns ? builder->options->duration_ns : out->requests[out->count - 1].at + 1;
	while (out->count && out->requests[out->count - 1].at >= out->end)
		out->count--;
	return MD_OK;
}

/* ---- traces ---- */

static enum md_status refuse(const struct md_sim_builder *builder, uint32_t line, const struct md_sim_row_error *wrong)
{
	if (!wrong->field)
		return md_error_set(builder->err, MD_ERR_CORRUPT, "%s:%" PRIu32 ": %s", builder->name, line,
				    wrong->what);
	if (!wrong->value)
		return md_error_set(builder->err, MD_ERR_CORRUPT, "%s:%" PRIu32 ": %s: %s", builder->name, line,
				    wrong->field, wrong->what);
	return md_error_set(builder->err, MD_ERR_CORRUPT, "%s:%" PRIu32 ": %s: '%.*s': %s", builder->name, line,
			    wrong->field, wrong->value_bytes < 60 ? (int)wrong->value_bytes : 60, wrong->value,
			    wrong->what);
}

/* The tenant that the row names, or else its function's. */
static enum md_status find_tenant(const struct md_sim_builder *builder, uint32_t line, const struct md_sim_row *row,
				  struct md_sim_request *request)
{
	const struct md_sim_functions *functions = builder->functions;
	request->tenant = functions->functions[request->function].tenant;
	if (!row->tenant_bytes || md_sim_tenant_find(functions, row->tenant, row->tenant_bytes, &request->tenant))
		return MD_OK;
	return md_error_set(builder->err, MD_ERR_CORRUPT, "%s:%" PRIu32 ": tenant: '%.*s': there is no such tenant%s",
			    builder->name, line, row->tenant_bytes < 60 ? (int)row->tenant_bytes : 60, row->tenant,
			    functions->tenant_count ? " in the file of functions"
						    : "; the file of functions has no tenants");
}

static enum md_status add_row(struct md_sim_builder *builder, uint32_t line, const struct md_sim_row *row)
{
	struct md_sim_request request = {
	    .at = row->at, .context_tokens = row->context, .generated_tokens = row->generated};
	if (!row->function_bytes)
		request.function = next_function(builder);
	else if (!find_function(builder, row, &request.function))
		return md_error_set(builder->err, MD_ERR_CORRUPT,
				    "%s:%" PRIu32 ": function: there is no function '%.*s' (names, or 0 to %u)",
				    builder->name, line, row->function_bytes < 60 ? (int)row->function_bytes : 60,
				    row->function, builder->functions->count - 1);
	MD_FORWARD(find_tenant(builder, line, row, &request));
	return md_sim_builder_add(builder, &request);
}

static enum md_status read_rows(struct md_sim_builder *builder, struct md_sim_rows *rows)
{
	for (;;) {
		struct md_sim_row row;
		struct md_sim_row_error wrong;
		enum md_sim_rows_result result = md_sim_rows_next(rows, &row, &wrong);
		if (result == MD_SIM_ROWS_END)
			return MD_OK;
		if (result == MD_SIM_ROWS_WRONG)
			return refuse(builder, rows->line, &wrong);
		MD_FORWARD(add_row(builder, rows->line, &row));
	}
}

static enum md_status describe_trace(struct md_sim_builder *builder, const char *form)
{
	const char *slash = strrchr(builder->name, '/');
	char mapping[64] = "";
	if (builder->mapped && builder->cumulated)
		snprintf(mapping, sizeof(mapping), ", functions by a Zipf law of exponent %g", builder->options->zipf);
	else if (builder->mapped)
		snprintf(mapping, sizeof(mapping), ", functions round-robin");
	if (asprintf(&builder->out.source, "%s (%s), %zu requests%s", slash ? slash + 1 : builder->name, form,
		     builder->out.count, mapping) >= 0)
		return MD_OK;
	builder->out.source = NULL;
	return md_sim_builder_memory(builder);
}

enum md_status md_sim_trace_parse(struct md_sim_builder *builder, const char *text, size_t bytes)
{
	struct md_sim_rows rows;
	if (builder->options->mapping == MD_SIM_ZIPF)
		MD_FORWARD(start_zipf(builder));
	MD_FORWARD(start_names(builder));
	md_sim_rows_init(&rows, text, bytes);
	MD_FORWARD(read_rows(builder, &rows));
	if (!builder->out.count)
		return md_error_set(builder->err, MD_ERR_CORRUPT, "%s:1: there are no requests in it", builder->name);
	MD_FORWARD(finish_requests(builder, text, bytes));
	return describe_trace(builder, rows.form);
}
