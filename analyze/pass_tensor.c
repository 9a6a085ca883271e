/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass: finds the pointers that are the address in a tensor map, in parameters and contents, by the maps that were
 * encoded.
 */
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"

/* Checksum of the bytes -> index. */
static bool index_maps(const struct md_trace *trace, struct md_map *maps)
{
	for (uint32_t i = 0; i < trace->tensor_map_count; i++) {
		if (!md_map_put(maps, md_hash_checksum(trace->tensor_maps[i].bytes, MD_TENSOR_MAP_BYTES), i))
			return false;
	}
	return true;
}

static bool is_map(const struct md_trace *trace, const struct md_map *maps, const uint8_t *bytes)
{
	uint64_t index;
	return md_map_get(maps, md_hash_checksum(bytes, MD_TENSOR_MAP_BYTES), &index) &&
	       !memcmp(trace->tensor_maps[index].bytes, bytes, MD_TENSOR_MAP_BYTES);
}

static bool overlaps(uint32_t at, uint32_t start)
{
	return at >= start && at < start + MD_TENSOR_MAP_BYTES;
}

/* False: there is another pointer, or noise, inside of what looks like a map, so it is none. */
static bool is_whole(const struct md_findings *findings, uint32_t index, const struct md_noises *noises)
{
	const struct md_finding *finding = &findings->items[index];
	const struct md_finding *next = index + 1 < findings->count ? finding + 1 : NULL;
	if (next && next->node == finding->node && overlaps(next->at, finding->at))
		return false;
	for (uint32_t i = 0; noises && i < noises->count; i++) {
		if (noises->items[i].node == finding->node && overlaps(noises->items[i].at, finding->at))
			return false;
	}
	return true;
}

static void mark_params(const struct md_trace *trace, const struct md_map *maps, struct md_pair *pair)
{
	for (uint32_t i = 0; i < pair->findings.count; i++) {
		struct md_finding *finding = &pair->findings.items[i];
		const struct md_node *node = &pair->graph[0]->nodes[finding->node];
		if (node->type == MD_NODE_KERNEL && finding->at < node->params_size &&
		    node->params_size - finding->at >= MD_TENSOR_MAP_BYTES &&
		    is_map(trace, maps, node->params + finding->at) && is_whole(&pair->findings, i, &pair->noises))
			finding->kind = MD_POINTER_TENSOR_MAP;
	}
}

/* The first word of a held map is zero by now. */
static void mark_held(const struct md_analysis *analysis, const struct md_map *maps, struct md_held *held)
{
	for (uint32_t i = 0; i < held->findings.count; i++) {
		struct md_finding *finding = &held->findings.items[i];
		uint8_t bytes[MD_TENSOR_MAP_BYTES];
		if (held->size - finding->at < sizeof(bytes))
			continue;
		memcpy(bytes, held->data + finding->at, sizeof(bytes));
		memcpy(bytes, &finding->value, 8);
		if (is_map(analysis->traces[0], maps, bytes) && is_whole(&held->findings, i, NULL))
			finding->kind = MD_POINTER_TENSOR_MAP;
	}
}

enum md_status md_pass_tensor(struct md_analysis *analysis, struct md_error *err)
{
	const struct md_trace *trace = analysis->traces[0];
	enum md_status status = MD_OK;
	struct md_map maps;
	if (!trace->tensor_map_count)
		return MD_OK;
	md_map_init(&maps);
	if (!index_maps(trace, &maps))
		status = md_analysis_no_memory(err);
	for (uint32_t i = 0; status == MD_OK && i < analysis->pair_count; i++) {
		if (!analysis->pairs[i].why)
			mark_params(trace, &maps, &analysis->pairs[i]);
	}
	for (uint32_t i = 0; status == MD_OK && i < analysis->held_count; i++)
		mark_held(analysis, &maps, &analysis->held[i]);
	md_map_finish(&maps);
	return status;
}
