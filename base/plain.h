/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes foreign text printable. Labels, names, reasons and paths come from an engine or a file and may hold any byte; a
 * terminal would act upon some, and a line break would turn one line into two. Such bytes are shown as \xHH.
 */
#ifndef MD_BASE_PLAIN_H
#define MD_BASE_PLAIN_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* Copies as much of text as fits, with its NUL; no character or escape is cut. Returns the bytes before the NUL. */
size_t md_plain_copy(char *out, size_t room, const char *text);
/* Formats, and escapes the whole result: the format itself may hold no line break. */
void md_plain_print(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, followed by a line break. */
void md_plain_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void md_plain_vprint(FILE *out, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

#endif
