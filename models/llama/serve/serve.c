/* SPDX-License-Identifier: Apache-2.0 */
#include "models/llama/serve/serve.h"

#include <stdlib.h>

#include "models/llama/serve/server.h"

struct llama_serve {
	struct serve_mailbox mailbox;
	struct batcher_counts counts;
	struct server *server;
};

enum md_status llama_serve_open(const char *listen, int max_waiting, struct llama_serve **out, struct md_error *err)
{
	struct llama_serve *serve = calloc(1, sizeof(*serve));
	if (!serve)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the server");
	struct server_options options = {
	    .listen = listen,
	    .max_waiting = (unsigned)max_waiting,
	    .mailbox = &serve->mailbox,
	    .counts = &serve->counts,
	};
	enum md_status status = serve_mailbox_init(&serve->mailbox, err);
	if (status == MD_OK)
		status = server_start(&options, &serve->server, err);
	if (status == MD_OK)
		*out = serve;
	else
		llama_serve_close(serve);
	return status;
}

unsigned llama_serve_port(const struct llama_serve *serve)
{
	return server_port(serve->server);
}

static enum md_status check_model(const struct llama_serving *serving, struct md_error *err)
{
	int vocabulary = serving->engine->model->shape.vocabulary;
	if (serving->tokenizer || vocabulary >= 256)
		return MD_OK;
	return md_error_set(
	    err, MD_ERR_INVALID,
	    "--serve: a model without a tokenizer takes bytes, and needs a vocabulary of 256; it has %d", vocabulary);
}

enum md_status llama_serve_run(struct llama_serve *serve, const struct llama_serving *serving, struct md_error *err)
{
	const struct llama_shape *shape = &serving->engine->model->shape;
	struct api_model model = {
	    .name = serving->name,
	    .vocabulary = {serving->tokenizer,
			   serving->tokenizer ? (int32_t)serving->tokenizer->count : shape->vocabulary},
	    .context = batcher_context(serving->engine),
	    .temperature = serving->temperature,
	};
	struct batcher batcher = {
	    .engine = serving->engine,
	    .graphs = serving->graphs,
	    .tokenizer = serving->tokenizer,
	    .mailbox = &serve->mailbox,
	    .counts = &serve->counts,
	};
	MD_FORWARD(check_model(serving, err));
	MD_FORWARD(batcher_init(&batcher, err));
	server_ready(serve->server, &model, shape->block_size, serving->engine->kv_blocks);
	enum md_status status = batcher_run(&batcher, err);
	server_stop(serve->server); /* while the model's name and tokenizer are there */
	serve->server = NULL;
	batcher_finish(&batcher);
	return status;
}

void llama_serve_close(struct llama_serve *serve)
{
	if (!serve)
		return;
	server_stop(serve->server);
	serve_mailbox_finish(&serve->mailbox);
	free(serve);
}
