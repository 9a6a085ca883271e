/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix while it is read: names, and expressions with the combinations that they stand for. */
#ifndef MD_WORKER_CONFIG_MATRIX_H
#define MD_WORKER_CONFIG_MATRIX_H

#include "worker/config/keys.h"

struct md_matrix_var {
	const char *name;
	uint32_t model;
};

/* Combinations, in the order in which the expression names them. */
struct md_matrix_list {
	struct md_config_members *items;
	uint32_t count;
};

struct md_matrix_set {
	const struct md_tree *node; /* key and expression */
	bool begun, done;
	struct md_matrix_list list;
	uint32_t order; /* in which the sets were done */
};

struct md_matrix_build {
	struct md_config_build *build;
	const struct md_tree *node;
	struct md_matrix_var *vars; /* by name */
	uint32_t var_count;
	struct md_matrix_set *sets;
	uint32_t set_count, done_count;
	uint64_t cells; /* members of all combinations that were made */
};

/* The model of a var, else with this ID; MD_CONFIG_NONE: none. */
uint32_t md_matrix_model(const struct md_matrix_build *matrix, const char *name);
/* Expands a set, and those that it refers to first. depth: of parentheses and sets around it. */
enum md_status md_matrix_expand(struct md_matrix_build *matrix, uint32_t index, uint32_t depth);
/* Puts the combinations of all sets into one list. */
enum md_status md_matrix_collect(struct md_matrix_build *matrix, struct md_config_matrix *out);

#endif
