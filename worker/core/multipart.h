/* SPDX-License-Identifier: Apache-2.0 */
/* Forms with files (multipart/form-data, RFC 7578): finds a field, and replaces its value. */
#ifndef MD_WORKER_CORE_MULTIPART_H
#define MD_WORKER_CORE_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the body. */
struct md_multipart_field {
	const char *value; /* NULL: the form has no such field */
	size_t size;
};

/* type: the Content-Type; NULL: none. */
bool md_multipart_is(const char *type);
/*
 * The field of this name that is no file. NULL: the form is whole; else why it is none, or that the field is there twice:
 * a sentence without its end.
 */
const char *md_multipart_find(const char *type, const char *body, size_t size, const char *name,
			      struct md_multipart_field *field);
/* The body with another value of the field; the caller frees it. NULL: out of memory. */
char *md_multipart_replace(const char *body, size_t size, const struct md_multipart_field *field, const char *value,
			   size_t *made_size);

#endif
