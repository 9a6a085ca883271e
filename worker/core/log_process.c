/* SPDX-License-Identifier: Apache-2.0 */
/* The process that writes the logs of engines: it reads their pipes, and begins a file anew when it has become large. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "worker/core/log_writer.h"

#define PIECE 65536u

struct log {
	char *path;
	int file;           /* -1: it can't be opened now */
	unsigned long lost; /* bytes since the last one that could be written */
};

struct process {
	int socket; /* -1: the daemon has ended */
	int copy;
	struct log *logs;
	size_t count, room;
	struct pollfd *waits; /* the socket, then the logs' pipes */
	size_t waits_count, waits_room;
};

/* ---- one log ---- */

static void open_file(struct log *log)
{
	if (log->file >= 0)
		close(log->file);
	log->file = open(log->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
}

/* Another one may have begun the file anew, or a user may have moved it away. */
static void find_file(struct log *log)
{
	struct stat is, there;
	if (log->file < 0 || fstat(log->file, &is) || lstat(log->path, &there) || is.st_ino != there.st_ino ||
	    is.st_dev != there.st_dev)
		open_file(log);
}

static void begin_anew(struct log *log)
{
	char earlier[PATH_MAX];
	snprintf(earlier, sizeof(earlier), "%s.1", log->path);
	if (!rename(log->path, earlier))
		open_file(log);
}

static bool write_whole(int fd, const char *bytes, size_t size)
{
	ssize_t written;
	for (; size; bytes += written, size -= (size_t)written) {
		written = write(fd, bytes, size);
		if (written < 0 && errno == EINTR)
			written = 0;
		else if (written <= 0)
			return false;
	}
	return true;
}

static void say_lost(struct log *log)
{
	char line[96];
	int size = snprintf(line, sizeof(line), "\n[medusa-worker: %lu bytes could not be written]\n", log->lost);
	if (log->lost && write_whole(log->file, line, (size_t)size))
		log->lost = 0;
}

/* What can't be written is lost, and counted: the engine must not wait for it. */
static void append(struct log *log, const char *bytes, size_t size)
{
	struct stat is;
	find_file(log);
	if (log->file >= 0 && !fstat(log->file, &is) && (uint64_t)is.st_size + size > MD_LOG_WRITER_MAX / 2)
		begin_anew(log);
	if (log->file >= 0)
		say_lost(log);
	if (log->file < 0 || !write_whole(log->file, bytes, size))
		log->lost += size;
}

/* As far as it is taken at once. */
static void copy(int fd, const char *bytes, size_t size)
{
	struct pollfd asked = {.fd = fd, .events = POLLOUT};
	while (size && fd >= 0 && poll(&asked, 1, 0) == 1 && asked.revents == POLLOUT) {
		ssize_t written = write(fd, bytes, size < PIPE_BUF ? size : PIPE_BUF);
		if (written <= 0)
			return;
		bytes += written;
		size -= (size_t)written;
	}
}

/* ---- all of them ---- */

static void close_log(struct process *process, size_t at)
{
	struct log *log = &process->logs[at];
	close(process->waits[at + 1].fd);
	if (log->file >= 0)
		close(log->file);
	free(log->path);
	*log = process->logs[--process->count];
	process->waits[at + 1] = process->waits[--process->waits_count];
}

static void read_log(struct process *process, size_t at)
{
	static char bytes[PIECE];
	ssize_t size = read(process->waits[at + 1].fd, bytes, sizeof(bytes));
	if (size > 0) {
		append(&process->logs[at], bytes, (size_t)size);
		copy(process->copy, bytes, (size_t)size);
	} else if (!size || (errno != EAGAIN && errno != EINTR)) {
		close_log(process, at);
	}
}

static void add_log(struct process *process, const char *path, int pipe)
{
	struct log made = {.path = strdup(path), .file = -1};
	if (!made.path || !MD_ARRAY_GROW(process->logs, process->count, process->room) ||
	    !MD_ARRAY_GROW(process->waits, process->waits_count, process->waits_room))
		_exit(1); /* out of memory: the daemon starts another process, and tells it of all pipes */
	process->logs[process->count++] = made;
	process->waits[process->waits_count++] = (struct pollfd){.fd = pipe, .events = POLLIN};
}

static void take_message(struct process *process)
{
	char path[PATH_MAX];
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec part = {.iov_base = path, .iov_len = sizeof(path) - 1};
	struct msghdr message = {
	    .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	ssize_t size = recvmsg(process->socket, &message, MSG_CMSG_CLOEXEC);
	struct cmsghdr *sent = size > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	int pipe = -1;
	if (!size || (size < 0 && errno != EINTR && errno != EAGAIN)) {
		close(process->socket);
		process->socket = process->waits[0].fd = -1;
	}
	if (!sent || sent->cmsg_type != SCM_RIGHTS)
		return;
	memcpy(&pipe, CMSG_DATA(sent), sizeof(pipe));
	path[size] = '\0';
	add_log(process, path, pipe);
}

void md_log_process_run(int socket, int copy_to)
{
	struct process process = {.socket = socket, .copy = copy_to};
	if (!MD_ARRAY_GROW(process.waits, process.waits_count, process.waits_room))
		return;
	process.waits[process.waits_count++] = (struct pollfd){.fd = socket, .events = POLLIN};
	while (process.socket >= 0 || process.count) {
		if (poll(process.waits, process.waits_count, -1) < 0)
			continue;
		/* backwards: the last one takes the place of one that ends */
		for (size_t i = process.count; i > 0; i--)
			if (process.waits[i].revents)
				read_log(&process, i - 1);
		if (process.waits[0].revents)
			take_message(&process);
	}
	free(process.logs);
	free(process.waits);
}
