/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the header of a safetensors file:
 *
 *     8 bytes    size of the header, little-endian
 *     header     JSON: {"NAME": {"dtype": "F16", "shape": [2, 3], "data_offsets": [BEGIN, END]}, ..., "__metadata__": {}}
 *     bytes      of all tensors, without gaps; offsets count from here
 */
#include "models/llama/adapters/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "models/llama/adapters/plan.h"

#define MOST_HEADER_BYTES (2u << 20) /* of 14,000 tensors. The parsed tree may take a hundred times as much */
#define METADATA "__metadata__"

static enum md_status refuse_tensor(const struct safetensors_tensor *tensor, const char *why, struct md_error *err)
{
	char shown[LORA_SHOWN_BYTES];
	return md_error_set(err, MD_ERR_CORRUPT, "tensor \"%s\": %s",
			    lora_show_name(shown, tensor->name, strlen(tensor->name)), why);
}

static enum md_status read_type(const json_t *value, struct safetensors_tensor *tensor, struct md_error *err)
{
	static const struct {
		const char *name;
		enum gguf_tensor_type type;
	} types[] = {{"F32", GGUF_TENSOR_F32}, {"F16", GGUF_TENSOR_F16}, {"BF16", GGUF_TENSOR_BF16}};
	const char *text = json_string_value(value);
	char name[LORA_SHOWN_BYTES], shown[LORA_SHOWN_BYTES];
	if (!text)
		return refuse_tensor(tensor, "dtype is no string", err);
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(text, types[i].name)) {
			tensor->type = types[i].type;
			return MD_OK;
		}
	return md_error_set(err, MD_ERR_UNSUPPORTED, "tensor \"%s\" has dtype \"%s\"; known are F32, F16 and BF16",
			    lora_show_name(name, tensor->name, strlen(tensor->name)),
			    lora_show_name(shown, text, strlen(text) < 32 ? strlen(text) : 32));
}

static bool read_numbers(const json_t *list, size_t count, uint64_t *out)
{
	for (size_t i = 0; i < count; i++) {
		const json_t *item = json_array_get(list, i);
		if (!json_is_integer(item) || json_integer_value(item) < 0)
			return false;
		out[i] = (uint64_t)json_integer_value(item);
	}
	return true;
}

static enum md_status read_shape(const json_t *value, struct safetensors_tensor *tensor, struct md_error *err)
{
	tensor->dimensions = json_array_size(value);
	if (!json_is_array(value) || tensor->dimensions > SAFETENSORS_MOST_DIMENSIONS ||
	    !read_numbers(value, tensor->dimensions, tensor->shape))
		return refuse_tensor(tensor, "shape is no list of at most 4 numbers", err);
	return MD_OK;
}

static enum md_status read_place(const json_t *value, struct safetensors_tensor *tensor, struct md_error *err)
{
	uint64_t ends[2], size = tensor->type == GGUF_TENSOR_F32 ? 4 : 2;
	if (json_array_size(value) != 2 || !read_numbers(value, 2, ends) || ends[0] > ends[1])
		return refuse_tensor(tensor, "data_offsets are not two ascending numbers", err);
	for (size_t i = 0; i < tensor->dimensions; i++)
		if (__builtin_mul_overflow(size, tensor->shape[i], &size))
			return refuse_tensor(tensor, "an impossible shape", err);
	tensor->begin = ends[0];
	tensor->end = ends[1];
	if (size != ends[1] - ends[0]) {
		char shown[LORA_SHOWN_BYTES];
		return md_error_set(err, MD_ERR_CORRUPT,
				    "tensor \"%s\" has %llu bytes by its shape, and %llu by its offsets",
				    lora_show_name(shown, tensor->name, strlen(tensor->name)), (unsigned long long)size,
				    (unsigned long long)(ends[1] - ends[0]));
	}
	return MD_OK;
}

static enum md_status read_tensor(const char *name, const json_t *value, struct safetensors_tensor *tensor,
				  struct md_error *err)
{
	*tensor = (struct safetensors_tensor){.name = name};
	if (json_object_size(value) != 3)
		return refuse_tensor(tensor, "not an object of dtype, shape and data_offsets", err);
	MD_FORWARD(read_type(json_object_get(value, "dtype"), tensor, err));
	MD_FORWARD(read_shape(json_object_get(value, "shape"), tensor, err));
	return read_place(json_object_get(value, "data_offsets"), tensor, err);
}

static enum md_status check_metadata(json_t *metadata, struct md_error *err)
{
	const char *key;
	json_t *value;
	if (!json_is_object(metadata))
		return md_error_set(err, MD_ERR_CORRUPT, "the header's " METADATA " is no object");
	json_object_foreach(metadata, key, value)
	{
		if (!json_is_string(value))
			return md_error_set(err, MD_ERR_CORRUPT,
					    "the header's " METADATA " has values that are no text");
	}
	return MD_OK;
}

static enum md_status read_tensors(struct safetensors *file, struct md_error *err)
{
	const char *key;
	json_t *value;
	file->tensors = calloc(json_object_size(file->header) + 1, sizeof(*file->tensors));
	if (!file->tensors)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a list of %zu tensors",
				    json_object_size(file->header));
	json_object_foreach(file->header, key, value)
	{
		if (!strcmp(key, METADATA))
			MD_FORWARD(check_metadata(value, err));
		else
			MD_FORWARD(read_tensor(key, value, &file->tensors[file->count++], err));
	}
	return MD_OK;
}

/* An empty tensor stands before the one that begins at the same byte. */
static int compare_places(const void *a, const void *b)
{
	const struct safetensors_tensor *left = a, *right = b;
	if (left->begin != right->begin)
		return left->begin < right->begin ? -1 : 1;
	return (left->end > right->end) - (left->end < right->end);
}

static enum md_status check_places(struct safetensors *file, uint64_t bytes, struct md_error *err)
{
	uint64_t next = 0;
	char shown[LORA_SHOWN_BYTES];
	qsort(file->tensors, file->count, sizeof(*file->tensors), compare_places);
	for (size_t i = 0; i < file->count; next = file->tensors[i++].end) {
		const struct safetensors_tensor *tensor = &file->tensors[i];
		lora_show_name(shown, tensor->name, strlen(tensor->name));
		if (tensor->begin != next)
			return md_error_set(err, MD_ERR_CORRUPT,
					    "tensor \"%s\" begins at byte %llu, the bytes before it end at %llu: %s",
					    shown, (unsigned long long)tensor->begin, (unsigned long long)next,
					    tensor->begin < next ? "tensors overlap"
								 : "the bytes between belong to none");
		if (tensor->end > bytes)
			return md_error_set(
			    err, MD_ERR_TRUNCATED,
			    "tensor \"%s\" ends at byte %llu behind the header, the file has %llu there", shown,
			    (unsigned long long)tensor->end, (unsigned long long)bytes);
	}
	if (next != bytes)
		return md_error_set(err, MD_ERR_CORRUPT, "%llu bytes at the end of the file belong to no tensor",
				    (unsigned long long)(bytes - next));
	return MD_OK;
}

static enum md_status parse_header(struct safetensors *file, const char *text, size_t size, struct md_error *err)
{
	if (!size || text[0] != '{')
		return md_error_set(err, MD_ERR_CORRUPT, "the header does not begin with {: not a safetensors file");
	if (adapter_json_parse(text, size, &file->header, err) != MD_OK)
		return md_error_prefix(err, "the header");
	return read_tensors(file, err);
}

static enum md_status read_size(const struct md_file_source *source, uint64_t *size, struct md_error *err)
{
	const void *data;
	MD_AUTO_FREE void *owned = NULL;
	struct md_reader reader;
	if (source->size < 8)
		return md_error_set(err, MD_ERR_TRUNCATED, "%llu bytes: not a safetensors file",
				    (unsigned long long)source->size);
	MD_FORWARD(md_file_source_take(source, 0, 8, &data, &owned, err));
	md_reader_init(&reader, data, 8);
	*size = md_reader_u64(&reader);
	if (*size > MOST_HEADER_BYTES)
		return md_error_set(
		    err, MD_ERR_TOO_LARGE,
		    "the header would be larger than %u bytes: not a safetensors file, or not an adapter",
		    MOST_HEADER_BYTES);
	if (*size > source->size - 8)
		return md_error_set(err, MD_ERR_TRUNCATED, "the header would go beyond the file's %llu bytes",
				    (unsigned long long)source->size);
	return MD_OK;
}

enum md_status safetensors_read(struct safetensors *file, const struct md_file_source *source, struct md_error *err)
{
	uint64_t size = 0;
	const void *text;
	MD_AUTO_FREE void *owned = NULL;
	*file = (struct safetensors){0};
	MD_FORWARD(read_size(source, &size, err));
	MD_FORWARD(md_file_source_take(source, 8, (size_t)size, &text, &owned, err));
	file->data_offset = 8 + size;
	enum md_status status = parse_header(file, text, (size_t)size, err);
	if (status == MD_OK)
		status = check_places(file, source->size - file->data_offset, err);
	if (status != MD_OK)
		safetensors_finish(file);
	return status;
}

void safetensors_finish(struct safetensors *file)
{
	json_decref(file->header);
	free(file->tensors);
	memset(file, 0, sizeof(*file));
}
