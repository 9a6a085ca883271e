/* SPDX-License-Identifier: Apache-2.0 */
/* Running a command: exit codes as in a shell, settings that arrive, and failures to start that are told apart. */
#include "tools/run.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int exit_code_of(const char *script)
{
	char *argv[] = {"sh", "-c", (char *)script, NULL};
	const char *const env[] = {"MEDUSA_TEST=some value"};
	struct md_run run = {.env = env, .env_count = 1, .argv = argv};
	struct md_error err = {0};
	int code = -1;
	cr_assert_eq(md_run_child(&run, &code, &err), MD_OK, "%s", err.message);
	return code;
}

Test(run, exit_codes)
{
	cr_assert_eq(exit_code_of("exit 0"), 0);
	cr_assert_eq(exit_code_of("exit 77"), 77);
	cr_assert_eq(exit_code_of("kill -KILL $$"), 128 + SIGKILL);
	cr_assert_eq(exit_code_of("test \"$MEDUSA_TEST\" = 'some value'"), 0);
	cr_assert_null(getenv("MEDUSA_TEST"), "only the command gets the settings");
}

Test(run, output_goes_where_it_is_told)
{
	char *argv[] = {"sh", "-c", "echo said", NULL};
	struct md_run run = {.argv = argv};
	struct md_error err = {0};
	char text[16] = {0};
	int ends[2], code = -1;
	cr_assert_eq(pipe(ends), 0);
	cr_assert_eq(md_run_child_output(&run, ends[1], &code, &err), MD_OK, "%s", err.message);
	cr_assert_eq(read(ends[0], text, sizeof(text) - 1), 5);
	cr_assert_str_eq(text, "said\n");
	cr_assert_eq(code, 0);
}

/* The command signals us; we pass it on, and outlive it. */
Test(run, signals_are_passed_on)
{
	cr_assert_eq(exit_code_of("trap 'exit 9' TERM; kill -TERM $PPID; while :; do sleep 0.05; done"), 9);
}

Test(run, command_that_is_not_there)
{
	char *argv[] = {"/nonexistent/engine", NULL};
	struct md_run run = {.argv = argv};
	struct md_error err = {0};
	int code = -1;
	cr_assert_eq(md_run_child(&run, &code, &err), MD_ERR_NOT_FOUND);
	cr_assert_not_null(strstr(err.message, "/nonexistent/engine"), "%s", err.message);
	cr_assert_eq(code, -1);
	argv[0] = "/etc/passwd";
	cr_assert_eq(md_run_child(&run, &code, &err), MD_ERR_IO, "no permission to run it");
}

Test(run, library_that_is_not_there)
{
	char *argv[] = {"true", NULL};
	struct md_run run = {.preload = "libmedusa-nothing.so", .argv = argv};
	struct md_error err = {0};
	int code = -1;
	cr_assert_eq(md_run_child(&run, &code, &err), MD_ERR_NOT_FOUND);
	cr_assert_not_null(strstr(err.message, "libmedusa-nothing.so"), "%s", err.message);
}
