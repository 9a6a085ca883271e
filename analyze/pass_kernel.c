/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: which kernels of both captures are the same one. Identity is (image hash, name, parameter layout). */
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"

static bool same_layout(const struct md_kernel *a, const struct md_kernel *b)
{
	if (a->param_count != b->param_count)
		return false;
	for (uint32_t i = 0; i < a->param_count; i++) {
		if (a->params[i].offset != b->params[i].offset || a->params[i].size != b->params[i].size)
			return false;
	}
	return true;
}

static bool same_kernel(const struct md_trace *ta, const struct md_kernel *a, const struct md_trace *tb,
			const struct md_kernel *b)
{
	if ((a->image == MD_NONE) != (b->image == MD_NONE))
		return false;
	if (a->image != MD_NONE && !md_hash_equal(&ta->images[a->image].hash, &tb->images[b->image].hash))
		return false;
	return strcmp(a->name, b->name) == 0 && same_layout(a, b);
}

/* FNV-1a of the name: kernels of one name meet in one bucket, whatever their image. */
static uint64_t name_key(const char *name)
{
	uint64_t key = 0xcbf29ce484222325u;
	for (; *name; name++)
		key = (key ^ (uint8_t)*name) * 0x100000001b3u;
	return key;
}

struct buckets {
	struct md_map heads; /* name key -> first kernel of the chain */
	uint32_t *next;
};

static uint32_t find_kernel(const struct buckets *buckets, const struct md_trace *first, const struct md_trace *trace,
			    const struct md_kernel *kernel)
{
	uint64_t head;
	uint32_t i = md_map_get(&buckets->heads, name_key(kernel->name), &head) ? (uint32_t)head : MD_NONE;
	while (i != MD_NONE && !same_kernel(first, &first->kernels[i], trace, kernel))
		i = buckets->next[i];
	return i;
}

static bool identify(struct md_analysis *analysis, struct buckets *buckets)
{
	const struct md_trace *first = analysis->traces[0];
	for (uint32_t i = 0; i < first->kernel_count; i++) {
		uint64_t key = name_key(first->kernels[i].name), head;
		uint32_t equal = find_kernel(buckets, first, first, &first->kernels[i]);
		analysis->kernel_identity[0][i] = equal == MD_NONE ? i : equal;
		if (equal != MD_NONE)
			continue;
		buckets->next[i] = md_map_get(&buckets->heads, key, &head) ? (uint32_t)head : MD_NONE;
		if (!md_map_put(&buckets->heads, key, i))
			return false;
	}
	for (uint32_t i = 0; analysis->captures == 2 && i < analysis->traces[1]->kernel_count; i++)
		analysis->kernel_identity[1][i] =
		    find_kernel(buckets, first, analysis->traces[1], &analysis->traces[1]->kernels[i]);
	return true;
}

enum md_status md_pass_kernel(struct md_analysis *analysis, struct md_error *err)
{
	struct buckets buckets = {.next = calloc(analysis->traces[0]->kernel_count + 1u, sizeof(*buckets.next))};
	bool done = buckets.next != NULL;
	md_map_init(&buckets.heads);
	for (unsigned c = 0; c < analysis->captures; c++) {
		analysis->kernel_identity[c] =
		    calloc(analysis->traces[c]->kernel_count + 1u, sizeof(*analysis->kernel_identity[c]));
		done = done && analysis->kernel_identity[c];
	}
	done = done && identify(analysis, &buckets);
	free(buckets.next);
	md_map_finish(&buckets.heads);
	return done ? MD_OK : md_analysis_no_memory(err);
}
