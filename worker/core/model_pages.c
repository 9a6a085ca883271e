/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/model_pages.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/secret.h"
#include "worker/core/reply.h"

/* ---- lists of models ---- */

static json_t *list_media(unsigned media)
{
	static const char *const names[] = {"text", "audio", "image"};
	json_t *list = json_array();
	for (unsigned bit = 0; bit < sizeof(names) / sizeof(names[0]); bit++)
		if (media & 1u << bit)
			json_array_append_new(list, json_string(names[bit]));
	return list;
}

/* In the words of clients that read lists of models. */
static void put_capabilities(json_t *made, const struct md_config_capabilities *capabilities)
{
	if (capabilities->in || capabilities->out)
		json_object_set_new(made, "architecture",
				    json_pack("{s:o, s:o}", "input_modalities", list_media(capabilities->in),
					      "output_modalities", list_media(capabilities->out)));
	if (capabilities->tools)
		json_object_set_new(made, "supported_parameters", json_pack("[s, s]", "tools", "tool_choice"));
	if (capabilities->context) {
		json_object_set_new(made, "context_length", json_integer((json_int_t)capabilities->context));
		json_object_set_new(json_object_get(made, "meta"), "n_ctx",
				    json_integer((json_int_t)capabilities->context));
	}
}

/* base: of an adapter. */
static json_t *describe(const struct md_model_row *row, const char *base, int64_t began, const char *id)
{
	const struct md_config_model *config = row->config;
	bool loaded = row->state != MD_ENGINE_STOPPED;
	json_t *swap = config->metadata ? json_deep_copy(config->metadata) : json_object();
	json_t *made = json_pack("{s:s, s:s, s:I, s:s, s:{s:o}, s:{s:s}}", "id", id, "object", "model", "created",
				 (json_int_t)began, "owned_by", "medusa-worker", "meta", "llamaswap", swap, "status",
				 "value", loaded ? "loaded" : "unloaded");
	json_object_set_new(swap, "type", json_string(id == config->id ? "model" : "alias"));
	if (id != config->id)
		json_object_set_new(swap, "modelID", json_string(config->id));
	if (*config->name)
		json_object_set_new(made, "name", json_string(config->name));
	if (*config->description)
		json_object_set_new(made, "description", json_string(config->description));
	put_capabilities(made, &config->capabilities);
	if (base) { /* as vLLM says it */
		json_object_set_new(made, "root", json_string(config->path));
		json_object_set_new(made, "parent", json_string(base));
	}
	return made;
}

/* ---- names that are no model of this node ---- */

static json_t *describe_name(const char *id, int64_t began, const json_t *metadata, const char *type)
{
	json_t *swap = metadata ? json_deep_copy(metadata) : json_object();
	json_object_set_new(swap, "type", json_string(type));
	return json_pack("{s:s, s:s, s:I, s:s, s:{s:o}}", "id", id, "object", "model", "created", (json_int_t)began,
			 "owned_by", "medusa-worker", "meta", "llamaswap", swap);
}

static json_t *describe_selector(const struct md_config_selector *selector, int64_t began)
{
	json_t *made = describe_name(selector->id, began, selector->metadata, "selector");
	if (*selector->name)
		json_object_set_new(made, "name", json_string(selector->name));
	if (*selector->description)
		json_object_set_new(made, "description", json_string(selector->description));
	return made;
}

/* Whether it is loaded there is not known here. */
static json_t *describe_peer(const struct md_config_peer *peer, const char *model, int64_t began, const char *id)
{
	json_t *full = json_sprintf("%s/%s", peer->id, model);
	json_t *made = describe_name(id ? id : json_string_value(full), began, NULL, "peer");
	json_t *swap = json_object_get(json_object_get(made, "meta"), "llamaswap");
	json_object_set_new(swap, "peerID", json_string(peer->id));
	json_object_set_new(swap, "modelID", json_string(model));
	json_decref(full);
	return made;
}

static void list_names(const struct md_worker_config *config, int64_t began, json_t *data)
{
	for (uint32_t i = 0; i < config->peer_count; i++)
		for (uint32_t j = 0; j < config->peers[i].models.count; j++)
			json_array_append_new(
			    data, describe_peer(&config->peers[i], config->peers[i].models.items[j], began, NULL));
	for (uint32_t i = 0; i < config->selector_count; i++)
		if (!config->selectors[i].unlisted)
			json_array_append_new(data, describe_selector(&config->selectors[i], began));
}

/* ---- the cluster ---- */

static json_t *describe_elsewhere(const char *id, const char *node, int64_t began)
{
	json_t *made = describe_name(id, began, NULL, "cluster");
	json_object_set_new(json_object_get(json_object_get(made, "meta"), "llamaswap"), "nodeID", json_string(node));
	return made;
}

/* A name that means something here is in the list already, and one that several nodes have is there once. */
static void list_elsewhere(const struct md_model_rows *rows, int64_t began, json_t *data)
{
	const char *end = rows->elsewhere.bytes + rows->elsewhere.size;
	json_t *seen = json_object();
	for (const char *id = rows->elsewhere.bytes; id < end;) {
		const char *node = id + strlen(id) + 1;
		if (md_config_find(rows->config, id).kind == MD_CONFIG_NOTHING && !json_object_get(seen, id)) {
			json_object_set_new(seen, id, json_true());
			json_array_append_new(data, describe_elsewhere(id, node, began));
		}
		id = node + strlen(node) + 1;
	}
	json_decref(seen);
}

/* ---- pages ---- */

json_t *md_model_pages_list(const struct md_model_rows *rows, int64_t began)
{
	json_t *data = json_array();
	for (uint32_t i = 0; i < rows->count; i++) {
		const struct md_model_row *row = &rows->rows[i];
		const struct md_config_model *config = row->config;
		const char *base = md_model_row_base(row);
		if (config->unlisted)
			continue;
		json_array_append_new(data, describe(row, base, began, config->id));
		for (uint32_t a = 0; rows->config->include_aliases && a < config->aliases.count; a++)
			json_array_append_new(data, describe(row, base, began, config->aliases.items[a]));
	}
	list_names(rows->config, began, data);
	list_elsewhere(rows, began, data);
	return json_pack("{s:s, s:o}", "object", "list", "data", data);
}

void md_model_pages_show(struct md_worker *worker, struct md_http_exchange *exchange, const char *name)
{
	const struct md_worker_config *config = worker->config;
	const struct md_model *model = md_models_find(worker, name);
	struct md_config_target target = md_config_find(config, name);
	const char *node = model ? NULL : md_cluster_node_of(worker->cluster, name);
	if (target.kind == MD_CONFIG_SELECTOR)
		md_reply_json(exchange, 200, describe_selector(&config->selectors[target.index], worker->began));
	else if (target.kind == MD_CONFIG_PEER)
		md_reply_json(exchange, 200,
			      describe_peer(&config->peers[target.index], target.name, worker->began, name));
	else if (node)
		md_reply_json(exchange, 200, describe_elsewhere(name, node, worker->began));
	else if (!model)
		md_reply_error(exchange, MD_REPLY_NOT_FOUND, "model_not_found", "no model is called \"%.200s\"", name);
	if (!model)
		return;
	struct md_model_row row = {.config = model->config, .state = md_model_state(model)};
	md_reply_json(exchange, 200,
		      describe(&row, model->base ? model->base->id : NULL, worker->began,
			       strcmp(name, model->id) ? name : model->config->id));
}

json_t *md_model_pages_upstreams(const struct md_model_rows *rows)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < rows->count; i++)
		if (!rows->rows[i].config->unlisted)
			json_array_append_new(list, json_pack("{s:s, s:s}", "model", rows->rows[i].config->id, "state",
							      md_engine_state_name(rows->rows[i].state)));
	return json_pack("{s:o}", "models", list);
}

static json_t *without_secrets(const char *text)
{
	MD_AUTO_FREE char *hidden = md_secret_hide_line(text ? text : "");
	return json_string(hidden ? hidden : "");
}

static json_t *describe_running(const struct md_model_row *row)
{
	const struct md_config_model *config = row->config;
	const char *base = md_model_row_base(row);
	json_t *made = json_pack("{s:s, s:s, s:o, s:o, s:I, s:s, s:s}", "model", config->id, "state",
				 md_engine_state_name(row->state), "cmd", without_secrets(config->cmd), "proxy",
				 without_secrets(config->proxy), "ttl", (json_int_t)(config->ttl_ns / 1000000000u),
				 "name", config->name, "description", config->description);
	if (base)
		json_object_set_new(made, "parent", json_string(base));
	return made;
}

json_t *md_model_pages_running(const struct md_model_rows *rows)
{
	json_t *running = json_array();
	for (uint32_t i = 0; i < rows->left_count; i++)
		json_array_append_new(running, describe_running(&rows->left[i]));
	for (uint32_t i = 0; i < rows->count; i++)
		if (rows->rows[i].state != MD_ENGINE_STOPPED)
			json_array_append_new(running, describe_running(&rows->rows[i]));
	return json_pack("{s:o}", "running", running);
}
