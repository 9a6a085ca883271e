/* SPDX-License-Identifier: Apache-2.0 */
/* One step of the decoder as launches on two streams; stream capture turns the very same calls into a graph. */
#include "models/llama/engine.h"

#include <stddef.h>

/* The step in progress: what every launch below needs. */
struct frame {
	struct llama_engine *engine;
	const struct llama_device *device;
	const struct llama_shape *shape;
	const struct llama_step *step;
	const struct llama_activations *act;
	struct md_error *err;
};

static enum md_status multiply(struct frame *f, CUdeviceptr y, CUdeviceptr x, CUdeviceptr w, int rows, int n, int k,
			       int accumulate, int pdl)
{
	int result = llama_gemm_run(f->act->gemm, f->engine->stream, (float *)(uintptr_t)y, (const float *)(uintptr_t)x,
				    (const uint16_t *)(uintptr_t)w, rows, n, k, accumulate, pdl);
	return result ? md_cuda_status((CUresult)result, "llama_gemm_run", f->err) : MD_OK;
}

static enum md_status rms_norm(struct frame *f, CUdeviceptr out, CUdeviceptr x, CUdeviceptr weight, int rows)
{
	int32_t width = f->shape->hidden_size;
	float epsilon = (float)f->shape->rms_epsilon;
	void *parameters[] = {&out, &x, &weight, &width, &epsilon};
	return llama_launch(f->device, LLAMA_RMS_NORM, (struct llama_grid){(unsigned)rows, 1, 256, 0},
			    f->engine->stream, parameters, f->err);
}

static enum md_status embed(struct frame *f)
{
	int32_t width = f->shape->hidden_size;
	CUdeviceptr out = f->act->x, table = f->engine->model->embedding, tokens = f->engine->tokens.address;
	void *parameters[] = {&out, &table, &tokens, &width};
	return llama_launch(f->device, LLAMA_EMBED, (struct llama_grid){(unsigned)f->step->tokens, 1, 256, 0},
			    f->engine->stream, parameters, f->err);
}

static enum md_status rope_store(struct frame *f, CUdeviceptr kv)
{
	struct llama_engine *e = f->engine;
	const struct llama_shape *s = f->shape;
	CUdeviceptr qkv = f->act->qkv;
	int32_t heads = s->heads, kv_heads = s->kv_heads, head_dim = s->head_dim, block_size = s->block_size;
	int32_t max_blocks = e->max_blocks, blocks = e->kv_blocks, interleaved = s->rope_interleaved;
	float theta = (float)s->rope_theta;
	void *parameters[] = {&qkv,
			      &kv,
			      &e->positions.address,
			      &e->slots.address,
			      &e->block_table.address,
			      &heads,
			      &kv_heads,
			      &head_dim,
			      &block_size,
			      &max_blocks,
			      &blocks,
			      &theta,
			      &interleaved};
	struct llama_grid grid = {(unsigned)f->step->tokens, (unsigned)(heads + 2 * kv_heads), 64, 0};
	return llama_launch(f->device, LLAMA_ROPE_STORE, grid, e->stream, parameters, f->err);
}

static enum md_status attention(struct frame *f, CUdeviceptr kv)
{
	struct llama_engine *e = f->engine;
	const struct llama_shape *s = f->shape;
	CUdeviceptr out = f->act->attention, qkv = f->act->qkv;
	int32_t heads = s->heads, kv_heads = s->kv_heads, head_dim = s->head_dim, block_size = s->block_size;
	int32_t max_blocks = e->max_blocks, blocks = e->kv_blocks, max_positions = e->limits.max_context;
	void *parameters[] = {
	    &out,          &qkv,      &kv,       &e->positions.address, &e->slots.address, &e->block_table.address,
	    &heads,        &kv_heads, &head_dim, &block_size,           &max_blocks,       &blocks,
	    &max_positions};
	struct llama_grid grid = {(unsigned)f->step->tokens, (unsigned)heads, 128,
				  4 * (unsigned)(max_positions + head_dim)};
	return llama_launch_priority(f->device, LLAMA_ATTENTION, grid, e->stream, e->low_priority, parameters, f->err);
}

/* ---- adapters inside the kernels around the products ---- */

static struct llama_lora_group group_of(const struct frame *f, enum lora_group group, int layer)
{
	bool inner = group == LORA_ATTENTION_OUT || group == LORA_FEED_OUT;
	return lora_pool_group(&f->engine->lora, group, layer, inner ? f->act->inner_sums : f->act->hidden_sums);
}

/* from: what the product before has left to add; NULL: nothing. */
static enum md_status adapted_norm(struct frame *f, CUdeviceptr weight, const struct llama_lora_group *from,
				   enum lora_group to_group, int layer)
{
	static const struct llama_lora_group nothing;
	const struct llama_lora_group to = group_of(f, to_group, layer);
	int32_t width = f->shape->hidden_size;
	float epsilon = (float)f->shape->rms_epsilon;
	CUdeviceptr out = f->act->normed, x = f->act->x;
	void *parameters[] = {&out, &x, &weight, (void *)(from ? from : &nothing), (void *)&to, &width, &epsilon};
	struct llama_grid grid = {(unsigned)f->step->tokens, (unsigned)to.slices, 256,
				  4 * (unsigned)LLAMA_LORA_SLICE(width)};
	return llama_launch_early(f->device, LLAMA_ADAPTED_NORM, grid, f->engine->stream, parameters, f->err);
}

static enum md_status adapted_rope(struct frame *f, CUdeviceptr kv, int layer)
{
	struct llama_engine *e = f->engine;
	const struct llama_shape *s = f->shape;
	const struct llama_lora_group from = group_of(f, LORA_ATTENTION_IN, layer);
	CUdeviceptr qkv = f->act->qkv;
	int32_t heads = s->heads, kv_heads = s->kv_heads, head_dim = s->head_dim, block_size = s->block_size;
	int32_t max_blocks = e->max_blocks, blocks = e->kv_blocks, interleaved = s->rope_interleaved;
	float theta = (float)s->rope_theta;
	void *parameters[] = {&qkv,
			      &kv,
			      &e->positions.address,
			      &e->slots.address,
			      &e->block_table.address,
			      (void *)&from,
			      &heads,
			      &kv_heads,
			      &head_dim,
			      &block_size,
			      &max_blocks,
			      &blocks,
			      &theta,
			      &interleaved};
	struct llama_grid grid = {(unsigned)f->step->tokens, (unsigned)(heads + 2 * kv_heads), 64,
				  4 * (unsigned)head_dim};
	return llama_launch_early(f->device, LLAMA_ADAPTED_ROPE, grid, e->stream, parameters, f->err);
}

static enum md_status adapted_attention(struct frame *f, CUdeviceptr kv, int layer)
{
	struct llama_engine *e = f->engine;
	const struct llama_shape *s = f->shape;
	const struct llama_lora_group to = group_of(f, LORA_ATTENTION_OUT, layer);
	CUdeviceptr out = f->act->attention, qkv = f->act->qkv;
	int32_t heads = s->heads, kv_heads = s->kv_heads, head_dim = s->head_dim, block_size = s->block_size;
	int32_t max_blocks = e->max_blocks, blocks = e->kv_blocks, max_positions = e->limits.max_context;
	void *parameters[] = {&out,
			      &qkv,
			      &kv,
			      &e->positions.address,
			      &e->slots.address,
			      &e->block_table.address,
			      (void *)&to,
			      &heads,
			      &kv_heads,
			      &head_dim,
			      &block_size,
			      &max_blocks,
			      &blocks,
			      &max_positions};
	struct llama_grid grid = {(unsigned)f->step->tokens, (unsigned)heads, 128,
				  LLAMA_ADAPTED_ATTENTION_SHARED(max_positions, head_dim)};
	return llama_launch_priority(f->device, LLAMA_ADAPTED_ATTENTION, grid, e->stream, e->low_priority, parameters,
				     f->err);
}

static enum md_status adapted_silu(struct frame *f, int layer)
{
	const struct llama_lora_group from = group_of(f, LORA_FEED_IN, layer), to = group_of(f, LORA_FEED_OUT, layer);
	CUdeviceptr gate = f->act->gate, up = f->act->up;
	int32_t width = f->shape->intermediate_size;
	void *parameters[] = {&gate, &gate, &up, (void *)&from, (void *)&to, &width};
	struct llama_grid grid = {(unsigned)f->step->tokens, (unsigned)to.slices, LLAMA_ADAPTED_SILU_SLICE, 0};
	return llama_launch(f->device, LLAMA_ADAPTED_SILU, grid, f->engine->stream, parameters, f->err);
}

static enum md_status adapted_gather(struct frame *f)
{
	const struct llama_lora_group from = group_of(f, LORA_FEED_OUT, f->shape->layers - 1);
	CUdeviceptr out = f->act->last, x = f->act->x, rows = f->step->rows;
	int32_t width = f->shape->hidden_size;
	void *parameters[] = {&out, &x, &rows, (void *)&from, &width};
	struct llama_grid grid = {(unsigned)f->step->row_count, (unsigned)(width + 255) / 256, 256, 0};
	return llama_launch(f->device, LLAMA_ADAPTED_GATHER, grid, f->engine->stream, parameters, f->err);
}

/* ---- the layer ---- */

static enum md_status project_qkv(struct frame *f, int number)
{
	const struct llama_shape *s = f->shape;
	const struct llama_activations *a = f->act;
	int width = (s->heads + 2 * s->kv_heads) * s->head_dim;
	return multiply(f, a->qkv, a->normed, f->engine->model->layers[number].qkv, f->step->tokens, width,
			s->hidden_size, 0, 0);
}

/* x += w * from; from is what has been computed last. */
static enum md_status project_back(struct frame *f, CUdeviceptr w, CUdeviceptr from, int inputs)
{
	return multiply(f, f->act->x, from, w, f->step->tokens, f->shape->hidden_size, inputs, 1, 1);
}

/* The up projection accumulates into memory zeroed by a memset, beside the gate projection on the main stream. */
static enum md_status project_up(struct frame *f, CUdeviceptr w)
{
	struct llama_engine *e = f->engine;
	int inner = f->shape->intermediate_size, tokens = f->step->tokens;
	MD_FORWARD(
	    md_cuda_call(f->err, cuMemsetD32Async, f->act->up, 0, (size_t)tokens * (size_t)inner, e->side_stream));
	int result = llama_gemm_run(f->act->side_gemm, e->side_stream, (float *)(uintptr_t)f->act->up,
				    (const float *)(uintptr_t)f->act->normed, (const uint16_t *)(uintptr_t)w, tokens,
				    inner, f->shape->hidden_size, 1, 0);
	return result ? md_cuda_status((CUresult)result, "llama_gemm_run", f->err) : MD_OK;
}

static enum md_status gate_and_up(struct frame *f, int number)
{
	struct llama_engine *e = f->engine;
	const struct llama_layer *layer = &e->model->layers[number];
	int inner = f->shape->intermediate_size;
	MD_FORWARD(md_cuda_call(f->err, cuEventRecord, e->fork, e->stream));
	MD_FORWARD(md_cuda_call(f->err, cuStreamWaitEvent, e->side_stream, e->fork, 0));
	MD_FORWARD(project_up(f, layer->up));
	MD_FORWARD(multiply(f, f->act->gate, f->act->normed, layer->gate, f->step->tokens, inner, f->shape->hidden_size,
			    0, 0));
	MD_FORWARD(md_cuda_call(f->err, cuEventRecord, e->join, e->side_stream));
	return md_cuda_call(f->err, cuStreamWaitEvent, e->stream, e->join, 0);
}

static enum md_status silu_mul(struct frame *f)
{
	CUdeviceptr gate = f->act->gate, up = f->act->up;
	int32_t width = f->shape->intermediate_size;
	void *parameters[] = {&gate, &gate, &up, &width};
	struct llama_grid grid = {(unsigned)f->step->tokens, (unsigned)(width + 255) / 256, 256, 0};
	return llama_launch(f->device, LLAMA_SILU_MUL, grid, f->engine->stream, parameters, f->err);
}

/* The layer's attention_norm adds what the layer before has left; the last one's is left to adapted_gather. */
static enum md_status run_adapted_layer(struct frame *f, int number)
{
	const struct llama_shape *s = f->shape;
	const struct llama_layer *layer = &f->engine->model->layers[number];
	const struct llama_activations *a = f->act;
	CUdeviceptr kv = f->engine->kv.address + f->engine->kv.bytes / (unsigned)s->layers * (unsigned)number;
	const struct llama_lora_group fed = group_of(f, LORA_FEED_OUT, number ? number - 1 : 0);
	const struct llama_lora_group attended = group_of(f, LORA_ATTENTION_OUT, number);
	MD_FORWARD(adapted_norm(f, layer->attention_norm, number ? &fed : NULL, LORA_ATTENTION_IN, number));
	MD_FORWARD(project_qkv(f, number));
	MD_FORWARD(adapted_rope(f, kv, number));
	MD_FORWARD(adapted_attention(f, kv, number));
	MD_FORWARD(project_back(f, layer->output, a->attention, s->heads * s->head_dim));
	MD_FORWARD(adapted_norm(f, layer->feed_norm, &attended, LORA_FEED_IN, number));
	MD_FORWARD(gate_and_up(f, number));
	MD_FORWARD(adapted_silu(f, number));
	return project_back(f, layer->down, a->gate, s->intermediate_size);
}

static enum md_status run_layer(struct frame *f, int number)
{
	const struct llama_shape *s = f->shape;
	const struct llama_layer *layer = &f->engine->model->layers[number];
	const struct llama_activations *a = f->act;
	CUdeviceptr kv = f->engine->kv.address + f->engine->kv.bytes / (unsigned)s->layers * (unsigned)number;
	int tokens = f->step->tokens;
	MD_FORWARD(rms_norm(f, a->normed, a->x, layer->attention_norm, tokens));
	MD_FORWARD(project_qkv(f, number));
	MD_FORWARD(rope_store(f, kv));
	MD_FORWARD(attention(f, kv));
	MD_FORWARD(project_back(f, layer->output, a->attention, s->heads * s->head_dim));
	MD_FORWARD(rms_norm(f, a->normed, a->x, layer->feed_norm, tokens));
	MD_FORWARD(gate_and_up(f, number));
	MD_FORWARD(silu_mul(f));
	return project_back(f, layer->down, a->gate, s->intermediate_size);
}

/* During a capture, an empty node ends the layers: one place that everything behind them depends on. */
static enum md_status end_layers(struct frame *f)
{
	CUstream stream = f->engine->stream;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUgraph graph = NULL;
	const CUgraphNode *dependencies = NULL;
	size_t count = 0;
	CUgraphNode empty;
	if (!md_cuda.cuStreamGetCaptureInfo_v2 || !md_cuda.cuStreamUpdateCaptureDependencies)
		return MD_OK;
	MD_FORWARD(
	    md_cuda_call(f->err, cuStreamGetCaptureInfo_v2, stream, &status, NULL, &graph, &dependencies, &count));
	if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return MD_OK;
	MD_FORWARD(md_cuda_call(f->err, cuGraphAddEmptyNode, &empty, graph, dependencies, count));
	return md_cuda_call(f->err, cuStreamUpdateCaptureDependencies, stream, &empty, 1,
			    CU_STREAM_SET_CAPTURE_DEPENDENCIES);
}

static enum md_status gather(struct frame *f)
{
	CUdeviceptr out = f->act->last, x = f->act->x, rows = f->step->rows;
	int32_t width = f->shape->hidden_size;
	void *parameters[] = {&out, &x, &rows, &width};
	return llama_launch(f->device, LLAMA_GATHER, (struct llama_grid){(unsigned)f->step->row_count, 1, 256, 0},
			    f->engine->stream, parameters, f->err);
}

static enum md_status sample(struct frame *f)
{
	struct llama_engine *e = f->engine;
	CUdeviceptr positions = f->step->positions;
	int32_t vocabulary = f->shape->vocabulary;
	void *parameters[] = {&e->next.address, &e->logits.address,     &positions,
			      &vocabulary,      &e->limits.temperature, &e->limits.sample_seed};
	return llama_launch(f->device, LLAMA_SAMPLE, (struct llama_grid){(unsigned)f->step->row_count, 1, 256, 0},
			    e->stream, parameters, f->err);
}

static enum md_status head(struct frame *f)
{
	struct llama_engine *e = f->engine;
	int rows = f->step->row_count;
	MD_FORWARD(f->engine->lora.slots ? adapted_gather(f) : gather(f));
	MD_FORWARD(rms_norm(f, f->act->last_normed, f->act->last, e->model->final_norm, rows));
	MD_FORWARD(multiply(f, e->logits.address, f->act->last_normed, e->model->head, rows, f->shape->vocabulary,
			    f->shape->hidden_size, 0, 0));
	MD_FORWARD(sample(f));
	if (!f->step->feed_back)
		return MD_OK;
	return md_cuda_call(f->err, cuMemcpyDtoDAsync_v2, e->tokens.address, e->next.address, (size_t)rows * 4,
			    e->stream);
}

enum md_status llama_engine_step(struct llama_engine *engine, const struct llama_step *step, struct md_error *err)
{
	struct frame f = {engine, engine->device, &engine->model->shape, step, step->activations, err};
	MD_FORWARD(embed(&f));
	for (int i = 0; i < f.shape->layers; i++)
		MD_FORWARD(engine->lora.slots ? run_adapted_layer(&f, i) : run_layer(&f, i));
	MD_FORWARD(end_layers(&f));
	return step->row_count ? head(&f) : MD_OK;
}

enum md_status llama_engine_decode(struct llama_engine *engine, const struct llama_activations *activations, int batch,
				   struct md_error *err)
{
	struct llama_step step = {
	    .activations = activations,
	    .tokens = batch,
	    .rows = engine->rows.address,
	    .row_count = batch,
	    .positions = engine->positions.address,
	    .feed_back = true,
	};
	return llama_engine_step(engine, &step, err);
}
