/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of OpenAI's API as JSON texts. All are malloc'd; NULL: out of memory. */
#ifndef LLAMA_SERVE_API_REPLY_H
#define LLAMA_SERVE_API_REPLY_H

#include "models/llama/serve/api_request.h"
#include "models/llama/serve/serve_request.h"

struct api_reply {
	const char *model;
	bool chat, token_ids;
	uint64_t id, created; /* created: seconds since 1970 */
	const int32_t *prompt;
	size_t prompt_count, made_count, reused_count; /* tokens */
};

struct api_piece {
	const char *text;
	size_t size;
	const int32_t *tokens; /* those that the text was made of */
	size_t token_count;
	enum serve_finish finish; /* SERVE_RUNNING: more follows */
	bool first;               /* of a chat: names the role */
};

char *api_reply_whole(const struct api_reply *reply, const struct api_piece *all);
char *api_reply_piece(const struct api_reply *reply, const struct api_piece *piece); /* of a stream */
char *api_reply_usage(const struct api_reply *reply); /* the stream's last, when asked for */
char *api_reply_error(const struct api_error *error);
/* The model, and its adapters as vLLM lists them. */
char *api_reply_models(const struct api_model *model, uint64_t created);

#endif
