/* SPDX-License-Identifier: Apache-2.0 */
#include "models/llama/serve/serve.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#include "models/llama/serve/server.h"

struct llama_serve {
	struct serve_mailbox mailbox;
	struct batcher_counts counts;
	struct server *server;
};

enum md_status llama_serve_open(const struct llama_options *options, struct llama_serve **out, struct md_error *err)
{
	struct llama_serve *serve = calloc(1, sizeof(*serve));
	if (!serve)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the server");
	struct server_options own = {
	    .listen = options->serve,
	    .max_waiting = (unsigned)options->max_waiting,
	    .lora_bytes = options->lora_bytes,
	    .mailbox = &serve->mailbox,
	    .counts = &serve->counts,
	};
	enum md_status status = serve_mailbox_init(&serve->mailbox, err);
	if (status == MD_OK)
		status = server_start(&own, &serve->server, err);
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

/* NAME=PATH: an adapter that is there before the first request, and stays. */
static enum md_status add_adapter(struct llama_serve *serve, const struct llama_serving *serving, const char *pair,
				  struct md_error *err)
{
	const struct llama_engine *e = serving->engine;
	const char *equals = strchr(pair, '='), *wrong;
	struct lora_adapter adapter = {0};
	MD_AUTO_FREE char *name = strndup(pair, equals ? (size_t)(equals - pair) : 0);
	if (!name)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for --lora");
	if (!equals || !equals[1])
		return md_error_set(err, MD_ERR_INVALID, "--lora %s: NAME=PATH is wanted", pair);
	if ((wrong = lora_name_wrong(name, serving->name)))
		return md_error_set(err, MD_ERR_INVALID, "--lora %s: the name %s", pair, wrong);
	if ((wrong = lora_path_wrong(equals + 1)))
		return md_error_set(err, MD_ERR_INVALID, "--lora %s: the path %s", pair, wrong);
	MD_FORWARD(lora_adapter_load(&adapter, equals + 1, &e->model->shape, e->lora.max_rank,
				     serving->options->lora_bytes, err));
	enum md_status status = server_add_adapter(serve->server, name, equals + 1, &adapter, err);
	lora_adapter_finish(&adapter);
	return status == MD_OK ? MD_OK : md_error_prefix(err, "--lora %s", pair);
}

enum md_status llama_serve_run(struct llama_serve *serve, const struct llama_serving *serving, struct md_error *err)
{
	const struct llama_shape *shape = &serving->engine->model->shape;
	struct api_model model = {
	    .name = serving->name,
	    .vocabulary = {serving->tokenizer,
			   serving->tokenizer ? (int32_t)serving->tokenizer->count : shape->vocabulary},
	    .context = batcher_context(serving->engine),
	    .temperature = (float)serving->options->temperature,
	};
	struct batcher batcher = {
	    .engine = serving->engine,
	    .graphs = serving->graphs,
	    .tokenizer = serving->tokenizer,
	    .mailbox = &serve->mailbox,
	    .counts = &serve->counts,
	};
	MD_FORWARD(check_model(serving, err));
	for (size_t i = 0; i < serving->options->loras.count; i++)
		MD_FORWARD(add_adapter(serve, serving, serving->options->loras.all[i], err));
	MD_FORWARD(batcher_init(&batcher, err));
	server_ready(serve->server, &model, serving->engine);
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
