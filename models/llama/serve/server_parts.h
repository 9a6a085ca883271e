/* SPDX-License-Identifier: Apache-2.0 */
/* What the sources of the HTTP thread share. */
#ifndef LLAMA_SERVE_SERVER_PARTS_H
#define LLAMA_SERVE_SERVER_PARTS_H

#include <event2/event.h>

#include "http/front.h"
#include "models/llama/serve/serve_metrics.h"
#include "models/llama/serve/server.h"

struct client;

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
	int block_size, kv_blocks;
	atomic_bool ready;
	/* the HTTP thread's own */
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

/* In server.c. The text is freed; NULL: out of memory, which the answer then says. */
void server_answer(struct md_http_exchange *exchange, unsigned status, const char *type, char *text);
void server_refuse(struct md_http_exchange *exchange, const struct api_error *error);
void server_client_ended(struct server *server); /* a draining server ends with its last one */

#endif
