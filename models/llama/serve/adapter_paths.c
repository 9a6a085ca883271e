/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters are loaded and unloaded over HTTP as vLLM does it, and read again when they were forgotten. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "json/tree_text.h"
#include "models/llama/serve/api_reply.h"
#include "models/llama/serve/server_parts.h"

#define JOBS_MAX 64u

static void __attribute__((format(printf, 5, 6)))
refuse(struct md_http_exchange *exchange, unsigned status, const char *type, const char *param, const char *format, ...)
{
	struct api_error error = {.status = status, .type = type};
	va_list args;
	snprintf(error.param, sizeof(error.param), "%s", param);
	va_start(args, format);
	vsnprintf(error.message, sizeof(error.message), format, args);
	va_end(args);
	server_refuse(exchange, &error);
}

static void refuse_name(struct md_http_exchange *exchange, unsigned status, const char *type, const char *name,
			const char *what)
{
	refuse(exchange, status, type, "lora_name", "The lora adapter '%.100s' %s", name, what);
}

static void say_done(struct md_http_exchange *exchange, const char *name, const char *what)
{
	char text[LORA_NAME_BYTES + 64];
	snprintf(text, sizeof(text), "Success: LoRA adapter '%s' %s successfully.", name, what);
	server_answer(exchange, 200, "text/plain; charset=utf-8", strdup(text));
}

static void refuse_loaded(struct md_http_exchange *exchange, const char *name)
{
	refuse_name(exchange, 400, "InvalidUserInput", name,
		    "has already been loaded. To load it anew, set 'load_inplace' to true.");
}

/* ---- requests ---- */

/* The body; NULL: it was refused. */
static json_t *read_body(struct server *server, struct md_http_exchange *exchange)
{
	json_error_t why;
	size_t size;
	const char *body = md_http_exchange_body(exchange, &size);
	if (!server->lora_slots) {
		refuse(exchange, 404, "NotFoundError", "",
		       "this engine has no slots for LoRA adapters: start it with --lora-slots");
		return NULL;
	}
	json_t *root = md_jansson_parse(body, size, 0, &why);
	if (json_is_object(root))
		return root;
	if (!root && json_error_code(&why) == json_error_out_of_memory)
		refuse(exchange, 500, "server_error", "", "%s", why.text);
	else
		refuse(exchange, 400, "InvalidUserInput", "", "the body is no JSON object");
	json_decref(root);
	return NULL;
}

static void on_gone(void *context)
{
	struct adapter_job *job = context;
	job->owner = NULL;
}

static const struct md_http_exchange_events events = {.gone = on_gone};

static void begin_load(struct server *server, struct md_http_exchange *exchange, const char *name, const char *path,
		       bool in_place)
{
	struct adapter_job *job = server->adapters.jobs < JOBS_MAX ? adapter_job_create(name, path) : NULL;
	if (!job) {
		refuse(exchange, 429, "rate_limit_error", "", "too many adapters are being loaded");
		return;
	}
	job->owner = exchange;
	job->in_place = in_place;
	server->adapters.jobs++;
	server->adapters.asked++;
	md_http_exchange_watch(exchange, &events, job);
	adapter_loader_submit(&server->adapters.loader, job);
}

static void load(struct server *server, struct md_http_exchange *exchange, const json_t *body)
{
	const char *name = json_string_value(json_object_get(body, "lora_name"));
	const char *path = json_string_value(json_object_get(body, "lora_path"));
	const json_t *in_place = json_object_get(body, "load_inplace");
	const char *wrong;
	if (!name || !*name || !path || !*path)
		refuse(exchange, 400, "InvalidUserInput", "", "Both 'lora_name' and 'lora_path' must be provided.");
	else if (in_place && !json_is_null(in_place) && !json_is_boolean(in_place))
		refuse(exchange, 400, "InvalidUserInput", "load_inplace", "load_inplace: true or false is wanted");
	else if ((wrong = lora_name_wrong(name, server->model.name)))
		refuse(exchange, 400, "InvalidUserInput", "lora_name", "lora_name: the name %s", wrong);
	else if ((wrong = lora_path_wrong(path)))
		refuse(exchange, 400, "InvalidUserInput", "lora_path", "lora_path: the path %s", wrong);
	else if (lora_store_find(&server->adapters.store, name) && !json_is_true(in_place))
		refuse_loaded(exchange, name);
	else
		begin_load(server, exchange, name, path, json_is_true(in_place));
}

void adapters_post_load(struct server *server, struct md_http_exchange *exchange)
{
	json_t *body = read_body(server, exchange);
	if (body)
		load(server, exchange, body);
	json_decref(body);
}

void adapters_post_unload(struct server *server, struct md_http_exchange *exchange)
{
	json_t *body = read_body(server, exchange);
	const char *name = json_string_value(json_object_get(body, "lora_name"));
	if (body && (!name || !*name)) {
		refuse(exchange, 400, "InvalidUserInput", "lora_name", "'lora_name' needs to be provided.");
	} else if (body && !lora_store_find(&server->adapters.store, name)) {
		refuse_name(exchange, 404, "NotFoundError", name, "cannot be found.");
	} else if (body) {
		lora_store_remove(&server->adapters.store, name);
		say_done(exchange, name, "removed");
	}
	json_decref(body);
}

/* ---- jobs that are done ---- */

static void answer_load(struct server *server, struct adapter_job *job)
{
	struct server_adapters *adapters = &server->adapters;
	const struct lora_name *old = lora_store_find(&adapters->store, job->name);
	struct md_http_exchange *exchange = job->owner;
	bool loaded = old && !job->in_place;
	if (job->status == MD_OK && !loaded)
		job->status = lora_store_put(&adapters->store, job->name, job->path, old && old->pinned, &job->adapter,
					     &job->err);
	if (!exchange)
		return;
	if (loaded)
		refuse_loaded(exchange, job->name);
	else if (job->status == MD_OK)
		say_done(exchange, job->name, "added");
	else
		refuse(exchange, job->absent ? 404 : 400, job->absent ? "NotFoundError" : "BadRequestError", "", "%s",
		       job->err.message);
}

bool adapters_read_again(struct server *server, const struct lora_name *name)
{
	struct adapter_job *job = adapter_job_create(name->name, name->path);
	if (!job)
		return false;
	job->again = true;
	server->adapters.jobs++;
	adapter_loader_submit(&server->adapters.loader, job);
	return true;
}

/* A name that was unloaded meanwhile, or stands for another file, no longer concerns those who had asked before. */
static struct lora_weights *keep_again(struct server *server, struct adapter_job *job)
{
	struct lora_store *store = &server->adapters.store;
	const struct lora_name *name = lora_store_find(store, job->name);
	if (job->status != MD_OK || (name && name->weights))
		return NULL;
	if (name && !strcmp(name->path, job->path)) {
		job->status = lora_store_put(store, job->name, job->path, name->pinned, &job->adapter, &job->err);
		return NULL;
	}
	struct lora_weights *weights = lora_store_put_unnamed(store, &job->adapter);
	if (!weights)
		job->status = md_error_set(&job->err, MD_ERR_NO_MEMORY, "out of memory for an adapter");
	return weights;
}

static void answer_again(struct server *server, struct adapter_job *job)
{
	struct lora_weights *weights = keep_again(server, job);
	struct api_error error = {.status = job->status == MD_ERR_NO_MEMORY ? 503 : 500, .type = "server_error"};
	snprintf(error.message, sizeof(error.message), "the adapter's weights can't be read again: %.200s",
		 job->status == MD_OK ? "it was unloaded" : job->err.message);
	if (weights)
		lora_store_use(weights);
	client_adapter_there(server, job->name, weights, &error);
	if (weights)
		lora_store_leave(&server->adapters.store, weights);
}

void adapters_hear(struct server *server)
{
	struct server_adapters *adapters = &server->adapters;
	for (struct adapter_job *job; (job = adapter_loader_take(&adapters->loader)); adapter_job_destroy(job)) {
		*(job->status == MD_OK ? &adapters->loaded : &adapters->not_loaded) += 1;
		adapters->jobs--;
		if (job->again) {
			answer_again(server, job);
			continue;
		}
		adapters->asked--;
		answer_load(server, job);
		server_client_ended(server);
	}
}

/* ---- metrics ---- */

static void __attribute__((format(printf, 2, 3))) line(struct md_buf *out, const char *format, ...)
{
	char text[256];
	va_list args;
	va_start(args, format);
	int size = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	md_buf_put(out, text, size < (int)sizeof(text) ? (size_t)size : sizeof(text) - 1);
}

/* As vLLM has it: who runs and who waits are labels, and the value is the time. */
static void print_requests(const struct server *server, struct md_buf *out)
{
	line(out,
	     "# TYPE vllm:lora_requests_info gauge\nvllm:lora_requests_info{max_lora=\"%d\",running_lora_adapters=\"",
	     server->lora_slots);
	client_list_adapters(server, true, out);
	line(out, "\",waiting_lora_adapters=\"");
	client_list_adapters(server, false, out);
	line(out, "\"} %lld\n", (long long)time(NULL));
}

void adapters_print_metrics(const struct server *server, struct md_buf *out)
{
	const struct server_adapters *adapters = &server->adapters;
	const struct lora_counts *counts = &server->options.counts->lora;
	const struct {
		const char *name, *kind;
		uint64_t value;
	} all[] = {
	    {"slots", "gauge", (uint64_t)server->lora_slots},
	    {"slots_used", "gauge", counts->used},
	    {"slot_copies_total", "counter", counts->copied},
	    {"slot_evictions_total", "counter", counts->replaced},
	    {"names", "gauge", adapters->store.name_count},
	    {"host_bytes", "gauge", adapters->store.bytes},
	    {"host_bytes_limit", "gauge", adapters->store.max_bytes},
	    {"host_evictions_total", "counter", adapters->store.forgotten},
	    {"files_loaded_total", "counter", adapters->loaded},
	    {"files_refused_total", "counter", adapters->not_loaded},
	};
	print_requests(server, out);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		line(out, "# TYPE medusa_engine_lora_%s %s\nmedusa_engine_lora_%s %llu\n", all[i].name, all[i].kind,
		     all[i].name, (unsigned long long)all[i].value);
}
