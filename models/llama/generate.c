/* SPDX-License-Identifier: Apache-2.0 */
/* Prefill and decode of sequences in waves that fit the batch and the KV cache. */
#include "models/llama/generate.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/cleanup.h"
#include "base/clock.h"

/* Some sequences that decode together; sequence i of the wave is slot i. */
struct wave {
	struct llama_generation *generation;
	struct llama_engine *engine;
	const struct llama_graphs *graphs;
	size_t first, count;
	int *live; /* row -> sequence of the wave */
	size_t live_count;
	float *logits;
	int32_t *next;
	XXH3_state_t *hash;
};

static struct llama_sequence *sequence_of(const struct wave *wave, size_t i)
{
	return &wave->generation->sequences[wave->first + i];
}

/* Positions that a sequence will take at most. */
static size_t positions_of(const struct wave *wave, const struct llama_sequence *sequence)
{
	size_t wanted = sequence->prompt.count + (size_t)wave->generation->max_tokens;
	size_t context = (size_t)wave->engine->limits.max_context;
	return wanted < context ? wanted : context;
}

static size_t blocks_of(const struct wave *wave, const struct llama_sequence *sequence)
{
	size_t block = (size_t)wave->engine->model->shape.block_size;
	return (positions_of(wave, sequence) + block - 1) / block;
}

/* As many of the remaining sequences as the batch and the KV cache hold, and their block tables. */
static enum md_status fill_wave(struct wave *wave, struct md_error *err)
{
	struct llama_engine *e = wave->engine;
	size_t used = 1; /* block 0 is scratch */
	memset(e->staging, 0, e->block_table.bytes);
	for (wave->count = 0; wave->first + wave->count < wave->generation->count; wave->count++) {
		const struct llama_sequence *sequence = sequence_of(wave, wave->count);
		size_t blocks = blocks_of(wave, sequence);
		if (wave->count == (size_t)e->limits.max_batch || used + blocks > (size_t)e->kv_blocks)
			break;
		for (size_t b = 0; b < blocks; b++)
			e->staging[wave->count * (size_t)e->max_blocks + b] = (int32_t)used++;
	}
	if (!wave->count)
		return md_error_set(err, MD_ERR_NO_MEMORY, "a sequence needs %zu KV blocks, there are %d",
				    blocks_of(wave, sequence_of(wave, 0)), e->kv_blocks - 1);
	return llama_engine_upload(e, e->block_table.address, e->staging, e->block_table.bytes, err);
}

static enum md_status upload_part(struct llama_engine *e, const struct llama_sequence *sequence, size_t slot, size_t at,
				  size_t count, struct md_error *err)
{
	MD_FORWARD(llama_engine_upload(e, e->tokens.address, sequence->prompt.tokens + at, 4 * count, err));
	for (size_t i = 0; i < count; i++)
		e->staging[i] = (int32_t)(at + i);
	MD_FORWARD(llama_engine_upload(e, e->positions.address, e->staging, 4 * count, err));
	for (size_t i = 0; i < count; i++)
		e->staging[i] = (int32_t)slot;
	MD_FORWARD(llama_engine_upload(e, e->slots.address, e->staging, 4 * count, err));
	if (!e->lora.slots)
		return MD_OK;
	for (size_t i = 0; i < count; i++)
		e->staging[i] = sequence->adapter;
	return llama_engine_upload(e, e->lora.adapters.address, e->staging, 4 * count, err);
}

/* Takes the rows' logits and next tokens from the device. */
static enum md_status take_rows(struct wave *wave, size_t rows, struct md_error *err)
{
	struct llama_engine *e = wave->engine;
	size_t bytes = rows * (size_t)e->model->shape.vocabulary * 4;
	MD_FORWARD(llama_engine_download(e, wave->next, e->next.address, rows * 4, err));
	MD_FORWARD(llama_engine_download(e, wave->logits, e->logits.address, bytes, err));
	XXH3_128bits_update(wave->hash, wave->logits, bytes);
	return MD_OK;
}

static void keep_logits(const struct wave *wave, const struct llama_sequence *sequence, size_t row)
{
	const struct llama_generation *generation = wave->generation;
	size_t vocabulary = (size_t)wave->engine->model->shape.vocabulary, tokens = (size_t)generation->max_tokens;
	size_t number = (size_t)(sequence - generation->sequences);
	if (generation->kept && sequence->output.count < tokens)
		memcpy(generation->kept + (number * tokens + sequence->output.count) * vocabulary,
		       wave->logits + row * vocabulary, vocabulary * 4);
}

/* True when the sequence goes on. The token that ends a text is not part of it. */
static bool accept_token(struct wave *wave, struct llama_sequence *sequence, int32_t token)
{
	const struct tokenizer *tokenizer = wave->generation->tokenizer;
	if ((tokenizer && tokenizer_is_end(tokenizer, token)) || !token_list_push(&sequence->output, token))
		return false;
	wave->generation->tokens++;
	return sequence->prompt.count + sequence->output.count < positions_of(wave, sequence);
}

static enum md_status prefill(struct wave *wave, size_t slot, struct md_error *err)
{
	struct llama_engine *e = wave->engine;
	struct llama_sequence *sequence = sequence_of(wave, slot);
	size_t total = sequence->prompt.count, part = (size_t)e->prefill_tokens;
	for (size_t at = 0; at < total; at += part) {
		size_t count = total - at < part ? total - at : part;
		int32_t last = (int32_t)count - 1;
		MD_FORWARD(upload_part(e, sequence, slot, at, count, err));
		MD_FORWARD(llama_engine_upload(e, e->last_row, &last, 4, err));
		struct llama_step step = {
		    .activations = &e->eager,
		    .tokens = (int)count,
		    .rows = e->last_row,
		    .row_count = at + count == total,
		    .positions = e->positions.address + 4 * (count - 1),
		};
		MD_FORWARD(llama_engine_step(e, &step, err));
		MD_FORWARD(llama_engine_wait(e, err));
	}
	MD_FORWARD(take_rows(wave, 1, err));
	keep_logits(wave, sequence, 0);
	if (wave->generation->max_tokens && accept_token(wave, sequence, wave->next[0]))
		wave->live[wave->live_count++] = (int)slot;
	return MD_OK;
}

static enum md_status upload_adapters(struct wave *wave, size_t batch, struct md_error *err)
{
	struct llama_engine *e = wave->engine;
	for (size_t row = 0; row < batch; row++)
		e->staging[row] = row < wave->live_count ? sequence_of(wave, (size_t)wave->live[row])->adapter : -1;
	return llama_engine_upload(e, e->lora.adapters.address, e->staging, 4 * batch, err);
}

/*
 * Rows beyond the live ones are idle: they write to the scratch block, all of them the same. When rows have moved, those
 * of larger batches are made idle, too: no two rows may write another value to one place, whichever graph is replayed.
 */
static enum md_status upload_rows(struct wave *wave, size_t batch, bool moved, struct md_error *err)
{
	struct llama_engine *e = wave->engine;
	if (moved)
		batch = (size_t)e->limits.max_batch;
	for (size_t row = 0; row < batch; row++) {
		const struct llama_sequence *s =
		    row < wave->live_count ? sequence_of(wave, (size_t)wave->live[row]) : NULL;
		e->staging[row] = s ? (int32_t)(s->prompt.count + s->output.count) - 1 : 0;
	}
	MD_FORWARD(llama_engine_upload(e, e->positions.address, e->staging, 4 * batch, err));
	if (!moved)
		return MD_OK; /* the device has fed its own tokens back */
	for (size_t row = 0; row < batch; row++)
		e->staging[row] = row < wave->live_count ? wave->live[row] : e->scratch_slot;
	MD_FORWARD(llama_engine_upload(e, e->slots.address, e->staging, 4 * batch, err));
	if (e->lora.slots)
		MD_FORWARD(upload_adapters(wave, batch, err));
	for (size_t row = 0; row < batch; row++) {
		const struct llama_sequence *s =
		    row < wave->live_count ? sequence_of(wave, (size_t)wave->live[row]) : NULL;
		e->staging[row] = s ? s->output.tokens[s->output.count - 1] : 0;
	}
	return llama_engine_upload(e, e->tokens.address, e->staging, 4 * batch, err);
}

static enum md_status decode_once(struct wave *wave, bool *moved, struct md_error *err)
{
	const struct llama_graph *graph = wave->graphs ? llama_graphs_pick(wave->graphs, wave->live_count) : NULL;
	size_t batch = graph ? graph->batch : wave->live_count, kept = 0;
	MD_FORWARD(upload_rows(wave, batch, *moved, err));
	if (graph)
		MD_FORWARD(llama_graph_launch(graph, wave->engine, err));
	else
		MD_FORWARD(llama_engine_decode(wave->engine, &wave->engine->eager, (int)batch, err));
	wave->generation->graph_launches += graph != NULL;
	wave->generation->steps++;
	MD_FORWARD(take_rows(wave, wave->live_count, err));
	for (size_t row = 0; row < wave->live_count; row++) {
		struct llama_sequence *sequence = sequence_of(wave, (size_t)wave->live[row]);
		keep_logits(wave, sequence, row);
		if (accept_token(wave, sequence, wave->next[row]))
			wave->live[kept++] = wave->live[row];
	}
	*moved = kept != wave->live_count;
	wave->live_count = kept;
	return MD_OK;
}

static enum md_status run_wave(struct wave *wave, struct md_error *err)
{
	struct llama_generation *generation = wave->generation;
	uint64_t start = md_clock_ns();
	wave->live_count = 0;
	MD_FORWARD(fill_wave(wave, err));
	for (size_t slot = 0; slot < wave->count; slot++) {
		MD_FORWARD(prefill(wave, slot, err));
		if (!generation->first_token_ns)
			generation->first_token_ns = md_clock_ns() - start;
	}
	generation->prefill_ns += md_clock_ns() - start;
	start = md_clock_ns();
	for (bool moved = true; wave->live_count;)
		MD_FORWARD(decode_once(wave, &moved, err));
	generation->decode_ns += md_clock_ns() - start;
	return MD_OK;
}

static enum md_status check_prompts(const struct llama_generation *generation, const struct llama_engine *engine,
				    struct md_error *err)
{
	for (size_t i = 0; i < generation->count; i++) {
		const struct token_list *prompt = &generation->sequences[i].prompt;
		if (!prompt->count)
			return md_error_set(err, MD_ERR_INVALID, "prompt %zu is empty", i + 1);
		if (prompt->count >= (size_t)engine->limits.max_context)
			return md_error_set(err, MD_ERR_TOO_LARGE, "prompt %zu has %zu tokens, the context holds %d",
					    i + 1, prompt->count, engine->limits.max_context);
	}
	return MD_OK;
}

static void free_hash(XXH3_state_t **state)
{
	XXH3_freeState(*state);
}

enum md_status llama_generate(struct llama_generation *generation, struct llama_engine *engine,
			      const struct llama_graphs *graphs, struct md_error *err)
{
	size_t batch = (size_t)engine->limits.max_batch;
	MD_AUTO_FREE int *live = calloc(batch, sizeof(*live));
	MD_AUTO_FREE int32_t *next = calloc(batch, sizeof(*next));
	MD_AUTO_FREE float *logits = malloc(engine->logits.bytes);
	MD_CLEANUP(free_hash) XXH3_state_t *hash = XXH3_createState();
	if (!live || !next || !logits || !hash)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for generating with batch %zu", batch);
	MD_FORWARD(check_prompts(generation, engine, err));
	generation->prefill_ns = generation->first_token_ns = generation->decode_ns = 0;
	generation->tokens = generation->steps = generation->graph_launches = 0;
	XXH3_128bits_reset(hash);
	struct wave wave = {.generation = generation,
			    .engine = engine,
			    .graphs = graphs,
			    .live = live,
			    .next = next,
			    .logits = logits,
			    .hash = hash};
	for (; wave.first < generation->count; wave.first += wave.count)
		MD_FORWARD(run_wave(&wave, err));
	XXH128_canonical_t canonical;
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(hash));
	memcpy(generation->logits.bytes, canonical.digest, sizeof(generation->logits.bytes));
	return MD_OK;
}
