/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP thread of the reference engine: OpenAI's API in front of the batcher. */
#ifndef LLAMA_SERVE_SERVER_H
#define LLAMA_SERVE_SERVER_H

#include "models/llama/serve/api_request.h"
#include "models/llama/serve/batcher.h"

struct server;

struct server_options {
	const char *listen;   /* ADDRESS:PORT or unix:PATH */
	unsigned max_waiting; /* requests that wait for a place in the batch; more are refused with 429 */
	size_t lora_bytes;    /* of host memory for adapters */
	struct serve_mailbox *mailbox;
	struct batcher_counts *counts;
};

/* Listens, and says 503 to everything until server_ready. Options are copied, what they point to is borrowed. */
enum md_status server_start(const struct server_options *options, struct server **server, struct md_error *err);
unsigned server_port(const struct server *server); /* 0: a Unix socket */
/* Before server_ready: an adapter that stays in host memory. It is the server's, and *adapter is zeroed. */
enum md_status server_add_adapter(struct server *server, const char *name, const char *path,
				  struct lora_adapter *adapter, struct md_error *err);
/* The model can be used from now on. Its name and tokenizer, and the engine, are borrowed. */
void server_ready(struct server *server, const struct api_model *model, const struct llama_engine *engine);
/* Ends the thread: what the batcher has told is answered first. NULL is fine. */
void server_stop(struct server *server);

#endif
