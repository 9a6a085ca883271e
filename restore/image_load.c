/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the artifact's own images, stored or in files, on a few threads: the driver takes them in parallel. */
#define MD_LOG_DOMAIN "restore"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "restore/background.h"
#include "restore/constants.h"
#include "restore/image_load.h"
#include "restore/image_registry.h"
#include "restore/restore.h"
#include "restore/variables.h"

#define DEVICE_PAGE (2ull << 20)

/*
 * An image as the driver gets it: in memory of ours, because
 * a file may change meanwhile. The driver makes its own copy.
 */
struct code {
	uint8_t *bytes; /* owned; a zero stands behind: PTX is a text */
};

static void code_finish(struct code *code)
{
	free(code->bytes);
	*code = (struct code){0};
}

static enum md_status code_init(struct code *code, uint64_t size, struct md_error *err)
{
	code->bytes = size <= MD_IMAGE_BYTES_MAX ? malloc(size + 1) : NULL;
	if (!code->bytes)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for an image of %llu bytes",
				    (unsigned long long)size);
	code->bytes[size] = 0;
	return MD_OK;
}

/* Reads the beginning first: the file may hold gigabytes of something else. */
static enum md_status read_bytes(int fd, const char *path, const struct md_image *image, uint8_t *out,
				 struct md_error *err)
{
	size_t first = image->size < MD_IMAGE_FIRST_BYTES ? (size_t)image->size : MD_IMAGE_FIRST_BYTES;
	enum md_status status = md_file_read_at(fd, image->file_offset, out, first, err);
	if (status == MD_OK && !md_image_starts(image->kind, image->size, out, first))
		return md_error_set(err, MD_ERR_MISMATCH,
				    "image file %s at offset %llu: no image of %llu bytes is there", path,
				    (unsigned long long)image->file_offset, (unsigned long long)image->size);
	if (status == MD_OK)
		status = md_file_read_at(fd, image->file_offset + first, out + first, image->size - first, err);
	return status == MD_OK ? MD_OK : md_error_prefix(err, "image file %s", path);
}

static enum md_status check_content(const char *path, const struct md_image *image, const uint8_t *bytes,
				    struct md_error *err)
{
	struct md_hash hash = md_hash_bytes(bytes, image->size);
	char now[MD_HASH_TEXT_BYTES], stored[MD_HASH_TEXT_BYTES];
	if (md_hash_equal(&hash, &image->hash))
		return MD_OK;
	md_hash_format(&hash, now);
	md_hash_format(&image->hash, stored);
	return md_error_set(err, MD_ERR_MISMATCH,
			    "image file %s at offset %llu: its hash is %s, the artifact has %s: the file has "
			    "changed since the capture",
			    path, (unsigned long long)image->file_offset, now, stored);
}

/* Reads the image alone, because a library has gigabytes. */
static enum md_status read_region(const char *path, const struct md_image *image, struct code *code,
				  struct md_error *err)
{
	struct md_error why = {0};
	uint64_t size = 0;
	MD_AUTO_FD int fd = -1;
	if (md_file_open(path, UINT64_MAX, &fd, &size, &why) != MD_OK)
		return md_error_set(err, MD_ERR_MISMATCH, "image file %s", why.message);
	if (image->file_offset > size || image->size > size - image->file_offset)
		return md_error_set(err, MD_ERR_MISMATCH, "image file %s: end of file at %llu, the image ends at %llu",
				    path, (unsigned long long)size,
				    (unsigned long long)(image->file_offset + image->size));
	if (!image->size)
		return md_error_set(err, MD_ERR_MISMATCH, "image file %s: the image has no bytes", path);
	struct code read MD_CLEANUP(code_finish) = {0};
	MD_FORWARD(code_init(&read, image->size, err));
	MD_FORWARD(read_bytes(fd, path, image, read.bytes, err));
	MD_FORWARD(check_content(path, image, read.bytes, err));
	code->bytes = md_steal_ptr(&read.bytes);
	return MD_OK;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* The file of the same name that this process has mapped from elsewhere; NULL: there is none. The caller frees it. */
static char *find_mapped(const char *wanted)
{
	MD_AUTO_FILE FILE *maps = md_descriptor_read_stream("/proc/self/maps");
	MD_AUTO_FREE char *line = NULL;
	size_t room = 0;
	while (maps && getline(&line, &room, maps) > 0) {
		char *path = strchr(line, '/');
		if (!path)
			continue;
		path[strcspn(path, "\n")] = '\0';
		if (!strcmp(base_name(path), base_name(wanted)) && strcmp(path, wanted))
			return strdup(path);
	}
	return NULL;
}

static enum md_status read_file_image(const struct md_image *image, struct code *code, struct md_error *err)
{
	enum md_status status = read_region(image->path, image, code, err);
	MD_AUTO_FREE char *elsewhere = status == MD_OK ? NULL : find_mapped(image->path);
	return elsewhere ? read_region(elsewhere, image, code, NULL) : status;
}

static enum md_status read_stored(const struct md_restore *r, uint32_t index, struct code *code, struct md_error *err)
{
	const struct md_image *image = &r->artifact.images[index];
	MD_FORWARD(code_init(code, image->size, err));
	MD_FORWARD(md_artifact_read_image(r->file, &r->artifact, index, code->bytes, err));
	struct md_hash hash = md_hash_bytes(code->bytes, image->size);
	return md_hash_equal(&hash, &image->hash)
		   ? MD_OK
		   : md_error_set(err, MD_ERR_MISMATCH, "stored image fails its hash check");
}

static enum md_status read_code(const struct md_restore *r, uint32_t index, struct code *code, struct md_error *err)
{
	const struct md_image *image = &r->artifact.images[index];
	if (md_image_is_stored(image))
		return read_stored(r, index, code, err);
	if (!image->path)
		return md_error_set(err, MD_ERR_MISMATCH, "the artifact neither stores the image nor names its file");
	return read_file_image(image, code, err);
}

/* Waits until the driver may be used beside the engine's replays; false: loading is no longer worth while. */
static bool wait_for_turn(struct md_restore *r, uint64_t bytes, struct md_pace_turn *turn)
{
	bool go = false;
	pthread_mutex_lock(&md_restore_lock);
	while (!r->images_stop && !atomic_load(&r->stop)) {
		bool held = r->holds > 0;
		go = !held && md_pace_begin(&r->pace, MD_PACE_IMAGE, bytes / 1024 + 1, r->awaited > 0, turn);
		if (go)
			break;
		md_restore_busy(r, -1);
		md_restore_wait(r, held ? UINT64_MAX : md_clock_ns() + turn->wait_ns);
		md_restore_busy(r, +1);
	}
	pthread_mutex_unlock(&md_restore_lock);
	return go;
}

static enum md_status load(struct md_restore *r, uint32_t index, bool paced, CUlibrary *library, struct md_error *err)
{
	struct code code MD_CLEANUP(code_finish) = {0};
	struct md_pace_turn turn;
	MD_FORWARD(read_code(r, index, &code, err));
	if (paced && !wait_for_turn(r, r->artifact.images[index].size, &turn))
		return md_error_set(err, MD_ERR_BUSY, "the restore ended before the image was loaded");
	enum md_status status = md_cuda_call(err, cuLibraryLoadData, library, code.bytes, NULL, NULL, 0, NULL, NULL, 0);
	if (paced)
		md_pace_end(&r->pace, &turn);
	return status;
}

static void publish(struct md_restore *r, uint32_t index, enum md_status status, CUlibrary library, uint64_t start,
		    const struct md_error *reason) MD_REQUIRES(md_restore_lock)
{
	struct md_restore_image *image = &r->images[index];
	if (status == MD_ERR_BUSY) {
		image->state = MD_IMAGE_IDLE; /* a graph that wants it after all loads it */
		return;
	}
	image->library = library;
	image->reason = *reason;
	image->state = status == MD_OK ? MD_IMAGE_LOADED : MD_IMAGE_FAILED;
	if (!r->images_first_ns || start < r->images_first_ns)
		r->images_first_ns = start;
	r->images_last_ns = md_clock_ns();
	r->stats.images_ns = r->images_last_ns - r->images_first_ns;
	if (status == MD_OK)
		r->stats.image_bytes += r->artifact.images[index].size;
}

enum md_status md_restore_image_load(struct md_restore *r, uint32_t index, bool paced, struct md_error *err)
{
	struct md_restore_image *image = &r->images[index];
	pthread_mutex_lock(&md_restore_lock);
	while (image->state == MD_IMAGE_LOADING)
		pthread_cond_wait(&r->changed, &md_restore_lock);
	if (image->state == MD_IMAGE_IDLE) {
		image->state = MD_IMAGE_LOADING;
		image->queued = false;
		md_restore_busy(r, +1);
		pthread_mutex_unlock(&md_restore_lock);
		CUlibrary library = NULL;
		struct md_error reason = {0};
		uint64_t start = md_clock_ns();
		enum md_status status = load(r, index, paced, &library, &reason);
		pthread_mutex_lock(&md_restore_lock);
		publish(r, index, status, library, start, &reason);
		md_restore_busy(r, -1);
		pthread_cond_broadcast(&r->changed);
	}
	enum md_status status = MD_OK;
	if (image->state == MD_IMAGE_IDLE)
		status = md_error_set(err, MD_ERR_BUSY, "image %u was not loaded", index);
	else if (image->state != MD_IMAGE_LOADED)
		status = md_error_set(err, image->reason.status, "%s", image->reason.message);
	pthread_mutex_unlock(&md_restore_lock);
	return status;
}

bool md_restore_image_coming(const struct md_restore *r, uint32_t image)
{
	return r->images[image].queued || r->images[image].state == MD_IMAGE_LOADING;
}

uint64_t md_restore_images_held(const struct md_restore *r, bool at_most)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; r->images && i < r->artifact.image_count; i++)
		if (r->images[i].state == MD_IMAGE_LOADED || (at_most && r->images[i].state == MD_IMAGE_LOADING))
			bytes += at_most ? 2 * r->artifact.images[i].size + DEVICE_PAGE : r->artifact.images[i].size;
	return bytes;
}

/* Empties the queue: from here on an image is loaded by the thread that wants it. */
static void clear_queue(struct md_restore *r)
{
	pthread_mutex_lock(&md_restore_lock);
	r->images_stop = true;
	r->image_order_count = r->next_image = 0;
	for (uint32_t i = 0; r->images && i < r->artifact.image_count; i++)
		r->images[i].queued = false;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&md_restore_lock);
}

/* The next image in the queue, or MD_NONE. */
static uint32_t take_image(struct md_restore *r)
{
	uint32_t image = MD_NONE;
	pthread_mutex_lock(&md_restore_lock);
	while (image == MD_NONE && r->next_image < r->image_order_count && !r->images_stop) {
		image = r->image_order[r->next_image++];
		if (!r->images[image].queued)
			image = MD_NONE;
	}
	pthread_mutex_unlock(&md_restore_lock);
	return image;
}

static void skip_image(struct md_restore *r, uint32_t image)
{
	pthread_mutex_lock(&md_restore_lock);
	r->images[image].queued = false;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&md_restore_lock);
}

static void *loader_main(void *argument)
{
	struct md_restore *r = argument;
	uint32_t image;
	if (!md_restore_thread_enter(r, "medusa-images")) {
		clear_queue(r);
		return NULL;
	}
	bool loaded_first = r->steps[0] == MD_STEP_LOADED;
	while (!atomic_load(&r->stop) && (image = take_image(r)) != MD_NONE) {
		if (loaded_first && md_registry_has(&r->registry, &r->artifact.images[image].hash))
			skip_image(r, image); /* resolve looks there first */
		else
			(void)md_restore_image_load(r, image, true, NULL);
	}
	if (!atomic_load(&r->stop))
		md_restore_constants_prepare(r);
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
	r->loader_count = 0;
	pthread_mutex_lock(&md_restore_lock);
	r->images_stop = false;
	pthread_mutex_unlock(&md_restore_lock);
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned count = cpus < 2 ? 1 : cpus > 4 ? 4 : (unsigned)cpus;
	if (!stored_comes_early(r) || r->verify)
		count = 0; /* resolve loads them when it needs them */
	if (count > r->image_order_count)
		count = r->image_order_count;
	for (unsigned i = 0; i < count; i++)
		if (md_thread_start(&r->loaders[r->loader_count], loader_main, r) == 0)
			r->loader_count++;
	if (!r->loader_count)
		clear_queue(r);
}

void md_restore_images_join(struct md_restore *r)
{
	clear_queue(r);
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
		for (uint32_t i = 0; graph->state == MD_GRAPH_READY && i < graph->image_count; i++)
			if (graph->images[i] == image && md_restore_variables_ours(&r->artifact, image))
				return true;
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
		md_kernel_names_finish(&image->names);
		md_restore_variables_gone(r, i);
		if (md_cuda_call(&err, cuLibraryUnload, image->library) != MD_OK)
			md_debug("image %u: %s", i, err.message);
		image->library = NULL;
		image->state = MD_IMAGE_IDLE;
	}
}
