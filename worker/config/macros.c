/* SPDX-License-Identifier: Apache-2.0 */
/* Macros: reading them, and replacing them in values. */
#include "worker/config/macros.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"

#define NAME_MAX_BYTES 63u
#define MACROS_MAX 1000u
#define NESTED_MAX 64u
#define STEPS_MAX 1000000u

static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

/* ---- reading ---- */

static bool is_reserved(const char *name)
{
	return !strcmp(name, "PORT") || !strcmp(name, "PID") || !strcmp(name, "MODEL_ID");
}

static int compare_macros(const void *a, const void *b)
{
	const struct md_macro *left = a, *right = b;
	return strcmp(left->name, right->name);
}

static const struct md_macro *find(const struct md_macros *macros, const char *name)
{
	const struct md_macro wanted = {.name = name};
	return macros && macros->count
		   ? bsearch(&wanted, macros->items, macros->count, sizeof(*macros->items), compare_macros)
		   : NULL;
}

static enum md_status check_macro(const struct md_tree *at, struct md_error *err)
{
	char self[NAME_MAX_BYTES + 4];
	size_t length = strlen(at->key);
	if (length == 0 || length > NAME_MAX_BYTES || strspn(at->key, allowed) != length)
		return md_tree_refuse_place(at, err, "a macro's name has 1 to 63 letters, digits, _ or -");
	if (is_reserved(at->key))
		return md_tree_refuse_place(at, err, "PORT, PID and MODEL_ID are macros already; take another name");
	if (at->kind == MD_TREE_LIST || at->kind == MD_TREE_MAPPING)
		return md_tree_refuse(at, err, "a macro's value is a text, a number, true or false");
	snprintf(self, sizeof(self), "${%s}", at->key);
	if (at->kind == MD_TREE_TEXT && strstr(at->text, self))
		return md_tree_refuse(at, err, "the macro refers to itself");
	return MD_OK;
}

enum md_status md_macros_read(struct md_forest *forest, const struct md_tree *mapping, const struct md_macros *outer,
			      struct md_macros *macros, struct md_error *err)
{
	*macros = (struct md_macros){.next_order = outer ? outer->next_order : 0};
	if (!mapping || mapping->kind == MD_TREE_NULL)
		return MD_OK;
	if (mapping->kind != MD_TREE_MAPPING)
		return md_tree_refuse(mapping, err, "a mapping is wanted, \"name: value\"");
	if (mapping->count > MACROS_MAX)
		return md_tree_refuse_place(mapping, err, "there are more than %u macros", MACROS_MAX);
	macros->items = md_arena_take_array(&forest->arena, mapping->count, sizeof(*macros->items));
	if (!macros->items)
		return md_tree_memory(mapping->file, err);
	for (const struct md_tree *at = mapping->first; at; at = at->next) {
		const struct md_macro *same = find(outer, at->key);
		MD_FORWARD(check_macro(at, err));
		macros->items[macros->count++] =
		    (struct md_macro){at->key, at, same ? same->order : macros->next_order++};
	}
	qsort(macros->items, macros->count, sizeof(*macros->items), compare_macros);
	return MD_OK;
}

/* ---- replacing ---- */

/* One value whose macros are replaced; `at` is where messages point to. */
struct expansion {
	struct md_macro_scope *scope;
	const struct md_tree *at;
	struct md_buf out;
	struct md_error *err;
};

/* Bytes of "${name}" at the beginning of text, 0 if it is none; the name goes to `name`. */
static size_t take_name(const char *text, char name[NAME_MAX_BYTES + 1])
{
	size_t length;
	if (text[0] != '$' || text[1] != '{')
		return 0;
	length = strspn(text + 2, allowed);
	if (length == 0 || length > NAME_MAX_BYTES || text[2 + length] != '}')
		return 0;
	memcpy(name, text + 2, length);
	name[length] = '\0';
	return length + 3;
}

static const struct md_macro *look_up(const struct md_macro_scope *scope, const char *name, uint32_t below)
{
	const struct md_macro *macro = find(scope->model, name);
	if (!macro)
		macro = find(scope->global, name);
	return macro && macro->order < below ? macro : NULL;
}

static enum md_status count_step(const struct expansion *expansion, uint32_t depth)
{
	struct md_forest *forest = expansion->scope->forest;
	if (depth >= NESTED_MAX)
		return md_tree_refuse_place(expansion->at, expansion->err, "macros are nested more than %u deep",
					    NESTED_MAX);
	if (++forest->steps > STEPS_MAX)
		return md_tree_refuse_place(expansion->at, expansion->err,
					    "macros of the configuration are replaced more than %u times", STEPS_MAX);
	return MD_OK;
}

static enum md_status refuse_name(const struct expansion *expansion, const char *name)
{
	const struct md_macro_scope *scope = expansion->scope;
	if (!strcmp(name, "PORT") && scope->model_id)
		return md_tree_refuse_place(
		    expansion->at, expansion->err,
		    "${PORT} is used, but the model's cmd does not use it: the engine would not know it");
	if (!strcmp(name, "PID") && scope->model_id)
		return md_tree_refuse_place(expansion->at, expansion->err, "${PID} is known in cmdStop only");
	if (!strcmp(name, "content") && scope->model_id)
		return md_tree_refuse_place(expansion->at, expansion->err,
					    "${content} is the folder of the model's files in medusa.cluster.store, "
					    "which is missing, or was when the daemon started");
	if (look_up(scope, name, UINT32_MAX))
		return md_tree_refuse_place(expansion->at, expansion->err,
					    "the macro ${%s} is used by one that stands before it; move it up", name);
	return md_tree_refuse_place(expansion->at, expansion->err, "unknown macro '${%s}'", name);
}

/* A port for the model, if this value may take one. */
static bool has_port(struct md_macro_scope *scope)
{
	if (!scope->port && scope->next_port)
		scope->port = (*scope->next_port)++;
	return scope->port != 0;
}

static enum md_status put_text(struct expansion *expansion, const char *text, uint32_t below, uint32_t depth);

static enum md_status put_value(struct expansion *expansion, const struct md_macro *macro, uint32_t depth)
{
	const struct md_tree *value = macro->value;
	char number[24];
	if (value->kind == MD_TREE_TEXT)
		return put_text(expansion, value->text, macro->order, depth + 1);
	if (value->kind == MD_TREE_INTEGER) {
		int length = snprintf(number, sizeof(number), "%" PRId64, value->integer);
		md_buf_put(&expansion->out, number, (size_t)length);
	} else if (value->kind == MD_TREE_FLAG) {
		md_buf_put(&expansion->out, value->flag ? "true" : "false", value->flag ? 4 : 5);
	} else if (value->kind == MD_TREE_REAL) {
		md_buf_put(&expansion->out, value->text, strlen(value->text));
	}
	return MD_OK;
}

static enum md_status put_macro(struct expansion *expansion, const char *name, uint32_t below, uint32_t depth)
{
	struct md_macro_scope *scope = expansion->scope;
	const struct md_macro *macro = look_up(scope, name, below);
	char number[24];
	MD_FORWARD(count_step(expansion, depth));
	if (macro)
		return put_value(expansion, macro, depth);
	if (!strcmp(name, "MODEL_ID") && scope->model_id) {
		md_buf_put(&expansion->out, scope->model_id, strlen(scope->model_id));
	} else if (!strcmp(name, "PORT") && has_port(scope)) {
		int length = snprintf(number, sizeof(number), "%" PRId64, scope->port);
		md_buf_put(&expansion->out, number, (size_t)length);
	} else if (!strcmp(name, "PID") && scope->keeps_pid) {
		md_buf_put(&expansion->out, "${PID}", 6);
	} else if (!strcmp(name, "content") && scope->content) {
		md_buf_put(&expansion->out, scope->content, strlen(scope->content));
		scope->names_content = true;
	} else {
		return refuse_name(expansion, name);
	}
	return MD_OK;
}

static enum md_status put_text(struct expansion *expansion, const char *text, uint32_t below, uint32_t depth)
{
	char name[NAME_MAX_BYTES + 1];
	while (*text) {
		size_t plain = strcspn(text, "$"), length;
		md_buf_put(&expansion->out, text, plain);
		if (expansion->out.size > MD_TREE_SCALAR_MAX)
			return md_tree_refuse_place(expansion->at, expansion->err,
						    "macros make it longer than 256 KiB");
		text += plain;
		length = take_name(text, name);
		if (length)
			MD_FORWARD(put_macro(expansion, name, below, depth));
		else if (*text)
			md_buf_put(&expansion->out, text, length = 1);
		text += length;
	}
	return expansion->out.failed ? md_tree_memory(expansion->at->file, expansion->err) : MD_OK;
}

/* *text with its macros replaced, if it has any. */
static enum md_status expand_text(struct md_macro_scope *scope, const struct md_tree *at, const char **text,
				  uint32_t below, struct md_error *err)
{
	struct expansion expansion = {.scope = scope, .at = at, .err = err};
	enum md_status status;
	if (!strstr(*text, "${"))
		return MD_OK;
	md_buf_init(&expansion.out);
	status = put_text(&expansion, *text, below, 0);
	if (status == MD_OK)
		status = md_tree_grow(scope->forest, at, expansion.out.data ? (const void *)expansion.out.data : "",
				      expansion.out.size, text, err);
	md_buf_finish(&expansion.out);
	return status;
}

static void take_value(struct md_tree *node, const struct md_tree *value)
{
	node->kind = value->kind;
	node->text = value->text;
	node->plain = value->plain;
	node->integer = value->integer;
	if (value->kind == MD_TREE_REAL)
		node->real = value->real;
}

/* A value that is nothing but one macro takes over what the macro is. */
static enum md_status expand_scalar(struct md_macro_scope *scope, struct md_tree *node, struct md_error *err)
{
	char name[NAME_MAX_BYTES + 1];
	uint32_t below = UINT32_MAX;
	const struct expansion expansion = {.scope = scope, .at = node, .err = err};
	for (uint32_t depth = 0; node->kind == MD_TREE_TEXT; depth++) {
		size_t length = take_name(node->text, name);
		const struct md_macro *macro = length && !node->text[length] ? look_up(scope, name, below) : NULL;
		if (macro) {
			MD_FORWARD(count_step(&expansion, depth));
			take_value(node, macro->value);
			below = macro->order;
			continue;
		}
		bool port = length && !node->text[length] && !strcmp(name, "PORT");
		MD_FORWARD(expand_text(scope, node, &node->text, below, err));
		if (port)
			md_tree_set_integer(node, scope->port, node->text);
		break;
	}
	return MD_OK;
}

enum md_status md_macros_expand(struct md_macro_scope *scope, struct md_tree *node, struct md_error *err)
{
	for (struct md_tree *at = node->first; at; at = at->next)
		MD_FORWARD(md_macros_expand(scope, at, err));
	return node->kind == MD_TREE_TEXT ? expand_scalar(scope, node, err) : MD_OK;
}

static int compare_keys(const void *a, const void *b)
{
	const struct md_tree *const *left = a, *const *right = b;
	return strcmp((*left)->key, (*right)->key);
}

enum md_status md_macros_expand_keys(struct md_macro_scope *scope, struct md_tree *mapping, struct md_error *err)
{
	MD_AUTO_FREE struct md_tree **sorted = calloc(mapping->count + 1u, sizeof(*sorted));
	uint32_t count = 0;
	if (!sorted)
		return md_tree_memory(mapping->file, err);
	for (struct md_tree *at = mapping->first; at; at = at->next) {
		MD_FORWARD(expand_text(scope, at, &at->key, UINT32_MAX, err));
		sorted[count++] = at;
	}
	qsort(sorted, count, sizeof(*sorted), compare_keys);
	for (uint32_t i = 1; i < count; i++)
		if (!strcmp(sorted[i - 1]->key, sorted[i]->key))
			return md_tree_refuse_place(sorted[i], err,
						    "two keys become this one when macros are replaced");
	return MD_OK;
}
