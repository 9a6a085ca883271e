/* SPDX-License-Identifier: Apache-2.0 */
/* A YAML document as a tree of typed values with file and line; sizes are limited, because the file may be hostile. */
#ifndef MD_WORKER_CONFIG_TREE_H
#define MD_WORKER_CONFIG_TREE_H

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MD_TREE_FILE_MAX (4u << 20)   /* bytes */
#define MD_TREE_NODES_MAX 500000u     /* of all files, with what aliases and merges copy */
#define MD_TREE_DEPTH_MAX 32u         /* below the root */
#define MD_TREE_SCALAR_MAX (1u << 18) /* bytes */
#define MD_TREE_GROWN_MAX (64u << 20) /* bytes that macros and the environment add */
#define MD_TREE_PATH_MAX 160u         /* bytes of a path in a message, with its NUL */

/* ---- memory that is freed all at once ---- */

struct md_arena_block;

struct md_arena {
	struct md_arena_block *blocks;
	size_t left; /* bytes of the first one */
};

/* Zeroed memory, aligned for any type; NULL: out of memory. */
void *md_arena_take(struct md_arena *arena, size_t bytes);
void *md_arena_take_array(struct md_arena *arena, size_t count, size_t item);
char *md_arena_copy(struct md_arena *arena, const char *text, size_t bytes); /* a NUL is put behind it */
void md_arena_finish(struct md_arena *arena);

/* ---- values ---- */

enum md_tree_kind {
	MD_TREE_NULL,
	MD_TREE_FLAG,
	MD_TREE_INTEGER,
	MD_TREE_REAL,
	MD_TREE_TEXT,
	MD_TREE_LIST,
	MD_TREE_MAPPING,
};

struct md_tree {
	enum md_tree_kind kind;
	uint32_t line;  /* of the key in a mapping */
	uint32_t count; /* children */
	bool plain;     /* a scalar without quotes, whose kind follows from its text */
	const char *file;
	const char *key;  /* in a mapping */
	const char *text; /* of a scalar, as it is written */
	union {
		bool flag;
		int64_t integer;
		double real;
	};
	struct md_tree *parent, *first, *last, *next;
};

/* What the trees of one configuration have together. */
struct md_forest {
	struct md_arena arena;
	uint32_t nodes; /* made */
	uint32_t steps; /* macros replaced */
	size_t grown;   /* bytes that the environment and macros have added */
};

/*
 * Reads a document; an empty one is an empty mapping. Anchors, aliases and "<<" are carried out: each place has nodes of
 * its own. "${env.NAME}" is replaced in scalars and keys by the variable's value, which changes nothing but this text,
 * whatever is in it. Errors read "FILE:LINE: what". `name` is kept.
 */
enum md_status md_tree_parse(struct md_forest *forest, const char *name, const char *text, size_t bytes,
			     struct md_tree **root, struct md_error *err);

/*
 * Adds the content of another file: lists are put behind one another, mappings are united. Scalars that are there
 * already must be equal, and entries of models, groups, profiles, selectors, peers and of the matrix may be there once.
 */
enum md_status md_tree_merge(struct md_forest *forest, struct md_tree *into, struct md_tree *from,
			     struct md_error *err);

struct md_tree *md_tree_find(const struct md_tree *mapping, const char *key); /* NULL: not there */

/* Sets kind and value of a plain scalar from its text, as YAML 1.2 does. */
void md_tree_resolve(struct md_tree *scalar);
void md_tree_set_integer(struct md_tree *scalar, int64_t value, const char *text); /* kept */

/* "models.qwen.ttl", "apiKeys[2]"; of the root "the configuration". */
void md_tree_path(const struct md_tree *node, char path[MD_TREE_PATH_MAX]);
/* "FILE:LINE: PATH is VALUE: what"; MD_ERR_CORRUPT. */
enum md_status md_tree_refuse(const struct md_tree *node, struct md_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "FILE:LINE: PATH: what", for what must not be shown, or is not about the value. */
enum md_status md_tree_refuse_place(const struct md_tree *node, struct md_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The value as JSON, a new reference; NULL: out of memory, or a number that JSON does not have. */
json_t *md_tree_json(const struct md_tree *node);

/* ---- within tree*.c ---- */

struct md_tree *md_tree_make(struct md_forest *forest, enum md_tree_kind kind, const char *file, uint32_t line,
			     struct md_error *err);
void md_tree_append(struct md_tree *parent, struct md_tree *child);
/* A copy below `depth` further levels, without its key. */
enum md_status md_tree_copy(struct md_forest *forest, const struct md_tree *from, uint32_t depth, struct md_tree **out,
			    struct md_error *err);
enum md_status md_tree_memory(const char *file, struct md_error *err);
/* A copy of a text that macros or the environment have made; counted. */
enum md_status md_tree_grow(struct md_forest *forest, const struct md_tree *at, const void *text, size_t bytes,
			    const char **out, struct md_error *err);
/* Replaces what stands for "${env.NAME}" in a text. */
enum md_status md_tree_environment(struct md_forest *forest, const struct md_tree *at, const char **text,
				   struct md_error *err);
/* The text of a file with what stands for "${env.NAME}" instead of it; *out is malloc'd. */
enum md_status md_tree_hide_environment(const char *text, size_t bytes, char **out, size_t *size);

#endif
