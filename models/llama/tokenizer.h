/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-level BPE as in GPT-2, read from a GGUF file's metadata (pre-tokenizers "smollm" and "gpt-2"), and ChatML
 * prompts. */
#ifndef LLAMA_TOKENIZER_H
#define LLAMA_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "base/status.h"
#include "models/llama/gguf.h"

struct tokenizer {
	struct gguf_string *tokens; /* borrowed from the GGUF mapping, in byte-to-unicode form */
	uint8_t *kinds;             /* enum tokenizer_kind */
	uint32_t count;
	int32_t *special; /* tokens that stand for themselves in a text: control and the user's */
	uint32_t special_count, special_room;
	struct md_map by_text; /* hash of the text -> token */
	struct md_map merges;  /* left << 32 | right -> rank << 32 | merged */
	int32_t byte_token[256];
	uint16_t byte_code[256]; /* byte -> code point of the byte-to-unicode table */
	int16_t code_byte[512];  /* and back; -1 for none */
	bool single_digits;      /* "smollm": every digit is a piece of its own */
	int32_t end_of_sequence; /* -1 if the file names none */
	int32_t end_of_turn;     /* <|im_end|>, or -1 */
};

enum tokenizer_kind {
	TOKENIZER_NORMAL = 1,
	TOKENIZER_UNKNOWN = 2,
	TOKENIZER_CONTROL = 3,
	TOKENIZER_USER = 4,
	TOKENIZER_UNUSED = 5,
	TOKENIZER_BYTE = 6
};

struct token_list {
	int32_t *tokens;
	size_t count, capacity;
};

void token_list_finish(struct token_list *list);
bool token_list_push(struct token_list *list, int32_t token); /* false when out of memory */

/* The GGUF must stay open as long as the tokenizer lives. */
enum md_status tokenizer_init(struct tokenizer *tokenizer, const struct gguf *gguf, struct md_error *err);
void tokenizer_finish(struct tokenizer *tokenizer); /* also on a zeroed one */

/* Appends the tokens of text. With special != 0 the texts of control tokens in it become those tokens. */
enum md_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size, bool special,
				struct token_list *out, struct md_error *err);

/* Appends <|im_start|>system..., the user's text (no control tokens in it) and the head of the assistant's turn. */
enum md_status tokenizer_encode_chat(const struct tokenizer *tokenizer, const char *text, struct token_list *out,
				     struct md_error *err);

/* Text of the tokens, malloc'd, NUL-terminated; control tokens are left out. NULL when out of memory. */
char *tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *tokens, size_t count);

/* True for the tokens after which a text ends. */
bool tokenizer_is_end(const struct tokenizer *tokenizer, int32_t token);

/* Length in bytes of the first piece of text (size > 0) as the pre-tokenizer cuts it; for tests. */
size_t tokenizer_piece(const struct tokenizer *tokenizer, const char *text, size_t size);

#endif
