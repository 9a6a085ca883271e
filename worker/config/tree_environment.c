/* SPDX-License-Identifier: Apache-2.0 */
/* "${env.NAME}": hidden from YAML's rules, then replaced in the texts that were read. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "worker/config/tree.h"

/*
 * Users write ${env.NAME} where YAML would read braces as a mapping ("[${env.KEY}]"), and llama-swap replaces it in the
 * file's text. What a variable holds is no YAML, though, and comments need no variables. So the braces become two
 * characters for private use, which are text anywhere in YAML, and each text that was read gets the value as it is.
 */
static const char opening[] = "\xee\x80\x80", closing[] = "\xee\x80\x81";
static const char written[] = "${env.";

#define MARK_BYTES (sizeof(opening) - 1)
#define WRITTEN_BYTES (sizeof(written) - 1)
#define NAME_MAX_BYTES 256u

/* Bytes of a variable's name at the beginning of text; 0: none. */
static size_t name_length(const char *text, size_t bytes)
{
	size_t length = 0;
	while (length < bytes &&
	       ((text[length] >= 'a' && text[length] <= 'z') || (text[length] >= 'A' && text[length] <= 'Z') ||
		text[length] == '_' || (length && text[length] >= '0' && text[length] <= '9')))
		length++;
	return length < NAME_MAX_BYTES ? length : 0;
}

/* Where the next "${env.NAME}" begins, or `bytes`; *name is the length of its name. */
static size_t find_written(const char *text, size_t from, size_t bytes, size_t *name)
{
	const char *at = text + from;
	while ((at = memmem(at, bytes - (size_t)(at - text), written, WRITTEN_BYTES))) {
		size_t start = (size_t)(at - text), after = start + WRITTEN_BYTES;
		*name = name_length(text + after, bytes - after);
		if (*name && after + *name < bytes && text[after + *name] == '}')
			return start;
		at += WRITTEN_BYTES;
	}
	return bytes;
}

enum md_status md_tree_hide_environment(const char *text, size_t bytes, char **out, size_t *size)
{
	struct md_buf buf;
	size_t from = 0, name;
	md_buf_init(&buf);
	for (;;) {
		size_t at = find_written(text, from, bytes, &name);
		md_buf_put(&buf, text + from, at - from);
		if (at == bytes)
			break;
		md_buf_put(&buf, opening, MARK_BYTES);
		md_buf_put(&buf, text + at + WRITTEN_BYTES, name);
		md_buf_put(&buf, closing, MARK_BYTES);
		from = at + WRITTEN_BYTES + name + 1;
	}
	*size = buf.size;
	md_buf_put_u8(&buf, 0);
	if (buf.failed) {
		md_buf_finish(&buf);
		return MD_ERR_NO_MEMORY;
	}
	*out = (char *)buf.data;
	return MD_OK;
}

enum md_status md_tree_grow(struct md_forest *forest, const struct md_tree *at, const void *text, size_t bytes,
			    const char **out, struct md_error *err)
{
	if (bytes > MD_TREE_SCALAR_MAX || bytes > MD_TREE_GROWN_MAX - forest->grown)
		return md_error_set(err, MD_ERR_TOO_LARGE,
				    "%s:%" PRIu32 ": macros and variables of the environment make texts of over %s",
				    at->file, at->line, bytes > MD_TREE_SCALAR_MAX ? "256 KiB" : "64 MiB in all");
	forest->grown += bytes;
	*out = md_arena_copy(&forest->arena, text, bytes);
	return *out ? MD_OK : md_tree_memory(at->file, err);
}

static enum md_status refuse(const struct md_tree *at, const char *name, struct md_error *err, const char *what)
{
	return md_error_set(err, MD_ERR_CORRUPT, "%s:%" PRIu32 ": ${env.%s}: %s", at->file, at->line, name, what);
}

static enum md_status put_variable(struct md_buf *buf, const struct md_tree *at, const char *text, size_t length,
				   struct md_error *err)
{
	char name[NAME_MAX_BYTES];
	const char *value;
	memcpy(name, text, length);
	name[length] = '\0';
	value = secure_getenv(name);
	if (!value)
		return refuse(at, name, err, "there is no such variable in the environment");
	if (strpbrk(value, "\r\n") || !md_utf8_valid(value))
		return refuse(at, name, err, "the variable holds a line break, or is not UTF-8");
	md_buf_put(buf, value, strlen(value));
	if (buf->size > MD_TREE_SCALAR_MAX)
		return refuse(at, name, err, "the text becomes longer than 256 KiB");
	return MD_OK;
}

static enum md_status replace(struct md_buf *buf, const struct md_tree *at, const char *text, struct md_error *err)
{
	const char *mark;
	while ((mark = strstr(text, opening))) {
		const char *name = mark + MARK_BYTES;
		size_t length = name_length(name, strlen(name));
		bool whole = length && !strncmp(name + length, closing, MARK_BYTES);
		md_buf_put(buf, text, (size_t)(name - text) - (whole ? MARK_BYTES : 0));
		if (whole)
			MD_FORWARD(put_variable(buf, at, name, length, err));
		text = whole ? name + length + MARK_BYTES : name;
	}
	md_buf_put(buf, text, strlen(text));
	return buf->failed ? md_tree_memory(at->file, err) : MD_OK;
}

enum md_status md_tree_environment(struct md_forest *forest, const struct md_tree *at, const char **text,
				   struct md_error *err)
{
	struct md_buf buf;
	enum md_status status;
	if (!strstr(*text, opening))
		return MD_OK;
	md_buf_init(&buf);
	status = replace(&buf, at, *text, err);
	if (status == MD_OK)
		status = md_tree_grow(forest, at, buf.data, buf.size, text, err);
	md_buf_finish(&buf);
	return status;
}
