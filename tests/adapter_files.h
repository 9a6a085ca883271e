/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters' files for tests, made in memory and written to a folder of their own: PEFT's two files, or a GGUF file. */
#ifndef TESTS_ADAPTER_FILES_H
#define TESTS_ADAPTER_FILES_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "models/llama/adapters/adapter.h"
#include "models/llama/gguf.h"

#define QUERY "base_model.model.model.layers.0.self_attn.q_proj"
#define CONFIG_OF(more)                                                                                                \
	"{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, \"target_modules\": \"all-linear\"" more "}"

/* Every size differs from the others, and 32 inputs are a quantized block. */
static const struct llama_shape small_shape = {
    .hidden_size = 32,
    .intermediate_size = 96,
    .layers = 2,
    .heads = 2,
    .kv_heads = 1,
    .head_dim = 8,
    .vocabulary = 64,
};

struct adapter_files {
	char folder[40], config_path[80], weights_path[80], gguf_path[80];
	struct md_buf header,
	    data; /* of the safetensors file: the header lacks its last brace. Of a GGUF file: its records */
	size_t tensors;
	struct lora_adapter adapter;
	struct md_error err;
};

static inline void files_begin(struct adapter_files *files)
{
	memset(files, 0, sizeof(*files));
	strcpy(files->folder, "/tmp/adapter-XXXXXX");
	cr_assert_not_null(mkdtemp(files->folder));
	snprintf(files->config_path, sizeof(files->config_path), "%s/adapter_config.json", files->folder);
	snprintf(files->weights_path, sizeof(files->weights_path), "%s/adapter_model.safetensors", files->folder);
	snprintf(files->gguf_path, sizeof(files->gguf_path), "%s/adapter.gguf", files->folder);
	md_buf_init(&files->header);
	md_buf_init(&files->data);
}

static inline void files_end(struct adapter_files *files)
{
	lora_adapter_finish(&files->adapter);
	unlink(files->config_path);
	unlink(files->weights_path);
	unlink(files->gguf_path);
	rmdir(files->folder);
	md_buf_finish(&files->header);
	md_buf_finish(&files->data);
}

static inline void write_bytes(const char *path, const void *data, size_t size)
{
	FILE *file = fopen(path, "w");
	cr_assert(file && fwrite(data, 1, size, file) == size && fclose(file) == 0, "%s", path);
}

static inline void put_config(const struct adapter_files *files, const char *text)
{
	write_bytes(files->config_path, text, strlen(text));
}

/* Element i of a matrix: a number that float, half and bfloat16 all have. */
static inline float element(size_t i)
{
	return (float)(i % 251) - 125;
}

static inline void put_element(struct md_buf *buf, enum gguf_tensor_type type, float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	if (type == GGUF_TENSOR_F32)
		md_buf_put_u32(buf, bits);
	else if (type == GGUF_TENSOR_BF16)
		md_buf_put_u16(buf, (uint16_t)(bits >> 16));
	else
		md_buf_put_u16(buf, (uint16_t)(value == 0 ? 0
							  : (bits >> 16 & 0x8000) | ((bits >> 23 & 255) - 112) << 10 |
								(bits >> 13 & 0x3ff)));
}

static inline const char *dtype_of(enum gguf_tensor_type type)
{
	return type == GGUF_TENSOR_F32 ? "F32" : type == GGUF_TENSOR_F16 ? "F16" : "BF16";
}

/* A tensor of element(first), element(first + 1) ... */
static inline void put_tensor(struct adapter_files *files, const char *name, enum gguf_tensor_type type, size_t rows,
			      size_t columns, size_t first)
{
	char text[512];
	size_t begin = files->data.size;
	for (size_t i = 0; i < rows * columns; i++)
		put_element(&files->data, type, element(first + i));
	int size = snprintf(
	    text, sizeof(text), "%s\"%s\": {\"dtype\": \"%s\", \"shape\": [%zu, %zu], \"data_offsets\": [%zu, %zu]}",
	    files->tensors++ ? ", " : "{", name, dtype_of(type), rows, columns, begin, files->data.size);
	md_buf_put(&files->header, text, (size_t)size);
}

/* Both halves of a projection: A from element 0 on, B from element 7 on. */
static inline void put_pair(struct adapter_files *files, const char *module, enum gguf_tensor_type type, size_t rank,
			    size_t inputs, size_t outputs)
{
	char name[256];
	snprintf(name, sizeof(name), "%s.lora_A.weight", module);
	put_tensor(files, name, type, rank, inputs, 0);
	snprintf(name, sizeof(name), "%s.lora_B.weight", module);
	put_tensor(files, name, type, outputs, rank, 7);
}

/* A safetensors file of a header and the bytes behind it. */
static inline void put_weights(const struct adapter_files *files, const char *header, const void *data, size_t size)
{
	struct md_buf file;
	md_buf_init(&file);
	md_buf_put_u64(&file, strlen(header));
	md_buf_put(&file, header, strlen(header));
	md_buf_put(&file, data, size);
	write_bytes(files->weights_path, file.data, file.size);
	md_buf_finish(&file);
}

static inline void put_tensors(struct adapter_files *files)
{
	md_buf_put(&files->header, files->tensors ? "}" : "{}", files->tensors ? 2 : 3);
	put_weights(files, (const char *)files->header.data, files->data.data, files->data.size);
}

/* ---- GGUF --------------------------------------------------------------------------------------------------------- */

static inline void put_gguf_text(struct md_buf *buf, const char *text)
{
	md_buf_put_u64(buf, strlen(text));
	md_buf_put(buf, text, strlen(text));
}

static inline void put_gguf_pair(struct md_buf *values, const char *key, const char *value)
{
	put_gguf_text(values, key);
	md_buf_put_u32(values, GGUF_STRING);
	put_gguf_text(values, value);
}

static inline void put_gguf_alpha(struct md_buf *values, float alpha)
{
	put_gguf_text(values, "adapter.lora.alpha");
	md_buf_put_u32(values, GGUF_F32);
	md_buf_put(values, &alpha, sizeof(alpha));
}

/* Element i of a quantized block of 32 is i - 16. */
static inline void put_quantized(struct md_buf *data, size_t elements)
{
	for (size_t i = 0; i < elements; i++) {
		if (i % 32 == 0)
			md_buf_put_u16(data, 0x3c00);
		md_buf_put_u8(data, (uint8_t)(i % 32 - 16));
	}
}

static inline void put_gguf_tensor(struct adapter_files *files, const char *name, enum gguf_tensor_type type,
				   size_t rows, size_t columns, size_t first)
{
	while (files->data.size % 32)
		md_buf_put_u8(&files->data, 0);
	put_gguf_text(&files->header, name);
	md_buf_put_u32(&files->header, 2);
	md_buf_put_u64(&files->header, columns);
	md_buf_put_u64(&files->header, rows);
	md_buf_put_u32(&files->header, type);
	md_buf_put_u64(&files->header, files->data.size);
	for (size_t i = 0; type != GGUF_TENSOR_Q8_0 && i < rows * columns; i++)
		put_element(&files->data, type, element(first + i));
	if (type == GGUF_TENSOR_Q8_0)
		put_quantized(&files->data, rows * columns);
	files->tensors++;
}

/* The file of the tensors that were put, and of the given values. */
static inline void put_gguf(struct adapter_files *files, const struct md_buf *values, size_t value_count)
{
	struct md_buf file;
	md_buf_init(&file);
	md_buf_put(&file, "GGUF", 4);
	md_buf_put_u32(&file, 3);
	md_buf_put_u64(&file, files->tensors);
	md_buf_put_u64(&file, value_count);
	md_buf_put(&file, values->data, values->size);
	md_buf_put(&file, files->header.data, files->header.size);
	while (file.size % 32)
		md_buf_put_u8(&file, 0);
	md_buf_put(&file, files->data.data, files->data.size);
	write_bytes(files->gguf_path, file.data, file.size);
	md_buf_finish(&file);
}

/* What llama.cpp writes of an adapter with alpha 4. */
static inline void put_gguf_metadata(struct md_buf *values)
{
	md_buf_init(values);
	put_gguf_pair(values, "general.type", "adapter");
	put_gguf_pair(values, "general.architecture", "llama");
	put_gguf_pair(values, "adapter.type", "lora");
	put_gguf_alpha(values, 4);
}

/* ---- loading ------------------------------------------------------------------------------------------------------ */

static inline void assert_loaded(struct adapter_files *files, const char *path, const struct llama_shape *shape)
{
	cr_assert_eq(lora_adapter_load(&files->adapter, path, shape, LORA_MAX_RANK, 1 << 20, &files->err), MD_OK, "%s",
		     files->err.message);
}

static inline void assert_adapter_refused(struct adapter_files *files, const char *path, enum md_status status,
					  const char *words)
{
	enum md_status found =
	    lora_adapter_load(&files->adapter, path, &small_shape, LORA_MAX_RANK, 1 << 20, &files->err);
	cr_assert_eq(found, status, "status %d, wanted %d: %s, wanted: %s", (int)found, (int)status, files->err.message,
		     words);
	cr_assert(strstr(files->err.message, words), "\"%s\" does not say \"%s\"", files->err.message, words);
	cr_assert_null(files->adapter.weights, "outputs are set on success alone");
}

#endif
