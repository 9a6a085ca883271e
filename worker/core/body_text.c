/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/body_text.h"

#include <stdint.h>
#include <string.h>

static uint32_t read_hex(const char *at)
{
	uint32_t value = 0;
	for (int i = 0; i < 4; i++) {
		char c = at[i];
		value = value * 16 + (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
	}
	return value;
}

/* The character behind "\u"; of a pair of surrogates, both are taken. */
static uint32_t read_unicode(const char **at, const char *end)
{
	uint32_t high = read_hex(*at);
	*at += 4;
	if (high >> 10 != 0xd800 >> 10 || end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u')
		return high;
	uint32_t low = read_hex(*at + 2);
	if (low >> 10 != 0xdc00 >> 10)
		return high;
	*at += 6;
	return 0x10000 + ((high & 0x3ff) << 10) + (low & 0x3ff);
}

static size_t encode(uint32_t point, char out[4])
{
	if (point < 0x80) {
		out[0] = (char)point;
		return 1;
	}
	size_t size = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
	for (size_t i = size; --i; point >>= 6)
		out[i] = (char)(0x80 | (point & 0x3f));
	out[0] = (char)(0xf0 << (4 - size) | point);
	return size;
}

size_t md_body_text_take(const char **at, const char *end, char out[4])
{
	static const char letters[] = "bfnrt", meant[] = "\b\f\n\r\t";
	const char *letter;
	out[0] = *(*at)++;
	if (out[0] != '\\')
		return 1;
	char escape = *(*at)++;
	if (escape == 'u') {
		uint32_t point = read_unicode(at, end);
		return !point || point >> 11 == 0xd800 >> 11 ? 0 : encode(point, out);
	}
	letter = strchr(letters, escape);
	out[0] = letter ? meant[letter - letters] : escape;
	return 1;
}

bool md_body_text_is(const char *text, size_t size, const char *name)
{
	const char *end = text + size;
	char bytes[4];
	if (!memchr(text, '\\', size))
		return strlen(name) == size && !memcmp(text, name, size);
	while (text < end) {
		size_t count = md_body_text_take(&text, end, bytes);
		if (!count || strncmp(name, bytes, count) != 0)
			return false;
		name += count;
	}
	return !*name;
}

bool md_body_text_copy(const char *text, size_t size, char *out, size_t room)
{
	const char *end = text + size;
	size_t used = 0;
	char bytes[4];
	while (text < end) {
		size_t count = md_body_text_take(&text, end, bytes);
		if (!count || used + count >= room)
			return false;
		memcpy(out + used, bytes, count);
		used += count;
	}
	out[used] = '\0';
	return true;
}
