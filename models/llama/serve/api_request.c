/* SPDX-License-Identifier: Apache-2.0 */
/* What OpenAI's API defines and this engine can't do is refused by name; null means that a key is not there. */
#include "models/llama/serve/api_request.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "json/tree_text.h"

#define DEFAULT_TOKENS 16 /* OpenAI's, of completions */
#define BYTES_PER_TOKEN 64
#define MESSAGES_MAX 4096u

struct parse {
	const struct api_model *model;
	const json_t *body;
	struct api_request *out;
	struct api_error *error;
};

static bool __attribute__((format(printf, 4, 5)))
refuse(struct parse *p, unsigned status, const char *param, const char *format, ...)
{
	va_list args;
	*p->error = (struct api_error){
	    .status = status,
	    .type = status == 404   ? "NotFoundError"
		    : status >= 500 ? "server_error"
				    : "invalid_request_error",
	};
	snprintf(p->error->param, sizeof(p->error->param), "%s", param);
	va_start(args, format);
	vsnprintf(p->error->message, sizeof(p->error->message), format, args);
	va_end(args);
	return false;
}

/* NULL: the key is not there, or null. */
static const json_t *get(const struct parse *p, const char *key)
{
	const json_t *value = json_object_get(p->body, key);
	return json_is_null(value) ? NULL : value;
}

/* ---- single values ---- */

static bool get_bool(struct parse *p, const char *key, bool *out)
{
	const json_t *value = get(p, key);
	if (value && !json_is_boolean(value))
		return refuse(p, 400, key, "%s: true or false is wanted", key);
	if (value)
		*out = json_is_true(value);
	return true;
}

static bool get_real(struct parse *p, const char *key, double low, double high, float *out)
{
	const json_t *value = get(p, key);
	if (!value)
		return true;
	double number = json_number_value(value);
	if (!json_is_number(value) || !(number >= low && number <= high))
		return refuse(p, 400, key, "%s: a number from %g to %g is wanted", key, low, high);
	*out = (float)number;
	return true;
}

static bool get_count(struct parse *p, const char *key, size_t *out)
{
	const json_t *value = get(p, key);
	if (!value)
		return true;
	if (!json_is_integer(value) || json_integer_value(value) < 1)
		return refuse(p, 400, key, "%s: an integer of at least 1 is wanted", key);
	*out = (size_t)json_integer_value(value);
	return true;
}

/* A key with one value that this engine knows. */
static bool get_only(struct parse *p, const char *key, json_int_t only)
{
	const json_t *value = get(p, key);
	if (!value || (json_is_integer(value) && json_integer_value(value) == only) ||
	    (only == 0 && json_is_false(value)))
		return true;
	return refuse(p, 400, key, "%s: this engine knows %s only", key, only ? "1" : "0 or false");
}

static bool get_seed(struct parse *p)
{
	const json_t *value = get(p, "seed");
	if (value && !json_is_integer(value))
		return refuse(p, 400, "seed", "seed: an integer is wanted");
	p->out->seeded = value != NULL;
	p->out->seed = (uint64_t)json_integer_value(value);
	return true;
}

/* ---- stop texts ---- */

static bool add_stop(struct parse *p, const json_t *value)
{
	const char *text = json_string_value(value);
	if (!text || !*text || strlen(text) != json_string_length(value) || p->out->stop_count == API_STOPS_MAX)
		return refuse(p, 400, "stop", "stop: a text, or at most %u texts, none of them empty", API_STOPS_MAX);
	char *copy = strdup(text);
	if (!copy)
		return refuse(p, 500, "", "out of memory for a stop text");
	p->out->stops[p->out->stop_count++] = copy;
	return true;
}

static bool get_stops(struct parse *p)
{
	const json_t *value = get(p, "stop");
	if (!json_is_array(value))
		return !value || add_stop(p, value);
	for (size_t i = 0; i < json_array_size(value); i++)
		if (!add_stop(p, json_array_get(value, i)))
			return false;
	return true;
}

/* ---- the prompt ---- */

static bool encoded(struct parse *p, enum md_status status, const struct md_error *err, const char *param)
{
	if (status == MD_OK)
		return true;
	return refuse(p, status == MD_ERR_NO_MEMORY ? 500 : 400, param, "%s: %s", param, err->message);
}

/* Encoding takes time: a text that can't fit the context is refused before it. */
static bool fits(struct parse *p, size_t bytes, const char *param)
{
	if (bytes / BYTES_PER_TOKEN <= p->model->context)
		return true;
	refuse(p, 400, param, "the model's maximum context length is %zu tokens; the prompt has %zu bytes",
	       p->model->context, bytes);
	p->error->code = "context_length_exceeded";
	return false;
}

static bool get_tokens(struct parse *p, const json_t *list)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *value = json_array_get(list, i);
		json_int_t token = json_integer_value(value);
		if (!json_is_integer(value) || token < 0 || token >= p->model->vocabulary.size)
			return refuse(p, 400, "prompt", "prompt[%zu]: a token from 0 to %d is wanted", i,
				      p->model->vocabulary.size - 1);
		if (!token_list_push(&p->out->prompt, (int32_t)token))
			return refuse(p, 500, "", "out of memory for the prompt");
	}
	return true;
}

static bool get_prompt(struct parse *p)
{
	struct md_error err;
	const json_t *value = get(p, "prompt");
	if (json_is_array(value) && json_array_size(value) == 1 && !json_is_integer(json_array_get(value, 0)))
		value = json_array_get(value, 0);
	if (json_is_array(value))
		return get_tokens(p, value);
	if (!json_is_string(value))
		return refuse(p, 400, "prompt", "prompt: one text, or a list of tokens, is wanted");
	if (!fits(p, json_string_length(value), "prompt"))
		return false;
	return encoded(p,
		       vocabulary_encode(&p->model->vocabulary, json_string_value(value), json_string_length(value),
					 &p->out->prompt, &err),
		       &err, "prompt");
}

/* The text of a message: a string, or a list of parts {"type": "text", "text": ...}. */
static bool add_text(struct parse *p, const json_t *content, size_t message, struct md_buf *text)
{
	if (json_is_string(content)) {
		md_buf_put(text, json_string_value(content), json_string_length(content));
		return true;
	}
	for (size_t i = 0; i < json_array_size(content); i++) {
		const json_t *part = json_array_get(content, i), *own = json_object_get(part, "text");
		const char *type = json_string_value(json_object_get(part, "type"));
		if (!type || strcmp(type, "text") != 0 || !json_is_string(own))
			return refuse(p, 400, "messages", "messages[%zu].content[%zu]: this engine knows text only",
				      message, i);
		md_buf_put(text, json_string_value(own), json_string_length(own));
	}
	return json_is_array(content) || json_is_null(content) || !content ||
	       refuse(p, 400, "messages", "messages[%zu].content: a text is wanted", message);
}

/* All texts lie in one buffer, each with its NUL; *messages names them when it does not grow any more. */
static bool collect(struct parse *p, const json_t *list, struct md_buf *texts, struct vocabulary_message *messages)
{
	size_t starts[MESSAGES_MAX];
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *message = json_array_get(list, i);
		messages[i].role = json_string_value(json_object_get(message, "role"));
		if (!messages[i].role || !*messages[i].role || strlen(messages[i].role) > 64)
			return refuse(p, 400, "messages", "messages[%zu].role: a text is wanted", i);
		starts[i] = texts->size;
		if (!add_text(p, json_object_get(message, "content"), i, texts))
			return false;
		if (texts->size > starts[i] && memchr(texts->data + starts[i], 0, texts->size - starts[i]))
			return refuse(p, 400, "messages", "messages[%zu].content: a character U+0000", i);
		md_buf_put_u8(texts, 0);
	}
	if (texts->failed)
		return refuse(p, 500, "", "out of memory for the messages");
	for (size_t i = 0; i < json_array_size(list); i++)
		messages[i].text = (const char *)texts->data + starts[i];
	return fits(p, texts->size, "messages");
}

static bool get_messages(struct parse *p)
{
	struct md_error err;
	struct md_buf texts;
	const json_t *list = get(p, "messages");
	size_t count = json_array_size(list);
	if (!count || count > MESSAGES_MAX)
		return refuse(p, 400, "messages", "messages: a list of 1 to %u messages is wanted", MESSAGES_MAX);
	struct vocabulary_message *messages = calloc(count, sizeof(*messages));
	if (!messages)
		return refuse(p, 500, "", "out of memory for %zu messages", count);
	md_buf_init(&texts);
	bool right = collect(p, list, &texts, messages) &&
		     encoded(p, vocabulary_encode_chat(&p->model->vocabulary, messages, count, &p->out->prompt, &err),
			     &err, "messages");
	md_buf_finish(&texts);
	free(messages);
	return right;
}

/* ---- all of it ---- */

static bool get_model(struct parse *p)
{
	const json_t *value = get(p, "model");
	const char *name = json_string_value(value);
	if (!value || (name && !strcmp(name, p->model->name)))
		return true;
	if (name && p->model->adapters && (p->out->adapter = lora_store_find(p->model->adapters, name)))
		return true;
	refuse(p, name ? 404 : 400, "model", "the model `%.100s` does not exist; this is `%.80s`", name ? name : "",
	       p->model->name);
	if (name)
		p->error->code = "model_not_found";
	return false;
}

static bool get_options(struct parse *p)
{
	struct api_request *out = p->out;
	const json_t *stream = get(p, "stream_options");
	if (stream)
		out->include_usage = json_is_true(json_object_get(stream, "include_usage"));
	return get_bool(p, "stream", &out->stream) && get_bool(p, "ignore_eos", &out->ignore_end) &&
	       get_bool(p, "return_token_ids", &out->token_ids) &&
	       get_real(p, "temperature", 0, 100, &out->temperature) && get_real(p, "top_p", 1e-6, 1, &out->top_p) &&
	       get_seed(p) && get_stops(p) && get_only(p, "n", 1) && get_only(p, "best_of", 1) &&
	       get_only(p, "echo", 0) && get_only(p, "logprobs", 0) && get_only(p, "top_logprobs", 0);
}

/* As many tokens as were asked for, or as the context leaves. */
static bool get_length(struct parse *p)
{
	struct api_request *out = p->out;
	size_t wanted = out->chat ? p->model->context : DEFAULT_TOKENS;
	if (!get_count(p, "max_tokens", &wanted) || (out->chat && !get_count(p, "max_completion_tokens", &wanted)))
		return false;
	if (!out->prompt.count)
		return refuse(p, 400, out->chat ? "messages" : "prompt", "the prompt is empty");
	if (out->prompt.count >= p->model->context) {
		refuse(p, 400, out->chat ? "messages" : "prompt",
		       "the model's maximum context length is %zu tokens; the prompt has %zu", p->model->context,
		       out->prompt.count);
		p->error->code = "context_length_exceeded";
		return false;
	}
	size_t left = p->model->context - out->prompt.count;
	out->max_tokens = wanted < left ? wanted : left;
	return true;
}

bool api_request_parse(const char *body, size_t size, bool chat, const struct api_model *model,
		       struct api_request *request, struct api_error *error)
{
	json_error_t why;
	*request = (struct api_request){.chat = chat, .temperature = model->temperature, .top_p = 1};
	json_t *root = md_jansson_parse(body, size, 0, &why);
	struct parse p = {model, root, request, error};
	if (!root && json_error_code(&why) == json_error_out_of_memory)
		return refuse(&p, 500, "", "%s", why.text);
	if (!json_is_object(root)) {
		json_decref(root);
		return root ? refuse(&p, 400, "", "the body is no JSON object")
			    : refuse(&p, 400, "", "the body is no JSON: %.150s", why.text);
	}
	bool right = get_model(&p) && get_options(&p) && (chat ? get_messages(&p) : get_prompt(&p)) && get_length(&p);
	json_decref(root);
	return right;
}

void api_request_finish(struct api_request *request)
{
	token_list_finish(&request->prompt);
	for (size_t i = 0; i < request->stop_count; i++)
		free(request->stops[i]);
	request->stop_count = 0;
}
