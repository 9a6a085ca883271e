/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/keeper_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/acceptor.h"
#include "base/array.h"
#include "base/clock.h"
#include "worker/engine/cgroup_folder.h"
#include "worker/engine/keeper.h"
#include "worker/engine/process_facts.h"

#define NS_PER_MS 1000000u
#define LOOK_MS 20u  /* at the folders of cgroups, until they can be removed */
#define LAST_MS 500u /* for that at the end: whoever comes next waits for this process, and removes what is left */

struct group {
	pid_t pid;
	int pidfd; /* of its first process; -1: none */
	bool helper;
	unsigned era; /* of the daemon that has named it last */
	char *cgroup; /* path; NULL: none */
};

struct keeper {
	struct md_keeper_start fds;  /* line -1: there is no daemon */
	struct md_acceptor acceptor; /* of fds.listener */
	unsigned era;                /* counts daemons */
	uint64_t wait_ns;            /* for the next daemon; 0: nobody waits */
	uint64_t deadline;           /* md_clock_ns(); 0: none, because a daemon serves */
	bool over;
	struct group *groups;
	size_t count, room;
	char **ended; /* cgroups that were killed, and whose folders are to be removed */
	size_t ended_count, ended_room;
	struct pollfd *polls;
	size_t poll_room;
};

/* ---- cgroups ---- */

/* The processes are killed; the folder stays until they have ended. Without memory for it, it is left to the next daemon. */
static void end_cgroup(struct keeper *keeper, char *path)
{
	int folder = md_cgroup_folder_open(path);
	if (folder >= 0) {
		md_cgroup_folder_kill(folder);
		close(folder);
	}
	if (folder >= 0 && MD_ARRAY_GROW(keeper->ended, keeper->ended_count, keeper->ended_room))
		keeper->ended[keeper->ended_count++] = path;
	else
		free(path);
}

static void remove_ended(struct keeper *keeper)
{
	for (size_t i = keeper->ended_count; i-- > 0;) {
		if (!md_cgroup_folder_remove(keeper->ended[i]))
			continue;
		free(keeper->ended[i]);
		keeper->ended[i] = keeper->ended[--keeper->ended_count];
	}
}

static void remove_last(struct keeper *keeper)
{
	struct timespec pause = {.tv_nsec = LOOK_MS * NS_PER_MS};
	for (unsigned ms = 0; remove_ended(keeper), keeper->ended_count && ms < LAST_MS; ms += LOOK_MS)
		nanosleep(&pause, NULL);
}

/* ---- groups ---- */

static void forget(struct keeper *keeper, struct group *group)
{
	if (group->pidfd >= 0)
		close(group->pidfd);
	*group = keeper->groups[--keeper->count];
}

/* What a first process has left behind of its group does not stay. */
static void end_group(struct keeper *keeper, size_t index)
{
	struct group *group = &keeper->groups[index];
	kill(-group->pid, SIGKILL);
	if (group->cgroup)
		end_cgroup(keeper, group->cgroup);
	forget(keeper, group);
}

static struct group *find(struct keeper *keeper, pid_t pid)
{
	for (size_t i = 0; i < keeper->count; i++)
		if (keeper->groups[i].pid == pid)
			return &keeper->groups[i];
	return NULL;
}

static void add(struct keeper *keeper, pid_t pid, bool helper)
{
	struct group *group = find(keeper, pid);
	if (!group && MD_ARRAY_GROW(keeper->groups, keeper->count, keeper->room)) {
		group = &keeper->groups[keeper->count++];
		*group = (struct group){.pid = pid, .pidfd = md_process_open(pid)};
	}
	if (!group)
		return;
	group->helper = helper;
	group->era = keeper->era;
}

static void drop(struct keeper *keeper, pid_t pid)
{
	struct group *group = find(keeper, pid);
	if (!group)
		return;
	free(group->cgroup);
	forget(keeper, group);
}

static void take_cgroup(struct keeper *keeper, pid_t pid, const char *path, size_t size)
{
	struct group *group = find(keeper, pid);
	if (!group || !size)
		return;
	free(group->cgroup);
	group->cgroup = strndup(path, size);
}

/* Of an earlier daemon, and not adopted by this one. */
static void end_left_behind(struct keeper *keeper)
{
	for (size_t i = keeper->count; i-- > 0;)
		if (!keeper->groups[i].helper && keeper->groups[i].era != keeper->era)
			end_group(keeper, i);
}

/* ---- daemons ---- */

static void lose_daemon(struct keeper *keeper)
{
	close(keeper->fds.line);
	keeper->fds.line = -1;
	if (!keeper->wait_ns || keeper->fds.listener < 0)
		keeper->over = true;
	else if (!keeper->deadline)
		keeper->deadline = md_clock_ns() + keeper->wait_ns;
}

static void take(struct keeper *keeper, struct md_keeper_message message)
{
	switch ((enum md_keeper_word)message.word) {
	case MD_KEEPER_ENGINE:
	case MD_KEEPER_HELPER:
		if (message.value > 1)
			add(keeper, message.value, message.word == MD_KEEPER_HELPER);
		break;
	case MD_KEEPER_REMOVE:
		drop(keeper, message.value);
		break;
	case MD_KEEPER_SERVES:
		keeper->wait_ns = (uint64_t)(message.value > 0 ? message.value : 0) * NS_PER_MS;
		keeper->deadline = 0;
		end_left_behind(keeper);
		break;
	case MD_KEEPER_END:
		keeper->over = true;
		break;
	case MD_KEEPER_CGROUP: /* which is longer */
		break;
	}
}

static void hear(struct keeper *keeper)
{
	struct md_keeper_cgroup heard;
	const size_t least = sizeof(heard.message);
	ssize_t got;
	while ((got = recv(keeper->fds.line, &heard, sizeof(heard), MSG_DONTWAIT)) >= (ssize_t)least ||
	       (got < 0 && errno == EINTR))
		if (got > 0 && heard.message.word == MD_KEEPER_CGROUP)
			take_cgroup(keeper, heard.message.value, heard.path, (size_t)got - least);
		else if (got > 0)
			take(keeper, heard.message);
	if (got >= 0 || errno != EAGAIN)
		lose_daemon(keeper);
}

static bool greet(const struct keeper *keeper, int line)
{
	struct md_keeper_greeting greeting = {.version = MD_KEEPER_VERSION};
	struct iovec bytes = {.iov_base = &greeting, .iov_len = sizeof(greeting)};
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	struct msghdr message = {
	    .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	memcpy(CMSG_DATA(&control.head), &keeper->fds.lock, sizeof(int));
	return sendmsg(line, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(greeting);
}

/* One daemon at a time has the engines: another one sees that its connection is closed. */
static void accept_daemon(struct keeper *keeper)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	bool last;
	int line = md_acceptor_next(&keeper->acceptor, &last);
	if (line < 0)
		return;
	if (keeper->fds.line >= 0 || keeper->over || getsockopt(line, SOL_SOCKET, SO_PEERCRED, &peer, &size) ||
	    peer.uid != geteuid() || !greet(keeper, line)) {
		close(line);
		return;
	}
	keeper->fds.line = line;
	keeper->era++;
}

/* ---- the loop ---- */

/* The deadline counts only while no daemon is there: one that has begun may be about to serve. */
static int wait_ms(const struct keeper *keeper)
{
	uint64_t now = md_clock_ns();
	if (keeper->ended_count)
		return LOOK_MS;
	if (keeper->fds.line >= 0 || !keeper->deadline)
		return -1;
	return keeper->deadline > now ? (int)((keeper->deadline - now) / NS_PER_MS) + 1 : 0;
}

static bool wait_for_something(struct keeper *keeper)
{
	size_t wanted = keeper->count + 2, made = 0;
	if (!MD_ARRAY_RESERVE(keeper->polls, wanted, keeper->poll_room))
		return false;
	keeper->polls[made++] = (struct pollfd){.fd = keeper->fds.line, .events = POLLIN};
	keeper->polls[made++] =
	    (struct pollfd){.fd = keeper->fds.listener, .events = md_acceptor_events(&keeper->acceptor)};
	for (size_t i = 0; i < keeper->count; i++)
		keeper->polls[made++] = (struct pollfd){.fd = keeper->groups[i].pidfd, .events = POLLIN};
	return poll(keeper->polls, made, md_acceptor_wait_ms(&keeper->acceptor, wait_ms(keeper))) >= 0 ||
	       errno == EINTR;
}

/* Groups first, from the last one on, because what ends changes the numbers behind it. */
static void look(struct keeper *keeper)
{
	bool heard = keeper->polls[0].revents, asked = keeper->polls[1].revents & POLLIN;
	for (size_t i = keeper->count; i-- > 0;)
		if (keeper->polls[i + 2].revents)
			end_group(keeper, i);
	if (heard)
		hear(keeper); /* before another daemon: it may be that this one has ended */
	if (asked)
		accept_daemon(keeper);
	if (keeper->fds.line < 0 && keeper->deadline && md_clock_ns() >= keeper->deadline)
		keeper->over = true;
}

static void keep(struct keeper *keeper)
{
	while (!keeper->over) {
		remove_ended(keeper);
		if (wait_for_something(keeper))
			look(keeper);
		else
			keeper->over = true;
	}
	while (keeper->count)
		end_group(keeper, keeper->count - 1);
	remove_last(keeper);
	if (keeper->fds.listener >= 0)
		unlinkat(keeper->fds.place, MD_ENGINE_KEEPER_SOCKET, 0);
}

/* ---- beginning ---- */

static int by_number(const void *a, const void *b)
{
	return **(int *const *)a - **(int *const *)b;
}

/*
 * Nothing of the daemon is held open, and signals for its group or terminal end the daemon alone. Own descriptors become the
 * lowest ones: first in the order of their numbers, so that none is written over and none has to be free, and then in their own.
 */
static void take_descriptors(struct md_keeper_start *fds)
{
	int *own[] = {&fds->line, &fds->place, &fds->lock, &fds->listener};
	const size_t count = sizeof(own) / sizeof(*own);
	const int first = STDERR_FILENO + 1;
	int *sorted[sizeof(own) / sizeof(*own)], next = first;
	memcpy(sorted, own, sizeof(own));
	qsort(sorted, count, sizeof(*sorted), by_number);
	for (size_t i = 0; i < count; i++)
		if (*sorted[i] >= 0)
			*sorted[i] = dup2(*sorted[i], next++);
	close_range((unsigned)next, ~0u, 0);
	for (size_t i = 0; i < count; i++)
		if (*own[i] >= 0)
			*own[i] = fcntl(*own[i], F_DUPFD_CLOEXEC, next);
	next = first;
	for (size_t i = 0; i < count; i++)
		if (*own[i] >= 0)
			*own[i] = dup2(*own[i], next++);
	close_range((unsigned)next, ~0u, 0);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; null >= 0 && fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
	if (null > STDERR_FILENO)
		close(null);
}

void md_keeper_process_run(const struct md_keeper_start *start)
{
	struct keeper keeper = {.fds = *start};
	take_descriptors(&keeper.fds);
	if (keeper.fds.line < 0)
		_exit(1);
	md_acceptor_init(&keeper.acceptor, keeper.fds.listener, false); /* a daemon that waits is heard later */
	setsid();
	prctl(PR_SET_NAME, MD_KEEPER_NAME);
	if (keeper.fds.listener >= 0)
		listen(keeper.fds.listener, 8); /* again, so that SO_PEERCRED of who connects is this process */
	for (int signal_number = 1; signal_number < NSIG; signal_number++)
		signal(signal_number, SIG_IGN);
	keep(&keeper);
	_exit(0);
}
