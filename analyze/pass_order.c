/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass: the allocations of an engine that binds nothing, in their order. Both captures must agree on how the addresses
 * compare.
 */
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"

/*
 * An allocator that compares addresses has chosen other blocks in one of the captures, so the pairs of allocations are
 * not known.
 */
static void refuse_other_order(struct md_analysis *analysis)
{
	const struct md_trace *one = analysis->traces[0], *two = analysis->traces[1];
	const struct md_sequence_side first = {one->requests, one->request_count, "first capture",
					       "in the first capture"};
	const struct md_sequence_side second = {two->requests, two->request_count, "second", "in the second"};
	struct md_error differs = {0};
	if (md_sequence_compare(&first, &second, &differs) == MD_OK)
		return;
	for (uint32_t i = 0; i < analysis->pair_count; i++)
		md_pair_refuse(&analysis->pairs[i], "%s", differs.message);
}

enum md_status md_pass_order(struct md_analysis *analysis, struct md_error *err)
{
	const struct md_trace *trace = analysis->traces[0];
	struct md_artifact *out = analysis->out;
	if (analysis->captures == 2)
		refuse_other_order(analysis);
	if (!trace->request_count)
		return MD_OK;
	out->requests = malloc(trace->request_count * sizeof(*out->requests));
	if (!out->requests)
		return md_analysis_no_memory(err);
	memcpy(out->requests, trace->requests, trace->request_count * sizeof(*out->requests));
	out->request_count = trace->request_count;
	return MD_OK;
}
