/* SPDX-License-Identifier: Apache-2.0 */
/* Writes this process's addresses into parameter blocks: every indirect index pointer becomes allocation + offset. */
#include <string.h>

#include "base/splitmix.h"
#include "restore/bindings.h"
#include "restore/patch.h"
#include "restore/restore.h"

enum md_status md_restore_patch_tensor_map(uint8_t *at, uint64_t address, struct md_error *err)
{
	/* the driver demands the alignment; in a block a map may lie at any 8 bytes */
	CUtensorMap map __attribute__((aligned(64)));
	memcpy(&map, at, sizeof(map));
	MD_FORWARD(md_cuda_call(err, cuTensorMapReplaceAddress, &map, (void *)(uintptr_t)address));
	memcpy(at, &map, sizeof(map));
	return MD_OK;
}

static enum md_status patch_word(struct md_node *node, const struct md_pointer *pointer, uint64_t address,
				 struct md_error *err)
{
	struct md_attribute *attribute = md_node_attribute_at(node, pointer->at);
	switch (node->type) {
	case MD_NODE_KERNEL:
		if (attribute) {
			memcpy(attribute->value, &address, sizeof(address));
			return MD_OK;
		}
		if (pointer->kind == MD_POINTER_TENSOR_MAP)
			return md_restore_patch_tensor_map(node->params + pointer->at, address, err);
		memcpy(node->params + pointer->at, &address, sizeof(address));
		return MD_OK;
	case MD_NODE_MEMSET:
		node->memset.dst = address;
		return MD_OK;
	case MD_NODE_MEMCPY:
		*(pointer->at ? &node->memcpy.dst : &node->memcpy.src) = address;
		return MD_OK;
	default:
		return md_error_set(err, MD_ERR_CORRUPT, "node %u has no parameters and yet a pointer", pointer->node);
	}
}

static bool is_tried(const struct md_artifact_graph *stored, const struct md_trial *trial, uint32_t index)
{
	return trial->of == MD_TRIAL_ALL || trial->index == index ||
	       (trial->of == MD_TRIAL_ALIKE &&
		md_doubtful_alike(stored, &stored->doubtful[trial->index], &stored->doubtful[index]));
}

static void patch_doubtful(const struct md_restore *r, const struct md_restore_graph *graph)
{
	const struct md_artifact_graph *stored = graph->stored;
	for (uint32_t i = 0; i < stored->doubtful_count; i++) {
		const struct md_doubtful *word = &stored->doubtful[i];
		uint64_t value =
		    word->alloc == MD_NONE ? 0 : md_restore_alloc_address(r, word->alloc) + (uint64_t)word->offset;
		if (graph->trial.set && is_tried(stored, &graph->trial, i))
			value = graph->trial.value;
		memcpy(stored->nodes[word->node].params + word->at, &value, sizeof(value));
	}
}

enum md_status md_restore_patch(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	struct md_artifact_graph *stored = graph->stored;
	for (uint32_t i = 0, moved = 0; i < stored->pointer_count; i++) {
		const struct md_pointer *pointer = &stored->pointers[i];
		uint64_t address = md_restore_alloc_address(r, pointer->alloc) + (uint64_t)pointer->offset;
		if (moved < graph->moved_count && graph->moved[moved].pointer == i)
			address = graph->moved[moved++].address;
		if (patch_word(&stored->nodes[pointer->node], pointer, address, err) != MD_OK)
			return md_error_prefix(err, "node %u, byte %u", pointer->node, pointer->at);
	}
	patch_doubtful(r, graph);
	return MD_OK;
}

void md_restore_patch_noise(struct md_restore_graph *graph, uint64_t seed)
{
	struct md_artifact_graph *stored = graph->stored;
	for (uint32_t i = 0; i < stored->noise_count; i++) {
		uint8_t *at = stored->nodes[stored->noise[i].node].params + stored->noise[i].at;
		for (uint32_t b = 0; b < stored->noise[i].size; b++)
			at[b] = seed ? (uint8_t)md_random_next(&seed) : 0;
	}
}
