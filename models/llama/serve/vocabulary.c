/* SPDX-License-Identifier: Apache-2.0 */
#include "models/llama/serve/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum md_status encode_bytes(const char *text, size_t size, struct token_list *out, struct md_error *err)
{
	for (size_t i = 0; i < size; i++)
		if (!token_list_push(out, (uint8_t)text[i]))
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %zu tokens", size);
	return MD_OK;
}

enum md_status vocabulary_encode(const struct vocabulary *vocabulary, const char *text, size_t size,
				 struct token_list *out, struct md_error *err)
{
	if (!vocabulary->tokenizer)
		return encode_bytes(text, size, out, err);
	return tokenizer_encode(vocabulary->tokenizer, text, size, true, out, err);
}

/* special: control tokens in the text become those tokens. */
static enum md_status put(const struct vocabulary *vocabulary, const char *text, bool special, struct token_list *out,
			  struct md_error *err)
{
	if (!vocabulary->tokenizer)
		return encode_bytes(text, strlen(text), out, err);
	return tokenizer_encode(vocabulary->tokenizer, text, strlen(text), special, out, err);
}

static enum md_status put_message(const struct vocabulary *vocabulary, const struct vocabulary_message *message,
				  struct token_list *out, struct md_error *err)
{
	bool bytes = !vocabulary->tokenizer;
	if (!bytes)
		MD_FORWARD(put(vocabulary, "<|im_start|>", true, out, err));
	MD_FORWARD(put(vocabulary, message->role, false, out, err));
	MD_FORWARD(put(vocabulary, bytes ? ": " : "\n", false, out, err));
	MD_FORWARD(put(vocabulary, message->text, false, out, err));
	return put(vocabulary, bytes ? "\n" : "<|im_end|>\n", true, out, err);
}

enum md_status vocabulary_encode_chat(const struct vocabulary *vocabulary, const struct vocabulary_message *messages,
				      size_t count, struct token_list *out, struct md_error *err)
{
	static const struct vocabulary_message system = {
	    "system", "You are a helpful AI assistant named SmolLM, trained by Hugging Face"};
	const struct tokenizer *tokenizer = vocabulary->tokenizer;
	if (tokenizer && tokenizer->end_of_turn < 0)
		return md_error_set(err, MD_ERR_UNSUPPORTED,
				    "the model's vocabulary has no <|im_end|>: use /v1/completions");
	if (tokenizer && (!count || strcmp(messages[0].role, "system") != 0))
		MD_FORWARD(put_message(vocabulary, &system, out, err));
	for (size_t i = 0; i < count; i++)
		MD_FORWARD(put_message(vocabulary, &messages[i], out, err));
	return put(vocabulary, tokenizer ? "<|im_start|>assistant\n" : "assistant: ", true, out, err);
}

void vocabulary_decode(const struct vocabulary *vocabulary, int32_t token, struct md_buf *out)
{
	if (!vocabulary->tokenizer) {
		char text[16];
		int size = (token >= ' ' && token <= '~') || token == '\n'
			       ? snprintf(text, sizeof(text), "%c", token)
			       : snprintf(text, sizeof(text), "<%d>", token);
		md_buf_put(out, text, (size_t)size);
		return;
	}
	char *text = tokenizer_decode(vocabulary->tokenizer, &token, 1);
	if (text)
		md_buf_put(out, text, strlen(text));
	else
		out->failed = true;
	free(text);
}
