/* SPDX-License-Identifier: Apache-2.0 */
/* Recipes: one table of keys gives the parser, the defaults and the ranges. */
#include "models/llama/recipe.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define MAX_RECIPE_BYTES 65536
#define FOREIGN "transformers_" /* keys for transformers' own model code, which needs more than this shape */

struct field {
	const char *key;
	size_t offset;
	bool real;
	double fallback; /* NAN: the key must be there */
	double low, high;
};

#define INTEGER(name, fallback, low, high)                                                                             \
	{                                                                                                              \
#name, offsetof(struct llama_shape, name), false, fallback, low, high                                  \
	}
#define REAL(name, fallback, low, high)                                                                                \
	{                                                                                                              \
#name, offsetof(struct llama_shape, name), true, fallback, low, high                                   \
	}

static const struct field fields[] = {
    INTEGER(hidden_size, (double)NAN, 8, 65536),
    INTEGER(intermediate_size, (double)NAN, 8, 262144),
    INTEGER(layers, (double)NAN, 1, 1024),
    INTEGER(heads, (double)NAN, 1, 1024),
    INTEGER(kv_heads, (double)NAN, 1, 1024),
    INTEGER(head_dim, (double)NAN, 2, 1024),
    INTEGER(vocabulary, (double)NAN, 2, 1048576),
    INTEGER(max_context, 2048, 16, 1048576),
    INTEGER(rope_interleaved, 0, 0, 1),
    INTEGER(tie_embeddings, 0, 0, 1),
    INTEGER(block_size, 16, 1, 1024),
    REAL(rope_theta, 10000, 1, 1e12),
    REAL(rms_epsilon, 1e-6, 1e-12, 1),
    REAL(scale, 0.02, 0, 100),
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static double get(const struct llama_shape *shape, const struct field *field)
{
	const char *slot = (const char *)shape + field->offset;
	return field->real ? *(const double *)slot : (double)*(const int *)slot;
}

static void set(struct llama_shape *shape, const struct field *field, double value)
{
	char *slot = (char *)shape + field->offset;
	if (field->real)
		*(double *)slot = value;
	else
		*(int *)slot = (int)value;
}

static enum md_status check_range(const struct field *field, double value, struct md_error *err)
{
	if (!(value >= field->low && value <= field->high) || (!field->real && value != floor(value)))
		return md_error_set(err, MD_ERR_INVALID, "%s is %g, it must be %s from %g to %g", field->key, value,
				    field->real ? "a number" : "an integer", field->low, field->high);
	return MD_OK;
}

/* Checks the ranges and relations that the engine and its kernels count on. */
static enum md_status check(const struct llama_shape *shape, struct md_error *err)
{
	for (size_t i = 0; i < FIELDS; i++)
		MD_FORWARD(check_range(&fields[i], get(shape, &fields[i]), err));
	if (shape->heads % shape->kv_heads)
		return md_error_set(err, MD_ERR_INVALID, "heads is %d, not a multiple of kv_heads %d", shape->heads,
				    shape->kv_heads);
	if (shape->head_dim % 2)
		return md_error_set(err, MD_ERR_INVALID, "head_dim is %d, it must be even to be rotated",
				    shape->head_dim);
	if ((double)shape->vocabulary * shape->hidden_size > 0x7fffffff ||
	    (double)shape->intermediate_size * shape->hidden_size > 0x7fffffff ||
	    (double)(shape->heads + 2 * shape->kv_heads) * shape->head_dim * shape->hidden_size > 0x7fffffff)
		return md_error_set(err, MD_ERR_TOO_LARGE, "a weight matrix has more than 2^31 elements");
	return MD_OK;
}

static const struct field *find_field(const char *key, size_t size)
{
	for (size_t i = 0; i < FIELDS; i++)
		if (strlen(fields[i].key) == size && !memcmp(fields[i].key, key, size))
			return &fields[i];
	return NULL;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static enum md_status parse_value(const char *text, size_t size, double *value, struct md_error *err)
{
	char copy[64], *end;
	if (!size || size >= sizeof(copy))
		return md_error_set(err, MD_ERR_INVALID, "a value of %zu characters", size);
	memcpy(copy, text, size);
	copy[size] = 0;
	if (!strcmp(copy, "true") || !strcmp(copy, "false")) {
		*value = copy[0] == 't';
		return MD_OK;
	}
	*value = strtod(copy, &end);
	if (*end || end == copy)
		return md_error_set(err, MD_ERR_INVALID, "\"%s\" is not a number, true or false", copy);
	return MD_OK;
}

static enum md_status parse_line(const char *line, size_t size, struct llama_shape *shape, bool *seen,
				 struct md_error *err)
{
	const char *comment = memchr(line, '#', size);
	if (comment)
		size = (size_t)(comment - line);
	while (size && is_blank(line[size - 1]))
		size--;
	if (!size)
		return MD_OK;
	const char *colon = memchr(line, ':', size);
	if (!colon || is_blank(line[0]))
		return md_error_set(err, MD_ERR_INVALID, "not a \"key: value\" line");
	if (size >= sizeof(FOREIGN) && !memcmp(line, FOREIGN, sizeof(FOREIGN) - 1))
		return MD_OK;
	const struct field *field = find_field(line, (size_t)(colon - line));
	if (!field)
		return md_error_set(err, MD_ERR_INVALID, "unknown key \"%.*s\"",
				    (int)(colon - line < 40 ? colon - line : 40), line);
	if (seen[field - fields])
		return md_error_set(err, MD_ERR_INVALID, "%s is given twice", field->key);
	seen[field - fields] = true;
	const char *value = colon + 1, *end = line + size;
	while (value < end && is_blank(*value))
		value++;
	double number = 0;
	MD_FORWARD(parse_value(value, (size_t)(end - value), &number, err));
	MD_FORWARD(check_range(field, number, err));
	set(shape, field, number);
	return MD_OK;
}

enum md_status recipe_parse(const char *text, size_t size, const char *name, struct llama_shape *shape,
			    struct md_error *err)
{
	struct llama_shape parsed = {0};
	bool seen[FIELDS] = {false};
	for (size_t at = 0, number = 1; at < size; number++) {
		const char *newline = memchr(text + at, '\n', size - at);
		size_t length = newline ? (size_t)(newline - text) - at : size - at;
		if (parse_line(text + at, length, &parsed, seen, err) != MD_OK)
			return md_error_prefix(err, "%s:%zu", name, number);
		at += length + 1;
	}
	for (size_t i = 0; i < FIELDS; i++) {
		if (!seen[i] && isnan(fields[i].fallback))
			return md_error_set(err, MD_ERR_INVALID, "%s: %s is missing", name, fields[i].key);
		if (!seen[i])
			set(&parsed, &fields[i], fields[i].fallback);
	}
	if (check(&parsed, err) != MD_OK)
		return md_error_prefix(err, "%s", name);
	*shape = parsed;
	return MD_OK;
}

enum md_status recipe_load(const char *path, struct llama_shape *shape, struct md_error *err)
{
	struct md_file_bytes file;
	MD_FORWARD(md_file_read(path, MAX_RECIPE_BYTES - 1, &file, err));
	enum md_status status = recipe_parse((const char *)file.data, file.size, path, shape, err);
	md_file_release(&file);
	return status;
}

static enum md_status gguf_integer_into(const struct gguf *gguf, const char *key, int *out, struct md_error *err)
{
	int64_t value;
	MD_FORWARD(gguf_get_integer(gguf, key, &value, err));
	if (value < 0 || value > 0x7fffffff)
		return md_error_set(err, MD_ERR_CORRUPT, "metadata \"%s\" is %lld", key, (long long)value);
	*out = (int)value;
	return MD_OK;
}

static enum md_status gguf_head_dim(const struct gguf *gguf, struct llama_shape *shape, struct md_error *err)
{
	int rotated;
	if (!shape->heads)
		return md_error_set(err, MD_ERR_CORRUPT, "metadata \"llama.attention.head_count\" is 0");
	shape->head_dim = shape->hidden_size / shape->heads;
	if (gguf_find(gguf, "llama.attention.key_length"))
		MD_FORWARD(gguf_integer_into(gguf, "llama.attention.key_length", &shape->head_dim, err));
	if (!gguf_find(gguf, "llama.rope.dimension_count"))
		return MD_OK;
	MD_FORWARD(gguf_integer_into(gguf, "llama.rope.dimension_count", &rotated, err));
	if (rotated != shape->head_dim)
		return md_error_set(err, MD_ERR_UNSUPPORTED, "%d of %d dimensions rotated; this engine rotates all",
				    rotated, shape->head_dim);
	return MD_OK;
}

enum md_status recipe_from_gguf(const struct gguf *gguf, struct llama_shape *shape, struct md_error *err)
{
	struct llama_shape found = {.rope_interleaved = 1, .block_size = 16, .rope_theta = 10000, .scale = 0.02};
	struct gguf_string architecture;
	MD_FORWARD(gguf_get_string(gguf, "general.architecture", &architecture, err));
	if (architecture.size != 5 || memcmp(architecture.data, "llama", 5))
		return md_error_set(err, MD_ERR_UNSUPPORTED, "architecture \"%.*s\"; this engine knows llama",
				    (int)(architecture.size < 32 ? architecture.size : 32), architecture.data);
	if (gguf_find(gguf, "llama.expert_count") || gguf_find(gguf, "llama.rope.scaling.type") ||
	    gguf_find_tensor(gguf, "rope_freqs.weight"))
		return md_error_set(err, MD_ERR_UNSUPPORTED,
				    "experts and scaled rotation are not known to this engine");
	MD_FORWARD(gguf_integer_into(gguf, "llama.embedding_length", &found.hidden_size, err));
	MD_FORWARD(gguf_integer_into(gguf, "llama.feed_forward_length", &found.intermediate_size, err));
	MD_FORWARD(gguf_integer_into(gguf, "llama.block_count", &found.layers, err));
	MD_FORWARD(gguf_integer_into(gguf, "llama.attention.head_count", &found.heads, err));
	found.kv_heads = found.heads;
	if (gguf_find(gguf, "llama.attention.head_count_kv"))
		MD_FORWARD(gguf_integer_into(gguf, "llama.attention.head_count_kv", &found.kv_heads, err));
	MD_FORWARD(gguf_head_dim(gguf, &found, err));
	MD_FORWARD(gguf_integer_into(gguf, "llama.context_length", &found.max_context, err));
	MD_FORWARD(gguf_get_float(gguf, "llama.attention.layer_norm_rms_epsilon", &found.rms_epsilon, err));
	if (gguf_find(gguf, "llama.rope.freq_base"))
		MD_FORWARD(gguf_get_float(gguf, "llama.rope.freq_base", &found.rope_theta, err));
	const struct gguf_tensor *embedding = gguf_find_tensor(gguf, "token_embd.weight");
	if (!embedding || embedding->dimensions != 2 || embedding->shape[1] > 0x7fffffff)
		return md_error_set(err, MD_ERR_CORRUPT, "tensor token_embd.weight is missing or no matrix");
	found.vocabulary = (int)embedding->shape[1];
	found.tie_embeddings = !gguf_find_tensor(gguf, "output.weight");
	MD_FORWARD(check(&found, err));
	*shape = found;
	return MD_OK;
}
