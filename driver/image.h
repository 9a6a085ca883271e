/* SPDX-License-Identifier: Apache-2.0 */
/* What a CUDA image (cubin, fat binary, PTX; on hostcuda an ELF shared object) is, how long it is, and
 * where it lies. */
#ifndef MD_DRIVER_IMAGE_H
#define MD_DRIVER_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"

enum md_image_kind { MD_IMAGE_ELF = 1, MD_IMAGE_FATBIN = 2, MD_IMAGE_PTX = 3 };

/*
 * The bytes that identify an image handed to cuModuleLoadData or cuLibraryLoadData. For a fat-binary wrapper these are
 * the bytes of the fat binary it points to (data moves, the wrapper is followed). Borrowed from the caller's image.
 */
struct md_image_span {
	enum md_image_kind kind;
	const void *data;
	size_t size;
};

/* MD_ERR_UNSUPPORTED names the first bytes when the format is unknown. Reads only what the headers announce. */
enum md_status md_image_span(const void *image, struct md_image_span *span, struct md_error *err);

/* The largest image that is read, from wherever a file says that it lies. */
#define MD_IMAGE_BYTES_MAX ((uint64_t)4 << 30)

/*
 * Whether the first bytes, `there` of them, can be those of an image of that kind and size: asked before gigabytes are
 * read from a file that an artifact names.
 */
bool md_image_starts(enum md_image_kind kind, uint64_t size, const uint8_t *first, size_t there);
#define MD_IMAGE_FIRST_BYTES 16u /* that tell most */

/*
 * md_image_span of an image that is all in memory of ours, `there` bytes of it and a zero behind: one that reaches
 * further is refused.
 */
enum md_status md_image_span_within(const void *image, size_t there, struct md_image_span *span, struct md_error *err);

/* Where an image lies: the mapped file that holds it, or none (anonymous memory). */
#define MD_BUILD_ID_BYTES 32
struct md_image_home {
	char path[4096];                     /* "" when it lies in no file */
	uint8_t build_id[MD_BUILD_ID_BYTES]; /* zero-padded */
	size_t build_id_size;                /* 0 when the object has none */
	uint64_t offset;                     /* in the file, bytes */
};

/* Finds the home of an address of this process: a loaded object or another file mapping. Anonymous memory
 * is no error. */
enum md_status md_image_home(const void *address, struct md_image_home *home, struct md_error *err);

#endif
