/* SPDX-License-Identifier: Apache-2.0 */
/* SIGINT, SIGTERM and SIGHUP: passed on to the engine while one runs; temporary files are removed at the end. */
#include "tools/stop.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "tools/folder.h"

static const int watched[] = {SIGINT, SIGTERM, SIGHUP}, ignored[] = {SIGPIPE, SIGXFSZ};
enum { WATCHED = sizeof(watched) / sizeof(watched[0]), IGNORED = sizeof(ignored) / sizeof(ignored[0]), REMOVED = 32 };

static bool watching;
static struct sigaction before_watched[WATCHED], before_ignored[IGNORED];
static sigset_t before_hold;
static char removed[REMOVED][PATH_MAX];
/* A handler writes and reads these, on any thread; atomics of this size are free of locks. */
static atomic_int removed_count, child_pid, stopped, by_terminal;

/* ---- nothing here but what a signal handler may call ---- */

static void end_now(int number)
{
	bool all = true;
	/* In reverse order: the first one, a lock, is removed only if nothing is left that it describes. */
	for (int i = removed_count - 1; i >= 0; i--) {
		if (i == 0 && !all)
			break;
		if (unlink(removed[i]) && errno != ENOENT)
			all = md_folder_remove(removed[i]) && all;
	}
	_exit(128 + number);
}

/*
 * A terminal sends its signals to the child as well, so only signals that were sent to this process alone are passed
 * on.
 */
static void take(int number, siginfo_t *info, void *context)
{
	(void)context;
	if (child_pid == 0)
		end_now(number);
	if (!stopped) {
		stopped = number;
		by_terminal = info->si_code > 0;
	}
	if (info->si_code <= 0 && child_pid > 0)
		kill((pid_t)child_pid, number);
}

bool md_stop_watch(void)
{
	struct sigaction action = {.sa_sigaction = take, .sa_flags = SA_SIGINFO | SA_RESTART};
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	if (watching)
		return false;
	watching = true;
	stopped = 0;
	sigemptyset(&action.sa_mask);
	for (int i = 0; i < WATCHED; i++)
		sigaddset(&action.sa_mask, watched[i]);
	for (int i = 0; i < WATCHED; i++) {
		sigaction(watched[i], NULL, &before_watched[i]);
		if (before_watched[i].sa_handler != SIG_IGN)
			sigaction(watched[i], &action, NULL);
	}
	for (int i = 0; i < IGNORED; i++)
		sigaction(ignored[i], &ignore, &before_ignored[i]);
	return true;
}

static void give_back(void)
{
	for (int i = 0; i < WATCHED; i++)
		sigaction(watched[i], &before_watched[i], NULL);
	for (int i = 0; i < IGNORED; i++)
		sigaction(ignored[i], &before_ignored[i], NULL);
}

void md_stop_unwatch(void)
{
	if (watching)
		give_back();
	watching = false;
}

int md_stop_signal(void)
{
	return stopped;
}

bool md_stop_came_from_terminal(void)
{
	return by_terminal;
}

void md_stop_forget(void)
{
	stopped = 0;
}

/* The handler sees a path only when it is complete. */
void md_stop_remove(const char *path)
{
	if (removed_count == REMOVED)
		return;
	snprintf(removed[removed_count], PATH_MAX, "%s", path);
	removed_count = removed_count + 1;
}

void md_stop_remove_nothing(void)
{
	removed_count = 0;
}

void md_stop_hold(void)
{
	sigset_t set;
	sigemptyset(&set);
	for (int i = 0; i < WATCHED; i++)
		sigaddset(&set, watched[i]);
	sigprocmask(SIG_BLOCK, &set, &before_hold);
}

void md_stop_release(void)
{
	sigprocmask(SIG_SETMASK, &before_hold, NULL);
}

void md_stop_child(pid_t child)
{
	child_pid = child;
}

void md_stop_in_child(void)
{
	give_back();
	md_stop_release();
}
