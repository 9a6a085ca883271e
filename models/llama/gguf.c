/* SPDX-License-Identifier: Apache-2.0 */
/* Reader of GGUF model files: every count, size and offset is checked against the file before it is used. */
#include "models/llama/gguf.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"

#define MAGIC 0x46554747u /* "GGUF" */
#define MAX_ENTRIES 65536u
#define DEFAULT_ALIGNMENT 32u
#define BLOCK 32u
#define HEAD_BYTES (1u << 20)      /* read at first: the head of most files */
#define MOST_HEAD_BYTES (1u << 30) /* a million tokens with their merges take a twentieth of this */

static size_t scalar_size(uint32_t type)
{
	switch (type) {
	case GGUF_U8:
	case GGUF_I8:
	case GGUF_BOOL:
		return 1;
	case GGUF_U16:
	case GGUF_I16:
		return 2;
	case GGUF_U32:
	case GGUF_I32:
	case GGUF_F32:
		return 4;
	case GGUF_U64:
	case GGUF_I64:
	case GGUF_F64:
		return 8;
	default:
		return 0;
	}
}

static enum md_status truncated(const struct md_reader *reader, const char *what, struct md_error *err)
{
	return md_error_set(err, MD_ERR_TRUNCATED, "offset %zu: the file ends inside %s", reader->failed_at, what);
}

static enum md_status read_string(struct md_reader *reader, struct gguf_string *out, const char *what,
				  struct md_error *err)
{
	uint64_t size = md_reader_u64(reader);
	size_t at = reader->offset;
	if (reader->failed)
		return truncated(reader, what, err);
	if (size > md_reader_left(reader))
		return md_error_set(err, MD_ERR_TRUNCATED, "offset %zu: %s of %llu bytes, the file has %zu left", at,
				    what, (unsigned long long)size, md_reader_left(reader));
	*out = (struct gguf_string){md_reader_take(reader, size), size};
	return MD_OK;
}

/* Strings have to be walked to know where the array ends; this is also what makes gguf_next_string safe. */
static enum md_status skip_strings(struct md_reader *reader, uint64_t count, struct md_error *err)
{
	for (uint64_t i = 0; i < count; i++) {
		struct gguf_string ignored;
		MD_FORWARD(read_string(reader, &ignored, "a string of an array", err));
	}
	return MD_OK;
}

static enum md_status read_array(struct md_reader *reader, struct gguf_value *value, struct md_error *err)
{
	size_t at = reader->offset;
	uint32_t item_type = md_reader_u32(reader);
	uint64_t count = md_reader_u64(reader);
	if (reader->failed)
		return truncated(reader, "an array's head", err);
	size_t item_bytes = scalar_size(item_type);
	if (!item_bytes && item_type != GGUF_STRING)
		return md_error_set(err, MD_ERR_CORRUPT, "offset %zu: array of unknown type %u", at, item_type);
	/* a string takes 8 bytes at least */
	if (count > md_reader_left(reader) / (item_bytes ? item_bytes : 8))
		return md_error_set(err, MD_ERR_TRUNCATED,
				    "offset %zu: array of %llu items, the file has %zu bytes left", at,
				    (unsigned long long)count, md_reader_left(reader));
	value->item_type = (enum gguf_type)item_type;
	value->count = count;
	value->data = reader->data + reader->offset;
	if (item_bytes)
		md_reader_take(reader, count * item_bytes);
	else
		MD_FORWARD(skip_strings(reader, count, err));
	value->size = (size_t)(reader->data + reader->offset - value->data);
	return MD_OK;
}

static enum md_status read_value(struct md_reader *reader, struct gguf_value *value, struct md_error *err)
{
	MD_FORWARD(read_string(reader, &value->key, "a metadata key", err));
	size_t at = reader->offset;
	uint32_t type = md_reader_u32(reader);
	if (reader->failed)
		return truncated(reader, "a metadata type", err);
	value->type = (enum gguf_type)type;
	value->count = 1;
	if (type == GGUF_ARRAY)
		return read_array(reader, value, err);
	if (type == GGUF_STRING) {
		struct gguf_string text;
		MD_FORWARD(read_string(reader, &text, "a metadata string", err));
		value->data = (const uint8_t *)text.data;
		value->size = text.size;
		return MD_OK;
	}
	value->size = scalar_size(type);
	if (!value->size)
		return md_error_set(err, MD_ERR_CORRUPT, "offset %zu: metadata \"%.*s\" has unknown type %u", at,
				    (int)(value->key.size < 64 ? value->key.size : 64), value->key.data, type);
	value->data = md_reader_take(reader, value->size);
	return value->data ? MD_OK : truncated(reader, "a metadata value", err);
}

static bool tensor_block(uint32_t type, uint32_t *elements, uint32_t *bytes)
{
	switch (type) {
	case GGUF_TENSOR_F32:
		*elements = 1, *bytes = 4;
		return true;
	case GGUF_TENSOR_F16:
	case GGUF_TENSOR_BF16:
		*elements = 1, *bytes = 2;
		return true;
	case GGUF_TENSOR_Q4_0:
		*elements = BLOCK, *bytes = 18;
		return true;
	case GGUF_TENSOR_Q4_1:
		*elements = BLOCK, *bytes = 20;
		return true;
	case GGUF_TENSOR_Q8_0:
		*elements = BLOCK, *bytes = 34;
		return true;
	default:
		return false;
	}
}

static enum md_status size_tensor(struct gguf_tensor *tensor, size_t at, struct md_error *err)
{
	int shown = (int)(tensor->name.size < 64 ? tensor->name.size : 64);
	uint32_t per_block, block_bytes;
	if (!tensor_block(tensor->type, &per_block, &block_bytes))
		return md_error_set(
		    err, MD_ERR_UNSUPPORTED,
		    "offset %zu: tensor \"%.*s\" has type %d; known are F32, F16, BF16, Q4_0, Q4_1, Q8_0", at, shown,
		    tensor->name.data, (int)tensor->type);
	tensor->elements = 1;
	for (uint32_t d = 0; d < 4; d++)
		if (!tensor->shape[d] || __builtin_mul_overflow(tensor->elements, tensor->shape[d], &tensor->elements))
			return md_error_set(err, MD_ERR_CORRUPT, "offset %zu: tensor \"%.*s\" has an impossible shape",
					    at, shown, tensor->name.data);
	if (tensor->shape[0] % per_block)
		return md_error_set(err, MD_ERR_CORRUPT,
				    "offset %zu: tensor \"%.*s\" has rows of %llu, not a multiple of %u", at, shown,
				    tensor->name.data, (unsigned long long)tensor->shape[0], per_block);
	if (__builtin_mul_overflow(tensor->elements / per_block, (uint64_t)block_bytes, &tensor->size))
		return md_error_set(err, MD_ERR_TOO_LARGE, "offset %zu: tensor \"%.*s\" is too large", at, shown,
				    tensor->name.data);
	return MD_OK;
}

/* The data section begins after the last record, so a tensor is placed later (place_tensors). */
static enum md_status read_tensor(struct md_reader *reader, struct gguf_tensor *tensor, uint64_t *data_offset,
				  struct md_error *err)
{
	MD_FORWARD(read_string(reader, &tensor->name, "a tensor name", err));
	size_t at = reader->offset;
	tensor->dimensions = md_reader_u32(reader);
	if (!reader->failed && (tensor->dimensions < 1 || tensor->dimensions > 4))
		return md_error_set(err, MD_ERR_CORRUPT, "offset %zu: a tensor of %u dimensions", at,
				    tensor->dimensions);
	for (uint32_t d = 0; d < 4; d++)
		tensor->shape[d] = !reader->failed && d < tensor->dimensions ? md_reader_u64(reader) : 1;
	tensor->type = (enum gguf_tensor_type)md_reader_u32(reader);
	*data_offset = md_reader_u64(reader);
	if (reader->failed)
		return truncated(reader, "a tensor record", err);
	return size_tensor(tensor, at, err);
}

static enum md_status place_tensors(struct gguf *gguf, const uint64_t *offsets, size_t records_end,
				    struct md_error *err)
{
	int64_t alignment = DEFAULT_ALIGNMENT;
	if (gguf_find(gguf, "general.alignment"))
		MD_FORWARD(gguf_get_integer(gguf, "general.alignment", &alignment, err));
	if (alignment <= 0 || alignment > 1 << 20 || (alignment & (alignment - 1)))
		return md_error_set(err, MD_ERR_CORRUPT, "general.alignment is %lld", (long long)alignment);
	uint64_t base = (records_end + (uint64_t)alignment - 1) & ~((uint64_t)alignment - 1);
	for (size_t i = 0; i < gguf->tensor_count; i++) {
		struct gguf_tensor *tensor = &gguf->tensors[i];
		uint64_t start, end;
		if (offsets[i] % (uint64_t)alignment || __builtin_add_overflow(base, offsets[i], &start) ||
		    __builtin_add_overflow(start, tensor->size, &end) || end > gguf->file_bytes)
			return md_error_set(err, MD_ERR_TRUNCATED,
					    "tensor \"%.*s\" at offset %llu + %llu, %zu bytes: not in a file of %llu",
					    (int)(tensor->name.size < 64 ? tensor->name.size : 64), tensor->name.data,
					    (unsigned long long)base, (unsigned long long)offsets[i], tensor->size,
					    (unsigned long long)gguf->file_bytes);
		tensor->offset = start;
	}
	return MD_OK;
}

/* MD_ERR_TRUNCATED: the head may go on behind the bytes that are there. */
static enum md_status read_head(struct gguf *gguf, struct md_reader *reader, uint64_t **offsets, struct md_error *err)
{
	uint32_t magic = md_reader_u32(reader), version = md_reader_u32(reader);
	uint64_t tensors = md_reader_u64(reader), values = md_reader_u64(reader);
	if (reader->failed)
		return truncated(reader, "the header", err);
	if (magic != MAGIC)
		return md_error_set(err, MD_ERR_CORRUPT, "offset 0: not a GGUF file");
	if (version != 2 && version != 3)
		return md_error_set(err, MD_ERR_VERSION, "offset 4: GGUF version %u, known are 2 and 3", version);
	if (tensors > MAX_ENTRIES || values > MAX_ENTRIES)
		return md_error_set(err, MD_ERR_TOO_LARGE, "offset 8: %llu tensors and %llu values, at most %u each",
				    (unsigned long long)tensors, (unsigned long long)values, MAX_ENTRIES);
	gguf->values = calloc(values + 1, sizeof(*gguf->values));
	gguf->tensors = calloc(tensors + 1, sizeof(*gguf->tensors));
	*offsets = calloc(tensors + 1, sizeof(**offsets));
	if (!gguf->values || !gguf->tensors || !*offsets)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the directory of a GGUF file");
	for (; gguf->value_count < values; gguf->value_count++)
		MD_FORWARD(read_value(reader, &gguf->values[gguf->value_count], err));
	for (; gguf->tensor_count < tensors; gguf->tensor_count++)
		MD_FORWARD(
		    read_tensor(reader, &gguf->tensors[gguf->tensor_count], &(*offsets)[gguf->tensor_count], err));
	return MD_OK;
}

static void drop_lists(struct gguf *gguf)
{
	free(gguf->values);
	free(gguf->tensors);
	gguf->values = NULL;
	gguf->tensors = NULL;
	gguf->value_count = gguf->tensor_count = 0;
}

/* The first `size` bytes of the file are at data. *more: the head does not end there, and the file is larger. */
static enum md_status read_all(struct gguf *gguf, const void *data, size_t size, bool *more, struct md_error *err)
{
	MD_AUTO_FREE uint64_t *offsets = NULL;
	struct md_reader reader;
	md_reader_init(&reader, data, size);
	enum md_status status = read_head(gguf, &reader, &offsets, err);
	*more = status == MD_ERR_TRUNCATED && size < gguf->file_bytes;
	if (status == MD_OK)
		status = place_tensors(gguf, offsets, reader.offset, err);
	if (status != MD_OK)
		drop_lists(gguf);
	return status;
}

enum md_status gguf_open_memory(struct gguf *gguf, const void *data, size_t size, struct md_error *err)
{
	bool more;
	*gguf = (struct gguf){.file_bytes = size};
	return read_all(gguf, data, size, &more, err);
}

/* Where the head ends is known when it has been read. A file is read, never mapped: base/file.h says why. */
static enum md_status read_file(struct gguf *gguf, int fd, struct md_error *err)
{
	const struct md_file_source source = {.fd = fd, .size = gguf->file_bytes};
	uint64_t most = source.size < MOST_HEAD_BYTES ? source.size : MOST_HEAD_BYTES;
	bool more = true;
	for (uint64_t bytes = HEAD_BYTES; more; bytes *= 4) {
		const void *data;
		free(md_steal_ptr(&gguf->head));
		bytes = bytes < most ? bytes : most;
		MD_FORWARD(md_file_source_take(&source, 0, (size_t)bytes, &data, &gguf->head, err));
		enum md_status status = read_all(gguf, data, (size_t)bytes, &more, err);
		if (!more)
			return status;
		if (bytes == MOST_HEAD_BYTES)
			break;
	}
	return md_error_set(err, MD_ERR_TOO_LARGE, "the metadata do not end within %u bytes", MOST_HEAD_BYTES);
}

enum md_status gguf_open(struct gguf *gguf, const char *path, struct md_error *err)
{
	memset(gguf, 0, sizeof(*gguf));
	MD_AUTO_FD int fd = -1;
	MD_FORWARD(md_file_open(path, UINT64_MAX, &fd, &gguf->file_bytes, err));
	if (!gguf->file_bytes)
		return md_error_set(err, MD_ERR_INVALID, "%s: an empty file", path);
	if (read_file(gguf, fd, err) != MD_OK) {
		gguf_close(gguf);
		return md_error_prefix(err, "%s", path);
	}
	gguf->fd = md_steal_fd(&fd);
	gguf->from_file = true;
	return MD_OK;
}

void gguf_close(struct gguf *gguf)
{
	drop_lists(gguf);
	free(gguf->head);
	if (gguf->from_file)
		close(gguf->fd);
	memset(gguf, 0, sizeof(*gguf));
}

static bool string_is(const struct gguf_string *string, const char *text)
{
	return string->size == strlen(text) && !memcmp(string->data, text, string->size);
}

const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key)
{
	for (size_t i = 0; i < gguf->value_count; i++)
		if (string_is(&gguf->values[i].key, key))
			return &gguf->values[i];
	return NULL;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name)
{
	for (size_t i = 0; i < gguf->tensor_count; i++)
		if (string_is(&gguf->tensors[i].name, name))
			return &gguf->tensors[i];
	return NULL;
}

static int64_t integer_at(enum gguf_type type, const uint8_t *data)
{
	struct md_reader reader;
	md_reader_init(&reader, data, 8);
	switch (type) {
	case GGUF_U8:
	case GGUF_BOOL:
		return data[0];
	case GGUF_I8:
		return (int8_t)data[0];
	case GGUF_U16:
		return md_reader_u16(&reader);
	case GGUF_I16:
		return (int16_t)md_reader_u16(&reader);
	case GGUF_U32:
		return md_reader_u32(&reader);
	case GGUF_I32:
		return (int32_t)md_reader_u32(&reader);
	default:
		return (int64_t)md_reader_u64(&reader);
	}
}

static bool is_integer(enum gguf_type type)
{
	return scalar_size(type) && type != GGUF_F32 && type != GGUF_F64;
}

static enum md_status find_needed(const struct gguf *gguf, const char *key, const struct gguf_value **out,
				  struct md_error *err)
{
	*out = gguf_find(gguf, key);
	return *out ? MD_OK : md_error_set(err, MD_ERR_NOT_FOUND, "metadata \"%s\" is missing", key);
}

static enum md_status wrong_type(const struct gguf_value *value, const char *key, const char *want,
				 struct md_error *err)
{
	return md_error_set(err, MD_ERR_CORRUPT, "metadata \"%s\" has type %d, wanted %s", key, (int)value->type, want);
}

enum md_status gguf_get_integer(const struct gguf *gguf, const char *key, int64_t *out, struct md_error *err)
{
	const struct gguf_value *value;
	MD_FORWARD(find_needed(gguf, key, &value, err));
	if (!is_integer(value->type))
		return wrong_type(value, key, "an integer", err);
	*out = integer_at(value->type, value->data);
	return MD_OK;
}

enum md_status gguf_get_float(const struct gguf *gguf, const char *key, double *out, struct md_error *err)
{
	const struct gguf_value *value;
	MD_FORWARD(find_needed(gguf, key, &value, err));
	if (value->type == GGUF_F32) {
		float single;
		memcpy(&single, value->data, sizeof(single));
		*out = (double)single;
	} else if (value->type == GGUF_F64) {
		memcpy(out, value->data, sizeof(*out));
	} else {
		return wrong_type(value, key, "a float", err);
	}
	return MD_OK;
}

enum md_status gguf_get_string(const struct gguf *gguf, const char *key, struct gguf_string *out, struct md_error *err)
{
	const struct gguf_value *value;
	MD_FORWARD(find_needed(gguf, key, &value, err));
	if (value->type != GGUF_STRING)
		return wrong_type(value, key, "a string", err);
	*out = (struct gguf_string){(const char *)value->data, value->size};
	return MD_OK;
}

bool gguf_next_string(const struct gguf_value *array, size_t *cursor, struct gguf_string *out)
{
	if (array->type != GGUF_ARRAY || array->item_type != GGUF_STRING || *cursor >= array->size)
		return false;
	struct md_reader reader;
	md_reader_init(&reader, array->data, array->size);
	reader.offset = *cursor;
	uint64_t size = md_reader_u64(&reader);
	const char *data = md_reader_take(&reader, size);
	if (reader.failed)
		return false;
	*out = (struct gguf_string){data, size};
	*cursor = reader.offset;
	return true;
}

int64_t gguf_array_integer(const struct gguf_value *array, uint64_t i)
{
	if (array->type != GGUF_ARRAY || !is_integer(array->item_type) || i >= array->count)
		return 0;
	return integer_at(array->item_type, array->data + i * scalar_size(array->item_type));
}

/* No branch: a compiler can make vector instructions of it. A NaN stays one. */
uint16_t gguf_bf16_from_float(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
	return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

float gguf_float_from_half(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, mantissa = half & 0x3ff, bits;
	if (exponent == 0) {
		float value = (float)mantissa * 0x1p-24f;
		return sign ? -value : value;
	}
	bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | mantissa << 13;
	float value;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint16_t get_u16(const uint8_t *data)
{
	return (uint16_t)(data[0] | data[1] << 8);
}

/* The low nibbles are elements 0..15 of the block, the high ones 16..31. */
static void unpack_q4(const uint8_t *nibbles, float scale, float shift, uint16_t *out)
{
	for (unsigned i = 0; i < BLOCK / 2; i++) {
		out[i] = gguf_bf16_from_float(scale * (float)(nibbles[i] & 15) + shift);
		out[i + BLOCK / 2] = gguf_bf16_from_float(scale * (float)(nibbles[i] >> 4) + shift);
	}
}

static void unpack_block(enum gguf_tensor_type type, const uint8_t *block, uint16_t *out)
{
	float scale = gguf_float_from_half(get_u16(block));
	if (type == GGUF_TENSOR_Q4_0) {
		unpack_q4(block + 2, scale, -8 * scale, out);
	} else if (type == GGUF_TENSOR_Q4_1) {
		unpack_q4(block + 4, scale, gguf_float_from_half(get_u16(block + 2)), out);
	} else {
		for (unsigned i = 0; i < BLOCK; i++)
			out[i] = gguf_bf16_from_float(scale * (float)(int8_t)block[2 + i]);
	}
}

void gguf_locate(const struct gguf_tensor *tensor, uint64_t first, uint64_t count, uint64_t *offset, size_t *bytes)
{
	uint32_t per_block = 1, block_bytes = 0;
	tensor_block(tensor->type, &per_block, &block_bytes);
	*offset = tensor->offset + first / per_block * block_bytes;
	*bytes = (size_t)(count / per_block * block_bytes);
}

static void convert_floats(const uint8_t *data, uint64_t count, uint16_t *out)
{
	for (; count >= BLOCK; count -= BLOCK, data += BLOCK * sizeof(float), out += BLOCK) {
		float some[BLOCK];
		memcpy(some, data, sizeof(some));
		for (unsigned i = 0; i < BLOCK; i++) /* a number that the compiler knows */
			out[i] = gguf_bf16_from_float(some[i]);
	}
	for (uint64_t i = 0; i < count; i++) {
		float single;
		memcpy(&single, data + i * sizeof(single), sizeof(single));
		out[i] = gguf_bf16_from_float(single);
	}
}

static uint16_t bf16_of_half[1 << 16]; /* 128 KiB, which a processor's cache holds */
static pthread_once_t halves_once = PTHREAD_ONCE_INIT;

static void list_halves(void)
{
	for (uint32_t half = 0; half < 1 << 16; half++)
		bf16_of_half[half] = gguf_bf16_from_float(gguf_float_from_half((uint16_t)half));
}

static void convert_halves(const uint8_t *data, uint64_t count, uint16_t *out)
{
	pthread_once(&halves_once, list_halves);
	for (uint64_t i = 0; i < count; i++)
		out[i] = bf16_of_half[get_u16(data + i * 2)];
}

void gguf_to_bf16(enum gguf_tensor_type type, const uint8_t *data, uint64_t count, uint16_t *out)
{
	uint32_t per_block, block_bytes;
	if (!tensor_block(type, &per_block, &block_bytes))
		return;
	switch (type) {
	case GGUF_TENSOR_BF16:
		memcpy(out, data, count * sizeof(*out));
		return;
	case GGUF_TENSOR_F32:
		convert_floats(data, count, out);
		return;
	case GGUF_TENSOR_F16:
		convert_halves(data, count, out);
		return;
	default:
		for (uint64_t i = 0; i < count; i += per_block, data += block_bytes, out += per_block)
			unpack_block(type, data, out);
	}
}
