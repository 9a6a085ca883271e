/* SPDX-License-Identifier: Apache-2.0 */
/* Escapes bytes of foreign text that a terminal would act upon. */
#include "base/plain.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define PIECE 5 /* bytes for one character or escape, and the NUL */

/* The first character as it is to be shown; returns how many bytes of text that is. */
static size_t next_piece(const char *text, char piece[PIECE])
{
	uint32_t point = 0;
	size_t length = md_utf8_length(text, &point);
	if (length && !md_utf8_acts(point)) {
		memcpy(piece, text, length);
		piece[length] = '\0';
		return length;
	}
	snprintf(piece, PIECE, "\\x%02x", (unsigned char)*text);
	return 1; /* its other bytes are not valid by themselves, and follow as escapes */
}

size_t md_plain_copy(char *out, size_t room, const char *text)
{
	char piece[PIECE];
	size_t used = 0;
	while (*text) {
		size_t taken = next_piece(text, piece), size = strlen(piece);
		if (used + size >= room)
			break;
		memcpy(out + used, piece, size);
		used += size;
		text += taken;
	}
	if (room)
		out[used] = '\0';
	return used;
}

static void put(FILE *out, const char *text)
{
	char piece[PIECE];
	while (*text) {
		text += next_piece(text, piece);
		fputs(piece, out);
	}
}

void md_plain_vprint(FILE *out, const char *format, va_list args)
{
	char short_text[512], *text = short_text;
	va_list again;
	va_copy(again, args);
	int size = vsnprintf(short_text, sizeof(short_text), format, args);
	if (size >= (int)sizeof(short_text) && vasprintf(&text, format, again) < 0)
		text = short_text; /* out of memory: the line is printed, though cut */
	va_end(again);
	if (size >= 0)
		put(out, text);
	if (text != short_text)
		free(text);
}

void md_plain_print(FILE *out, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	md_plain_vprint(out, format, args);
	va_end(args);
}

void md_plain_line(FILE *out, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	md_plain_vprint(out, format, args);
	va_end(args);
	fputc('\n', out);
}
