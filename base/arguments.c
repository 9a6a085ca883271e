/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of arguments: they are kept, compared except for what may vary, and joined to a line. */
#include "base/arguments.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"

bool md_arguments_add(struct md_argument_list *arguments, const char *text)
{
	if (!MD_ARRAY_EXTEND(arguments->items, arguments->count))
		return false;
	arguments->items[arguments->count].text = strdup(text);
	return arguments->items[arguments->count].text && ++arguments->count;
}

bool md_arguments_copy(const struct md_argument_list *from, struct md_argument_list *out)
{
	struct md_argument_list copy = {0};
	bool done = true;
	for (uint32_t i = 0; done && i < from->count; i++)
		done = md_arguments_add(&copy, from->items[i].text);
	if (done)
		*out = copy;
	else
		md_arguments_finish(&copy);
	return done;
}

void md_arguments_finish(struct md_argument_list *arguments)
{
	for (uint32_t i = 0; i < arguments->count; i++)
		free(arguments->items[i].text);
	free(arguments->items);
	*arguments = (struct md_argument_list){0};
}

/* ---- the program and its script ---- */

static const char *file_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static bool is_interpreter(const char *program)
{
	static const char *const names[] = {"python*", "pypy*", "sh", "bash", "dash", "perl*", "ruby*", "node", "lua*"};
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!fnmatch(names[i], file_name(program), 0))
			return true;
	return false;
}

/* `python3 -m module` names no script. */
uint32_t md_arguments_script(const struct md_argument_list *arguments)
{
	if (!arguments->count || !is_interpreter(arguments->items[0].text))
		return 0;
	for (uint32_t i = 1; i < arguments->count; i++) {
		const char *text = arguments->items[i].text;
		if (!strcmp(text, "-X") || !strcmp(text, "-W"))
			i++;
		else if (*text != '-')
			return i;
		else if (!strncmp(text, "--", 2) ||
			 strpbrk(text + 1, "cmeo")) /* after -c, -m, -e and -o comes no script */
			return 0;
	}
	return 0;
}

/* ---- comparing ---- */

static bool fits(const struct md_argument_list *vary, const char *text)
{
	for (uint32_t i = 0; i < vary->count; i++)
		if (!fnmatch(vary->items[i].text, text, 0))
			return true;
	return false;
}

/* How many arguments from here on are not compared: 0, the argument alone (1), or an option with its value (2). */
static uint32_t left_out(const struct md_argument_list *vary, const struct md_argument_list *arguments, uint32_t at)
{
	const char *text = arguments->items[at].text;
	if (fits(vary, text))
		return 1;
	if (!vary->count || *text != '-' || strchr(text, '=') || at + 1 == arguments->count)
		return 0;
	MD_AUTO_FREE char *pair = NULL;
	if (asprintf(&pair, "%s=%s", text, arguments->items[at + 1].text) < 0)
		pair = NULL; /* out of memory: the argument is compared */
	return pair && fits(vary, pair) ? 2 : 0;
}

/* The next argument that is compared, from *at on; NULL at the end. */
static const char *next(const struct md_argument_list *vary, const struct md_argument_list *arguments, uint32_t *at)
{
	uint32_t skip;
	while (*at < arguments->count && (skip = left_out(vary, arguments, *at)))
		*at += skip;
	return *at < arguments->count ? arguments->items[*at].text : NULL;
}

#define SHOWN "%.120s"

static enum md_status differs(const struct md_argument_list *now, uint32_t at, const char *was, const char *is,
			      const char *stored_name, struct md_error *err)
{
	const char *option = at && at < now->count ? now->items[at - 1].text : "";
	bool value = *option == '-' && is && *is != '-' && !strchr(option, '=');
	const char *equals = is && *is == '-' ? strchr(is, '=') : NULL;
	char vary[200];
	if (value)
		snprintf(vary, sizeof(vary), "%.120s=*", option);
	else if (equals)
		snprintf(vary, sizeof(vary), "%.*s=*", equals - is < 120 ? (int)(equals - is) : 120, is);
	else
		snprintf(vary, sizeof(vary), "%.120s", is ? is : was);
	if (!was)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "argument %u is \"" SHOWN
				    "\", %s none there; capture with --vary '%s' if it may vary",
				    at, is, stored_name, vary);
	if (!is)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "argument %u is missing, %s \"" SHOWN "\"; capture with --vary '%s' if it may vary",
				    at, stored_name, was, vary);
	return md_error_set(err, MD_ERR_MISMATCH,
			    "argument %u is \"" SHOWN "\", %s \"" SHOWN "\"; capture with --vary '%s' if it may vary",
			    at, is, stored_name, was, vary);
}

static enum md_status compare_arguments(const struct md_argument_list *stored, const struct md_argument_list *now,
					const struct md_argument_list *vary, const char *stored_name,
					struct md_error *err)
{
	uint32_t script[2] = {md_arguments_script(stored), md_arguments_script(now)};
	for (uint32_t s = 0, n = 0;; s++, n++) {
		const char *was = next(vary, stored, &s), *is = next(vary, now, &n);
		if (!was && !is)
			return MD_OK;
		bool program = s == n && (!s || (s == script[0] && n == script[1]));
		if (!was || !is || strcmp(program ? file_name(was) : was, program ? file_name(is) : is) != 0)
			return differs(now, n, was, is, stored_name, err);
	}
}

/* Takes the text about the program's files (MD_ARGUMENTS_PROGRAM) off the list and returns it; NULL: there is none. */
static const char *take_program(struct md_argument_list *arguments)
{
	const char *last = arguments->count ? arguments->items[arguments->count - 1].text : "";
	if (strncmp(last, MD_ARGUMENTS_PROGRAM, strlen(MD_ARGUMENTS_PROGRAM)) != 0)
		return NULL;
	arguments->count--;
	return last;
}

enum md_status md_arguments_compare(const struct md_argument_list *stored, const struct md_argument_list *now,
				    const struct md_argument_list *vary, const char *stored_name, struct md_error *err)
{
	struct md_argument_list then = *stored, here = *now; /* shallow copies, which are not freed */
	const char *was = take_program(&then), *is = take_program(&here);
	MD_FORWARD(compare_arguments(&then, &here, vary, stored_name, err));
	if ((!was && !is) || (was && is && !strcmp(was, is)) || fits(vary, "program"))
		return MD_OK;
	return md_error_set(err, MD_ERR_MISMATCH,
			    "the program, or the script that it runs, is another file than the one that %s: capture "
			    "again, or capture with --vary program if its graphs do not depend on it",
			    stored_name);
}

/* ---- one line ---- */

char *md_arguments_join(const struct md_argument_list *arguments)
{
	struct md_buf line;
	md_buf_init(&line);
	for (uint32_t i = 0; i < arguments->count; i++) {
		for (const char *c = arguments->items[i].text; *c; c++) {
			if (*c == '\n' || *c == '\\')
				md_buf_put_u8(&line, '\\');
			md_buf_put_u8(&line, *c == '\n' ? 'n' : (uint8_t)*c);
		}
		md_buf_put_u8(&line, '\n');
	}
	md_buf_put_u8(&line, 0);
	if (line.failed) {
		md_buf_finish(&line);
		return NULL;
	}
	return (char *)line.data;
}

bool md_arguments_split(const char *line, struct md_argument_list *out)
{
	struct md_argument_list list = {0};
	MD_AUTO_FREE char *text = malloc(strlen(line) + 1);
	bool done = text != NULL;
	size_t size = 0;
	for (const char *c = line; done && *c; c++) {
		if (*c == '\n') {
			text[size] = 0;
			size = 0;
			done = md_arguments_add(&list, text);
		} else {
			bool escaped = *c == '\\' && c[1];
			c += escaped;
			text[size++] = escaped && *c == 'n' ? '\n' : *c;
		}
	}
	if (done)
		*out = list;
	else
		md_arguments_finish(&list);
	return done;
}
