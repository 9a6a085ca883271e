/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of an artifact's images: one zstd frame each, with its own checksum, compressed on a few threads. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/thread.h"
#include "format/artifact/sections.h"

#define LEVEL 9 /* zstd level: a higher one takes long, and kernels shrink little further */
#define THREADS_MAX 8
#define RATIO_MAX 1000u /* raw bytes of an image for each stored byte, beyond 64 MiB */
#define RATIO_FREE (64u << 20)

static enum md_status name_image(const struct md_artifact *artifact, uint32_t image, enum md_status status,
				 struct md_error *err)
{
	char hash[MD_HASH_TEXT_BYTES];
	md_hash_format(&artifact->images[image].hash, hash);
	md_error_prefix(err, "section \"" MD_IMAGE_SECTION "\": image %u (%s), frame at %" PRIu64, image, hash,
			artifact->images[image].frame.offset);
	return status;
}

/* ---- writing ---- */

struct packing { /* shared by the threads; each takes the next image */
	const struct md_artifact *artifact;
	const uint32_t *first; /* by image: the first one of that content, or MD_NONE when it is not stored */
	struct md_buf *packed; /* by image */
	struct md_error *errors;
	atomic_uint next;
};

static void *pack_main(void *argument)
{
	struct packing *p = argument;
	for (;;) {
		unsigned i = atomic_fetch_add(&p->next, 1);
		if (i >= p->artifact->image_count)
			return NULL;
		const struct md_image *image = &p->artifact->images[i];
		if (p->first[i] == i)
			md_zip_append(&p->packed[i], image->data, image->size, LEVEL, image->size > 1u << 20,
				      &p->errors[i]);
	}
}

static void pack_all(struct packing *p)
{
	pthread_t threads[THREADS_MAX];
	unsigned count = 0;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	while (count + 1 < THREADS_MAX && count + 1 < cpus && count + 1 < p->artifact->image_count &&
	       md_thread_start(&threads[count], pack_main, p) == 0)
		count++;
	pack_main(p);
	while (count > 0)
		pthread_join(threads[--count], NULL);
}

/* Images of equal hash and size have one frame. */
static bool find_firsts(const struct md_artifact *artifact, uint32_t *first)
{
	struct md_map seen;
	bool ok = true;
	md_map_init(&seen);
	for (uint32_t i = 0; i < artifact->image_count && ok; i++) {
		const struct md_image *image = &artifact->images[i];
		uint64_t key, at;
		memcpy(&key, image->hash.bytes, sizeof(key));
		first[i] = image->data ? i : MD_NONE;
		if (!image->data)
			continue;
		if (!md_map_get(&seen, key, &at))
			ok = md_map_put(&seen, key, i);
		else if (artifact->images[at].size == image->size &&
			 !memcmp(artifact->images[at].data, image->data, image->size))
			first[i] = (uint32_t)at;
	}
	md_map_finish(&seen);
	return ok;
}

static enum md_status place_frames(const struct packing *p, struct md_image_frame *frames, struct md_buf *body,
				   uint64_t *raw, struct md_error *err)
{
	size_t start = body->size;
	for (uint32_t i = 0; i < p->artifact->image_count; i++) {
		if (p->first[i] == MD_NONE)
			continue;
		if (p->errors[i].status != MD_OK)
			return md_error_set(err, p->errors[i].status, "image %u: %s", i, p->errors[i].message);
		const struct md_buf *packed = &p->packed[i];
		if (p->first[i] == i) {
			frames[i] = (struct md_image_frame){body->size - start, packed->size,
							    md_hash_checksum(packed->data, packed->size)};
			md_buf_put(body, packed->data, packed->size);
			*raw += p->artifact->images[i].size;
		} else {
			frames[i] = frames[p->first[i]];
		}
	}
	return body->failed ? md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for images") : MD_OK;
}

enum md_status md_image_frames_write(const struct md_artifact *artifact, struct md_image_frame *frames,
				     struct md_buf *body, uint64_t *raw, struct md_error *err)
{
	uint32_t count = artifact->image_count;
	MD_AUTO_FREE uint32_t *first = calloc((size_t)count + 1, sizeof(*first));
	MD_AUTO_FREE struct md_buf *packed = calloc((size_t)count + 1, sizeof(*packed));
	MD_AUTO_FREE struct md_error *errors = calloc((size_t)count + 1, sizeof(*errors));
	*raw = 0;
	MD_FORWARD(md_image_frames_complete(artifact, err));
	if (!first || !packed || !errors || !find_firsts(artifact, first))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u images", count);
	struct packing p = {artifact, first, packed, errors, 0};
	for (uint32_t i = 0; i < count; i++)
		md_buf_init(&packed[i]);
	pack_all(&p);
	enum md_status status = place_frames(&p, frames, body, raw, err);
	for (uint32_t i = 0; i < count; i++)
		md_buf_finish(&packed[i]);
	return status;
}

enum md_status md_image_frames_complete(const struct md_artifact *artifact, struct md_error *err)
{
	for (uint32_t i = 0; i < artifact->image_count; i++)
		if (artifact->images[i].frame.stored && !artifact->images[i].data)
			return md_error_set(err, MD_ERR_INVALID,
					    "section \"images\": the bytes of image %u were not read", i);
	return MD_OK;
}

/* ---- reading ---- */

enum md_status md_image_frames_check(const struct md_artifact *artifact, uint64_t stored, struct md_error *err)
{
	for (uint32_t i = 0; i < artifact->image_count; i++) {
		const struct md_image *image = &artifact->images[i];
		const struct md_image_frame *frame = &image->frame;
		if (frame->offset > stored || frame->stored > stored - frame->offset)
			return md_error_set(err, MD_ERR_CORRUPT,
					    "section \"images\": image %u: frame of %" PRIu64 " bytes at %" PRIu64
					    " of %" PRIu64,
					    i, frame->stored, frame->offset, stored);
		if (frame->stored && image->size > RATIO_FREE && image->size / RATIO_MAX > frame->stored)
			return md_error_set(err, MD_ERR_TOO_LARGE,
					    "section \"images\": image %u announces %" PRIu64 " bytes out of %" PRIu64,
					    i, image->size, frame->stored);
	}
	return MD_OK;
}

enum md_status md_image_frame_expand(const struct md_artifact *artifact, uint32_t image, const uint8_t *frame,
				     void *out, struct md_error *err)
{
	const struct md_image *what = &artifact->images[image];
	enum md_status status = MD_OK;
	if (md_hash_checksum(frame, what->frame.stored) != what->frame.checksum)
		status = md_error_set(err, MD_ERR_CORRUPT, "checksum differs");
	else
		status = md_zip_expand(frame, what->frame.stored, out, what->size, err);
	return status == MD_OK ? MD_OK : name_image(artifact, image, status, err);
}

enum md_status md_image_frame_read(struct md_artifact *artifact, uint32_t index, const uint8_t *frame,
				   struct md_budget *budget, struct md_error *err)
{
	struct md_image *image = &artifact->images[index];
	image->data = md_budget_alloc(budget, image->size, 1);
	if (!image->data) {
		md_budget_error(budget, err);
		return name_image(artifact, index, err ? err->status : MD_ERR_NO_MEMORY, err);
	}
	MD_FORWARD(md_image_frame_expand(artifact, index, frame, image->data, err));
	image->frame = (struct md_image_frame){0}; /* the place in the old file; the writer makes a new one */
	return MD_OK;
}
