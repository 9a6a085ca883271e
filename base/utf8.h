/* SPDX-License-Identifier: Apache-2.0 */
/* Recognizes UTF-8, and characters that a terminal would act upon instead of showing them. */
#ifndef MD_BASE_UTF8_H
#define MD_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the valid UTF-8 sequence at the beginning of text, 1 for the NUL; 0: invalid. point may be NULL. */
size_t md_utf8_length(const char *text, uint32_t *point);
bool md_utf8_valid(const char *text);
/* Whether it is a control character, or one that changes the direction or the lines of the text around it. */
bool md_utf8_acts(uint32_t point);

#endif
