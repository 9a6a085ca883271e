/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/pages.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker/core/reply.h"

#define HISTORY (100u << 10) /* bytes of a log that are shown */

/* ---- lists of models ---- */

static json_t *describe(const struct md_worker *worker, const struct md_model *model, const char *id)
{
	const struct md_config_model *config = model->config;
	bool loaded = md_engine_state(model->engine) != MD_ENGINE_STOPPED;
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

/* A model whose engine a later one replaces is not shown beside that one. */
static bool is_shown(const struct md_model *model)
{
	return md_engine_state(model->engine) != MD_ENGINE_STOPPED && !model->successor;
}

static void list_running(struct md_worker *worker, struct md_http_exchange *exchange)
{
	json_t *running = json_array();
	for (const struct md_model *model = NULL; (model = md_models_next(worker, model));) {
		const struct md_config_model *config = model->config;
		if (!is_shown(model))
			continue;
		json_array_append_new(running, json_pack("{s:s, s:s, s:s, s:s, s:I, s:s, s:s}", "model", model->id,
							 "state", md_engine_state_name(md_engine_state(model->engine)),
							 "cmd", config->cmd, "proxy", config->proxy, "ttl",
							 (json_int_t)(config->ttl_ns / 1000000000u), "name",
							 config->name, "description", config->description));
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
	size_t size = md_log_file_read(model->log, &from, text, HISTORY);
	text[size] = '\0';
	md_reply_text(exchange, 200, "text/plain; charset=utf-8", text);
	free(text);
}

/* ---- unloading ---- */

/* A client that waits until models are unloaded. */
struct waiting {
	struct md_http_exchange *exchange;
	struct md_unload *unload;
	bool as_json;
};

static void on_unloaded(void *context)
{
	struct waiting *waiting = context;
	if (waiting->as_json)
		md_reply_json(waiting->exchange, 200, json_pack("{s:s}", "msg", "ok"));
	else
		md_reply_text(waiting->exchange, 200, "text/plain; charset=utf-8", "OK");
	free(waiting);
}

static void on_gone(void *context)
{
	struct waiting *waiting = context;
	md_unload_forget(waiting->unload);
	free(waiting);
}

static void unload(struct md_worker *worker, struct md_http_exchange *exchange, struct md_model *model, bool as_json)
{
	static const struct md_http_exchange_events events = {.gone = on_gone};
	struct waiting *waiting = calloc(1, sizeof(*waiting));
	if (waiting)
		waiting->unload = md_unload_begin(worker, model, on_unloaded, waiting);
	if (!waiting || !waiting->unload) {
		free(waiting);
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, NULL, "out of memory for the request");
		return;
	}
	waiting->exchange = exchange;
	waiting->as_json = as_json;
	md_http_exchange_watch(exchange, &events, waiting);
	md_unload_look(worker);
}

/* rest: "", or "/NAME". */
static bool take_unload(struct md_worker *worker, struct md_http_exchange *exchange, const char *rest)
{
	struct md_model *model = *rest ? md_models_find(worker, rest + 1) : NULL;
	if (*rest && *rest != '/')
		return false;
	if (*rest && !model)
		md_reply_error(exchange, MD_REPLY_NOT_FOUND, "model_not_found", "no model is called \"%.200s\"",
			       rest + 1);
	else
		unload(worker, exchange, model, !model);
	return true;
}

/* ---- by path ---- */

bool md_pages_take(struct md_worker *worker, struct md_http_exchange *exchange, const char *path)
{
	const char *method = md_http_exchange_head(exchange)->method;
	if (!strcmp(method, "POST") && !strncmp(path, "/api/models/unload", 18))
		return take_unload(worker, exchange, path + 18);
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return false;
	if (!strcmp(path, "/v1/models") || !strcmp(path, "/models"))
		list_models(worker, exchange);
	else if (!strcmp(path, "/running"))
		list_running(worker, exchange);
	else if (!strcmp(path, "/health") || !strcmp(path, "/wol-health"))
		md_reply_text(exchange, md_drain_is_on(worker->drain) ? 503 : 200, "text/plain; charset=utf-8",
			      md_drain_is_on(worker->drain) ? "draining" : "OK");
	else if (!strcmp(path, "/metrics"))
		md_metrics_answer(worker, exchange);
	else if (!strcmp(path, "/unload"))
		unload(worker, exchange, NULL, false);
	else if (!strncmp(path, "/logs/", 6))
		show_log(worker, exchange, path + 6);
	else
		return false;
	return true;
}
