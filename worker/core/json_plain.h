/* SPDX-License-Identifier: Apache-2.0 */
/* Goes over the bytes of a JSON string, eight at a time, that stand for themselves. */
#ifndef MD_WORKER_CORE_JSON_PLAIN_H
#define MD_WORKER_CORE_JSON_PLAIN_H

#include <stdint.h>
#include <string.h>

/* Up to the first eight bytes of which one is a control character, a quotation mark, a backslash, or not ASCII. */
static inline const char *md_json_plain_skip(const char *at, const char *end)
{
	const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones << 7;
	uint64_t bytes;
	for (; end - at >= 8; at += 8) {
		memcpy(&bytes, at, 8);
		uint64_t quote = bytes ^ (ones * '"'), slash = bytes ^ (ones * '\\');
		if ((bytes | (bytes - ones * 0x20) | (quote - ones) | (slash - ones)) & highs)
			break;
	}
	return at;
}

#endif
