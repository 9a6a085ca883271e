/* SPDX-License-Identifier: Apache-2.0 */
/* Where a command works on an output: whoever is killed at any call leaves nothing that the next one
 * does not remove. */
#include "tools/workplace.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* From now on this process is killed at its first call of that number. */
static void be_killed_at(unsigned number)
{
	struct sock_filter filter[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(77);
}

/* True if the process was killed, false if it makes no such call. */
static bool killed_at(const char *output, unsigned number)
{
	struct md_workplace place;
	struct md_error err = {0};
	int status = 0;
	pid_t child = fork();
	if (!child) {
		be_killed_at(number);
		_exit(md_workplace_open(output, &place, &err) == MD_OK ? 0 : 1);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFSIGNALED(status) || WEXITSTATUS(status) == 0, "call %u: status %#x", number, (unsigned)status);
	return WIFSIGNALED(status);
}

static unsigned files_in(const char *folder)
{
	unsigned count = 0;
	DIR *entries = opendir(folder);
	cr_assert_not_null(entries);
	for (const struct dirent *entry; (entry = readdir(entries));)
		count += entry->d_name[0] != '.';
	closedir(entries);
	return count;
}

Test(workplace, what_a_killed_process_has_left_is_removed_by_the_next_one)
{
	static const unsigned calls[] = {SYS_getrandom, SYS_ftruncate, SYS_pwrite64,  SYS_fcntl, SYS_rt_sigprocmask,
#ifdef SYS_mkdir
					 SYS_mkdir,
#endif
#ifdef SYS_chmod
					 SYS_chmod,
#endif
					 SYS_mkdirat,   SYS_fchmodat,  SYS_exit_group};
	char folder[] = "/tmp/medusa-test-XXXXXX", output[64];
	unsigned killed = 0;
	cr_assert_not_null(mkdtemp(folder));
	snprintf(output, sizeof(output), "%s/x.medusa", folder);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct md_workplace place;
		struct md_error err = {0};
		killed += killed_at(output, calls[i]);
		cr_assert(md_workplace_open(output, &place, &err) == MD_OK, "%s", err.message);
		md_workplace_close(&place);
		cr_assert_eq(files_in(folder), 0, "killed at call %u, it has left something", calls[i]);
	}
	cr_assert_gt(killed, 4, "it was killed at %u calls alone", killed);
	cr_assert_eq(rmdir(folder), 0);
}
