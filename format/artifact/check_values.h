/* SPDX-License-Identifier: Apache-2.0 */
/* Questions that the checks of an artifact ask about single values. */
#ifndef MD_FORMAT_ARTIFACT_CHECK_VALUES_H
#define MD_FORMAT_ARTIFACT_CHECK_VALUES_H

#include <string.h>

#include "format/artifact/artifact.h"

#define MD_NAME_MAX 4096u /* bytes */

static inline bool md_is_name(const char *text)
{
	return text && text[0] && strnlen(text, MD_NAME_MAX + 1) <= MD_NAME_MAX;
}

/* Whether `size` bytes at `at` lie in the `whole` bytes of something. */
static inline bool md_is_inside(uint64_t at, uint64_t size, uint64_t whole)
{
	return at <= whole && size <= whole - at;
}

/* How many bytes of a node's parameters, or of contents, the pointer takes. */
static inline uint32_t md_pointer_bytes(const struct md_pointer *pointer)
{
	return pointer->kind == MD_POINTER_TENSOR_MAP ? 128 : 8;
}

#endif
