/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets in arguments and command lines: which names have them, how far they go, and what must stay. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/secret.h"
#include "base/secret_name.h"

static const char *const named[] = {
    "--api-key",
    "api_key",
    "apiKey",
    "APIKey",
    "VLLM_API_KEY",
    "--api-keys",
    "--hf-token",
    "HF_TOKEN",
    "--token",
    "TOKEN",
    "hfToken",
    "authtoken",
    "--auth-token",
    "GITHUB_TOKEN",
    "AWS_SESSION_TOKEN",
    "--api-tokens",
    "--password",
    "PGPASSWORD",
    "db.password",
    "DB_PASS",
    "MYSQL_PWD",
    "--passphrase",
    "client_secret",
    "clientSecret",
    "secrets",
    "X-Api-Key",
    "Authorization",
    "--bearer",
    "credentials",
    "--private-key",
    "SECRET_KEY_2",
    "password1",
    "token_value",
    "api-key-old",
    "AWS_SECRET_ACCESS_KEY",
    "--ssl-keyfile-password",
    "HUGGING_FACE_HUB_TOKEN",
    "--basic-auth",
    "--schl\xc3\xbcssel-token",
};

static const char *const plain[] = {
    "--max-tokens",
    "--token-count",
    "--tokens",
    "--num-tokens",
    "--tokenizer",
    "--tokenizer-mode",
    "--eos-token",
    "--eos-token-id",
    "--pad_token",
    "eosToken",
    "--max-token",
    "--stop-token",
    "--image-token",
    "--max-num-batched-tokens",
    "--api-key-file",
    "--hf-token-file",
    "--ssl-keyfile",
    "--secrets-dir",
    "--key",
    "--cache-key",
    "--sort-key",
    "PWD",
    "OLDPWD",
    "--pass",
    "--passes",
    "--author",
    "--compass",
    "SSH_AUTH_SOCK",
    "AWS_ACCESS_KEY_ID",
    "--",
    "-",
    "",
    "--password-length",
    "--token-ids",
    "--keys",
    "--secretary",
    "--monkey",
    "--auth-type",
    "--first-token",
    "tokens_per_second",
};

Test(secret, names_that_say_so_and_names_that_do_not)
{
	for (size_t i = 0; i < sizeof(named) / sizeof(*named); i++)
		cr_assert(md_secret_is_named(named[i], strlen(named[i])), "%s is a secret's", named[i]);
	for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++)
		cr_assert_not(md_secret_is_named(plain[i], strlen(plain[i])), "%s is none", plain[i]);
}

struct line_case {
	const char *line, *shown; /* shown NULL: as it is */
};

#define X MD_SECRET_SHOWN

static const struct line_case lines[] = {
    {"serve --api-key sk-1 --port 1", "serve --api-key " X " --port 1"},
    {"serve --api-key=sk-1 --port 1", "serve --api-key=" X " --port 1"},
    {"serve --api-key 'a b' --port 1", "serve --api-key '" X "' --port 1"},
    {"serve '--api-key' \"a b\" x", "serve '--api-key' \"" X "\" x"},
    {"serve --api-key \"a\"'b'c x", "serve --api-key " X " x"},
    {"serve --api-key a,b;c x", "serve --api-key " X ";c x"},
    {"serve --api-key a\\ b x", "serve --api-key " X " x"},
    {"serve --api-key", NULL},
    {"serve --api-key --port 1", NULL},
    {"serve --api-key\t\n k", "serve --api-key\t\n " X},
    {"serve --api-key -Zk3_bbbbbbbbbbbbbbbb x", "serve --api-key " X " x"},
    {"HF_TOKEN=hf_1 exec vllm", "HF_TOKEN=" X " exec vllm"},
    {"export HF_TOKEN='x y'; run", "export HF_TOKEN='" X "'; run"},
    {"HF_TOKEN= run", "HF_TOKEN=" X " run"},
    {"-H 'Authorization: Bearer abc' x", "-H 'Authorization: " X "' x"},
    {"Authorization: Basic dTpw", "Authorization: " X},
    {"curl -H X-Api-Key:abc", "curl -H X-Api-Key:" X},
    {"{\"token\": \"a\\\"b\", \"x\": 1}", "{\"token\": \"" X "\", \"x\": 1}"},
    {"{\"api_keys\": [\"a\", \"]b\"], \"x\": 1}", "{\"api_keys\": " X ", \"x\": 1}"},
    {"{\\\"token\\\": \\\"ab\\\", \\\"x\\\": 1}", "{\\\"token\\\": \\\"" X "\\\", \\\"x\\\": 1}"},
    {"os.environ['HF_TOKEN'] = 'x'; go()", "os.environ['HF_TOKEN'] = '" X "'; go()"},
    {"login(token=\"x\", n=2)", "login(token=" X " n=2)"},
    {"{token: abc, x: 1}", "{token: " X ", x: 1}"},
    {"token = tokenizer(x)", NULL},
    {"if token == 3", NULL},
    {"http://u:p@h:1/x", "http://" X "@h:1/x"},
    {"redis://:p@h", "redis://" X "@h"},
    {"https://ghp_x@h/y and x@y", "https://" X "@h/y and x@y"},
    {"mongodb://u:p@q@h,i/x", "mongodb://" X "@h,i/x"},
    {"http://h/u:p@x", NULL},
    {"https://h/x?key=a&n=1", "https://h/x?key=" X "&n=1"},
    {"https://h/x?n=1&sig=a%20b#c", "https://h/x?n=1&sig=" X "#c"},
    {"https://h/x?api_key=a,b&n=1", "https://h/x?api_key=" X "&n=1"},
    {"x sk-proj-Ab1dEfGhIjKlMnOp y", "x " X " y"},
    {"/models/hf_Ab1dEfGhIjKlMnOpQ", NULL},
    {"hf_llama_7b_instruct_v2_chat", NULL},
    {"--max-tokens 5 --token-count 5 --eos-token '</s>'", NULL},
    {"--use-auth-token model/a", NULL},
    {"--use-auth-token Abc1_bbbbbbbbbbbbbbbb", "--use-auth-token " X},
    {"\xc3\xa9 --api-key \xe2\x82\xac x", "\xc3\xa9 --api-key " X " x"},
    {"KEYS_SECRET=[a]b c", "KEYS_SECRET=" X "b c"},
    {"a \"unclosed --api-key 'b c", "a \"unclosed --api-key '" X},
    {"", NULL},
};

static void assert_line(const char *line, const char *shown)
{
	char *once = md_secret_hide_line(line), *twice = once ? md_secret_hide_line(once) : NULL;
	cr_assert(once && twice, "memory");
	cr_assert_str_eq(once, shown, "of %s", line);
	cr_assert_str_eq(twice, shown, "again, of %s", line);
	free(once);
	free(twice);
}

Test(secret, lines)
{
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
		assert_line(lines[i].line, lines[i].shown ? lines[i].shown : lines[i].line);
}

/* Words parted by a bar. */
static struct md_argument_list list_of(const char *words)
{
	struct md_argument_list list = {0};
	char copy[256], *rest = copy, *word;
	snprintf(copy, sizeof(copy), "%s", words);
	while (*words && (word = strsep(&rest, "|")))
		cr_assert(md_arguments_add(&list, word), "memory");
	return list;
}

static void join(const struct md_argument_list *list, char *out, size_t room)
{
	*out = '\0';
	for (uint32_t i = 0; i < list->count; i++) {
		size_t used = strlen(out);
		snprintf(out + used, room - used, "%s%s", i ? "|" : "", list->items[i].text);
	}
}

static const struct line_case arguments[] = {
    {"e|--api-key|sk-1|a", "e|--api-key|" X "|a"},
    {"e|--api-key=sk 1|a", "e|--api-key=" X "|a"},
    {"e|--api-key", NULL},
    {"e|--api-key|(program: 12)", NULL},
    {"e|--api-key|--port|1", NULL},
    {"e|--api-key|", NULL},
    {"e|--token-count|5|--max-tokens|7", NULL},
    {"e|-e|HF_TOKEN=a b", "e|-e|HF_TOKEN=" X},
    {"e|--env=HF_TOKEN=a b", "e|--env=HF_TOKEN=" X},
    {"e|--header=Authorization: Bearer a", "e|--header=Authorization: " X},
    {"e|--from=http://u:p@h/", "e|--from=http://" X "@h/"},
    {"e|--config|{\"password\": \"x\"}", "e|--config|{\"password\": \"" X "\"}"},
    {"sh|-c|HF_TOKEN=a exec e --api-key b --port 1", "sh|-c|HF_TOKEN=" X " exec e --api-key " X " --port 1"},
    {"e|--api-key|a|b", "e|--api-key|" X "|b"},
    {"/usr/bin/python3|/usr/bin/vllm|serve|m|--api-key|a|b|--port|1",
     "/usr/bin/python3|/usr/bin/vllm|serve|m|--api-key|" X "|--port|1"},
    {"python3|-m|vllm.entrypoints.openai.api_server|--api-key|a|b|(program: 1)",
     "python3|-m|vllm.entrypoints.openai.api_server|--api-key|" X "|(program: 1)"},
    {"--api-key|a", NULL}, /* a program of that name */
    {"e|--use-auth-token|m", NULL},
    {"e|--use-auth-token=x", "e|--use-auth-token=" X},
};

Test(secret, lists_of_arguments)
{
	for (size_t i = 0; i < sizeof(arguments) / sizeof(*arguments); i++) {
		struct md_argument_list list = list_of(arguments[i].line);
		const char *shown = arguments[i].shown ? arguments[i].shown : arguments[i].line;
		char text[512];
		for (int time = 0; time < 2; time++) {
			cr_assert(md_secret_hide_arguments(&list), "memory");
			join(&list, text, sizeof(text));
			cr_assert_str_eq(text, shown, "time %d, of %s", time, arguments[i].line);
		}
		md_arguments_finish(&list);
	}
}

Test(secret, patterns_stand_alone)
{
	struct md_argument_list list = list_of("--api-key|program|--api-key=sk-*|--port=*");
	char text[128];
	cr_assert(md_secret_hide_patterns(&list), "memory");
	join(&list, text, sizeof(text));
	cr_assert_str_eq(text, "--api-key|program|--api-key=" X "|--port=*", "patterns");
	md_arguments_finish(&list);
}

Test(secret, another_secret_makes_no_difference_and_another_argument_does)
{
	static const char *const pairs[][3] = {
	    {"e|--api-key|a|--port|1", "e|--api-key|b|--port|1", "same"},
	    {"e|--api-key|a|--port|1", "e|--api-key|b|--port|2", "differ"},
	    {"e|--api-key|a|m1", "e|--api-key|b|m2", "differ"},
	    {"e|--token-count|5", "e|--token-count|6", "differ"},
	    {"e|--eos-token|5", "e|--eos-token|6", "differ"},
	    {"e|--api-key|a", "e", "differ"},
	};
	for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
		struct md_argument_list one = list_of(pairs[i][0]), other = list_of(pairs[i][1]), vary = {0};
		struct md_error err = {0};
		cr_assert(md_secret_hide_arguments(&one) && md_secret_hide_arguments(&other), "memory");
		bool same = md_arguments_compare(&one, &other, &vary, "the other has", &err) == MD_OK;
		cr_assert_eq(same, !strcmp(pairs[i][2], "same"), "%s and %s", pairs[i][0], pairs[i][1]);
		md_arguments_finish(&one);
		md_arguments_finish(&other);
	}
}
