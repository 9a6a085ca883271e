/* SPDX-License-Identifier: Apache-2.0 */
/* Private memory of the graphs: one allocation, and the permanent contents in it with their pointers relocated. */
#include <string.h>

#include "restore/bindings.h"
#include "restore/patch.h"
#include "restore/restore.h"
#include "restore/restore_arena.h"
#include "restore/variables.h"

/* Defined in libmedusa-swap.so alone. */
extern enum md_status md_swap_discard_say(uint64_t address, uint64_t bytes, bool discardable, struct md_error *err)
    __attribute__((weak));

static void say_needed(const struct md_restore *r, uint32_t alloc, uint64_t offset, uint64_t size)
{
	if (size && r->artifact.allocs[alloc].class == MD_CLASS_PRIVATE)
		md_swap_discard_say(md_restore_alloc_address(r, alloc) + offset, size, false, NULL);
}

/*
 * Between replays nobody needs what lies in private memory (the poison test has shown that), but for permanent contents,
 * outputs, which the engine reads later, and what one graph hands to another. Swapping need not save the rest.
 */
static void say_discardable(const struct md_restore *r)
{
	if (!md_swap_discard_say || md_swap_discard_say(r->arena, r->artifact.arena_size, true, NULL) != MD_OK)
		return;
	for (uint32_t i = 0; i < r->artifact.content_count; i++) {
		const struct md_artifact_content *content = &r->artifact.contents[i];
		say_needed(r, content->alloc, content->offset, content->size);
	}
	for (uint32_t i = 0; i < r->artifact.graph_count; i++) {
		const struct md_artifact_graph *graph = &r->artifact.graphs[i];
		for (uint32_t k = 0; k < graph->output_count; k++)
			say_needed(r, graph->outputs[k].alloc, graph->outputs[k].offset, graph->outputs[k].size);
		for (uint32_t k = 0; k < graph->handed_count; k++)
			say_needed(r, graph->handed[k].alloc, graph->handed[k].offset, graph->handed[k].size);
	}
}

enum md_status md_restore_arena_reserve(struct md_restore *r, struct md_error *err)
{
	uint64_t size = r->artifact.arena_size;
	if (r->arena || !size)
		return MD_OK;
	CUdeviceptr arena = 0;
	if (md_cuda_call(err, cuMemAlloc_v2, &arena, size) != MD_OK)
		return md_error_prefix(err, "private memory of %llu bytes", (unsigned long long)size);
	/* The memory gets known bytes, so that two starts never differ by its old contents. */
	if (md_cuda_call(err, cuMemsetD8Async, arena, 0, size, r->stream) != MD_OK) {
		md_cuda.cuMemFree_v2(arena);
		return err ? err->status : MD_ERR_DRIVER;
	}
	pthread_mutex_lock(&md_restore_lock);
	r->arena = arena;
	r->stats.private_bytes = size;
	pthread_mutex_unlock(&md_restore_lock);
	say_discardable(r);
	return MD_OK;
}

void md_restore_arena_free(struct md_restore *r)
{
	if (!r->arena)
		return;
	md_cuda.cuStreamSynchronize(r->stream);
	md_cuda.cuMemFree_v2(r->arena);
	memset(r->content_placed, 0, r->artifact.content_count * sizeof(*r->content_placed));
	pthread_mutex_lock(&md_restore_lock);
	r->arena = 0;
	r->stats.private_bytes = 0;
	pthread_mutex_unlock(&md_restore_lock);
}

enum md_status md_restore_relocate(struct md_restore *r, uint8_t *data, const struct md_pointer *pointers,
				   uint32_t count, struct md_error *err)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct md_pointer *pointer = &pointers[i];
		uint64_t address = md_restore_alloc_address(r, pointer->alloc) + (uint64_t)pointer->offset;
		if (pointer->kind == MD_POINTER_TENSOR_MAP)
			MD_FORWARD(md_restore_patch_tensor_map(data + pointer->at, address, err));
		else
			memcpy(data + pointer->at, &address, sizeof(address));
	}
	return MD_OK;
}

static enum md_status place(struct md_restore *r, struct md_artifact_content *content, struct md_error *err)
{
	MD_FORWARD(md_restore_relocate(r, content->data, content->pointers, content->pointer_count, err));
	CUdeviceptr to = md_restore_alloc_address(r, content->alloc) + content->offset;
	return md_cuda_call(err, cuMemcpyHtoDAsync_v2, to, content->data, content->size, r->stream);
}

enum md_status md_restore_contents_place(struct md_restore *r, struct md_restore_graph *graph, bool again,
					 struct md_error *err)
{
	for (uint32_t i = 0; i < graph->content_count; i++) {
		uint32_t index = graph->contents[i];
		if (r->content_placed[index] && !again)
			continue;
		if (place(r, &r->artifact.contents[index], err) != MD_OK)
			return md_error_prefix(err, "contents %u", index);
		r->content_placed[index] = true;
	}
	return md_restore_variables_place(r, graph, again, err);
}
