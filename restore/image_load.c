/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the artifact's own images, stored or in files, on a few threads: the driver takes them in parallel. */
#define MD_LOG_DOMAIN "restore"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "restore/restore.h"

static enum md_status read_region(const char *path, const struct md_image *image, uint8_t *out, struct md_error *err)
{
	MD_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return md_error_set(err, MD_ERR_MISMATCH, "image file %s: %s", path, strerror(errno));
	for (uint64_t done = 0; done < image->size;) {
		ssize_t got = pread(fd, out + done, image->size - done, (off_t)(image->file_offset + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return md_error_set(
			    err, MD_ERR_MISMATCH, "image file %s: %s at offset %llu, the image ends at %llu", path,
			    got < 0 ? strerror(errno) : "end of file", (unsigned long long)(image->file_offset + done),
			    (unsigned long long)(image->file_offset + image->size));
		done += (uint64_t)got;
	}
	struct md_hash hash = md_hash_bytes(out, image->size);
	if (!md_hash_equal(&hash, &image->hash)) {
		char now[MD_HASH_TEXT_BYTES], stored[MD_HASH_TEXT_BYTES];
		md_hash_format(&hash, now);
		md_hash_format(&image->hash, stored);
		return md_error_set(err, MD_ERR_MISMATCH, "image file %s at offset %llu: content %s, artifact has %s",
				    path, (unsigned long long)image->file_offset, now, stored);
	}
	return MD_OK;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* The file of the same name that this process has mapped from elsewhere, if any. */
static bool find_mapped(const char *wanted, char *path, size_t room)
{
	MD_AUTO_FILE FILE *maps = fopen("/proc/self/maps", "re");
	char line[4352];
	while (maps && fgets(line, sizeof(line), maps)) {
		char *start = strchr(line, '/');
		if (!start)
			continue;
		start[strcspn(start, "\n")] = '\0';
		if (strcmp(base_name(start), base_name(wanted)) || strlen(start) >= room || !strcmp(start, wanted))
			continue;
		memcpy(path, start, strlen(start) + 1);
		return true;
	}
	return false;
}

static enum md_status read_file_image(const struct md_image *image, uint8_t *out, struct md_error *err)
{
	char elsewhere[4096];
	enum md_status status = read_region(image->path, image, out, err);
	if (status != MD_OK && find_mapped(image->path, elsewhere, sizeof(elsewhere)))
		status = read_region(elsewhere, image, out, NULL);
	return status;
}

static enum md_status check_stored(const struct md_image *image, struct md_error *err)
{
	struct md_hash hash = md_hash_bytes(image->data, image->size);
	return md_hash_equal(&hash, &image->hash)
		   ? MD_OK
		   : md_error_set(err, MD_ERR_MISMATCH, "the stored image's content is not what its hash says");
}

static enum md_status load(const struct md_image *image, CUlibrary *library, struct md_error *err)
{
	MD_AUTO_FREE uint8_t *copy = NULL;
	const void *code = image->data;
	if (image->data)
		MD_FORWARD(check_stored(image, err));
	if (!code || image->kind == MD_IMAGE_PTX) { /* PTX is a text: it needs its NUL */
		if (!image->data && !image->path)
			return md_error_set(err, MD_ERR_MISMATCH,
					    "the artifact neither stores the image nor names its file");
		copy = malloc(image->size + 1);
		if (!copy)
			return md_error_set(err, MD_ERR_NO_MEMORY, "no memory for an image of %llu bytes",
					    (unsigned long long)image->size);
		copy[image->size] = 0;
		if (image->data)
			memcpy(copy, image->data, image->size);
		else
			MD_FORWARD(read_file_image(image, copy, err));
		code = copy;
	}
	return md_cuda_call(err, cuLibraryLoadData, library, code, NULL, NULL, 0, NULL, NULL, 0);
}

enum md_status md_restore_image_load(struct md_restore *r, uint32_t index, struct md_error *err)
{
	struct md_restore_image *image = &r->images[index];
	pthread_mutex_lock(&r->lock);
	while (image->state == MD_IMAGE_LOADING)
		pthread_cond_wait(&r->changed, &r->lock);
	bool mine = image->state == MD_IMAGE_IDLE;
	if (mine)
		image->state = MD_IMAGE_LOADING;
	pthread_mutex_unlock(&r->lock);
	if (!mine)
		goto out;

	CUlibrary library = NULL;
	struct md_error reason = {0};
	uint64_t start = md_clock_ns();
	enum md_status status = load(&r->artifact.images[index], &library, &reason);
	pthread_mutex_lock(&r->lock);
	image->library = library;
	image->reason = reason;
	image->state = status == MD_OK ? MD_IMAGE_LOADED : MD_IMAGE_FAILED;
	if (!r->images_first_ns || start < r->images_first_ns)
		r->images_first_ns = start;
	r->images_last_ns = md_clock_ns();
	r->stats.images_ns = r->images_last_ns - r->images_first_ns;
	if (status == MD_OK)
		r->stats.image_bytes += r->artifact.images[index].size;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
out:
	if (image->state == MD_IMAGE_LOADED)
		return MD_OK;
	return md_error_set(err, image->reason.status, "%s", image->reason.message);
}

static void *loader_main(void *argument)
{
	struct md_restore *r = argument;
	if (!md_restore_thread_enter(r, "medusa-images"))
		return NULL;
	bool loaded_first = r->steps[0] == MD_STEP_LOADED;
	while (!atomic_load(&r->stop)) {
		unsigned next = atomic_fetch_add(&r->next_image, 1);
		if (next >= r->image_order_count)
			break;
		uint32_t image = r->image_order[next];
		if (loaded_first && md_registry_has(&r->registry, &r->artifact.images[image].hash))
			continue; /* resolve looks there first */
		(void)md_restore_image_load(r, image, NULL);
	}
	CUcontext popped;
	md_cuda.cuCtxPopCurrent_v2(&popped);
	return NULL;
}

/* Images are read ahead only when they come before triggering: with a trigger first they may never be needed. */
static bool stored_comes_early(const struct md_restore *r)
{
	for (unsigned i = 0; i < r->step_count && r->steps[i] != MD_STEP_TRIGGER; i++)
		if (r->steps[i] == MD_STEP_STORED)
			return true;
	return false;
}

void md_restore_images_start(struct md_restore *r)
{
	atomic_store(&r->next_image, 0);
	r->loader_count = 0;
	if (!stored_comes_early(r) || r->image_order_count < 2 || r->verify)
		return; /* resolve loads them when it needs them */
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned count = cpus < 2 ? 1 : cpus > 4 ? 4 : (unsigned)cpus;
	for (unsigned i = 0; i < count && i < r->image_order_count; i++)
		if (pthread_create(&r->loaders[r->loader_count], NULL, loader_main, r) == 0)
			r->loader_count++;
}

void md_restore_images_join(struct md_restore *r)
{
	for (unsigned i = 0; i < r->loader_count; i++)
		pthread_join(r->loaders[i], NULL);
	r->loader_count = 0;
}

static bool used_by_ready(const struct md_restore *r, uint32_t image)
{
	for (uint32_t g = 0; g < r->artifact.graph_count; g++) {
		const struct md_restore_graph *graph = &r->graphs[g];
		for (uint32_t k = 0; graph->state == MD_GRAPH_READY && k < graph->kernel_count; k++) {
			uint32_t kernel = graph->kernels[k];
			if (r->kernels[kernel].from == MD_STEP_STORED && r->artifact.kernels[kernel].image == image)
				return true;
		}
	}
	return false;
}

void md_restore_images_unload(struct md_restore *r, bool only_unused)
{
	for (uint32_t i = 0; r->images && i < r->artifact.image_count; i++) {
		struct md_restore_image *image = &r->images[i];
		if (image->state != MD_IMAGE_LOADED || (only_unused && used_by_ready(r, i)))
			continue;
		struct md_error err = {0};
		md_names_finish(&image->names);
		if (md_cuda_call(&err, cuLibraryUnload, image->library) != MD_OK)
			md_debug("image %u: %s", i, err.message);
		image->library = NULL;
		image->state = MD_IMAGE_IDLE;
	}
}
