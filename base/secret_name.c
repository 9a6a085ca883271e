/* SPDX-License-Identifier: Apache-2.0 */
/* Which names of options, variables and fields say that their value is a secret: by the words that a name ends with. */
#include "base/secret_name.h"

#include <string.h>

#define WORDS 8u /* the last words of a name decide */
#define NAME_MOST 160u

struct words {
	char text[NAME_MOST];
	char *word[WORDS];
	unsigned count;
};

static bool is_upper(char c)
{
	return c >= 'A' && c <= 'Z';
}

static bool is_lower(char c)
{
	return c >= 'a' && c <= 'z';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

bool md_secret_is_name_char(char c)
{
	return is_upper(c) || is_lower(c) || is_digit(c) || c == '-' || c == '_' || c == '.' ||
	       (unsigned char)c >= 0x80;
}

static bool is_border(char c)
{
	return c == '-' || c == '_' || c == '.';
}

/* In apiKey before K, in APIKey before K, too. */
static bool begins_word(const char *name, size_t size, size_t at)
{
	if (!at || is_border(name[at - 1]))
		return true;
	return is_upper(name[at]) &&
	       (is_lower(name[at - 1]) || (is_upper(name[at - 1]) && at + 1 < size && is_lower(name[at + 1])));
}

static void add_word(struct words *words, char *word)
{
	if (words->count == WORDS)
		memmove(words->word, words->word + 1, --words->count * sizeof(*words->word));
	words->word[words->count++] = word;
}

/* In lower case. False: no name. */
static bool split(const char *name, size_t size, struct words *words)
{
	size_t used = 0;
	words->count = 0;
	for (size_t i = 0; i < size; i++) {
		if (!md_secret_is_name_char(name[i]) || used + 3 > sizeof(words->text))
			return false;
		if (is_border(name[i]))
			continue;
		if (begins_word(name, size, i)) {
			if (used)
				words->text[used++] = '\0';
			add_word(words, words->text + used);
		}
		words->text[used++] = is_upper(name[i]) ? (char)(name[i] - 'A' + 'a') : name[i];
	}
	words->text[used] = '\0';
	return words->count > 0;
}

static bool is_one_of(const char *word, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(word, *list))
			return true;
	return false;
}

static bool ends_with(const char *word, const char *const *list)
{
	size_t size = strlen(word);
	for (; *list; list++)
		if (size >= strlen(*list) && !strcmp(word + size - strlen(*list), *list))
			return true;
	return false;
}

/* Of "password_2", "token_value" or "api_key_old" the words before decide. */
static void drop_qualifiers(struct words *words)
{
	static const char *const qualifiers[] = {"value",   "string",  "text",      "plain", "plaintext", "raw",
						 "base64",  "b64",     "old",       "new",   "prod",      "dev",
						 "default", "primary", "secondary", NULL};
	while (words->count > 1) {
		const char *last = words->word[words->count - 1];
		if (!is_one_of(last, qualifiers) && last[strspn(last, "0123456789")])
			break;
		words->count--;
	}
	char *last = words->word[words->count - 1];
	size_t size = strlen(last);
	while (size > 1 && is_digit(last[size - 1]))
		last[--size] = '\0';
}

/* Tokens of a model, or of its text: not those that open a door. */
static bool is_model_word(const char *word)
{
	static const char *const model[] = {
	    "eos",     "bos",    "pad",         "unk",         "sep",       "cls",      "mask",   "stop",
	    "start",   "end",    "begin",       "image",       "audio",     "video",    "vision", "speech",
	    "special", "first",  "last",        "next",        "prev",      "previous", "per",    "max",
	    "min",     "think",  "thinking",    "reasoning",   "tool",      "boi",      "eoi",    "bot",
	    "eot",     "eom",    "decoder",     "forced",      "new",       "num",      "number", "total",
	    "input",   "output", "prompt",      "completion",  "cache",     "kv",       "draft",  "spec",
	    "multi",   "single", "speculative", "placeholder", "separator", "newline",  "nl",     "time",
	    "pre",     "sub",    "return",      "by",          "each",      "every",    "skip",   "ignore",
	    "count",   "chunk",  "batch",       "sample",      "logit",     "bad",      "in",     "out",
	    NULL};
	return is_one_of(word, model);
}

static bool is_token(const char *last, const char *before)
{
	static const char *const doors[] = {"api",    "auth",    "access", "bearer", "hf",
					    "secret", "refresh", "admin",  "hub",    NULL};
	size_t size = strlen(last);
	char prefix[NAME_MOST];
	if (!strcmp(last, "tokens"))
		return is_one_of(before, doors);
	if (size < 5 || strcmp(last + size - 5, "token") != 0)
		return false;
	memcpy(prefix, last, size - 5);
	prefix[size - 5] = '\0';
	return !is_model_word(size > 5 ? prefix : before);
}

bool md_secret_is_named(const char *name, size_t size)
{
	static const char *const nouns[] = {"authorization", "bearer",    "cookie",      "jwt",     "creds",
					    "secrets",       "passwords", "passphrases", "apikeys", NULL};
	static const char *const endings[] = {"password",   "passwd",      "passphrase", "passcode", "secret",
					      "credential", "credentials", "apikey",     "authkey",  "accesskey",
					      "secretkey",  "privatekey",  NULL};
	static const char *const key_of[] = {
	    "api",     "access",    "secret", "private",      "auth",         "encryption", "signing",
	    "account", "storage",   "master", "subscription", "license",      "hmac",       "admin",
	    "openai",  "anthropic", "azure",  "shared",       "registration", "webhook",    NULL};
	static const char *const pass_of[] = {"db",    "user",  "http",  "https",    "proxy", "basic", "auth",
					      "key",   "redis", "mysql", "postgres", "pg",    "smtp",  "admin",
					      "login", "root",  "mongo", "ftp",      "ssh",   NULL};
	static const char *const auth_of[] = {"basic", "http", "proxy", "digest", NULL};
	struct words words;
	if (!split(name, size, &words))
		return false;
	drop_qualifiers(&words);
	const char *last = words.word[words.count - 1], *before = words.count > 1 ? words.word[words.count - 2] : "";
	if (is_one_of(last, nouns) || ends_with(last, endings) || is_token(last, before))
		return true;
	if (!strcmp(last, "key") || !strcmp(last, "keys"))
		return is_one_of(before, key_of);
	if (!strcmp(last, "pass") || !strcmp(last, "pwd") || !strcmp(last, "pw"))
		return is_one_of(before, pass_of);
	return !strcmp(last, "auth") && is_one_of(before, auth_of);
}

bool md_secret_is_switch(const char *name, size_t size)
{
	static const char *const verbs[] = {"use", "enable", "disable", "no",    "with", "without", "require", "allow",
					    "has", "is",     "show",    "print", "hide", "verify",  "check",   NULL};
	struct words words;
	return split(name, size, &words) && is_one_of(words.word[0], verbs);
}

/* Beginnings of keys that well-known services give out; what follows is random. */
bool md_secret_is_known(const char *word, size_t size)
{
	static const char *const beginnings[] = {"sk-",         "hf_",    "ghp_",  "gho_",  "ghs_",
						 "github_pat_", "glpat-", "xoxb-", "xoxp-", "AKIA",
						 "AIza",        "nvapi-", "pypi-", "eyJ",   NULL};
	for (const char *const *at = beginnings; *at; at++) {
		size_t length = strlen(*at);
		if (size > length && !strncmp(word, *at, length))
			return md_secret_is_random(word + length, size - length);
	}
	return false;
}

bool md_secret_is_random(const char *word, size_t size)
{
	bool upper = false, lower = false, digit = false;
	for (size_t i = 0; i < size; i++) {
		if (!md_secret_is_name_char(word[i]) || (unsigned char)word[i] >= 0x80)
			return false;
		upper |= is_upper(word[i]);
		lower |= is_lower(word[i]);
		digit |= is_digit(word[i]);
	}
	return size >= 16 && upper && lower && digit;
}
