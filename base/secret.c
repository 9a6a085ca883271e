/* SPDX-License-Identifier: Apache-2.0 */
/* Finds secrets in a text: a name that says so and how far its value goes, users of URLs, and keys by their form. */
#include "base/secret.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/secret_name.h"

static bool is_quote(char c)
{
	return c == '"' || c == '\'' || c == '`';
}

static const char *skip_space(const char *at)
{
	while (isspace((unsigned char)*at))
		at++;
	return at;
}

static const char *end_of_name(const char *at)
{
	while (md_secret_is_name_char(*at))
		at++;
	return at;
}

static void put(struct md_buf *out, const char *from, const char *to)
{
	md_buf_put(out, from, (size_t)(to - from));
}

static void put_shown(struct md_buf *out)
{
	md_buf_put(out, MD_SECRET_SHOWN, strlen(MD_SECRET_SHOWN));
}

/* ---- how far a value goes ---- */

/* Behind the quote that ends what *at opens: a quote with as many backslashes before it. The text's end if there is none. */
static const char *end_of_quoted(const char *at)
{
	const char *quote = at + strspn(at, "\\");
	size_t escapes = (size_t)(quote - at);
	for (const char *c = quote + 1; *c; c++) {
		size_t before = strspn(c, "\\");
		if (c[before] == *quote && before == escapes)
			return c + before + 1;
		c += before ? before - (c[before] ? 0 : 1) : 0;
	}
	return at + strlen(at);
}

static bool is_quoted(const char *at)
{
	return is_quote(at[strspn(at, "\\")]);
}

/* Behind the bracket that closes what *at opens. */
static const char *end_of_brackets(const char *at)
{
	unsigned depth = 0;
	while (*at) {
		if (is_quoted(at)) {
			at = end_of_quoted(at);
			continue;
		}
		if (strchr("[{(", *at))
			depth++;
		else if (strchr("]})", *at) && --depth == 0)
			return at + 1;
		at++;
	}
	return at;
}

static const char *end_of_plain(const char *at, const char *stops)
{
	while (*at && !isspace((unsigned char)*at) && !strchr(stops, *at))
		at += *at == '\\' && at[1] ? 2 : 1;
	return at;
}

/* A scheme of authorization stands before the secret. */
static const char *skip_scheme(const char *at, const char *end)
{
	static const char *const schemes[] = {"bearer", "basic", "token", "digest", "negotiate", "apikey"};
	const char *next = skip_space(end);
	for (size_t i = 0; i < sizeof(schemes) / sizeof(*schemes); i++)
		if (strlen(schemes[i]) == (size_t)(end - at) && !strncasecmp(at, schemes[i], (size_t)(end - at)) &&
		    next > end && *next && !is_quote(*next))
			return next;
	return NULL;
}

/* As a shell reads a word, which may have quoted parts. */
static const char *end_of_word(const char *at)
{
	const char *from;
	do {
		from = at;
		at = is_quoted(at) ? end_of_quoted(at) : end_of_plain(at, "\"'`;&|<>)");
	} while (at > from && *at && !isspace((unsigned char)*at));
	return at;
}

enum form { WORD, FIELD, QUERY }; /* --name value and NAME=value; name: value; ?name=value */

static const char *end_of_value(const char *at, enum form form)
{
	if (*at == '[' || *at == '{')
		return end_of_brackets(at);
	if (form == FIELD && is_quoted(at))
		return end_of_quoted(at);
	const char *end = form == FIELD   ? end_of_plain(at, "\"'`,;&|)]}<>")
			  : form == QUERY ? end_of_plain(at, "\"'`&#;|<>")
					  : end_of_word(at);
	const char *behind = skip_scheme(at, end);
	return behind ? end_of_plain(behind, "\"'`") : end;
}

static bool is_shown(const char *at)
{
	return !strncmp(at, MD_SECRET_SHOWN, strlen(MD_SECRET_SHOWN));
}

/* Keeps the quotes, so that JSON stays JSON. Where a value was replaced before, its end was found then. */
static const char *put_hidden(struct md_buf *out, const char *at, enum form form)
{
	const char *end = is_shown(at) ? at + strlen(MD_SECRET_SHOWN) : end_of_value(at, form);
	size_t opening = is_quoted(at) ? strspn(at, "\\") + 1 : 0;
	const char *behind = opening ? end_of_quoted(at) : at;
	bool closed = behind >= at + 2 * opening && !strncmp(behind - opening, at, opening);
	bool keeps = opening && (closed ? behind == end : !*end);
	if (keeps)
		md_buf_put(out, at, opening);
	put_shown(out);
	if (keeps && closed)
		md_buf_put(out, at, opening);
	return end;
}

/* ---- names and what stands behind them ---- */

/* The place of the '=' or ':' that parts name and value; NULL: there is none. */
static const char *separator(const char *end)
{
	const char *at = end + strspn(end, "\\");
	at += is_quote(*at);
	at += *at == ']';
	const char *sign = skip_space(at);
	if (*sign == ':')
		return strncmp(sign, "://", 3) != 0 && sign[1] != ':' ? sign : NULL;
	if (*sign != '=' || sign[1] == '=')
		return NULL;
	/* in a program, the value is an expression if it is not quoted */
	return sign == at || is_quoted(skip_space(sign + 1)) || is_shown(skip_space(sign + 1)) ? sign : NULL;
}

static bool is_query_name(const char *name, size_t size)
{
	static const char *const names[] = {"key", "sig", "signature", "pass", "pwd", "pw", "auth", "code"};
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strlen(names[i]) == size && !strncasecmp(name, names[i], size))
			return true;
	return md_secret_is_named(name, size);
}

/* Whether the argument behind an option is another option, and not its value. */
static bool is_option(const char *text)
{
	return *text == '-' && !md_secret_is_random(text, end_of_name(text) - text);
}

static bool takes_next(const char *name, size_t size, const char *next)
{
	size_t length = (size_t)(end_of_name(next) - next);
	if (!*next || is_option(next))
		return false;
	return !md_secret_is_switch(name, size) || md_secret_is_random(next, length) ||
	       md_secret_is_known(next, length) || !strcmp(next, MD_SECRET_SHOWN);
}

/* The name from `at` to `end` and its value, if that is a secret; returns where to go on. */
static const char *put_name(struct md_buf *out, const char *line, const char *at, const char *end)
{
	size_t size = (size_t)(end - at);
	bool in_query = at > line && (at[-1] == '?' || at[-1] == '&');
	const char *sign = separator(end), *from = sign ? skip_space(sign + 1) : end;
	if (in_query && *end == '=' && is_query_name(at, size)) {
		put(out, at, end + 1);
		return put_hidden(out, end + 1, QUERY);
	}
	if (sign && md_secret_is_named(at, size)) {
		from = *sign == '=' && sign[1] != from[0] && !is_quoted(from) && !is_shown(from) ? sign + 1 : from;
		put(out, at, from);
		return put_hidden(out, from, *sign == ':' ? FIELD : in_query ? QUERY : WORD);
	}
	const char *word = end + is_quote(*end), *next = skip_space(word);
	bool bearer = size == 6 && !strncasecmp(at, "bearer", 6);
	if (next > word && (*at == '-' || bearer) && md_secret_is_named(at, size) && takes_next(at, size, next)) {
		put(out, at, next);
		return put_hidden(out, next, WORD);
	}
	if (md_secret_is_known(at, size) && (at == line || at[-1] != '/'))
		put_shown(out);
	else
		put(out, at, end);
	return end;
}

/* Where user and password of a URL end, from behind its "://"; NULL: it names none. */
static const char *end_of_user(const char *at)
{
	const char *last = NULL;
	for (; *at && !isspace((unsigned char)*at) && !strchr("/?#\"'`<>", *at); at++)
		if (*at == '@')
			last = at;
	return last;
}

static void hide_line(const char *line, struct md_buf *out)
{
	for (const char *at = line; *at;) {
		const char *end = end_of_name(at), *user = NULL;
		if (end > at) {
			at = put_name(out, line, at, end);
			continue;
		}
		if (!strncmp(at, "://", 3)) {
			put(out, at, at + 3);
			at += 3;
			user = end_of_user(at);
			if (user)
				put_shown(out);
			at = user ? user : at;
			continue;
		}
		md_buf_put_u8(out, (uint8_t)*at++);
	}
}

static char *text_of(struct md_buf *buf)
{
	md_buf_put_u8(buf, 0);
	if (!buf->failed)
		return (char *)buf->data;
	md_buf_finish(buf);
	return NULL;
}

char *md_secret_hide_line(const char *line)
{
	struct md_buf out;
	md_buf_init(&out);
	hide_line(line, &out);
	return text_of(&out);
}

/* ---- arguments ---- */

/* The length of --name= or NAME= (also the last of several, --env=NAME=) in front of a secret; 0: the argument is no such one. */
static size_t assigned(const char *text)
{
	for (const char *name = text, *end; *(end = end_of_name(name)) == '='; name = end + 1)
		if (md_secret_is_named(name, (size_t)(end - name)))
			return (size_t)(end - text) + 1;
	return 0;
}

/* What follows -c, -lc or -ec is a program of a shell: a value ends there with the word. */
static bool is_program_next(const char *option)
{
	return option[0] == '-' && option[1] != '-' && option[1] && option[strlen(option) - 1] == 'c';
}

static char *hide_argument(const char *text, const char *before)
{
	struct md_buf out;
	size_t kept = is_program_next(before) ? 0 : assigned(text);
	if (!kept)
		return md_secret_hide_line(text);
	md_buf_init(&out);
	md_buf_put(&out, text, kept);
	put_shown(&out);
	return text_of(&out);
}

/* vLLM's --api-key takes every argument up to the next option. */
static bool is_vllm(const char *text)
{
	const char *slash = strrchr(text, '/');
	const char *name = slash ? slash + 1 : text;
	return !strcmp(name, "vllm") || !strncmp(name, "vllm.entrypoints", strlen("vllm.entrypoints"));
}

static bool replace(struct md_text *item, char *text)
{
	if (!text)
		return false;
	free(item->text);
	item->text = text;
	return true;
}

static bool is_program(const char *text)
{
	return !strncmp(text, MD_ARGUMENTS_PROGRAM, strlen(MD_ARGUMENTS_PROGRAM));
}

/* Takes the arguments from `from` on that a list of keys goes on with off the list. */
static void drop_further(struct md_argument_list *arguments, uint32_t from)
{
	uint32_t kept = from;
	for (uint32_t i = from; i < arguments->count; i++) {
		bool further =
		    kept == from && *arguments->items[i].text != '-' && !is_program(arguments->items[i].text);
		if (further)
			free(arguments->items[i].text);
		else
			arguments->items[kept++] = arguments->items[i];
	}
	arguments->count = kept;
}

bool md_secret_hide_patterns(struct md_argument_list *patterns)
{
	bool done = true;
	for (uint32_t i = 0; done && i < patterns->count; i++)
		done = replace(&patterns->items[i], hide_argument(patterns->items[i].text, ""));
	return done;
}

bool md_secret_hide_arguments(struct md_argument_list *arguments)
{
	bool several = false;
	for (uint32_t i = 0; i < arguments->count; i++) {
		const char *text = arguments->items[i].text;
		const char *before = i ? arguments->items[i - 1].text : "";
		size_t size = strlen(text);
		several |= is_vllm(text);
		const char *next = i + 1 < arguments->count ? arguments->items[i + 1].text : "";
		bool named = i && *text == '-' && md_secret_is_named(text, size);
		if (!named && !replace(&arguments->items[i], hide_argument(text, before)))
			return false;
		if (!named || is_program(next) || !takes_next(text, size, next))
			continue;
		if (!replace(&arguments->items[++i], strdup(MD_SECRET_SHOWN)))
			return false;
		if (several)
			drop_further(arguments, i + 1);
	}
	return true;
}
