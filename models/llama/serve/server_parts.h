/* SPDX-License-Identifier: Apache-2.0 */
/* What the sources of the HTTP thread share. */
#ifndef LLAMA_SERVE_SERVER_PARTS_H
#define LLAMA_SERVE_SERVER_PARTS_H

#include <event2/event.h>

#include "http/front.h"
#include "models/llama/serve/adapter_loader.h"
#include "models/llama/serve/serve_metrics.h"
#include "models/llama/serve/server.h"

struct client;

/* The HTTP thread's own, except for the loader. */
struct server_adapters {
	struct lora_store store;
	struct adapter_loader loader;
	struct event *done;
	size_t jobs, asked;          /* jobs that are not done; those of them whose client waits for the answer */
	uint64_t loaded, not_loaded; /* files */
};

struct server {
	struct server_options options;
	pthread_t thread;
	struct event_base *base;
	struct md_http_front *front;
	struct event *news, *end, *interrupt, *terminate, *leave;
	int end_fd; /* an eventfd: server_stop */
	unsigned port;
	uint64_t epoch, created; /* s since 1970: when md_clock_ns() was 0, when the server began */
	uint64_t left_since;     /* ns: when `leave` was set */
	/* written before `ready` is set */
	struct api_model model;
	int block_size, kv_blocks, lora_slots;
	atomic_bool ready;
	/* the HTTP thread's own */
	struct server_adapters adapters;
	struct client *clients;
	size_t client_count, unheard; /* unheard: requests of which no token came yet */
	uint64_t next_id;
	bool draining, ending;
	struct serve_metrics metrics;
};

/* Answers a request for tokens, now or as they come. */
void client_begin(struct server *server, struct md_http_exchange *exchange, bool chat);
/* The batcher has made tokens for one of them, or has ended one. */
void client_hear(struct server *server, struct serve_request *request, size_t told, enum serve_finish finish);
void client_cancel_all(struct server *server);
/*
 * The weights of an adapter for which clients wait were read again: NULL: they are what the store has for the name now, or
 * else error says why there are none.
 */
void client_adapter_there(struct server *server, const char *name, struct lora_weights *weights,
			  const struct api_error *error);
/* Names of the adapters of clients whose requests run, or wait; each once, with commas between them. */
void client_list_adapters(const struct server *server, bool running, struct md_buf *out);

/* In adapter_paths.c. */
void adapters_post_load(struct server *server, struct md_http_exchange *exchange);
void adapters_post_unload(struct server *server, struct md_http_exchange *exchange);
/* The weights of a name that were forgotten are wanted again: client_adapter_there. False: out of memory. */
bool adapters_read_again(struct server *server, const struct lora_name *name);
void adapters_hear(struct server *server); /* jobs are done */
void adapters_print_metrics(const struct server *server, struct md_buf *out);

/* In server.c. The text is freed; NULL: out of memory, which the answer then says. */
void server_answer(struct md_http_exchange *exchange, unsigned status, const char *type, char *text);
void server_refuse(struct md_http_exchange *exchange, const struct api_error *error);
void server_client_ended(struct server *server); /* a draining server ends with its last one */

#endif
