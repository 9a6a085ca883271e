/* SPDX-License-Identifier: Apache-2.0 */
/* Reader of safetensors files: which tensors there are, of which type and shape, and where; nothing is trusted. */
#ifndef LLAMA_SAFETENSORS_H
#define LLAMA_SAFETENSORS_H

#include "base/file.h"
#include "models/llama/adapters/adapter_json.h"
#include "models/llama/gguf.h"

#define SAFETENSORS_MOST_DIMENSIONS 4

struct safetensors_tensor {
	const char *name;           /* valid until safetensors_finish */
	enum gguf_tensor_type type; /* F32, F16 or BF16 */
	size_t dimensions;
	uint64_t shape[SAFETENSORS_MOST_DIMENSIONS]; /* the last one is the fastest-moving */
	uint64_t begin, end;                         /* bytes behind the header */
};

struct safetensors {
	json_t *header;
	struct safetensors_tensor *tensors; /* in the order of their bytes */
	size_t count;
	uint64_t data_offset; /* of the first byte behind the header, in the file */
};

/*
 * Reads and checks the header. Afterwards the tensors lie one behind the other, and fill the source to its last byte.
 * Errors name the tensor.
 */
enum md_status safetensors_read(struct safetensors *file, const struct md_file_source *source, struct md_error *err);
void safetensors_finish(struct safetensors *file); /* also of a zeroed one */

#endif
