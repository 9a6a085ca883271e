/* SPDX-License-Identifier: Apache-2.0 */
/* An adapter as a GGUF file, as llama.cpp converts and reads it. */
#ifndef LLAMA_ADAPTER_GGUF_H
#define LLAMA_ADAPTER_GGUF_H

#include "models/llama/adapters/plan.h"

enum md_status adapter_gguf_load(const char *path, const struct llama_shape *shape, int max_rank, size_t max_bytes,
				 struct lora_adapter *adapter, struct md_error *err);
/* The same of a file that was opened; source has its bytes. */
enum md_status adapter_gguf_read(const struct gguf *gguf, const struct md_file_source *source,
				 const struct llama_shape *shape, int max_rank, size_t max_bytes,
				 struct lora_adapter *adapter, struct md_error *err);

#endif
