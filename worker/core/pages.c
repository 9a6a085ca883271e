/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/pages.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/secret.h"
#include "worker/core/health_page.h"
#include "worker/core/metrics_page.h"
#include "worker/core/reply.h"
#include "worker/page/page_orders.h"
#include "worker/page/status_page.h"

#define HISTORY (100u << 10) /* bytes of a log that are shown */

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

static json_t *describe(const struct md_worker *worker, const struct md_model *model, const char *id)
{
	const struct md_config_model *config = model->config;
	bool loaded = md_model_state(model) != MD_ENGINE_STOPPED;
	json_t *swap = config->metadata ? json_deep_copy(config->metadata) : json_object();
	json_t *made = json_pack("{s:s, s:s, s:I, s:s, s:{s:o}, s:{s:s}}", "id", id, "object", "model", "created",
				 (json_int_t)worker->began, "owned_by", "medusa-worker", "meta", "llamaswap", swap,
				 "status", "value", loaded ? "loaded" : "unloaded");
	json_object_set_new(swap, "type", json_string(id == config->id ? "model" : "alias"));
	if (id != config->id)
		json_object_set_new(swap, "modelID", json_string(config->id));
	if (*config->name)
		json_object_set_new(made, "name", json_string(config->name));
	if (*config->description)
		json_object_set_new(made, "description", json_string(config->description));
	put_capabilities(made, &config->capabilities);
	if (model->base) { /* as vLLM says it */
		json_object_set_new(made, "root", json_string(config->path));
		json_object_set_new(made, "parent", json_string(model->base->id));
	}
	return made;
}

static void list_models(struct md_worker *worker, struct md_http_exchange *exchange)
{
	json_t *data = json_array();
	for (uint32_t i = 0; i < worker->config->model_count; i++) {
		const struct md_model *model = worker->current[i];
		if (model->config->unlisted)
			continue;
		json_array_append_new(data, describe(worker, model, model->id));
		for (uint32_t a = 0; worker->config->include_aliases && a < model->config->aliases.count; a++)
			json_array_append_new(data, describe(worker, model, model->config->aliases.items[a]));
	}
	md_reply_json(exchange, 200, json_pack("{s:s, s:o}", "object", "list", "data", data));
}

static void show_model(struct md_worker *worker, struct md_http_exchange *exchange, const char *name)
{
	const struct md_model *model = md_models_find(worker, name);
	if (model)
		md_reply_json(exchange, 200, describe(worker, model, strcmp(name, model->id) ? name : model->id));
	else
		md_reply_error(exchange, MD_REPLY_NOT_FOUND, "model_not_found", "no model is called \"%.200s\"", name);
}

/* Whose engines can be reached as /upstream/NAME/. */
static void list_upstreams(struct md_worker *worker, struct md_http_exchange *exchange)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < worker->config->model_count; i++) {
		const struct md_model *model = worker->current[i];
		if (!model->config->unlisted)
			json_array_append_new(list, json_pack("{s:s, s:s}", "model", model->id, "state",
							      md_engine_state_name(md_model_state(model))));
	}
	md_reply_json(exchange, 200, json_pack("{s:o}", "models", list));
}

/* A model whose engine a later one replaces is not shown beside that one. */
static bool is_shown(const struct md_model *model)
{
	return md_model_state(model) != MD_ENGINE_STOPPED && !model->successor;
}

static json_t *without_secrets(const char *text)
{
	MD_AUTO_FREE char *hidden = md_secret_hide_line(text ? text : "");
	return json_string(hidden ? hidden : "");
}

static void list_running(struct md_worker *worker, struct md_http_exchange *exchange)
{
	json_t *running = json_array();
	for (const struct md_model *model = NULL; (model = md_models_each(worker, model));) {
		const struct md_config_model *config = model->config;
		if (!is_shown(model))
			continue;
		json_t *made =
		    json_pack("{s:s, s:s, s:o, s:o, s:I, s:s, s:s}", "model", model->id, "state",
			      md_engine_state_name(md_model_state(model)), "cmd", without_secrets(config->cmd), "proxy",
			      without_secrets(config->proxy), "ttl", (json_int_t)(config->ttl_ns / 1000000000u), "name",
			      config->name, "description", config->description);
		if (model->base)
			json_object_set_new(made, "parent", json_string(model->base->id));
		json_array_append_new(running, made);
	}
	md_reply_json(exchange, 200, json_pack("{s:o}", "running", running));
}

/* ---- logs ---- */

static void show_log(struct md_worker *worker, struct md_http_exchange *exchange, const char *name)
{
	struct md_model *model = md_models_find(worker, name);
	char *text = model ? malloc(HISTORY + 1) : NULL;
	uint64_t end = UINT64_MAX, from;
	if (!text) {
		md_reply_error(exchange, MD_REPLY_NOT_FOUND, "model_not_found", "no model is called \"%.200s\"", name);
		return;
	}
	md_log_file_read(model->log, &end, text, 0);
	from = end > HISTORY ? end - HISTORY : 0;
	size_t size = 0;
	for (size_t got; (got = md_log_file_read(model->log, &from, text + size, HISTORY - size));)
		size += got;
	text[size] = '\0';
	md_reply_text(exchange, 200, "text/plain; charset=utf-8", text);
	free(text);
}

/* ---- by path ---- */

bool md_pages_take(struct md_worker *worker, struct md_http_exchange *exchange, const char *path)
{
	const char *method = md_http_exchange_head(exchange)->method;
	if (md_page_take(worker, exchange, path))
		return true;
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return false;
	if (!strcmp(path, "/v1/models") || !strcmp(path, "/models"))
		list_models(worker, exchange);
	else if (!strncmp(path, "/v1/models/", 11))
		show_model(worker, exchange, path + 11);
	else if (!strcmp(path, "/upstream"))
		list_upstreams(worker, exchange);
	else if (!strcmp(path, "/api/version"))
		md_reply_json(
		    exchange, 200,
		    json_pack("{s:s, s:s, s:s}", "version", MD_VERSION, "commit", "unknown", "build_date", "unknown"));
	else if (!strcmp(path, "/running"))
		list_running(worker, exchange);
	else if (!strcmp(path, "/health") || !strcmp(path, "/wol-health"))
		md_health_page_answer(worker, exchange);
	else if (!strcmp(path, "/metrics"))
		md_metrics_page_answer(worker->metrics, exchange);
	else if (!strcmp(path, "/unload") && !strcmp(method, "GET")) /* HEAD only asks */
		md_page_orders_unload(worker, exchange, NULL, false);
	else if (!strncmp(path, "/logs/", 6))
		show_log(worker, exchange, path + 6);
	else
		return false;
	return true;
}
