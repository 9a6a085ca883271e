/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: tables of the kernels that surviving graphs launch and of the images these come from, and their libraries. */
#define MD_LOG_DOMAIN "analyze"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "base/secret.h"

/* ---- images ----------------------------------------------------------------------------------------------------- */

static enum md_status read_at(const char *path, uint64_t offset, uint8_t *data, uint64_t size, struct md_error *err)
{
	MD_AUTO_FD int fd = -1;
	uint64_t there = 0;
	MD_FORWARD(md_file_open(path, UINT64_MAX, &fd, &there, err));
	return md_file_read_at(fd, offset, data, size, err) == MD_OK ? MD_OK : md_error_prefix(err, "%s", path);
}

/* The file may have been replaced since the capture: only the very bytes that were loaded are stored. */
static enum md_status store_from_file(const struct md_image *image, struct md_image *out, struct md_error *err)
{
	struct md_hash hash;
	if (image->size > MD_IMAGE_BYTES_MAX)
		return md_error_set(err, MD_ERR_TOO_LARGE, "%s: an image of %" PRIu64 " bytes", image->path,
				    image->size);
	out->data = malloc(image->size ? image->size : 1);
	if (!out->data)
		return md_analysis_no_memory(err);
	MD_FORWARD(read_at(image->path, image->file_offset, out->data, image->size, err));
	hash = md_hash_bytes(out->data, image->size);
	if (!md_hash_equal(&hash, &image->hash))
		return md_error_set(err, MD_ERR_MISMATCH,
				    "%s: the image at offset %" PRIu64 " is not the one that was captured", image->path,
				    image->file_offset);
	return MD_OK;
}

static void warn_unsettled(const struct md_analysis *analysis, const struct md_variable *variable)
{
	const char *why = variable->held == MD_NONE ? "its value changed, or was written again or used between "
						      "replays, during the capture, or could not be read"
						    : analysis->broken[analysis->group[variable->alloc]];
	md_warn(
	    "an image is not stored: the engine writes its variable %s, so only the engine's own copy can be used (%s)",
	    variable->name, why);
}

/* An image that lies in no file is always stored. An image in a file is referenced, unless the options ask for more. */
static enum md_status copy_image(const struct md_analysis *analysis, uint32_t index, struct md_image *out,
				 struct md_error *err)
{
	const struct md_image *image = &analysis->traces[0]->images[index];
	bool failed = false, keep_data = image->data && (!image->path || analysis->options.store_file_images);
	const struct md_variable *unsettled = md_variable_unsettled(analysis, index);
	*out = (struct md_image){.hash = image->hash, .kind = image->kind, .size = image->size};
	if (unsettled) {
		warn_unsettled(analysis, unsettled);
		out->variable = md_analysis_copy_text(unsettled->name, &failed);
		return failed ? md_analysis_no_memory(err) : MD_OK;
	}
	if (analysis->options.no_images)
		return MD_OK;
	out->path = md_analysis_copy_text(image->path, &failed);
	out->build_id = md_analysis_copy_text(image->build_id, &failed);
	out->file_offset = image->file_offset;
	if (keep_data) {
		out->data = malloc(image->size ? image->size : 1);
		if (out->data)
			memcpy(out->data, image->data, image->size);
		failed = failed || !out->data;
	}
	if (failed)
		return md_analysis_no_memory(err);
	if (analysis->options.store_file_images && !out->data && image->path)
		return store_from_file(image, out, err);
	return MD_OK;
}

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

/* Handles of one kernel may have been given different limits: the wider one serves all their launches. */
static void widen_state(struct md_func_state *state, const struct md_func_state *other)
{
	if (other->max_dynamic_shared_bytes > state->max_dynamic_shared_bytes)
		state->max_dynamic_shared_bytes = other->max_dynamic_shared_bytes;
	if (other->non_portable_cluster > state->non_portable_cluster)
		state->non_portable_cluster = other->non_portable_cluster;
}

static enum md_status copy_kernel(const struct md_kernel *kernel, uint32_t image, struct md_kernel *out,
				  struct md_error *err)
{
	bool failed = false;
	*out = (struct md_kernel){.image = image, .param_count = kernel->param_count, .state = kernel->state};
	out->name = md_analysis_copy_text(kernel->name, &failed);
	out->params = calloc(kernel->param_count + 1u, sizeof(*out->params));
	if (failed || !out->params)
		return md_analysis_no_memory(err);
	if (kernel->param_count)
		memcpy(out->params, kernel->params, kernel->param_count * sizeof(*out->params));
	return MD_OK;
}

/* kernel_slot: 0 for used kernels, MD_NONE for others. */
static void mark_kernels(struct md_analysis *analysis)
{
	for (uint32_t i = 0; i < analysis->pair_count; i++) {
		const struct md_trace_graph *graph = analysis->pairs[i].graph[0];
		for (uint32_t n = 0; !analysis->pairs[i].why && n < graph->node_count; n++) {
			if (graph->nodes[n].type == MD_NODE_KERNEL)
				analysis->kernel_slot[analysis->kernel_identity[0][graph->nodes[n].kernel]] = 0;
		}
	}
}

/* Images whose variables are pointed to need have no kernel in any graph. */
static enum md_status add_images_of_variables(struct md_analysis *analysis, uint32_t *image_slot, struct md_error *err)
{
	struct md_artifact *out = analysis->out;
	for (uint32_t i = 0; i < out->alloc_count; i++) {
		uint32_t image = out->allocs[i].image;
		if (out->allocs[i].class != MD_CLASS_VARIABLE)
			continue;
		if (image_slot[image] == MD_NONE) {
			image_slot[image] = out->image_count;
			MD_FORWARD(copy_image(analysis, image, &out->images[out->image_count++], err));
		}
		out->allocs[i].image = image_slot[image];
	}
	return MD_OK;
}

static enum md_status build_tables(struct md_analysis *analysis, uint32_t *image_slot, struct md_error *err)
{
	const struct md_trace *trace = analysis->traces[0];
	struct md_artifact *out = analysis->out;
	for (uint32_t i = 0; i < trace->kernel_count; i++) {
		const struct md_kernel *kernel = &trace->kernels[i];
		uint32_t image = kernel->image;
		if (analysis->kernel_slot[i] == MD_NONE)
			continue;
		if (image != MD_NONE && image_slot[image] == MD_NONE) {
			image_slot[image] = out->image_count;
			MD_FORWARD(copy_image(analysis, image, &out->images[out->image_count++], err));
		}
		analysis->kernel_slot[i] = out->kernel_count;
		MD_FORWARD(copy_kernel(kernel, image == MD_NONE ? MD_NONE : image_slot[image],
				       &out->kernels[out->kernel_count++], err));
	}
	for (uint32_t i = 0; i < trace->kernel_count; i++) {
		uint32_t slot = analysis->kernel_slot[analysis->kernel_identity[0][i]];
		analysis->kernel_slot[i] = slot;
		if (slot != MD_NONE)
			widen_state(&out->kernels[slot].state, &trace->kernels[i].state);
	}
	return MD_OK;
}

/* ---- fingerprint ------------------------------------------------------------------------------------------------- */

static const char *text_of(const char *text)
{
	return text ? text : "";
}

static enum md_status add_library(struct md_fingerprint *fingerprint, const char *path, const char *build_id,
				  struct md_error *err)
{
	struct md_fingerprint_library *library = &fingerprint->libraries[fingerprint->library_count];
	bool failed = false;
	for (uint32_t i = 0; i < fingerprint->library_count; i++) {
		if (strcmp(fingerprint->libraries[i].path, path) == 0 &&
		    strcmp(fingerprint->libraries[i].build_id, build_id) == 0)
			return MD_OK;
	}
	fingerprint->library_count++;
	library->path = md_analysis_copy_text(path, &failed);
	library->build_id = md_analysis_copy_text(build_id, &failed);
	return failed ? md_analysis_no_memory(err) : MD_OK;
}

/* The device's facts, and the files that the kept images came from (the captured fingerprint may know of more). */
static enum md_status copy_fingerprint(struct md_analysis *analysis, const uint32_t *image_slot, struct md_error *err)
{
	const struct md_trace *trace = analysis->traces[0];
	struct md_fingerprint *out = &analysis->out->fingerprint;
	*out = trace->fingerprint;
	out->library_count = 0;
	out->facts = NULL;
	out->arguments = out->vary = (struct md_argument_list){0};
	out->fact_count = 0;
	if (analysis->captures == 2)
		md_limits_raise(out->limits, analysis->traces[1]->fingerprint.limits);
	out->libraries =
	    calloc(trace->fingerprint.library_count + (size_t)trace->image_count + 1, sizeof(*out->libraries));
	if (!out->libraries)
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < trace->fingerprint.library_count; i++)
		MD_FORWARD(add_library(out, trace->fingerprint.libraries[i].path,
				       text_of(trace->fingerprint.libraries[i].build_id), err));
	for (uint32_t i = 0; i < trace->image_count; i++) {
		const struct md_image *image = &trace->images[i];
		if (image_slot[i] != MD_NONE && image->path)
			MD_FORWARD(add_library(out, image->path, text_of(image->build_id), err));
	}
	for (uint32_t i = 0; i < trace->fingerprint.fact_count; i++)
		MD_FORWARD(md_fingerprint_set_fact(out, trace->fingerprint.facts[i].name,
						   trace->fingerprint.facts[i].value, err));
	if (!md_arguments_copy(&trace->fingerprint.arguments, &out->arguments) ||
	    (analysis->options.vary && !md_arguments_copy(analysis->options.vary, &out->vary)) ||
	    !md_secret_hide_patterns(&out->vary))
		return md_analysis_no_memory(err);
	return MD_OK;
}

enum md_status md_pass_image(struct md_analysis *analysis, struct md_error *err)
{
	const struct md_trace *trace = analysis->traces[0];
	MD_AUTO_FREE uint32_t *image_slot = malloc((trace->image_count + (size_t)1) * sizeof(*image_slot));
	size_t kernels = trace->kernel_count + (size_t)1;
	analysis->kernel_slot = malloc(kernels * sizeof(*analysis->kernel_slot));
	analysis->out->kernels = calloc(kernels, sizeof(*analysis->out->kernels));
	analysis->out->images = calloc(trace->image_count + (size_t)1, sizeof(*analysis->out->images));
	if (!image_slot || !analysis->kernel_slot || !analysis->out->kernels || !analysis->out->images)
		return md_analysis_no_memory(err);
	memset(image_slot, 0xff, (trace->image_count + (size_t)1) * sizeof(*image_slot));
	memset(analysis->kernel_slot, 0xff, kernels * sizeof(*analysis->kernel_slot));
	mark_kernels(analysis);
	MD_FORWARD(build_tables(analysis, image_slot, err));
	MD_FORWARD(add_images_of_variables(analysis, image_slot, err));
	return copy_fingerprint(analysis, image_slot, err);
}
