/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines: options before and after files, the engine's own options untouched, mistakes named. */
#include "tools/options.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <string.h>

static const char *output;
static bool quick;

static const struct md_option options[] = {
    {.name = "output", .letter = 'o', .argument = "FILE", .help = "Where to.", .value = &output},
    {.name = "quick", .help = "Be quick.", .flag = &quick},
};

static const struct md_command command = {
    .name = "medusa-test", .usage = "X [OPTION...] -- CMD", .summary = "Tests.", .options = options, .option_count = 2};

static int parse(char *line, struct md_arguments *arguments)
{
	static char *argv[32];
	int argc = 0;
	for (char *word = strtok(line, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	argv[argc] = NULL;
	return md_options_parse(&command, argc, argv, arguments);
}

Test(options, anywhere_before_the_dashes)
{
	char line[] = "medusa-test a --quick b -o out.x c -- engine --output theirs -- more";
	struct md_arguments arguments;
	cr_assert_eq(parse(line, &arguments), -1);
	cr_assert(quick);
	cr_assert_str_eq(output, "out.x");
	cr_assert_eq(arguments.file_count, 3);
	cr_assert_str_eq(arguments.files[2], "c");
	cr_assert_null(arguments.files[3]);
	cr_assert_str_eq(arguments.command[0], "engine");
	cr_assert_str_eq(arguments.command[2], "theirs");
	cr_assert_str_eq(arguments.command[3], "--");
}

Test(options, no_command)
{
	char line[] = "medusa-test --output=x";
	struct md_arguments arguments;
	cr_assert_eq(parse(line, &arguments), -1);
	cr_assert_str_eq(output, "x");
	cr_assert_eq(arguments.file_count, 0);
	cr_assert_null(arguments.command);
}

static void assert_usage_error(const char *text, const char *message)
{
	char line[256], said[2048];
	struct md_arguments arguments;
	FILE *from;
	size_t size;
	snprintf(line, sizeof(line), "%s", text);
	cr_assert_eq(parse(line, &arguments), MD_EXIT_USAGE, "%s", text);
	fflush(stderr);
	from = cr_get_redirected_stderr();
	size = fread(said, 1, sizeof(said) - 1, from);
	said[size] = '\0';
	cr_assert_not_null(strstr(said, message), "\"%s\" is not in \"%s\"", message, said);
	cr_assert_not_null(strstr(said, "--help"));
}

Test(options, unknown_long, .init = cr_redirect_stderr)
{
	assert_usage_error("medusa-test --quack", "unknown option --quack");
}

Test(options, unknown_letter, .init = cr_redirect_stderr)
{
	assert_usage_error("medusa-test -q", "unknown option -q");
}

Test(options, missing_value, .init = cr_redirect_stderr)
{
	assert_usage_error("medusa-test --output", "--output needs a value");
}

Test(options, missing_command, .init = cr_redirect_stderr)
{
	assert_usage_error("medusa-test x --", "after -- is missing");
}

Test(options, help_is_on_stdout, .init = cr_redirect_stdout)
{
	char line[] = "medusa-test --help";
	struct md_arguments arguments;
	char said[2048];
	size_t size;
	cr_assert_eq(parse(line, &arguments), MD_EXIT_OK);
	fflush(stdout);
	size = fread(said, 1, sizeof(said) - 1, cr_get_redirected_stdout());
	said[size] = '\0';
	cr_assert_not_null(strstr(said, "-o, --output FILE"), "%s", said);
	cr_assert_not_null(strstr(said, "5  nothing to do"), "%s", said);
}
