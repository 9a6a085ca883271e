/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text from elsewhere made plain. Labels, names, reasons and paths are an engine's or a file's own and may hold any
 * byte: a terminal would act upon some, and a line break would make two lines of one. Such bytes are shown as \xHH.
 */
#ifndef MD_BASE_PLAIN_H
#define MD_BASE_PLAIN_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* As much of text as fits, with its end; no character or escape is cut. Returns the bytes before the end. */
size_t md_plain_copy(char *out, size_t room, const char *text);
/* Formats, and then makes all of it plain: the format itself may hold no line break. */
void md_plain_print(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with a line break behind it. */
void md_plain_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void md_plain_vprint(FILE *out, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

#endif
