/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures a CUDA image (cubin, fat binary, PTX; on hostcuda an ELF shared object), and finds the file that holds it.
 */
#ifndef MD_DRIVER_IMAGE_H
#define MD_DRIVER_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"

enum md_image_kind { MD_IMAGE_ELF = 1, MD_IMAGE_FATBIN = 2, MD_IMAGE_PTX = 3 };

/*
 * The bytes that identify an image that is passed to cuModuleLoadData or cuLibraryLoadData. For a fat-binary wrapper
 * these are the bytes of the fat binary that it points to. Borrowed from the caller's image.
 */
struct md_image_span {
	enum md_image_kind kind;
	const void *data;
	size_t size;
};

/* MD_ERR_UNSUPPORTED names the first bytes when the format is unknown. Reads only what the headers announce. */
enum md_status md_image_span(const void *image, struct md_image_span *span, struct md_error *err);

/* Images that are larger are not read, wherever a file says that they lie. */
#define MD_IMAGE_BYTES_MAX ((uint64_t)4 << 30)

/*
 * Whether the first bytes, `there` of them, can be those of an image of that kind and size. This is asked before
 * gigabytes are read from a file that an artifact names.
 */
bool md_image_starts(enum md_image_kind kind, uint64_t size, const uint8_t *first, size_t there);
#define MD_IMAGE_FIRST_BYTES 16u /* enough to recognize an image */

/*
 * md_image_span for an image of `there` bytes in memory of ours, followed by a zero byte; an image that reaches further
 * is refused.
 */
enum md_status md_image_span_within(const void *image, size_t there, struct md_image_span *span, struct md_error *err);

/* Where an image lies: the mapped file that holds it, or none (anonymous memory). */
#define MD_BUILD_ID_BYTES 32
struct md_image_home {
	char path[4096];                     /* "" when no file holds it */
	uint8_t build_id[MD_BUILD_ID_BYTES]; /* zero-padded */
	size_t build_id_size;                /* 0 when the object has none */
	uint64_t offset;                     /* in the file, bytes */
};

/*
 * Finds the loaded object or other file mapping that holds an address of this process. Anonymous memory is not an
 * error.
 */
enum md_status md_image_home(const void *address, struct md_image_home *home, struct md_error *err);

#endif
