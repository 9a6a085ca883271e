/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables of modules: whether the engine's own copy of an
 * image can be used, and which values are set in a copy of ours.
 */
#define MD_LOG_DOMAIN "restore"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "restore/image_load.h"
#include "restore/image_registry.h"
#include "restore/restore.h"
#include "restore/restore_arena.h"
#include "restore/variables.h"

#define CHUNK (64u << 10)

/* ---- what the engine's own copy holds ---------------------------------------------------------------------------- */

/* stream NULL: called on the engine's thread, which may use no stream of ours yet. */
static bool read_checksum(uint64_t address, uint64_t size, CUstream stream, uint64_t *sum)
{
	MD_AUTO_FREE uint8_t *bytes = malloc(CHUNK);
	bool read = bytes != NULL;
	*sum = 0;
	for (uint64_t at = 0, step; read && at < size; at += step) {
		step = size - at < CHUNK ? size - at : CHUNK;
		read = stream ? !md_cuda.cuMemcpyDtoHAsync_v2(bytes, address + at, step, stream) &&
				    !md_cuda.cuStreamSynchronize(stream)
			      : !md_cuda.cuMemcpyDtoH_v2(bytes, address + at, step);
		*sum = *sum * 1099511628211u + md_hash_checksum(bytes, step);
	}
	return read;
}

void md_restore_variable_asked(struct md_restore *r, void *handle, uint64_t address, uint64_t size)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct md_asked asked = {.handle = handle, .address = address};
	if (!address || !size || md_registry_asked_at(&r->registry, handle, address, NULL))
		return;
	if (md_registry_wants_variables(&r->registry) && !atomic_load(&r->captures)) {
		md_cuda.cuThreadExchangeStreamCaptureMode(&mode);
		asked.read = read_checksum(address, size, NULL, &asked.before);
		md_cuda.cuThreadExchangeStreamCaptureMode(&mode);
	}
	md_registry_asked(&r->registry, &asked);
}

static bool find_global(const struct md_loaded *in, const char *name, CUdeviceptr *address, size_t *size)
{
	return (in->is_library ? md_cuda.cuLibraryGetGlobal(address, size, in->handle, name)
			       : md_cuda.cuModuleGetGlobal_v2(address, size, in->handle, name)) == CUDA_SUCCESS;
}

/* An engine that writes a variable asks for its address first, so the value at that time is the image's own. */
static bool is_written(struct md_restore *r, const struct md_loaded *in, const char *name)
{
	struct md_asked asked;
	CUdeviceptr address = 0;
	size_t size = 0;
	uint64_t now;
	return find_global(in, name, &address, &size) &&
	       md_registry_asked_at(&r->registry, in->handle, address, &asked) && asked.read &&
	       read_checksum(address, size, r->stream, &now) && now != asked.before;
}

static bool holds_value(struct md_restore *r, const struct md_loaded *in, const struct md_image_value *value)
{
	MD_AUTO_FREE uint8_t *now = malloc(value->size);
	CUdeviceptr address = 0;
	size_t size = 0;
	return now && find_global(in, value->name, &address, &size) && size == value->size &&
	       !md_cuda.cuMemcpyDtoHAsync_v2(now, address, size, r->stream) &&
	       !md_cuda.cuStreamSynchronize(r->stream) && !memcmp(now, value->data, size);
}

const char *md_restore_variables_ours(const struct md_artifact *a, uint32_t image)
{
	for (uint32_t v = 0; v < a->images[image].value_count; v++)
		if (a->images[image].values[v].pointer_count)
			return a->images[image].values[v].name;
	for (uint32_t i = 0; i < a->alloc_count; i++)
		if (a->allocs[i].class == MD_CLASS_VARIABLE && a->allocs[i].image == image)
			return a->allocs[i].variable;
	return NULL;
}

enum md_status md_restore_variables_usable(struct md_restore *r, const struct md_loaded *in, uint32_t index,
					   struct md_error *err)
{
	const struct md_image *image = &r->artifact.images[index];
	const char *ours = md_restore_variables_ours(&r->artifact, index);
	const struct md_restore_image *here = &r->images[index];
	bool live = here->own_is_live || (r->live_graphs && !here->own); /* see verify/asked.c */
	if (image->variable && (!is_written(r, in, image->variable) || live))
		return md_error_set(err, MD_ERR_MISMATCH, "its image's variable %s is not written yet",
				    image->variable);
	if (ours)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "its image's variable %s holds addresses, or others point to it: only a copy of "
				    "the image that Medusa has loaded will do",
				    ours);
	for (uint32_t v = 0; v < image->value_count; v++)
		if (!holds_value(r, in, &image->values[v]))
			return md_error_set(err, MD_ERR_MISMATCH, "its image's variable %s is not written yet",
					    image->values[v].name);
	return MD_OK;
}

bool md_restore_variable_ready(struct md_restore *r, uint32_t index)
{
	struct md_loaded in;
	bool ready = false;
	for (size_t i = 0; !ready && md_registry_at(&r->registry, i, &in); i++)
		ready = in.hashed && md_hash_equal(&in.hash, &r->artifact.images[index].hash) &&
			(in.is_library || in.context == r->context) &&
			md_restore_variables_usable(r, &in, index, NULL) == MD_OK;
	return ready;
}

/* ---- what is set in ours ----------------------------------------------------------------------------------------- */

static enum md_status find_address(struct md_restore *r, uint32_t alloc, struct md_error *err)
{
	const struct md_artifact_alloc *a = &r->artifact.allocs[alloc];
	CUdeviceptr address = 0;
	size_t size = 0;
	MD_FORWARD(md_cuda_call(err, cuLibraryGetGlobal, &address, &size, r->images[a->image].library, a->variable));
	if (size != a->size)
		return md_error_set(err, MD_ERR_MISMATCH, "variable %s: artifact has %llu bytes, the loaded image %zu",
				    a->variable, (unsigned long long)a->size, size);
	r->variables[alloc] = address;
	return MD_OK;
}

/* If all kernels came from the engine's copies, only images whose variables are pointed to are loaded. */
enum md_status md_restore_variables_load(struct md_restore *r, const struct md_restore_graph *graph,
					 struct md_error *err)
{
	for (uint32_t i = 0; i < graph->image_count; i++)
		if (md_restore_variables_ours(&r->artifact, graph->images[i]))
			MD_FORWARD(md_restore_image_load(r, graph->images[i], false, err));
	for (uint32_t i = 0; i < r->artifact.alloc_count; i++) {
		const struct md_artifact_alloc *a = &r->artifact.allocs[i];
		if (a->class == MD_CLASS_VARIABLE && !r->variables[i] && r->images[a->image].state == MD_IMAGE_LOADED)
			MD_FORWARD(find_address(r, i, err));
	}
	return MD_OK;
}

static enum md_status set_value(struct md_restore *r, CUlibrary library, const struct md_image_value *value,
				struct md_error *err)
{
	CUdeviceptr address = 0;
	size_t size = 0;
	MD_FORWARD(md_cuda_call(err, cuLibraryGetGlobal, &address, &size, library, value->name));
	if (size != value->size)
		return md_error_set(err, MD_ERR_MISMATCH, "variable %s: artifact has %llu bytes, the loaded image %zu",
				    value->name, (unsigned long long)value->size, size);
	MD_FORWARD(md_restore_relocate(r, value->data, value->pointers, value->pointer_count, err));
	return md_cuda_call(err, cuMemcpyHtoDAsync_v2, address, value->data, value->size, r->stream);
}

enum md_status md_restore_variables_place(struct md_restore *r, const struct md_restore_graph *graph, bool again,
					  struct md_error *err)
{
	for (uint32_t i = 0; i < graph->image_count; i++) {
		struct md_restore_image *image = &r->images[graph->images[i]];
		const struct md_image *stored = &r->artifact.images[graph->images[i]];
		if (image->state != MD_IMAGE_LOADED || (image->values_placed && !again))
			continue;
		for (uint32_t v = 0; v < stored->value_count; v++)
			if (set_value(r, image->library, &stored->values[v], err) != MD_OK)
				return md_error_prefix(err, "variable %s", stored->values[v].name);
		image->values_placed = true;
	}
	return MD_OK;
}

static bool points_to(const struct md_artifact *a, uint32_t image, uint32_t binding)
{
	for (uint32_t v = 0; v < a->images[image].value_count; v++)
		for (uint32_t p = 0; p < a->images[image].values[v].pointer_count; p++)
			if (a->allocs[a->images[image].values[v].pointers[p].alloc].binding == binding)
				return true;
	return false;
}

void md_restore_variables_moved(struct md_restore *r, uint32_t binding)
{
	for (uint32_t i = 0; i < r->artifact.image_count; i++)
		if (points_to(&r->artifact, i, binding))
			r->images[i].values_placed = false;
}

void md_restore_variables_gone(struct md_restore *r, uint32_t image)
{
	r->images[image].values_placed = false;
	for (uint32_t i = 0; r->variables && i < r->artifact.alloc_count; i++)
		if (r->artifact.allocs[i].class == MD_CLASS_VARIABLE && r->artifact.allocs[i].image == image)
			r->variables[i] = 0;
}
