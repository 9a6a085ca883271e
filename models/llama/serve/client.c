/* SPDX-License-Identifier: Apache-2.0 */
/* One client's request: from the HTTP exchange to the batcher, and its tokens back as text, whole or as a stream. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "models/llama/serve/api_reply.h"
#include "models/llama/serve/server_parts.h"
#include "models/llama/serve/text_out.h"

#define SLOW_BYTES 65536u /* that a client has not taken: no token is made for it meanwhile */

struct client {
	struct server *server;
	struct client *before, *after;
	struct md_http_exchange *exchange; /* NULL: gone, or answered */
	struct serve_request *request;
	struct api_request asked;
	struct text_out text;
	char *adapter;                /* its name; NULL: the base model */
	struct lora_weights *weights; /* that the request uses; NULL: none, or they are being read again */
	uint64_t id, since, last;     /* ns: of the request, of the last token */
	size_t seen, piece_from;      /* tokens that are in `text`; those that were sent end here */
	bool began;                   /* the stream has */
};

/* ---- its life ---- */

static void link_client(struct server *server, struct client *client)
{
	client->after = server->clients;
	if (client->after)
		client->after->before = client;
	server->clients = client;
	server->client_count++;
	server->unheard++;
}

static void destroy(struct client *client)
{
	struct server *server = client->server;
	*(client->before ? &client->before->after : &server->clients) = client->after;
	if (client->after)
		client->after->before = client->before;
	server->client_count--;
	serve_request_destroy(client->request);
	if (client->weights)
		lora_store_leave(&server->adapters.store, client->weights);
	free(client->adapter);
	text_out_finish(&client->text);
	api_request_finish(&client->asked);
	free(client);
	server_client_ended(server);
}

static void end(struct client *client, enum serve_finish finish);

static bool is_submitted(const struct client *client)
{
	return !client->adapter || client->weights;
}

/*
 * The batcher needs to make no more tokens; it tells when it has let go of the request. One that it never got ends here.
 */
static void cancel(struct client *client)
{
	if (!is_submitted(client)) {
		end(client, SERVE_CANCELLED);
		return;
	}
	client->request->cancelled = true;
	serve_mailbox_poke(client->server->options.mailbox);
}

static void on_gone(void *context)
{
	struct client *client = context;
	client->exchange = NULL;
	cancel(client);
}

static void on_drained(void *context)
{
	struct client *client = context;
	if (!client->request->held)
		return;
	client->request->held = false;
	serve_mailbox_poke(client->server->options.mailbox);
}

static const struct md_http_exchange_events events = {.gone = on_gone, .drained = on_drained};

/* ---- answers ---- */

static struct api_reply reply_of(const struct client *client)
{
	const struct serve_request *request = client->request;
	return (struct api_reply){
	    .model = client->adapter ? client->adapter : client->server->model.name,
	    .chat = client->asked.chat,
	    .token_ids = client->asked.token_ids,
	    .id = client->id,
	    .created = client->server->epoch + client->since / 1000000000,
	    .prompt = request->tokens,
	    .prompt_count = request->prompt_count,
	    .made_count = client->seen,
	    .reused_count = request->reused, /* does not change once there is a token */
	};
}

/* text is freed. NULL, for lack of memory, ends the stream, so that the client sees that something is missing. */
static void send_event(struct client *client, char *text)
{
	if (!client->exchange)
		return;
	if (!text) {
		struct md_http_exchange *exchange = client->exchange;
		client->exchange = NULL;
		cancel(client);
		md_http_answer_abort(exchange);
		return;
	}
	md_http_answer_write(client->exchange, "data: ", 6);
	md_http_answer_write(client->exchange, text, strlen(text));
	if (md_http_answer_write(client->exchange, "\n\n", 2) > SLOW_BYTES)
		client->request->held = true;
	free(text);
}

static void begin_stream(struct client *client)
{
	struct md_http_exchange *exchange = client->exchange;
	if (client->began || !exchange)
		return;
	client->began = true;
	md_http_answer_begin(exchange, 200, -1);
	md_http_answer_header(exchange, "Content-Type", "text/event-stream");
	md_http_answer_header(exchange, "Cache-Control", "no-cache");
	md_http_answer_body(exchange);
}

static struct api_piece piece_of(const struct client *client, const char *text, size_t size, enum serve_finish finish)
{
	const struct serve_request *request = client->request;
	return (struct api_piece){
	    .text = text,
	    .size = size,
	    .tokens = request->tokens + request->prompt_count + client->piece_from,
	    .token_count = client->seen - client->piece_from,
	    .finish = finish,
	    .first = !client->began,
	};
}

static void send_piece(struct client *client, enum serve_finish finish)
{
	struct api_reply reply = reply_of(client);
	bool last = finish != SERVE_RUNNING;
	size_t size;
	const char *text = text_out_ready(&client->text, last, &size);
	struct api_piece piece = piece_of(client, text, size, finish);
	if (!size && !last && !(client->asked.token_ids && piece.token_count))
		return;
	begin_stream(client);
	send_event(client, api_reply_piece(&reply, &piece));
	client->piece_from = client->seen;
	if (last && client->asked.include_usage)
		send_event(client, api_reply_usage(&reply));
}

static struct md_http_exchange *take_exchange(struct client *client)
{
	struct md_http_exchange *exchange = client->exchange;
	client->exchange = NULL;
	return exchange;
}

static void answer_failed(struct client *client)
{
	struct api_error error = {
	    .status = 500, .type = "server_error", .message = "the engine failed before the answer was whole"};
	if (client->began) {
		send_event(client, api_reply_error(&error));
		if (client->exchange)
			md_http_answer_abort(take_exchange(client));
	} else {
		server_refuse(take_exchange(client), &error);
	}
}

void client_cancel_all(struct server *server)
{
	for (struct client *client = server->clients, *after; client; client = after) {
		after = client->after;
		if (!is_submitted(client) && client->exchange)
			answer_failed(client);
		cancel(client);
	}
}

static void answer(struct client *client, enum serve_finish finish)
{
	if (finish == SERVE_FAILED || finish == SERVE_CANCELLED) {
		answer_failed(client);
		return;
	}
	if (client->asked.stream) {
		send_piece(client, finish);
		if (!client->exchange)
			return;
		md_http_answer_write(client->exchange, "data: [DONE]\n\n", 14);
		md_http_answer_end(take_exchange(client));
		return;
	}
	struct api_reply reply = reply_of(client);
	size_t size;
	const char *text = text_out_ready(&client->text, true, &size);
	struct api_piece piece = piece_of(client, text, size, finish);
	server_answer(take_exchange(client), 200, "application/json", api_reply_whole(&reply, &piece));
}

/* ---- tokens ---- */

static void note_token(struct client *client)
{
	struct serve_metrics *metrics = &client->server->metrics;
	uint64_t now = md_clock_ns();
	metrics->made_tokens++;
	if (client->last) {
		serve_histogram_add(&metrics->next_token, now - client->last);
	} else {
		client->server->unheard--;
		serve_histogram_add(&metrics->first_token, now - client->since);
	}
	client->last = now;
}

/* Up to a stop text. False: out of memory. */
static bool take_tokens(struct client *client, size_t told)
{
	const struct serve_request *request = client->request;
	while (client->seen < told && !client->text.stopped) {
		vocabulary_decode(&client->server->model.vocabulary,
				  request->tokens[request->prompt_count + client->seen++], &client->text.raw);
		note_token(client);
		if (!text_out_judge(&client->text, false))
			return false;
	}
	return true;
}

static void end(struct client *client, enum serve_finish finish)
{
	struct serve_metrics *metrics = &client->server->metrics;
	client->server->unheard -= !client->last;
	/* ended by the client's own stop text */
	metrics->finished[finish == SERVE_CANCELLED && client->text.stopped ? SERVE_STOP : finish]++;
	serve_histogram_add(&metrics->whole, md_clock_ns() - client->since);
	destroy(client);
}

void client_hear(struct server *server, struct serve_request *request, size_t told, enum serve_finish finish)
{
	struct client *client = request->owner;
	(void)server;
	if (client->exchange) {
		bool right =
		    take_tokens(client, told) && (finish == SERVE_RUNNING || text_out_judge(&client->text, true));
		if (!right)
			answer(client, SERVE_FAILED);
		else if (client->text.stopped)
			answer(client, SERVE_STOP);
		else if (finish != SERVE_RUNNING)
			answer(client, finish);
		else if (client->asked.stream)
			send_piece(client, SERVE_RUNNING);
	}
	if (finish != SERVE_RUNNING)
		end(client, finish);
	else if (!client->exchange && !request->cancelled)
		cancel(client);
}

/* ---- the beginning ---- */

static struct client *create(struct server *server, struct api_request *asked)
{
	struct client *client = calloc(1, sizeof(*client));
	struct serve_request *request =
	    serve_request_create(asked->prompt.tokens, asked->prompt.count, asked->max_tokens, server->block_size);
	if (!client || !request) {
		serve_request_destroy(request);
		free(client);
		api_request_finish(asked);
		return NULL;
	}
	client->server = server;
	client->request = request;
	client->asked = *asked;
	client->id = server->next_id++;
	request->owner = client;
	request->temperature = asked->temperature;
	request->top_p = asked->top_p;
	request->seed = asked->seeded ? asked->seed : client->id;
	request->ignore_end = asked->ignore_end;
	text_out_init(&client->text, client->asked.stops, client->asked.stop_count);
	return client;
}

/* For another client. */
static bool is_read_again(const struct client *client)
{
	for (const struct client *other = client->server->clients; other; other = other->after)
		if (other != client && !is_submitted(other) && !strcmp(other->adapter, client->adapter))
			return true;
	return false;
}

/* The request goes to the batcher with its adapter's weights, or when they have been read again. */
static bool submit_adapter(struct client *client, const struct lora_name *name)
{
	client->adapter = strdup(name->name);
	if (!client->adapter)
		return false;
	client->weights = lora_store_take(&client->server->adapters.store, name->name);
	client->request->adapter = client->weights;
	if (!client->weights)
		return is_read_again(client) || adapters_read_again(client->server, name);
	serve_mailbox_submit(client->server->options.mailbox, client->request);
	return true;
}

static const struct api_error out_of_memory = {
    .status = 503, .type = "server_error", .message = "out of memory for the request"};

static void submit(struct server *server, struct md_http_exchange *exchange, struct api_request *asked)
{
	struct client *client = create(server, asked);
	if (!client) {
		server_refuse(exchange, &out_of_memory);
		return;
	}
	client->exchange = exchange;
	client->since = md_http_exchange_since(exchange);
	server->metrics.prompt_tokens += client->request->prompt_count;
	link_client(server, client);
	md_http_exchange_watch(exchange, &events, client);
	if (!asked->adapter) {
		serve_mailbox_submit(server->options.mailbox, client->request);
	} else if (!submit_adapter(client, asked->adapter)) {
		server_refuse(take_exchange(client), &out_of_memory);
		end(client, SERVE_FAILED);
	}
}

void client_begin(struct server *server, struct md_http_exchange *exchange, bool chat)
{
	static const struct api_error full = {
	    .status = 429, .type = "rate_limit_error", .code = "queue_full", .message = "too many requests wait"};
	struct api_request asked;
	struct api_error error;
	size_t size;
	const char *body = md_http_exchange_body(exchange, &size);
	if (server->unheard >= server->options.max_waiting) {
		server->metrics.refused++;
		server_refuse(exchange, &full);
	} else if (!api_request_parse(body, size, chat, &server->model, &asked, &error)) {
		api_request_finish(&asked);
		server_refuse(exchange, &error);
	} else {
		submit(server, exchange, &asked);
	}
}

/* ---- adapters ---- */

void client_adapter_there(struct server *server, const char *name, struct lora_weights *weights,
			  const struct api_error *error)
{
	for (struct client *client = server->clients, *after; client; client = after) {
		after = client->after;
		if (is_submitted(client) || strcmp(client->adapter, name) != 0)
			continue;
		if (weights)
			lora_store_use(weights);
		client->weights = weights ? weights : lora_store_take(&server->adapters.store, name);
		client->request->adapter = client->weights;
		if (client->weights) {
			serve_mailbox_submit(server->options.mailbox, client->request);
			continue;
		}
		server_refuse(take_exchange(client), error);
		end(client, SERVE_FAILED);
	}
}

static bool is_listed(const struct client *client, bool running)
{
	return client->adapter && client->request->running == running;
}

/* Before it in the list is another client of the same adapter, in the same state. */
static bool is_repeated(const struct client *client, bool running)
{
	for (const struct client *other = client->before; other; other = other->before)
		if (is_listed(other, running) && !strcmp(other->adapter, client->adapter))
			return true;
	return false;
}

void client_list_adapters(const struct server *server, bool running, struct md_buf *out)
{
	bool some = false;
	for (const struct client *client = server->clients; client; client = client->after) {
		if (!is_listed(client, running) || is_repeated(client, running))
			continue;
		if (some)
			md_buf_put_u8(out, ',');
		for (const char *at = client->adapter; *at; at++)
			if (*at != '"' && *at != '\\')
				md_buf_put_u8(out, (uint8_t)*at);
		some = true;
	}
}
