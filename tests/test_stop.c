/* SPDX-License-Identifier: Apache-2.0 */
/* A command that is told to end removes what it has made, and ends with 128 and the signal's number. */
#include "tools/stop.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/folder.h"
#include "tools/run.h"

static char folder[64], file[96];

/* In a child: what is between two runs of an engine. */
static void work(int ready)
{
	int fd = open(file, O_WRONLY | O_CREAT, 0600);
	md_stop_watch();
	md_stop_remove(folder);
	md_stop_remove(file);
	if (fd < 0 || write(ready, "x", 1) != 1)
		_exit(99);
	for (;;)
		pause();
}

static int status_after(int number)
{
	char byte;
	int ends[2], status = -1;
	snprintf(folder, sizeof(folder), "/tmp/medusa-test-XXXXXX");
	cr_assert_not_null(mkdtemp(folder));
	snprintf(file, sizeof(file), "%s/file", folder);
	cr_assert_eq(pipe(ends), 0);
	pid_t child = fork();
	if (!child)
		work(ends[1]);
	cr_assert_eq(read(ends[0], &byte, 1), 1);
	kill(child, number);
	cr_assert_eq(waitpid(child, &status, 0), child);
	close(ends[0]);
	close(ends[1]);
	return status;
}

Test(stop, what_was_made_is_removed)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		int status = status_after(numbers[i]);
		cr_assert(WIFEXITED(status), "signal %d", numbers[i]);
		cr_assert_eq(WEXITSTATUS(status), 128 + numbers[i]);
		cr_assert_neq(access(folder, F_OK), 0, "%s is left", folder);
	}
}

Test(stop, what_was_ignored_stays_so)
{
	signal(SIGHUP, SIG_IGN);
	cr_assert(md_stop_watch());
	cr_assert(!md_stop_watch(), "once");
	raise(SIGHUP);
	raise(SIGPIPE);
	md_stop_unwatch();
	struct sigaction now;
	sigaction(SIGPIPE, NULL, &now);
	cr_assert_eq(now.sa_handler, SIG_DFL, "messages into a closed pipe end a command that does not watch");
	sigaction(SIGHUP, NULL, &now);
	cr_assert_eq(now.sa_handler, SIG_IGN);
}

/* An engine that nobody waits for makes its file once more, each time before the folder would go. */
static bool made_again;

int rmdir(const char *path)
{
	int fd = made_again ? open(file, O_WRONLY | O_CREAT, 0600) : -1;
	if (fd >= 0)
		close(fd);
	return (int)syscall(SYS_rmdir, path);
}

Test(stop, a_folder_goes_although_its_files_come_back)
{
	snprintf(folder, sizeof(folder), "/tmp/medusa-test-XXXXXX");
	cr_assert_not_null(mkdtemp(folder));
	snprintf(file, sizeof(file), "%s/file", folder);
	made_again = true;
	bool removed = md_folder_remove(folder), there = !access(folder, F_OK);
	made_again = false;
	md_folder_remove(folder);
	cr_assert(removed && !there, "%s, %s", removed ? "removed" : "left", folder);
}

Test(stop, what_was_left_half_way_goes_too)
{
	char gone[80];
	snprintf(folder, sizeof(folder), "/tmp/medusa-test-XXXXXX");
	cr_assert_not_null(mkdtemp(folder));
	snprintf(gone, sizeof(gone), "%s" MD_FOLDER_GONE, folder);
	cr_assert_eq(rename(folder, gone), 0);
	snprintf(file, sizeof(file), "%s/file", gone);
	close(open(file, O_WRONLY | O_CREAT, 0600));
	cr_assert(md_folder_remove(folder));
	cr_assert_neq(access(gone, F_OK), 0, "%s is left", gone);
	cr_assert(md_folder_remove(folder), "nothing is there, which is right");
}

/* The child has the signals as they were, and what ends it is known afterwards. */
Test(stop, a_signal_while_a_child_runs_is_kept)
{
	char *argv[] = {"sh", "-c", "kill -TERM $PPID; kill -PIPE $$; sleep 10", NULL};
	struct md_run run = {.argv = argv};
	struct md_error err = {0};
	int code = -1;
	md_stop_watch();
	cr_assert_eq(md_run_child(&run, &code, &err), MD_OK, "%s", err.message);
	cr_assert(code == 128 + SIGPIPE || code == 128 + SIGTERM, "exit code %d", code);
	cr_assert_eq(md_stop_signal(), SIGTERM);
	cr_assert(!md_stop_came_from_terminal());
	md_stop_forget();
	cr_assert_eq(md_stop_signal(), 0);
	md_stop_unwatch();
}
