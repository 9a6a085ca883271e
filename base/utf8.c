/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 sequences: overlong forms, surrogates and characters beyond U+10FFFF are invalid. */
#include "base/utf8.h"

size_t md_utf8_length(const char *bytes, uint32_t *point)
{
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *text = (const unsigned char *)bytes;
	size_t length = text[0] < 0x80             ? 1
			: (text[0] & 0xe0) == 0xc0 ? 2
			: (text[0] & 0xf0) == 0xe0 ? 3
			: (text[0] & 0xf8) == 0xf0 ? 4
						   : 0;
	uint32_t made = length < 2 ? text[0] : text[0] & (0x7fu >> length);
	for (size_t i = 1; i < length; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		made = made << 6 | (text[i] & 0x3f);
	}
	if (length > 1 && (made < smallest[length] || made > 0x10ffff || (made >= 0xd800 && made < 0xe000)))
		return 0;
	if (point)
		*point = made;
	return length;
}

bool md_utf8_valid(const char *text)
{
	while (*text) {
		size_t length = md_utf8_length(text, NULL);
		if (!length)
			return false;
		text += length;
	}
	return true;
}

bool md_utf8_acts(uint32_t point)
{
	return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x061c || point == 0x200e ||
	       point == 0x200f || (point >= 0x2028 && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069) ||
	       point == 0xfeff;
}
