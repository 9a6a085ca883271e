/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
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

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define TRIES 20u /* while a keeper ends, it has the lock and takes no daemon */
#define TRY_MS 50
#define ANSWER_S 5u

struct md_engine_keeper {
	pid_t pid;       /* 0: not known */
	bool own;        /* this daemon has forked it */
	int line;        /* to the keeper; -1: it has ended */
	int place;       /* its folder; -1: none */
	int lock;        /* in the folder; held by daemon and keeper */
	bool taken;      /* another daemon has the folder */
	bool silent;     /* an earlier daemon's, which does not answer */
	bool served;     /* md_engine_keeper_serves was called */
	int32_t wait_ms; /* then */
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
	ssize_t got;
	do
		got = recvmsg(line, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
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

/* Of who listens at the other end, if that is a keeper; 0: not known. */
static pid_t find_process(int line)
{
	struct ucred peer = {0};
	socklen_t size = sizeof(peer);
	char path[48], name[32] = "";
	getsockopt(line, SOL_SOCKET, SO_PEERCRED, &peer, &size);
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)peer.pid);
	int fd = peer.pid > 1 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	ssize_t got = fd >= 0 ? read(fd, name, sizeof(name) - 1) : 0;
	close_one(fd);
	return got > 0 && !strcmp(name, MD_KEEPER_NAME "\n") ? peer.pid : 0;
}

/* The keeper that an earlier daemon has left. */
static bool ask_keeper(struct md_engine_keeper *keeper)
{
	struct sockaddr_un address = socket_address(keeper->place);
	int line = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (line < 0)
		return false;
	set_patience(line);
	errno = 0;
	if (!connect(line, (struct sockaddr *)&address, sizeof(address)))
		keeper->lock = receive_lock(line);
	if (keeper->lock < 0) {
		keeper->silent = errno == EAGAIN; /* the time is over: one that has another daemon closes the line */
		keeper->pid = keeper->silent ? find_process(line) : 0;
		close(line);
		return false;
	}
	keeper->pid = find_process(line);
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
		if (keeper->silent)
			break;
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
	keeper->taken = errno == EWOULDBLOCK && !keeper->silent;
	if (!keeper->silent)
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
	pid_t pid = fork();
	if (!pid) {
		close(ends[1]);
		md_keeper_process_run(&start);
	}
	close(ends[0]);
	if (start.listener >= 0)
		close(start.listener);
	if (pid < 0) {
		close(ends[1]);
		return false;
	}
	keeper->pid = pid;
	keeper->own = true;
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
	if (made->silent || made->line >= 0 || fork_keeper(made))
		return made;
	leave(made);
	return NULL;
}

/* ---- one that ends ---- */

bool md_engine_keeper_is_silent(const struct md_engine_keeper *keeper, pid_t *pid)
{
	*pid = keeper && keeper->silent ? keeper->pid : 0;
	return keeper && keeper->silent;
}

int md_engine_keeper_line(const struct md_engine_keeper *keeper)
{
	return keeper->line;
}

/* Nothing is ever sent by it. */
bool md_engine_keeper_has_ended(const struct md_engine_keeper *keeper)
{
	char byte;
	return keeper->line < 0 || recv(keeper->line, &byte, 1, MSG_DONTWAIT) == 0 ||
	       (errno != EAGAIN && errno != EINTR);
}

bool md_engine_keeper_renew(struct md_engine_keeper *keeper)
{
	close_one(keeper->line);
	keeper->line = -1;
	return fork_keeper(keeper);
}

/* ---- telling ---- */

/* One that takes nothing for so long that its line is full is stopped: another one takes its place when it is gone. */
static void give_up(struct md_engine_keeper *keeper)
{
	md_warn("medusa-keeper, process %d, takes no word from this daemon, and is killed", (int)keeper->pid);
	if (keeper->pid)
		kill(keeper->pid, SIGKILL);
}

/* If the keeper is gone, the next one is told. */
static bool send_bytes(struct md_engine_keeper *keeper, const void *bytes, size_t size)
{
	ssize_t sent;
	if (!keeper || keeper->line < 0)
		return false;
	do
		sent = send(keeper->line, bytes, size, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent < 0 && errno == EAGAIN)
		give_up(keeper);
	return sent == (ssize_t)size;
}

static bool tell(struct md_engine_keeper *keeper, enum md_keeper_word word, int32_t value)
{
	struct md_keeper_message message = {.word = (int32_t)word, .value = value};
	return send_bytes(keeper, &message, sizeof(message));
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
	keeper->served = true;
	keeper->wait_ms = keeper->place < 0 ? 0 : wait_ms < INT32_MAX ? (int32_t)wait_ms : INT32_MAX;
	tell(keeper, MD_KEEPER_SERVES, keeper->wait_ms);
}

void md_engine_keeper_serves_again(struct md_engine_keeper *keeper)
{
	if (keeper->served)
		tell(keeper, MD_KEEPER_SERVES, keeper->wait_ms);
}

void md_engine_keeper_add(struct md_engine_keeper *keeper, pid_t group, bool helper)
{
	tell(keeper, helper ? MD_KEEPER_HELPER : MD_KEEPER_ENGINE, group);
}

void md_engine_keeper_add_cgroup(struct md_engine_keeper *keeper, pid_t group, const char *path)
{
	struct md_keeper_cgroup cgroup = {.message = {.word = MD_KEEPER_CGROUP, .value = group}};
	size_t size = strlen(path);
	if (size > sizeof(cgroup.path))
		return;
	memcpy(cgroup.path, path, size);
	send_bytes(keeper, &cgroup, offsetof(struct md_keeper_cgroup, path) + size);
}

void md_engine_keeper_remove(struct md_engine_keeper *keeper, pid_t group)
{
	tell(keeper, MD_KEEPER_REMOVE, group);
}

/* ---- the end ---- */

/* The keeper closes its end when it has killed everything. One that is stopped would be waited for without an end. */
static void wait_for_end(struct md_engine_keeper *keeper)
{
	char byte;
	ssize_t got;
	do
		got = recv(keeper->line, &byte, 1, 0);
	while (got > 0 || (got < 0 && errno == EINTR));
	if (got < 0 && errno == EAGAIN)
		give_up(keeper);
	if (keeper->own)
		while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR)
			;
}

void md_engine_keeper_destroy(struct md_engine_keeper *keeper)
{
	if (keeper && keeper->served && tell(keeper, MD_KEEPER_END, 0))
		wait_for_end(keeper);
	leave(keeper);
}
