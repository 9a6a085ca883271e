/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel resolution: (image, name, parameter layout) -> CUfunction, from a loaded, a stored or a triggered image. */
#define MD_LOG_DOMAIN "restore"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "restore/image_load.h"
#include "restore/image_registry.h"
#include "restore/resolve.h"
#include "restore/restore.h"
#include "restore/trigger.h"
#include "restore/variables.h"

struct place { /* where to look: a module or library, and its names if they were read */
	void *handle;
	bool is_library;
	struct md_kernel_names *names;
};

static enum md_status check_params(const struct md_kernel *kernel, CUfunction function, struct md_error *err)
{
	size_t offset = 0, size = 0;
	for (uint32_t i = 0; i < kernel->param_count; i++) {
		if (md_cuda.cuFuncGetParamInfo(function, i, &offset, &size) != CUDA_SUCCESS)
			return md_error_set(err, MD_ERR_MISMATCH,
					    "kernel %s: artifact has %u parameters, the loaded kernel %u", kernel->name,
					    kernel->param_count, i);
		if (offset != kernel->params[i].offset || size != kernel->params[i].size)
			return md_error_set(err, MD_ERR_MISMATCH,
					    "kernel %s: parameter %u of the loaded kernel has %zu bytes at offset %zu, "
					    "the artifact's has %u at offset %u",
					    kernel->name, i, size, offset, kernel->params[i].size,
					    kernel->params[i].offset);
	}
	if (md_cuda.cuFuncGetParamInfo(function, kernel->param_count, &offset, &size) == CUDA_SUCCESS)
		return md_error_set(
		    err, MD_ERR_MISMATCH,
		    "kernel %s: the loaded kernel has more than %u parameters, which is what the artifact has",
		    kernel->name, kernel->param_count);
	return MD_OK;
}

static enum md_status check_attribute(const struct md_kernel *kernel, CUfunction function,
				      CUfunction_attribute attribute, int stored, const char *what,
				      struct md_error *err)
{
	int now = 0;
	if (stored == 0)
		return MD_OK;
	MD_FORWARD(md_cuda_call(err, cuFuncGetAttribute, &now, attribute, function));
	if (now != stored)
		return md_error_set(err, MD_ERR_MISMATCH, "kernel %s: %s: artifact has %d, the loaded kernel %d",
				    kernel->name, what, stored, now);
	return MD_OK;
}

static enum md_status check_function(const struct md_kernel *kernel, CUfunction function, struct md_error *err)
{
	MD_FORWARD(check_params(kernel, function, err));
	MD_FORWARD(
	    check_attribute(kernel, function, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel->state.registers, "registers", err));
	return check_attribute(kernel, function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel->state.static_shared_bytes,
			       "static shared bytes", err);
}

static enum md_status set_at_least(CUfunction function, CUfunction_attribute attribute, int value, struct md_error *err)
{
	int now = 0;
	MD_FORWARD(md_cuda_call(err, cuFuncGetAttribute, &now, attribute, function));
	return now >= value ? MD_OK : md_cuda_call(err, cuFuncSetAttribute, function, attribute, value);
}

/* 0 is a preference, too: everything for the cache. */
static enum md_status set_carveout(CUfunction function, int value, struct md_error *err)
{
	int now = 0;
	if (value < 0)
		return MD_OK;
	MD_FORWARD(
	    md_cuda_call(err, cuFuncGetAttribute, &now, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, function));
	return now == value ? MD_OK
			    : md_cuda_call(err, cuFuncSetAttribute, function,
					   CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, value);
}

/*
 * Sets function state that nodes don't carry. Loading the function now keeps lazy loading out of captures and replays.
 */
static enum md_status prepare_function(const struct md_kernel *kernel, CUfunction function, struct md_error *err)
{
	const struct md_func_state *state = &kernel->state;
	MD_FORWARD(md_cuda_call(err, cuFuncLoad, function));
	if (state->max_dynamic_shared_bytes > 0)
		MD_FORWARD(set_at_least(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
					state->max_dynamic_shared_bytes, err));
	if (state->non_portable_cluster > 0)
		MD_FORWARD(set_at_least(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, err));
	return set_carveout(function, state->preferred_carveout, err);
}

static enum md_status count_names(const struct place *place, unsigned *count, struct md_error *err)
{
	if (place->is_library)
		return md_cuda_call(err, cuLibraryGetKernelCount, count, place->handle);
	return md_cuda_call(err, cuModuleGetFunctionCount, count, place->handle);
}

static enum md_status list_names(const struct place *place, struct md_error *err)
{
	struct md_kernel_names *names = place->names;
	unsigned count = 0;
	MD_FORWARD(count_names(place, &count, err));
	names->handles = calloc(count + 1, sizeof(*names->handles));
	names->names = calloc(count + 1, sizeof(*names->names));
	if (!names->handles || !names->names) {
		md_kernel_names_finish(names);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the names of %u kernels", count);
	}
	enum md_status status =
	    place->is_library
		? md_cuda_call(err, cuLibraryEnumerateKernels, (CUkernel *)names->handles, count, place->handle)
		: md_cuda_call(err, cuModuleEnumerateFunctions, (CUfunction *)names->handles, count, place->handle);
	for (unsigned i = 0; status == MD_OK && i < count; i++) {
		CUresult named = place->is_library ? md_cuda.cuKernelGetName(&names->names[i], names->handles[i])
						   : md_cuda.cuFuncGetName(&names->names[i], names->handles[i]);
		if (named != CUDA_SUCCESS)
			names->names[i] = NULL;
	}
	if (status != MD_OK)
		md_kernel_names_finish(names);
	names->count = status == MD_OK ? count : 0;
	names->read = status == MD_OK;
	return status;
}

static enum md_status to_function(const struct place *place, void *handle, CUfunction *out, struct md_error *err)
{
	if (place->is_library)
		return md_cuda_call(err, cuKernelGetFunction, out, handle);
	*out = handle;
	return MD_OK;
}

/*
 * Finds a local symbol, which the driver lists but does not find by
 * name. If several have the name, exactly one must have the layout.
 */
static enum md_status find_by_enumeration(const struct place *place, const struct md_kernel *kernel, CUfunction *out,
					  struct md_error *err)
{
	if (!place->names->read)
		MD_FORWARD(list_names(place, err));
	CUfunction found = NULL;
	md_error_set(err, MD_ERR_NOT_FOUND, "kernel %s: its image has no such kernel", kernel->name);
	for (unsigned i = 0; i < place->names->count; i++) {
		CUfunction candidate = NULL;
		if (!place->names->names[i] || strcmp(place->names->names[i], kernel->name))
			continue;
		MD_FORWARD(to_function(place, place->names->handles[i], &candidate, err));
		if (check_function(kernel, candidate, err) != MD_OK)
			continue;
		if (found)
			return md_error_set(err, MD_ERR_AMBIGUOUS,
					    "kernel %s: its image has several kernels of that name and layout",
					    kernel->name);
		found = candidate;
	}
	if (!found)
		return err ? err->status : MD_ERR_NOT_FOUND;
	*out = found;
	return MD_OK;
}

static enum md_status find_in(const struct place *place, const struct md_kernel *kernel, CUfunction *out,
			      struct md_error *err)
{
	void *handle = NULL;
	CUresult result = place->is_library
			      ? md_cuda.cuLibraryGetKernel((CUkernel *)&handle, place->handle, kernel->name)
			      : md_cuda.cuModuleGetFunction((CUfunction *)&handle, place->handle, kernel->name);
	if (result == CUDA_ERROR_NOT_FOUND)
		return find_by_enumeration(place, kernel, out, err);
	MD_FORWARD(md_cuda_status(result, place->is_library ? "cuLibraryGetKernel" : "cuModuleGetFunction", err));
	CUfunction function = NULL;
	MD_FORWARD(to_function(place, handle, &function, err));
	MD_FORWARD(check_function(kernel, function, err));
	*out = function;
	return MD_OK;
}

/*
 * Looks in the images that the process has loaded. A kernel with a known image is taken from the same content only; for
 * one without, everything is searched, and the match must be unique. The registry's entries stay, because removing one
 * takes the work lock, which we hold.
 */
static enum md_status find_loaded(struct md_restore *r, uint32_t index, void **home, CUfunction *out,
				  struct md_error *err) MD_REQUIRES(md_restore_work)
{
	const struct md_kernel *kernel = &r->artifact.kernels[index];
	const struct md_image *image = kernel->image == MD_NONE ? NULL : &r->artifact.images[kernel->image];
	struct md_loaded first = {0};
	struct md_error best = {0};
	md_error_set(&best, MD_ERR_NOT_FOUND, "kernel %s: no image loaded in this process holds it", kernel->name);
	for (size_t i = 0;; i++) {
		pthread_mutex_lock(&r->registry.lock);
		bool end = i >= r->registry.count;
		struct md_loaded entry = end ? (struct md_loaded){0} : r->registry.items[i];
		pthread_mutex_unlock(&r->registry.lock);
		if (end)
			break;
		if (!entry.is_library && entry.context != r->context)
			continue;
		if (image && (!entry.hashed || !md_hash_equal(&entry.hash, &image->hash)))
			continue;
		if (entry.live) {
			md_error_set(&best, MD_ERR_MISMATCH,
				     "kernel %s: its image was loaded while a graph was captured live, which a cold "
				     "start does not do",
				     kernel->name);
			continue;
		}
		if (image && md_restore_variables_usable(r, &entry, kernel->image, &best) != MD_OK) {
			md_error_prefix(&best, "kernel %s", kernel->name);
			continue;
		}
		struct place place = {entry.handle, entry.is_library, &entry.names};
		struct md_error why = {0};
		CUfunction function = NULL;
		bool had_names = entry.names.read;
		enum md_status status = find_in(&place, kernel, &function, &why);
		if (entry.names.read && !had_names) { /* keep the names that were read, beside their entry */
			pthread_mutex_lock(&r->registry.lock);
			r->registry.items[i].names = entry.names;
			pthread_mutex_unlock(&r->registry.lock);
		}
		if (status != MD_OK) {
			if (status != MD_ERR_NOT_FOUND)
				best = why;
			continue;
		}
		if (*out && !(entry.hashed && first.hashed && md_hash_equal(&first.hash, &entry.hash)))
			return md_error_set(
			    err, MD_ERR_AMBIGUOUS,
			    "kernel %s: its image is unknown, and several loaded images hold a kernel of that name",
			    kernel->name);
		if (!*out) {
			*out = function;
			*home = entry.handle;
			first = entry;
		}
		if (image)
			return MD_OK;
	}
	if (*out)
		return MD_OK;
	return md_error_set(err, best.status, "%s", best.message);
}

enum md_status md_restore_kernel_loaded(struct md_restore *r, uint32_t index, struct md_error *err)
{
	CUfunction function = NULL;
	void *home = NULL;
	return find_loaded(r, index, &home, &function, err);
}

static enum md_status find_stored(struct md_restore *r, uint32_t index, CUfunction *out, struct md_error *err)
{
	const struct md_kernel *kernel = &r->artifact.kernels[index];
	if (kernel->image == MD_NONE)
		return md_error_set(err, MD_ERR_NOT_FOUND, "kernel %s: its image is unknown", kernel->name);
	const struct md_image *image = &r->artifact.images[kernel->image];
	if (!md_image_is_stored(image) && !image->path)
		return md_error_set(err, MD_ERR_NOT_FOUND, "kernel %s: its image is neither stored nor in a file",
				    kernel->name);
	if (md_restore_image_load(r, kernel->image, false, err) != MD_OK)
		return md_error_prefix(err, "kernel %s", kernel->name);
	struct md_restore_image *ours = &r->images[kernel->image];
	struct place place = {ours->library, true, &ours->names};
	return find_in(&place, kernel, out, err);
}

static enum md_status take_step(struct md_restore *r, uint32_t index, enum md_step step, struct md_error *err)
    MD_REQUIRES(md_restore_work)
{
	const struct md_kernel *stored = &r->artifact.kernels[index];
	CUfunction function = NULL;
	void *home = NULL;
	if (step == MD_STEP_STORED && r->kernels[index].of_library)
		return md_error_set(
		    err, MD_ERR_NOT_FOUND,
		    "kernel %s: it communicates, and no image that the process has loaded is the one of "
		    "the capture: the communication library is another one, or has not loaded it yet",
		    stored->name);
	if (step == MD_STEP_STORED)
		MD_FORWARD(find_stored(r, index, &function, err));
	else if (step == MD_STEP_LOADED && stored->image == MD_NONE)
		return md_error_set(err, MD_ERR_NOT_FOUND, "kernel %s: its image is unknown", stored->name);
	else
		MD_FORWARD(find_loaded(r, index, &home, &function, err));
	MD_FORWARD(prepare_function(stored, function, err));
	pthread_mutex_lock(&md_restore_lock);
	r->kernels[index].function = function;
	r->kernels[index].home = home;
	r->kernels[index].from = step;
	pthread_mutex_unlock(&md_restore_lock);
	return MD_OK;
}

static void publish(struct md_restore *r, struct md_restore_kernel *kernel, enum md_kernel_state state, uint64_t start)
{
	pthread_mutex_lock(&md_restore_lock);
	kernel->state = state == MD_KERNEL_TRIGGER ? md_restore_trigger_state(r) : state;
	if (state == MD_KERNEL_RESOLVED) {
		r->stats.kernels_loaded_image += kernel->from == MD_STEP_LOADED;
		r->stats.kernels_stored_image += kernel->from == MD_STEP_STORED;
		r->stats.kernels_triggered += kernel->from == MD_STEP_TRIGGER;
	}
	r->functions_done_ns = md_clock_ns();
	r->stats.functions_ns += r->functions_done_ns - start;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&md_restore_lock);
}

static bool trigger_done(struct md_restore *r)
{
	pthread_mutex_lock(&md_restore_lock);
	bool done = r->trigger_done;
	pthread_mutex_unlock(&md_restore_lock);
	return done;
}

void md_restore_kernel_resolve(struct md_restore *r, uint32_t index)
{
	struct md_restore_kernel *kernel = &r->kernels[index];
	const struct md_kernel *stored = &r->artifact.kernels[index];
	uint64_t start = md_clock_ns();
	for (; kernel->step < r->step_count; kernel->step++) {
		enum md_step step = r->steps[kernel->step];
		struct md_error err = {0};
		if (step == MD_STEP_TRIGGER && !trigger_done(r)) {
			publish(r, kernel, MD_KERNEL_TRIGGER, start);
			return;
		}
		if (take_step(r, index, step, &err) == MD_OK) {
			publish(r, kernel, MD_KERNEL_RESOLVED, start);
			return;
		}
		md_debug("kernel %s, step %d: %s", stored->name, (int)step, err.message);
		/* Keeps the reason that tells most: a mismatch tells more than "not found". */
		if (!kernel->reason.status || err.status != MD_ERR_NOT_FOUND)
			kernel->reason = err;
	}
	if (!trigger_done(r) && md_restore_has_step(r, MD_STEP_LOADED)) {
		/* The process may still load the image, until the engine asks for a graph. */
		kernel->step = 0;
		publish(r, kernel, MD_KERNEL_TRIGGER, start);
		return;
	}
	if (kernel->reason.status == MD_ERR_NOT_FOUND || !kernel->reason.status) {
		char why[256];
		snprintf(why, sizeof(why), "%.255s", kernel->reason.message);
		md_error_set(&kernel->reason, MD_ERR_MISMATCH, "%s", why);
	}
	publish(r, kernel, MD_KERNEL_REFUSED, start);
}
