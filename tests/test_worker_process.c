/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of engines: what counts as their end. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <dlfcn.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/engine/process.h"
#include "worker/engine/process_facts.h"

#define LARGE (256u << 20) /* bytes, whose return to the system takes some milliseconds */

static bool loop_runs, loop_searched; /* all processes were listed by the thread of the loop */
static bool searched;                 /* by any */

/* In the place of the C library's: whoever looks at all processes calls it. */
DIR *opendir(const char *path)
{
	DIR *(*real)(const char *) = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");
	if (!strcmp(path, "/proc") && loop_runs) {
		__atomic_store_n(&searched, true, __ATOMIC_SEQ_CST);
		if (syscall(SYS_gettid) == getpid())
			loop_searched = true;
	}
	return real(path);
}

/* A parent that waits for none of its children, with a group of two: its first process, and a large one. */
struct family {
	pid_t parent, first, large;
};

static void *wait_for_ever(void *argument)
{
	for (;;)
		pause();
	return argument;
}

static pid_t begin_member(pid_t group, bool large)
{
	int told[2];
	char byte = 0;
	cr_assert_eq(pipe(told), 0);
	pid_t pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setpgid(0, group);
		void *bytes = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (large && bytes != MAP_FAILED)
			memset(bytes, 1, LARGE);
		if (write(told[1], &byte, 1) == 1)
			wait_for_ever(NULL);
		_exit(1);
	}
	close(told[1]);
	if (pid < 0 || read(told[0], &byte, 1) != 1)
		_exit(1);
	close(told[0]);
	return pid;
}

static struct family begin_family(void)
{
	struct family family = {0};
	int told[2];
	cr_assert_eq(pipe(told), 0);
	family.parent = fork();
	if (!family.parent) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		family.first = begin_member(0, false);
		family.large = begin_member(family.first, true);
		if (write(told[1], &family, sizeof(family)) == sizeof(family))
			wait_for_ever(NULL);
		_exit(1);
	}
	close(told[1]);
	pid_t parent = family.parent;
	cr_assert_eq(read(told[0], &family, sizeof(family)), (ssize_t)sizeof(family), "the family has not begun");
	close(told[0]);
	family.parent = parent;
	return family;
}

static void end_family(const struct family *family)
{
	kill(-family->first, SIGKILL);
	kill(family->parent, SIGKILL);
	waitpid(family->parent, NULL, 0);
}

/* ---- what counts as the end of an engine that an earlier daemon has started ---- */

struct end {
	struct event_base *base;
	pid_t group;
	int count;
	bool lives; /* something of the group, when the end was told */
};

static void on_ended(void *context, int status)
{
	struct end *end = context;
	cr_expect_eq(status, MD_ENGINE_STATUS_UNKNOWN);
	end->count++;
	loop_runs = false;
	end->lives = md_process_group_lives(end->group);
	event_base_loopbreak(end->base);
}

static void on_late(evutil_socket_t fd, short what, void *context)
{
	(void)fd, (void)what;
	event_base_loopbreak(context);
}

Test(worker_process, one_that_was_adopted_has_ended_when_nothing_of_its_group_lives)
{
	struct family family = begin_family();
	struct event_base *base = event_base_new();
	struct md_engine_processes *processes = md_engine_processes_create(base, NULL);
	struct md_engine_process *process = NULL;
	struct event *late = evtimer_new(base, on_late, base);
	struct end end = {.base = base, .group = family.first};
	struct md_error err = {0};
	cr_assert(processes && late);
	cr_assert_eq(md_engine_process_adopt(processes, family.first, md_process_open(family.first), on_ended, &end,
					     &process, &err),
		     MD_OK, "%s", err.message);
	event_add(late, &(struct timeval){.tv_sec = 60});
	kill(family.first, SIGKILL);
	loop_runs = true;
	event_base_dispatch(base);
	cr_assert(__atomic_load_n(&searched, __ATOMIC_SEQ_CST),
		  "nobody has looked whether something of the group lives");
	cr_assert_not(loop_searched, "the loop has looked at all processes of the machine");
	cr_assert_eq(end.count, 1, "the end was not told, although its parent alone does not wait for the processes");
	cr_assert_not(end.lives, "the end was told while a process of the group had its memory");
	event_free(late);
	md_engine_processes_destroy(processes);
	event_base_free(base);
	end_family(&family);
}

Test(worker_process, one_that_is_killed_at_the_end_takes_its_group_with_it)
{
	struct family family = begin_family();
	struct event_base *base = event_base_new();
	struct md_engine_processes *processes = md_engine_processes_create(base, NULL);
	struct md_engine_process *process = NULL;
	struct end end = {.base = base, .group = family.first};
	struct md_error err = {0};
	cr_assert_eq(md_engine_process_adopt(processes, family.first, md_process_open(family.first), on_ended, &end,
					     &process, &err),
		     MD_OK, "%s", err.message);
	md_engine_process_kill(process);
	cr_assert_not(md_process_group_lives(family.first), "a process of the group has its memory still");
	cr_assert_eq(end.count, 0);
	md_engine_processes_destroy(processes);
	event_base_free(base);
	end_family(&family);
}

/* ---- which processes live ---- */

Test(worker_process, a_group_lives_as_long_as_a_thread_of_it)
{
	int told[2];
	cr_assert_eq(pipe(told), 0);
	pid_t pid = fork();
	if (!pid) {
		pthread_t thread;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setpgid(0, 0);
		pthread_create(&thread, NULL, wait_for_ever, NULL);
		if (write(told[1], "", 1) == 1)
			pthread_exit(NULL);
		_exit(1);
	}
	char byte;
	cr_assert_eq(read(told[0], &byte, 1), 1);
	siginfo_t ended = {0};
	while (!md_process_is_ending(pid)) /* as its first thread looks */
		usleep(1000);
	cr_assert(md_process_group_lives(pid), "its other thread has all that it has");
	kill(pid, SIGKILL);
	cr_assert_eq(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT), 0);
	cr_assert_not(md_process_group_lives(pid), "it has ended, and nobody has waited for it");
	waitpid(pid, NULL, 0);
	cr_assert_not(md_process_group_lives(pid));
}
