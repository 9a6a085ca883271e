/* SPDX-License-Identifier: Apache-2.0 */
/* Texts to tokens and back, by the model's tokenizer, or byte by byte for a model that has none. */
#ifndef LLAMA_SERVE_VOCABULARY_H
#define LLAMA_SERVE_VOCABULARY_H

#include "base/buf.h"
#include "models/llama/tokenizer.h"

/*
 * Without a tokenizer a byte of a prompt is the token of its number. In what the model makes, a token is written as its
 * byte where that is a printable one of ASCII or the end of a line, and as <NUMBER> elsewhere.
 */
struct vocabulary {
	const struct tokenizer *tokenizer; /* NULL: bytes */
	int32_t size;                      /* tokens of the model */
};

struct vocabulary_message {
	const char *role, *text; /* NUL-terminated */
};

enum md_status vocabulary_encode(const struct vocabulary *vocabulary, const char *text, size_t size,
				 struct token_list *out, struct md_error *err);
/*
 * ChatML, with the system's message of tokenizer_encode_chat before a chat that has none; for bytes "ROLE: TEXT\n". The
 * head of the assistant's turn follows. No message holds control tokens, whatever its text is.
 */
enum md_status vocabulary_encode_chat(const struct vocabulary *vocabulary, const struct vocabulary_message *messages,
				      size_t count, struct token_list *out, struct md_error *err);
/* Appends a token's bytes, which may be a part of a character. */
void vocabulary_decode(const struct vocabulary *vocabulary, int32_t token, struct md_buf *out);

#endif
