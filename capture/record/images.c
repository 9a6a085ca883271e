/* SPDX-License-Identifier: Apache-2.0 */
/* Images as they are loaded: each content once, and the modules and libraries that came from it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/map.h"
#include "capture/capture.h"
#include "capture/record/images.h"
#include "capture/record/kernels.h"
#include "capture/record/module_variables.h"
#include "driver/image.h"

struct library {
	CUlibrary handle;
	uint32_t image;
	CUcontext module_known; /* its module is known in this context */
};

struct module {
	CUcontext context; /* the context that was current when the module was seen */
	CUdevice device;
	CUlibrary library; /* the library that made the module, or NULL */
	uint32_t image;
};

struct content {
	struct md_hash hash;
	const char *option; /* the option with which PTX was compiled, or NULL; static */
};

static struct {
	struct content *contents; /* by image index */
	uint32_t count;
	struct md_map modules; /* CUmodule -> struct module *, owned; also of modules that libraries made */
	struct library *libraries;
	size_t library_count;
} images MD_CAPTURE_GUARDED;

/* ---- contents ---- */

static uint32_t find_hash(const struct md_hash *hash) MD_CAPTURE_HELD
{
	for (uint32_t i = 0; i < images.count; i++) {
		if (md_hash_equal(&images.contents[i].hash, hash))
			return i;
	}
	return MD_NONE;
}

static void build_id_text(const struct md_image_home *home, char *text)
{
	for (size_t i = 0; i < home->build_id_size && i < MD_BUILD_ID_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", home->build_id[i]);
}

static bool keep_bytes(bool in_file)
{
	return md_capture.options.store == MD_STORE_ALL || (md_capture.options.store == MD_STORE_ANONYMOUS && !in_file);
}

static uint32_t put_image(const struct md_image_span *span, const struct md_hash *hash,
			  struct md_image_home *home) MD_CAPTURE_HELD
{
	char build_id[2 * MD_BUILD_ID_BYTES + 1] = "";
	struct md_image image = {.hash = *hash, .kind = span->kind, .size = span->size};
	if (!MD_ARRAY_EXTEND(images.contents, images.count)) {
		md_capture_trouble("out of memory for image %u", images.count);
		return MD_NONE;
	}
	build_id_text(home, build_id);
	if (home->path[0]) {
		image.path = home->path;
		image.build_id = build_id[0] ? build_id : NULL;
		image.file_offset = home->offset;
	}
	if (keep_bytes(home->path[0]))
		image.data = (uint8_t *)span->data; /* borrowed; the writer copies */
	md_trace_put_image(md_capture.writer, md_capture_next(), &image);
	images.contents[images.count] = (struct content){.hash = *hash};
	return images.count++;
}

/* file: the path that the engine gave; the image was read from there. */
static uint32_t note_span(const struct md_image_span *found, const void *image, const char *file, const char *option)
{
	MD_AUTO_FREE struct md_image_home *home = calloc(1, sizeof(*home));
	const struct md_image_span span = *found;
	struct md_hash hash;
	struct md_error err = {0};
	uint32_t index;
	if (!home)
		return MD_NONE;
	hash = md_hash_bytes(span.data, span.size);
	md_capture_lock();
	index = md_capture.writer ? find_hash(&hash) : MD_NONE;
	if (index == MD_NONE && md_capture.writer) {
		if (!file && md_image_home(span.data, home, &err) != MD_OK)
			md_debug("image home: %s", err.message);
		if (file && !realpath(file, home->path))
			home->path[0] = '\0';
		if (file)
			home->offset = (uint64_t)((const char *)span.data - (const char *)image);
		index = put_image(&span, &hash, home);
	}
	if (index != MD_NONE && option && span.kind == MD_IMAGE_PTX)
		images.contents[index].option = option;
	md_capture_unlock();
	return index;
}

static uint32_t not_recorded(const struct md_error *err)
{
	md_warn("an image is not recorded: %s", err->message);
	return MD_NONE;
}

static uint32_t note_image(const void *image, const char *option)
{
	struct md_image_span span;
	struct md_error err = {0};
	if (!image)
		return MD_NONE;
	return md_image_span(image, &span, &err) == MD_OK ? note_span(&span, image, NULL, option) : not_recorded(&err);
}

/* The file is read and not mapped, because it may be cut off meanwhile. */
static uint32_t note_file(const char *path, const char *option)
{
	struct md_file_bytes file = {0};
	struct md_image_span span;
	struct md_error err = {0};
	uint32_t index;
	if (md_file_read(path, MD_IMAGE_BYTES_MAX, &file, &err) != MD_OK ||
	    md_image_span_within(file.data, file.size, &span, &err) != MD_OK)
		index = not_recorded(&err);
	else
		index = note_span(&span, file.data, path, option);
	md_file_release(&file);
	return index;
}

/* ---- handles ---- */

static struct module *find_module(CUmodule handle)
{
	uint64_t module;
	return md_map_get(&images.modules, (uintptr_t)handle, &module) ? (struct module *)(uintptr_t)module : NULL;
}

static void forget_module(CUmodule handle)
{
	uint64_t module;
	if (md_map_remove(&images.modules, (uintptr_t)handle, &module))
		free((struct module *)(uintptr_t)module);
}

/* A handle may come again: the earlier module is forgotten, even if nothing is known of the new one. */
static void put_module(CUmodule handle, CUlibrary library, uint32_t image) MD_CAPTURE_HELD
{
	struct module *module;
	forget_module(handle);
	if (image == MD_NONE)
		return;
	module = calloc(1, sizeof(*module));
	if (!module || !md_map_put(&images.modules, (uintptr_t)handle, (uintptr_t)module)) {
		free(module);
		md_capture_trouble("out of memory for a module");
		return;
	}
	*module = (struct module){.device = -1, .library = library, .image = image};
	md_cuda.cuCtxGetCurrent(&module->context);
	md_cuda.cuCtxGetDevice(&module->device);
}

static void remember_module(CUmodule module, uint32_t image)
{
	md_capture_lock();
	put_module(module, NULL, image);
	md_capture_unlock();
}

static void remember_library(CUlibrary library, uint32_t image)
{
	if (image == MD_NONE)
		return;
	md_capture_lock();
	if (MD_ARRAY_EXTEND(images.libraries, images.library_count))
		images.libraries[images.library_count++] = (struct library){library, image, NULL};
	else
		md_capture_trouble("out of memory for library %zu", images.library_count);
	md_capture_unlock();
}

void md_capture_module_loaded(CUmodule module, const void *image, const char *option)
{
	remember_module(module, note_image(image, option));
}

void md_capture_module_loaded_file(CUmodule module, const char *path)
{
	remember_module(module, note_file(path, NULL));
}

void md_capture_library_loaded(CUlibrary library, const void *image, const char *option)
{
	remember_library(library, note_image(image, option));
}

void md_capture_library_loaded_file(CUlibrary library, const char *path, const char *option)
{
	remember_library(library, note_file(path, option));
}

void md_capture_library_module(CUlibrary library, CUmodule module)
{
	md_capture_lock();
	put_module(module, library, md_capture_image_of_library(library));
	for (size_t i = 0; i < images.library_count; i++)
		if (images.libraries[i].handle == library)
			md_cuda.cuCtxGetCurrent(&images.libraries[i].module_known);
	md_capture_unlock();
}

void md_capture_module_unloaded(CUmodule module)
{
	md_capture_lock();
	md_capture_variables_gone(module);
	forget_module(module);
	md_capture_kernels_forget(module, NULL);
	md_capture_unlock();
}

enum lost { WITH_LIBRARY, WITH_CONTEXT, WITH_DEVICE };

static bool is_lost(const struct module *module, enum lost how, const void *with, CUdevice device)
{
	if (how == WITH_DEVICE)
		return module->device == device;
	return (how == WITH_LIBRARY ? (const void *)module->library : (const void *)module->context) == with;
}

/* A map must not change while it is walked. */
static void forget_modules(enum lost how, const void *with, CUdevice device) MD_CAPTURE_HELD
{
	uint64_t handle, module;
	size_t cursor = 0;
	while (md_map_next(&images.modules, &cursor, &handle, &module)) {
		if (!is_lost((const struct module *)(uintptr_t)module, how, with, device))
			continue;
		if (how == WITH_LIBRARY) /* modules of a context are gone already; modules of a device all go */
			md_capture_kernels_forget((CUmodule)(uintptr_t)handle, NULL);
		forget_module((CUmodule)(uintptr_t)handle);
		cursor = 0;
	}
}

/* Handles of every kernel are looked at anew: functions of libraries' kernels die with a context too. */
static void context_lost(enum lost how, CUcontext context, CUdevice device)
{
	md_capture_lock();
	forget_modules(how, context, device);
	md_capture_kernels_forget(NULL, NULL);
	for (size_t i = 0; i < images.library_count; i++)
		images.libraries[i].module_known = NULL;
	md_capture_unlock();
}

void md_capture_context_destroyed(CUcontext context)
{
	context_lost(WITH_CONTEXT, context, -1);
}

/*
 * A context of that device that the engine created lives on; but learning its images again costs less than a mistake.
 */
void md_capture_primary_released(CUdevice device)
{
	unsigned flags;
	int active = 0;
	if (md_cuda.cuDevicePrimaryCtxGetState(device, &flags, &active) || !active)
		context_lost(WITH_DEVICE, NULL, device);
}

void md_capture_library_unloaded(CUlibrary library)
{
	md_capture_lock();
	md_capture_variables_gone(library);
	for (size_t i = 0; i < images.library_count; i++) {
		if (images.libraries[i].handle != library)
			continue;
		images.libraries[i] = images.libraries[--images.library_count];
		break;
	}
	forget_modules(WITH_LIBRARY, library, -1);
	md_capture_kernels_forget(NULL, library);
	md_capture_unlock();
}

uint32_t md_capture_image_of_library(CUlibrary library)
{
	for (size_t i = 0; i < images.library_count; i++) {
		if (images.libraries[i].handle == library)
			return images.libraries[i].image;
	}
	return MD_NONE;
}

const char *md_capture_image_option(uint32_t image)
{
	return image < images.count ? images.contents[image].option : NULL;
}

/*
 * Asking a library for its module may load it, so each is asked once in a context, and only when a kernel's module is
 * unknown.
 */
static bool learn_library_modules(CUmodule wanted) MD_CAPTURE_HELD
{
	CUcontext current = NULL;
	md_cuda.cuCtxGetCurrent(&current);
	for (size_t i = 0; i < images.library_count; i++) {
		struct library *library = &images.libraries[i];
		CUmodule module;
		if (library->module_known == current || md_cuda.cuLibraryGetModule(&module, library->handle))
			continue;
		library->module_known = current;
		put_module(module, library->handle, library->image);
		if (module == wanted)
			return true;
	}
	return false;
}

uint32_t md_capture_image_of_module(CUmodule module)
{
	const struct module *known = find_module(module);
	if (!known && learn_library_modules(module))
		known = find_module(module);
	return known ? known->image : MD_NONE;
}
