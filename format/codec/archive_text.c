/* SPDX-License-Identifier: Apache-2.0 */
/* Records as text: a line is a keyword and key=value pairs; the items of a list are the lines that follow. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "format/codec/archive.h"

#define LINE_MAX_BYTES (4u << 20)
#define TOKENS_MAX 64
#define BLOB_LINE 64u /* bytes of a blob on one line */

struct token {
	const char *key;
	char *value; /* unescaped in place */
	size_t size; /* of value; a string holds no NUL */
	bool quoted, used;
};

struct md_text {
	FILE *file;
	bool open;    /* printing: the line has not ended yet; parsing: the line's tokens are being used */
	bool pending; /* parsing: a line is loaded and no record has begun with it */
	bool at_end;
	char *line;
	size_t capacity;
	uint64_t number; /* of the line */
	const char *keyword;
	struct token tokens[TOKENS_MAX];
	int token_count;
};

static void fail_line(struct md_archive *a, const char *what, const char *name)
{
	md_archive_fail(a, MD_ERR_CORRUPT, "line %" PRIu64 ": %s %.100s", a->lines->number, what, name);
}

/* ---- printing ---- */

static void print_close_line(struct md_archive *a)
{
	if (a->lines->open)
		putc('\n', a->lines->file);
	a->lines->open = false;
}

static void print_begin(struct md_archive *a, const char *keyword)
{
	print_close_line(a);
	fputs(keyword, a->lines->file);
	a->lines->open = true;
}

static void print_end(struct md_archive *a)
{
	print_close_line(a);
	if (ferror(a->lines->file))
		md_archive_fail(a, MD_ERR_IO, "text: %s", strerror(errno));
}

static void print_u64(struct md_archive *a, const char *name, uint64_t *value)
{
	if (*value == UINT32_MAX)
		fprintf(a->lines->file, " %s=none", name);
	else
		fprintf(a->lines->file, " %s=%" PRIu64, name, *value);
}

static void print_i64(struct md_archive *a, const char *name, int64_t *value)
{
	fprintf(a->lines->file, " %s=%" PRId64, name, *value);
}

static void print_string(struct md_archive *a, const char *name, char **value)
{
	FILE *file = a->lines->file;
	if (!*value)
		return;
	fprintf(file, " %s=\"", name);
	for (const char *at = *value; *at;) {
		uint32_t point = 0;
		size_t length = md_utf8_length(at, &point);
		if (*at == '"' || *at == '\\')
			fprintf(file, "\\%c", *at);
		else if (!length || md_utf8_acts(point))
			length = fprintf(file, "\\x%02x", (unsigned char)*at) > 0;
		else
			fwrite(at, 1, length, file);
		at += length ? length : 1;
	}
	putc('"', file);
}

static void print_hex(FILE *file, const uint8_t *data, size_t size)
{
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < size; i++) {
		putc(digits[data[i] >> 4], file);
		putc(digits[data[i] & 15], file);
	}
}

static void print_bytes(struct md_archive *a, const char *name, uint8_t *data, size_t size)
{
	fprintf(a->lines->file, " %s=", name);
	print_hex(a->lines->file, data, size);
}

static void print_blob(struct md_archive *a, const char *name, uint8_t **data, uint64_t size)
{
	print_close_line(a);
	for (uint64_t at = 0; at < size; at += BLOB_LINE) {
		fprintf(a->lines->file, "%s hex=", name);
		print_hex(a->lines->file, *data + at, size - at < BLOB_LINE ? size - at : BLOB_LINE);
		putc('\n', a->lines->file);
	}
}

static uint32_t print_list(struct md_archive *a, const char *name, uint32_t count)
{
	(void)name;
	print_close_line(a);
	return count;
}

static const struct md_archive_ops print_ops = {
    .text = true,
    .u64 = print_u64,
    .i64 = print_i64,
    .string = print_string,
    .bytes = print_bytes,
    .blob = print_blob,
    .begin = print_begin,
    .end = print_end,
    .list = print_list,
};

/* ---- parsing: lines and tokens ---- */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One line without its end; false at the end of the file and on failure. */
static bool read_line(struct md_archive *a)
{
	struct md_text *t = a->lines;
	size_t size = 0;
	int c;
	while ((c = getc(t->file)) != EOF && c != '\n') {
		if (size + 2 > LINE_MAX_BYTES || !MD_ARRAY_RESERVE(t->line, size + 2, t->capacity)) {
			t->number++;
			fail_line(a, "is too long", "(at most 4 MiB)");
			return false;
		}
		t->line[size++] = (char)c;
	}
	if (ferror(t->file))
		md_archive_fail(a, MD_ERR_IO, "text: %s", strerror(errno));
	if ((c == EOF && !size) || a->status != MD_OK)
		return false;
	t->number++;
	if (!t->line)
		t->line = calloc(1, t->capacity = 512);
	if (!t->line || memchr(t->line, 0, size)) {
		fail_line(a, "holds a zero byte", "");
		return false;
	}
	t->line[size] = 0;
	return true;
}

/* Unescapes in place; returns what follows the closing quote, or NULL. */
static char *unquote(char *text, struct token *token)
{
	char *out = text;
	token->value = text;
	token->quoted = true;
	while (*text && *text != '"') {
		if (*text != '\\') {
			*out++ = *text++;
			continue;
		}
		if (text[1] == '"' || text[1] == '\\') {
			*out++ = text[1];
			text += 2;
		} else if (text[1] == 'x' && hex_digit(text[2]) >= 0 && hex_digit(text[3]) >= 0) {
			*out = (char)(hex_digit(text[2]) << 4 | hex_digit(text[3]));
			if (!*out++)
				return NULL;
			text += 4;
		} else {
			return NULL;
		}
	}
	if (*text != '"')
		return NULL;
	text++;
	token->size = (size_t)(out - token->value);
	return text; /* the caller ends the value: out may be where text is */
}

static char *read_token(char *text, struct token *token)
{
	*token = (struct token){.key = text};
	char *equals = strpbrk(text, "= ");
	if (!equals || *equals != '=')
		return NULL;
	*equals = 0;
	text = equals + 1;
	if (*text == '"')
		return unquote(text + 1, token);
	token->value = text;
	token->size = strcspn(text, " ");
	return text + token->size;
}

static void split_line(struct md_archive *a)
{
	struct md_text *t = a->lines;
	char *text = t->line;
	t->keyword = text;
	t->token_count = 0;
	text += strcspn(text, " ");
	while (*text == ' ') {
		*text++ = 0;
		if (t->token_count == TOKENS_MAX) {
			fail_line(a, "too many fields", "");
			return;
		}
		struct token *token = &t->tokens[t->token_count];
		text = read_token(text, token);
		if (!text || (*text && *text != ' ')) {
			fail_line(a, "bad field", token->key);
			return;
		}
		t->token_count++;
	}
	for (int i = 0; i < t->token_count; i++)
		t->tokens[i].value[t->tokens[i].size] = 0;
}

/* Makes the next line pending, over empty lines and comments. */
static bool load(struct md_archive *a)
{
	struct md_text *t = a->lines;
	while (!t->pending && !t->at_end && a->status == MD_OK) {
		if (!read_line(a)) {
			t->at_end = true;
			return false;
		}
		if (!t->line[0] || t->line[0] == '#')
			continue;
		split_line(a);
		t->pending = true;
	}
	return t->pending && a->status == MD_OK;
}

/* Every field of the current line must have been asked for. */
static void parse_close_line(struct md_archive *a)
{
	struct md_text *t = a->lines;
	for (int i = 0; t->open && i < t->token_count; i++) {
		if (!t->tokens[i].used)
			fail_line(a, "unknown field", t->tokens[i].key);
	}
	t->open = false;
}

bool md_archive_text_next(struct md_archive *a, const char *keyword)
{
	parse_close_line(a);
	return load(a) && !strcmp(a->lines->keyword, keyword);
}

static void parse_begin(struct md_archive *a, const char *keyword)
{
	struct md_text *t = a->lines;
	if (!md_archive_text_next(a, keyword)) {
		if (a->status == MD_OK && t->at_end)
			md_archive_fail(a, MD_ERR_TRUNCATED, "line %" PRIu64 ": the text ends where %s belongs",
					t->number, keyword);
		else if (a->status == MD_OK)
			fail_line(a, "expected", keyword);
		return;
	}
	t->pending = false;
	t->open = true;
}

/* ---- parsing: fields ---- */

static struct token *find(struct md_archive *a, const char *name)
{
	struct md_text *t = a->lines;
	for (int i = 0; t->open && i < t->token_count; i++) {
		if (strcmp(t->tokens[i].key, name) != 0)
			continue;
		if (t->tokens[i].used)
			break;
		t->tokens[i].used = true;
		return &t->tokens[i];
	}
	return NULL;
}

static bool parse_has(struct md_archive *a, const char *name)
{
	struct md_text *t = a->lines;
	for (int i = 0; t->open && i < t->token_count; i++)
		if (!strcmp(t->tokens[i].key, name))
			return true;
	return false;
}

static struct token *need(struct md_archive *a, const char *name)
{
	struct token *token = find(a, name);
	if (!token || token->quoted) {
		fail_line(a, "a field is missing or quoted:", name);
		return NULL;
	}
	return token;
}

static void parse_u64(struct md_archive *a, const char *name, uint64_t *value)
{
	struct token *token = need(a, name);
	char *end;
	if (!token)
		return;
	if (!strcmp(token->value, "none")) {
		*value = UINT32_MAX;
		return;
	}
	errno = 0;
	*value = strtoull(token->value, &end, 0);
	if (!isdigit((unsigned char)token->value[0]) || *end || errno)
		fail_line(a, "not a number:", name);
}

static void parse_i64(struct md_archive *a, const char *name, int64_t *value)
{
	struct token *token = need(a, name);
	char *end;
	if (!token)
		return;
	errno = 0;
	*value = strtoll(token->value, &end, 0);
	if ((token->value[0] != '-' && !isdigit((unsigned char)token->value[0])) || *end || errno)
		fail_line(a, "not a number:", name);
}

static void parse_string(struct md_archive *a, const char *name, char **value)
{
	struct token *token = find(a, name);
	free(*value);
	*value = NULL;
	if (!token)
		return; /* as in msgpack's nil; checks know which strings must be there */
	if (!token->quoted) {
		fail_line(a, "not a quoted string:", name);
		return;
	}
	*value = md_budget_alloc(a->budget, token->size + 1, 1);
	if (*value)
		memcpy(*value, token->value, token->size);
	else
		md_archive_fail_memory(a);
}

static bool parse_hex(struct md_archive *a, const struct token *token, const char *name, uint8_t *data, size_t size)
{
	if (token->size != size * 2) {
		md_archive_fail(a, MD_ERR_CORRUPT, "line %" PRIu64 ": %s has %zu digits, not %zu", a->lines->number,
				name, token->size, size * 2);
		return false;
	}
	for (size_t i = 0; i < size; i++) {
		int high = hex_digit(token->value[2 * i]), low = hex_digit(token->value[2 * i + 1]);
		if (high < 0 || low < 0) {
			fail_line(a, "not hexadecimal:", name);
			return false;
		}
		data[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

static void parse_bytes(struct md_archive *a, const char *name, uint8_t *data, size_t size)
{
	struct token *token = need(a, name);
	if (token)
		parse_hex(a, token, name, data, size);
}

/* Grows as lines are read, whatever size the record announced. */
static void parse_blob(struct md_archive *a, const char *name, uint8_t **data, uint64_t size)
{
	struct md_buf bytes;
	md_buf_init(&bytes);
	while (bytes.size < size && a->status == MD_OK) {
		size_t piece = size - bytes.size < BLOB_LINE ? (size_t)(size - bytes.size) : BLOB_LINE;
		parse_begin(a, name);
		struct token *token = a->status == MD_OK ? need(a, "hex") : NULL;
		uint8_t *room = token && md_budget_take(a->budget, piece) ? md_buf_extend(&bytes, piece) : NULL;
		if (room)
			parse_hex(a, token, "hex", room, piece);
		else
			md_archive_fail_memory(a);
	}
	parse_close_line(a);
	free(*data);
	*data = bytes.data ? bytes.data : calloc(1, 1);
}

static uint32_t parse_list(struct md_archive *a, const char *name, uint32_t count)
{
	(void)name, (void)count;
	parse_close_line(a);
	return UINT32_MAX;
}

static const struct md_archive_ops parse_ops = {
    .reading = true,
    .text = true,
    .u64 = parse_u64,
    .i64 = parse_i64,
    .string = parse_string,
    .bytes = parse_bytes,
    .blob = parse_blob,
    .begin = parse_begin,
    .end = parse_close_line,
    .list = parse_list,
    .more = md_archive_text_next,
    .has = parse_has,
};

/* ---- opening and closing ---- */

static enum md_status open_text(struct md_archive *a, const struct md_archive_ops *ops, FILE *file,
				struct md_budget *budget, struct md_error *err)
{
	*a = (struct md_archive){.ops = ops, .err = err, .budget = budget};
	a->lines = calloc(1, sizeof(*a->lines));
	if (!a->lines)
		return md_error_set(err, MD_ERR_NO_MEMORY, "text: out of memory for its lines");
	a->lines->file = file;
	return MD_OK;
}

enum md_status md_archive_open_print(struct md_archive *a, FILE *out, struct md_error *err)
{
	return open_text(a, &print_ops, out, NULL, err);
}

enum md_status md_archive_open_parse(struct md_archive *a, FILE *in, struct md_budget *budget, struct md_error *err)
{
	return open_text(a, &parse_ops, in, budget, err);
}

enum md_status md_archive_close_text(struct md_archive *a)
{
	struct md_text *t = a->lines;
	if (a->ops->reading) {
		parse_close_line(a);
		if (a->status == MD_OK && load(a))
			fail_line(a, "nothing may follow the last section, but there is", t->keyword);
	} else if (a->status == MD_OK) {
		print_close_line(a);
		if (fflush(t->file) != 0)
			md_archive_fail(a, MD_ERR_IO, "text: %s", strerror(errno));
	}
	free(t->line);
	free(t);
	a->lines = NULL;
	return a->status;
}
