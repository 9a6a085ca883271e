/* SPDX-License-Identifier: Apache-2.0 */
/* What the tokenizer needs to know of Unicode: letter, number or white space, and one code point of UTF-8 at a time. */
#ifndef LLAMA_UNICODE_H
#define LLAMA_UNICODE_H

#include <stddef.h>
#include <stdint.h>

enum unicode_kind { UNICODE_OTHER, UNICODE_LETTER, UNICODE_NUMBER, UNICODE_SPACE };

#define UNICODE_INVALID 0xffffffffu

enum unicode_kind unicode_kind_of(uint32_t code);

/* Bytes of the code point at text (size > 0). A malformed byte counts as one code point UNICODE_INVALID. */
size_t unicode_decode(const char *text, size_t size, uint32_t *code);

#endif
