/* SPDX-License-Identifier: Apache-2.0 */
/* models: each with its macros replaced, its command split, and its defaults filled in. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "worker/config/command.h"
#include "worker/config/parts.h"

#define SECOND UINT64_C(1000000000)
#define PORT_MAX 65535
#define COMFYUI "comfyui_auto" /* a name that llama-swap gives limits of its own */
#define COMFYUI_CONCURRENCY 50u

/* What the table fills; taken apart afterwards. */
struct model_source {
	struct md_config_model model;
	const char *cmd, *stop, *check;
	int64_t ttl, unload, concurrency;
	struct md_tree *filters, *macros, *timeouts, *compat, *capabilities, *medusa;
	const char *place;  /* ${content} */
	bool names_content; /* a value has it */
};

#define SOURCE(member) offsetof(struct model_source, member)
#define MODEL(member) offsetof(struct model_source, model.member)

static const struct md_config_key model_keys[] = {
    MD_KEY("cmd", MD_KEY_TEXT, SOURCE(cmd), NULL),
    MD_KEY("cmdStop", MD_KEY_TEXT, SOURCE(stop), NULL),
    MD_KEY("proxy", MD_KEY_TEXT, MODEL(proxy), "http://localhost:${PORT}"),
    MD_KEY("aliases", MD_KEY_TEXTS, MODEL(aliases), NULL),
    MD_KEY("env", MD_KEY_TEXTS, MODEL(env), NULL),
    MD_KEY("checkEndpoint", MD_KEY_TEXT, SOURCE(check), "/health"),
    MD_KEY("ttl", MD_KEY_INTEGER, SOURCE(ttl), "-1", .low = -1, .high = 1000000000,
	   .wanted = "at least -1 is wanted (seconds; -1: globalTTL, 0: never)"),
    MD_KEY("unloadTimeout", MD_KEY_INTEGER, SOURCE(unload), "0", .high = 1000000000,
	   .wanted = "at least 0 is wanted (seconds; 0: the global unloadTimeout)"),
    MD_KEY("unlisted", MD_KEY_FLAG, MODEL(unlisted), "false"),
    MD_KEY("useModelName", MD_KEY_TEXT, MODEL(use_model_name), NULL),
    MD_KEY("name", MD_KEY_TEXT, MODEL(name), NULL),
    MD_KEY("description", MD_KEY_TEXT, MODEL(description), NULL),
    MD_KEY("concurrencyLimit", MD_KEY_INTEGER, SOURCE(concurrency), "0", .low = INT32_MIN, .high = 1000000000),
    MD_KEY("filters", MD_KEY_NODE, SOURCE(filters), NULL),
    MD_KEY("macros", MD_KEY_NODE, SOURCE(macros), NULL),
    MD_KEY("metadata", MD_KEY_JSON, MODEL(metadata), NULL),
    MD_KEY("sendLoadingState", MD_KEY_FLAG, MODEL(send_loading_state), NULL),
    MD_KEY("timeouts", MD_KEY_NODE, SOURCE(timeouts), NULL),
    MD_KEY("compat", MD_KEY_NODE, SOURCE(compat), NULL),
    MD_KEY("capabilities", MD_KEY_NODE, SOURCE(capabilities), NULL),
    MD_KEY("medusa", MD_KEY_NODE, SOURCE(medusa), NULL),
};
const struct md_config_keys md_config_model_keys = MD_KEYS("models.*.", model_keys);

static const struct md_config_key compat_keys[] = {MD_KEY("ignoreWebsockets", MD_KEY_FLAG, 0, "false")};
const struct md_config_keys md_config_compat_keys = MD_KEYS("models.*.compat.", compat_keys);

struct capability_nodes {
	struct md_config_texts in, out;
	bool tools, reranker;
	int64_t context;
};

#define CAPABILITY(member) offsetof(struct capability_nodes, member)

static const struct md_config_key capability_keys[] = {
    MD_KEY("in", MD_KEY_TEXTS, CAPABILITY(in), NULL),
    MD_KEY("out", MD_KEY_TEXTS, CAPABILITY(out), NULL),
    MD_KEY("tools", MD_KEY_FLAG, CAPABILITY(tools), "false"),
    MD_KEY("reranker", MD_KEY_FLAG, CAPABILITY(reranker), "false"),
    MD_KEY("context", MD_KEY_INTEGER, CAPABILITY(context), "0", .wanted = "at least 0 is wanted (tokens)"),
};
const struct md_config_keys md_config_capability_keys = MD_KEYS("models.*.capabilities.", capability_keys);

/* ---- macros ---- */

static enum md_status uncomment(struct md_config_build *build, struct md_tree *node)
{
	const char *text;
	if (!node || node->kind != MD_TREE_TEXT)
		return MD_OK;
	text = md_command_uncomment(&build->forest->arena, node->text);
	if (!text)
		return md_tree_memory(node->file, build->err);
	node->text = text;
	return MD_OK;
}

static bool is_known(const char *name)
{
	for (size_t i = 0; i < md_config_model_keys.count; i++)
		if (!strcmp(model_keys[i].name, name))
			return true;
	return false;
}

/* Replaces the macros of a model. cmd comes first: whether the model has a port depends on it. */
static enum md_status expand_model(struct md_config_build *build, struct md_tree *node, struct md_macro_scope *scope,
				   int64_t *next_port)
{
	struct md_tree *cmd = md_tree_find(node, "cmd"), *stop = md_tree_find(node, "cmdStop");
	struct md_tree *filters = md_tree_find(node, "filters");
	struct md_tree *by_id = filters ? md_tree_find(filters, "setParamsByID") : NULL;
	MD_FORWARD(uncomment(build, cmd));
	MD_FORWARD(uncomment(build, stop));
	scope->next_port = next_port;
	if (cmd)
		MD_FORWARD(md_macros_expand(scope, cmd, build->err));
	scope->next_port = NULL;
	if (scope->port > PORT_MAX)
		return md_tree_refuse_place(cmd, build->err, "there are no ports left for ${PORT}; lower startPort");
	for (struct md_tree *at = node->first; at; at = at->next) {
		if (at == cmd || !strcmp(at->key, "macros") || !is_known(at->key))
			continue;
		scope->keeps_pid = at == stop;
		MD_FORWARD(md_macros_expand(scope, at, build->err));
	}
	return by_id && by_id->kind == MD_TREE_MAPPING ? md_macros_expand_keys(scope, by_id, build->err) : MD_OK;
}

/* ---- parts of a model ---- */

static enum md_status split(struct md_config_build *build, const struct md_tree *node, const char *text,
			    const char *const **argv)
{
	bool open;
	*argv = md_command_split(&build->forest->arena, text, &open);
	if (!*argv)
		return md_tree_memory(node->file, build->err);
	return open ? md_config_note(build, node, "a quote is not closed; the command ends as if it were") : MD_OK;
}

/* Where the key stands, or the model if it is not there. */
static const struct md_tree *place_of(const struct md_tree *node, const char *key)
{
	const struct md_tree *at = md_tree_find(node, key);
	return at ? at : node;
}

static enum md_status read_commands(struct md_config_build *build, const struct md_tree *node,
				    const struct model_source *source, struct md_config_model *model)
{
	model->cmd = source->cmd;
	MD_FORWARD(split(build, place_of(node, "cmd"), source->cmd, &model->argv));
	if (!*model->argv)
		MD_FORWARD(md_config_note(build, node, "there is no cmd, so the model cannot be started"));
	if (!*source->stop)
		return MD_OK;
	MD_FORWARD(split(build, place_of(node, "cmdStop"), source->stop, &model->stop_argv));
	if (!*model->stop_argv)
		model->stop_argv = NULL;
	return MD_OK;
}

static enum md_status read_proxy(struct md_config_build *build, const struct md_tree *node, int64_t port,
				 struct md_config_model *model)
{
	const struct md_tree *at = md_tree_find(node, "proxy");
	char text[64];
	if (at && at->kind != MD_TREE_NULL)
		return md_config_check_engine_url(build, at, model->proxy);
	if (!port)
		return md_tree_refuse_place(node, build->err,
					    "the engine's address is not known: give proxy, or use ${PORT} in cmd");
	snprintf(text, sizeof(text), "http://localhost:%" PRId64, port);
	model->proxy = md_arena_copy(&build->forest->arena, text, strlen(text));
	return model->proxy ? MD_OK : md_tree_memory(node->file, build->err);
}

/* An entry without "=" is no variable, and is left out. */
static enum md_status clean_env(struct md_config_build *build, const struct md_tree *list, struct md_config_texts *env)
{
	const struct md_tree *at = list ? list->first : NULL;
	const char **items = md_config_take(build, env->count, sizeof(*items));
	uint32_t kept = 0;
	if (!items)
		return MD_ERR_NO_MEMORY;
	for (uint32_t i = 0; i < env->count; i++, at = at->next)
		if (strchr(env->items[i], '=') && *env->items[i] != '=')
			items[kept++] = env->items[i];
		else
			MD_FORWARD(md_config_note(build, at, "NAME=VALUE is wanted; this entry has no effect"));
	*env = (struct md_config_texts){items, kept};
	return MD_OK;
}

/* "none" means that there is nothing to ask; other words are paths, with or without the slash. */
static enum md_status read_check(struct md_config_build *build, const struct md_tree *node, const char *text,
				 const char **check)
{
	size_t length = strlen(text);
	char *path;
	for (const char *at = text; *at; at++)
		if ((unsigned char)*at <= ' ' || *at == 0x7f)
			return md_tree_refuse(
			    node, build->err,
			    "a path is wanted, without blanks and line breaks (%%20 is a blank), or none");
	*check = strcmp(text, "none") ? text : NULL;
	if (!*check || *text == '/')
		return MD_OK;
	path = md_config_take(build, length + 2, 1);
	if (!path)
		return MD_ERR_NO_MEMORY;
	*path = '/';
	memcpy(path + 1, text, length);
	*check = path;
	return MD_OK;
}

static enum md_status read_media(struct md_config_build *build, const struct md_tree *list,
				 const struct md_config_texts *texts, unsigned *media)
{
	static const char *const names[] = {"text", "audio", "image"};
	const struct md_tree *at = list ? list->first : NULL;
	for (uint32_t i = 0; i < texts->count; i++, at = at->next) {
		unsigned bit = 0;
		while (bit < 3 && strcmp(texts->items[i], names[bit]))
			bit++;
		if (bit == 3)
			return md_tree_refuse(at, build->err, "text, audio or image is wanted");
		*media |= 1u << bit;
	}
	return MD_OK;
}

static enum md_status read_capabilities(struct md_config_build *build, struct md_tree *node,
					struct md_config_capabilities *out)
{
	struct capability_nodes nodes = {0};
	MD_FORWARD(md_keys_read(build, &md_config_capability_keys, node, &nodes));
	if (!node)
		return MD_OK;
	out->given = true;
	out->tools = nodes.tools;
	out->reranker = nodes.reranker;
	out->context = (uint64_t)nodes.context;
	MD_FORWARD(read_media(build, md_tree_find(node, "in"), &nodes.in, &out->in));
	return read_media(build, md_tree_find(node, "out"), &nodes.out, &out->out);
}

static struct md_config_place stands_at(const struct md_tree *node)
{
	return (struct md_config_place){node->file, node->line};
}

static enum md_status fill_model(struct md_config_build *build, const struct md_tree *node,
				 const struct md_config_sections *sections, struct model_source *source)
{
	struct md_config_model *model = &source->model;
	model->ttl_ns = source->ttl < 0 ? sections->ttl_ns : (uint64_t)source->ttl * SECOND;
	model->unload_ns = source->unload ? (uint64_t)source->unload * SECOND : sections->unload_ns;
	model->health_ns = sections->health_ns;
	model->place = stands_at(node);
	model->proxy_place = stands_at(place_of(node, "proxy"));
	model->memory_place = source->medusa ? stands_at(place_of(source->medusa, "memory")) : model->place;
	model->concurrency = source->concurrency > 0 ? (uint32_t)source->concurrency : MD_CONFIG_CONCURRENCY;
	if (source->concurrency < 0)
		MD_FORWARD(md_config_note(build, place_of(node, "concurrencyLimit"), "less than 0, so it is 10"));
	MD_FORWARD(read_check(build, place_of(node, "checkEndpoint"), source->check, &model->check));
	MD_FORWARD(clean_env(build, md_tree_find(node, "env"), &model->env));
	MD_FORWARD(md_config_read_filters(build, source->filters, true, &model->filters));
	MD_FORWARD(md_config_read_timeouts(build, source->timeouts, false, &model->timeouts));
	MD_FORWARD(md_keys_read(build, &md_config_compat_keys, source->compat, &model->ignore_websockets));
	MD_FORWARD(read_capabilities(build, source->capabilities, &model->capabilities));
	MD_FORWARD(md_config_read_own(build, source->medusa, &model->own));
	MD_FORWARD(md_config_read_content(build, node, source->place, source->names_content, &model->own));
	if (!strcmp(model->id, COMFYUI)) {
		model->ignore_websockets = true;
		if (model->concurrency < COMFYUI_CONCURRENCY)
			model->concurrency = COMFYUI_CONCURRENCY;
	}
	return read_commands(build, node, source, model);
}

static enum md_status read_model(struct md_config_build *build, struct md_tree *node,
				 const struct md_config_sections *sections, int64_t *next_port,
				 struct md_config_model *model)
{
	struct model_source source = {.model = {.id = node->key,
						.group = MD_CONFIG_NONE,
						.base = MD_CONFIG_NONE,
						.send_loading_state = sections->send_loading_state}};
	struct md_macros macros;
	struct md_macro_scope scope = {
	    .forest = build->forest, .global = &build->macros, .model = &macros, .model_id = node->key};
	MD_FORWARD(md_keys_mapping(build, node));
	MD_FORWARD(md_config_content_place(build, node, &scope.content));
	MD_FORWARD(md_macros_read(build->forest, md_tree_find(node, "macros"), &build->macros, &macros, build->err));
	MD_FORWARD(expand_model(build, node, &scope, next_port));
	MD_FORWARD(md_keys_read(build, &md_config_model_keys, node, &source));
	source.place = scope.content;
	source.names_content = scope.names_content;
	MD_FORWARD(fill_model(build, node, sections, &source));
	MD_FORWARD(read_proxy(build, node, scope.port, &source.model));
	source.model.port = (uint16_t)scope.port;
	*model = source.model;
	return MD_OK;
}

/* ---- ports ---- */

static bool is_taken(const struct md_worker_config *previous, int64_t port)
{
	for (uint32_t i = 0; previous && i < previous->model_count; i++)
		if (previous->models[i].port == port)
			return true;
	return false;
}

/* The port that the model had, else the next one that no model had. */
static int64_t choose_port(const struct md_config_build *build, const char *id, int64_t next)
{
	const struct md_worker_config *previous = build->previous;
	uint32_t known = previous ? md_config_find_id(previous, id) : MD_CONFIG_NONE;
	if (known != MD_CONFIG_NONE && previous->models[known].port &&
	    previous->start_port == build->config->start_port)
		return previous->models[known].port;
	while (is_taken(previous, next))
		next++;
	return next;
}

/* ---- all of them ---- */

static enum md_status read_engines(struct md_config_build *build, const struct md_config_sections *sections,
				   const struct md_config_entry *entries, uint32_t count,
				   struct md_config_model *models)
{
	int64_t next_port = sections->start_port;
	for (uint32_t i = 0; i < count; i++) {
		if (entries[i].model)
			continue;
		int64_t port = choose_port(build, entries[i].node->key, next_port);
		MD_FORWARD(read_model(build, entries[i].node, sections, &port, &models[i]));
		if (port > next_port && !(build->previous && is_taken(build->previous, models[i].port)))
			next_port = port;
	}
	return MD_OK;
}

enum md_status md_config_read_models(struct md_config_build *build, struct md_config_sections *sections)
{
	struct md_config_entry *entries;
	uint32_t count;
	MD_FORWARD(md_keys_mapping(build, sections->models));
	MD_FORWARD(md_config_list_entries(build, sections->models, &entries, &count));
	struct md_tree **nodes = md_config_take(build, count, sizeof(*nodes));
	struct md_config_model *models = md_config_take(build, count, sizeof(*models));
	if (!nodes || !models)
		return MD_ERR_NO_MEMORY;
	build->config->start_port = (uint16_t)sections->start_port;
	MD_FORWARD(read_engines(build, sections, entries, count, models));
	MD_FORWARD(md_config_read_adapters(build, entries, models, count));
	for (uint32_t i = 0; i < count; i++)
		nodes[i] = entries[i].node;
	sections->model_nodes = nodes;
	build->config->models = models;
	build->config->model_count = count;
	return MD_OK;
}
