/* SPDX-License-Identifier: Apache-2.0 */
/* Running a command: exit codes as in a shell, settings that arrive, and failures to start that are told apart. */
#include "tools/run.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
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

/* ---- a run that takes too long ---- */

static unsigned looked, late_calls;
static bool is_late;

static void look(void *user)
{
	(void)user;
	looked++;
}

static void say_late(void *user)
{
	cr_assert(!is_late && !kill(*(pid_t *)user, 0), "everything still runs");
	late_calls++;
}

static enum md_run_left never_over(void *user, pid_t *pid)
{
	(void)user;
	*pid = 0;
	return MD_RUN_AT_WORK;
}

static int run_for(const char *script, uint64_t limit_ns, pid_t *seen)
{
	char *argv[] = {"sh", "-c", (char *)script, NULL};
	struct md_run run = {.argv = argv,
			     .limit_ns = limit_ns,
			     .look = look,
			     .late = say_late,
			     .is_late = &is_late,
			     .left = never_over,
			     .user = seen};
	struct md_error err = {0};
	int code = -1;
	cr_assert_eq(md_run_child(&run, &code, &err), MD_OK, "%s", err.message);
	return code;
}

Test(run, one_that_takes_too_long_is_ended)
{
	pid_t here = getpid();
	cr_assert_eq(run_for("sleep 1000", 100000000, &here), 128 + SIGTERM);
	cr_assert(is_late && late_calls == 1 && looked > 0);
}

Test(run, one_that_ends_in_time_is_not_late)
{
	pid_t here = getpid();
	cr_assert_eq(run_for("exit 3", 100000000000, &here), 3);
	cr_assert(!is_late && !late_calls);
	cr_assert_eq(run_for("sleep 0.2", 0, &here), 0, "0 is no limit");
	cr_assert(!is_late && !late_calls && looked > 0);
}

/* In a session of its own, so that only what it was started by tells whose it is. */
Test(run, a_daemon_that_takes_too_long_is_ended, .timeout = 60)
{
	char path[] = "/tmp/medusa-run-XXXXXX", script[200];
	pid_t here = getpid(), daemon = 0;
	int fd = mkstemp(path);
	snprintf(script, sizeof(script), "setsid sh -c 'echo $$ >%s; exec sleep 1000' & sleep 0.2", path);
	cr_assert_eq(run_for(script, 3000000000, &here), 0, "the command itself has ended well");
	cr_assert(is_late && late_calls == 1);
	FILE *in = fdopen(fd, "r");
	cr_assert(in && fscanf(in, "%d", &daemon) == 1 && daemon > 1);
	cr_assert(kill(daemon, 0) != 0, "process %d goes on", (int)daemon);
	fclose(in);
	unlink(path);
}
