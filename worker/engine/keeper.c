/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"

struct md_engine_keeper {
	pid_t pid;
	int pipe; /* groups that begin are written into it, and those that have ended as negative numbers */
};

/* ---- the keeper's process ---- */

struct groups {
	pid_t *items;
	size_t count, room;
};

static void take(struct groups *groups, pid_t group)
{
	size_t i = 0;
	if (group > 0) {
		if (MD_ARRAY_GROW(groups->items, groups->count, groups->room))
			groups->items[groups->count++] = group;
		return;
	}
	while (i < groups->count && groups->items[i] != -group)
		i++;
	if (i < groups->count)
		groups->items[i] = groups->items[--groups->count];
}

/* Numbers are written whole: they are shorter than PIPE_BUF. */
static void keep(int pipe)
{
	struct groups groups = {0};
	pid_t group;
	ssize_t got;
	while ((got = read(pipe, &group, sizeof(group))) == sizeof(group) || (got < 0 && errno == EINTR))
		if (got > 0)
			take(&groups, group);
	for (size_t i = 0; i < groups.count; i++)
		kill(-groups.items[i], SIGKILL);
}

/* Nothing of the daemon is held open, and signals for its group or terminal end the daemon alone. */
static void become_keeper(int pipe)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; null >= 0 && fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
	if (dup2(pipe, STDERR_FILENO + 1) < 0)
		_exit(1);
	close_range(STDERR_FILENO + 2, ~0u, 0);
	setsid();
	prctl(PR_SET_NAME, "medusa-keeper");
	for (int signal_number = 1; signal_number < NSIG; signal_number++)
		signal(signal_number, SIG_IGN);
	keep(STDERR_FILENO + 1);
	_exit(0);
}

/* ---- the daemon's side ---- */

struct md_engine_keeper *md_engine_keeper_create(void)
{
	struct md_engine_keeper *made = calloc(1, sizeof(*made));
	int ends[2];
	if (!made || pipe2(ends, O_CLOEXEC)) {
		free(made);
		return NULL;
	}
	made->pid = fork();
	if (!made->pid) {
		close(ends[1]);
		become_keeper(ends[0]);
	}
	close(ends[0]);
	made->pipe = ends[1];
	if (made->pid > 0)
		return made;
	close(ends[1]);
	free(made);
	return NULL;
}

void md_engine_keeper_destroy(struct md_engine_keeper *keeper)
{
	if (!keeper)
		return;
	close(keeper->pipe);
	while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR)
		;
	free(keeper);
}

/* If the keeper is gone, nothing is kept: SIGPIPE is ignored in the daemon. */
static void tell(struct md_engine_keeper *keeper, pid_t group)
{
	ssize_t written;
	do
		written = keeper ? write(keeper->pipe, &group, sizeof(group)) : 0;
	while (written < 0 && errno == EINTR);
}

void md_engine_keeper_add(struct md_engine_keeper *keeper, pid_t group)
{
	tell(keeper, group);
}

void md_engine_keeper_remove(struct md_engine_keeper *keeper, pid_t group)
{
	tell(keeper, -group);
}
