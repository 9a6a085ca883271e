/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of the HTTP thread: what each path answers, news of the batcher, and the end. */
#include "models/llama/serve/server.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "models/llama/serve/api_reply.h"
#include "models/llama/serve/server_parts.h"

#define BODY_BYTES (16u << 20)
#define LEAVE_NS 5000000000u /* for clients to take the ends of their answers */

/* ---- answers ---- */

void server_answer(struct md_http_exchange *exchange, unsigned status, const char *type, char *text)
{
	static const char none[] =
	    "{\"error\":{\"message\":\"out of memory for the answer\",\"type\":\"server_error\"}}";
	const char *body = text ? text : none;
	size_t size = strlen(body);
	md_http_answer_begin(exchange, text ? status : 503, (int64_t)size);
	md_http_answer_header(exchange, "Content-Type", type);
	if (status == 429 || status == 503)
		md_http_answer_header(exchange, "Retry-After", "1");
	md_http_answer_body(exchange);
	md_http_answer_write(exchange, body, size);
	md_http_answer_end(exchange);
	free(text);
}

void server_refuse(struct md_http_exchange *exchange, const struct api_error *error)
{
	server_answer(exchange, error->status, "application/json", api_reply_error(error));
}

static void refuse_as(struct md_http_exchange *exchange, unsigned status, const char *type, const char *message)
{
	struct api_error error = {.status = status, .type = type};
	memcpy(error.message, message, strlen(message) + 1);
	server_refuse(exchange, &error);
}

/* ---- paths ---- */

static void get_health(struct server *server, struct md_http_exchange *exchange)
{
	bool ready = server->ready && !server->draining;
	server_answer(exchange, ready ? 200 : 503, "application/json",
		      strdup(ready ? "{\"status\":\"ok\"}" : "{\"status\":\"loading model\"}"));
}

static void get_metrics(struct server *server, struct md_http_exchange *exchange)
{
	struct md_buf page;
	md_buf_init(&page);
	serve_metrics_print(&server->metrics, server->options.counts, (size_t)server->kv_blocks, server->model.name,
			    &page);
	if (server->lora_slots)
		adapters_print_metrics(server, &page);
	md_buf_put_u8(&page, 0);
	server_answer(exchange, 200, "text/plain; version=0.0.4", page.failed ? NULL : (char *)page.data);
	if (page.failed)
		md_buf_finish(&page);
}

static void get_models(struct server *server, struct md_http_exchange *exchange)
{
	server_answer(exchange, 200, "application/json", api_reply_models(&server->model, server->created));
}

static void post_completions(struct server *server, struct md_http_exchange *exchange)
{
	client_begin(server, exchange, false);
}

static void post_chat(struct server *server, struct md_http_exchange *exchange)
{
	client_begin(server, exchange, true);
}

static const struct path {
	const char *path, *method;
	bool any_time; /* also before the model can be used */
	void (*answer)(struct server *server, struct md_http_exchange *exchange);
} paths[] = {
    {"/health", "GET", true, get_health},
    {"/metrics", "GET", false, get_metrics},
    {"/v1/models", "GET", false, get_models},
    {"/v1/completions", "POST", false, post_completions},
    {"/v1/chat/completions", "POST", false, post_chat},
    {"/v1/load_lora_adapter", "POST", false, adapters_post_load},
    {"/v1/unload_lora_adapter", "POST", false, adapters_post_unload},
};

static const struct path *find_path(const char *target)
{
	size_t size = strcspn(target, "?");
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (strlen(paths[i].path) == size && !memcmp(paths[i].path, target, size))
			return &paths[i];
	return NULL;
}

static void on_request(void *context, struct md_http_exchange *exchange)
{
	struct server *server = context;
	const struct md_http_head *head = md_http_exchange_head(exchange);
	const struct path *path = find_path(md_http_head_target(head));
	if (!path)
		refuse_as(exchange, 404, "NotFoundError", "there is nothing at this path");
	else if (strcmp(path->method, head->method) != 0 &&
		 !(!strcmp(path->method, "GET") && !strcmp(head->method, "HEAD")))
		refuse_as(exchange, 405, "invalid_request_error", "this path takes another method");
	else if (!path->any_time && (!server->ready || server->draining))
		refuse_as(exchange, 503, "server_error",
			  server->draining ? "the engine is ending" : "the model is being loaded");
	else
		path->answer(server, exchange);
}

/* ---- events of the loop ---- */

static void clear(int fd)
{
	uint64_t count;
	if (read(fd, &count, sizeof(count)) != (ssize_t)sizeof(count))
		return;
}

static void on_news(evutil_socket_t fd, short what, void *context)
{
	struct server *server = context;
	struct serve_request *request;
	enum serve_finish finish;
	size_t told;
	(void)what;
	clear(fd);
	while (serve_mailbox_hear(server->options.mailbox, &request, &told, &finish))
		client_hear(server, request, told, finish);
}

static void on_adapter(evutil_socket_t fd, short what, void *context)
{
	(void)what;
	clear(fd);
	adapters_hear(context);
}

/* What was answered is sent before the loop ends. */
static void on_leave(evutil_socket_t fd, short what, void *context)
{
	struct server *server = context;
	(void)fd, (void)what;
	if (!md_http_front_connections(server->front) || md_clock_ns() - server->left_since > LEAVE_NS)
		event_base_loopexit(server->base, NULL);
	else
		event_add(server->leave, &(struct timeval){.tv_usec = 10000});
}

void server_client_ended(struct server *server)
{
	if (server->client_count || server->adapters.asked)
		return;
	if (server->ending)
		event_active(server->leave, EV_TIMEOUT, 1);
	else if (server->draining)
		serve_mailbox_stop(server->options.mailbox);
}

/* The batcher has ended, and has told so for each request. */
static void on_end(evutil_socket_t fd, short what, void *context)
{
	struct server *server = context;
	(void)what;
	clear(fd);
	if (!server->draining)
		md_http_front_drain(server->front);
	server->draining = server->ending = true;
	server->left_since = md_clock_ns();
	on_news(server->options.mailbox->fd, EV_READ, server);
	server_client_ended(server);
}

/* The first signal lets requests end that run; the second one ends them. */
static void on_signal(evutil_socket_t signal, short what, void *context)
{
	struct server *server = context;
	(void)signal, (void)what;
	if (!server->ready)
		_exit(0); /* nothing was promised yet, and the start can't be stopped halfway */
	if (server->draining)
		client_cancel_all(server);
	else
		md_http_front_drain(server->front);
	server->draining = true;
	server_client_ended(server);
}

static void *run(void *context)
{
	struct server *server = context;
	event_base_dispatch(server->base);
	return NULL;
}

/* ---- beginning and end ---- */

static void destroy(struct server *server)
{
	struct event *const all[] = {server->news,      server->end,   server->interrupt,
				     server->terminate, server->leave, server->adapters.done};
	md_http_front_destroy(server->front);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i])
			event_free(all[i]);
	if (server->base)
		event_base_free(server->base);
	if (server->end_fd >= 0)
		close(server->end_fd);
	adapter_loader_finish(&server->adapters.loader);
	lora_store_finish(&server->adapters.store);
	free(server);
}

static bool add(struct event **slot, struct event *event)
{
	*slot = event;
	return event && !event_add(event, NULL);
}

static enum md_status open_loop(struct server *server, struct md_error *err)
{
	static const struct md_http_front_events events = {.request = on_request};
	struct md_http_limits limits = {.body_bytes = BODY_BYTES};
	server->base = event_base_new();
	server->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct event_base *base = server->base;
	if (!base || server->end_fd < 0 ||
	    !add(&server->news, event_new(base, server->options.mailbox->fd, EV_READ | EV_PERSIST, on_news, server)) ||
	    !add(&server->adapters.done,
		 event_new(base, server->adapters.loader.fd, EV_READ | EV_PERSIST, on_adapter, server)) ||
	    !add(&server->end, event_new(base, server->end_fd, EV_READ | EV_PERSIST, on_end, server)) ||
	    !(server->leave = event_new(base, -1, 0, on_leave, server)) ||
	    !add(&server->interrupt, evsignal_new(base, SIGINT, on_signal, server)) ||
	    !add(&server->terminate, evsignal_new(base, SIGTERM, on_signal, server)))
		return md_error_set(err, MD_ERR_IO, "--serve: the event loop could not be made");
	signal(SIGPIPE, SIG_IGN);
	MD_FORWARD(md_http_front_create(base, server->options.listen, &limits, &events, server, &server->front, err));
	server->port = md_http_front_port(server->front);
	return MD_OK;
}

enum md_status server_start(const struct server_options *options, struct server **out, struct md_error *err)
{
	struct server *server = calloc(1, sizeof(*server));
	if (!server)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the server");
	server->options = *options;
	lora_store_init(&server->adapters.store, options->lora_bytes);
	server->end_fd = -1;
	server->created = (uint64_t)time(NULL);
	server->epoch = server->created - md_clock_ns() / 1000000000;
	enum md_status status = adapter_loader_init(&server->adapters.loader, err);
	if (status == MD_OK)
		status = open_loop(server, err);
	if (status == MD_OK && (errno = md_thread_start(&server->thread, run, server)))
		status = md_error_set(err, MD_ERR_IO, "--serve: a thread: %s", strerror(errno));
	if (status == MD_OK)
		*out = server;
	else
		destroy(server);
	return status;
}

unsigned server_port(const struct server *server)
{
	return server->port;
}

enum md_status server_add_adapter(struct server *server, const char *name, const char *path,
				  struct lora_adapter *adapter, struct md_error *err)
{
	if (lora_store_find(&server->adapters.store, name))
		return md_error_set(err, MD_ERR_INVALID, "the name is that of another adapter");
	return lora_store_put(&server->adapters.store, name, path, true, adapter, err);
}

void server_ready(struct server *server, const struct api_model *model, const struct llama_engine *engine)
{
	struct adapter_loader *loader = &server->adapters.loader;
	loader->shape = &engine->model->shape;
	loader->max_rank = engine->lora.max_rank;
	loader->max_bytes = server->options.lora_bytes;
	server->lora_slots = engine->lora.slots;
	server->model = *model;
	server->model.adapters = server->lora_slots ? &server->adapters.store : NULL;
	server->block_size = engine->model->shape.block_size;
	server->kv_blocks = engine->kv_blocks;
	server->ready = true;
}

void server_stop(struct server *server)
{
	uint64_t one = 1;
	if (!server)
		return;
	if (write(server->end_fd, &one, sizeof(one)) == (ssize_t)sizeof(one))
		pthread_join(server->thread, NULL);
	destroy(server);
}
