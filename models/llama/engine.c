/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers and KV cache of the reference engine. */
#include "models/llama/engine.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "models/llama/kernels.h"

#define MAX_PREFILL_TOKENS 512

static enum md_status take(CUdeviceptr *slot, size_t elements, size_t element_bytes, struct md_error *err)
{
	return md_cuda_call(err, cuMemAlloc_v2, slot, elements * element_bytes);
}

static enum md_status take_buffer(struct llama_buffer *buffer, size_t elements, size_t element_bytes,
				  struct md_error *err)
{
	MD_FORWARD(take(&buffer->address, elements, element_bytes, err));
	buffer->bytes = elements * element_bytes;
	return MD_OK;
}

static void drop(CUdeviceptr *slot)
{
	if (*slot)
		md_cuda_call(NULL, cuMemFree_v2, *slot);
	*slot = 0;
}

static int widest(const struct llama_shape *shape)
{
	int width = shape->vocabulary, qkv = (shape->heads + 2 * shape->kv_heads) * shape->head_dim;
	width = width > qkv ? width : qkv;
	width = width > shape->intermediate_size ? width : shape->intermediate_size;
	return width > shape->hidden_size ? width : shape->hidden_size;
}

static enum md_status open_gemms(const struct llama_engine *engine, struct llama_activations *out, struct md_error *err)
{
	const struct llama_shape *shape = &engine->model->shape;
	int result = llama_gemm_create(&out->gemm, engine->prefill_tokens, widest(shape));
	if (!result)
		result = llama_gemm_create(&out->side_gemm, engine->prefill_tokens, shape->intermediate_size);
	return result ? md_cuda_status((CUresult)result, "llama_gemm_create", err) : MD_OK;
}

static enum md_status take_activations(const struct llama_engine *engine, struct llama_activations *out, size_t tokens,
				       size_t rows, struct md_error *err)
{
	const struct llama_shape *shape = &engine->model->shape;
	size_t hidden = (size_t)shape->hidden_size, inner = (size_t)shape->intermediate_size,
	       head = (size_t)shape->head_dim;
	out->present = true;
	MD_FORWARD(open_gemms(engine, out, err));
	MD_FORWARD(take(&out->x, tokens * hidden, 4, err));
	MD_FORWARD(take(&out->normed, tokens * hidden, 4, err));
	MD_FORWARD(take(&out->qkv, tokens * (size_t)(shape->heads + 2 * shape->kv_heads) * head, 4, err));
	MD_FORWARD(take(&out->attention, tokens * (size_t)shape->heads * head, 4, err));
	MD_FORWARD(take(&out->gate, tokens * inner, 4, err));
	MD_FORWARD(take(&out->up, tokens * inner, 4, err));
	if (engine->lora.slots) {
		MD_FORWARD(take(&out->hidden_sums, tokens * lora_pool_hidden_sums(&engine->lora), 4, err));
		MD_FORWARD(take(&out->inner_sums, tokens * lora_pool_inner_sums(&engine->lora), 4, err));
	}
	MD_FORWARD(take(&out->last, rows * hidden, 4, err));
	return take(&out->last_normed, rows * hidden, 4, err);
}

static void drop_activations(struct llama_activations *activations)
{
	CUdeviceptr *const slots[] = {&activations->x,         &activations->normed,      &activations->qkv,
				      &activations->attention, &activations->gate,        &activations->up,
				      &activations->last,      &activations->last_normed, &activations->hidden_sums,
				      &activations->inner_sums};
	for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++)
		drop(slots[i]);
	if (activations->gemm)
		llama_gemm_destroy(activations->gemm);
	if (activations->side_gemm)
		llama_gemm_destroy(activations->side_gemm);
	activations->gemm = activations->side_gemm = NULL;
	activations->present = false;
}

static enum md_status open_streams(struct llama_engine *engine, struct md_error *err)
{
	int low = 0, high = 0;
	if (md_cuda.cuCtxGetStreamPriorityRange)
		MD_FORWARD(md_cuda_call(err, cuCtxGetStreamPriorityRange, &low, &high));
	engine->low_priority = low;
	MD_FORWARD(md_cuda_call(err, cuStreamCreate, &engine->stream, CU_STREAM_NON_BLOCKING));
	MD_FORWARD(md_cuda_call(err, cuStreamCreate, &engine->side_stream, CU_STREAM_NON_BLOCKING));
	MD_FORWARD(md_cuda_call(err, cuEventCreate, &engine->fork, CU_EVENT_DISABLE_TIMING));
	return md_cuda_call(err, cuEventCreate, &engine->join, CU_EVENT_DISABLE_TIMING);
}

static enum md_status take_inputs(struct llama_engine *engine, struct md_error *err)
{
	size_t tokens = (size_t)engine->prefill_tokens, batch = (size_t)engine->limits.max_batch;
	size_t table = (batch + 1) * (size_t)engine->max_blocks;
	MD_FORWARD(take_buffer(&engine->tokens, tokens, 4, err));
	MD_FORWARD(take_buffer(&engine->positions, tokens, 4, err));
	MD_FORWARD(take_buffer(&engine->slots, tokens, 4, err));
	MD_FORWARD(take_buffer(&engine->rows, batch, 4, err));
	MD_FORWARD(take_buffer(&engine->block_table, table, 4, err));
	MD_FORWARD(take_buffer(&engine->logits, batch * (size_t)engine->model->shape.vocabulary, 4, err));
	MD_FORWARD(take_buffer(&engine->next, batch, 4, err));
	MD_FORWARD(take(&engine->last_row, 1, 4, err));
	engine->staging_bytes = 4 * (table > tokens ? table : tokens);
	return md_cuda_call(err, cuMemHostAlloc, (void **)&engine->staging, engine->staging_bytes, 0);
}

/* Rows are 0, 1, 2 ... for good; every block of every sequence is the scratch block until a prompt takes others. */
static enum md_status preset_inputs(struct llama_engine *engine, struct md_error *err)
{
	const struct llama_buffer zeroed[] = {engine->tokens, engine->positions, engine->slots, engine->block_table,
					      engine->next};
	for (size_t i = 0; i < sizeof(zeroed) / sizeof(zeroed[0]); i++)
		MD_FORWARD(md_cuda_call(err, cuMemsetD8Async, zeroed[i].address, 0, zeroed[i].bytes, engine->stream));
	MD_FORWARD(llama_engine_wait(engine, err));
	for (int i = 0; i < engine->limits.max_batch; i++)
		engine->staging[i] = i;
	return llama_engine_upload(engine, engine->rows.address, engine->staging, engine->rows.bytes, err);
}

enum md_status llama_engine_create(struct llama_engine *engine, const struct llama_device *device,
				   const struct llama_model *model, const struct llama_limits *limits,
				   struct md_error *err)
{
	*engine = (struct llama_engine){.device = device, .model = model, .limits = *limits};
	int block = model->shape.block_size;
	engine->max_blocks = (limits->max_context + block - 1) / block;
	engine->scratch_slot = limits->max_batch;
	engine->prefill_tokens = limits->max_context < MAX_PREFILL_TOKENS ? limits->max_context : MAX_PREFILL_TOKENS;
	if (engine->prefill_tokens < limits->max_batch)
		engine->prefill_tokens = limits->max_batch; /* an eager decode step has the same shape as a graph's */
	MD_FORWARD(open_streams(engine, err));
	MD_FORWARD(take_inputs(engine, err));
	MD_FORWARD(preset_inputs(engine, err));
	MD_FORWARD(lora_pool_init(&engine->lora, device, &model->shape, limits->lora_slots, limits->max_lora_rank,
				  (size_t)engine->prefill_tokens, err));
	MD_FORWARD(llama_device_allow_shared(device, LLAMA_ATTENTION,
					     4 * ((size_t)limits->max_context + (size_t)model->shape.head_dim), err));
	MD_FORWARD(llama_device_allow_shared(device, LLAMA_ADAPTED_ATTENTION,
					     LLAMA_ADAPTED_ATTENTION_SHARED(limits->max_context, model->shape.head_dim),
					     err));
	return take_activations(engine, &engine->eager, (size_t)engine->prefill_tokens, (size_t)limits->max_batch, err);
}

enum md_status llama_engine_take_decode(struct llama_engine *engine, struct md_error *err)
{
	size_t batch = (size_t)engine->limits.max_batch;
	return engine->decode.present ? MD_OK : take_activations(engine, &engine->decode, batch, batch, err);
}

uint64_t llama_engine_block_bytes(const struct llama_engine *engine)
{
	const struct llama_shape *shape = &engine->model->shape;
	return 4ull * 2 * (uint64_t)shape->layers * (uint64_t)shape->kv_heads * (uint64_t)shape->block_size *
	       (uint64_t)shape->head_dim;
}

enum md_status llama_engine_take_kv(struct llama_engine *engine, int blocks, struct md_error *err)
{
	MD_FORWARD(take_buffer(&engine->kv, (size_t)blocks, llama_engine_block_bytes(engine), err));
	engine->kv_blocks = blocks;
	/* fresh device memory may hold NaNs, and a scratch block is read before it is written */
	MD_FORWARD(md_cuda_call(err, cuMemsetD8Async, engine->kv.address, 0, engine->kv.bytes, engine->stream));
	return llama_engine_wait(engine, err);
}

void llama_engine_free_kv(struct llama_engine *engine)
{
	drop(&engine->kv.address);
	engine->kv.bytes = 0;
	engine->kv_blocks = 0;
}

static void close_streams(struct llama_engine *engine)
{
	if (engine->fork)
		md_cuda_call(NULL, cuEventDestroy_v2, engine->fork);
	if (engine->join)
		md_cuda_call(NULL, cuEventDestroy_v2, engine->join);
	if (engine->stream)
		md_cuda_call(NULL, cuStreamDestroy_v2, engine->stream);
	if (engine->side_stream)
		md_cuda_call(NULL, cuStreamDestroy_v2, engine->side_stream);
}

void llama_engine_finish(struct llama_engine *engine)
{
	struct llama_buffer *const buffers[] = {&engine->tokens,      &engine->positions, &engine->slots, &engine->rows,
						&engine->block_table, &engine->logits,    &engine->next,  &engine->kv};
	if (engine->stream)
		llama_engine_wait(engine, NULL);
	for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
		drop(&buffers[i]->address);
	drop(&engine->last_row);
	drop_activations(&engine->eager);
	drop_activations(&engine->decode);
	lora_pool_finish(&engine->lora);
	if (engine->staging)
		md_cuda_call(NULL, cuMemFreeHost, engine->staging);
	close_streams(engine);
	memset(engine, 0, sizeof(*engine));
}

void llama_engine_fingerprint(const struct llama_engine *engine, char text[33])
{
	const struct llama_shape *s = &engine->model->shape;
	const struct llama_limits *l = &engine->limits;
	char all[512];
	int size = snprintf(all, sizeof(all), "%d %d %d %d %d %d %d %d %d %d %a %a %d %d %a %llu", s->hidden_size,
			    s->intermediate_size, s->layers, s->heads, s->kv_heads, s->head_dim, s->vocabulary,
			    s->block_size, s->rope_interleaved, s->tie_embeddings, s->rope_theta, s->rms_epsilon,
			    l->max_batch, l->max_context, (double)l->temperature, (unsigned long long)l->sample_seed);
	if (l->lora_slots)
		size +=
		    snprintf(all + size, sizeof(all) - (size_t)size, " lora %d %d", l->lora_slots, l->max_lora_rank);
	struct md_hash hash = md_hash_bytes(all, (size_t)size);
	md_hash_format(&hash, text);
}

enum md_status llama_engine_wait(struct llama_engine *engine, struct md_error *err)
{
	return md_cuda_call(err, cuStreamSynchronize, engine->stream);
}

enum md_status llama_engine_upload(struct llama_engine *engine, CUdeviceptr target, const void *data, size_t bytes,
				   struct md_error *err)
{
	if (bytes > engine->staging_bytes)
		return md_error_set(err, MD_ERR_INVALID, "an upload of %zu bytes, staging holds %zu", bytes,
				    engine->staging_bytes);
	if (data != engine->staging)
		memcpy(engine->staging, data, bytes);
	MD_FORWARD(md_cuda_call(err, cuMemcpyHtoDAsync_v2, target, engine->staging, bytes, engine->stream));
	return llama_engine_wait(engine, err);
}

enum md_status llama_engine_download(struct llama_engine *engine, void *data, CUdeviceptr source, size_t bytes,
				     struct md_error *err)
{
	MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, data, source, bytes, engine->stream));
	return llama_engine_wait(engine, err);
}
