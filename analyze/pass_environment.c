/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: the captures come from equal devices and drivers; makes their views. */
#include <inttypes.h>
#include <string.h>

#include "analyze/analysis.h"

static enum md_status compare_devices(const struct md_analysis *analysis, struct md_error *err)
{
	const struct md_fingerprint *one = &analysis->traces[0]->fingerprint, *two = &analysis->traces[1]->fingerprint;
	if (strcmp(one->device_name, two->device_name) != 0)
		return md_error_set(err, MD_ERR_MISMATCH, "device name: first capture has %s, second %s",
				    one->device_name, two->device_name);
	if (one->compute_major != two->compute_major || one->compute_minor != two->compute_minor)
		return md_error_set(err, MD_ERR_MISMATCH, "compute capability: first capture has %d.%d, second %d.%d",
				    one->compute_major, one->compute_minor, two->compute_major, two->compute_minor);
	if (one->multiprocessors != two->multiprocessors)
		return md_error_set(err, MD_ERR_MISMATCH, "multiprocessors: first capture has %d, second %d",
				    one->multiprocessors, two->multiprocessors);
	if (one->device_memory != two->device_memory)
		return md_error_set(err, MD_ERR_MISMATCH, "device memory: first capture has %llu bytes, second %llu",
				    (unsigned long long)one->device_memory, (unsigned long long)two->device_memory);
	if (one->driver_version != two->driver_version)
		return md_error_set(err, MD_ERR_MISMATCH, "driver version: first capture has %d, second %d",
				    one->driver_version, two->driver_version);
	return MD_OK;
}

static enum md_status fact_missing(const struct md_fingerprint_fact *fact, const char *capture, struct md_error *err)
{
	return md_error_set(err, MD_ERR_MISMATCH, "fact \"%.100s\": only the %s capture has it (%.200s)", fact->name,
			    capture, fact->value);
}

/* Facts that the engine stated; both lists ascend by name. */
static enum md_status compare_facts(const struct md_analysis *analysis, struct md_error *err)
{
	const struct md_fingerprint *one = &analysis->traces[0]->fingerprint, *two = &analysis->traces[1]->fingerprint;
	for (uint32_t i = 0; i < one->fact_count || i < two->fact_count; i++) {
		const struct md_fingerprint_fact *a = i < one->fact_count ? &one->facts[i] : NULL;
		const struct md_fingerprint_fact *b = i < two->fact_count ? &two->facts[i] : NULL;
		int order = !a ? 1 : !b ? -1 : strcmp(a->name, b->name);
		if (order)
			return order < 0 ? fact_missing(a, "first", err) : fact_missing(b, "second", err);
		if (strcmp(a->value, b->value) != 0)
			return md_error_set(err, MD_ERR_MISMATCH,
					    "fact \"%.100s\": first capture has %.150s, second %.150s", a->name,
					    a->value, b->value);
	}
	return MD_OK;
}

static enum md_status compare_arguments(const struct md_analysis *analysis, struct md_error *err)
{
	static const struct md_argument_list none;
	const struct md_argument_list *vary = analysis->options.vary ? analysis->options.vary : &none;
	if (analysis->traces[0]->fingerprint.fact_count)
		return MD_OK;
	return md_arguments_compare(&analysis->traces[0]->fingerprint.arguments,
				    &analysis->traces[1]->fingerprint.arguments, vary, "the first capture has", err);
}

/* A capture compared with itself would prove everything. */
static enum md_status check_two_processes(const struct md_analysis *analysis, struct md_error *err)
{
	const struct md_trace *one = analysis->traces[0], *two = analysis->traces[1];
	if (!one->process_id || one->process_id != two->process_id || one->start_unix_ns != two->start_unix_ns)
		return MD_OK;
	return md_error_set(err, MD_ERR_MISMATCH, "both traces are of the same run (process %u): two runs are needed",
			    (unsigned)one->process_id);
}

/* A trace that was cut off is refused: the record that refuses a graph may be missing at its end. */
static enum md_status check_whole(const struct md_trace *trace, unsigned capture, struct md_error *err)
{
	const char *which = capture ? "second" : "first";
	if (!trace->complete)
		return md_error_set(err, MD_ERR_TRUNCATED,
				    "%s trace is incomplete: what it lacks may be what refuses a graph; capture again",
				    which);
	if (trace->version < MD_TRACE_ANALYZED_FROM)
		return md_error_set(err, MD_ERR_VERSION,
				    "%s trace is of version %" PRIu32 ", whose recorder did not look for all that "
				    "refuses graphs, as that of version %d does; capture again",
				    which, trace->version, MD_TRACE_ANALYZED_FROM);
	return MD_OK;
}

enum md_status md_pass_environment(struct md_analysis *analysis, struct md_error *err)
{
	for (unsigned c = 0; c < analysis->captures; c++)
		MD_FORWARD(check_whole(analysis->traces[c], c, err));
	if (analysis->captures == 2) {
		MD_FORWARD(check_two_processes(analysis, err));
		MD_FORWARD(compare_devices(analysis, err));
		MD_FORWARD(compare_facts(analysis, err));
		MD_FORWARD(compare_arguments(analysis, err));
	}
	for (unsigned c = 0; c < analysis->captures; c++) {
		MD_FORWARD(md_view_init(&analysis->views[c], analysis->traces[c], err));
	}
	return MD_OK;
}
