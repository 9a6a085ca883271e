/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of a configuration's tree: memory, values of scalars, paths and messages. */
#include "worker/config/tree.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/secret.h"
#include "base/secret_name.h"
#include "base/utf8.h"

#define BLOCK_BYTES 65536u

/* ---- memory ---- */

struct md_arena_block {
	struct md_arena_block *next;
	size_t bytes;
	_Alignas(max_align_t) char data[];
};

static bool add_block(struct md_arena *arena, size_t bytes)
{
	size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
	struct md_arena_block *block = calloc(1, sizeof(*block) + room);
	if (!block)
		return false;
	block->bytes = room;
	block->next = arena->blocks;
	arena->blocks = block;
	arena->left = room;
	return true;
}

void *md_arena_take(struct md_arena *arena, size_t bytes)
{
	size_t step = _Alignof(max_align_t);
	if (bytes > SIZE_MAX / 2)
		return NULL;
	bytes = bytes ? (bytes + step - 1) / step * step : step;
	if (arena->left < bytes && !add_block(arena, bytes))
		return NULL;
	void *taken = arena->blocks->data + arena->blocks->bytes - arena->left;
	arena->left -= bytes;
	return taken;
}

void *md_arena_take_array(struct md_arena *arena, size_t count, size_t item)
{
	size_t bytes;
	return __builtin_mul_overflow(count, item, &bytes) ? NULL : md_arena_take(arena, bytes);
}

char *md_arena_copy(struct md_arena *arena, const char *text, size_t bytes)
{
	char *copy = md_arena_take(arena, bytes + 1);
	if (copy && bytes)
		memcpy(copy, text, bytes);
	return copy;
}

void md_arena_finish(struct md_arena *arena)
{
	while (arena->blocks) {
		struct md_arena_block *next = arena->blocks->next;
		free(arena->blocks);
		arena->blocks = next;
	}
	arena->left = 0;
}

enum md_status md_tree_memory(const char *file, struct md_error *err)
{
	return md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory for the configuration", file);
}

/* ---- nodes ---- */

struct md_tree *md_tree_make(struct md_forest *forest, enum md_tree_kind kind, const char *file, uint32_t line,
			     struct md_error *err)
{
	struct md_tree *node;
	if (forest->nodes >= MD_TREE_NODES_MAX) {
		md_error_set(err, MD_ERR_TOO_LARGE,
			     "%s:%" PRIu32 ": more than %u values, with those that aliases and << copy", file, line,
			     MD_TREE_NODES_MAX);
		return NULL;
	}
	node = md_arena_take(&forest->arena, sizeof(*node));
	if (!node) {
		md_tree_memory(file, err);
		return NULL;
	}
	forest->nodes++;
	node->kind = kind;
	node->file = file;
	node->line = line;
	return node;
}

void md_tree_append(struct md_tree *parent, struct md_tree *child)
{
	child->parent = parent;
	child->next = NULL;
	if (parent->last)
		parent->last->next = child;
	else
		parent->first = child;
	parent->last = child;
	parent->count++;
}

enum md_status md_tree_copy(struct md_forest *forest, const struct md_tree *from, uint32_t depth, struct md_tree **out,
			    struct md_error *err)
{
	struct md_tree *node, *child;
	if (depth > MD_TREE_DEPTH_MAX)
		return md_error_set(err, MD_ERR_TOO_LARGE, "%s:%" PRIu32 ": values nested more than %u deep",
				    from->file, from->line, MD_TREE_DEPTH_MAX);
	node = md_tree_make(forest, from->kind, from->file, from->line, err);
	if (!node)
		return err ? err->status : MD_ERR_NO_MEMORY;
	node->plain = from->plain;
	node->text = from->text;
	node->integer = from->integer;
	if (from->kind == MD_TREE_REAL)
		node->real = from->real;
	for (const struct md_tree *at = from->first; at; at = at->next) {
		MD_FORWARD(md_tree_copy(forest, at, depth + 1, &child, err));
		child->key = at->key;
		md_tree_append(node, child);
	}
	*out = node;
	return MD_OK;
}

struct md_tree *md_tree_find(const struct md_tree *mapping, const char *key)
{
	struct md_tree *at = mapping->kind == MD_TREE_MAPPING ? mapping->first : NULL;
	while (at && strcmp(at->key, key))
		at = at->next;
	return at;
}

/* ---- what a plain scalar means ---- */

static bool is_one_of(const char *text, const char *const *words)
{
	while (*words && strcmp(text, *words))
		words++;
	return *words != NULL;
}

/* "_" may stand between digits. */
static size_t without_lines(const char *text, char *digits, size_t room)
{
	size_t used = 0;
	for (; *text; text++)
		if (*text != '_') {
			if (used + 1 >= room)
				return 0;
			digits[used++] = *text;
		}
	digits[used] = '\0';
	return used;
}

static bool read_integer(const char *text, int64_t *value)
{
	char digits[72];
	const char *at = digits;
	int base = 10;
	char *end;
	if (!without_lines(text, digits, sizeof(digits)))
		return false;
	at += *at == '-' || *at == '+';
	if (*at < '0' || *at > '9')
		return false;
	if (at[0] == '0' && (at[1] == 'x' || at[1] == 'X'))
		base = 16;
	else if (at[0] == '0' && (at[1] == 'o' || at[1] == 'O'))
		base = 8;
	else if (at[0] == '0' && (at[1] == 'b' || at[1] == 'B'))
		base = 2;
	else if (at[0] == '0' && at[1])
		base = 8; /* as YAML 1.1 has it, and the library that llama-swap reads with */
	if (base != 10 && at[1] > '9') {
		char sign = *digits;
		memmove(digits, at + 2, strlen(at + 2) + 1);
		if (!strchr("0123456789abcdefABCDEF", *digits) || !*digits)
			return false;
		errno = 0;
		*value = strtoll(digits, &end, base);
		if (sign == '-')
			*value = -*value;
		return !*end && errno == 0;
	}
	errno = 0;
	*value = strtoll(digits, &end, base);
	return !*end && errno == 0;
}

static bool read_real(const char *text, double *value)
{
	static const char *const infinite[] = {".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", NULL};
	static const char *const below[] = {"-.inf", "-.Inf", "-.INF", NULL};
	static const char *const none[] = {".nan", ".NaN", ".NAN", NULL};
	char digits[72];
	char *end;
	if (is_one_of(text, infinite) || is_one_of(text, below) || is_one_of(text, none)) {
		*value = is_one_of(text, none) ? NAN : *text == '-' ? -INFINITY : INFINITY;
		return true;
	}
	if (!without_lines(text, digits, sizeof(digits)) || strspn(digits, "0123456789.eE+-") != strlen(digits) ||
	    !strpbrk(digits, "0123456789") || strchr("eE", *digits))
		return false;
	*value = strtod(digits, &end);
	return !*end;
}

void md_tree_resolve(struct md_tree *scalar)
{
	static const char *const nothing[] = {"", "~", "null", "Null", "NULL", NULL};
	static const char *const yes[] = {"true", "True", "TRUE", NULL}, *const no[] = {"false", "False", "FALSE",
											NULL};
	const char *text = scalar->text;
	if (is_one_of(text, nothing)) {
		scalar->kind = MD_TREE_NULL;
	} else if (is_one_of(text, yes) || is_one_of(text, no)) {
		scalar->kind = MD_TREE_FLAG;
		scalar->flag = is_one_of(text, yes);
	} else if (read_integer(text, &scalar->integer)) {
		scalar->kind = MD_TREE_INTEGER;
	} else if (read_real(text, &scalar->real)) {
		scalar->kind = MD_TREE_REAL;
	} else {
		scalar->kind = MD_TREE_TEXT;
	}
}

void md_tree_set_integer(struct md_tree *scalar, int64_t value, const char *text)
{
	scalar->kind = MD_TREE_INTEGER;
	scalar->text = text;
	scalar->integer = value;
}

/* ---- messages ---- */

/* Puts a text of the file into a message: no byte of it acts on a terminal, and it is cut off where room ends. */
static void put_shown(char *out, size_t room, const char *text)
{
	size_t used = 0;
	while (*text) {
		uint32_t point;
		size_t length = md_utf8_length(text, &point);
		bool shown = length && !md_utf8_acts(point);
		if (used + (shown ? length : 1) + 4 > room) {
			memcpy(out + used, "...", 3);
			used += 3;
			break;
		}
		if (shown)
			memcpy(out + used, text, length);
		else
			out[used] = '?';
		used += shown ? length : 1;
		text += length ? length : 1;
	}
	out[used] = '\0';
}

static void put_part(const struct md_tree *node, char *part, size_t room)
{
	char shown[72];
	uint32_t index = 0;
	if (!node->key) {
		for (const struct md_tree *at = node->parent->first; at != node; at = at->next)
			index++;
		snprintf(part, room, "[%" PRIu32 "]", index);
		return;
	}
	put_shown(shown, sizeof(shown), node->key);
	snprintf(part, room, strpbrk(shown, " .[]\"'") || !*shown ? "\"%s\"" : "%s", shown);
}

void md_tree_path(const struct md_tree *node, char path[MD_TREE_PATH_MAX])
{
	size_t at = MD_TREE_PATH_MAX - 1;
	if (!node->parent) {
		snprintf(path, MD_TREE_PATH_MAX, "the configuration");
		return;
	}
	path[at] = '\0';
	for (; node->parent; node = node->parent) {
		char part[96];
		put_part(node, part, sizeof(part));
		size_t length = strlen(part);
		if (length + 5 > at) { /* the end tells more than the beginning */
			memcpy(path + at - 3, "...", 3);
			at -= 3;
			break;
		}
		at -= length;
		memcpy(path + at, part, length);
		if (*part != '[' && node->parent->parent)
			path[--at] = '.';
	}
	memmove(path, path + at, MD_TREE_PATH_MAX - at);
}

/* A scalar's text without secrets: a message goes to logs. NULL: out of memory. */
static char *hide(const struct md_tree *node)
{
	for (const struct md_tree *at = node; at; at = at->parent)
		if (at->key && md_secret_is_named(at->key, strlen(at->key)))
			return strdup(MD_SECRET_SHOWN);
	return md_secret_hide_line(node->text ? node->text : "");
}

static void describe(const struct md_tree *node, char *text, size_t room)
{
	char shown[80];
	MD_AUTO_FREE char *hidden = hide(node);
	switch (node->kind) {
	case MD_TREE_NULL:
		snprintf(text, room, "empty");
		return;
	case MD_TREE_LIST:
		snprintf(text, room, "a list");
		return;
	case MD_TREE_MAPPING:
		snprintf(text, room, "a mapping");
		return;
	default:
		put_shown(shown, sizeof(shown), hidden ? hidden : "?");
		snprintf(text, room, node->kind == MD_TREE_TEXT ? "\"%s\"" : "%s", shown);
	}
}

static enum md_status refuse(const struct md_tree *node, const char *value, struct md_error *err, const char *what)
{
	char path[MD_TREE_PATH_MAX];
	md_tree_path(node, path);
	return md_error_set(err, MD_ERR_CORRUPT, "%s:%" PRIu32 ": %s%s%s: %s", node->file, node->line, path,
			    value ? " is " : "", value ? value : "", what);
}

enum md_status md_tree_refuse(const struct md_tree *node, struct md_error *err, const char *format, ...)
{
	char what[280], value[96];
	va_list args;
	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	describe(node, value, sizeof(value));
	return refuse(node, value, err, what);
}

enum md_status md_tree_refuse_place(const struct md_tree *node, struct md_error *err, const char *format, ...)
{
	char what[320];
	va_list args;
	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	return refuse(node, NULL, err, what);
}

/* ---- JSON ---- */

static json_t *json_of_list(const struct md_tree *node)
{
	json_t *list = json_array();
	for (const struct md_tree *at = node->first; at && list; at = at->next)
		if (json_array_append_new(list, md_tree_json(at))) {
			json_decref(list);
			return NULL;
		}
	return list;
}

static json_t *json_of_mapping(const struct md_tree *node)
{
	json_t *object = json_object();
	for (const struct md_tree *at = node->first; at && object; at = at->next)
		if (json_object_set_new(object, at->key, md_tree_json(at))) {
			json_decref(object);
			return NULL;
		}
	return object;
}

json_t *md_tree_json(const struct md_tree *node)
{
	switch (node->kind) {
	case MD_TREE_NULL:
		return json_null();
	case MD_TREE_FLAG:
		return json_boolean(node->flag);
	case MD_TREE_INTEGER:
		return json_integer(node->integer);
	case MD_TREE_REAL:
		return json_real(node->real);
	case MD_TREE_LIST:
		return json_of_list(node);
	case MD_TREE_MAPPING:
		return json_of_mapping(node);
	default:
		return json_string(node->text);
	}
}
