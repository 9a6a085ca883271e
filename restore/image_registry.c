/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules and libraries that the process has loaded by itself,
 * by content: a kernel that is found there needs no second load.
 */
#include <stdlib.h>

#include "base/array.h"
#include "base/file.h"
#include "restore/image_registry.h"
#include "restore/restore.h"

void md_kernel_names_finish(struct md_kernel_names *names)
{
	free(names->handles);
	free(names->names);
	*names = (struct md_kernel_names){0};
}

/* Hashing costs a pass over the image: done only when the artifact might want it. */
static bool worth_hashing(const struct md_registry *registry, uint64_t size)
{
	if (!registry->wanted)
		return true;
	for (uint32_t i = 0; i < registry->wanted_count; i++)
		if (registry->wanted[i].size == size)
			return true;
	return false;
}

static void add(struct md_registry *registry, const struct md_loaded *loaded)
{
	if (!MD_ARRAY_GROW(registry->items, registry->count, registry->capacity))
		return; /* the image counts as not loaded, and the stored image is used instead */
	registry->items[registry->count++] = *loaded;
}

/* span: NULL when the image is not known. */
static void add_span(struct md_registry *registry, void *handle, bool is_library, const struct md_image_span *span)
{
	struct md_loaded loaded = {.handle = handle, .is_library = is_library, .size = span ? span->size : 0};
	if (!is_library)
		md_cuda.cuCtxGetCurrent(&loaded.context);
	pthread_mutex_lock(&registry->lock);
	bool hash = span && worth_hashing(registry, span->size);
	pthread_mutex_unlock(&registry->lock);
	if (hash)
		loaded.hash = md_hash_bytes(span->data, span->size);
	loaded.hashed = hash;
	pthread_mutex_lock(&registry->lock);
	loaded.live = registry->live;
	add(registry, &loaded);
	pthread_mutex_unlock(&registry->lock);
}

static bool is_plain(const struct md_image_span *span, const char *option)
{
	return !option || span->kind != MD_IMAGE_PTX;
}

void md_registry_add(struct md_registry *registry, void *handle, bool is_library, const void *image, const char *option)
{
	struct md_image_span span;
	bool known = image && md_image_span(image, &span, NULL) == MD_OK;
	add_span(registry, handle, is_library, known && is_plain(&span, option) ? &span : NULL);
}

void md_registry_add_file(struct md_registry *registry, void *handle, bool is_library, const char *path,
			  const char *option)
{
	struct md_file_bytes file = {0};
	struct md_image_span span;
	bool known = path && md_file_read(path, MD_IMAGE_BYTES_MAX, &file, NULL) == MD_OK && file.size > 64 &&
		     md_image_span_within(file.data, file.size, &span, NULL) == MD_OK;
	add_span(registry, handle, is_library, known && is_plain(&span, option) ? &span : NULL);
	md_file_release(&file);
}

bool md_registry_holds(struct md_registry *registry, void *handle)
{
	bool holds = false;
	pthread_mutex_lock(&registry->lock);
	for (size_t i = 0; i < registry->count && !holds; i++)
		holds = registry->items[i].handle == handle;
	pthread_mutex_unlock(&registry->lock);
	return holds;
}

void md_registry_asked(struct md_registry *registry, const struct md_asked *asked)
{
	pthread_mutex_lock(&registry->lock);
	if (MD_ARRAY_EXTEND(registry->asked, registry->asked_count))
		registry->asked[registry->asked_count++] = *asked;
	/* otherwise the variable counts as not written, and graphs are captured live */
	pthread_mutex_unlock(&registry->lock);
}

bool md_registry_asked_at(struct md_registry *registry, const void *handle, uint64_t address, struct md_asked *out)
{
	bool found = false;
	pthread_mutex_lock(&registry->lock);
	for (size_t i = 0; i < registry->asked_count && !found; i++) {
		found = registry->asked[i].handle == handle && registry->asked[i].address == address;
		if (found && out)
			*out = registry->asked[i];
	}
	pthread_mutex_unlock(&registry->lock);
	return found;
}

bool md_registry_wants_variables(struct md_registry *registry)
{
	pthread_mutex_lock(&registry->lock);
	bool wants = !registry->wanted;
	for (uint32_t i = 0; i < registry->wanted_count && !wants; i++)
		wants = registry->wanted[i].variable != NULL;
	pthread_mutex_unlock(&registry->lock);
	return wants;
}

/* The module is gone, or another module has its handle. */
static void forget_asked(struct md_registry *registry, const void *handle)
{
	for (size_t i = registry->asked_count; i-- > 0;)
		if (registry->asked[i].handle == handle)
			registry->asked[i] = registry->asked[--registry->asked_count];
}

bool md_registry_at(struct md_registry *registry, size_t index, struct md_loaded *out)
{
	pthread_mutex_lock(&registry->lock);
	bool there = index < registry->count;
	if (there)
		*out = registry->items[index];
	pthread_mutex_unlock(&registry->lock);
	return there;
}

void md_registry_remove(struct md_registry *registry, void *handle)
{
	pthread_mutex_lock(&registry->lock);
	for (size_t i = 0; i < registry->count; i++) {
		if (registry->items[i].handle != handle)
			continue;
		forget_asked(registry, handle);
		md_kernel_names_finish(&registry->items[i].names);
		registry->items[i] = registry->items[--registry->count];
		break;
	}
	pthread_mutex_unlock(&registry->lock);
}

void md_registry_remove_context(struct md_registry *registry, CUcontext context)
{
	pthread_mutex_lock(&registry->lock);
	for (size_t i = 0; i < registry->count;) {
		if (registry->items[i].is_library || registry->items[i].context != context) {
			i++;
			continue;
		}
		forget_asked(registry, registry->items[i].handle);
		md_kernel_names_finish(&registry->items[i].names);
		registry->items[i] = registry->items[--registry->count];
	}
	pthread_mutex_unlock(&registry->lock);
}

void md_registry_want(struct md_registry *registry, const struct md_image *images, uint32_t count)
{
	pthread_mutex_lock(&registry->lock);
	registry->wanted = images;
	registry->wanted_count = count;
	pthread_mutex_unlock(&registry->lock);
}

bool md_registry_has(struct md_registry *registry, const struct md_hash *hash)
{
	bool has = false;
	pthread_mutex_lock(&registry->lock);
	for (size_t i = 0; i < registry->count && !has; i++)
		has = registry->items[i].hashed && md_hash_equal(&registry->items[i].hash, hash);
	pthread_mutex_unlock(&registry->lock);
	return has;
}

void md_registry_clear(struct md_registry *registry)
{
	pthread_mutex_lock(&registry->lock);
	for (size_t i = 0; i < registry->count; i++)
		md_kernel_names_finish(&registry->items[i].names);
	free(registry->items);
	free(registry->asked);
	registry->items = NULL;
	registry->asked = NULL;
	registry->count = registry->capacity = registry->asked_count = 0;
	registry->wanted = NULL;
	registry->wanted_count = 0;
	pthread_mutex_unlock(&registry->lock);
}
