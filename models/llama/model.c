/* SPDX-License-Identifier: Apache-2.0 */
/* Weights: one list of tensors gives the layout, the loader and the seeded fill. */
#include "base/splitmix.h"
#include "models/llama/integration.h"
#include "models/llama/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define ALIGNMENT 256u
#define MOST_PARTS 9 /* of a layer in a file */

/* Calls visit for each tensor: its GGUF name, where its address is kept, rows x columns; norms have rows == 1. */
struct visitor {
	enum md_status (*visit)(struct visitor *visitor, const char *name, CUdeviceptr *slot, uint64_t rows,
				uint64_t columns, struct md_error *err);
	struct llama_model *model;
	CUdeviceptr next; /* laying out */
	const struct gguf *gguf;
	struct loader_part *parts; /* loading */
	size_t part_count;
	uint64_t seed, index;
};

static enum md_status visit_layer(struct visitor *visitor, int number, struct md_error *err)
{
	const struct llama_shape *shape = &visitor->model->shape;
	struct llama_layer *layer = &visitor->model->layers[number];
	uint64_t hidden = (uint64_t)shape->hidden_size, inner = (uint64_t)shape->intermediate_size;
	uint64_t query = (uint64_t)shape->heads * (uint64_t)shape->head_dim;
	uint64_t key = (uint64_t)shape->kv_heads * (uint64_t)shape->head_dim;
	const struct {
		const char *part;
		CUdeviceptr *slot;
		uint64_t rows, columns;
	} tensors[] = {
	    {"attn_norm", &layer->attention_norm, 1, hidden}, {"attn_qkv", &layer->qkv, query + 2 * key, hidden},
	    {"attn_output", &layer->output, hidden, query},   {"ffn_norm", &layer->feed_norm, 1, hidden},
	    {"ffn_gate", &layer->gate, inner, hidden},        {"ffn_up", &layer->up, inner, hidden},
	    {"ffn_down", &layer->down, hidden, inner},
	};
	for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
		char name[64];
		snprintf(name, sizeof(name), "blk.%d.%s.weight", number, tensors[i].part);
		MD_FORWARD(visitor->visit(visitor, name, tensors[i].slot, tensors[i].rows, tensors[i].columns, err));
	}
	return MD_OK;
}

static enum md_status visit_all(struct visitor *visitor, struct md_error *err)
{
	struct llama_model *model = visitor->model;
	uint64_t hidden = (uint64_t)model->shape.hidden_size, vocabulary = (uint64_t)model->shape.vocabulary;
	MD_FORWARD(visitor->visit(visitor, "token_embd.weight", &model->embedding, vocabulary, hidden, err));
	for (int i = 0; i < model->shape.layers; i++)
		MD_FORWARD(visit_layer(visitor, i, err));
	MD_FORWARD(visitor->visit(visitor, "output_norm.weight", &model->final_norm, 1, hidden, err));
	if (!model->shape.tie_embeddings)
		MD_FORWARD(visitor->visit(visitor, "output.weight", &model->head, vocabulary, hidden, err));
	else
		model->head = model->embedding;
	return MD_OK;
}

static enum md_status visit_layout(struct visitor *visitor, const char *name, CUdeviceptr *slot, uint64_t rows,
				   uint64_t columns, struct md_error *err)
{
	(void)name, (void)err;
	*slot = visitor->next;
	visitor->next += (rows * columns * 2 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	return MD_OK;
}

static void lay_out(struct llama_model *model, CUdeviceptr base)
{
	struct visitor visitor = {.visit = visit_layout, .model = model, .next = base};
	visit_all(&visitor, NULL);
	model->bytes = visitor.next - base;
}

static enum md_status set_access(const struct llama_model *model, CUmemAccess_flags flags, struct md_error *err)
{
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = model->device->device},
				  .flags = flags};
	return md_cuda_call(err, cuMemSetAccess, model->base, model->bytes, &access, 1);
}

/* *taken is false if nothing is shared here, for the reason that is printed. */
static enum md_status take_shared(struct llama_model *model, const struct llama_share *share, bool *taken,
				  struct md_error *err)
{
	const struct llama_shape *s = &model->shape;
	const char *why;
	bool no_room;
	char layout[640];
	int size =
	    snprintf(layout, sizeof(layout),
		     "llama-engine 1: %d layers, %d heads, %d KV heads of %d, %d hidden, %d inner, %d tokens, %s; %s",
		     s->layers, s->heads, s->kv_heads, s->head_dim, s->hidden_size, s->intermediate_size, s->vocabulary,
		     s->tie_embeddings ? "tied" : "not tied", share->weights);
	if (size >= (int)sizeof(layout))
		return md_error_set(err, MD_ERR_INVALID,
				    "--share: what tells the weights from others has %d characters", size);
	*taken = integration_share(share->name, layout, model->bytes, &model->base, &model->filled, &no_room, &why);
	model->shared = *taken;
	if (no_room)
		return md_error_set(err, MD_ERR_DRIVER_MEMORY, "--share %s: %s", share->name, why);
	if (!*taken)
		fprintf(stderr, "llama-engine: the weights are not shared: %s\n", why);
	return MD_OK;
}

static enum md_status take_virtual(struct llama_model *model, const struct llama_share *share, struct md_error *err)
{
	bool shared = false;
	CUmemAllocationProp properties = {
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = model->device->device},
	};
	size_t granularity;
	MD_FORWARD(md_cuda_call(err, cuMemGetAllocationGranularity, &granularity, &properties,
				CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	model->bytes = (model->bytes + granularity - 1) / granularity * granularity;
	if (share)
		MD_FORWARD(take_shared(model, share, &shared, err));
	if (shared)
		return MD_OK;
	MD_FORWARD(md_cuda_call(err, cuMemAddressReserve, &model->base, model->bytes, 0, 0, 0));
	model->virtual_memory = true;
	MD_FORWARD(md_cuda_call(err, cuMemCreate, &model->handle, model->bytes, &properties, 0));
	MD_FORWARD(md_cuda_call(err, cuMemMap, model->base, model->bytes, 0, model->handle, 0));
	return set_access(model, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, err);
}

enum md_status llama_model_create(struct llama_model *model, const struct llama_device *device,
				  const struct llama_shape *shape, const struct llama_share *share,
				  struct md_error *err)
{
	*model = (struct llama_model){.shape = *shape, .device = device};
	model->layers = calloc((size_t)shape->layers, sizeof(*model->layers));
	if (!model->layers)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %d layers", shape->layers);
	lay_out(model, 0);
	int supported = 0;
	MD_FORWARD(md_cuda_call(err, cuDeviceGetAttribute, &supported,
				CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device->device));
	if (supported)
		MD_FORWARD(take_virtual(model, share, err));
	else
		MD_FORWARD(md_cuda_call(err, cuMemAlloc_v2, &model->base, model->bytes));
	size_t bytes = model->bytes;
	lay_out(model, model->base);
	model->bytes = bytes;
	return MD_OK;
}

void llama_model_finish(struct llama_model *model)
{
	if (model->virtual_memory) {
		if (model->handle) {
			md_cuda_call(NULL, cuMemUnmap, model->base, model->bytes);
			md_cuda_call(NULL, cuMemRelease, model->handle);
		}
		md_cuda_call(NULL, cuMemAddressFree, model->base, model->bytes);
	} else if (model->shared) {
		integration_share_end(model->base);
	} else if (model->base) {
		md_cuda_call(NULL, cuMemFree_v2, model->base);
	}
	free(model->layers);
	memset(model, 0, sizeof(*model));
}

enum md_status llama_model_seal(struct llama_model *model, struct md_error *err)
{
	const char *why;
	if (model->shared && !model->filled && !integration_share_commit(model->base, &why))
		fprintf(stderr, "llama-engine: no other process gets the weights: %s\n", why);
	return model->virtual_memory ? set_access(model, CU_MEM_ACCESS_FLAGS_PROT_READ, err) : MD_OK;
}

/* ---- from a file ------------------------------------------------------------------------------------------------- */

static enum md_status add_part(struct visitor *visitor, const char *name, CUdeviceptr target, uint64_t rows,
			       uint64_t columns, struct md_error *err)
{
	const struct gguf_tensor *tensor = gguf_find_tensor(visitor->gguf, name);
	if (!tensor)
		return md_error_set(err, MD_ERR_NOT_FOUND, "tensor %s is missing", name);
	if (tensor->shape[0] != columns || tensor->elements != rows * columns)
		return md_error_set(err, MD_ERR_CORRUPT, "tensor %s has %llu x %llu elements, wanted %llu x %llu", name,
				    (unsigned long long)tensor->shape[0], (unsigned long long)tensor->shape[1],
				    (unsigned long long)columns, (unsigned long long)rows);
	visitor->parts[visitor->part_count++] = (struct loader_part){tensor, target};
	return MD_OK;
}

/* The file keeps q, k and v apart; this engine multiplies by all three at once. */
static enum md_status add_qkv(struct visitor *visitor, const char *name, CUdeviceptr target, uint64_t columns,
			      struct md_error *err)
{
	const struct llama_shape *shape = &visitor->model->shape;
	const struct {
		const char *part;
		int heads;
	} parts[] = {
	    {"attn_q", shape->heads},
	    {"attn_k", shape->kv_heads},
	    {"attn_v", shape->kv_heads},
	};
	int prefix = (int)(strrchr(name, '_') - name) - (int)strlen("attn");
	for (unsigned i = 0; i < 3; i++) {
		char part[64];
		snprintf(part, sizeof(part), "%.*s%s.weight", prefix, name, parts[i].part);
		uint64_t rows = (uint64_t)parts[i].heads * (uint64_t)shape->head_dim;
		MD_FORWARD(add_part(visitor, part, target, rows, columns, err));
		target += rows * columns * 2;
	}
	return MD_OK;
}

static enum md_status visit_parts(struct visitor *visitor, const char *name, CUdeviceptr *slot, uint64_t rows,
				  uint64_t columns, struct md_error *err)
{
	if (strstr(name, ".attn_qkv."))
		return add_qkv(visitor, name, *slot, columns, err);
	return add_part(visitor, name, *slot, rows, columns, err);
}

/* The parts are listed in the order of a forward, so what is needed first is there first. */
enum md_status llama_model_load(struct llama_model *model, const struct gguf *gguf, unsigned threads,
				struct loader_report *report, struct md_error *err)
{
	size_t most = (size_t)model->shape.layers * MOST_PARTS + 3;
	MD_AUTO_FREE struct loader_part *parts = calloc(most, sizeof(*parts));
	if (!parts)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a list of %zu tensors", most);
	struct visitor visitor = {.visit = visit_parts, .model = model, .gguf = gguf, .parts = parts};
	MD_FORWARD(visit_all(&visitor, err));
	return loader_run(gguf, parts, visitor.part_count, model->device->context, threads, report, err);
}

/* ---- from a seed ------------------------------------------------------------------------------------------------- */

static enum md_status visit_fill(struct visitor *visitor, const char *name, CUdeviceptr *slot, uint64_t rows,
				 uint64_t columns, struct md_error *err)
{
	(void)name;
	uint64_t n = rows * columns, seed = visitor->seed + MD_RANDOM_STEP * ++visitor->index;
	float scale = (float)visitor->model->shape.scale, offset = rows == 1 ? 1.0f : 0.0f; /* norms lie around 1 */
	void *parameters[] = {slot, &n, &seed, &scale, &offset};
	struct llama_grid grid = {(unsigned)((n + 1023) / 1024), 1, 256, 0};
	return llama_launch(visitor->model->device, LLAMA_FILL, grid, NULL, parameters, err);
}

enum md_status llama_model_fill(struct llama_model *model, uint64_t seed, struct md_error *err)
{
	struct visitor visitor = {.visit = visit_fill, .model = model, .seed = seed};
	MD_FORWARD(visit_all(&visitor, err));
	return md_cuda_call(err, cuCtxSynchronize);
}
