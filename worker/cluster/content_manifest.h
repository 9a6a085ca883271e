/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a content is: files with relative names, behind one another, cut into blocks of MD_CONTENT_BLOCK bytes, of which the manifest
 * has the hashes (BLAKE2b-256). The hash of a content is that of its manifest's text, so whoever knows it can verify all of it,
 * block by block. docs/cluster.md has the format.
 */
#ifndef MD_WORKER_CLUSTER_CONTENT_MANIFEST_H
#define MD_WORKER_CLUSTER_CONTENT_MANIFEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "format/signature.h"

#define MD_CONTENT_BLOCK (4u << 20)
#define MD_CONTENT_TEXT_MAX (80u << 20) /* bytes of a manifest */
#define MD_CONTENT_FILES_MAX 100000u
#define MD_CONTENT_BYTES_MAX (UINT64_C(1) << 42)
#define MD_CONTENT_HASH_TEXT 65u /* 64 hexadecimal digits and the NUL */

struct md_content_file {
	const char *name; /* "weights/part-1.bin" */
	uint64_t size, offset;
};

struct md_content_manifest {
	json_t *root;                  /* has the names */
	struct md_content_file *files; /* by their names */
	uint32_t file_count, block_count;
	uint64_t bytes;
	struct md_digest *blocks;
};

void md_content_hash_print(const struct md_digest *hash, char text[MD_CONTENT_HASH_TEXT]);
bool md_content_is_hash(const char *text); /* 64 hexadecimal digits, and nothing else */

/* A relative path without "..", ".", empty parts and control characters, of at most 1,000 bytes. */
bool md_content_is_name(const char *name);

/* The text, with a NUL behind it, into an empty buffer. False: out of memory. */
bool md_content_manifest_print(const struct md_content_file *files, uint32_t file_count, const struct md_digest *blocks,
			       uint32_t block_count, struct md_buf *text);
/* MD_ERR_CORRUPT: err names what is wrong; MD_ERR_VERSION, MD_ERR_NO_MEMORY. */
enum md_status md_content_manifest_read(const char *text, size_t size, struct md_content_manifest *manifest,
					struct md_error *err);
void md_content_manifest_finish(struct md_content_manifest *manifest);

uint64_t md_content_block_offset(uint32_t block);
uint32_t md_content_block_size(const struct md_content_manifest *manifest, uint32_t block);

#endif
