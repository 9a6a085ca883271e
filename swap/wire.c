/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes lines over a Unix socket; what a peer sends is bounded and checked. */
#include "swap/wire.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define SEND_S 10

void md_swap_wire_init(struct md_swap_wire *wire, int fd)
{
	wire->fd = fd;
	wire->passed = wire->passed_too = -1;
	wire->used = 0;
}

static void close_passed(struct md_swap_wire *wire)
{
	if (wire->passed >= 0)
		close(wire->passed);
	if (wire->passed_too >= 0)
		close(wire->passed_too);
	wire->passed = wire->passed_too = -1;
}

void md_swap_wire_finish(struct md_swap_wire *wire)
{
	if (wire->fd >= 0)
		close(wire->fd);
	close_passed(wire);
	md_swap_wire_init(wire, -1);
}

/* ---- reading ---- */

/* The two first ones of the last message are kept; others are closed. */
static void keep_passed(struct md_swap_wire *wire, struct msghdr *header)
{
	for (struct cmsghdr *at = CMSG_FIRSTHDR(header); at; at = CMSG_NXTHDR(header, at)) {
		if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
			continue;
		close_passed(wire);
		for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= at->cmsg_len; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(at) + i * sizeof(fd), sizeof(fd));
			if (wire->passed < 0)
				wire->passed = fd;
			else if (wire->passed_too < 0)
				wire->passed_too = fd;
			else
				close(fd);
		}
	}
}

enum md_status md_swap_wire_take(struct md_swap_wire *wire, struct md_error *err)
{
	union {
		char bytes[CMSG_SPACE(4 * sizeof(int))];
		struct cmsghdr aligned;
	} control;
	struct iovec room = {wire->bytes + wire->used, MD_SWAP_LINE - wire->used};
	struct msghdr header = {
	    .msg_iov = &room, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
	if (!room.iov_len)
		return MD_OK; /* a whole line is there already, or md_swap_wire_next says that none can come */
	ssize_t got = recvmsg(wire->fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return MD_OK;
	if (got <= 0)
		return md_error_set(err, MD_ERR_TRUNCATED, "the peer has closed the connection%s%s", got ? ": " : "",
				    got ? strerror(errno) : "");
	keep_passed(wire, &header);
	wire->used += (size_t)got;
	return MD_OK;
}

bool md_swap_wire_wait(const struct md_swap_wire *wire, int milliseconds)
{
	struct pollfd ready = {.fd = wire->fd, .events = POLLIN};
	struct timeval most = {0}; /* for ever */
	char first;
	int count = poll(&ready, 1, milliseconds);
	if (count >= 0 || errno == EINTR)
		return count != 0;
	/* poll takes no descriptor at all in a process that may open none (RLIMIT_NOFILE) */
	if (milliseconds > 0)
		most = (struct timeval){milliseconds / 1000, milliseconds % 1000 * 1000};
	setsockopt(wire->fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
	return recv(wire->fd, &first, 1, MSG_PEEK | (milliseconds ? 0 : MSG_DONTWAIT)) >= 0 || errno != EAGAIN;
}

enum md_status md_swap_wire_next(struct md_swap_wire *wire, struct md_swap_message *message, bool *there,
				 struct md_error *err)
{
	char *end = memchr(wire->bytes, '\n', wire->used);
	*there = end != NULL;
	if (!end && wire->used == MD_SWAP_LINE)
		return md_error_set(err, MD_ERR_TOO_LARGE, "the peer sent a line of more than %u bytes", MD_SWAP_LINE);
	if (!end)
		return MD_OK;
	size_t size = (size_t)(end - wire->bytes);
	memcpy(message->line, wire->bytes, size);
	message->line[size] = '\0';
	wire->used -= size + 1;
	memmove(wire->bytes, end + 1, wire->used);
	return md_json_read_line(message->line, size, message->fields, MD_SWAP_FIELDS, &message->count, err);
}

/* Until a time, for ever if that is UINT64_MAX. */
static int left_until(uint64_t until)
{
	uint64_t now = md_clock_ns();
	if (until == UINT64_MAX)
		return -1;
	return now >= until ? 0 : (int)((until - now + 999999) / 1000000);
}

/* The time is that of the whole line, which may come in pieces. */
enum md_status md_swap_wire_await(struct md_swap_wire *wire, int timeout_ms, struct md_swap_message *message,
				  struct md_error *err)
{
	uint64_t until = timeout_ms < 0 ? UINT64_MAX : md_clock_ns() + (uint64_t)timeout_ms * 1000000u;
	for (;;) {
		bool there;
		MD_FORWARD(md_swap_wire_next(wire, message, &there, err));
		if (there)
			return MD_OK;
		if (!md_swap_wire_wait(wire, left_until(until)))
			return md_error_set(err, MD_ERR_TIMEOUT, "no answer in %d ms", timeout_ms);
		MD_FORWARD(md_swap_wire_take(wire, err));
	}
}

static const struct md_json_field *find(const struct md_swap_message *message, const char *key)
{
	for (size_t i = 0; i < message->count; i++)
		if (!strcmp(message->fields[i].key, key))
			return &message->fields[i];
	return NULL;
}

const char *md_swap_message_text(const struct md_swap_message *message, const char *key)
{
	const struct md_json_field *field = find(message, key);
	return field && field->kind == MD_JSON_TEXT ? field->text : "";
}

bool md_swap_message_is_text(const struct md_swap_message *message, const char *key)
{
	const struct md_json_field *field = find(message, key);
	return field && field->kind == MD_JSON_TEXT;
}

bool md_swap_message_has(const struct md_swap_message *message, const char *key)
{
	return find(message, key) != NULL;
}

enum md_status md_swap_message_check(const struct md_swap_message *message, const char *const *numbers,
				     const char *const *texts, struct md_error *err)
{
	for (; *numbers; numbers++)
		if (md_swap_message_is_text(message, *numbers))
			return md_error_set(err, MD_ERR_INVALID, "%s is a text: a number or a truth is wanted",
					    *numbers);
	for (; *texts; texts++)
		if (md_swap_message_has(message, *texts) && !md_swap_message_is_text(message, *texts))
			return md_error_set(err, MD_ERR_INVALID, "%s is a number or a truth: a text is wanted", *texts);
	return MD_OK;
}

uint64_t md_swap_message_number(const struct md_swap_message *message, const char *key)
{
	const struct md_json_field *field = find(message, key);
	return field && field->kind != MD_JSON_TEXT ? field->number : 0;
}

/* ---- writing ---- */

enum md_status md_swap_letter_begin(struct md_swap_letter *letter, struct md_error *err)
{
	*letter = (struct md_swap_letter){0};
	letter->out = open_memstream(&letter->text, &letter->size);
	if (!letter->out)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a message");
	md_json_init_line(&letter->json, letter->out);
	md_json_object(&letter->json, NULL);
	return MD_OK;
}

static enum md_status send_all(int fd, const char *text, size_t size, const int passed[2], struct md_error *err)
{
	union {
		char bytes[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr aligned;
	} control = {.bytes = {0}};
	size_t count = passed[0] < 0 ? 0 : passed[1] < 0 ? 1 : 2;
	while (size) {
		struct iovec part = {(char *)text, size};
		struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
		if (count) {
			header.msg_control = control.bytes;
			header.msg_controllen = CMSG_SPACE(count * sizeof(int));
			struct cmsghdr *at = CMSG_FIRSTHDR(&header);
			at->cmsg_level = SOL_SOCKET;
			at->cmsg_type = SCM_RIGHTS;
			at->cmsg_len = CMSG_LEN(count * sizeof(int));
			memcpy(CMSG_DATA(at), passed, count * sizeof(int));
		}
		ssize_t sent = sendmsg(fd, &header, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return md_error_set(err, errno == EPIPE || errno == ECONNRESET ? MD_ERR_TRUNCATED : MD_ERR_IO,
					    "sending a message: %s", strerror(errno));
		text += sent;
		size -= (size_t)sent;
		count = 0;
	}
	return MD_OK;
}

enum md_status md_swap_letter_send(struct md_swap_letter *letter, int fd, int passed, struct md_error *err)
{
	return md_swap_letter_send_both(letter, fd, passed, -1, err);
}

enum md_status md_swap_letter_send_both(struct md_swap_letter *letter, int fd, int passed, int passed_too,
					struct md_error *err)
{
	const int both[2] = {passed, passed_too};
	enum md_status status;
	md_json_end(&letter->json);
	bool written = !ferror(letter->out);
	written = fclose(letter->out) == 0 && written;
	if (!written)
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a message");
	else if (letter->size > MD_SWAP_LINE)
		status = md_error_set(err, MD_ERR_TOO_LARGE, "a message of %zu bytes, at most %u", letter->size,
				      MD_SWAP_LINE);
	else
		status = send_all(fd, letter->text, letter->size, both, err);
	free(letter->text);
	*letter = (struct md_swap_letter){0};
	return status;
}

enum md_status md_swap_letter_ask(struct md_swap_letter *letter, int fd, int passed, struct md_error *err)
{
	enum md_status status = md_swap_letter_send(letter, fd, passed, err);
	return status == MD_ERR_TRUNCATED ? MD_OK : status;
}

/* ---- connecting ---- */

static void limit_sending(int fd)
{
	struct timeval most = {.tv_sec = SEND_S};
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
}

enum md_status md_swap_wire_check_peer(int fd, struct md_error *err)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		return md_error_set(err, MD_ERR_IO, "getsockopt(SO_PEERCRED): %s", strerror(errno));
	if (peer.uid != geteuid() && peer.uid != 0)
		return md_error_set(err, MD_ERR_INVALID, "the peer runs as user %u, and not as user %u", peer.uid,
				    geteuid());
	limit_sending(fd);
	return MD_OK;
}

static enum md_status connect_failure(int failure)
{
	if (failure == EAGAIN)
		return MD_ERR_BUSY;
	return failure == ENOENT || failure == ECONNREFUSED ? MD_ERR_NOT_FOUND : MD_ERR_IO;
}

static enum md_status connect_to(const char *path, int flags, bool asks, int *fd, struct md_error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	MD_AUTO_FD int made = -1;
	if (strlen(path) >= sizeof(address.sun_path))
		return md_error_set(err, MD_ERR_INVALID, "%s: the path of a socket has at most %zu bytes", path,
				    sizeof(address.sun_path) - 1);
	memcpy(address.sun_path, path, strlen(path) + 1);
	made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
	if (made < 0)
		return md_error_set(err, MD_ERR_IO, "a socket: %s", strerror(errno));
	if (asks)
		limit_sending(made); /* connecting, too, waits no longer than that */
	if (connect(made, (struct sockaddr *)&address, sizeof(address)))
		return md_error_set(err, connect_failure(errno), "%s: %s", path, strerror(errno));
	if (!asks || geteuid())
		MD_FORWARD(md_swap_wire_check_peer(made, err));
	*fd = md_steal_fd(&made);
	return MD_OK;
}

enum md_status md_swap_wire_connect(const char *path, int *fd, struct md_error *err)
{
	return connect_to(path, 0, false, fd, err);
}

enum md_status md_swap_wire_connect_now(const char *path, int *fd, struct md_error *err)
{
	return connect_to(path, SOCK_NONBLOCK, false, fd, err);
}

enum md_status md_swap_wire_connect_to_ask(const char *path, int *fd, struct md_error *err)
{
	return connect_to(path, 0, true, fd, err);
}
