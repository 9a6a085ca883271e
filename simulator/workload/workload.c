/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a trace, assigned to functions, or generated arrivals. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "simulator/config/yaml.h"
#include "simulator/random.h"
#include "simulator/simulator.h"
#include "simulator/workload/trace_rows.h"

#define TRACE_BYTES_MAX (256u << 20)
#define REQUESTS_MAX 20000000u
#define LAW_NS_DEFAULT (600 * UINT64_C(1000000000))
#define ZIPF_STREAM 0x5a697066u /* stream of random numbers */

/*
 * Bursts: a tenth of the time, 10 s each on average, at `factor` times the mean rate; the remaining time is slower
 * accordingly.
 */
#define BURST_PART 0.1
#define BURST_S 10.0
#define BURST_FACTOR 5.0

struct builder {
	const char *name; /* name of the file */
	const struct md_sim_functions *functions;
	const struct md_sim_workload_options *options;
	struct md_error *err;
	struct md_sim_workload out;
	size_t capacity;
	double *cumulated; /* cumulative weights of functions; NULL: round-robin */
	uint32_t *by_name; /* functions, sorted */
	struct md_sim_random random;
	uint64_t mapped; /* number of requests that named no function */
	bool sorted;
};

static enum md_status out_of_memory(const struct builder *builder)
{
	return md_error_set(builder->err, MD_ERR_NO_MEMORY, "%s: out of memory for its requests", builder->name);
}

/* ---- functions ---- */

static enum md_status start_zipf(struct builder *builder)
{
	uint32_t count = builder->functions->count;
	double sum = 0;
	builder->cumulated = malloc(count * sizeof(*builder->cumulated));
	if (!builder->cumulated)
		return out_of_memory(builder);
	for (uint32_t i = 0; i < count; i++)
		builder->cumulated[i] = sum += pow(i + 1.0, -builder->options->zipf);
	return MD_OK;
}

static uint32_t draw_weighted(struct builder *builder)
{
	uint32_t low = 0, high = builder->functions->count - 1;
	double at = md_sim_random_part(&builder->random) * builder->cumulated[high];
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (builder->cumulated[middle] <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static uint32_t next_function(struct builder *builder)
{
	uint64_t turn = builder->mapped++;
	return builder->cumulated ? draw_weighted(builder) : (uint32_t)(turn % builder->functions->count);
}

static int compare_functions(const void *a, const void *b, void *functions)
{
	const struct md_sim_function *all = functions;
	return strcmp(all[*(const uint32_t *)a].name, all[*(const uint32_t *)b].name);
}

static enum md_status start_names(struct builder *builder)
{
	uint32_t count = builder->functions->count;
	builder->by_name = malloc(count * sizeof(*builder->by_name));
	if (!builder->by_name)
		return out_of_memory(builder);
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

static bool find_function(const struct builder *builder, const struct md_sim_row *row, uint32_t *function)
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

/* ---- requests ---- */

static enum md_status add_request(struct builder *builder, const struct md_sim_request *request)
{
	struct md_sim_workload *out = &builder->out;
	if (out->count == REQUESTS_MAX)
		return md_error_set(builder->err, MD_ERR_TOO_LARGE, "%s: more than %u requests", builder->name,
				    REQUESTS_MAX);
	if (!MD_ARRAY_GROW(out->requests, out->count, builder->capacity))
		return out_of_memory(builder);
	builder->sorted &= out->count == 0 || out->requests[out->count - 1].at <= request->at;
	out->requests[out->count++] = *request;
	return MD_OK;
}

static int compare_requests(const void *a, const void *b)
{
	const struct md_sim_request *left = a, *right = b;
	if (left->at != right->at)
		return left->at < right->at ? -1 : 1;
	if (left->function != right->function)
		return left->function < right->function ? -1 : 1;
	if (left->context_tokens != right->context_tokens)
		return left->context_tokens < right->context_tokens ? -1 : 1;
	return (left->generated_tokens > right->generated_tokens) - (left->generated_tokens < right->generated_tokens);
}

/* Sorts the requests, and moves them to time 0, to the wanted speed and to the wanted end. */
static void finish_requests(struct builder *builder, uint64_t base)
{
	struct md_sim_workload *out = &builder->out;
	double speed = builder->options->speed > 0 ? builder->options->speed : 1;
	if (!builder->sorted)
		qsort(out->requests, out->count, sizeof(*out->requests), compare_requests);
	for (size_t i = 0; i < out->count; i++) {
		uint64_t at = out->requests[i].at - base;
		out->requests[i].at = speed == 1 ? at : (uint64_t)fmin((double)at / speed, 9e18);
	}
	out->end = builder->options->duration_ns;
	if (!out->end)
		out->end = out->count ? out->requests[out->count - 1].at + 1 : 0;
	while (out->count && out->requests[out->count - 1].at >= out->end)
		out->count--;
}

/* ---- traces ---- */

static enum md_status refuse(const struct builder *builder, uint32_t line, const struct md_sim_row_error *wrong)
{
	return md_error_set(builder->err, MD_ERR_CORRUPT, "%s:%" PRIu32 ": %s: %s", builder->name, line, wrong->field,
			    wrong->what);
}

static enum md_status add_row(struct builder *builder, uint32_t line, const struct md_sim_row *row)
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
	return add_request(builder, &request);
}

static enum md_status read_lines(struct builder *builder, const char *text, size_t bytes,
				 const struct md_sim_row_form **form)
{
	const char *end = text + bytes, *next;
	*form = NULL;
	for (uint32_t number = 1; text < end; text = next, number++) {
		const char *stop = memchr(text, '\n', (size_t)(end - text));
		struct md_sim_row row = {0};
		struct md_sim_row_error wrong;
		next = stop ? stop + 1 : end;
		stop = stop ? stop : end;
		if (stop > text && stop[-1] == '\r')
			stop--;
		if (stop == text)
			continue;
		if (!*form) {
			*form = md_sim_row_form(text, (size_t)(stop - text));
			if (!*form)
				return md_error_set(builder->err, MD_ERR_CORRUPT,
						    "%s:%" PRIu32
						    ": neither TIMESTAMP,ContextTokens,GeneratedTokens nor "
						    "seconds,function,context,generated nor a JSON object",
						    builder->name, number);
			if ((*form)->header)
				continue;
		}
		if (!(*form)->parse(text, (size_t)(stop - text), &row, &wrong))
			return refuse(builder, number, &wrong);
		MD_FORWARD(add_row(builder, number, &row));
	}
	return MD_OK;
}

static uint64_t first_time(const struct md_sim_workload *workload)
{
	uint64_t first = workload->count ? workload->requests[0].at : 0;
	for (size_t i = 1; i < workload->count; i++)
		first = workload->requests[i].at < first ? workload->requests[i].at : first;
	return first;
}

static enum md_status describe_trace(struct builder *builder, const struct md_sim_row_form *form)
{
	const char *slash = strrchr(builder->name, '/');
	char mapping[64] = "";
	if (builder->mapped && builder->cumulated)
		snprintf(mapping, sizeof(mapping), ", functions by a Zipf law of exponent %g", builder->options->zipf);
	else if (builder->mapped)
		snprintf(mapping, sizeof(mapping), ", functions round-robin");
	if (asprintf(&builder->out.source, "%s (%s), %zu requests%s", slash ? slash + 1 : builder->name, form->name,
		     builder->out.count, mapping) >= 0)
		return MD_OK;
	builder->out.source = NULL;
	return out_of_memory(builder);
}

static enum md_status read_trace(struct builder *builder, const char *text, size_t bytes)
{
	const struct md_sim_row_form *form;
	if (builder->options->mapping == MD_SIM_ZIPF)
		MD_FORWARD(start_zipf(builder));
	MD_FORWARD(start_names(builder));
	MD_FORWARD(read_lines(builder, text, bytes, &form));
	if (!form || !builder->out.count)
		return md_error_set(builder->err, MD_ERR_CORRUPT, "%s:1: there are no requests in it", builder->name);
	finish_requests(builder, form->from_first ? first_time(&builder->out) : 0);
	return describe_trace(builder, form);
}

/* ---- laws ---- */

static double law_seconds(const struct builder *builder)
{
	return (double)(builder->options->duration_ns ? builder->options->duration_ns : LAW_NS_DEFAULT) / 1e9;
}

static enum md_status add_arrival(struct builder *builder, uint32_t function, double seconds)
{
	return add_request(builder, &(struct md_sim_request){.at = (uint64_t)(seconds * 1e9), .function = function});
}

/*
 * Draws arrivals at a rate per second, from `from` to `to`. A Poisson process has no memory, so each stretch begins
 * anew.
 */
static enum md_status draw_stretch(struct builder *builder, uint32_t function, struct md_sim_random *random,
				   double per_s, double from, double to)
{
	if (per_s <= 0)
		return MD_OK;
	for (;;) {
		from += md_sim_random_exponential(random, 1 / per_s);
		if (from >= to)
			return MD_OK;
		MD_FORWARD(add_arrival(builder, function, from));
	}
}

static enum md_status draw_bursts(struct builder *builder, uint32_t function, struct md_sim_random *random,
				  double per_s, double end)
{
	double slow = (1 - BURST_PART * BURST_FACTOR) / (1 - BURST_PART);
	bool burst = md_sim_random_part(random) < BURST_PART;
	double from = 0;
	while (from < end) {
		double mean = burst ? BURST_S : BURST_S * (1 - BURST_PART) / BURST_PART;
		double to = fmin(from + md_sim_random_exponential(random, mean), end);
		MD_FORWARD(draw_stretch(builder, function, random, per_s * (burst ? BURST_FACTOR : slow), from, to));
		from = to;
		burst = !burst;
	}
	return MD_OK;
}

/* Draws from a Poisson distribution, in parts whose exponential is not 0. */
static double draw_poisson(struct md_sim_random *random, double mean)
{
	double count = 0;
	while (mean > 0) {
		double least = exp(-fmin(mean, 500)), product = md_sim_random_part(random);
		while (product > least) {
			product *= md_sim_random_part(random);
			count++;
		}
		mean -= 500;
	}
	return count;
}

/*
 * As the load generator that Torpor's authors published: gaps between any two requests of the node are whole
 * milliseconds, drawn from a Poisson distribution (so arrivals are more regular than a Poisson process); the function
 * of each request is drawn in proportion to the rates.
 */
static enum md_status draw_even(struct builder *builder, double per_s, double end)
{
	const struct md_sim_functions *functions = builder->functions;
	double sum = 0, at = 0;
	builder->cumulated = malloc(functions->count * sizeof(*builder->cumulated));
	if (!builder->cumulated)
		return out_of_memory(builder);
	for (uint32_t i = 0; i < functions->count; i++)
		builder->cumulated[i] = sum += functions->functions[i].rate_per_min;
	for (;;) {
		at += draw_poisson(&builder->random, 1000 / per_s) / 1000;
		if (at >= end)
			return MD_OK;
		MD_FORWARD(add_arrival(builder, draw_weighted(builder), at));
	}
}

static enum md_status draw_each(struct builder *builder, double speed, double end)
{
	bool bursts = strcmp(builder->name, "mmpp") == 0;
	for (uint32_t i = 0; i < builder->functions->count; i++) {
		double per_s = builder->functions->functions[i].rate_per_min * speed / 60;
		struct md_sim_random random = md_sim_random_of(builder->options->seed, i);
		MD_FORWARD(bursts ? draw_bursts(builder, i, &random, per_s, end)
				  : draw_stretch(builder, i, &random, per_s, 0, end));
	}
	return MD_OK;
}

static enum md_status draw_law(struct builder *builder)
{
	double end = law_seconds(builder), speed = builder->options->speed > 0 ? builder->options->speed : 1;
	double total = 0;
	for (uint32_t i = 0; i < builder->functions->count; i++)
		total += builder->functions->functions[i].rate_per_min * speed / 60;
	if (!builder->functions->count || total <= 0)
		return md_error_set(builder->err, MD_ERR_INVALID, "%s: no function has a rate", builder->name);
	if (total * end > REQUESTS_MAX)
		return md_error_set(builder->err, MD_ERR_TOO_LARGE, "%s: %.0f requests, over %u", builder->name,
				    total * end, REQUESTS_MAX);
	MD_FORWARD(strcmp(builder->name, "torpor") == 0 ? draw_even(builder, total, end)
							: draw_each(builder, speed, end));
	qsort(builder->out.requests, builder->out.count, sizeof(*builder->out.requests), compare_requests);
	builder->out.end = (uint64_t)(end * 1e9);
	if (asprintf(&builder->out.source, "%s, %zu requests, %.1f a second in the mean, seed %" PRIu64, builder->name,
		     builder->out.count, total, builder->options->seed) >= 0)
		return MD_OK;
	builder->out.source = NULL;
	return out_of_memory(builder);
}

/* ---- both ---- */

static enum md_status check_options(const struct builder *builder)
{
	const struct md_sim_workload_options *options = builder->options;
	if (!builder->functions->count)
		return md_error_set(builder->err, MD_ERR_INVALID, "there are no functions");
	if (!(options->speed >= 0 && options->speed <= 1e6))
		return md_error_set(builder->err, MD_ERR_INVALID, "speed %g: up to 1000000 is possible",
				    options->speed);
	if (options->mapping == MD_SIM_ZIPF && !(options->zipf >= 0 && options->zipf <= 10))
		return md_error_set(builder->err, MD_ERR_INVALID, "exponent %g: 0 to 10 is possible", options->zipf);
	return MD_OK;
}

static enum md_status build(struct builder *builder, const char *text, size_t bytes, struct md_sim_workload *workload)
{
	enum md_status status = check_options(builder);
	builder->sorted = true;
	builder->random = md_sim_random_of(builder->options->seed, ZIPF_STREAM);
	if (status == MD_OK)
		status = text ? read_trace(builder, text, bytes) : draw_law(builder);
	free(builder->cumulated);
	free(builder->by_name);
	if (status == MD_OK)
		*workload = builder->out;
	else
		md_sim_workload_finish(&builder->out);
	return status;
}

enum md_status md_sim_workload_parse(const char *name, const char *text, size_t bytes,
				     const struct md_sim_functions *functions,
				     const struct md_sim_workload_options *options, struct md_sim_workload *workload,
				     struct md_error *err)
{
	struct builder builder = {.name = name, .functions = functions, .options = options, .err = err};
	return build(&builder, text ? text : "", bytes, workload); /* none is a law's */
}

enum md_status md_sim_workload_read(const char *spec, const struct md_sim_functions *functions,
				    const struct md_sim_workload_options *options, struct md_sim_workload *workload,
				    struct md_error *err)
{
	struct builder builder = {.name = spec, .functions = functions, .options = options, .err = err};
	MD_AUTO_FREE char *text = NULL;
	size_t bytes = 0;
	if (strcmp(spec, "poisson") && strcmp(spec, "mmpp") && strcmp(spec, "torpor"))
		MD_FORWARD(md_sim_file_read(spec, TRACE_BYTES_MAX, &text, &bytes, err));
	return build(&builder, text, bytes, workload);
}

void md_sim_workload_finish(struct md_sim_workload *workload)
{
	free(workload->requests);
	free(workload->source);
	*workload = (struct md_sim_workload){0};
}
