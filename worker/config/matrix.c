/* SPDX-License-Identifier: Apache-2.0 */
/* matrix: sets of models that may run together, as expressions; each is expanded into its combinations. */
#include "worker/config/matrix.h"

#include <stdlib.h>
#include <string.h>

#include "worker/config/parts.h"

#define VARS_MAX 10000u
#define SETS_MAX 1000u
#define NAME_MAX_BYTES 128u

struct matrix_nodes {
	struct md_tree *vars, *costs, *sets;
};

static const struct md_config_key matrix_keys[] = {
    MD_KEY("vars", MD_KEY_NODE, offsetof(struct matrix_nodes, vars), NULL),
    MD_KEY("evict_costs", MD_KEY_NODE, offsetof(struct matrix_nodes, costs), NULL),
    MD_KEY("sets", MD_KEY_NODE, offsetof(struct matrix_nodes, sets), NULL),
};
const struct md_config_keys md_config_matrix_keys = MD_KEYS("matrix.", matrix_keys);

/* ---- vars and costs ---- */

static int compare_vars(const void *a, const void *b)
{
	const struct md_matrix_var *left = a, *right = b;
	return strcmp(left->name, right->name);
}

uint32_t md_matrix_model(const struct md_matrix_build *matrix, const char *name)
{
	const struct md_matrix_var wanted = {.name = name};
	const struct md_matrix_var *var =
	    matrix->var_count ? bsearch(&wanted, matrix->vars, matrix->var_count, sizeof(*matrix->vars), compare_vars)
			      : NULL;
	uint32_t found = var ? var->model : md_config_find_id(matrix->build->config, name);
	bool adapter = found != MD_CONFIG_NONE && matrix->build->config->models[found].base != MD_CONFIG_NONE;
	return adapter ? MD_CONFIG_NONE : found;
}

static enum md_status read_vars(struct md_matrix_build *matrix, const struct md_tree *mapping)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-";
	struct md_config_build *build = matrix->build;
	MD_FORWARD(md_keys_mapping(build, mapping));
	if (!mapping)
		return MD_OK;
	if (mapping->count > VARS_MAX)
		return md_tree_refuse_place(mapping, build->err, "there are more than %u", VARS_MAX);
	matrix->vars = md_config_take(build, mapping->count, sizeof(*matrix->vars));
	if (!matrix->vars)
		return MD_ERR_NO_MEMORY;
	for (const struct md_tree *at = mapping->first; at; at = at->next) {
		struct md_matrix_var *var = &matrix->vars[matrix->var_count++];
		size_t length = strlen(at->key);
		if (!length || length > 32 || strspn(at->key, allowed) != length)
			return md_tree_refuse_place(at, build->err, "the name has 1 to 32 letters, digits, . or -");
		var->name = at->key;
		var->model = at->text ? md_config_find_id(build->config, at->text) : MD_CONFIG_NONE;
		if (var->model == MD_CONFIG_NONE)
			return md_tree_refuse(at, build->err, "there is no model with this ID");
		MD_FORWARD(md_config_want_engine(build, at, var->model));
	}
	qsort(matrix->vars, matrix->var_count, sizeof(*matrix->vars), compare_vars);
	return MD_OK;
}

static enum md_status read_costs(const struct md_matrix_build *matrix, const struct md_tree *mapping, uint32_t *costs)
{
	struct md_config_build *build = matrix->build;
	for (uint32_t i = 0; i < build->config->model_count; i++)
		costs[i] = 1;
	MD_FORWARD(md_keys_mapping(build, mapping));
	for (const struct md_tree *at = mapping ? mapping->first : NULL; at; at = at->next) {
		uint32_t model = md_matrix_model(matrix, at->key);
		if (model == MD_CONFIG_NONE)
			return md_tree_refuse_place(at, build->err, "there is neither a var nor a model of this name");
		if (at->kind != MD_TREE_INTEGER || at->integer < 1 || at->integer > 1000000)
			return md_tree_refuse(at, build->err, "a whole number from 1 to 1000000 is wanted");
		costs[model] = (uint32_t)at->integer;
	}
	return MD_OK;
}

/* ---- sets ---- */

static enum md_status take_sets(struct md_matrix_build *matrix, const struct md_tree *mapping)
{
	struct md_config_build *build = matrix->build;
	MD_FORWARD(md_keys_mapping(build, mapping));
	if (!mapping || !mapping->count)
		return md_tree_refuse_place(mapping ? mapping : matrix->node, build->err,
					    "at least one set is wanted, \"name: a & (b | c)\"");
	if (mapping->count > SETS_MAX)
		return md_tree_refuse_place(mapping, build->err, "there are more than %u", SETS_MAX);
	matrix->sets = md_config_take(build, mapping->count, sizeof(*matrix->sets));
	if (!matrix->sets)
		return MD_ERR_NO_MEMORY;
	for (const struct md_tree *at = mapping->first; at; at = at->next) {
		if (at->kind == MD_TREE_LIST || at->kind == MD_TREE_MAPPING)
			return md_tree_refuse(at, build->err, "an expression is wanted, such as a & (b | c)");
		if (strlen(at->key) > NAME_MAX_BYTES)
			return md_tree_refuse_place(at, build->err, "the name has more than %u bytes", NAME_MAX_BYTES);
		matrix->sets[matrix->set_count++] = (struct md_matrix_set){.node = at};
	}
	return MD_OK;
}

enum md_status md_config_read_matrix(struct md_config_build *build, struct md_tree *node)
{
	struct matrix_nodes nodes = {0};
	struct md_matrix_build matrix = {.build = build, .node = node};
	struct md_config_matrix *out = md_config_take(build, 1, sizeof(*out));
	uint32_t *costs = md_config_take(build, build->config->model_count, sizeof(*costs));
	if (!out || !costs)
		return MD_ERR_NO_MEMORY;
	MD_FORWARD(md_keys_read(build, &md_config_matrix_keys, node, &nodes));
	MD_FORWARD(read_vars(&matrix, nodes.vars));
	MD_FORWARD(read_costs(&matrix, nodes.costs, costs));
	MD_FORWARD(take_sets(&matrix, nodes.sets));
	for (uint32_t i = 0; i < matrix.set_count; i++)
		MD_FORWARD(md_matrix_expand(&matrix, i, 0));
	out->costs = costs;
	MD_FORWARD(md_matrix_collect(&matrix, out));
	build->config->matrix = out;
	return MD_OK;
}
