/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives packets of one size; what a peer sent is checked for its size, kind and texts. */
#include "swap/carry_wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAGIC 0x79727243u

union control {
	char bytes[CMSG_SPACE(4 * sizeof(int))];
	struct cmsghdr aligned;
};

enum md_status md_carry_wire_pair(int ends[2], struct md_error *err)
{
	if (!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return MD_OK;
	return md_error_set(err, MD_ERR_IO, "a pair of sockets: %s", strerror(errno));
}

enum md_status md_carry_wire_send(int fd, struct md_carry_message *message, int passed, struct md_error *err)
{
	union control control = {.bytes = {0}};
	struct iovec whole = {message, sizeof(*message)};
	struct msghdr header = {.msg_iov = &whole, .msg_iovlen = 1};
	message->magic = MAGIC;
	if (passed >= 0) {
		header.msg_control = control.bytes;
		header.msg_controllen = CMSG_SPACE(sizeof(int));
		struct cmsghdr *at = CMSG_FIRSTHDR(&header);
		at->cmsg_level = SOL_SOCKET;
		at->cmsg_type = SCM_RIGHTS;
		at->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(at), &passed, sizeof(passed));
	}
	ssize_t sent;
	do
		sent = sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	if (sent == (ssize_t)sizeof(*message))
		return MD_OK;
	return md_error_set(err, errno == EAGAIN ? MD_ERR_BUSY : MD_ERR_TRUNCATED, "sending a message: %s",
			    strerror(errno));
}

/* One descriptor is kept. */
static int take_passed(struct msghdr *header)
{
	int kept = -1, fd;
	for (struct cmsghdr *at = CMSG_FIRSTHDR(header); at; at = CMSG_NXTHDR(header, at)) {
		if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(fd)) <= at->cmsg_len; i++) {
			memcpy(&fd, CMSG_DATA(at) + i * sizeof(fd), sizeof(fd));
			if (kept >= 0)
				close(kept);
			kept = fd;
		}
	}
	return kept;
}

static void end_texts(struct md_carry_message *message)
{
	if (message->kind == MD_CARRY_FAILED || message->kind == MD_CARRY_ROOM)
		message->text[sizeof(message->text) - 1] = '\0';
	if (message->kind == MD_CARRY_BEGIN || message->kind == MD_CARRY_READY || message->kind == MD_CARRY_OFFER ||
	    message->kind == MD_CARRY_LENDER)
		for (unsigned i = 0; i < MD_CARRY_LINKS; i++)
			message->gpus[i][MD_CARRY_GPU_BYTES - 1] = '\0';
}

static bool is_good(const struct md_carry_message *message)
{
	bool chunk =
	    message->kind == MD_CARRY_CHUNK || message->kind == MD_CARRY_TAKE || message->kind == MD_CARRY_STALE;
	uint32_t most = chunk ? MD_CARRY_CHUNK_BLOCKS : MD_CARRY_LINKS;
	return message->magic == MAGIC && message->kind >= MD_CARRY_BEGIN && message->kind <= MD_CARRY_LENDER &&
	       message->count <= most;
}

enum md_status md_carry_wire_receive(int fd, struct md_carry_message *message, int *passed, bool *there,
				     struct md_error *err)
{
	union control control;
	struct iovec whole = {message, sizeof(*message)};
	struct msghdr header = {
	    .msg_iov = &whole, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
	*there = false;
	*passed = -1;
	ssize_t got = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return MD_OK;
	if (got <= 0)
		return md_error_set(err, MD_ERR_TRUNCATED, "the connection was closed%s%s", got ? ": " : "",
				    got ? strerror(errno) : "");
	*passed = take_passed(&header);
	if (got == (ssize_t)sizeof(*message) && !(header.msg_flags & MSG_TRUNC) && is_good(message)) {
		end_texts(message);
		*there = true;
		return MD_OK;
	}
	if (*passed >= 0)
		close(*passed);
	*passed = -1;
	return md_error_set(err, MD_ERR_CORRUPT, "a packet of %zd bytes is no message", got);
}
