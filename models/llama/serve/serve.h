/* SPDX-License-Identifier: Apache-2.0 */
/* The reference engine as a server: the HTTP thread and the batcher, from the first connection to the last token. */
#ifndef LLAMA_SERVE_SERVE_H
#define LLAMA_SERVE_SERVE_H

#include "models/llama/graphs.h"
#include "models/llama/options.h"
#include "models/llama/tokenizer.h"

struct llama_serve;

struct llama_serving {
	struct llama_engine *engine;
	const struct llama_graphs *graphs;
	const struct tokenizer *tokenizer; /* NULL: texts are bytes */
	const char *name;                  /* of the model */
	const struct llama_options *options;
};

/* Listens as --serve says (port 0: any) and answers 503, on a thread of its own. */
enum md_status llama_serve_open(const struct llama_options *options, struct llama_serve **serve, struct md_error *err);
unsigned llama_serve_port(const struct llama_serve *serve);
/* Serves on the caller's thread, that of the context, until SIGTERM or SIGINT, or a failure of the device. */
enum md_status llama_serve_run(struct llama_serve *serve, const struct llama_serving *serving, struct md_error *err);
void llama_serve_close(struct llama_serve *serve); /* NULL is fine */

#endif
