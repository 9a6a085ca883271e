/* SPDX-License-Identifier: Apache-2.0 */
/* The checks that every artifact passes when it is read and before it is written: whatever is referred to exists. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "format/artifact/bad.h"
#include "format/artifact/check_graph.h"
#include "format/artifact/check_values.h"
#include "format/artifact/sections.h"
#include "format/codec/columns.h"

/* ---- bindings and allocations ---- */

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/*
 * Checks the place of a binding: its alignment, and the binding that
 * it shares memory with, which is the first of all that share it.
 */
static enum md_status check_place(const struct md_artifact *artifact, uint32_t index, struct md_error *err)
{
	const struct md_binding *binding = &artifact->bindings[index];
	if (binding->align > MD_BINDING_ALIGN_MAX || (binding->align & (binding->align - 1)))
		return md_bad_section(err, "bindings", "binding %u: aligned to %u bytes", index, binding->align);
	if (!binding->overlaps)
		return MD_OK;
	if (binding->within >= artifact->binding_count || binding->within == index ||
	    artifact->bindings[binding->within].overlaps)
		return md_bad_section(err, "bindings", "binding %u: it lies within binding %u of %u", index,
				      binding->within, artifact->binding_count);
	return MD_OK;
}

static enum md_status check_bindings(const struct md_artifact *artifact, struct md_error *err)
{
	uint32_t count = artifact->binding_count;
	MD_AUTO_FREE const char **names = calloc((size_t)count + 1, sizeof(*names));
	if (!names)
		return md_bad_memory(err, "bindings");
	for (uint32_t i = 0; i < count; i++) {
		const struct md_binding *binding = &artifact->bindings[i];
		if (!md_is_name(binding->name))
			return md_bad_section(err, "bindings", "binding %u: no name, or one of over %u bytes", i,
					      MD_NAME_MAX);
		if (binding->role < MD_BIND_CONSTANT || binding->role > MD_BIND_OUTPUT)
			return md_bad_section(err, "bindings", "binding %u: role %u", i, (unsigned)binding->role);
		if (binding->varied && !binding->hashed)
			return md_bad_section(err, "bindings", "binding %u varied, but has no hash", i);
		if (binding->adjoins && (binding->before >= count || binding->before == i))
			return md_bad_section(err, "bindings", "binding %u: its neighbour is binding %u of %u", i,
					      binding->before, count);
		MD_FORWARD(check_place(artifact, i, err));
		names[i] = binding->name;
	}
	qsort(names, count, sizeof(*names), by_text);
	for (uint32_t i = 1; i < count; i++) {
		if (!strcmp(names[i - 1], names[i]))
			return md_bad_section(err, "bindings", "the name %.200s appears twice", names[i]);
	}
	return MD_OK;
}

static enum md_status check_alloc(const struct md_artifact *artifact, uint32_t index, struct md_error *err)
{
	const struct md_artifact_alloc *alloc = &artifact->allocs[index];
	bool bound = alloc->class == MD_CLASS_BOUND;
	bool variable = alloc->class == MD_CLASS_VARIABLE;
	if (alloc->class < MD_CLASS_BOUND || alloc->class > MD_CLASS_VARIABLE)
		return md_bad_section(err, "allocations", "allocation %u: class %u", index, (unsigned)alloc->class);
	if (alloc->family < MD_ALLOC_DEVICE || alloc->family > MD_ALLOC_GLOBAL)
		return md_bad_section(err, "allocations", "allocation %u: family %u", index, (unsigned)alloc->family);
	if (bound && alloc->binding >= artifact->binding_count)
		return md_bad_section(err, "allocations", "allocation %u: binding %u of %u", index, alloc->binding,
				      artifact->binding_count);
	if (!bound && alloc->binding != MD_NONE)
		return md_bad_section(err, "allocations", "allocation %u: binding %u, but it is not bound", index,
				      alloc->binding);
	if (variable != (alloc->variable != NULL) ||
	    (variable && (!md_is_name(alloc->variable) || alloc->image >= artifact->image_count)))
		return md_bad_section(err, "allocations", "allocation %u: variable \"%.200s\" of image %u of %u", index,
				      alloc->variable ? alloc->variable : "", alloc->image, artifact->image_count);
	if (alloc->class != MD_CLASS_PRIVATE)
		return MD_OK;
	if (alloc->arena_offset % MD_ARENA_ALIGNMENT ||
	    !md_is_inside(alloc->arena_offset, alloc->size, artifact->arena_size))
		return md_bad_section(
		    err, "allocations",
		    "allocation %u: %" PRIu64 " bytes at %" PRIu64 " of an arena of %" PRIu64 " (at multiples of %u)",
		    index, alloc->size, alloc->arena_offset, artifact->arena_size, MD_ARENA_ALIGNMENT);
	return MD_OK;
}

static int by_arena_offset(const void *a, const void *b)
{
	const struct md_artifact_alloc *x = *(const struct md_artifact_alloc *const *)a,
				       *y = *(const struct md_artifact_alloc *const *)b;
	return x->arena_offset < y->arena_offset ? -1 : x->arena_offset > y->arena_offset;
}

static enum md_status check_arena(const struct md_artifact *artifact, struct md_error *err)
{
	uint32_t count = 0;
	MD_AUTO_FREE const struct md_artifact_alloc **sorted =
	    calloc((size_t)artifact->alloc_count + 1, sizeof(*sorted));
	if (!sorted)
		return md_bad_memory(err, "allocations");
	for (uint32_t i = 0; i < artifact->alloc_count; i++) {
		if (artifact->allocs[i].class == MD_CLASS_PRIVATE && artifact->allocs[i].size)
			sorted[count++] = &artifact->allocs[i];
	}
	qsort(sorted, count, sizeof(*sorted), by_arena_offset);
	for (uint32_t i = 1; i < count; i++) {
		if (sorted[i - 1]->arena_offset + sorted[i - 1]->size > sorted[i]->arena_offset)
			return md_bad_section(err, "allocations", "allocations %u and %u overlap in the arena",
					      (unsigned)(sorted[i - 1] - artifact->allocs),
					      (unsigned)(sorted[i] - artifact->allocs));
	}
	return MD_OK;
}

static enum md_status check_allocations(const struct md_artifact *artifact, struct md_error *err)
{
	for (uint32_t i = 0; i < artifact->alloc_count; i++)
		MD_FORWARD(check_alloc(artifact, i, err));
	return check_arena(artifact, err);
}

/* ---- kernels and images ---- */

static enum md_status check_kernels(const struct md_artifact *artifact, struct md_error *err)
{
	for (uint32_t i = 0; i < artifact->kernel_count; i++) {
		const struct md_kernel *kernel = &artifact->kernels[i];
		uint64_t end = 0;
		if (!kernel->name || !kernel->name[0])
			return md_bad_section(err, "kernels", "kernel %u has no name", i);
		if (kernel->image != MD_NONE && kernel->image >= artifact->image_count)
			return md_bad_section(err, "kernels", "kernel %u: image index %u of %u", i, kernel->image,
					      artifact->image_count);
		for (uint32_t k = 0; k < kernel->param_count; k++) {
			const struct md_param *param = &kernel->params[k];
			if (param->offset < end || !md_is_inside(param->offset, param->size, MD_PARAMS_MAX))
				return md_bad_section(err, "kernels", "kernel %u: parameter %u of %u bytes at %u", i, k,
						      param->size, param->offset);
			end = (uint64_t)param->offset + param->size;
		}
	}
	return MD_OK;
}

/* Checks the pointers in contents, or in the value of a variable; index: the first that breaks a rule. */
static bool words_ok(const struct md_artifact *artifact, const struct md_pointer *pointers, uint32_t count,
		     uint64_t size, uint32_t *index)
{
	uint64_t end = 0;
	for (*index = 0; *index < count; ++*index) {
		const struct md_pointer *p = &pointers[*index];
		if (p->node != MD_NONE || p->kind > MD_POINTER_TENSOR_MAP || p->at < end ||
		    !md_is_inside(p->at, md_pointer_bytes(p), size) || p->alloc >= artifact->alloc_count)
			return false;
		end = (uint64_t)p->at + md_pointer_bytes(p);
	}
	return true;
}

static enum md_status check_value(const struct md_artifact *artifact, uint32_t image, uint32_t index,
				  struct md_error *err)
{
	const struct md_image_value *value = &artifact->images[image].values[index];
	uint32_t pointer;
	if (!md_is_name(value->name) || !value->size || value->size > MD_IMAGE_VALUE_MAX || !value->data ||
	    artifact->images[image].variable)
		return md_bad_section(
		    err, "images", "image %u: value %u has no name or no bytes, or the engine writes another variable",
		    image, index);
	if (!words_ok(artifact, value->pointers, value->pointer_count, value->size, &pointer))
		return md_bad_section(err, "images",
				      "image %u: value %u: pointer %u at %u of %" PRIu64 ", allocation index %u of %u",
				      image, index, pointer, value->pointers[pointer].at, value->size,
				      value->pointers[pointer].alloc, artifact->alloc_count);
	return MD_OK;
}

static enum md_status check_images(const struct md_artifact *artifact, struct md_error *err)
{
	for (uint32_t i = 0; i < artifact->image_count; i++) {
		const struct md_image *image = &artifact->images[i];
		if (image->kind < MD_IMAGE_ELF || image->kind > MD_IMAGE_PTX)
			return md_bad_section(err, "images", "image %u: kind %u", i, (unsigned)image->kind);
		for (uint32_t v = 0; v < image->value_count; v++)
			MD_FORWARD(check_value(artifact, i, v, err));
		if (image->variable && (!md_is_name(image->variable) || image->path || md_image_is_stored(image)))
			return md_bad_section(err, "images",
					      "image %u: its variable has no name, or it is stored all the same", i);
	}
	return MD_OK;
}

/* ---- graphs ---- */

static int by_label_and_batch(const void *a, const void *b)
{
	const struct md_artifact_graph *x = *(const struct md_artifact_graph *const *)a,
				       *y = *(const struct md_artifact_graph *const *)b;
	int labels = strcmp(x->label, y->label);
	return labels ? labels : x->batch < y->batch ? -1 : x->batch > y->batch;
}

static enum md_status check_graphs(const struct md_artifact *artifact, struct md_error *err)
{
	uint32_t count = artifact->graph_count;
	MD_AUTO_FREE const struct md_artifact_graph **sorted = calloc((size_t)count + 1, sizeof(*sorted));
	if (!sorted)
		return md_bad_memory(err, "graphs");
	for (uint32_t i = 0; i < count; i++) {
		MD_FORWARD(md_artifact_check_graph(artifact, i, i ? &artifact->graphs[i - 1] : NULL, err));
		sorted[i] = &artifact->graphs[i];
	}
	qsort(sorted, count, sizeof(*sorted), by_label_and_batch);
	for (uint32_t i = 1; i < count; i++) {
		if (by_label_and_batch(&sorted[i - 1], &sorted[i]) == 0)
			return md_bad_section(err, "graphs",
					      "graph %.100s/%u appears twice, as graph %u with %u nodes and as graph "
					      "%u with %u; a graph is "
					      "asked for by its name: capture again with names of their own",
					      sorted[i]->label, sorted[i]->batch,
					      (unsigned)(sorted[i - 1] - artifact->graphs), sorted[i - 1]->node_count,
					      (unsigned)(sorted[i] - artifact->graphs), sorted[i]->node_count);
	}
	for (uint32_t i = 0; i < artifact->refusal_count; i++) {
		if (!artifact->refusals[i].why)
			return md_bad_section(err, "graphs", "refusal %u says no reason", i);
	}
	return MD_OK;
}

/* ---- contents, KV capacity, provenance ---- */

static enum md_status check_content(const struct md_artifact *artifact, uint32_t index, struct md_error *err)
{
	const struct md_artifact_content *content = &artifact->contents[index];
	uint32_t pointer;
	if (content->alloc >= artifact->alloc_count)
		return md_bad_section(err, "contents", "content %u: allocation index %u of %u", index, content->alloc,
				      artifact->alloc_count);
	const struct md_artifact_alloc *alloc = &artifact->allocs[content->alloc];
	if (alloc->class != MD_CLASS_PRIVATE || !md_is_inside(content->offset, content->size, alloc->size) ||
	    (content->size && !content->data))
		return md_bad_section(err, "contents",
				      "content %u: %" PRIu64 " bytes at %" PRIu64
				      " of allocation %u, which has %" PRIu64 " and must be private",
				      index, content->size, content->offset, content->alloc, alloc->size);
	if (!words_ok(artifact, content->pointers, content->pointer_count, content->size, &pointer))
		return md_bad_section(err, "contents",
				      "content %u: pointer %u at %u of %" PRIu64 ", allocation index %u of %u", index,
				      pointer, content->pointers[pointer].at, content->size,
				      content->pointers[pointer].alloc, artifact->alloc_count);
	return MD_OK;
}

static enum md_status check_rest(const struct md_artifact *artifact, struct md_error *err)
{
	const struct md_fingerprint *fingerprint = &artifact->fingerprint;
	for (uint32_t i = 0; i < fingerprint->library_count; i++) {
		if (!md_is_name(fingerprint->libraries[i].path))
			return md_bad_section(err, "fingerprint", "library %u has no path, or one of over %u bytes", i,
					      MD_NAME_MAX);
	}
	MD_FORWARD(md_artifact_check_said(fingerprint, err));
	if (artifact->provenance.capture_count > 2)
		return md_bad_section(err, "provenance", "%u captures", artifact->provenance.capture_count);
	return MD_OK;
}

enum md_status md_artifact_check_head(const struct md_artifact *artifact, struct md_error *err)
{
	MD_FORWARD(check_bindings(artifact, err));
	if (md_sequence_check(artifact, err) != MD_OK)
		return md_error_prefix(err, "section \"bindings\"");
	MD_FORWARD(check_allocations(artifact, err));
	MD_FORWARD(check_images(artifact, err));
	MD_FORWARD(check_kernels(artifact, err));
	MD_FORWARD(check_rest(artifact, err));
	return md_artifact_check_numbers(artifact, err);
}

enum md_status md_artifact_check_graphs(const struct md_artifact *artifact, struct md_error *err)
{
	MD_FORWARD(check_graphs(artifact, err));
	MD_FORWARD(md_artifact_check_groups(artifact, err));
	for (uint32_t i = 0; i < artifact->content_count; i++)
		MD_FORWARD(check_content(artifact, i, err));
	return MD_OK;
}

enum md_status md_artifact_check(const struct md_artifact *artifact, struct md_error *err)
{
	MD_FORWARD(md_artifact_check_head(artifact, err));
	MD_FORWARD(md_artifact_check_graphs(artifact, err));
	return md_caches_check(&artifact->caches, err);
}
