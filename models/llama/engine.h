/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder: buffers, KV cache and one step as a list of launches, the same when run eagerly and when captured. */
#ifndef LLAMA_ENGINE_H
#define LLAMA_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "models/llama/lora/pool.h"
#include "models/llama/gemm.h"
#include "models/llama/model.h"

/*
 * Temporaries of a step. The eager ones serve prefill; the decode ones belong to the graphs alone and are never bound:
 * no kernel outside of graphs uses them once the graphs are made. So it is with the workspaces of the matrix library.
 */
struct llama_activations {
	CUdeviceptr x, normed, qkv, attention, gate, up, last, last_normed;
	CUdeviceptr hidden_sums, inner_sums; /* of adapters; 0 without slots */
	struct llama_gemm *gemm, *side_gemm; /* one each: a workspace serves one stream */
	bool present;
};

struct llama_limits {
	int max_batch;     /* largest decode batch */
	int max_context;   /* positions of one sequence */
	float temperature; /* 0: greedy */
	uint64_t sample_seed;
	int lora_slots, max_lora_rank; /* lora_slots 0: no adapters */
};

struct llama_engine {
	const struct llama_device *device;
	const struct llama_model *model;
	struct llama_limits limits;
	int max_blocks;     /* KV blocks of one sequence */
	int prefill_tokens; /* of one eager step at most */
	int scratch_slot;   /* a sequence whose every block is the scratch block 0, for idle rows */
	CUstream stream, side_stream;
	CUevent fork, join;
	int low_priority;
	/* bound: what graphs read and write and the engine owns */
	struct llama_buffer tokens, positions, slots, rows, block_table, logits, next, kv;
	CUdeviceptr last_row; /* of a prefill step */
	int kv_blocks;        /* block 0 is scratch */
	struct lora_pool lora;
	struct llama_activations eager, decode;
	int32_t *staging; /* pinned host memory: tokens, positions, slots, block table or rows on their way */
	size_t staging_bytes;
};

/* Takes everything but the KV cache and the decode activations. */
enum md_status llama_engine_create(struct llama_engine *engine, const struct llama_device *device,
				   const struct llama_model *model, const struct llama_limits *limits,
				   struct md_error *err);
void llama_engine_finish(struct llama_engine *engine); /* also on a zeroed one */

uint64_t llama_engine_block_bytes(const struct llama_engine *engine); /* one KV block over all layers */
enum md_status llama_engine_take_kv(struct llama_engine *engine, int blocks, struct md_error *err);
void llama_engine_free_kv(struct llama_engine *engine);
enum md_status llama_engine_take_decode(struct llama_engine *engine,
					struct md_error *err); /* once; later calls do nothing */

/* Everything that a captured step bakes in besides addresses, as a short text; part of the graphs' label. */
void llama_engine_fingerprint(const struct llama_engine *engine, char text[33]);

/* One step of `tokens` tokens, whose numbers, positions and slots lie in the engine's input buffers. Asynchronous. */
struct llama_step {
	const struct llama_activations *activations;
	int tokens;
	CUdeviceptr rows; /* tokens whose logits are wanted; 0: none */
	int row_count;
	CUdeviceptr positions; /* of those rows */
	bool feed_back;        /* the next tokens become the input tokens */
};

enum md_status llama_engine_step(struct llama_engine *engine, const struct llama_step *step, struct md_error *err);
/* The decode step of a batch, on the eager or the decode activations. */
enum md_status llama_engine_decode(struct llama_engine *engine, const struct llama_activations *activations, int batch,
				   struct md_error *err);

/* Copies to a bound input at an offset, through pinned memory, and back. Both wait until it is done. */
enum md_status llama_engine_upload(struct llama_engine *engine, CUdeviceptr target, const void *data, size_t bytes,
				   struct md_error *err);
enum md_status llama_engine_download(struct llama_engine *engine, void *data, CUdeviceptr source, size_t bytes,
				     struct md_error *err);
enum md_status llama_engine_wait(struct llama_engine *engine, struct md_error *err);

#endif
