/* SPDX-License-Identifier: Apache-2.0 */
#include "models/llama/serve/api_reply.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "json/tree_text.h"
#include "models/llama/unicode.h"

static char *text_of(json_t *root)
{
	char *text = root ? md_jansson_print(root, JSON_COMPACT) : NULL;
	json_decref(root);
	return text;
}

static json_t *usage_of(const struct api_reply *reply)
{
	return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)reply->prompt_count,
			 "completion_tokens", (json_int_t)reply->made_count, "total_tokens",
			 (json_int_t)(reply->prompt_count + reply->made_count), "prompt_tokens_details",
			 "cached_tokens", (json_int_t)reply->reused_count);
}

static json_t *token_list_of(const int32_t *tokens, size_t count)
{
	json_t *list = json_array();
	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, json_integer(tokens[i]));
	return list;
}

/* {"id", "object", "created", "model", "choices"} */
static json_t *envelope(const struct api_reply *reply, const char *chat_object, json_t *choices)
{
	char id[48];
	snprintf(id, sizeof(id), "%s-%" PRIx64, reply->chat ? "chatcmpl" : "cmpl", reply->id);
	return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", id, "object", reply->chat ? chat_object : "text_completion",
			 "created", (json_int_t)reply->created, "model", reply->model, "choices", choices);
}

static json_t *finish_of(const struct api_piece *piece)
{
	return piece->finish == SERVE_RUNNING ? json_null()
					      : json_string(piece->finish == SERVE_LENGTH ? "length" : "stop");
}

static json_t *choice(const struct api_reply *reply, const struct api_piece *piece, const char *key, json_t *content)
{
	json_t *root =
	    json_pack("{s:i, s:o, s:n, s:o}", "index", 0, key, content, "logprobs", "finish_reason", finish_of(piece));
	if (reply->token_ids)
		json_object_set_new(root, "token_ids", token_list_of(piece->tokens, piece->token_count));
	return json_pack("[o]", root);
}

char *api_reply_whole(const struct api_reply *reply, const struct api_piece *all)
{
	json_t *text = json_stringn(all->text, all->size);
	json_t *content = reply->chat ? json_pack("{s:s, s:o}", "role", "assistant", "content", text) : text;
	json_t *root =
	    envelope(reply, "chat.completion", choice(reply, all, reply->chat ? "message" : "text", content));
	json_object_set_new(root, "usage", usage_of(reply));
	if (reply->token_ids)
		json_object_set_new(root, "prompt_token_ids", token_list_of(reply->prompt, reply->prompt_count));
	return text_of(root);
}

char *api_reply_piece(const struct api_reply *reply, const struct api_piece *piece)
{
	json_t *content = reply->chat ? json_object() : json_stringn(piece->text, piece->size);
	if (reply->chat && piece->first)
		json_object_set_new(content, "role", json_string("assistant"));
	if (reply->chat && (piece->size || piece->first))
		json_object_set_new(content, "content", json_stringn(piece->text, piece->size));
	return text_of(
	    envelope(reply, "chat.completion.chunk", choice(reply, piece, reply->chat ? "delta" : "text", content)));
}

char *api_reply_usage(const struct api_reply *reply)
{
	json_t *root = envelope(reply, "chat.completion.chunk", json_array());
	json_object_set_new(root, "usage", usage_of(reply));
	return text_of(root);
}

/* A name or a path that a message quotes may have been cut inside a character, or be no text at all. */
static json_t *message_of(const struct api_error *error)
{
	char text[sizeof(error->message)];
	size_t size = strlen(error->message);
	memcpy(text, error->message, size);
	for (size_t at = 0; at < size;) {
		uint32_t code;
		size_t length = unicode_decode(text + at, size - at, &code);
		if (code == UNICODE_INVALID)
			memset(text + at, '?', length);
		at += length;
	}
	return json_stringn(text, size);
}

char *api_reply_error(const struct api_error *error)
{
	return text_of(json_pack("{s:{s:o, s:s, s:s?, s:s?}}", "error", "message", message_of(error), "type",
				 error->type, "param", error->param[0] ? error->param : NULL, "code", error->code));
}

static json_t *card(const struct api_model *model, uint64_t created, const struct lora_name *adapter)
{
	return json_pack("{s:s, s:s, s:I, s:s, s:I, s:s, s:s?}", "id", adapter ? adapter->name : model->name, "object",
			 "model", "created", (json_int_t)created, "owned_by", "medusa", "max_model_len",
			 (json_int_t)model->context, "root", adapter ? adapter->path : model->name, "parent",
			 adapter ? model->name : NULL);
}

char *api_reply_models(const struct api_model *model, uint64_t created)
{
	json_t *list = json_array();
	json_array_append_new(list, card(model, created, NULL));
	for (const struct lora_name *name = model->adapters ? model->adapters->names : NULL; name; name = name->next)
		json_array_append_new(list, card(model, created, name));
	return text_of(json_pack("{s:s, s:o}", "object", "list", "data", list));
}
