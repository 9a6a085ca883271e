/* SPDX-License-Identifier: Apache-2.0 */
#include "backbone/holdings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "driver/process_checkpoint.h"

/* ---- memory ---- */

static enum md_status find_device(const char *text, CUdevice *device, struct md_error *err)
{
	int count = 0;
	MD_FORWARD(md_cuda_call(err, cuDeviceGetCount, &count));
	for (int i = 0; i < count; i++) {
		CUuuid uuid;
		char its[MD_CHECKPOINT_UUID_BYTES];
		MD_FORWARD(md_cuda_call(err, cuDeviceGet, device, i));
		MD_FORWARD(md_cuda_call(err, cuDeviceGetUuid_v2, &uuid, *device));
		md_checkpoint_uuid_text(&uuid, its);
		if (!strcmp(its, text))
			return MD_OK;
	}
	return md_error_set(err, MD_ERR_NOT_FOUND,
			    "this medusa-backbone sees %d GPUs, and none is %.60s: start it where it sees that one "
			    "(CUDA_VISIBLE_DEVICES)",
			    count, text);
}

/* No context is needed, and nothing is mapped here. */
static enum md_status take_memory(struct md_shared_backbone *backbone, struct md_error *err)
{
	CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					  .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
	CUdevice device;
	size_t granule;
	MD_FORWARD(find_device(backbone->device, &device, err));
	properties.location.id = device;
	MD_FORWARD(md_cuda_call(err, cuMemGetAllocationGranularity, &granule, &properties,
				CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
	if (backbone->asked > UINT64_MAX - granule)
		return md_error_set(err, MD_ERR_DRIVER_MEMORY, "%llu bytes are more than any device has",
				    (unsigned long long)backbone->asked);
	backbone->bytes = (backbone->asked + granule - 1) / granule * granule;
	MD_FORWARD(md_cuda_call(err, cuMemCreate, &backbone->handle, backbone->bytes, &properties, 0));
	enum md_status status = md_cuda_call(err, cuMemExportToShareableHandle, &backbone->fd, backbone->handle,
					     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (status != MD_OK) {
		md_cuda.cuMemRelease(backbone->handle);
		backbone->fd = -1;
	}
	return status;
}

static void destroy(struct md_shared_backbone *backbone)
{
	if (backbone->fd >= 0) {
		close(backbone->fd);
		md_cuda.cuMemRelease(backbone->handle);
	}
	free(backbone->name);
	free(backbone->layout);
	free(backbone->device);
	free(backbone);
}

/* ---- the list ---- */

static void remove_one(struct md_backbones *all, struct md_shared_backbone *backbone)
{
	struct md_shared_backbone **at = &all->first;
	while (*at != backbone)
		at = &(*at)->next;
	*at = backbone->next;
	destroy(backbone);
}

static bool is_free(const struct md_shared_backbone *backbone)
{
	return !backbone->fills && !backbone->readers;
}

/* The one on this device that nobody has had for the longest time; NULL: somebody has each of them. */
static struct md_shared_backbone *longest_unused(const struct md_backbones *all, const char *device)
{
	struct md_shared_backbone *found = NULL;
	for (struct md_shared_backbone *one = all->first; one; one = one->next)
		if (is_free(one) && !strcmp(one->device, device) && (!found || one->used < found->used))
			found = one;
	return found;
}

static bool is_called(const struct md_shared_backbone *one, const char *name, const char *layout, const char *device)
{
	return !strcmp(one->name, name) && !strcmp(one->layout, layout) && !strcmp(one->device, device);
}

struct md_shared_backbone *md_backbones_find(const struct md_backbones *all, const char *name, const char *layout,
					     const char *device)
{
	struct md_shared_backbone *found = NULL;
	for (struct md_shared_backbone *one = all->first; one; one = one->next)
		if (!one->given && is_called(one, name, layout, device) && (!found || (found->fills && !one->fills)))
			found = one;
	return found;
}

/* ---- making ---- */

static struct md_shared_backbone *new_one(const char *name, const char *layout, const char *device, uint64_t asked)
{
	struct md_shared_backbone *one = calloc(1, sizeof(*one));
	if (!one)
		return NULL;
	*one = (struct md_shared_backbone){
	    .name = strdup(name), .layout = strdup(layout), .device = strdup(device), .asked = asked, .fd = -1};
	if (one->name && one->layout && one->device)
		return one;
	destroy(one);
	return NULL;
}

static void add(struct md_backbones *all, struct md_shared_backbone *one)
{
	one->next = all->first;
	all->first = one;
}

static enum md_status make_id(char id[MD_BACKBONE_ID_BYTES], struct md_error *err)
{
	uint64_t words[2];
	if (getrandom(words, sizeof(words), 0) != (ssize_t)sizeof(words))
		return md_error_set(err, MD_ERR_IO, "getrandom gave no bytes");
	snprintf(id, MD_BACKBONE_ID_BYTES, "%016llx%016llx", (unsigned long long)words[0],
		 (unsigned long long)words[1]);
	return MD_OK;
}

enum md_status md_backbones_make(struct md_backbones *all, const char *name, const char *layout, const char *device,
				 uint64_t bytes, const void *fills, struct md_shared_backbone **made,
				 struct md_error *err)
{
	struct md_shared_backbone *one = new_one(name, layout, device, bytes), *old;
	if (!one)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for backbone %s", name);
	one->fills = fills;
	enum md_status status = make_id(one->id, err);
	while (status == MD_OK && (status = take_memory(one, err)) == MD_ERR_DRIVER_MEMORY &&
	       (old = longest_unused(all, device))) {
		remove_one(all, old);
		status = MD_OK;
	}
	if (status != MD_OK) {
		destroy(one);
		return md_error_prefix(err, "backbone %s of %llu bytes", name, (unsigned long long)bytes);
	}
	add(all, one);
	*made = one;
	return MD_OK;
}

/* ---- taking back ---- */

static struct md_shared_backbone *find_id(const struct md_backbones *all, const char *id)
{
	struct md_shared_backbone *one = all->first;
	while (one && strcmp(one->id, id))
		one = one->next;
	return one;
}

static bool is_same(const struct md_shared_backbone *one, const struct md_shared_backbone *like)
{
	return !one->fills && is_called(one, like->name, like->layout, like->device) && one->asked == like->asked &&
	       one->bytes == like->bytes && md_hash_equal(&one->hash, &like->hash);
}

/* Importing shows that it is memory of a device. */
static enum md_status import(const struct md_shared_backbone *like, int memory, struct md_shared_backbone **made,
			     struct md_error *err)
{
	struct md_shared_backbone *one = new_one(like->name, like->layout, like->device, like->asked);
	CUdevice device;
	if (!one)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for backbone %s", like->name);
	enum md_status status = find_device(like->device, &device, err);
	if (status == MD_OK)
		status = md_cuda_call(err, cuMemImportFromShareableHandle, &one->handle, (void *)(intptr_t)memory,
				      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (status != MD_OK) {
		destroy(one);
		return md_error_prefix(err, "taking back backbone %s", like->name);
	}
	one->fd = memory;
	one->bytes = like->bytes;
	one->hash = like->hash;
	memcpy(one->id, like->id, sizeof(one->id));
	*made = one;
	return MD_OK;
}

enum md_status md_backbones_hold(struct md_backbones *all, const struct md_shared_backbone *like, int memory,
				 struct md_shared_backbone **held, struct md_error *err)
{
	struct md_shared_backbone *one = find_id(all, like->id);
	if (!one) {
		enum md_status status = import(like, memory, &one, err);
		if (status != MD_OK) {
			close(memory);
			return status;
		}
		add(all, one);
	} else {
		close(memory);
		if (!is_same(one, like))
			return md_error_set(err, MD_ERR_CORRUPT, "another backbone than %s has the id %s", like->name,
					    like->id);
	}
	one->readers++;
	*held = one;
	return MD_OK;
}

/* ---- what becomes of one ---- */

void md_backbones_filled(struct md_shared_backbone *backbone, const struct md_hash *hash)
{
	backbone->hash = *hash;
	backbone->fills = NULL;
	backbone->readers = 1;
}

void md_backbones_abandon(struct md_backbones *all, struct md_shared_backbone *backbone)
{
	remove_one(all, backbone);
}

void md_backbones_leave(struct md_backbones *all, struct md_shared_backbone *backbone)
{
	backbone->readers--;
	backbone->used = ++all->uses;
	if (is_free(backbone) && !all->keep)
		remove_one(all, backbone);
}

unsigned md_backbones_drop(struct md_backbones *all, const char *name)
{
	unsigned dropped = 0;
	for (struct md_shared_backbone *one = all->first, *next; one; one = next) {
		next = one->next;
		if (!is_free(one) || (name && strcmp(one->name, name)))
			continue;
		remove_one(all, one);
		dropped++;
	}
	return dropped;
}

void md_backbones_finish(struct md_backbones *all)
{
	while (all->first)
		remove_one(all, all->first);
}
