/* SPDX-License-Identifier: Apache-2.0 */
/* A LoRA adapter in host memory, from a PEFT folder or a GGUF file: low-rank changes of a decoder's projections. */
#ifndef LLAMA_ADAPTER_H
#define LLAMA_ADAPTER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "models/llama/recipe.h"

/* What an adapter may change of a layer, in the order of a forward. */
enum lora_projection { LORA_QUERY, LORA_KEY, LORA_VALUE, LORA_OUTPUT, LORA_GATE, LORA_UP, LORA_DOWN, LORA_PROJECTIONS };

enum { LORA_MAX_RANK = 64 };

/* y += scale * b (a x), x and y of one token. Bfloat16, as the model's weights. */
struct lora_part {
	const uint16_t *a; /* [rank][inputs]; NULL: the adapter leaves this projection as it is */
	const uint16_t *b; /* [outputs][rank]; rows of query and key in the order of the model's own rows */
	int rank;          /* 1 to LORA_MAX_RANK; parts of one adapter may differ */
	float scale;       /* lora_alpha / rank, or lora_alpha / sqrt(rank) where the file says so */
};

struct lora_adapter {
	struct lora_part *parts; /* [layers][LORA_PROJECTIONS] */
	int layers;
	int rank;      /* the largest of its parts */
	size_t bytes;  /* of host memory */
	void *weights; /* what the parts point into */
};

/* Sizes of a projection's input and output in a model of this shape. */
int lora_inputs(const struct llama_shape *shape, enum lora_projection projection);
int lora_outputs(const struct llama_shape *shape, enum lora_projection projection);

/*
 * path: a folder with adapter_config.json and adapter_model.safetensors (PEFT), or a GGUF file (general.type "adapter").
 * Nothing in it is trusted: all sizes are compared with shape before memory is taken, at most max_bytes of it. What can't
 * be served right is refused by name: a higher rank than max_rank, DoRA, biases, modules that were saved whole, tensors of
 * unknown projections or missing halves, values that are no finite numbers. The adapter keeps nothing of the path.
 */
enum md_status lora_adapter_load(struct lora_adapter *adapter, const char *path, const struct llama_shape *shape,
				 int max_rank, size_t max_bytes, struct md_error *err);
void lora_adapter_finish(struct lora_adapter *adapter); /* also on a zeroed one */

#endif
