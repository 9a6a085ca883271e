/* SPDX-License-Identifier: Apache-2.0 */
/* Content hashes by xxHash, compiled in from its header. */
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <string.h>

struct md_hash md_hash_bytes(const void *data, size_t size)
{
	struct md_hash hash;
	XXH128_canonical_t canonical;
	XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, size));
	memcpy(hash.bytes, canonical.digest, sizeof(hash.bytes));
	return hash;
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
