/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of a decoder of the Llama family, from a recipe (a subset of YAML: "key: value" lines) or a GGUF file. */
#ifndef LLAMA_RECIPE_H
#define LLAMA_RECIPE_H

#include <stddef.h>

#include "base/status.h"
#include "models/llama/gguf.h"

struct llama_shape {
	int hidden_size, intermediate_size, layers, heads, kv_heads, head_dim, vocabulary;
	int max_context;      /* positions of one sequence */
	int rope_interleaved; /* 1: pairs (2i, 2i+1); 0: pairs (i, i + head_dim / 2) */
	int tie_embeddings;   /* 1: the head is the embedding */
	int block_size;       /* positions of one KV block */
	double rope_theta, rms_epsilon;
	double scale; /* of seeded weights */
};

/* Errors read "NAME:LINE: ...": an unknown or repeated key, a value that is no number, a missing key, a bad shape. */
enum md_status recipe_parse(const char *text, size_t size, const char *name, struct llama_shape *shape,
			    struct md_error *err);
enum md_status recipe_load(const char *path, struct llama_shape *shape, struct md_error *err);

/* The shape of a GGUF file of architecture "llama". Its q and k rows are permuted for interleaved rotation. */
enum md_status recipe_from_gguf(const struct gguf *gguf, struct llama_shape *shape, struct md_error *err);

#endif
