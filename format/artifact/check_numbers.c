/* SPDX-License-Identifier: Apache-2.0 */
/* Checks numbers that an engine acts upon: besides referring to something that exists, they must be consistent. */
#include <inttypes.h>
#include <string.h>

#include "format/artifact/bad.h"
#include "format/artifact/sections.h"

#define UTILIZATION_MAX 1000000u /* parts per million */
#define CARVEOUT_MAX 100         /* percent; -1: no preference */

typedef unsigned __int128 wide;

/*
 * Without a device memory size (0) nothing exceeds it: such a fingerprint fits no machine, so nobody acts on these
 * numbers.
 */
static bool beyond(uint64_t bytes, uint64_t device_memory)
{
	return device_memory && bytes > device_memory;
}

/* ---- KV capacity: an engine allocates what this says, and divides it into blocks ---- */

enum md_status md_artifact_check_kv(const struct md_kv *kv, uint64_t device_memory, struct md_error *err)
{
	if (kv->utilization_ppm > UTILIZATION_MAX)
		return md_bad_section(err, "kv", "utilization of %u parts per million", kv->utilization_ppm);
	if (!kv->present)
		return MD_OK;
	if (!kv->blocks || !kv->block_bytes || !kv->utilization_ppm)
		return md_bad_section(
		    err, "kv", "%" PRIu64 " blocks of %" PRIu64 " bytes at a utilization of %u parts per million",
		    kv->blocks, kv->block_bytes, kv->utilization_ppm);
	if ((wide)kv->blocks * kv->block_bytes != kv->kv_bytes)
		return md_bad_section(
		    err, "kv", "%" PRIu64 " blocks of %" PRIu64 " bytes are not the %" PRIu64 " bytes of the cache",
		    kv->blocks, kv->block_bytes, kv->kv_bytes);
	if (beyond(kv->baseline_free, device_memory) || (wide)kv->kv_bytes + kv->peak > kv->baseline_free)
		return md_bad_section(err, "kv",
				      "a cache of %" PRIu64 " bytes beside a peak of %" PRIu64 ", of %" PRIu64
				      " that were free on a device of %" PRIu64,
				      kv->kv_bytes, kv->peak, kv->baseline_free, device_memory);
	if (beyond(kv->graph_bytes, device_memory))
		return md_bad_section(err, "kv", "graphs of %" PRIu64 " bytes on a device of %" PRIu64, kv->graph_bytes,
				      device_memory);
	return MD_OK;
}

/* ---- sums that somebody makes, and memory that is taken ---- */

static enum md_status check_bindings(const struct md_artifact *artifact, struct md_error *err)
{
	wide sum = 0;
	for (uint32_t i = 0; i < artifact->binding_count; i++)
		sum += artifact->bindings[i].size;
	if (sum > UINT64_MAX)
		return md_bad_section(err, "bindings", "together they have more than 2^64 bytes");
	for (uint32_t i = 0; i < artifact->alloc_count; i++) {
		const struct md_artifact_alloc *alloc = &artifact->allocs[i];
		if (alloc->class == MD_CLASS_BOUND && alloc->size != artifact->bindings[alloc->binding].size)
			return md_bad_section(err, "allocations",
					      "allocation %u: %" PRIu64 " bytes, its binding %u has %" PRIu64, i,
					      alloc->size, alloc->binding, artifact->bindings[alloc->binding].size);
	}
	return MD_OK;
}

/* The arena takes memory of the engine's device, so it must not be larger than what is allocated in it. */
static enum md_status check_arena(const struct md_artifact *artifact, struct md_error *err)
{
	uint64_t end = 0, device = artifact->fingerprint.device_memory;
	for (uint32_t i = 0; i < artifact->alloc_count; i++) {
		const struct md_artifact_alloc *alloc = &artifact->allocs[i];
		if (alloc->class == MD_CLASS_PRIVATE && alloc->arena_offset + alloc->size > end)
			end = alloc->arena_offset + alloc->size;
	}
	if (artifact->arena_size > end && artifact->arena_size - end >= MD_ARENA_ALIGNMENT)
		return md_bad_section(err, "allocations",
				      "an arena of %" PRIu64 " bytes, of which %" PRIu64 " are allocated",
				      artifact->arena_size, end);
	if (beyond(artifact->arena_size, device))
		return md_bad_section(err, "allocations", "an arena of %" PRIu64 " bytes on a device of %" PRIu64,
				      artifact->arena_size, device);
	return MD_OK;
}

static enum md_status check_images(const struct md_artifact *artifact, struct md_error *err)
{
	for (uint32_t i = 0; i < artifact->image_count; i++) {
		const struct md_image *image = &artifact->images[i];
		if (image->size > MD_IMAGE_BYTES_MAX || image->file_offset > INT64_MAX - image->size)
			return md_bad_section(err, "images",
					      "image %u: %" PRIu64 " bytes at offset %" PRIu64 " of its file", i,
					      image->size, image->file_offset);
	}
	return MD_OK;
}

static enum md_status check_kernels(const struct md_artifact *artifact, struct md_error *err)
{
	for (uint32_t i = 0; i < artifact->kernel_count; i++) {
		const struct md_func_state *state = &artifact->kernels[i].state;
		if (state->max_dynamic_shared_bytes < 0 || state->preferred_carveout < -1 ||
		    state->preferred_carveout > CARVEOUT_MAX || state->non_portable_cluster < 0 ||
		    state->non_portable_cluster > 1 || state->registers < 0 || state->static_shared_bytes < 0)
			return md_bad_section(
			    err, "kernels",
			    "kernel %u: %d dynamic and %d static shared bytes, carveout %d, cluster %d, %d "
			    "registers",
			    i, state->max_dynamic_shared_bytes, state->static_shared_bytes, state->preferred_carveout,
			    state->non_portable_cluster, state->registers);
	}
	return MD_OK;
}

static enum md_status check_stages(const struct md_provenance *provenance, struct md_error *err)
{
	wide sum = 0;
	for (uint32_t i = 0; i < provenance->stage_count; i++)
		sum += provenance->stages[i].ns;
	return sum > INT64_MAX ? md_bad_section(err, "provenance", "its stages together take more than 2^63 ns")
			       : MD_OK;
}

enum md_status md_artifact_check_numbers(const struct md_artifact *artifact, struct md_error *err)
{
	MD_FORWARD(check_bindings(artifact, err));
	MD_FORWARD(check_arena(artifact, err));
	MD_FORWARD(check_images(artifact, err));
	MD_FORWARD(check_kernels(artifact, err));
	MD_FORWARD(check_stages(&artifact->provenance, err));
	return md_artifact_check_kv(&artifact->kv, artifact->fingerprint.device_memory, err);
}

/* ---- graphs: what a node says that the host itself follows ---- */

static int by_place(const struct md_pointer *pointer, uint32_t node, uint32_t at)
{
	if (pointer->node != node)
		return pointer->node < node ? -1 : 1;
	return (pointer->at > at) - (pointer->at < at);
}

/* Pointers are in ascending order, which an earlier check has made sure of. */
static const struct md_pointer *find_pointer(const struct md_graph_check *c, uint32_t node, uint32_t at)
{
	uint32_t low = 0, high = c->graph->pointer_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		int order = by_place(&c->graph->pointers[middle], node, at);
		if (!order)
			return &c->graph->pointers[middle];
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

/*
 * The driver is given the value of an attribute as stored. An attribute that holds an address or a handle (7 and 12:
 * events, 13: a device-updatable node) would make the driver follow a number from a file, and so might attributes that
 * are not known yet.
 */
static enum md_status check_attributes(const struct md_graph_check *c, uint32_t index)
{
	const struct md_node *node = &c->graph->nodes[index];
	for (uint32_t i = 0; i < node->attribute_count; i++) {
		const struct md_attribute *attribute = &node->attributes[i];
		uint64_t window[2]; /* address, bytes */
		memcpy(window, attribute->value, sizeof(window));
		if (!attribute->id || attribute->id > MD_ATTRIBUTE_LAST || attribute->id == 7 || attribute->id == 12 ||
		    attribute->id == MD_ATTRIBUTE_UPDATABLE)
			return md_bad_node(c, index, "attribute %u cannot be stored", attribute->id);
		if (attribute->id != MD_ATTRIBUTE_WINDOW)
			continue;
		if (window[0] ||
		    (window[1] && !find_pointer(c, index, MD_ATTRIBUTES_AT + i * (uint32_t)sizeof(attribute->value))))
			return md_bad_node(c, index, "an access policy window of %" PRIu64 " bytes without a pointer",
					   window[1]);
	}
	return MD_OK;
}

/* The distance from the address to the end of the last row, in bytes. */
static bool copy_end(const struct md_memcpy *copy, bool to, wide *end)
{
	wide pitch = to ? copy->dst_pitch : copy->src_pitch, rows = to ? copy->dst_height : copy->src_height;
	wide x = to ? copy->dst_x : copy->src_x, y = to ? copy->dst_y : copy->src_y, z = to ? copy->dst_z : copy->src_z;
	wide last_row = y + (copy->height ? copy->height - 1 : 0), last_slice = z + (copy->depth ? copy->depth - 1 : 0);
	if (last_slice >= UINT32_MAX || last_row >= UINT32_MAX || rows > UINT32_MAX || pitch > UINT32_MAX)
		return false;
	*end = (last_slice * rows + last_row) * pitch + x + copy->width;
	return true;
}

/*
 * Host memory is read and written by its address: it must be bound, page-locked memory, and the whole operand must lie
 * inside.
 */
static enum md_status check_host_operand(const struct md_graph_check *c, uint32_t index, bool to)
{
	const struct md_memcpy *copy = &c->graph->nodes[index].memcpy;
	const struct md_pointer *pointer = find_pointer(c, index, to ? 8 : 0);
	const char *what = to ? "to" : "from";
	wide end = 0;
	if (!pointer)
		return md_bad_node(c, index, "copies %s host memory without a pointer", what);
	const struct md_artifact_alloc *alloc = &c->artifact->allocs[pointer->alloc];
	if (alloc->family != MD_ALLOC_HOST)
		return md_bad_node(c, index, "copies %s host memory, allocation %u is none", what, pointer->alloc);
	if (pointer->offset < 0 || !copy_end(copy, to, &end) || end + (uint64_t)pointer->offset > alloc->size)
		return md_bad_node(c, index,
				   "copies %s host memory beyond allocation %u, from offset %" PRId64 " of %" PRIu64
				   " bytes",
				   what, pointer->alloc, pointer->offset, alloc->size);
	return MD_OK;
}

static enum md_status check_copy(const struct md_graph_check *c, uint32_t index)
{
	const struct md_memcpy *copy = &c->graph->nodes[index].memcpy;
	if (copy->src || copy->dst)
		return md_bad_node(c, index, "copies from %#" PRIx64 " to %#" PRIx64 ": addresses are pointers' alone",
				   copy->src, copy->dst);
	if (copy->src_type == MD_MEMORY_HOST)
		MD_FORWARD(check_host_operand(c, index, false));
	return copy->dst_type == MD_MEMORY_HOST ? check_host_operand(c, index, true) : MD_OK;
}

/* A verify run replaces noise by random bytes, so noise must lie in parameters. */
static enum md_status check_noise(const struct md_graph_check *c)
{
	for (uint32_t i = 0; i < c->graph->noise_count; i++) {
		uint32_t node = c->graph->noise[i].node;
		if (c->graph->nodes[node].type != MD_NODE_KERNEL)
			return md_bad_node(c, node, "noise %u lies in no parameters", i);
	}
	return MD_OK;
}

enum md_status md_artifact_check_graph_numbers(const struct md_artifact *artifact,
					       const struct md_artifact_graph *graph, struct md_error *err)
{
	const struct md_graph_check c = {artifact, graph, err};
	for (uint32_t i = 0; i < graph->node_count; i++) {
		const struct md_node *node = &graph->nodes[i];
		if (node->type == MD_NODE_KERNEL)
			MD_FORWARD(check_attributes(&c, i));
		if (node->type == MD_NODE_MEMSET && node->memset.dst)
			return md_bad_node(&c, i, "sets at %#" PRIx64 ": addresses are pointers' alone",
					   node->memset.dst);
		if (node->type == MD_NODE_MEMCPY)
			MD_FORWARD(check_copy(&c, i));
	}
	return check_noise(&c);
}
