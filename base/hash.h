/* SPDX-License-Identifier: Apache-2.0 */
/* Content hashes: XXH3-128 identifies an image; XXH3-64 detects damage to a section, but no attacker. */
#ifndef MD_BASE_HASH_H
#define MD_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct md_hash {
	uint8_t bytes[16]; /* XXH3-128, canonical (big-endian) order */
};

#define MD_HASH_TEXT_BYTES 33 /* 32 hex digits and the NUL */

struct md_hash md_hash_bytes(const void *data, size_t size);
/* The same hash of bytes that come in pieces. NULL: out of memory; finish frees the state, and hash may be NULL. */
struct md_hash_stream;
struct md_hash_stream *md_hash_stream_begin(void);
void md_hash_stream_add(struct md_hash_stream *state, const void *data, size_t size);
void md_hash_stream_finish(struct md_hash_stream *state, struct md_hash *hash);
uint64_t md_hash_checksum(const void *data, size_t size); /* XXH3-64 */
bool md_hash_equal(const struct md_hash *a, const struct md_hash *b);
void md_hash_format(const struct md_hash *hash, char text[MD_HASH_TEXT_BYTES]);
bool md_hash_parse(const char *text, struct md_hash *hash);

#endif
