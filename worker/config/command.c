/* SPDX-License-Identifier: Apache-2.0 */
/* Splits commands into words. */
#include "worker/config/command.h"

#include <string.h>

static size_t line_length(const char *text)
{
	size_t length = strcspn(text, "\n");
	return length + (text[length] == '\n');
}

const char *md_command_uncomment(struct md_arena *arena, const char *text)
{
	char *out = md_arena_take(arena, strlen(text) + 1);
	size_t used = 0;
	while (*text && out) {
		size_t length = line_length(text);
		if (text[strspn(text, " \t\r\v\f")] != '#') {
			memcpy(out + used, text, length);
			used += length;
		}
		text += length;
	}
	return out;
}

struct splitter {
	const char *at;
	char *out; /* room for the text and a NUL for each word */
	bool open;
};

/* Bytes of a backslash and the line break behind it; 0: there is none. */
static size_t continuation(const char *text)
{
	if (text[0] != '\\')
		return 0;
	return text[1] == '\n' ? 2 : text[1] == '\r' && text[2] == '\n' ? 3 : 0;
}

static size_t blank(const char *text)
{
	return *text == ' ' || *text == '\t' || *text == '\n' || *text == '\r' ? 1 : continuation(text);
}

static void take_single(struct splitter *splitter)
{
	size_t length = strcspn(++splitter->at, "'");
	memcpy(splitter->out, splitter->at, length);
	splitter->out += length;
	splitter->at += length;
	splitter->open |= !*splitter->at;
	splitter->at += *splitter->at == '\'';
}

static void take_double(struct splitter *splitter)
{
	const char *at = splitter->at + 1;
	while (*at && *at != '"') {
		size_t joined = continuation(at);
		if (joined) {
			*splitter->out++ = ' ';
			at += joined;
			continue;
		}
		if (at[0] == '\\' && at[1] && strchr("$`\"\\", at[1]))
			at++;
		*splitter->out++ = *at++;
	}
	splitter->open |= !*at;
	splitter->at = at + (*at == '"');
}

static void take_word(struct splitter *splitter)
{
	while (*splitter->at && !blank(splitter->at)) {
		if (*splitter->at == '\'') {
			take_single(splitter);
		} else if (*splitter->at == '"') {
			take_double(splitter);
		} else {
			splitter->at += splitter->at[0] == '\\' && splitter->at[1];
			*splitter->out++ = *splitter->at++;
		}
	}
	*splitter->out++ = '\0';
}

/* Splits text, and keeps the words if there is room for them. Returns their number. */
static size_t split(struct splitter *splitter, const char **words)
{
	size_t count = 0, length;
	for (;;) {
		while ((length = blank(splitter->at)))
			splitter->at += length;
		if (!*splitter->at)
			return count;
		if (words)
			words[count] = splitter->out;
		count++;
		take_word(splitter);
	}
}

const char *const *md_command_split(struct md_arena *arena, const char *text, bool *open)
{
	size_t bytes = 2 * strlen(text) + 1, count;
	struct splitter splitter = {.at = text, .out = md_arena_take(arena, bytes)};
	const struct splitter begin = splitter;
	const char **words;
	*open = false;
	if (!splitter.out)
		return NULL;
	count = split(&splitter, NULL);
	words = md_arena_take_array(arena, count + 1, sizeof(*words));
	if (!words)
		return NULL;
	splitter = begin;
	split(&splitter, words);
	*open = splitter.open;
	return words;
}
