/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "worker/engine/keeper_process.h"

#define MD_LOG_DOMAIN "worker"
#include "base/log.h"

#define TRIES 20u /* while a keeper ends, it has the lock and takes no daemon */
#define TRY_MS 50
#define ANSWER_S 5u
#define END_S 30u

struct md_engine_keeper {
	pid_t pid;   /* 0: an earlier daemon has forked it */
	int line;    /* to the keeper */
	int place;   /* its folder; -1: none */
	int lock;    /* in the folder; held by daemon and keeper */
	bool taken;  /* another daemon has the folder */
	bool served; /* md_engine_keeper_serves was called */
};

static void close_one(int fd)
{
	if (fd >= 0)
		close(fd);
}

/* The groups stay as they are. NULL is fine. */
static void leave(struct md_engine_keeper *keeper)
{
	if (!keeper)
		return;
	close_one(keeper->line);
	close_one(keeper->lock);
	close_one(keeper->place);
	free(keeper);
}

/* ---- the folder ---- */

static int open_folder(const char *path)
{
	struct stat is;
	if (mkdir(path, 0700) && errno != EEXIST)
		return -1;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || (!fstat(fd, &is) && is.st_uid == geteuid() && !(is.st_mode & 077)))
		return fd;
	close(fd);
	errno = EACCES;
	return -1;
}

/* Paths of sockets are short, and folders may have long names. */
static struct sockaddr_un socket_address(int place)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", place, MD_ENGINE_KEEPER_SOCKET);
	return address;
}

static void set_patience(int line)
{
	struct timeval most = {.tv_sec = ANSWER_S};
	setsockopt(line, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
	setsockopt(line, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
}

/* The lock comes with the greeting; -1: none has come. */
static int receive_lock(int line)
{
	struct md_keeper_greeting greeting;
	struct iovec bytes = {.iov_base = &greeting, .iov_len = sizeof(greeting)};
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr message = {
	    .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	int lock = -1;
	ssize_t got = recvmsg(line, &message, MSG_CMSG_CLOEXEC);
	struct cmsghdr *head = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (head && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&lock, CMSG_DATA(head), sizeof(lock));
	if (got != sizeof(greeting) || greeting.version == MD_KEEPER_VERSION || lock < 0)
		return got == sizeof(greeting) ? lock : -1;
	md_warn("the keeper of an earlier daemon speaks version %d, and this daemon speaks version %d",
		greeting.version, MD_KEEPER_VERSION);
	close(lock);
	return -1;
}

/* The keeper that an earlier daemon has left. */
static bool ask_keeper(struct md_engine_keeper *keeper)
{
	struct sockaddr_un address = socket_address(keeper->place);
	int line = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (line < 0)
		return false;
	set_patience(line);
	if (!connect(line, (struct sockaddr *)&address, sizeof(address)))
		keeper->lock = receive_lock(line);
	if (keeper->lock < 0) {
		close(line);
		return false;
	}
	keeper->line = line;
	return true;
}

/* The lock of the folder, or the keeper that has it. */
static bool hold_folder(struct md_engine_keeper *keeper)
{
	struct timespec pause = {.tv_nsec = TRY_MS * 1000000};
	for (unsigned i = 0; i < TRIES; i++) {
		int lock = openat(keeper->place, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (lock < 0)
			return false;
		if (!flock(lock, LOCK_EX | LOCK_NB)) {
			keeper->lock = lock;
			return true;
		}
		close(lock);
		if (ask_keeper(keeper))
			return true;
		nanosleep(&pause, NULL);
	}
	errno = EWOULDBLOCK;
	return false;
}

static void take_folder(struct md_engine_keeper *keeper, const char *path)
{
	keeper->place = open_folder(path);
	if (keeper->place >= 0 && hold_folder(keeper))
		return;
	keeper->taken = errno == EWOULDBLOCK;
	md_warn("engines end with this daemon, and it adopts none: %s: %s", path,
		keeper->taken     ? "another daemon has its engines there"
		: errno == EACCES ? "not a folder that only this user can use"
				  : strerror(errno));
	if (keeper->place >= 0)
		close(keeper->place);
	keeper->place = -1;
}

/* ---- a keeper of its own ---- */

/* -1: none, which is said. */
static int listen_in_folder(const struct md_engine_keeper *keeper)
{
	struct sockaddr_un address = socket_address(keeper->place);
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	unlinkat(keeper->place, MD_ENGINE_KEEPER_SOCKET, 0); /* whoever made it has ended: the lock is held here */
	if (listener >= 0 && !bind(listener, (struct sockaddr *)&address, sizeof(address)) && !listen(listener, 8))
		return listener;
	md_warn("engines end with this daemon: the keeper's socket: %s", strerror(errno));
	if (listener >= 0)
		close(listener);
	return -1;
}

static bool fork_keeper(struct md_engine_keeper *keeper)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return false;
	struct md_keeper_start start = {.line = ends[0], .place = keeper->place, .lock = keeper->lock, .listener = -1};
	if (keeper->place >= 0)
		start.listener = listen_in_folder(keeper);
	keeper->pid = fork();
	if (!keeper->pid) {
		close(ends[1]);
		md_keeper_process_run(&start);
	}
	close(ends[0]);
	if (start.listener >= 0)
		close(start.listener);
	if (keeper->pid < 0) {
		close(ends[1]);
		return false;
	}
	set_patience(ends[1]);
	keeper->line = ends[1];
	return true;
}

struct md_engine_keeper *md_engine_keeper_create(const char *place)
{
	struct md_engine_keeper *made = malloc(sizeof(*made));
	if (!made)
		return NULL;
	*made = (struct md_engine_keeper){.line = -1, .place = -1, .lock = -1};
	if (place)
		take_folder(made, place);
	if (made->line >= 0 || fork_keeper(made))
		return made;
	leave(made);
	return NULL;
}

/* ---- telling ---- */

/* If the keeper is gone, nothing is kept. */
static bool tell(struct md_engine_keeper *keeper, enum md_keeper_word word, int32_t value)
{
	struct md_keeper_message message = {.word = (int32_t)word, .value = value};
	ssize_t sent;
	do
		sent = keeper ? send(keeper->line, &message, sizeof(message), MSG_NOSIGNAL) : 0;
	while (sent < 0 && errno == EINTR);
	return sent == sizeof(message);
}

bool md_engine_keeper_has_place(const struct md_engine_keeper *keeper)
{
	return keeper && keeper->place >= 0;
}

bool md_engine_keeper_is_taken(const struct md_engine_keeper *keeper)
{
	return keeper && keeper->taken;
}

void md_engine_keeper_serves(struct md_engine_keeper *keeper, uint64_t wait_ms)
{
	if (!keeper)
		return;
	bool waits = keeper->place >= 0;
	keeper->served = tell(keeper, MD_KEEPER_SERVES,
			      !waits                ? 0
			      : wait_ms < INT32_MAX ? (int32_t)wait_ms
						    : INT32_MAX);
}

void md_engine_keeper_add(struct md_engine_keeper *keeper, pid_t group, bool helper)
{
	tell(keeper, helper ? MD_KEEPER_HELPER : MD_KEEPER_ENGINE, group);
}

void md_engine_keeper_remove(struct md_engine_keeper *keeper, pid_t group)
{
	tell(keeper, MD_KEEPER_REMOVE, group);
}

/* ---- the end ---- */

/* The keeper closes its end when it has killed everything. */
static void wait_for_end(struct md_engine_keeper *keeper)
{
	struct timeval most = {.tv_sec = END_S};
	char byte;
	ssize_t got;
	setsockopt(keeper->line, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
	do
		got = recv(keeper->line, &byte, 1, 0);
	while (got > 0 || (got < 0 && errno == EINTR));
	if (keeper->pid)
		while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR)
			;
}

void md_engine_keeper_destroy(struct md_engine_keeper *keeper)
{
	if (keeper && keeper->served && tell(keeper, MD_KEEPER_END, 0))
		wait_for_end(keeper);
	leave(keeper);
}
