/* SPDX-License-Identifier: Apache-2.0 */
/* What engines do to their process that a library inside has to live with: each habit by its name, with a value. */
#ifndef MD_TESTS_HOST_HABITS_H
#define MD_TESTS_HOST_HABITS_H

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "medusa/medusa.h"

static volatile sig_atomic_t signals_seen;

static void fail(const char *what)
{
	fprintf(stderr, "host_subject: %s: %s\n", what, strerror(errno));
	exit(9);
}

static void must(int result, const char *what)
{
	if (result < 0)
		fail(what);
}

/* ---- descriptors ---- */

static void close_above_two(const char *unused)
{
	(void)unused;
	must((int)syscall(SYS_close_range, 3, ~0u, 0), "close_range");
}

static void close_one(const char *number)
{
	close(atoi(number));
}

/* A file of the engine's own under every number that is free: whoever writes by an old number, writes into it. */
static void fill(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	must(fd, path);
	must((int)write(fd, "the engine's own\n", 17), path);
	for (int i = 0; i < 2000 && dup(fd) >= 0; i++)
		;
}

/* As daemons do: their output goes to a file from now on. */
static void redirect(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	must(fd, path);
	dup2(fd, 1);
	dup2(fd, 2);
	close(fd);
}

static void limit_descriptors(const char *number)
{
	struct rlimit limit = {(rlim_t)atoi(number), (rlim_t)atoi(number)};
	must(setrlimit(RLIMIT_NOFILE, &limit), "RLIMIT_NOFILE");
}

/* ---- files, folders and rights ---- */

static void limit_files(const char *bytes)
{
	struct rlimit limit = {(rlim_t)atol(bytes), RLIM_INFINITY};
	must(setrlimit(RLIMIT_FSIZE, &limit), "RLIMIT_FSIZE");
}

static void change_folder(const char *path)
{
	must(chdir(path), path);
}

static void change_root(const char *path)
{
	must(chroot(path), path);
	must(chdir("/"), "/");
}

static void drop_rights(const char *user)
{
	must(setgroups(0, NULL), "setgroups");
	must(setresgid((gid_t)atoi(user), (gid_t)atoi(user), (gid_t)atoi(user)), "setresgid");
	must(setresuid((uid_t)atoi(user), (uid_t)atoi(user), (uid_t)atoi(user)), "setresuid");
}

static void set_mask(const char *octal)
{
	umask((mode_t)strtoul(octal, NULL, 8));
}

/* ---- the environment ---- */

static void clear_environment(const char *unused)
{
	(void)unused;
	clearenv();
}

/* As programs do that change their title: the memory that held the variables is written over. */
static void change_title(const char *title)
{
	char *end = environ[0];
	for (char **at = environ; *at; at++)
		end = *at + strlen(*at);
	char *start = environ[0];
	clearenv();
	memset(start, 0, (size_t)(end - start));
	snprintf(start, (size_t)(end - start), "%s", title);
}

/* ---- signals ---- */

static void seen(int number)
{
	(void)number;
	signals_seen++;
}

static const int watched[] = {SIGPIPE, SIGXFSZ, SIGTTOU, SIGCHLD, SIGIO};
#define WATCHED (sizeof(watched) / sizeof(watched[0]))

static void watch_signals(const char *unused)
{
	(void)unused;
	for (size_t i = 0; i < WATCHED; i++)
		signal(watched[i], seen);
}

/* Blocked and pending, as in a program that takes its signals by sigwait. */
static void hold_signals(const char *how)
{
	sigset_t set;
	sigemptyset(&set);
	for (size_t i = 0; i < WATCHED; i++)
		sigaddset(&set, watched[i]);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (!strcmp(how, "thread"))
		raise(SIGPIPE);
	else if (!strcmp(how, "process"))
		kill(getpid(), SIGPIPE);
}

/* From now on this thread takes the signal by sigtimedwait. One that reaches another thread ends the process. */
static void send_itself(const char *unused)
{
	struct timespec soon = {.tv_sec = 10};
	sigset_t set;
	(void)unused;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	kill(getpid(), SIGUSR1);
	if (sigtimedwait(&set, NULL, &soon) != SIGUSR1)
		fail("sigtimedwait");
}

/* Every signal that waits in this thread or process, by its number. */
static void tell_signals(const char *unused)
{
	sigset_t set;
	struct timespec none = {0};
	int number;
	(void)unused;
	printf("handled %d\n", (int)signals_seen);
	sigemptyset(&set);
	for (size_t i = 0; i < WATCHED; i++)
		sigaddset(&set, watched[i]);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	while ((number = sigtimedwait(&set, NULL, &none)) > 0)
		printf("pending %d\n", number);
}

/* ---- processes ---- */

static void (*launch_a_graph)(void), (*enter_the_context)(void); /* the engine's own, for its children and threads */

/* How the API answers does not matter here: that it does, and that the process ends, does. */
static void ask_medusa(void)
{
	void *exec;
	medusa_graph_get("host", 2, UINT64_MAX, &exec);
	medusa_graph_get("nowhere", 1, 0, &exec);
	medusa_graph_ready("host", 1);
	medusa_mark("asked");
}

static void check_child(pid_t child)
{
	int status = 0;
	must(waitpid(child, &status, 0), "waitpid");
	if (WIFEXITED(status) && WEXITSTATUS(status) == 3)
		return;
	fprintf(stderr, "host_subject: the child ended with %#x\n", (unsigned)status);
	exit(9);
}

static void have_vforked_child(void)
{
	pid_t child = vfork();
	must(child, "vfork");
	if (!child) {
		medusa_graph_ready("host", 1);
		medusa_mark("vforked");
		_exit(3);
	}
	check_child(child);
}

/*
 * raw: made by a system call, so that nobody is told, the C library neither: exit() would wait for ever for the lock of
 * the dynamic linker, if another thread was loading an image. launches: a graph, which the driver refuses in a child.
 * vfork: in the memory of its parent.
 */
static void have_child(const char *how)
{
	bool raw = !strcmp(how, "raw");
	fflush(stdout);
	if (!strcmp(how, "vfork")) {
		have_vforked_child();
		return;
	}
	pid_t child = raw ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
	must(child, "fork");
	if (!child) {
		alarm(30);
		if (!strcmp(how, "launches"))
			launch_a_graph();
		if (strcmp(how, "ends"))
			ask_medusa();
		raw ? _exit(3) : exit(3);
	}
	check_child(child);
}

static void *ask_for_ever(void *unused)
{
	(void)unused;
	enter_the_context();
	for (;;) {
		ask_medusa();
		pthread_testcancel();
	}
	return NULL;
}

static void cancel_threads(const char *unused)
{
	(void)unused;
	for (useconds_t i = 0; i < 20; i++) {
		pthread_t thread;
		must(-pthread_create(&thread, NULL, ask_for_ever, NULL), "pthread_create");
		usleep(300 * i);
		pthread_cancel(thread);
		pthread_join(thread, NULL);
	}
}

static void become_daemon(const char *path)
{
	pid_t child = fork();
	must(child, "fork");
	if (child)
		_exit(0);
	setsid();
	child = fork();
	must(child, "fork");
	if (child)
		_exit(0);
	close_above_two("");
	if (*path)
		redirect(path);
}

static void end_at_once(const char *code)
{
	fflush(NULL);
	_exit(atoi(code));
}

static void be_killed(const char *unused)
{
	(void)unused;
	fflush(NULL);
	kill(getpid(), SIGKILL);
}

static void say_mark(const char *name)
{
	medusa_mark(name);
}

static void wait_for(const char *path)
{
	char ready[4096];
	snprintf(ready, sizeof(ready), "%s.ready", path);
	int fd = open(ready, O_WRONLY | O_CREAT, 0600);
	must(fd, ready);
	close(fd);
	while (access(path, F_OK))
		usleep(5000);
}

/* A sandbox that answers EPERM to what an engine at work has no need of. */
static void lock_in(const char *unused)
{
	static const int refused[] = {SYS_rename,          SYS_renameat, SYS_renameat2,     SYS_unlink,
				      SYS_fsync,           SYS_flock,    SYS_prctl,         SYS_socket,
				      SYS_rt_sigtimedwait, SYS_execve,   SYS_ptrace,        SYS_mkdir,
				      SYS_readlink,        SYS_fork,     SYS_rt_sigpending, SYS_poll};
	enum { COUNT = sizeof(refused) / sizeof(refused[0]) };
	struct sock_filter filter[2 * COUNT + 2] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
	(void)unused;
	for (int i = 0; i < COUNT; i++) {
		filter[1 + 2 * i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)refused[i], 0, 1);
		filter[2 + 2 * i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	}
	filter[2 * COUNT + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {2 * COUNT + 2, filter};
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
	must((int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program), "seccomp");
}

/* ---- by name ---- */

static const struct habit {
	const char *name;
	void (*run)(const char *value);
} habits[] = {
    {"close-above-two", close_above_two},
    {"close", close_one},
    {"fill", fill},
    {"redirect", redirect},
    {"nofile", limit_descriptors},
    {"fsize", limit_files},
    {"chdir", change_folder},
    {"chroot", change_root},
    {"setuid", drop_rights},
    {"umask", set_mask},
    {"clearenv", clear_environment},
    {"title", change_title},
    {"watch-signals", watch_signals},
    {"hold-signals", hold_signals},
    {"tell-signals", tell_signals},
    {"send-itself", send_itself},
    {"daemon", become_daemon},
    {"child", have_child},
    {"cancel", cancel_threads},
    {"_exit", end_at_once},
    {"killed", be_killed},
    {"mark", say_mark},
    {"wait", wait_for},
    {"seccomp", lock_in},
};

/* "close-above-two fill=FILE": one after another. */
static void run_habits(const char *text)
{
	char word[4096];
	while (text && *text) {
		size_t length = strcspn(text, " "), i = 0;
		snprintf(word, sizeof(word), "%.*s", (int)length, text);
		text += length + (text[length] == ' ');
		char *value = strchr(word, '=');
		if (value)
			*value++ = 0;
		while (i < sizeof(habits) / sizeof(habits[0]) && strcmp(habits[i].name, word))
			i++;
		if (i == sizeof(habits) / sizeof(habits[0])) {
			fprintf(stderr, "host_subject: no habit \"%s\"\n", word);
			exit(9);
		}
		habits[i].run(value ? value : "");
	}
}

#endif
