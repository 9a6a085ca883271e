/* SPDX-License-Identifier: Apache-2.0 */
/* Prefill by eager steps, decode by the smallest graph that takes all rows. */
#include "models/llama/serve/batcher_steps.h"

#include "models/llama/serve/sampler.h"

enum md_status batcher_upload_blocks(struct batcher *batcher, const struct serve_request *request, size_t first,
				     struct md_error *err)
{
	struct llama_engine *e = batcher->engine;
	size_t row = (size_t)request->slot * (size_t)e->max_blocks;
	return llama_engine_upload(e, e->block_table.address + 4 * (row + first), request->blocks + first,
				   4 * (request->block_count - first), err);
}

/* ---- tokens ---- */

/* Blocks that are full can be used by others from now on. */
static void name_blocks(struct batcher *batcher, struct serve_request *request)
{
	size_t size = (size_t)batcher->blocks.size;
	for (; (request->named + 1) * size <= request->computed; request->named++) {
		const int32_t *tokens = request->tokens + request->named * size;
		uint64_t name = kv_blocks_name(&batcher->blocks, request->name, tokens);
		kv_blocks_give_name(&batcher->blocks, request->blocks[request->named], name, request->name, tokens);
		request->name = name;
	}
}

static void accept_token(struct batcher *batcher, struct serve_request *request, int32_t token)
{
	if (batcher->tokenizer && !request->ignore_end && tokenizer_is_end(batcher->tokenizer, token)) {
		batcher_end(batcher, request, SERVE_STOP);
		return;
	}
	request->tokens[request->count++] = token;
	size_t made = request->count - request->prompt_count;
	if (made == request->max_tokens)
		batcher_end(batcher, request, SERVE_LENGTH);
	else
		serve_mailbox_tell(batcher->mailbox, request, made, SERVE_RUNNING);
}

/* The device's own choice, or a draw from the row's logits. */
static enum md_status choose_token(struct batcher *batcher, const struct serve_request *request, size_t row,
				   int32_t *token, struct md_error *err)
{
	struct llama_engine *e = batcher->engine;
	size_t bytes = 4 * (size_t)e->model->shape.vocabulary;
	struct sampler_choice choice = {request->temperature, request->top_p, request->seed, request->computed - 1};
	*token = batcher->next[row];
	if (request->temperature == 0)
		return MD_OK;
	MD_FORWARD(llama_engine_download(e, batcher->logits, e->logits.address + row * bytes, bytes, err));
	*token = sampler_draw(batcher->logits, e->model->shape.vocabulary, &choice, batcher->draw_room);
	batcher->moved |= *token != batcher->next[row];
	return MD_OK;
}

/* ---- prefill ---- */

static enum md_status upload_piece(struct llama_engine *e, const struct serve_request *request, size_t count,
				   struct md_error *err)
{
	size_t at = request->computed;
	int32_t last = (int32_t)count - 1;
	MD_FORWARD(llama_engine_upload(e, e->tokens.address, request->tokens + at, 4 * count, err));
	for (size_t i = 0; i < count; i++)
		e->staging[i] = (int32_t)(at + i);
	MD_FORWARD(llama_engine_upload(e, e->positions.address, e->staging, 4 * count, err));
	for (size_t i = 0; i < count; i++)
		e->staging[i] = request->slot;
	MD_FORWARD(llama_engine_upload(e, e->slots.address, e->staging, 4 * count, err));
	for (size_t i = 0; i < count; i++)
		e->staging[i] = request->adapter_slot;
	if (e->lora.slots)
		MD_FORWARD(llama_engine_upload(e, e->lora.adapters.address, e->staging, 4 * count, err));
	return llama_engine_upload(e, e->last_row, &last, 4, err);
}

enum md_status batcher_prefill(struct batcher *batcher, struct serve_request *request, struct md_error *err)
{
	struct llama_engine *e = batcher->engine;
	size_t left = request->count - request->computed, part = (size_t)e->prefill_tokens;
	size_t count = left < part ? left : part;
	int32_t token;
	struct llama_step step = {
	    .activations = &e->eager,
	    .tokens = (int)count,
	    .rows = e->last_row,
	    .row_count = count == left,
	    .positions = e->positions.address + 4 * (count - 1),
	};
	batcher->moved = true;
	MD_FORWARD(upload_piece(e, request, count, err));
	MD_FORWARD(llama_engine_step(e, &step, err));
	MD_FORWARD(llama_engine_wait(e, err));
	request->computed += count;
	name_blocks(batcher, request);
	if (count < left)
		return MD_OK;
	MD_FORWARD(llama_engine_download(e, batcher->next, e->next.address, 4, err));
	MD_FORWARD(choose_token(batcher, request, 0, &token, err));
	accept_token(batcher, request, token);
	return MD_OK;
}

/* ---- decode ---- */

/*
 * Rows beyond the live ones are idle: they write to the scratch block, all of them the same. When rows have moved, those
 * of larger batches are made idle, too: no two rows may write another value to one place, whichever graph is replayed.
 */
static enum md_status upload_rows(struct batcher *batcher, size_t batch, struct md_error *err)
{
	struct llama_engine *e = batcher->engine;
	bool moved = batcher->moved;
	if (moved)
		batch = (size_t)e->limits.max_batch;
	for (size_t row = 0; row < batch; row++)
		e->staging[row] = row < batcher->row_count ? (int32_t)batcher->rows[row]->computed : 0;
	MD_FORWARD(llama_engine_upload(e, e->positions.address, e->staging, 4 * batch, err));
	if (!moved)
		return MD_OK; /* the device has fed its own tokens back */
	for (size_t row = 0; row < batch; row++)
		e->staging[row] = row < batcher->row_count ? batcher->rows[row]->slot : e->scratch_slot;
	MD_FORWARD(llama_engine_upload(e, e->slots.address, e->staging, 4 * batch, err));
	for (size_t row = 0; row < batch; row++)
		e->staging[row] = row < batcher->row_count ? batcher->rows[row]->adapter_slot : -1;
	if (e->lora.slots)
		MD_FORWARD(llama_engine_upload(e, e->lora.adapters.address, e->staging, 4 * batch, err));
	for (size_t row = 0; row < batch; row++) {
		const struct serve_request *request = row < batcher->row_count ? batcher->rows[row] : NULL;
		e->staging[row] = request ? request->tokens[request->computed] : 0;
	}
	MD_FORWARD(llama_engine_upload(e, e->tokens.address, e->staging, 4 * batch, err));
	batcher->moved = false;
	return MD_OK;
}

static enum md_status run_rows(struct batcher *batcher, struct md_error *err)
{
	struct llama_engine *e = batcher->engine;
	const struct llama_graph *graph = llama_graphs_pick(batcher->graphs, batcher->row_count);
	size_t batch = graph ? graph->batch : batcher->row_count;
	MD_FORWARD(upload_rows(batcher, batch, err));
	if (graph)
		MD_FORWARD(llama_graph_launch(graph, e, err));
	else
		MD_FORWARD(llama_engine_decode(e, &e->eager, (int)batch, err));
	batcher->counts->steps++;
	batcher->counts->graph_launches += graph != NULL;
	return llama_engine_download(e, batcher->next, e->next.address, 4 * batcher->row_count, err);
}

enum md_status batcher_decode(struct batcher *batcher, struct md_error *err)
{
	MD_FORWARD(run_rows(batcher, err));
	for (size_t row = 0; row < batcher->row_count; row++) {
		struct serve_request *request = batcher->rows[row];
		int32_t token;
		request->computed++;
		name_blocks(batcher, request);
		MD_FORWARD(choose_token(batcher, request, row, &token, err));
		accept_token(batcher, request, token);
	}
	return MD_OK;
}
