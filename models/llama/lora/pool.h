/* SPDX-License-Identifier: Apache-2.0 */
/* Slots for adapters in device memory: places that never move, so that graphs stay valid whatever lies in them. */
#ifndef LLAMA_LORA_POOL_H
#define LLAMA_LORA_POOL_H

#include "models/llama/adapters/adapter.h"
#include "models/llama/device.h"
#include "models/llama/kernels.h"

/* Projections that share their input. */
enum lora_group { LORA_ATTENTION_IN, LORA_ATTENTION_OUT, LORA_FEED_IN, LORA_FEED_OUT, LORA_GROUPS };

/*
 * A slot has a place for each layer, sized for max_rank:
 *
 *	weights   slot 0: layer 0: a, b of attention in | a, b of attention out | feed in | feed out | layer 1 ... | slot 1 ...
 *	entries   [slots][layers][LORA_PROJECTIONS] rank and scale; rank 0: the projection stays as it is
 *	adapters  [tokens of a step] slot of the token's adapter, -1: none
 */
struct lora_pool {
	const struct llama_shape *shape;
	int slots, max_rank; /* slots 0: there is no pool */
	struct llama_buffer weights, entries, adapters;
	int norm_slices;                      /* of what a norm makes (kernels.h) */
	size_t layer_elements, slot_elements; /* of weights */
	struct lora_place {
		size_t a, b; /* elements behind the layer's beginning */
	} places[LORA_GROUPS];
};

/* slots 0: takes nothing. tokens: of a step at most. */
enum md_status lora_pool_init(struct lora_pool *pool, const struct llama_device *device,
			      const struct llama_shape *shape, int slots, int max_rank, size_t tokens,
			      struct md_error *err);
void lora_pool_finish(struct lora_pool *pool); /* also on a zeroed one */

/*
 * Copies an adapter into a slot that no token uses: all of it, and waits; or layer by layer, and then its ranks and scales,
 * after which it can be used. A layer's copies are not awaited, and go through `staging` (2 * layer_elements bytes) unless
 * that is NULL.
 */
enum md_status lora_pool_put_layer(struct lora_pool *pool, CUstream stream, int slot, int layer,
				   const struct lora_adapter *adapter, unsigned char *staging, struct md_error *err);
enum md_status lora_pool_put_entries(struct lora_pool *pool, CUstream stream, int slot,
				     const struct lora_adapter *adapter, struct md_error *err);
enum md_status lora_pool_put(struct lora_pool *pool, CUstream stream, int slot, const struct lora_adapter *adapter,
			     struct md_error *err);

/* Numbers from a seed in every place: what a capture tries its graphs with, before there is an adapter. */
enum md_status lora_pool_fill(struct lora_pool *pool, const struct llama_device *device, CUstream stream, uint64_t seed,
			      struct md_error *err);

/* ---- in a step ---- */

/* What the kernels around a group's products need. */
struct llama_lora_group lora_pool_group(const struct lora_pool *pool, enum lora_group group, int layer,
					CUdeviceptr sums);

/* Floats for a token's sums in groups that read the layer's input, and in the others. */
size_t lora_pool_hidden_sums(const struct lora_pool *pool);
size_t lora_pool_inner_sums(const struct lora_pool *pool);

#endif
