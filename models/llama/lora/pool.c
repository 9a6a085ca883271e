/* SPDX-License-Identifier: Apache-2.0 */
/* The pool's layout, copies into it, and what kernels are told of it. */
#include "models/llama/lora/pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define ALIGNMENT 128u /* elements: 256 bytes */
#define FILL_SCALE 0.02f

_Static_assert(LLAMA_LORA_MAX_RANK == LORA_MAX_RANK, "the kernel has room for every rank");

static const struct {
	enum lora_projection first;
	int parts;
} groups[LORA_GROUPS] = {
    [LORA_ATTENTION_IN] = {LORA_QUERY, 3},
    [LORA_ATTENTION_OUT] = {LORA_OUTPUT, 1},
    [LORA_FEED_IN] = {LORA_GATE, 2},
    [LORA_FEED_OUT] = {LORA_DOWN, 1},
};

static size_t aligned(size_t elements)
{
	return (elements + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int group_inputs(const struct lora_pool *pool, enum lora_group group)
{
	return lora_inputs(pool->shape, groups[group].first);
}

static int part_outputs(const struct lora_pool *pool, enum lora_group group, int part)
{
	return part < groups[group].parts
		   ? lora_outputs(pool->shape, (enum lora_projection)((int)groups[group].first + part))
		   : 0;
}

/* ---- layout ---- */

static void lay_out(struct lora_pool *pool)
{
	size_t rank = (size_t)pool->max_rank, next = 0;
	for (enum lora_group group = 0; group < LORA_GROUPS; group++) {
		size_t outputs = 0;
		for (int part = 0; part < groups[group].parts; part++)
			outputs += (size_t)part_outputs(pool, group, part);
		pool->places[group].a = next;
		next += aligned((size_t)groups[group].parts * rank * (size_t)group_inputs(pool, group));
		pool->places[group].b = next;
		next += aligned(outputs * rank);
	}
	pool->layer_elements = next;
	pool->slot_elements = next * (size_t)pool->shape->layers;
}

static size_t slot_entries(const struct lora_pool *pool)
{
	return (size_t)pool->shape->layers * LORA_PROJECTIONS;
}

static CUdeviceptr layer_of(const struct lora_pool *pool, int slot, int layer)
{
	return pool->weights.address + 2 * ((size_t)slot * pool->slot_elements + (size_t)layer * pool->layer_elements);
}

/* Every byte has a value before graphs are asked for, in every start. */
static enum md_status take(struct llama_buffer *buffer, size_t bytes, unsigned char fill, struct md_error *err)
{
	MD_FORWARD(md_cuda_call(err, cuMemAlloc_v2, &buffer->address, bytes));
	buffer->bytes = bytes;
	return md_cuda_call(err, cuMemsetD8_v2, buffer->address, fill, bytes);
}

static enum md_status take_memory(struct lora_pool *pool, size_t tokens, struct md_error *err)
{
	size_t slots = (size_t)pool->slots;
	MD_FORWARD(take(&pool->weights, 2 * slots * pool->slot_elements, 0, err));
	MD_FORWARD(take(&pool->entries, slots * slot_entries(pool) * sizeof(struct llama_lora_entry), 0, err));
	MD_FORWARD(take(&pool->adapters, 4 * tokens, 0xff, err));
	/* the engine's streams do not wait for the one that these sets are on */
	return md_cuda_call(err, cuCtxSynchronize);
}

enum md_status lora_pool_init(struct lora_pool *pool, const struct llama_device *device,
			      const struct llama_shape *shape, int slots, int max_rank, size_t tokens,
			      struct md_error *err)
{
	*pool = (struct lora_pool){.shape = shape,
				   .slots = slots,
				   .max_rank = max_rank,
				   .norm_slices = device->on_host ? 1 : LLAMA_LORA_BLOCKS};
	if (!slots)
		return MD_OK;
	lay_out(pool);
	if (take_memory(pool, tokens, err) == MD_OK)
		return MD_OK;
	return md_error_prefix(err, "%d slots for adapters of rank %d take %zu bytes", slots, max_rank,
			       2 * (size_t)slots * pool->slot_elements);
}

static void drop(struct llama_buffer *buffer)
{
	if (buffer->address)
		md_cuda_call(NULL, cuMemFree_v2, buffer->address);
}

void lora_pool_finish(struct lora_pool *pool)
{
	drop(&pool->weights);
	drop(&pool->entries);
	drop(&pool->adapters);
	memset(pool, 0, sizeof(*pool));
}

/* ---- copies ---- */

struct copies {
	CUstream stream;
	unsigned char *staging; /* where the next copy goes through; NULL: none does */
};

static enum md_status copy(struct copies *copies, CUdeviceptr target, const uint16_t *source, size_t elements,
			   struct md_error *err)
{
	const void *from = source;
	if (copies->staging) {
		from = memcpy(copies->staging, source, 2 * elements);
		copies->staging += 2 * elements;
	}
	return md_cuda_call(err, cuMemcpyHtoDAsync_v2, target, from, 2 * elements, copies->stream);
}

static enum md_status put_group(const struct lora_pool *pool, struct copies *copies, CUdeviceptr layer,
				enum lora_group group, const struct lora_part *parts, struct md_error *err)
{
	size_t inputs = (size_t)group_inputs(pool, group), rank = (size_t)pool->max_rank;
	CUdeviceptr a = layer + 2 * pool->places[group].a, b = layer + 2 * pool->places[group].b;
	for (int i = 0; i < groups[group].parts; i++) {
		const struct lora_part *part = &parts[(int)groups[group].first + i];
		size_t outputs = (size_t)part_outputs(pool, group, i);
		if (part->a) {
			MD_FORWARD(copy(copies, a, part->a, (size_t)part->rank * inputs, err));
			MD_FORWARD(copy(copies, b, part->b, (size_t)part->rank * outputs, err));
		}
		a += 2 * rank * inputs;
		b += 2 * rank * outputs;
	}
	return MD_OK;
}

enum md_status lora_pool_put_layer(struct lora_pool *pool, CUstream stream, int slot, int layer,
				   const struct lora_adapter *adapter, unsigned char *staging, struct md_error *err)
{
	const struct lora_part *parts = adapter->parts + (size_t)layer * LORA_PROJECTIONS;
	struct copies copies = {stream, staging};
	for (enum lora_group group = 0; group < LORA_GROUPS; group++)
		MD_FORWARD(put_group(pool, &copies, layer_of(pool, slot, layer), group, parts, err));
	return MD_OK;
}

static enum md_status upload_entries(struct lora_pool *pool, CUstream stream, int slot,
				     const struct llama_lora_entry *entries, struct md_error *err)
{
	size_t bytes = slot_entries(pool) * sizeof(*entries);
	MD_FORWARD(md_cuda_call(err, cuMemcpyHtoDAsync_v2, pool->entries.address + (size_t)slot * bytes, entries, bytes,
				stream));
	return md_cuda_call(err, cuStreamSynchronize, stream);
}

static struct llama_lora_entry *make_entries(const struct lora_pool *pool, struct md_error *err)
{
	struct llama_lora_entry *entries = calloc(slot_entries(pool), sizeof(*entries));
	if (!entries)
		md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for an adapter's %zu ranks", slot_entries(pool));
	return entries;
}

enum md_status lora_pool_put_entries(struct lora_pool *pool, CUstream stream, int slot,
				     const struct lora_adapter *adapter, struct md_error *err)
{
	MD_AUTO_FREE struct llama_lora_entry *entries = make_entries(pool, err);
	if (!entries)
		return MD_ERR_NO_MEMORY;
	for (size_t i = 0; i < slot_entries(pool); i++)
		if (adapter->parts[i].a)
			entries[i] = (struct llama_lora_entry){adapter->parts[i].rank, adapter->parts[i].scale};
	return upload_entries(pool, stream, slot, entries, err);
}

enum md_status lora_pool_fill(struct lora_pool *pool, const struct llama_device *device, CUstream stream, uint64_t seed,
			      struct md_error *err)
{
	uint64_t n = (uint64_t)pool->slots * pool->slot_elements;
	float scale = FILL_SCALE, offset = 0;
	void *parameters[] = {&pool->weights.address, &n, &seed, &scale, &offset};
	MD_AUTO_FREE struct llama_lora_entry *entries = make_entries(pool, err);
	if (!entries)
		return MD_ERR_NO_MEMORY;
	for (size_t i = 0; i < slot_entries(pool); i++)
		entries[i] = (struct llama_lora_entry){1 + (int)(i % (size_t)pool->max_rank), 1};
	MD_FORWARD(llama_launch(device, LLAMA_FILL, (struct llama_grid){(unsigned)((n + 1023) / 1024), 1, 256, 0},
				stream, parameters, err));
	for (int slot = 0; slot < pool->slots; slot++)
		MD_FORWARD(upload_entries(pool, stream, slot, entries, err));
	return MD_OK;
}

enum md_status lora_pool_put(struct lora_pool *pool, CUstream stream, int slot, const struct lora_adapter *adapter,
			     struct md_error *err)
{
	for (int layer = 0; layer < pool->shape->layers; layer++)
		MD_FORWARD(lora_pool_put_layer(pool, stream, slot, layer, adapter, NULL, err));
	return lora_pool_put_entries(pool, stream, slot, adapter, err);
}

/* ---- in a step ---- */

static int slices_of(const struct lora_pool *pool, enum lora_group group)
{
	const struct llama_shape *shape = pool->shape;
	if (group == LORA_ATTENTION_OUT)
		return shape->heads;
	if (group == LORA_FEED_OUT)
		return (shape->intermediate_size + LLAMA_ADAPTED_SILU_SLICE - 1) / LLAMA_ADAPTED_SILU_SLICE;
	return pool->norm_slices;
}

static size_t larger_sums(const struct lora_pool *pool, enum lora_group one, enum lora_group other)
{
	size_t a = (size_t)(slices_of(pool, one) * groups[one].parts);
	size_t b = (size_t)(slices_of(pool, other) * groups[other].parts);
	return (a > b ? a : b) * (size_t)pool->max_rank;
}

size_t lora_pool_hidden_sums(const struct lora_pool *pool)
{
	return larger_sums(pool, LORA_ATTENTION_IN, LORA_FEED_IN);
}

size_t lora_pool_inner_sums(const struct lora_pool *pool)
{
	return larger_sums(pool, LORA_ATTENTION_OUT, LORA_FEED_OUT);
}

struct llama_lora_group lora_pool_group(const struct lora_pool *pool, enum lora_group group, int layer,
					CUdeviceptr sums)
{
	CUdeviceptr weights = layer_of(pool, 0, layer);
	size_t first = (size_t)layer * LORA_PROJECTIONS + groups[group].first;
	return (struct llama_lora_group){
	    .a = (const llama_bf16 *)(uintptr_t)(weights + 2 * pool->places[group].a),
	    .b = (const llama_bf16 *)(uintptr_t)(weights + 2 * pool->places[group].b),
	    .entries = (const struct llama_lora_entry *)(uintptr_t)(pool->entries.address +
								    first * sizeof(struct llama_lora_entry)),
	    .adapters = (const int32_t *)(uintptr_t)pool->adapters.address,
	    .sums = (float *)(uintptr_t)sums,
	    .slot_elements = (int64_t)pool->slot_elements,
	    .slot_entries = (int32_t)slot_entries(pool),
	    .parts = groups[group].parts,
	    .max_rank = pool->max_rank,
	    .inputs = group_inputs(pool, group),
	    .slices = slices_of(pool, group),
	    .columns0 = part_outputs(pool, group, 0),
	    .columns1 = part_outputs(pool, group, 1),
	    .columns2 = part_outputs(pool, group, 2),
	};
}
