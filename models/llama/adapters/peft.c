/* SPDX-License-Identifier: Apache-2.0 */
/* Reads an adapter that PEFT has saved. */
#include "models/llama/adapters/peft.h"

#include <limits.h>
#include <string.h>

#include "base/cleanup.h"
#include "models/llama/adapters/safetensors.h"

#define CONFIG "adapter_config.json"
#define WEIGHTS "adapter_model.safetensors"
#define MOST_CONFIG_BYTES (1u << 20)

/* How PEFT's names and those of transformers' modules begin. */
#define BEFORE "base_model.model."
#define LAYERS "model.layers."

static const struct lora_naming naming = {
    .before = BEFORE LAYERS,
    .parts =
	{
	    [LORA_QUERY] = "self_attn.q_proj",
	    [LORA_KEY] = "self_attn.k_proj",
	    [LORA_VALUE] = "self_attn.v_proj",
	    [LORA_OUTPUT] = "self_attn.o_proj",
	    [LORA_GATE] = "mlp.gate_proj",
	    [LORA_UP] = "mlp.up_proj",
	    [LORA_DOWN] = "mlp.down_proj",
	},
    .sides = {[LORA_A] = ".lora_A.weight", [LORA_B] = ".lora_B.weight"},
};

static enum md_status add_tensors(struct lora_plan *plan, const struct safetensors *file, struct md_error *err)
{
	for (size_t i = 0; i < file->count; i++) {
		const struct safetensors_tensor *tensor = &file->tensors[i];
		const struct gguf_string name = {tensor->name, strlen(tensor->name)};
		/* another number of dimensions is the wrong shape of every matrix */
		const struct lora_matrix matrix = {.type = tensor->type,
						   .rows = tensor->dimensions == 2 ? tensor->shape[0] : 0,
						   .columns = tensor->dimensions == 2 ? tensor->shape[1] : 0,
						   .offset = file->data_offset + tensor->begin};
		MD_FORWARD(lora_plan_add(plan, &name, &matrix, err));
	}
	return lora_plan_check(plan, err);
}

static enum md_status set_scale(const struct peft_config *config, struct lora_pair *pair, int layer,
				enum lora_projection projection, struct md_error *err)
{
	char module[64];
	struct peft_module found = {0};
	snprintf(module, sizeof(module), LAYERS "%d.%s", layer, naming.parts[projection]);
	MD_FORWARD(peft_config_find(config, module, layer, &found, err));
	if (found.rank != lora_pair_rank(pair))
		return md_error_set(err, MD_ERR_MISMATCH, "%s has rank %d, " CONFIG " says %d", module,
				    lora_pair_rank(pair), found.rank);
	if (lora_pair_set_scale(pair, found.alpha, config->root_scale, err) != MD_OK)
		return md_error_prefix(err, "%s", module);
	return MD_OK;
}

static enum md_status set_scales(const struct peft_config *config, struct lora_plan *plan, struct md_error *err)
{
	for (int layer = 0; layer < plan->shape->layers; layer++)
		for (int projection = 0; projection < LORA_PROJECTIONS; projection++) {
			struct lora_pair *pair = lora_plan_pair(plan, layer, (enum lora_projection)projection);
			if (pair)
				MD_FORWARD(set_scale(config, pair, layer, (enum lora_projection)projection, err));
		}
	return MD_OK;
}

static enum md_status read_file(const struct peft_config *config, const struct md_file_source *source,
				struct safetensors *file, struct lora_plan *plan, size_t max_bytes,
				struct lora_adapter *adapter, struct md_error *err)
{
	MD_FORWARD(safetensors_read(file, source, err));
	MD_FORWARD(add_tensors(plan, file, err));
	MD_FORWARD(set_scales(config, plan, err));
	return lora_plan_read(plan, source, max_bytes, adapter, err);
}

enum md_status peft_read(const struct peft_config *config, const struct md_file_source *source,
			 const struct llama_shape *shape, int max_rank, size_t max_bytes, struct lora_adapter *adapter,
			 struct md_error *err)
{
	struct safetensors file = {0};
	struct lora_plan plan;
	enum md_status status = lora_plan_init(&plan, shape, max_rank, &naming, err);
	if (status == MD_OK)
		status = read_file(config, source, &file, &plan, max_bytes, adapter, err);
	safetensors_finish(&file);
	lora_plan_finish(&plan);
	return status;
}

static enum md_status read_config(const char *path, struct peft_config *config, struct md_error *err)
{
	struct md_file_bytes bytes;
	MD_FORWARD(md_file_read(path, MOST_CONFIG_BYTES, &bytes, err));
	enum md_status status = peft_config_parse(config, (const char *)bytes.data, bytes.size, err);
	md_file_release(&bytes);
	return status == MD_OK ? MD_OK : md_error_prefix(err, "%s", path);
}

static enum md_status open_weights(const char *path, int *fd, uint64_t *size, struct md_error *err)
{
	enum md_status status = md_file_open(path, UINT64_MAX, fd, size, err);
	if (status == MD_ERR_NOT_FOUND)
		return md_error_set(
		    err, MD_ERR_NOT_FOUND,
		    "%s is missing; adapter_model.bin, a Python pickle, is not read: save the adapter with "
		    "safe_serialization=True",
		    path);
	return status;
}

static enum md_status load_weights(const char *path, const struct peft_config *config, const struct llama_shape *shape,
				   int max_rank, size_t max_bytes, struct lora_adapter *adapter, struct md_error *err)
{
	MD_AUTO_FD int fd = -1;
	uint64_t size = 0;
	MD_FORWARD(open_weights(path, &fd, &size, err));
	const struct md_file_source source = {.fd = fd, .size = size};
	if (peft_read(config, &source, shape, max_rank, max_bytes, adapter, err) != MD_OK)
		return md_error_prefix(err, "%s", path);
	return MD_OK;
}

enum md_status peft_load(const char *folder, const struct llama_shape *shape, int max_rank, size_t max_bytes,
			 struct lora_adapter *adapter, struct md_error *err)
{
	char path[PATH_MAX];
	struct peft_config config;
	if (snprintf(path, sizeof(path), "%s/" WEIGHTS, folder) >= (int)sizeof(path))
		return md_error_set(err, MD_ERR_INVALID, "the name of an adapter's folder has %zu bytes",
				    strlen(folder));
	snprintf(path, sizeof(path), "%s/" CONFIG, folder);
	MD_FORWARD(read_config(path, &config, err));
	snprintf(path, sizeof(path), "%s/" WEIGHTS, folder);
	enum md_status status = load_weights(path, &config, shape, max_rank, max_bytes, adapter, err);
	peft_config_finish(&config);
	return status;
}
