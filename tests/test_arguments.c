/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of two starts: equal but for what may vary, and what is said of the first that is not. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/arguments.h"

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

struct pair_case {
	const char *stored, *now, *vary, *says; /* says NULL: they are equal */
};

static const struct pair_case cases[] = {
    {"e|a|b", "e|a|b", "", NULL},
    {"e|a|b", "e|a|c", "", "argument 2 is \"c\", the other has \"b\"; capture with --vary 'c' if it may vary"},
    {"e|a", "e|a|", "", "argument 2 is \"\", the other has none there"},
    {"e|a|b", "e|a", "", "argument 2 is missing, the other has \"b\""},
    {"e", "e|7", "", "argument 1 is \"7\", the other has none there"},
    /* the program, and the script of an interpreter, by another path */
    {"./e|a", "/opt/bin/e|a", "", NULL},
    {"./e|a", "/opt/bin/f|a", "", "argument 0 is \"/opt/bin/f\", the other has \"./e\""},
    {"e|./a", "e|/opt/a", "", "argument 1"},
    {"python3|serve.py|x", "/usr/bin/python3|/app/serve.py|x", "", NULL},
    {"python3|-u|-X|dev|serve.py|m/x", "python3|-u|-X|dev|a/serve.py|m/x", "", NULL},
    {"python3|serve.py|m/x", "python3|serve.py|n/x", "", "argument 2"},
    {"python3|-m|serve|m/x", "python3|-m|serve|n/x", "", "argument 3"},
    {"python3|-m|a/serve", "python3|-m|b/serve", "", "argument 2"},
    {"python3|-c|a/x", "python3|-c|b/x", "", "argument 2"},
    {"python3|serve.py", "python3.12|serve.py", "", "argument 0"},
    /* what may vary: as one argument, or as an option and its value */
    {"e|--port=1|a", "e|--port=2|a", "--port=*", NULL},
    {"e|--port|1|a", "e|--port|2|a", "--port=*", NULL},
    {"e|--port|1|a", "e|a|--port=2", "--port=*", NULL},
    {"e|a", "e|--port|2|a", "--port=*", NULL},
    {"e|--port|1|a", "e|--port|2|a", "--port", "argument 2 is \"2\""},
    {"e|--port|1|a", "e|--port|1|b", "--port=*", "argument 3 is \"b\""},
    {"e|--port|1", "e|--port", "--port=*", "argument 1 is \"--port\""},
    {"e|-v|a", "e|a", "-v", NULL},
    {"e|x.log", "e", "*.log", NULL},
    {"e|port|1", "e|port|2", "port=*", "argument 2"}, /* no option */
    {"e|--a|--b=1", "e|--a|--b=2", "--b=*", NULL},
    {"e|1|2|3", "f|4", "*", NULL},
    /* what to say */
    {"e|--port=1", "e|--port=2", "", "--vary '--port=*'"},
    {"e|--port|1", "e|--port|2", "", "--vary '--port=*'"},
};

Test(arguments, compared_but_for_what_may_vary)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct md_argument_list stored = list_of(cases[i].stored), now = list_of(cases[i].now);
		struct md_argument_list vary = list_of(cases[i].vary);
		struct md_error err = {0};
		enum md_status status = md_arguments_compare(&stored, &now, &vary, "the other has", &err);
		cr_assert(!cases[i].says == (status == MD_OK), "case %zu (%s, %s): %s", i, cases[i].stored,
			  cases[i].now, err.message);
		cr_assert(!cases[i].says || strstr(err.message, cases[i].says), "case %zu says: %s", i, err.message);
		md_arguments_finish(&stored);
		md_arguments_finish(&now);
		md_arguments_finish(&vary);
	}
}

Test(arguments, a_line_holds_any_of_them)
{
	static const char *const texts[] = {"e", "", "a b", "\n", "\\n", "\\", "\x01\xff", "x\n"};
	struct md_argument_list list = {0}, back = {0};
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		cr_assert(md_arguments_add(&list, texts[i]), "memory");
	char *line = md_arguments_join(&list);
	cr_assert(line && md_arguments_split(line, &back), "memory");
	cr_assert_eq(back.count, list.count, "of %s", line);
	for (uint32_t i = 0; i < back.count; i++)
		cr_assert_str_eq(back.items[i].text, texts[i], "number %u", i);
	free(line);
	md_arguments_finish(&list);
	md_arguments_finish(&back);
}
