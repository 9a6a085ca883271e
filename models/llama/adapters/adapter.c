/* SPDX-License-Identifier: Apache-2.0 */
/* Brings an adapter into host memory, whatever kind of file it is. */
#include "models/llama/adapters/adapter.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "models/llama/adapters/adapter_gguf.h"
#include "models/llama/adapters/peft.h"

int lora_inputs(const struct llama_shape *shape, enum lora_projection projection)
{
	switch (projection) {
	case LORA_OUTPUT:
		return shape->heads * shape->head_dim;
	case LORA_DOWN:
		return shape->intermediate_size;
	default:
		return shape->hidden_size;
	}
}

int lora_outputs(const struct llama_shape *shape, enum lora_projection projection)
{
	switch (projection) {
	case LORA_QUERY:
		return shape->heads * shape->head_dim;
	case LORA_KEY:
	case LORA_VALUE:
		return shape->kv_heads * shape->head_dim;
	case LORA_GATE:
	case LORA_UP:
		return shape->intermediate_size;
	default:
		return shape->hidden_size;
	}
}

/* One of the two files of a folder, of which the other one is needed, too. */
static bool is_in_folder(const char *path)
{
	static const char *const endings[] = {".safetensors", ".json"};
	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		size_t size = strlen(endings[i]), length = strlen(path);
		if (length >= size && !strcmp(path + length - size, endings[i]))
			return true;
	}
	return false;
}

enum md_status lora_adapter_load(struct lora_adapter *adapter, const char *path, const struct llama_shape *shape,
				 int max_rank, size_t max_bytes, struct md_error *err)
{
	struct stat info;
	if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
		return peft_load(path, shape, max_rank, max_bytes, adapter, err);
	if (is_in_folder(path))
		return md_error_set(
		    err, MD_ERR_INVALID,
		    "%s: give the folder with adapter_config.json and adapter_model.safetensors, or a GGUF file", path);
	return adapter_gguf_load(path, shape, max_rank, max_bytes, adapter, err);
}

void lora_adapter_finish(struct lora_adapter *adapter)
{
	free(adapter->parts);
	free(adapter->weights);
	memset(adapter, 0, sizeof(*adapter));
}
