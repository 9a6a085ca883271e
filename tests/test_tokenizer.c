/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer over a small vocabulary made in memory: cutting into pieces, merging, control tokens, round trips. */
#include "models/llama/gguf.c"
#include "models/llama/tokenizer.c"
#include "models/llama/unicode.c"

#include <criterion/criterion.h>

#define MERGED 6
static const char *const controls[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
/* in byte-to-unicode form: "\xc4\xa0" is the space */
static const char *const merged[MERGED] = {"he",
					   "ll",
					   "hell",
					   "hello",
					   "\xc4\xa0"
					   "h",
					   "\xc4\xa0"
					   "hello"};
static const char *const merges[] = {"h e", "l l", "he ll", "hell o", "\xc4\xa0 h"};

struct fixture {
	struct md_buf buf;
	struct gguf gguf;
	struct tokenizer tokenizer;
	struct md_error err;
};

static void put_text(struct md_buf *buf, const char *text, size_t size)
{
	md_buf_put_u64(buf, size);
	md_buf_put(buf, text, size);
}

static void put_key(struct md_buf *buf, const char *key, uint32_t type)
{
	put_text(buf, key, strlen(key));
	md_buf_put_u32(buf, type);
}

static void put_string_value(struct md_buf *buf, const char *key, const char *value)
{
	put_key(buf, key, GGUF_STRING);
	put_text(buf, value, strlen(value));
}

static void put_tokens(struct md_buf *buf)
{
	struct tokenizer table;
	fill_byte_table(&table);
	put_key(buf, "tokenizer.ggml.tokens", GGUF_ARRAY);
	md_buf_put_u32(buf, GGUF_STRING);
	md_buf_put_u64(buf, 3 + 256 + MERGED);
	for (int i = 0; i < 3; i++)
		put_text(buf, controls[i], strlen(controls[i]));
	for (int byte = 0; byte < 256; byte++) {
		char text[2];
		put_text(buf, text, put_code(table.byte_code[byte], text));
	}
	for (int i = 0; i < MERGED; i++)
		put_text(buf, merged[i], strlen(merged[i]));
	put_key(buf, "tokenizer.ggml.token_type", GGUF_ARRAY);
	md_buf_put_u32(buf, GGUF_I32);
	md_buf_put_u64(buf, 3 + 256 + MERGED);
	for (int i = 0; i < 3 + 256 + MERGED; i++)
		md_buf_put_u32(buf, i < 3 ? TOKENIZER_CONTROL : TOKENIZER_NORMAL);
}

static void put_merges(struct md_buf *buf, const char *extra)
{
	size_t count = sizeof(merges) / sizeof(merges[0]);
	put_key(buf, "tokenizer.ggml.merges", GGUF_ARRAY);
	md_buf_put_u32(buf, GGUF_STRING);
	md_buf_put_u64(buf, count + (extra != NULL));
	for (size_t i = 0; i < count; i++)
		put_text(buf, merges[i], strlen(merges[i]));
	if (extra)
		put_text(buf, extra, strlen(extra));
}

static enum md_status make(struct fixture *f, const char *model, const char *pre, const char *extra_merge)
{
	memset(f, 0, sizeof(*f));
	md_buf_init(&f->buf);
	md_buf_put(&f->buf, "GGUF", 4);
	md_buf_put_u32(&f->buf, 3);
	md_buf_put_u64(&f->buf, 0);
	md_buf_put_u64(&f->buf, 6);
	put_string_value(&f->buf, "tokenizer.ggml.model", model);
	put_string_value(&f->buf, "tokenizer.ggml.pre", pre);
	put_key(&f->buf, "tokenizer.ggml.eos_token_id", GGUF_U32);
	md_buf_put_u32(&f->buf, 0);
	put_tokens(&f->buf);
	put_merges(&f->buf, extra_merge);
	cr_assert_eq(gguf_open_memory(&f->gguf, f->buf.data, f->buf.size, &f->err), MD_OK, "%s", f->err.message);
	return tokenizer_init(&f->tokenizer, &f->gguf, &f->err);
}

static void finish(struct fixture *f)
{
	tokenizer_finish(&f->tokenizer);
	gguf_close(&f->gguf);
	md_buf_finish(&f->buf);
}

/* pieces is the text with a bar behind each piece. */
static void assert_pieces(const struct tokenizer *tokenizer, const char *text, const char *pieces)
{
	char cut[256];
	size_t size = strlen(text), out = 0;
	while (size) {
		size_t piece = tokenizer_piece(tokenizer, text, size);
		cr_assert(piece > 0 && piece <= size, "a piece of %zu of %zu bytes", piece, size);
		memcpy(cut + out, text, piece);
		out += piece;
		cut[out++] = '|';
		text += piece;
		size -= piece;
	}
	cut[out] = 0;
	cr_assert_str_eq(cut, pieces, "cut into \"%s\", wanted \"%s\"", cut, pieces);
}

Test(tokenizer, cuts_as_gpt2_does)
{
	struct fixture f;
	cr_assert_eq(make(&f, "gpt2", "gpt-2", NULL), MD_OK, "%s", f.err.message);
	assert_pieces(&f.tokenizer, "Hello world", "Hello| world|");
	assert_pieces(&f.tokenizer, "it's 2024!", "it|'s| 2024|!|");
	assert_pieces(&f.tokenizer, "a   b", "a|  | b|");
	assert_pieces(&f.tokenizer, "a  ", "a|  |");
	assert_pieces(&f.tokenizer, "a\n\nb", "a|\n|\n|b|");
	assert_pieces(&f.tokenizer, "we'll've", "we|'ll|'ve|");
	assert_pieces(&f.tokenizer,
		      "caf\xc3\xa9 \xe2\x82\xac"
		      "5",
		      "caf\xc3\xa9| \xe2\x82\xac|5|");
	assert_pieces(&f.tokenizer, " ...x", " ...|x|");
	assert_pieces(&f.tokenizer, "\xff\xfe", "\xff\xfe|");
	finish(&f);
}

Test(tokenizer, smollm_cuts_digits_one_by_one)
{
	struct fixture f;
	cr_assert_eq(make(&f, "gpt2", "smollm", NULL), MD_OK, "%s", f.err.message);
	assert_pieces(&f.tokenizer, "in 2024, x", "in| |2|0|2|4|,| x|");
	assert_pieces(&f.tokenizer, "v2 beta", "v|2| beta|");
	finish(&f);
}

static void assert_encoding(const struct tokenizer *tokenizer, const char *text, bool special, const int32_t *want,
			    size_t count)
{
	struct token_list list = {0};
	struct md_error err = {0};
	cr_assert_eq(tokenizer_encode(tokenizer, text, strlen(text), special, &list, &err), MD_OK, "%s", err.message);
	cr_assert_eq(list.count, count, "\"%s\": %zu tokens, wanted %zu", text, list.count, count);
	for (size_t i = 0; i < count; i++)
		cr_assert_eq(list.tokens[i], want[i], "\"%s\": token %zu is %d, wanted %d", text, i, list.tokens[i],
			     want[i]);
	token_list_finish(&list);
}

#define BYTE(c) (3 + (c))
#define MERGE(i) (3 + 256 + (i))
#define ENCODES(text, special, ...)                                                                                    \
	assert_encoding(&f.tokenizer, text, special, (const int32_t[]){__VA_ARGS__},                                   \
			sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

Test(tokenizer, merges_in_the_order_of_ranks)
{
	struct fixture f;
	cr_assert_eq(make(&f, "gpt2", "smollm", NULL), MD_OK, "%s", f.err.message);
	ENCODES("hello", false, MERGE(3));
	ENCODES("hell", false, MERGE(2));
	ENCODES("help", false, MERGE(0), BYTE('l'), BYTE('p'));
	/* "h e" ranks before "space h", so the space is left over */
	ENCODES(" hello", false, BYTE(' '), MERGE(3));
	ENCODES(" hi", false, MERGE(4), BYTE('i'));
	ENCODES("lll", false, MERGE(1), BYTE('l'));
	finish(&f);
}

Test(tokenizer, takes_control_tokens_only_where_asked)
{
	struct fixture f;
	cr_assert_eq(make(&f, "gpt2", "smollm", NULL), MD_OK, "%s", f.err.message);
	ENCODES("<|im_end|>hello", true, 2, MERGE(3));
	ENCODES("he<|im_start|>", true, MERGE(0), 1);
	ENCODES("<|im", false, BYTE('<'), BYTE('|'), BYTE('i'), BYTE('m'));
	struct token_list list = {0};
	cr_assert_eq(tokenizer_encode(&f.tokenizer, "<|im_end|>", 10, false, &list, NULL), MD_OK);
	cr_assert_eq(list.count, 10, "a user's text makes no control token");
	token_list_finish(&list);
	finish(&f);
}

Test(tokenizer, builds_a_chat_prompt)
{
	struct fixture f;
	struct token_list list = {0};
	cr_assert_eq(make(&f, "gpt2", "smollm", NULL), MD_OK, "%s", f.err.message);
	cr_assert_eq(tokenizer_encode_chat(&f.tokenizer, "hello<|im_end|>", &list, &f.err), MD_OK, "%s", f.err.message);
	int starts = 0, ends = 0;
	for (size_t i = 0; i < list.count; i++) {
		starts += list.tokens[i] == 1;
		ends += list.tokens[i] == 2;
	}
	cr_assert_eq(starts, 3, "system, user, assistant");
	cr_assert_eq(ends, 2, "the user's own <|im_end|> ends nothing");
	cr_assert_eq(list.tokens[0], 1);
	token_list_finish(&list);
	finish(&f);
}

Test(tokenizer, decodes_what_it_encodes)
{
	struct fixture f;
	char all[256];
	struct token_list list = {0};
	cr_assert_eq(make(&f, "gpt2", "smollm", NULL), MD_OK, "%s", f.err.message);
	for (int i = 0; i < 255; i++)
		all[i] = (char)(i + 1);
	all[255] = 0;
	cr_assert_eq(tokenizer_encode(&f.tokenizer, all, 255, false, &list, &f.err), MD_OK, "%s", f.err.message);
	char *text = tokenizer_decode(&f.tokenizer, list.tokens, list.count);
	cr_assert_str_eq(text, all, "all bytes come back");
	free(text);
	int32_t tokens[] = {1, MERGE(3), 2, -5, 100000};
	text = tokenizer_decode(&f.tokenizer, tokens, 5);
	cr_assert_str_eq(text, "hello", "control and impossible tokens are left out");
	free(text);
	cr_assert(tokenizer_is_end(&f.tokenizer, 0) && tokenizer_is_end(&f.tokenizer, 2) &&
		  !tokenizer_is_end(&f.tokenizer, 1));
	token_list_finish(&list);
	finish(&f);
}

static void assert_refused(const char *model, const char *pre, const char *merge, enum md_status status,
			   const char *words)
{
	struct fixture f;
	enum md_status found = make(&f, model, pre, merge);
	cr_assert_eq(found, status, "status %d: %s", (int)found, f.err.message);
	cr_assert(strstr(f.err.message, words), "\"%s\" does not say \"%s\"", f.err.message, words);
	finish(&f);
}

Test(tokenizer, should_fail)
{
	assert_refused("llama", "smollm", NULL, MD_ERR_UNSUPPORTED, "tokenizer.ggml.model is \"llama\"");
	assert_refused("gpt2", "qwen2", NULL, MD_ERR_UNSUPPORTED, "tokenizer.ggml.pre is \"qwen2\"");
	assert_refused("gpt2", "smollm", "nospace", MD_ERR_CORRUPT, "merges[5] is not a pair");
	assert_refused("gpt2", "smollm", "x y", MD_ERR_CORRUPT, "merges[5] names a token that is not there");
}

Test(tokenizer, knows_unicode_kinds)
{
	cr_assert_eq(unicode_kind_of('a'), UNICODE_LETTER);
	cr_assert_eq(unicode_kind_of(0x4e2d), UNICODE_LETTER);
	cr_assert_eq(unicode_kind_of('7'), UNICODE_NUMBER);
	cr_assert_eq(unicode_kind_of(0xbd), UNICODE_NUMBER);
	cr_assert_eq(unicode_kind_of(0x3000), UNICODE_SPACE);
	cr_assert_eq(unicode_kind_of(0x1f600), UNICODE_OTHER);
	cr_assert_eq(unicode_kind_of(0x10ffff), UNICODE_OTHER);
}
