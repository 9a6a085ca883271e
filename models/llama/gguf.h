/* SPDX-License-Identifier: Apache-2.0 */
/* Reader of GGUF model files (versions 2 and 3): metadata, and where the tensors are; nothing is trusted. */
#ifndef LLAMA_GGUF_H
#define LLAMA_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum gguf_type {
	GGUF_U8 = 0,
	GGUF_I8 = 1,
	GGUF_U16 = 2,
	GGUF_I16 = 3,
	GGUF_U32 = 4,
	GGUF_I32 = 5,
	GGUF_F32 = 6,
	GGUF_BOOL = 7,
	GGUF_STRING = 8,
	GGUF_ARRAY = 9,
	GGUF_U64 = 10,
	GGUF_I64 = 11,
	GGUF_F64 = 12,
};

enum gguf_tensor_type {
	GGUF_TENSOR_F32 = 0,
	GGUF_TENSOR_F16 = 1,
	GGUF_TENSOR_Q4_0 = 2,
	GGUF_TENSOR_Q4_1 = 3,
	GGUF_TENSOR_Q8_0 = 8,
	GGUF_TENSOR_BF16 = 30,
};

struct gguf_string {
	const char *data; /* in the file's head, no NUL */
	size_t size;
};

struct gguf_value {
	struct gguf_string key;
	enum gguf_type type;
	enum gguf_type item_type; /* of an array */
	uint64_t count;           /* of an array; 1 otherwise */
	const uint8_t *data;      /* the encoded value, or the array's first item; checked to lie in the file */
	size_t size;              /* bytes of it */
};

struct gguf_tensor {
	struct gguf_string name;
	uint32_t dimensions;
	uint64_t shape[4]; /* shape[0] is the fastest-moving one; unused ones are 1 */
	enum gguf_tensor_type type;
	uint64_t elements;
	uint64_t offset; /* in the file */
	size_t size;     /* bytes, as the type and the shape say */
};

struct gguf {
	uint64_t file_bytes;
	bool from_file; /* fd is open, for the tensors; else the bytes are the caller's */
	int fd;
	void *head; /* of a file: all bytes before the tensors, and perhaps some of theirs */
	struct gguf_value *values;
	size_t value_count;
	struct gguf_tensor *tensors;
	size_t tensor_count;
};

/* Reads and checks what comes before the tensors. Errors name the file, and the offset of what is wrong. */
enum md_status gguf_open(struct gguf *gguf, const char *path, struct md_error *err);
/* The same over the caller's bytes, which must outlive the reader. */
enum md_status gguf_open_memory(struct gguf *gguf, const void *data, size_t size, struct md_error *err);
void gguf_close(struct gguf *gguf); /* also on a zeroed one */

const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key);          /* NULL if absent */
const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name); /* NULL if absent */

/* Scalars: any integer type for an integer, any float type for a float. Errors: MD_ERR_NOT_FOUND, MD_ERR_CORRUPT. */
enum md_status gguf_get_integer(const struct gguf *gguf, const char *key, int64_t *out, struct md_error *err);
enum md_status gguf_get_float(const struct gguf *gguf, const char *key, double *out, struct md_error *err);
enum md_status gguf_get_string(const struct gguf *gguf, const char *key, struct gguf_string *out, struct md_error *err);

/* Walks an array of strings: start with *cursor = 0; false at the end. */
bool gguf_next_string(const struct gguf_value *array, size_t *cursor, struct gguf_string *out);
/* Item i (< count) of an array of integers. */
int64_t gguf_array_integer(const struct gguf_value *array, uint64_t i);

/*
 * Where elements [first, first + count) are in the file. Quantized tensors come in blocks of 32: first and count are
 * multiples of 32.
 */
void gguf_locate(const struct gguf_tensor *tensor, uint64_t first, uint64_t count, uint64_t *offset, size_t *bytes);
/* So many elements as bfloat16, rounded to nearest even. data may lie at any address. */
void gguf_to_bf16(enum gguf_tensor_type type, const uint8_t *data, uint64_t count, uint16_t *out);

uint16_t gguf_bf16_from_float(float value);
float gguf_float_from_half(uint16_t half);

#endif
