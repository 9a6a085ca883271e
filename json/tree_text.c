/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jansson collects the characters of a string or number in a buffer, and looks at no result of that: if the buffer
 * cannot grow, characters are left out, and the closing quote may be one of them, behind which it reads on. When it
 * prints, keys are left out in the same way. So an allocation that fails during a parse gets the spare block that was
 * taken before, and the text ends there: jansson asks for one byte at a time, and puts it into its buffer before it asks
 * for another one.
 */
#include "json/tree_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/plain.h"
#include "base/utf8.h"

#define SPARE_FEWEST 64u

struct source {
	const char *text;
	size_t size, used;
	void *spare; /* larger than the buffer can become; NULL: it was given away */
	size_t spare_size;
	bool failed;
};

static _Thread_local struct source *current; /* while this thread parses a text */
static _Thread_local bool lost;              /* a tree that it has built lacks something */

static void *take(size_t size)
{
	void *taken = malloc(size);
	if (taken)
		return taken;
	if (!current) {
		lost = true;
		return NULL;
	}
	current->failed = true;
	if (size > current->spare_size)
		return NULL;
	taken = current->spare;
	current->spare = NULL;
	return taken;
}

/* Before there is a second thread, because jansson's users elsewhere in the process take these two as well. */
static void __attribute__((constructor)) give_jansson_memory(void)
{
	json_set_alloc_funcs(take, free);
}

static size_t give_byte(void *out, size_t room, void *context)
{
	struct source *source = context;
	(void)room;
	if (source->failed || source->used == source->size)
		return 0;
	*(char *)out = source->text[source->used++];
	return 1;
}

static void say_no_memory(json_error_t *error, size_t size)
{
	if (!error)
		return;
	*error = (json_error_t){.line = -1, .column = -1};
	snprintf(error->text, sizeof(error->text), "out of memory for %zu bytes of JSON", size);
	error->text[sizeof(error->text) - 1] = json_error_out_of_memory;
}

/* The buffer is doubled when it is full, so twice the text is more than it ever gets. */
json_t *md_jansson_parse(const char *text, size_t size, size_t flags, json_error_t *error)
{
	struct source source = {.text = text, .size = size, .spare_size = SPARE_FEWEST + 2 * size};
	source.spare = size < SIZE_MAX / 4 ? malloc(source.spare_size) : NULL;
	source.failed = !source.spare;
	current = &source;
	json_t *root = source.failed ? NULL : json_load_callback(give_byte, &source, flags, error);
	current = NULL;
	free(source.spare);
	if (!source.failed)
		return root;
	json_decref(root);
	say_no_memory(error, size);
	return NULL;
}

static int put(const char *bytes, size_t size, void *context)
{
	struct md_buf *out = context;
	md_buf_put(out, bytes, size);
	return out->failed ? -1 : 0;
}

char *md_jansson_print(const json_t *value, size_t flags)
{
	struct md_buf out;
	md_buf_init(&out);
	bool printed = !lost && value && !json_dump_callback(value, put, &out, flags);
	lost = false;
	md_buf_put_u8(&out, 0);
	if (printed && !out.failed)
		return (char *)out.data;
	md_buf_finish(&out);
	return NULL;
}

json_t *md_jansson_text(const char *text)
{
	if (md_utf8_valid(text))
		return json_string(text);
	size_t room = 4 * strlen(text) + 1;
	MD_AUTO_FREE char *plain = malloc(room);
	if (!plain)
		return NULL;
	md_plain_copy(plain, room, text);
	return json_string(plain);
}
