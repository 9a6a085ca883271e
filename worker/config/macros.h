/* SPDX-License-Identifier: Apache-2.0 */
/* "${name}": the macros of a configuration and of its models, and the values that come into their places. */
#ifndef MD_WORKER_CONFIG_MACROS_H
#define MD_WORKER_CONFIG_MACROS_H

#include "worker/config/tree.h"

struct md_macro {
	const char *name;
	const struct md_tree *value; /* a scalar */
	uint32_t order;              /* a value may refer to macros of a lower order */
};

/* By name. */
struct md_macros {
	struct md_macro *items;
	uint32_t count;
	uint32_t next_order;
};

/*
 * Reads a mapping of macros (NULL: there are none). A macro that `outer` has takes its place, and others come behind
 * them; outer is NULL for those of the whole configuration.
 */
enum md_status md_macros_read(struct md_forest *forest, const struct md_tree *mapping, const struct md_macros *outer,
			      struct md_macros *macros, struct md_error *err);

/* Where values are. */
struct md_macro_scope {
	struct md_forest *forest;
	const struct md_macros *global, *model; /* model may be NULL */
	const char *model_id;                   /* ${MODEL_ID}; NULL: not in a model */
	int64_t port;                           /* ${PORT}; 0: there is none yet */
	int64_t *next_port;                     /* a value that names ${PORT} takes this one; NULL: it may not */
	bool keeps_pid;                         /* ${PID} is replaced when the command runs */
	const char *content;                    /* ${content}; NULL: there is none */
	bool names_content;                     /* a value has it */
};

/* Replaces the macros in all values of a subtree, not in keys. A value that is exactly "${name}" gets the macro's type. */
enum md_status md_macros_expand(struct md_macro_scope *scope, struct md_tree *node, struct md_error *err);
/* The same for the keys of a mapping; MD_ERR_CORRUPT if two of them become one. */
enum md_status md_macros_expand_keys(struct md_macro_scope *scope, struct md_tree *mapping, struct md_error *err);

#endif
