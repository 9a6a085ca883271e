/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder's kernels: parameter lists shared by the CUDA kernels, the hostcuda kernels and the engine that launches
 * them. */
#ifndef LLAMA_KERNELS_H
#define LLAMA_KERNELS_H

#include <stdint.h>

/*
 * Images llama_kernels.{fatbin,host.so} hold these kernels under these very names (extern "C" in CUDA). A CUDA kernel
 * takes the fields as separate parameters, in this order; a hostcuda kernel takes them as the struct. "T" is the number
 * of tokens of the step (the batch in decode, the prompt's tokens in prefill); one sequence may own several of them.
 * Activations are float32, weights and embedding bfloat16 (uint16_t here), KV cache float32.
 *
 * KV cache of one layer: float [2 (K, V)][blocks][kv_heads][block_size][head_dim].
 * block_table: int32 [sequences][max_blocks]; token t belongs to sequence slots[t] and stands at positions[t].
 */

typedef uint16_t llama_bf16;

/* out[t][i] = table[tokens[t]][i]. Grid: (T), block: 256. */
struct llama_embed {
	float *out;
	const llama_bf16 *table;
	const int32_t *tokens;
	int32_t width;
};

/* out[t] = x[t] * weight / sqrt(mean(x[t]^2) + epsilon). Grid: (T), block: 256; static shared memory for the sum. */
struct llama_rms_norm {
	float *out;
	const float *x;
	const llama_bf16 *weight;
	int32_t width;
	float epsilon;
};

/*
 * Rotates q and k (pairs (2i, 2i+1) when interleaved != 0, (i, i + head_dim/2) otherwise) by positions[t] *
 * theta^(-2i/head_dim) and stores k and v of each token into its KV block. qkv: [T][(heads + 2 * kv_heads) * head_dim];
 * q is rotated in place. Grid: (T, heads + 2 * kv_heads), block: 64.
 */
struct llama_rope_store {
	float *qkv;
	float *kv;
	const int32_t *positions;
	const int32_t *slots;
	const int32_t *block_table;
	int32_t heads, kv_heads, head_dim, block_size, max_blocks, blocks;
	float theta;
	int32_t interleaved;
};

/*
 * Causal attention of each token over positions 0..positions[t] of its sequence, softmax(q k^T / sqrt(head_dim)) v.
 * out: [T][heads * head_dim]. Grid: (T, heads), block: 128; dynamic shared memory: 4 bytes for each of max_positions
 * scores plus 4 * head_dim (may exceed 48 KiB: the engine sets MAX_DYNAMIC_SHARED_SIZE_BYTES).
 */
struct llama_attention {
	float *out;
	const float *qkv;
	const float *kv;
	const int32_t *positions;
	const int32_t *slots;
	const int32_t *block_table;
	int32_t heads, kv_heads, head_dim, block_size, max_blocks, blocks, max_positions;
};

/* out[t][i] = gate * sigmoid(gate) * up; gate and up [T][width]. Grid: (T, ceil(width / 256)), block: 256. HIDDEN. */
struct llama_silu_mul {
	float *out;
	const float *gate;
	const float *up;
	int32_t width;
};

/* x[i] += y[i], n elements. Grid: (ceil(n / 256)), block: 256. */
struct llama_add {
	float *x;
	const float *y;
	int32_t n;
};

/*
 * Next token of each row of logits [T][vocabulary]: argmax (lowest index on ties) when temperature == 0, else a seeded
 * draw from softmax(logits / temperature) by the Gumbel trick with a counter-based generator of (seed, positions[t],
 * index). Grid: (T), block: 256. HIDDEN.
 */
struct llama_sample {
	int32_t *next;
	const float *logits;
	const int32_t *positions;
	int32_t vocabulary;
	float temperature;
	uint64_t seed;
};

/* w[i] = bfloat16(scale * uniform(-1, 1)) from a counter-based generator of (seed, i). Grid: (ceil(n / 1024)), block:
 * 256. */
struct llama_fill {
	llama_bf16 *w;
	uint64_t n;
	uint64_t seed;
	float scale;
	float offset;
};

/* out[t] = x[rows[t]], width elements: picks the rows whose logits are wanted. Grid: (T), block: 256. */
struct llama_gather {
	float *out;
	const float *x;
	const int32_t *rows;
	int32_t width;
};

/* What a slot of the adapters' pool holds for one projection. Rank 0: nothing. */
struct llama_lora_entry {
	int32_t rank;
	float scale;
};

#define LLAMA_LORA_PARTS 3
#define LLAMA_LORA_MAX_RANK 64
#define LLAMA_LORA_BLOCKS 8
#define LLAMA_LORA_SLICE(inputs) (((inputs) + 8 * LLAMA_LORA_BLOCKS - 1) / (8 * LLAMA_LORA_BLOCKS) * 8)

/*
 * LoRA: to the outputs of `parts` (1 to 3) projections that share their input x, scale * b[part] (a[part] x[t]) is added, with the
 * adapter in slot adapters[t] of the pool; a token whose adapters[t] is negative is left as it is. No kernel does only that: what
 * makes x also computes a x, slice by slice of the inputs, and what reads the projections' outputs first adds b (a x) to them.
 *
 * a and b are those of slot 0; other slots lie multiples of slot_elements further on, and the entries of the parts multiples of
 * slot_entries behind `entries`. a: [parts][max_rank][inputs], of each part the first `rank` rows are used. b: for each part
 * room for [columns][max_rank], of which [columns][rank] is used; the columns of a part that is not there are 0. max_rank
 * is at most LLAMA_LORA_MAX_RANK. sums: [T][slices][parts][max_rank], a x over one slice of the inputs, without the
 * scale; only used ranks are written.
 */
struct llama_lora_group {
	const llama_bf16 *a, *b;
	const struct llama_lora_entry *entries;
	const int32_t *adapters; /* NULL: no token has one */
	float *sums;
	int64_t slot_elements;
	int32_t slot_entries, parts, max_rank, inputs, slices, columns0, columns1, columns2;
};

/*
 * x[t] += what `from` adds; out as llama_rms_norm; sums of `to` in LLAMA_LORA_BLOCKS slices of LLAMA_LORA_SLICE(width).
 * Grid: (T, LLAMA_LORA_BLOCKS), block: 256; dynamic shared memory: 4 * LLAMA_LORA_SLICE(width). On hostcuda the grid is
 * (T), and `to` has one slice.
 */
struct llama_adapted_norm {
	float *out;
	float *x;
	const llama_bf16 *weight;
	struct llama_lora_group from, to;
	int32_t width;
	float epsilon;
};

/*
 * llama_rope_store of qkv with what `from` adds (q, k and v are its parts). k and v in qkv stay as they are. Dynamic shared
 * memory: 4 * head_dim.
 */
struct llama_adapted_rope {
	float *qkv;
	float *kv;
	const int32_t *positions;
	const int32_t *slots;
	const int32_t *block_table;
	struct llama_lora_group from;
	int32_t heads, kv_heads, head_dim, block_size, max_blocks, blocks;
	float theta;
	int32_t interleaved;
};

/* llama_attention, and sums of `to`: a head is a slice. Dynamic shared memory: LLAMA_ADAPTED_ATTENTION_SHARED. */
#define LLAMA_ADAPTED_ATTENTION_QUERY(max_positions) (((max_positions) + 3) / 4 * 4)
#define LLAMA_ADAPTED_ATTENTION_SHARED(max_positions, head_dim)                                                        \
	(4 * (unsigned)(LLAMA_ADAPTED_ATTENTION_QUERY(max_positions) + (head_dim)))

struct llama_adapted_attention {
	float *out;
	const float *qkv;
	const float *kv;
	const int32_t *positions;
	const int32_t *slots;
	const int32_t *block_table;
	struct llama_lora_group to;
	int32_t heads, kv_heads, head_dim, block_size, max_blocks, blocks, max_positions;
};

/* llama_silu_mul of gate and up with what `from` adds, which stay as they are; sums of `to`: a block is a slice. */
#define LLAMA_ADAPTED_SILU_SLICE 256

struct llama_adapted_silu {
	float *out;
	const float *gate;
	const float *up;
	struct llama_lora_group from, to;
	int32_t width;
};

/* llama_gather of x with what `from` adds, which stays as it is. Grid: (T, ceil(width / 256)), block: 256. */
struct llama_adapted_gather {
	float *out;
	const float *x;
	const int32_t *rows;
	struct llama_lora_group from;
	int32_t width;
};

#endif
