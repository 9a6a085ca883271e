/* SPDX-License-Identifier: Apache-2.0 */
/* Prints an adapter: ranks, scales and layers of each projection, its memory, and a hash of what it computes with. */
#include "models/llama/adapters/adapter_check.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/hash.h"

static const char *const names[LORA_PROJECTIONS] = {
    [LORA_QUERY] = "query", [LORA_KEY] = "key", [LORA_VALUE] = "value", [LORA_OUTPUT] = "output",
    [LORA_GATE] = "gate",   [LORA_UP] = "up",   [LORA_DOWN] = "down",
};

struct span {
	int layers, first_layer, last_layer, least_rank, most_rank;
	float least_scale, most_scale;
};

static const struct lora_part *part_of(const struct lora_adapter *adapter, int layer, int projection)
{
	return &adapter->parts[(size_t)layer * LORA_PROJECTIONS + (size_t)projection];
}

static struct span span_of(const struct lora_adapter *adapter, int projection)
{
	struct span span = {.layers = 0};
	for (int layer = 0; layer < adapter->layers; layer++) {
		const struct lora_part *part = part_of(adapter, layer, projection);
		if (!part->a)
			continue;
		bool first = !span.layers++;
		span.first_layer = first ? layer : span.first_layer;
		span.last_layer = layer;
		span.least_rank = first || part->rank < span.least_rank ? part->rank : span.least_rank;
		span.most_rank = part->rank > span.most_rank ? part->rank : span.most_rank;
		span.least_scale = first || part->scale < span.least_scale ? part->scale : span.least_scale;
		span.most_scale = first || part->scale > span.most_scale ? part->scale : span.most_scale;
	}
	return span;
}

static void print_projection(const struct lora_adapter *adapter, int projection)
{
	struct span span = span_of(adapter, projection);
	if (!span.layers)
		return;
	printf("%-6s  %d of %d layers (%d to %d), rank %d", names[projection], span.layers, adapter->layers,
	       span.first_layer, span.last_layer, span.least_rank);
	if (span.most_rank != span.least_rank)
		printf(" to %d", span.most_rank);
	printf(", scale %g", (double)span.least_scale);
	if (span.most_scale != span.least_scale)
		printf(" to %g", (double)span.most_scale);
	putchar('\n');
}

static void add_part(struct md_hash_stream *stream, const struct lora_adapter *adapter, const struct llama_shape *shape,
		     int layer, int projection)
{
	const struct lora_part *part = part_of(adapter, layer, projection);
	const int32_t place[3] = {layer, projection, part->rank};
	if (!part->a)
		return;
	size_t row = sizeof(*part->a) * (size_t)part->rank;
	md_hash_stream_add(stream, place, sizeof(place));
	md_hash_stream_add(stream, &part->scale, sizeof(part->scale));
	md_hash_stream_add(stream, part->a, row * (size_t)lora_inputs(shape, (enum lora_projection)projection));
	md_hash_stream_add(stream, part->b, row * (size_t)lora_outputs(shape, (enum lora_projection)projection));
}

/* The same for the same adapter, whatever kind of file it came from. */
static enum md_status hash_parts(const struct lora_adapter *adapter, const struct llama_shape *shape,
				 char text[MD_HASH_TEXT_BYTES], struct md_error *err)
{
	struct md_hash hash;
	struct md_hash_stream *stream = md_hash_stream_begin();
	if (!stream)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a hash");
	for (int layer = 0; layer < adapter->layers; layer++)
		for (int projection = 0; projection < LORA_PROJECTIONS; projection++)
			add_part(stream, adapter, shape, layer, projection);
	md_hash_stream_finish(stream, &hash);
	md_hash_format(&hash, text);
	return MD_OK;
}

/* An adapter that is refused is no mistake on the command line, which has another exit code. */
static enum md_status load(const char *path, const struct llama_shape *shape, struct lora_adapter *adapter,
			   struct md_error *err)
{
	enum md_status status = lora_adapter_load(adapter, path, shape, LORA_MAX_RANK, SIZE_MAX, err);
	if (status != MD_ERR_INVALID)
		return status;
	if (err)
		err->status = MD_ERR_CORRUPT;
	return MD_ERR_CORRUPT;
}

enum md_status adapter_check(const char *path, const struct llama_shape *shape, struct md_error *err)
{
	struct lora_adapter adapter;
	char hash[MD_HASH_TEXT_BYTES];
	MD_FORWARD(load(path, shape, &adapter, err));
	enum md_status status = hash_parts(&adapter, shape, hash, err);
	for (int projection = 0; status == MD_OK && projection < LORA_PROJECTIONS; projection++)
		print_projection(&adapter, projection);
	if (status == MD_OK)
		printf("rank %d, %zu bytes of host memory, content %s\n", adapter.rank, adapter.bytes, hash);
	if (status == MD_OK && (fflush(stdout) != 0 || ferror(stdout)))
		status = md_error_set(err, MD_ERR_OUTPUT, "what is in the adapter can't be written to stdout");
	lora_adapter_finish(&adapter);
	return status;
}
