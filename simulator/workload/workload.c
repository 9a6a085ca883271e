/* SPDX-License-Identifier: Apache-2.0 */
/* A workload: requests of a trace, or arrivals by a law. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "simulator/config/yaml.h"
#include "simulator/workload/laws.h"

#define DRAWS_STREAM 0x5a697066u /* stream of random numbers */

enum md_status md_sim_builder_memory(const struct md_sim_builder *builder)
{
	return md_error_set(builder->err, MD_ERR_NO_MEMORY, "%s: out of memory for its requests", builder->name);
}

uint32_t md_sim_builder_draw(struct md_sim_builder *builder)
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

/* ---- requests ---- */

enum md_status md_sim_builder_add(struct md_sim_builder *builder, const struct md_sim_request *request)
{
	struct md_sim_workload *out = &builder->out;
	if (out->count == MD_SIM_REQUESTS_MAX)
		return md_error_set(builder->err, MD_ERR_TOO_LARGE, "%s: more than %u requests", builder->name,
				    MD_SIM_REQUESTS_MAX);
	if (!MD_ARRAY_GROW(out->requests, out->count, builder->capacity))
		return md_sim_builder_memory(builder);
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
	if (left->generated_tokens != right->generated_tokens)
		return left->generated_tokens < right->generated_tokens ? -1 : 1;
	return (left->tenant > right->tenant) - (left->tenant < right->tenant);
}

void md_sim_builder_sort(struct md_sim_builder *builder)
{
	if (!builder->sorted && builder->out.count)
		qsort(builder->out.requests, builder->out.count, sizeof(*builder->out.requests), compare_requests);
	builder->sorted = true;
}

/* ---- both ---- */

static enum md_status check_options(const struct md_sim_builder *builder)
{
	const struct md_sim_workload_options *options = builder->options;
	if (!builder->functions->count)
		return md_error_set(builder->err, MD_ERR_INVALID, "there are no functions");
	if (!(options->speed >= 0 && options->speed <= 1e6))
		return md_error_set(builder->err, MD_ERR_INVALID, "speed %g: up to 1000000 is possible",
				    options->speed);
	if (!(options->load >= 0 && options->load <= 1000))
		return md_error_set(builder->err, MD_ERR_INVALID, "load %g: up to 1000 is possible", options->load);
	if (options->load > 0 && (options->speed > 0 || !options->node))
		return md_error_set(builder->err, MD_ERR_INVALID, "load %g: %s", options->load,
				    options->speed > 0 ? "a speed is given as well; one of them"
						       : "the node is needed for it");
	if (options->mapping == MD_SIM_ZIPF && !(options->zipf >= 0 && options->zipf <= 10))
		return md_error_set(builder->err, MD_ERR_INVALID, "exponent %g: 0 to 10 is possible", options->zipf);
	return MD_OK;
}

static enum md_status describe_load(struct md_sim_builder *builder)
{
	char *longer;
	builder->out.load = md_sim_offered_load(builder);
	if (builder->out.load <= 0)
		return MD_OK;
	if (asprintf(&longer, "%s; offered load %.3f GPU seconds of computing a GPU second", builder->out.source,
		     builder->out.load) < 0)
		return md_sim_builder_memory(builder);
	free(builder->out.source);
	builder->out.source = longer;
	return MD_OK;
}

/* spec: of a law; NULL: text is a trace. */
static enum md_status build(struct md_sim_builder *builder, const char *spec, const char *text, size_t bytes,
			    struct md_sim_workload *workload)
{
	enum md_status status = check_options(builder);
	builder->sorted = true;
	builder->random = md_sim_random_of(builder->options->seed, DRAWS_STREAM);
	if (status == MD_OK)
		status = spec ? md_sim_law_draw(builder, md_sim_law_find(spec), spec)
			      : md_sim_trace_parse(builder, text, bytes);
	if (status == MD_OK)
		status = describe_load(builder);
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
	struct md_sim_builder builder = {.name = name, .functions = functions, .options = options, .err = err};
	return build(&builder, NULL, text, bytes, workload);
}

enum md_status md_sim_workload_read(const char *spec, const struct md_sim_functions *functions,
				    const struct md_sim_workload_options *options, struct md_sim_workload *workload,
				    struct md_error *err)
{
	struct md_sim_builder builder = {.name = spec, .functions = functions, .options = options, .err = err};
	MD_AUTO_FREE char *text = NULL;
	size_t bytes = 0;
	if (md_sim_law_find(spec))
		return build(&builder, spec, NULL, 0, workload);
	MD_FORWARD(md_sim_file_read(spec, MD_SIM_TRACE_BYTES_MAX, &text, &bytes, err));
	return build(&builder, NULL, text, bytes, workload);
}

void md_sim_workload_finish(struct md_sim_workload *workload)
{
	free(workload->requests);
	free(workload->source);
	free(workload->faults);
	*workload = (struct md_sim_workload){0};
}
