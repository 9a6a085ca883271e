/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's side of the process that writes the logs of engines. */
#include "worker/core/log_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define AGAIN_S 1 /* until one is forked again that has ended */
#define RETRY_US 50000

struct md_log_pipe {
	struct md_log_writer *writer;
	struct md_log_pipe *next;
	char *path;
	bool told; /* the process knows it, or there is none: the next one is told of all */
	/* Both stay open here: an engine whose pipe nobody reads would be killed; so it waits for the next process. */
	int ends[2];
};

struct md_log_writer {
	struct event_base *base;
	struct event *ended, *again;
	struct event *retry; /* to tell it of pipes for which its socket had no room */
	pid_t pid;
	int socket; /* -1: the process has ended */
	bool copies;
	struct md_log_pipe *first;
};

/* ---- the process ---- */

/* Nothing of the daemon is held open, and signals for its group or terminal end the daemon alone. */
static void become_writer(int socket, bool copies)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; null >= 0 && fd <= STDERR_FILENO; fd++)
		if (fd != STDOUT_FILENO || !copies)
			dup2(null, fd);
	if (dup2(socket, STDERR_FILENO + 1) < 0)
		_exit(1);
	close_range(STDERR_FILENO + 2, ~0u, 0);
	setsid();
	prctl(PR_SET_NAME, "medusa-logs");
	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_IGN);
	md_log_process_run(STDERR_FILENO + 1, copies ? STDOUT_FILENO : -1);
	_exit(0);
}

/* ---- telling it ---- */

/* False: it has ended. One that does not come to it, because its disk is slow or it was stopped, is told later: nobody waits for it. */
static bool tell(struct md_log_pipe *pipe)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec part = {.iov_base = pipe->path, .iov_len = strlen(pipe->path)};
	struct msghdr message = {
	    .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	struct cmsghdr *sent = CMSG_FIRSTHDR(&message);
	sent->cmsg_level = SOL_SOCKET;
	sent->cmsg_type = SCM_RIGHTS;
	sent->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(sent), pipe->ends, sizeof(int));
	pipe->told = sendmsg(pipe->writer->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
	/* also where the system allows no more descriptors on their way */
	bool later = !pipe->told && (errno == EAGAIN || errno == ETOOMANYREFS || errno == ENOBUFS);
	if (later)
		event_add(pipe->writer->retry, &(struct timeval){.tv_usec = RETRY_US});
	return pipe->told || later;
}

static void on_retry(evutil_socket_t fd, short what, void *context)
{
	struct md_log_writer *writer = context;
	(void)fd, (void)what;
	for (struct md_log_pipe *pipe = writer->first; pipe && writer->socket >= 0; pipe = pipe->next)
		if (!pipe->told && (!tell(pipe) || !pipe->told))
			return; /* it has ended, or has no room yet */
}

static bool begin(struct md_log_writer *writer);

static void try_again(struct md_log_writer *writer)
{
	struct timeval wait = {.tv_sec = AGAIN_S};
	if (writer->socket >= 0)
		close(writer->socket);
	writer->socket = -1;
	event_add(writer->again, &wait);
}

static void on_again(evutil_socket_t fd, short what, void *context)
{
	struct md_log_writer *writer = context;
	(void)fd, (void)what;
	waitpid(writer->pid, NULL, WNOHANG);
	if (!begin(writer)) {
		md_error_log("the process that writes the logs of engines can't be started: %s", strerror(errno));
		try_again(writer);
	}
}

/* Nothing is ever sent by it: it has ended. */
static void on_ended(evutil_socket_t fd, short what, void *context)
{
	struct md_log_writer *writer = context;
	char byte;
	(void)fd, (void)what;
	if (recv(writer->socket, &byte, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	md_warn("the process that writes the logs of engines has ended, and another one follows");
	event_del(writer->ended);
	try_again(writer);
}

static bool begin(struct md_log_writer *writer)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return false;
	pid_t pid = fork();
	if (!pid)
		become_writer(ends[1], writer->copies);
	close(ends[1]);
	if (pid < 0 || event_assign(writer->ended, writer->base, ends[0], EV_READ | EV_PERSIST, on_ended, writer) ||
	    event_add(writer->ended, NULL)) {
		close(ends[0]);
		return false;
	}
	writer->pid = pid;
	writer->socket = ends[0];
	for (struct md_log_pipe *pipe = writer->first; pipe; pipe = pipe->next)
		tell(pipe);
	return true;
}

/* ---- beginning and end ---- */

struct md_log_writer *md_log_writer_create(struct event_base *base, bool copies)
{
	struct md_log_writer *made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	*made = (struct md_log_writer){.base = base,
				       .socket = -1,
				       .copies = copies,
				       .ended = event_new(base, -1, EV_READ, on_ended, made),
				       .again = evtimer_new(base, on_again, made),
				       .retry = evtimer_new(base, on_retry, made)};
	if (made->ended && made->again && made->retry && begin(made))
		return made;
	md_log_writer_destroy(made);
	return NULL;
}

void md_log_writer_destroy(struct md_log_writer *writer)
{
	if (!writer)
		return;
	if (writer->ended)
		event_free(writer->ended);
	if (writer->again)
		event_free(writer->again);
	if (writer->retry)
		event_free(writer->retry);
	if (writer->socket >= 0)
		close(writer->socket);
	free(writer);
}

/* ---- pipes ---- */

enum md_status md_log_pipe_create(struct md_log_writer *writer, const char *path, struct md_log_pipe **pipe,
				  struct md_error *err)
{
	MD_AUTO_FREE struct md_log_pipe *made = calloc(1, sizeof(*made));
	MD_AUTO_FREE char *own = strdup(path);
	if (!made || !own)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a pipe into %.300s", path);
	if (pipe2(made->ends, O_CLOEXEC))
		return md_error_set(err, MD_ERR_OUTPUT, "a pipe into %.300s: %s", path, strerror(errno));
	made->writer = writer;
	made->path = md_steal_ptr(&own);
	made->next = writer->first;
	if (writer->socket >= 0 && !tell(made))
		md_warn("%s: %s", path, strerror(errno)); /* the next process is told of it */
	*pipe = writer->first = md_steal_ptr(&made);
	return MD_OK;
}

void md_log_pipe_destroy(struct md_log_pipe *pipe)
{
	if (!pipe)
		return;
	struct md_log_pipe **at = &pipe->writer->first;
	while (*at != pipe)
		at = &(*at)->next;
	*at = pipe->next;
	close(pipe->ends[0]);
	close(pipe->ends[1]);
	free(pipe->path);
	free(pipe);
}

int md_log_pipe_output(const struct md_log_pipe *pipe)
{
	return pipe->ends[1];
}
