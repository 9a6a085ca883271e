/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/multipart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BOUNDARY_MAX 70u  /* RFC 2046, section 5.1.1 */
#define HEADERS_MAX 8192u /* bytes of a part's headers */
#define DELIMITER_MAX (BOUNDARY_MAX + 5)

bool md_multipart_is(const char *type)
{
	return type && !strncasecmp(type, "multipart/form-data", 19) && strchr("; \t", type[19]);
}

/*
 * The value of a parameter in "form-data; name=\"a\"; x=b", without quotation marks; false: it is not there, or longer
 * than `room`. Parameters in a quoted text are none.
 */
static bool find_parameter(const char *text, size_t size, const char *name, char *value, size_t room)
{
	size_t wanted = strlen(name), used = 0;
	const char *at = text, *end = text + size;
	bool quoted = false;
	for (; at < end; at++) {
		if (*at == '"')
			quoted = !quoted;
		if (quoted || *at != ';')
			continue;
		const char *key = at + 1;
		while (key < end && (*key == ' ' || *key == '\t'))
			key++;
		if ((size_t)(end - key) > wanted && !strncasecmp(key, name, wanted) && key[wanted] == '=') {
			at = key + wanted + 1;
			break;
		}
	}
	if (at >= end)
		return false;
	quoted = *at == '"';
	for (at += quoted; at < end && (quoted ? *at != '"' : !strchr("; \t\r\n", *at)); at++) {
		if (used + 1 >= room)
			return false;
		value[used++] = *at;
	}
	value[used] = '\0';
	return true;
}

/* Whether the part's headers name this field, and no file. */
static bool is_field(const char *headers, size_t size, const char *name)
{
	static const char key[] = "Content-Disposition:";
	char found[256], file[2];
	for (const char *at = headers, *end = headers + size; at < end;) {
		const char *stop = memmem(at, (size_t)(end - at), "\r\n", 2);
		size_t line = (size_t)((stop ? stop : end) - at);
		if (line >= sizeof(key) - 1 && !strncasecmp(at, key, sizeof(key) - 1))
			return find_parameter(at, line, "name", found, sizeof(found)) && !strcmp(found, name) &&
			       !find_parameter(at, line, "filename", file, sizeof(file)) &&
			       !memmem(at, line, "filename", 8);
		at += line + 2;
	}
	return false;
}

/* What stands between the headers of a part, which begin behind a delimiter, and the next delimiter; NULL: neither. */
static const char *end_part(const char *headers, const char *end, const char *delimiter, const char **blank)
{
	size_t left = (size_t)(end - headers);
	*blank = memmem(headers, left < HEADERS_MAX ? left : HEADERS_MAX, "\r\n\r\n", 4);
	return *blank ? memmem(*blank + 2, (size_t)(end - *blank - 2), delimiter, strlen(delimiter)) : NULL;
}

static const char *read_parts(const char *headers, const char *end, const char *delimiter, const char *name,
			      struct md_multipart_field *field)
{
	while (end - headers > 2 && !memcmp(headers, "\r\n", 2)) {
		const char *blank, *next = end_part(headers, end, delimiter, &blank);
		if (!next)
			return "the form is cut off within a part";
		if (next >= blank + 4 && blank > headers &&
		    is_field(headers + 2, (size_t)(blank - headers - 2), name)) {
			if (field->value)
				return "the form has a field twice that the worker reads";
			*field = (struct md_multipart_field){blank + 4, (size_t)(next - blank - 4)};
		}
		headers = next + strlen(delimiter);
	}
	bool whole = end - headers >= 2 && !memcmp(headers, "--", 2);
	return whole ? NULL : "the form is cut off: the boundary at its end is missing";
}

const char *md_multipart_find(const char *type, const char *body, size_t size, const char *name,
			      struct md_multipart_field *field)
{
	char boundary[BOUNDARY_MAX + 1], delimiter[DELIMITER_MAX];
	*field = (struct md_multipart_field){0};
	if (!md_multipart_is(type) || !find_parameter(type, strlen(type), "boundary", boundary, sizeof(boundary)) ||
	    !*boundary)
		return "Content-Type has no boundary of 1 to 70 characters";
	size_t length = (size_t)snprintf(delimiter, sizeof(delimiter), "\r\n--%s", boundary);
	/* the first delimiter may stand at the very beginning; `headers` is what follows one */
	const char *found = memmem(body, size, delimiter, length), *headers = found ? found + length : NULL;
	if (size >= length - 2 && !memcmp(body, delimiter + 2, length - 2))
		headers = body + length - 2;
	if (!headers)
		return "the boundary that Content-Type names is not in the body";
	return read_parts(headers, body + size, delimiter, name, field);
}

char *md_multipart_replace(const char *body, size_t size, const struct md_multipart_field *field, const char *value,
			   size_t *made_size)
{
	size_t before = (size_t)(field->value - body), after = size - before - field->size, middle = strlen(value);
	char *made = malloc(before + middle + after + 1);
	if (!made)
		return NULL;
	memcpy(made, body, before);
	memcpy(made + before, value, middle);
	memcpy(made + before + middle, field->value + field->size, after);
	*made_size = before + middle + after;
	made[*made_size] = '\0';
	return made;
}
