/* SPDX-License-Identifier: Apache-2.0 */
/* Reads an adapter from a GGUF file. Its metadata say which architecture it is for, and alpha; ranks are in the shapes. */
#include "models/llama/adapters/adapter_gguf.h"

#include <string.h>

static const struct lora_naming naming = {
    .before = "blk.",
    .parts =
	{
	    [LORA_QUERY] = "attn_q.weight",
	    [LORA_KEY] = "attn_k.weight",
	    [LORA_VALUE] = "attn_v.weight",
	    [LORA_OUTPUT] = "attn_output.weight",
	    [LORA_GATE] = "ffn_gate.weight",
	    [LORA_UP] = "ffn_up.weight",
	    [LORA_DOWN] = "ffn_down.weight",
	},
    .sides = {[LORA_A] = ".lora_a", [LORA_B] = ".lora_b"},
    .interleaved = true,
};

/* ---- metadata ----------------------------------------------------------------------------------------------------- */

static bool is_key(const struct gguf_value *value, const char *key)
{
	return value->key.size == strlen(key) && !memcmp(value->key.data, key, value->key.size);
}

/* All keys of adapters that there are; others may change what is computed. */
static enum md_status check_adapter_keys(const struct gguf *gguf, struct md_error *err)
{
	static const char *const known[] = {"adapter.type", "adapter.lora.alpha", "adapter.lora.task_name",
					    "adapter.lora.prompt_prefix"};
	char shown[LORA_SHOWN_BYTES];
	for (size_t i = 0; i < gguf->value_count; i++) {
		const struct gguf_value *value = &gguf->values[i];
		bool found = value->key.size < 8 || memcmp(value->key.data, "adapter.", 8) != 0;
		for (size_t k = 0; !found && k < sizeof(known) / sizeof(known[0]); k++)
			found = is_key(value, known[k]);
		if (!found)
			return md_error_set(err, MD_ERR_UNSUPPORTED,
					    "metadata \"%s\" is none that this engine knows of an adapter",
					    lora_show_name(shown, value->key.data, value->key.size));
	}
	return MD_OK;
}

/* A key that is there twice would mean one thing here, and may mean another elsewhere. */
static enum md_status check_once(const struct gguf *gguf, const char *key, struct md_error *err)
{
	size_t count = 0;
	for (size_t i = 0; i < gguf->value_count; i++)
		count += is_key(&gguf->values[i], key);
	return count < 2 ? MD_OK : md_error_set(err, MD_ERR_CORRUPT, "metadata \"%s\" is there %zu times", key, count);
}

static enum md_status check_text(const struct gguf *gguf, const char *key, const char *wanted, struct md_error *err)
{
	struct gguf_string text;
	char shown[LORA_SHOWN_BYTES];
	MD_FORWARD(check_once(gguf, key, err));
	MD_FORWARD(gguf_get_string(gguf, key, &text, err));
	if (text.size == strlen(wanted) && !memcmp(text.data, wanted, text.size))
		return MD_OK;
	return md_error_set(err, MD_ERR_UNSUPPORTED, "metadata \"%s\" is \"%s\", wanted is \"%s\"", key,
			    lora_show_name(shown, text.data, text.size), wanted);
}

/* Adapters need not say of which shape their base model is; one that does must be right. */
static enum md_status check_shape(const struct gguf *gguf, const struct llama_shape *shape, struct md_error *err)
{
	const struct {
		const char *key;
		int wanted;
	} numbers[] = {
	    {"llama.embedding_length", shape->hidden_size},
	    {"llama.feed_forward_length", shape->intermediate_size},
	    {"llama.block_count", shape->layers},
	    {"llama.attention.head_count", shape->heads},
	    {"llama.attention.head_count_kv", shape->kv_heads},
	    {"llama.attention.key_length", shape->head_dim},
	};
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		int64_t found;
		if (!gguf_find(gguf, numbers[i].key))
			continue;
		MD_FORWARD(gguf_get_integer(gguf, numbers[i].key, &found, err));
		if (found != numbers[i].wanted)
			return md_error_set(err, MD_ERR_MISMATCH, "metadata \"%s\" is %lld, the model has %d",
					    numbers[i].key, (long long)found, numbers[i].wanted);
	}
	return MD_OK;
}

static enum md_status read_alpha(const struct gguf *gguf, double *alpha, struct md_error *err)
{
	static const char key[] = "adapter.lora.alpha";
	MD_FORWARD(check_once(gguf, key, err));
	MD_FORWARD(gguf_get_float(gguf, key, alpha, err));
	/* PEFT would take 0 for an adapter that does nothing, and llama.cpp for a scale of 1 */
	return *alpha != 0 ? MD_OK : md_error_set(err, MD_ERR_CORRUPT, "metadata \"%s\" is 0", key);
}

static enum md_status check_metadata(const struct gguf *gguf, const struct llama_shape *shape, double *alpha,
				     struct md_error *err)
{
	MD_FORWARD(check_text(gguf, "general.type", "adapter", err));
	MD_FORWARD(check_text(gguf, "adapter.type", "lora", err));
	MD_FORWARD(check_text(gguf, "general.architecture", "llama", err));
	MD_FORWARD(check_adapter_keys(gguf, err));
	MD_FORWARD(check_shape(gguf, shape, err));
	return read_alpha(gguf, alpha, err);
}

/* ---- tensors ------------------------------------------------------------------------------------------------------ */

static enum md_status add_tensors(struct lora_plan *plan, const struct gguf *gguf, struct md_error *err)
{
	for (size_t i = 0; i < gguf->tensor_count; i++) {
		const struct gguf_tensor *tensor = &gguf->tensors[i];
		bool flat = tensor->shape[2] == 1 && tensor->shape[3] == 1;
		const struct lora_matrix matrix = {.type = tensor->type,
						   .rows = flat ? tensor->shape[1] : 0,
						   .columns = flat ? tensor->shape[0] : 0,
						   .offset = tensor->offset};
		MD_FORWARD(lora_plan_add(plan, &tensor->name, &matrix, err));
	}
	return lora_plan_check(plan, err);
}

static enum md_status set_scales(struct lora_plan *plan, double alpha, struct md_error *err)
{
	for (int layer = 0; layer < plan->shape->layers; layer++)
		for (int projection = 0; projection < LORA_PROJECTIONS; projection++) {
			struct lora_pair *pair = lora_plan_pair(plan, layer, (enum lora_projection)projection);
			if (pair && lora_pair_set_scale(pair, alpha, false, err) != MD_OK)
				return md_error_prefix(err, "blk.%d.%s", layer, naming.parts[projection]);
		}
	return MD_OK;
}

static enum md_status read_adapter(const struct gguf *gguf, const struct md_file_source *source, struct lora_plan *plan,
				   size_t max_bytes, struct lora_adapter *adapter, struct md_error *err)
{
	double alpha = 0;
	MD_FORWARD(check_metadata(gguf, plan->shape, &alpha, err));
	MD_FORWARD(add_tensors(plan, gguf, err));
	MD_FORWARD(set_scales(plan, alpha, err));
	return lora_plan_read(plan, source, max_bytes, adapter, err);
}

enum md_status adapter_gguf_read(const struct gguf *gguf, const struct md_file_source *source,
				 const struct llama_shape *shape, int max_rank, size_t max_bytes,
				 struct lora_adapter *adapter, struct md_error *err)
{
	struct lora_plan plan;
	enum md_status status = lora_plan_init(&plan, shape, max_rank, &naming, err);
	if (status == MD_OK)
		status = read_adapter(gguf, source, &plan, max_bytes, adapter, err);
	lora_plan_finish(&plan);
	return status;
}

enum md_status adapter_gguf_load(const char *path, const struct llama_shape *shape, int max_rank, size_t max_bytes,
				 struct lora_adapter *adapter, struct md_error *err)
{
	struct gguf gguf;
	MD_FORWARD(gguf_open(&gguf, path, err));
	const struct md_file_source source = {.fd = gguf.fd, .size = gguf.file_bytes};
	enum md_status status = adapter_gguf_read(&gguf, &source, shape, max_rank, max_bytes, adapter, err);
	gguf_close(&gguf);
	return status == MD_OK ? MD_OK : md_error_prefix(err, "%s", path);
}
