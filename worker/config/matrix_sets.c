/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions of the matrix: "a & (b | c) & +set", into combinations of models. */
#include <string.h>

#include "worker/config/matrix.h"

#define NESTED_MAX 64u
#define COMBINATIONS_MAX 10000u
#define CELLS_MAX 4000000u
#define NAME_MAX_BYTES 128u

struct parser {
	struct md_matrix_build *matrix;
	const struct md_tree *node;
	const char *at;
};

static enum md_status refuse(const struct parser *parser, const char *what)
{
	return md_tree_refuse(parser->node, parser->matrix->build->err, "at byte %zu: %s",
			      (size_t)(parser->at - parser->node->text), what);
}

static void skip_blanks(struct parser *parser)
{
	parser->at += strspn(parser->at, " \t\r\n");
}

/* ---- combinations ---- */

static enum md_status count_cells(struct parser *parser, uint64_t count)
{
	struct md_matrix_build *matrix = parser->matrix;
	matrix->cells += count + 1;
	return matrix->cells <= CELLS_MAX
		   ? MD_OK
		   : md_tree_refuse_place(parser->node, matrix->build->err, "the sets together are too large");
}

static enum md_status make_list(struct parser *parser, uint64_t count, struct md_matrix_list *list)
{
	if (count > COMBINATIONS_MAX)
		return md_tree_refuse_place(parser->node, parser->matrix->build->err,
					    "the expression stands for more than %u combinations", COMBINATIONS_MAX);
	MD_FORWARD(count_cells(parser, count));
	list->items = md_config_take(parser->matrix->build, count, sizeof(*list->items));
	list->count = (uint32_t)count;
	return list->items ? MD_OK : MD_ERR_NO_MEMORY;
}

static uint32_t *make_members(struct parser *parser, uint64_t count)
{
	return count_cells(parser, count) == MD_OK ? md_config_take(parser->matrix->build, count, sizeof(uint32_t))
						   : NULL;
}

static enum md_status one_model(struct parser *parser, uint32_t model, struct md_matrix_list *list)
{
	uint32_t *items = make_members(parser, 1);
	if (!items)
		return parser->matrix->build->err->status;
	MD_FORWARD(make_list(parser, 1, list));
	*items = model;
	list->items[0] = (struct md_config_members){items, 1};
	return MD_OK;
}

/* Both are ascending, and so is what becomes of them. */
static enum md_status unite(struct parser *parser, const struct md_config_members *a, const struct md_config_members *b,
			    struct md_config_members *out)
{
	uint32_t *items = make_members(parser, (uint64_t)a->count + b->count), i = 0, j = 0, count = 0;
	if (!items)
		return parser->matrix->build->err->status;
	while (i < a->count || j < b->count) {
		bool left = j == b->count || (i < a->count && a->items[i] <= b->items[j]);
		uint32_t model = left ? a->items[i] : b->items[j];
		i += i < a->count && a->items[i] == model;
		j += j < b->count && b->items[j] == model;
		items[count++] = model;
	}
	*out = (struct md_config_members){items, count};
	return MD_OK;
}

static enum md_status combine(struct parser *parser, const struct md_matrix_list *a, const struct md_matrix_list *b,
			      struct md_matrix_list *out)
{
	uint32_t count = 0;
	MD_FORWARD(make_list(parser, (uint64_t)a->count * b->count, out));
	for (uint32_t i = 0; i < a->count; i++)
		for (uint32_t j = 0; j < b->count; j++)
			MD_FORWARD(unite(parser, &a->items[i], &b->items[j], &out->items[count++]));
	return MD_OK;
}

/* ---- expressions ---- */

static enum md_status parse_either(struct parser *parser, uint32_t depth, struct md_matrix_list *list);

static enum md_status take_name(struct parser *parser, char name[NAME_MAX_BYTES + 1])
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
	size_t length = strspn(parser->at, allowed);
	if (!length)
		return refuse(parser, *parser->at ? "a model or a set is wanted" : "the expression ends too early");
	if (length > NAME_MAX_BYTES)
		return refuse(parser, "the name is too long");
	memcpy(name, parser->at, length);
	name[length] = '\0';
	parser->at += length;
	return MD_OK;
}

static enum md_status parse_reference(struct parser *parser, uint32_t depth, struct md_matrix_list *list)
{
	struct md_matrix_build *matrix = parser->matrix;
	char name[NAME_MAX_BYTES + 1];
	parser->at++;
	skip_blanks(parser);
	MD_FORWARD(take_name(parser, name));
	for (uint32_t i = 0; i < matrix->set_count; i++)
		if (!strcmp(matrix->sets[i].node->key, name)) {
			if (matrix->sets[i].begun && !matrix->sets[i].done)
				return refuse(parser, "the set before this byte refers to itself");
			MD_FORWARD(md_matrix_expand(matrix, i, depth + 1));
			*list = matrix->sets[i].list;
			return MD_OK;
		}
	return refuse(parser, "there is no set of the name before this byte");
}

static enum md_status parse_one(struct parser *parser, uint32_t depth, struct md_matrix_list *list)
{
	char name[NAME_MAX_BYTES + 1];
	uint32_t model;
	skip_blanks(parser);
	if (*parser->at == '+')
		return parse_reference(parser, depth, list);
	if (*parser->at == '(') {
		parser->at++;
		MD_FORWARD(parse_either(parser, depth + 1, list));
		if (*parser->at != ')')
			return refuse(parser, "a ) is missing");
		parser->at++;
		return MD_OK;
	}
	MD_FORWARD(take_name(parser, name));
	model = md_matrix_model(parser->matrix, name);
	if (model == MD_CONFIG_NONE)
		return refuse(parser, "there is neither a var nor a model of the name before this byte");
	return one_model(parser, model, list);
}

static enum md_status parse_both(struct parser *parser, uint32_t depth, struct md_matrix_list *list)
{
	struct md_matrix_list left = {0}, right;
	MD_FORWARD(parse_one(parser, depth, &left));
	for (skip_blanks(parser); *parser->at == '&'; skip_blanks(parser)) {
		parser->at++;
		MD_FORWARD(parse_one(parser, depth, &right));
		MD_FORWARD(combine(parser, &left, &right, list));
		left = *list;
	}
	*list = left;
	return MD_OK;
}

/* The room doubles, so that a long list is seldom copied. */
static enum md_status append(struct parser *parser, struct md_matrix_list *list, uint32_t *room,
			     const struct md_matrix_list *more)
{
	struct md_matrix_list grown;
	uint64_t count = (uint64_t)list->count + more->count;
	if (count > *room) {
		bool full = count <= COMBINATIONS_MAX && 2 * count > COMBINATIONS_MAX;
		MD_FORWARD(make_list(parser, full ? COMBINATIONS_MAX : 2 * count, &grown));
		*room = grown.count;
		if (list->count)
			memcpy(grown.items, list->items, list->count * sizeof(*list->items));
		list->items = grown.items;
	}
	memcpy(list->items + list->count, more->items, more->count * sizeof(*more->items));
	list->count = (uint32_t)count;
	return MD_OK;
}

static enum md_status parse_either(struct parser *parser, uint32_t depth, struct md_matrix_list *list)
{
	struct md_matrix_list more = {0};
	uint32_t room = 0;
	if (depth > NESTED_MAX)
		return refuse(parser, "parentheses and sets are nested more than 64 deep");
	*list = (struct md_matrix_list){0};
	for (;;) {
		MD_FORWARD(parse_both(parser, depth, &more));
		MD_FORWARD(append(parser, list, &room, &more));
		skip_blanks(parser);
		if (*parser->at != '|')
			return MD_OK;
		parser->at++;
	}
}

/* ---- sets ---- */

enum md_status md_matrix_expand(struct md_matrix_build *matrix, uint32_t index, uint32_t depth)
{
	struct md_matrix_set *set = &matrix->sets[index];
	struct parser parser = {.matrix = matrix, .node = set->node, .at = set->node->text};
	if (set->done)
		return MD_OK;
	set->begun = true;
	MD_FORWARD(parse_either(&parser, depth, &set->list));
	if (*parser.at)
		return refuse(&parser, "&, | or the end is wanted");
	set->done = true;
	set->order = matrix->done_count++;
	return MD_OK;
}

enum md_status md_matrix_collect(struct md_matrix_build *matrix, struct md_config_matrix *out)
{
	struct md_config_combination *all;
	const struct md_matrix_set **ordered = md_config_take(matrix->build, matrix->set_count, sizeof(*ordered));
	uint64_t count = 0;
	for (uint32_t i = 0; i < matrix->set_count && ordered; i++) {
		count += matrix->sets[i].list.count;
		ordered[matrix->sets[i].order] = &matrix->sets[i];
	}
	if (count > 10 * COMBINATIONS_MAX)
		return md_tree_refuse_place(matrix->node, matrix->build->err,
					    "its sets stand for more than %u combinations", 10 * COMBINATIONS_MAX);
	all = md_config_take(matrix->build, count, sizeof(*all));
	if (!ordered || !all)
		return MD_ERR_NO_MEMORY;
	out->combinations = all;
	for (uint32_t i = 0; i < matrix->set_count; i++)
		for (uint32_t j = 0; j < ordered[i]->list.count; j++)
			all[out->combination_count++] =
			    (struct md_config_combination){ordered[i]->node->key, ordered[i]->list.items[j]};
	return MD_OK;
}
