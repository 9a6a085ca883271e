/* SPDX-License-Identifier: Apache-2.0 */
/* Children of every kind: which of them are copies, and what is renewed in those, and how often. */
#include <criterion/criterion.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"

static int renewed;

static void renew(void)
{
	renewed++;
}

__attribute__((constructor)) static void begin(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}

static pid_t clone_raw(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static int ended_with(pid_t child)
{
	int status = 0;
	cr_assert(waitpid(child, &status, 0) == child && WIFEXITED(status), "a child ends by itself");
	return WEXITSTATUS(status);
}

/* How often a child has renewed after it was made, and after each of two checks: three digits. */
static int count(int before)
{
	int made = renewed - before;
	md_child_check();
	int first = renewed - before;
	md_child_check();
	return 100 * made + 10 * first + renewed - before;
}

Test(child, renews_once_however_it_was_made)
{
	md_child_check();
	int before = renewed;
	pid_t child = fork();
	if (!child)
		_exit(count(before));
	cr_assert_eq(ended_with(child), 111, "fork() tells");
	child = clone_raw();
	if (!child)
		_exit(count(before));
	cr_assert_eq(ended_with(child), 11, "a system call does not, and the check notices");
	md_child_check();
	cr_assert_eq(renewed, before, "in the parent nothing is renewed");
}

Test(child, is_noticed_in_each_generation)
{
	md_child_check();
	int before = renewed;
	pid_t child = clone_raw();
	if (!child) {
		md_child_check();
		pid_t grandchild = clone_raw();
		if (!grandchild)
			_exit(count(before + 1));
		_exit(ended_with(grandchild));
	}
	cr_assert_eq(ended_with(child), 11);
}

Test(child, of_vfork_is_no_copy)
{
	md_child_check();
	int before = renewed;
	pid_t child = vfork();
	if (!child) {
		md_child_check();
		_exit(0);
	}
	cr_assert_eq(ended_with(child), 0);
	cr_assert_eq(renewed, before, "it shares the memory, and with it locks that are held");
}
