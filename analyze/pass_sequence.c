/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: pairs allocations and bindings of both captures, by the order of calls. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MD_LOG_DOMAIN "analyze"
#include "analyze/analysis.h"
#include "base/cleanup.h"
#include "base/log.h"

static bool same_request(const struct md_trace_alloc *a, const struct md_trace_alloc *b)
{
	return a->family == b->family && a->size == b->size;
}

static void pair_allocs(struct md_analysis *analysis, uint32_t one, uint32_t two)
{
	analysis->partner[one] = two;
	analysis->partner_back[two] = one;
}

static const char *family_name(enum md_alloc_family family)
{
	static const char *const names[] = {"?",    "device", "pitched",       "async",  "managed",
					    "host", "mapped", "module global", "shared", "graph's"};
	return (unsigned)family < sizeof(names) / sizeof(names[0]) ? names[family] : names[0];
}

static void describe_alloc(const struct md_trace *trace, uint32_t index, char *text, size_t size)
{
	if (index < trace->alloc_count)
		snprintf(text, size, "%s, %" PRIu64 " bytes", family_name(trace->allocs[index].family),
			 trace->allocs[index].size);
	else
		snprintf(text, size, "none");
}

/*
 * Between the equal beginning and the equal end of the two sequences, the n-th request of each (family, size) is paired
 * with the n-th.
 */
struct request {
	enum md_alloc_family family;
	uint64_t size;
	uint32_t index;
};

static int compare_requests(const struct request *a, const struct request *b)
{
	if (a->family != b->family)
		return a->family < b->family ? -1 : 1;
	return (a->size > b->size) - (a->size < b->size);
}

static int sort_requests(const void *left, const void *right)
{
	const struct request *a = left, *b = right;
	int order = compare_requests(a, b);
	return order ? order : (a->index > b->index) - (a->index < b->index);
}

static struct request *list_requests(const struct md_trace *trace, uint32_t from, uint32_t to)
{
	struct request *list = calloc((size_t)(to - from) + 1, sizeof(*list));
	for (uint32_t i = from; list && i < to; i++)
		list[i - from] = (struct request){trace->allocs[i].family, trace->allocs[i].size, i};
	if (list)
		qsort(list, to - from, sizeof(*list), sort_requests);
	return list;
}

static bool pair_by_request(struct md_analysis *analysis, uint32_t from, uint32_t one_end, uint32_t two_end)
{
	MD_AUTO_FREE struct request *one = list_requests(analysis->traces[0], from, one_end);
	MD_AUTO_FREE struct request *two = list_requests(analysis->traces[1], from, two_end);
	uint32_t i = 0, j = 0;
	if (!one || !two)
		return false;
	while (i < one_end - from && j < two_end - from) {
		int order = compare_requests(&one[i], &two[j]);
		if (order == 0)
			pair_allocs(analysis, one[i].index, two[j].index);
		i += order <= 0;
		j += order >= 0;
	}
	return true;
}

static bool match_allocs(struct md_analysis *analysis)
{
	const struct md_trace *one = analysis->traces[0], *two = analysis->traces[1];
	uint32_t i = 0, one_end = one->alloc_count, two_end = two->alloc_count;
	char first[64], second[64];
	for (; i < one_end && i < two_end && same_request(&one->allocs[i], &two->allocs[i]); i++)
		pair_allocs(analysis, i, i);
	if (i == one_end && i == two_end)
		return true;
	analysis->diverged = true;
	describe_alloc(one, i, first, sizeof(first));
	describe_alloc(two, i, second, sizeof(second));
	snprintf(analysis->divergence, sizeof(analysis->divergence),
		 "the captures' allocation sequences part at number %" PRIu32 " (%s; %s)", i, first, second);
	md_info("%s", analysis->divergence);
	for (; one_end > i && two_end > i && same_request(&one->allocs[one_end - 1], &two->allocs[two_end - 1]);
	     one_end--, two_end--)
		pair_allocs(analysis, one_end - 1, two_end - 1);
	return pair_by_request(analysis, i, one_end, two_end);
}

/* Both views list bindings by name. A binding of another size or role is another binding. */
static void match_bindings(struct md_analysis *analysis)
{
	const struct md_view *one = &analysis->views[0], *two = &analysis->views[1];
	uint32_t i = 0, j = 0;
	while (i < one->binding_count && j < two->binding_count) {
		int order = strcmp(one->bindings[i].name, two->bindings[j].name);
		if (order == 0 && one->bindings[i].size == two->bindings[j].size &&
		    one->bindings[i].role == two->bindings[j].role)
			analysis->binding_match[i] = j;
		i += order <= 0;
		j += order >= 0;
	}
}

static uint32_t *indices(uint32_t count, bool identity)
{
	uint32_t *list = malloc(((size_t)count + 1) * sizeof(*list));
	for (uint32_t i = 0; list && i < count; i++)
		list[i] = identity ? i : MD_NONE;
	return list;
}

enum md_status md_pass_sequence(struct md_analysis *analysis, struct md_error *err)
{
	bool single = analysis->captures == 1;
	unsigned last = analysis->captures - 1;
	analysis->partner = indices(analysis->views[0].alloc_count, single);
	analysis->partner_back = indices(analysis->views[last].alloc_count, single);
	analysis->binding_match = indices(analysis->views[0].binding_count, single);
	if (!analysis->partner || !analysis->partner_back || !analysis->binding_match)
		return md_analysis_no_memory(err);
	if (!single) {
		match_bindings(analysis);
		if (!match_allocs(analysis))
			return md_analysis_no_memory(err);
	}
	return MD_OK;
}
