/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a rank comes to the meeting. Under a lock in the folder it connects to the socket of its job; where nobody answers,
 * a socket that is there has been left by the dead, and the rank puts its own in the place.
 */
#define MD_LOG_DOMAIN "ranks"
#include "ranks/meeting.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/child.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "ranks/greeting.h"
#include "ranks/meeting_host.h"
#include "ranks/rounds.h"
#include "ranks/steps.h"

#define BACKLOG 128
#define SOCKET_NAME "ranks-%016" PRIx64 ".socket"

enum presence { AWAY, HERE, LOST }; /* LOST: for good, for the reason in `lost` */

static pthread_mutex_t meeting_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	enum presence presence;
	struct md_error lost;
	struct md_rank rank;
	struct md_rounds rounds;
	struct md_descriptor host; /* the connection to the rank at the socket; none where that is this one */
	char socket_path[PATH_MAX + 64];
	bool hosts;
	uint32_t next, next_step; /* numbers of the next question and step */
} meeting = {.host = {.fd = -1}};

/* ---- copies of the process ---- */

/* A child is no rank. The end of a connection tells the others that its parent has died, so no child may have one. */
static void renew(void)
{
	pthread_mutex_init(&meeting_lock, NULL);
	if (meeting.presence == AWAY)
		return;
	meeting.presence = LOST;
	meeting.lost.status = MD_ERR_NOT_FOUND;
	md_descriptor_drop(&meeting.host);
	md_meeting_host_renew();
}

__attribute__((constructor(MD_LOADED_SETTINGS))) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}

/* ---- the folder ---- */

static void nap(void)
{
	const struct timespec pause = {.tv_nsec = 5000000};
	nanosleep(&pause, NULL);
}

static enum md_status lock_folder(int folder, const struct md_rank *rank, uint64_t deadline_ns, int *fd,
				  struct md_error *err)
{
	char name[64];
	const char *path = rank->folder;
	snprintf(name, sizeof(name), "/proc/self/fd/%d/ranks.lock", folder);
	MD_AUTO_FD int file = md_file_open_append(name, true);
	if (file < 0)
		return md_error_set(err, MD_ERR_IO, "%s/ranks.lock: %s", path, strerror(errno));
	while (flock(file, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return md_error_set(err, MD_ERR_IO, "%s/ranks.lock: %s", path, strerror(errno));
		if (md_clock_ns() > deadline_ns)
			return md_error_set(err, MD_ERR_TIMEOUT, "%s/ranks.lock: another process holds the lock", path);
		nap();
	}
	*fd = md_steal_fd(&file);
	return MD_OK;
}

/* A path below the folder's descriptor is short enough for a socket, however long the folder's own path is. */
static struct sockaddr_un address_of(int folder, uint64_t job)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/" SOCKET_NAME, folder, job);
	return address;
}

/* *fd is -1 when nobody listens there. */
static enum md_status try_connect(const struct sockaddr_un *address, uint64_t deadline_ns, int *fd,
				  struct md_error *err)
{
	MD_AUTO_FD int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	*fd = -1;
	if (made < 0)
		return md_error_set(err, MD_ERR_IO, "a socket to meet other ranks at: %s", strerror(errno));
	while (connect(made, (const struct sockaddr *)address, sizeof(*address))) {
		if (errno == ENOENT || errno == ECONNREFUSED)
			return MD_OK;
		if (errno != EAGAIN && errno != EINTR)
			return md_error_set(err, MD_ERR_IO, "the socket of the ranks: %s", strerror(errno));
		if (md_clock_ns() > deadline_ns)
			return md_error_set(err, MD_ERR_TIMEOUT, "the rank that waits for others accepts none");
		nap();
	}
	*fd = md_steal_fd(&made);
	return MD_OK;
}

static enum md_status listen_there(const struct sockaddr_un *address, int *fd, struct md_error *err)
{
	MD_AUTO_FD int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	unlink(address->sun_path); /* the lock is held, and nobody answers */
	if (made < 0 || bind(made, (const struct sockaddr *)address, sizeof(*address)) || listen(made, BACKLOG))
		return md_error_set(err, MD_ERR_IO, "a socket to meet other ranks at: %s", strerror(errno));
	*fd = md_steal_fd(&made);
	return MD_OK;
}

/* ---- coming ---- */

static enum md_status become_host(int listening, struct md_error *err)
{
	const struct md_rank *rank = &meeting.rank;
	MD_AUTO_FD int owned = listening, memory = -1;
	uint32_t process = (uint32_t)getpid();
	snprintf(meeting.socket_path, sizeof(meeting.socket_path), "%s/" SOCKET_NAME, rank->folder, rank->job);
	MD_FORWARD(md_rounds_create(rank->ranks, &memory, err));
	MD_FORWARD(md_rounds_map(memory, rank->ranks, rank->rank, &meeting.rounds, err));
	md_rounds_arrive(&meeting.rounds, rank->rank, &process);
	meeting.hosts = true;
	return md_meeting_host_start(rank, &meeting.rounds, md_steal_fd(&owned), md_steal_fd(&memory), err);
}

static enum md_status become_guest(int socket, uint64_t deadline_ns, struct md_error *err)
{
	const struct md_rank *rank = &meeting.rank;
	struct md_greeting greeting;
	MD_AUTO_FD int owned = socket, memory = -1;
	pid_t process;
	md_greeting_write(&greeting, rank);
	MD_FORWARD(md_greeting_check_peer(socket, &process, err));
	if (send(socket, &greeting, sizeof(greeting), MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof(greeting))
		return md_error_set(err, MD_ERR_IO, "greeting the other ranks: %s", strerror(errno));
	MD_FORWARD(md_greeting_answer_take(socket, deadline_ns, &memory, err));
	MD_FORWARD(md_rounds_map(memory, rank->ranks, rank->rank, &meeting.rounds, err));
	if (md_descriptor_keep(&meeting.host, md_descriptor_raise(md_steal_fd(&owned))))
		return MD_OK;
	return md_error_set(err, MD_ERR_IO, "the connection to the other ranks: %s", strerror(errno));
}

/* Others must not be able to put a socket or a lock there. */
static enum md_status open_folder(const char *path, int *fd, struct md_error *err)
{
	struct stat info;
	MD_AUTO_FD int folder = md_descriptor_open(path, O_PATH | O_DIRECTORY, 0);
	if (folder < 0 || fstat(folder, &info))
		return md_error_set(err, MD_ERR_IO, "MEDUSA_RANKS_FOLDER: %s: %s", path, strerror(errno));
	if (info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)))
		return md_error_set(err, MD_ERR_INVALID,
				    "MEDUSA_RANKS_FOLDER: %s: other users may write there; name a folder that is this "
				    "user's alone",
				    path);
	*fd = md_steal_fd(&folder);
	return MD_OK;
}

static enum md_status come(struct md_error *err)
{
	const struct md_rank *rank = &meeting.rank;
	uint64_t deadline = md_clock_ns() + rank->patience_ns;
	int connected = -1, listening = -1;
	MD_AUTO_FD int folder = -1, held = -1;
	MD_FORWARD(open_folder(rank->folder, &folder, err));
	MD_FORWARD(lock_folder(folder, rank, deadline, &held, err));
	struct sockaddr_un address = address_of(folder, rank->job);
	MD_FORWARD(try_connect(&address, deadline, &connected, err));
	if (connected < 0)
		MD_FORWARD(listen_there(&address, &listening, err));
	close(md_steal_fd(&held)); /* the others may connect */
	return connected >= 0 ? become_guest(connected, deadline, err) : become_host(listening, err);
}

/* ---- asking ---- */

static bool is_connected(void *user)
{
	char said;
	(void)user;
	if (meeting.hosts) /* its thread sees who goes */
		return true;
	bool ours = md_descriptor_is_ours(&meeting.host);
	if (ours && recv(meeting.host.fd, &said, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	md_rounds_end(&meeting.rounds, MD_ROUNDS_GONE, meeting.rank.rank,
		      ours ? "the rank at which the others meet has ended (rank %u says so)"
			   : "the engine of rank %u has closed its connection to the others",
		      meeting.rank.rank);
	return false;
}

static void lose(const struct md_error *why)
{
	meeting.presence = LOST;
	meeting.lost = *why;
}

static void come_once(const struct md_rank *rank)
{
	struct md_error err = {0};
	if (meeting.presence != AWAY)
		return;
	meeting.rank = *rank;
	if (come(&err) == MD_OK) {
		meeting.presence = HERE;
	} else {
		md_rounds_unmap(&meeting.rounds);
		lose(&err);
	}
}

static enum md_status vote(const struct md_question *question, bool *over, struct md_error *err)
{
	const struct md_vote own = {.name = question->name,
				    .with = question->with,
				    .bundle = question->bundle,
				    .why_not = question->why_not,
				    .deadline_ns = question->deadline_ns,
				    .patience_ns = meeting.rank.patience_ns,
				    .connected = is_connected};
	enum md_status status = md_rounds_vote(&meeting.rounds, meeting.next++, &own, err);
	if (status == MD_OK || !md_rounds_ended(&meeting.rounds, err))
		return status;
	*over = true;
	return err->status;
}

static enum md_status take_step(const char *text, bool *yes, bool *over, struct md_error *err)
{
	const struct md_step own = {
	    .text = text, .yes = *yes, .patience_ns = meeting.rank.patience_ns, .connected = is_connected};
	enum md_status status = md_rounds_step(&meeting.rounds, meeting.next_step++, &own, yes, err);
	*over = status != MD_OK && md_rounds_ended(&meeting.rounds, NULL);
	return status;
}

static enum md_status say_lost(bool *over, struct md_error *err)
{
	*over = true;
	return md_error_set(err, meeting.lost.status, "%s",
			    *meeting.lost.message ? meeting.lost.message : "a child of a rank is no rank");
}

enum md_status md_ranks_ask(const struct md_rank *rank, const struct md_question *question, bool *over,
			    struct md_error *err)
{
	*over = false;
	md_child_check();
	pthread_mutex_lock(&meeting_lock);
	come_once(rank);
	enum md_status status = meeting.presence == HERE ? vote(question, over, err) : say_lost(over, err);
	pthread_mutex_unlock(&meeting_lock);
	if (*over)
		md_error_prefix(err, "the ranks of this job do not restore together");
	return status;
}

enum md_status md_ranks_step(const struct md_rank *rank, const char *text, bool *yes, bool *over, struct md_error *err)
{
	*over = false;
	md_child_check();
	pthread_mutex_lock(&meeting_lock);
	come_once(rank);
	enum md_status status = meeting.presence == HERE ? take_step(text, yes, over, err) : say_lost(over, err);
	pthread_mutex_unlock(&meeting_lock);
	if (status != MD_OK)
		md_error_prefix(err, "the ranks of this job do not replay it together");
	return status;
}

/* While a call asks, the process is about to end: the others see that, too. */
void md_ranks_leave(void)
{
	md_child_check();
	if (pthread_mutex_trylock(&meeting_lock))
		return;
	if (meeting.presence == HERE) {
		struct md_error left = {.status = MD_ERR_NOT_FOUND, .message = "this rank has left"};
		if (meeting.hosts && md_meeting_host_listens()) /* so the path leads to this rank's socket */
			unlink(meeting.socket_path);
		md_meeting_host_stop();
		md_descriptor_drop(&meeting.host);
		lose(&left);
	}
	pthread_mutex_unlock(&meeting_lock);
}
