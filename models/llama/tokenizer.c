/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-level BPE: text is cut into pieces, a piece's bytes are merged pair by pair in the order of the merge list. */
#include "models/llama/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "models/llama/unicode.h"

#define MAX_TOKENS (1u << 20)
#define MAX_TEXT (1u << 20)

void token_list_finish(struct token_list *list)
{
	free(list->tokens);
	memset(list, 0, sizeof(*list));
}

bool token_list_push(struct token_list *list, int32_t token)
{
	if (!MD_ARRAY_GROW(list->tokens, list->count, list->capacity))
		return false;
	list->tokens[list->count++] = token;
	return true;
}

/* GPT-2's table: printable bytes stand for themselves, the 68 others for the code points from 256 on. */
static void fill_byte_table(struct tokenizer *tokenizer)
{
	memset(tokenizer->code_byte, 0xff, sizeof(tokenizer->code_byte));
	unsigned next = 256;
	for (unsigned byte = 0; byte < 256; byte++) {
		bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
		tokenizer->byte_code[byte] = (uint16_t)(printable ? byte : next++);
		tokenizer->code_byte[tokenizer->byte_code[byte]] = (int16_t)byte;
	}
}

static int32_t find_token(const struct tokenizer *tokenizer, const char *text, size_t size)
{
	uint64_t token;
	if (!md_map_get(&tokenizer->by_text, md_hash_checksum(text, size), &token))
		return -1;
	const struct gguf_string *found = &tokenizer->tokens[token];
	return found->size == size && !memcmp(found->data, text, size) ? (int32_t)token : -1;
}

static enum md_status read_kinds(struct tokenizer *tokenizer, const struct gguf *gguf, struct md_error *err)
{
	tokenizer->kinds = malloc(tokenizer->count);
	if (!tokenizer->kinds)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u tokens", tokenizer->count);
	memset(tokenizer->kinds, TOKENIZER_NORMAL, tokenizer->count);
	const struct gguf_value *kinds = gguf_find(gguf, "tokenizer.ggml.token_type");
	if (!kinds)
		return MD_OK;
	if (kinds->type != GGUF_ARRAY || kinds->item_type == GGUF_STRING || kinds->count != tokenizer->count)
		return md_error_set(err, MD_ERR_CORRUPT, "tokenizer.ggml.token_type does not fit the %u tokens",
				    tokenizer->count);
	for (uint32_t i = 0; i < tokenizer->count; i++)
		tokenizer->kinds[i] = (uint8_t)gguf_array_integer(kinds, i);
	return MD_OK;
}

static enum md_status read_tokens(struct tokenizer *tokenizer, const struct gguf *gguf, struct md_error *err)
{
	const struct gguf_value *tokens = gguf_find(gguf, "tokenizer.ggml.tokens");
	if (!tokens || tokens->type != GGUF_ARRAY || tokens->item_type != GGUF_STRING || !tokens->count ||
	    tokens->count > MAX_TOKENS)
		return md_error_set(err, MD_ERR_CORRUPT, "tokenizer.ggml.tokens is not a list of 1 to %u strings",
				    MAX_TOKENS);
	tokenizer->tokens = calloc(tokens->count, sizeof(*tokenizer->tokens));
	if (!tokenizer->tokens)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %llu tokens",
				    (unsigned long long)tokens->count);
	size_t cursor = 0;
	struct gguf_string text;
	while (tokenizer->count < tokens->count && gguf_next_string(tokens, &cursor, &text)) {
		tokenizer->tokens[tokenizer->count] = text;
		uint64_t key = md_hash_checksum(text.data, text.size), earlier;
		if (md_map_get(&tokenizer->by_text, key, &earlier)) {
			/* a duplicate keeps its first number; two texts of one hash could not both be found */
			const struct gguf_string *other = &tokenizer->tokens[earlier];
			if (other->size != text.size || memcmp(other->data, text.data, text.size))
				return md_error_set(err, MD_ERR_CORRUPT, "tokens %u and %llu have the same hash",
						    tokenizer->count, (unsigned long long)earlier);
		} else if (!md_map_put(&tokenizer->by_text, key, tokenizer->count)) {
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the token table");
		}
		tokenizer->count++;
	}
	return MD_OK;
}

static enum md_status read_merge(struct tokenizer *tokenizer, uint64_t rank, const struct gguf_string *text,
				 struct md_error *err)
{
	/* the parts hold no space: in byte-to-unicode form that is another code point */
	const char *space = memchr(text->data, ' ', text->size);
	size_t left_size = space ? (size_t)(space - text->data) : 0,
	       right_size = space ? text->size - left_size - 1 : 0;
	if (!left_size || !right_size || text->size > 4096)
		return md_error_set(err, MD_ERR_CORRUPT, "tokenizer.ggml.merges[%llu] is not a pair",
				    (unsigned long long)rank);
	char joined[4096];
	memcpy(joined, text->data, left_size);
	memcpy(joined + left_size, space + 1, right_size);
	int32_t left = find_token(tokenizer, text->data, left_size),
		right = find_token(tokenizer, space + 1, right_size);
	int32_t merged = find_token(tokenizer, joined, left_size + right_size);
	if (left < 0 || right < 0 || merged < 0)
		return md_error_set(err, MD_ERR_CORRUPT, "tokenizer.ggml.merges[%llu] names a token that is not there",
				    (unsigned long long)rank);
	uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
	if (!md_map_get(&tokenizer->merges, pair, NULL) &&
	    !md_map_put(&tokenizer->merges, pair, rank << 32 | (uint32_t)merged))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the merge table");
	return MD_OK;
}

static enum md_status read_merges(struct tokenizer *tokenizer, const struct gguf *gguf, struct md_error *err)
{
	const struct gguf_value *merges = gguf_find(gguf, "tokenizer.ggml.merges");
	if (!merges || merges->type != GGUF_ARRAY || merges->item_type != GGUF_STRING || merges->count > MAX_TOKENS)
		return md_error_set(err, MD_ERR_CORRUPT, "tokenizer.ggml.merges is not a list of at most %u strings",
				    MAX_TOKENS);
	size_t cursor = 0;
	struct gguf_string text;
	for (uint64_t rank = 0; gguf_next_string(merges, &cursor, &text); rank++)
		MD_FORWARD(read_merge(tokenizer, rank, &text, err));
	return MD_OK;
}

static enum md_status list_special(struct tokenizer *tokenizer, struct md_error *err)
{
	for (uint32_t i = 0; i < tokenizer->count; i++) {
		if (tokenizer->kinds[i] != TOKENIZER_CONTROL && tokenizer->kinds[i] != TOKENIZER_USER)
			continue;
		if (!MD_ARRAY_GROW(tokenizer->special, tokenizer->special_count, tokenizer->special_room))
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the control tokens");
		tokenizer->special[tokenizer->special_count++] = (int32_t)i;
	}
	return MD_OK;
}

static size_t put_code(uint16_t code, char out[2])
{
	if (code < 0x80) {
		out[0] = (char)code;
		return 1;
	}
	out[0] = (char)(0xc0 | code >> 6);
	out[1] = (char)(0x80 | (code & 0x3f));
	return 2;
}

static void find_byte_tokens(struct tokenizer *tokenizer)
{
	for (unsigned byte = 0; byte < 256; byte++) {
		char text[2];
		tokenizer->byte_token[byte] = find_token(tokenizer, text, put_code(tokenizer->byte_code[byte], text));
	}
}

static enum md_status check_kind(struct tokenizer *tokenizer, const struct gguf *gguf, struct md_error *err)
{
	struct gguf_string model, pre = {"gpt-2", 5};
	MD_FORWARD(gguf_get_string(gguf, "tokenizer.ggml.model", &model, err));
	if (model.size != 4 || memcmp(model.data, "gpt2", 4))
		return md_error_set(err, MD_ERR_UNSUPPORTED, "tokenizer.ggml.model is \"%.*s\"; this engine knows gpt2",
				    (int)(model.size < 32 ? model.size : 32), model.data);
	if (gguf_find(gguf, "tokenizer.ggml.pre"))
		MD_FORWARD(gguf_get_string(gguf, "tokenizer.ggml.pre", &pre, err));
	tokenizer->single_digits = pre.size == 6 && !memcmp(pre.data, "smollm", 6);
	bool plain =
	    (pre.size == 5 && !memcmp(pre.data, "gpt-2", 5)) || (pre.size == 7 && !memcmp(pre.data, "default", 7));
	if (!tokenizer->single_digits && !plain)
		return md_error_set(err, MD_ERR_UNSUPPORTED,
				    "tokenizer.ggml.pre is \"%.*s\"; this engine knows smollm, gpt-2, default",
				    (int)(pre.size < 32 ? pre.size : 32), pre.data);
	return MD_OK;
}

static enum md_status read_vocabulary(struct tokenizer *tokenizer, const struct gguf *gguf, struct md_error *err)
{
	MD_FORWARD(check_kind(tokenizer, gguf, err));
	MD_FORWARD(read_tokens(tokenizer, gguf, err));
	MD_FORWARD(read_kinds(tokenizer, gguf, err));
	MD_FORWARD(list_special(tokenizer, err));
	MD_FORWARD(read_merges(tokenizer, gguf, err));
	find_byte_tokens(tokenizer);
	int64_t end = -1;
	if (gguf_find(gguf, "tokenizer.ggml.eos_token_id"))
		MD_FORWARD(gguf_get_integer(gguf, "tokenizer.ggml.eos_token_id", &end, err));
	tokenizer->end_of_sequence = end >= 0 && end < tokenizer->count ? (int32_t)end : -1;
	tokenizer->end_of_turn = find_token(tokenizer, "<|im_end|>", 10);
	return MD_OK;
}

enum md_status tokenizer_init(struct tokenizer *tokenizer, const struct gguf *gguf, struct md_error *err)
{
	memset(tokenizer, 0, sizeof(*tokenizer));
	md_map_init(&tokenizer->by_text);
	md_map_init(&tokenizer->merges);
	fill_byte_table(tokenizer);
	enum md_status status = read_vocabulary(tokenizer, gguf, err);
	if (status != MD_OK)
		tokenizer_finish(tokenizer);
	return status;
}

void tokenizer_finish(struct tokenizer *tokenizer)
{
	free(tokenizer->tokens);
	free(tokenizer->kinds);
	free(tokenizer->special);
	md_map_finish(&tokenizer->by_text);
	md_map_finish(&tokenizer->merges);
	memset(tokenizer, 0, sizeof(*tokenizer));
}

/* ---- cutting text into pieces --------------------------------------------------------------------------------- */

struct cursor {
	const char *text;
	size_t size;
};

static enum unicode_kind kind_at(const struct cursor *cursor, size_t at, size_t *length)
{
	uint32_t code;
	*length = unicode_decode(cursor->text + at, cursor->size - at, &code);
	return unicode_kind_of(code);
}

/* End of the run of code points of one kind that begins at `at`. */
static size_t run_end(const struct cursor *cursor, size_t at, enum unicode_kind kind)
{
	size_t length;
	while (at < cursor->size && kind_at(cursor, at, &length) == kind)
		at += length;
	return at;
}

/* 's 't 're 've 'm 'll 'd; 0 if there is none. */
static size_t contraction(const struct cursor *cursor)
{
	static const char *const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		size_t size = strlen(endings[i]);
		if (cursor->size >= size && !memcmp(cursor->text, endings[i], size))
			return size;
	}
	return 0;
}

/* White space before a word stays apart from the last space, which belongs to the word: \s+(?!\S) | \s+ */
static size_t space_piece(const struct cursor *cursor)
{
	size_t at = 0, last = 0, length;
	while (at < cursor->size && kind_at(cursor, at, &length) == UNICODE_SPACE) {
		last = at;
		at += length;
	}
	return at < cursor->size && last > 0 ? last : at;
}

/* The GPT-2 pattern: contraction | ' '?letters | ' '?numbers | ' '?others | spaces */
static size_t gpt2_piece(const struct cursor *cursor)
{
	size_t size = contraction(cursor), length;
	if (size)
		return size;
	size_t start = cursor->text[0] == ' ' && cursor->size > 1 ? 1 : 0;
	enum unicode_kind kind = kind_at(cursor, start, &length);
	return kind == UNICODE_SPACE ? space_piece(cursor) : run_end(cursor, start, kind);
}

size_t tokenizer_piece(const struct tokenizer *tokenizer, const char *text, size_t size)
{
	struct cursor cursor = {text, size};
	size_t length;
	if (!tokenizer->single_digits)
		return gpt2_piece(&cursor);
	/* digits are cut out first; the pattern then sees only the text up to the next digit */
	if (kind_at(&cursor, 0, &length) == UNICODE_NUMBER)
		return length;
	size_t end = 0;
	while (end < size && kind_at(&cursor, end, &length) != UNICODE_NUMBER)
		end += length;
	cursor.size = end;
	return gpt2_piece(&cursor);
}

/* ---- merging ---------------------------------------------------------------------------------------------------- */

/* Of a piece of text without a place to cut it: merging takes time by the square of its length. */
#define MAX_PIECE 1024u

/* rank << 32 | merged token; UINT64_MAX: the two are not merged. */
static uint64_t merge_of(const struct tokenizer *tokenizer, int32_t left, int32_t right)
{
	uint64_t found;
	return md_map_get(&tokenizer->merges, (uint64_t)(uint32_t)left << 32 | (uint32_t)right, &found) ? found
													: UINT64_MAX;
}

static size_t best_pair(const uint64_t *merges, size_t count)
{
	size_t best = 0;
	for (size_t i = 1; i < count; i++)
		if (merges[i] < merges[best])
			best = i;
	return best;
}

/* Merges pair by pair, those of the lowest rank first. Returns how many symbols are left. */
static size_t merge_all(const struct tokenizer *tokenizer, int32_t *symbols, size_t count)
{
	uint64_t merges[MAX_PIECE];
	for (size_t i = 0; i + 1 < count; i++)
		merges[i] = merge_of(tokenizer, symbols[i], symbols[i + 1]);
	while (count > 1) {
		size_t at = best_pair(merges, count - 1);
		if (merges[at] == UINT64_MAX)
			break;
		symbols[at] = (int32_t)(uint32_t)merges[at];
		count--;
		memmove(symbols + at + 1, symbols + at + 2, (count - at - 1) * sizeof(*symbols));
		memmove(merges + at, merges + at + 1, (count - at) * sizeof(*merges));
		if (at)
			merges[at - 1] = merge_of(tokenizer, symbols[at - 1], symbols[at]);
		if (at + 1 < count)
			merges[at] = merge_of(tokenizer, symbols[at], symbols[at + 1]);
	}
	return count;
}

static enum md_status encode_piece(const struct tokenizer *tokenizer, const char *text, size_t size,
				   struct token_list *out, struct md_error *err)
{
	int32_t symbols[MAX_PIECE];
	size_t count = 0;
	for (size_t i = 0; i < size; i++) {
		symbols[count] = tokenizer->byte_token[(uint8_t)text[i]];
		if (symbols[count++] < 0)
			return md_error_set(err, MD_ERR_CORRUPT, "the vocabulary has no token for byte 0x%02x",
					    (uint8_t)text[i]);
	}
	count = merge_all(tokenizer, symbols, count);
	for (size_t i = 0; i < count; i++)
		if (!token_list_push(out, symbols[i]))
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %zu tokens", out->count);
	return MD_OK;
}

static enum md_status encode_plain(const struct tokenizer *tokenizer, const char *text, size_t size,
				   struct token_list *out, struct md_error *err)
{
	while (size) {
		size_t piece = tokenizer_piece(tokenizer, text, size);
		piece = piece < MAX_PIECE ? piece : MAX_PIECE;
		MD_FORWARD(encode_piece(tokenizer, text, piece, out, err));
		text += piece;
		size -= piece;
	}
	return MD_OK;
}

/* The longest control token that text begins with, or -1. */
static int32_t special_at(const struct tokenizer *tokenizer, const char *text, size_t size)
{
	int32_t best = -1;
	for (uint32_t i = 0; i < tokenizer->special_count; i++) {
		const struct gguf_string *token = &tokenizer->tokens[tokenizer->special[i]];
		if (token->size && token->size <= size && !memcmp(token->data, text, token->size) &&
		    (best < 0 || token->size > tokenizer->tokens[best].size))
			best = tokenizer->special[i];
	}
	return best;
}

enum md_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size, bool special,
				struct token_list *out, struct md_error *err)
{
	if (size > MAX_TEXT)
		return md_error_set(err, MD_ERR_TOO_LARGE, "a text of %zu bytes, at most %u", size, MAX_TEXT);
	size_t start = 0;
	for (size_t at = 0; special && at < size;) {
		int32_t token = text[at] == '<' ? special_at(tokenizer, text + at, size - at) : -1;
		if (token < 0) {
			at++;
			continue;
		}
		MD_FORWARD(encode_plain(tokenizer, text + start, at - start, out, err));
		if (!token_list_push(out, token))
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %zu tokens", out->count);
		at += tokenizer->tokens[token].size;
		start = at;
	}
	return encode_plain(tokenizer, text + start, size - start, out, err);
}

enum md_status tokenizer_encode_chat(const struct tokenizer *tokenizer, const char *text, struct token_list *out,
				     struct md_error *err)
{
	static const char head[] =
	    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
	    "<|im_end|>\n<|im_start|>user\n";
	static const char tail[] = "<|im_end|>\n<|im_start|>assistant\n";
	if (tokenizer->end_of_turn < 0)
		return md_error_set(err, MD_ERR_UNSUPPORTED, "the vocabulary has no <|im_end|>; give the prompt raw");
	MD_FORWARD(tokenizer_encode(tokenizer, head, sizeof(head) - 1, true, out, err));
	MD_FORWARD(tokenizer_encode(tokenizer, text, strlen(text), false, out, err));
	return tokenizer_encode(tokenizer, tail, sizeof(tail) - 1, true, out, err);
}

/* ---- decoding --------------------------------------------------------------------------------------------------- */

static void decode_token(const struct tokenizer *tokenizer, int32_t token, struct md_buf *buf)
{
	if (token < 0 || (uint32_t)token >= tokenizer->count || tokenizer->kinds[token] == TOKENIZER_CONTROL)
		return;
	const struct gguf_string *text = &tokenizer->tokens[token];
	for (size_t at = 0; at < text->size;) {
		uint32_t code;
		size_t length = unicode_decode(text->data + at, text->size - at, &code);
		if (code < 512 && tokenizer->code_byte[code] >= 0)
			md_buf_put_u8(buf, (uint8_t)tokenizer->code_byte[code]);
		else
			md_buf_put(buf, text->data + at, length);
		at += length;
	}
}

char *tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *tokens, size_t count)
{
	struct md_buf buf;
	md_buf_init(&buf);
	for (size_t i = 0; i < count; i++)
		decode_token(tokenizer, tokens[i], &buf);
	md_buf_put_u8(&buf, 0);
	if (buf.failed) {
		md_buf_finish(&buf);
		return NULL;
	}
	return (char *)buf.data;
}

bool tokenizer_is_end(const struct tokenizer *tokenizer, int32_t token)
{
	return token >= 0 && (token == tokenizer->end_of_sequence || token == tokenizer->end_of_turn);
}
