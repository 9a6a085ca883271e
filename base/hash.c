/* SPDX-License-Identifier: Apache-2.0 */
/* Content hashes by xxHash, compiled in from its header. */
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdlib.h>
#include <string.h>

static struct md_hash in_order(XXH128_hash_t value)
{
	struct md_hash hash;
	XXH128_canonical_t canonical;
	XXH128_canonicalFromHash(&canonical, value);
	memcpy(hash.bytes, canonical.digest, sizeof(hash.bytes));
	return hash;
}

struct md_hash md_hash_bytes(const void *data, size_t size)
{
	return in_order(XXH3_128bits(data, size));
}

struct md_hash_stream {
	XXH3_state_t xxh;
};

struct md_hash_stream *md_hash_stream_begin(void)
{
	struct md_hash_stream *state = aligned_alloc(_Alignof(struct md_hash_stream), sizeof(*state));
	if (state)
		XXH3_128bits_reset(&state->xxh);
	return state;
}

void md_hash_stream_add(struct md_hash_stream *state, const void *data, size_t size)
{
	XXH3_128bits_update(&state->xxh, data, size);
}

void md_hash_stream_finish(struct md_hash_stream *state, struct md_hash *hash)
{
	if (state && hash)
		*hash = in_order(XXH3_128bits_digest(&state->xxh));
	free(state);
}

uint64_t md_hash_checksum(const void *data, size_t size)
{
	return XXH3_64bits(data, size);
}

bool md_hash_equal(const struct md_hash *a, const struct md_hash *b)
{
	return !memcmp(a->bytes, b->bytes, sizeof(a->bytes));
}

void md_hash_format(const struct md_hash *hash, char text[MD_HASH_TEXT_BYTES])
{
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < sizeof(hash->bytes); i++) {
		text[2 * i] = digits[hash->bytes[i] >> 4];
		text[2 * i + 1] = digits[hash->bytes[i] & 15];
	}
	text[MD_HASH_TEXT_BYTES - 1] = '\0';
}

static int digit_value(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'a' && digit <= 'f')
		return digit - 'a' + 10;
	if (digit >= 'A' && digit <= 'F')
		return digit - 'A' + 10;
	return -1;
}

bool md_hash_parse(const char *text, struct md_hash *hash)
{
	struct md_hash parsed;
	for (size_t i = 0; i < sizeof(parsed.bytes); i++) {
		int high = digit_value(text[2 * i]);
		int low = high < 0 ? -1 : digit_value(text[2 * i + 1]);
		if (low < 0)
			return false;
		parsed.bytes[i] = (uint8_t)(high << 4 | low);
	}
	if (text[MD_HASH_TEXT_BYTES - 1])
		return false;
	*hash = parsed;
	return true;
}
