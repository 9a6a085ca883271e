/* SPDX-License-Identifier: Apache-2.0 */
/* Is a graph right? It and the eager step run from the same random inputs and KV contents and must leave the same
 * bytes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/cleanup.h"
#include "base/splitmix.h"
#include "models/llama/graphs.h"

#define CHUNK_BYTES (4u << 20)
#define BLOCKS_PER_ROW 2

struct outputs {
	float *logits;
	int32_t *next, *tokens;
	XXH128_hash_t kv;
};

struct trial {
	struct llama_engine *engine;
	unsigned batch;
	int row_blocks, used_blocks;
	uint64_t seed;
	struct outputs eager, graph;
	uint8_t *chunk;
};

/* The part of one layer's K or V that the trial's blocks take: they are the first ones, so it is contiguous. */
static CUdeviceptr region(const struct trial *trial, int index, size_t *floats)
{
	const struct llama_shape *s = &trial->engine->model->shape;
	size_t block = (size_t)s->kv_heads * (size_t)s->block_size * (size_t)s->head_dim;
	*floats = block * (size_t)trial->used_blocks;
	return trial->engine->kv.address + 4 * block * (size_t)trial->engine->kv_blocks * (size_t)index;
}

/* A float whose upper half is a small bfloat16 is small too, whatever the lower half. */
static enum md_status fill_kv(const struct trial *trial, struct md_error *err)
{
	for (int i = 0; i < 2 * trial->engine->model->shape.layers; i++) {
		size_t floats;
		CUdeviceptr target = region(trial, i, &floats);
		uint64_t n = 2 * floats, seed = trial->seed ^ (uint64_t)i << 32;
		float scale = 1, offset = 0;
		void *parameters[] = {&target, &n, &seed, &scale, &offset};
		struct llama_grid grid = {(unsigned)((n + 1023) / 1024), 1, 256, 0};
		MD_FORWARD(
		    llama_launch(trial->engine->device, LLAMA_FILL, grid, trial->engine->stream, parameters, err));
	}
	return MD_OK;
}

/* Each slot, and none; what lies in an empty slot changes nothing. */
static enum md_status put_adapters(struct llama_engine *e, int batch, struct md_error *err)
{
	if (!e->lora.slots)
		return MD_OK;
	for (int i = 0; i < batch; i++)
		e->staging[i] = (i + 1) % (e->lora.slots + 1) - 1;
	return llama_engine_upload(e, e->lora.adapters.address, e->staging, 4 * (size_t)batch, err);
}

static enum md_status put_inputs(const struct trial *trial, struct md_error *err)
{
	struct llama_engine *e = trial->engine;
	uint64_t state = trial->seed;
	int positions = trial->row_blocks * e->model->shape.block_size, batch = (int)trial->batch;
	if (positions > e->limits.max_context)
		positions = e->limits.max_context;
	int32_t *staging = e->staging;
	for (int i = 0; i < batch; i++)
		staging[i] = (int32_t)(md_random_next(&state) % (uint64_t)e->model->shape.vocabulary);
	MD_FORWARD(llama_engine_upload(e, e->tokens.address, staging, 4 * trial->batch, err));
	for (int i = 0; i < batch; i++)
		staging[i] = (int32_t)(md_random_next(&state) % (uint64_t)positions);
	MD_FORWARD(llama_engine_upload(e, e->positions.address, staging, 4 * trial->batch, err));
	for (int i = 0; i < batch; i++)
		staging[i] = batch - 1 - i;
	MD_FORWARD(llama_engine_upload(e, e->slots.address, staging, 4 * trial->batch, err));
	MD_FORWARD(put_adapters(e, batch, err));
	memset(staging, 0, e->block_table.bytes);
	for (int i = 0; i < batch; i++)
		for (int b = 0; b < trial->row_blocks; b++)
			staging[i * e->max_blocks + b] = 1 + i * trial->row_blocks + b;
	return llama_engine_upload(e, e->block_table.address, staging, e->block_table.bytes, err);
}

/* Stale outputs of an earlier run must not pass for new ones. */
static enum md_status spoil_outputs(const struct trial *trial, struct md_error *err)
{
	struct llama_engine *e = trial->engine;
	MD_FORWARD(md_cuda_call(err, cuMemsetD8Async, e->logits.address, 0xee, e->logits.bytes, e->stream));
	return md_cuda_call(err, cuMemsetD8Async, e->next.address, 0xee, e->next.bytes, e->stream);
}

static enum md_status hash_kv(const struct trial *trial, XXH128_hash_t *out, struct md_error *err)
{
	XXH3_state_t state;
	XXH3_128bits_reset(&state);
	for (int i = 0; i < 2 * trial->engine->model->shape.layers; i++) {
		size_t floats;
		CUdeviceptr source = region(trial, i, &floats);
		for (size_t at = 0; at < 4 * floats; at += CHUNK_BYTES) {
			size_t bytes = 4 * floats - at < CHUNK_BYTES ? 4 * floats - at : CHUNK_BYTES;
			MD_FORWARD(llama_engine_download(trial->engine, trial->chunk, source + at, bytes, err));
			XXH3_128bits_update(&state, trial->chunk, bytes);
		}
	}
	*out = XXH3_128bits_digest(&state);
	return MD_OK;
}

static enum md_status run(struct trial *trial, const struct llama_graph *graph, struct outputs *out,
			  struct md_error *err)
{
	struct llama_engine *e = trial->engine;
	MD_FORWARD(fill_kv(trial, err));
	MD_FORWARD(put_inputs(trial, err));
	MD_FORWARD(spoil_outputs(trial, err));
	if (graph)
		MD_FORWARD(llama_graph_launch(graph, e, err));
	else
		MD_FORWARD(llama_engine_decode(e, &e->eager, (int)trial->batch, err));
	MD_FORWARD(llama_engine_wait(e, err));
	MD_FORWARD(llama_engine_download(e, out->logits, e->logits.address,
					 4ull * trial->batch * (unsigned)e->model->shape.vocabulary, err));
	MD_FORWARD(llama_engine_download(e, out->next, e->next.address, 4ull * trial->batch, err));
	MD_FORWARD(llama_engine_download(e, out->tokens, e->tokens.address, 4ull * trial->batch, err));
	return hash_kv(trial, &out->kv, err);
}

static bool compare(const struct trial *trial)
{
	const struct outputs *a = &trial->eager, *b = &trial->graph;
	size_t vocabulary = (size_t)trial->engine->model->shape.vocabulary;
	for (size_t row = 0; row < trial->batch; row++) {
		const char *what = memcmp(a->logits + row * vocabulary, b->logits + row * vocabulary, 4 * vocabulary)
				       ? "logits"
				   : a->next[row] != b->next[row]           ? "next token"
				   : a->tokens[row] != b->tokens[row]       ? "fed-back token"
				   : !isfinite(a->logits[row * vocabulary]) ? "finite logits"
									    : NULL;
		if (what) {
			fprintf(stderr, "check: batch %u: row %zu: %s differ from eager (%g against %g)\n",
				trial->batch, row, what, (double)b->logits[row * vocabulary],
				(double)a->logits[row * vocabulary]);
			return false;
		}
	}
	if (!XXH128_isEqual(a->kv, b->kv)) {
		fprintf(stderr, "check: batch %u: KV contents differ from eager\n", trial->batch);
		return false;
	}
	return true;
}

static enum md_status check_graph(struct trial *trial, const struct llama_graph *graph, bool *equal,
				  struct md_error *err)
{
	trial->batch = graph->batch;
	trial->row_blocks = (trial->engine->kv_blocks - 1) / (int)graph->batch;
	if (trial->row_blocks > BLOCKS_PER_ROW)
		trial->row_blocks = BLOCKS_PER_ROW;
	if (trial->row_blocks > trial->engine->max_blocks)
		trial->row_blocks = trial->engine->max_blocks;
	if (!trial->row_blocks)
		return md_error_set(err, MD_ERR_INVALID, "check: %d KV blocks are too few for batch %u",
				    trial->engine->kv_blocks, graph->batch);
	trial->used_blocks = 1 + (int)graph->batch * trial->row_blocks;
	MD_FORWARD(run(trial, NULL, &trial->eager, err));
	MD_FORWARD(run(trial, graph, &trial->graph, err));
	*equal = compare(trial);
	return MD_OK;
}

static bool take_outputs(const struct llama_engine *engine, struct outputs *out)
{
	size_t batch = (size_t)engine->limits.max_batch;
	out->logits = malloc(engine->logits.bytes);
	out->next = malloc(4 * batch);
	out->tokens = malloc(4 * batch);
	return out->logits && out->next && out->tokens;
}

static void drop_outputs(struct outputs *out)
{
	free(out->logits);
	free(out->next);
	free(out->tokens);
}

enum md_status llama_graphs_check(const struct llama_graphs *graphs, struct llama_engine *engine, uint64_t seed,
				  size_t *equal, struct md_error *err)
{
	struct trial trial = {.engine = engine, .chunk = malloc(CHUNK_BYTES)};
	enum md_status status = MD_OK;
	*equal = 0;
	if (!take_outputs(engine, &trial.eager) || !take_outputs(engine, &trial.graph) || !trial.chunk)
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the outputs to compare");
	for (size_t i = 0; i < graphs->count && status == MD_OK; i++) {
		bool same = false;
		trial.seed = md_random_next(&seed);
		status = check_graph(&trial, &graphs->graphs[i], &same, err);
		*equal += same;
	}
	drop_outputs(&trial.eager);
	drop_outputs(&trial.graph);
	free(trial.chunk);
	return status;
}
