/* SPDX-License-Identifier: Apache-2.0 */
/* An adapter as PEFT saves it: adapter_config.json and adapter_model.safetensors. */
#ifndef LLAMA_PEFT_H
#define LLAMA_PEFT_H

#include "models/llama/adapters/peft_config.h"
#include "models/llama/adapters/plan.h"

/* A folder with both files; the folder and they may be links, as in caches of a hub. */
enum md_status peft_load(const char *folder, const struct llama_shape *shape, int max_rank, size_t max_bytes,
			 struct lora_adapter *adapter, struct md_error *err);
/* The second file, from any source. */
enum md_status peft_read(const struct peft_config *config, const struct md_file_source *source,
			 const struct llama_shape *shape, int max_rank, size_t max_bytes, struct lora_adapter *adapter,
			 struct md_error *err);

#endif
