/* SPDX-License-Identifier: Apache-2.0 */
/* What could still become a stop text is held back; so is a character of which bytes are missing. */
#include "models/llama/serve/text_out.h"

#include <string.h>

void text_out_init(struct text_out *out, char *const *stops, size_t stop_count)
{
	*out = (struct text_out){.stops = stops, .stop_count = stop_count};
	md_buf_init(&out->text);
	md_buf_init(&out->raw);
}

void text_out_finish(struct text_out *out)
{
	md_buf_finish(&out->text);
	md_buf_finish(&out->raw);
}

/* ---- characters ---- */

/* Bytes of the character that begins with this byte (Unicode 14, table 3-7), and what its second byte may be. */
static size_t length_of(uint8_t first, uint8_t *low, uint8_t *high)
{
	*low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
	*high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
	return first < 0x80                     ? 1
	       : first >= 0xc2 && first <= 0xdf ? 2
	       : first >= 0xe0 && first <= 0xef ? 3
	       : first >= 0xf0 && first <= 0xf4 ? 4
						: 0;
}

/* Bytes that are a character, or as much of one as is there (*whole false); 0: the first byte is none. */
static size_t character(const uint8_t *bytes, size_t size, bool *whole)
{
	uint8_t low, high;
	size_t length = length_of(bytes[0], &low, &high), have = 1;
	while (have < length && have < size && bytes[have] >= low && bytes[have] <= high) {
		have++;
		low = 0x80;
		high = 0xbf;
	}
	*whole = have == length;
	return length && (*whole || have == size) ? have : 0;
}

static void find_stop(struct text_out *out)
{
	size_t end = out->text.size;
	for (size_t i = 0; i < out->stop_count; i++) {
		const char *found = memmem(out->text.data + out->sent, out->text.size - out->sent, out->stops[i],
					   strlen(out->stops[i]));
		size_t at = found ? (size_t)((const uint8_t *)found - out->text.data) : end;
		out->stopped |= found != NULL;
		end = at < end ? at : end;
	}
	out->text.size = end;
}

bool text_out_judge(struct text_out *out, bool last)
{
	size_t at = 0;
	while (at < out->raw.size) {
		bool whole;
		size_t size = character(out->raw.data + at, out->raw.size - at, &whole);
		if (size && !whole && !last)
			break;
		if (size && whole)
			md_buf_put(&out->text, out->raw.data + at, size);
		else
			md_buf_put(&out->text, "\xef\xbf\xbd", 3);
		at += size ? size : 1;
	}
	if (at)
		memmove(out->raw.data, out->raw.data + at, out->raw.size - at);
	out->raw.size -= at;
	if (!out->text.failed && !out->stopped && out->text.size)
		find_stop(out);
	return !out->text.failed && !out->raw.failed;
}

/* ---- what can be sent ---- */

/* Bytes at the end that a stop text may begin with. */
static size_t held_back(const struct text_out *out)
{
	size_t left = out->text.size - out->sent, most = 0;
	for (size_t i = 0; i < out->stop_count; i++) {
		size_t size = strlen(out->stops[i]) - 1;
		for (size = size < left ? size : left; size > most; size--)
			if (!memcmp(out->text.data + out->text.size - size, out->stops[i], size))
				most = size;
	}
	return most;
}

const char *text_out_ready(struct text_out *out, bool last, size_t *size)
{
	const char *bytes = out->text.data ? (const char *)out->text.data + out->sent : "";
	*size = out->text.size - out->sent - (last || out->stopped ? 0 : held_back(out));
	out->sent += *size;
	return bytes;
}
