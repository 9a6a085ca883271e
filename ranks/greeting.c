/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of fixed size over the socket at which ranks meet. */
#include "ranks/greeting.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"

#define NS_PER_MS UINT64_C(1000000)

static const char greeting_magic[8] = "MDRANK?", answer_magic[8] = "MDRANK!";

void md_greeting_write(struct md_greeting *out, const struct md_rank *rank)
{
	*out = (struct md_greeting){.version = MD_GREETING_VERSION,
				    .bytes = sizeof(*out),
				    .rank = rank->rank,
				    .ranks = rank->ranks,
				    .job = rank->job};
	memcpy(out->magic, greeting_magic, sizeof(out->magic));
	out->checksum = md_hash_checksum(out, offsetof(struct md_greeting, checksum));
}

bool md_greeting_is_one(const struct md_greeting *greeting)
{
	return !memcmp(greeting->magic, greeting_magic, sizeof(greeting->magic)) &&
	       greeting->bytes == sizeof(*greeting) &&
	       greeting->checksum == md_hash_checksum(greeting, offsetof(struct md_greeting, checksum));
}

enum md_status md_greeting_check(const struct md_greeting *greeting, const struct md_rank *host, struct md_error *err)
{
	if (greeting->version != MD_GREETING_VERSION)
		return md_error_set(err, MD_ERR_VERSION,
				    "rank %u has another Medusa than rank %u: they meet by versions %u and %u",
				    greeting->rank, host->rank, greeting->version, MD_GREETING_VERSION);
	if (greeting->job != host->job)
		return md_error_set(err, MD_ERR_MISMATCH, "rank %u of another job has come", greeting->rank);
	if (greeting->ranks != host->ranks)
		return md_error_set(err, MD_ERR_MISMATCH, "rank %u says that there are %u ranks, and rank %u says %u",
				    greeting->rank, greeting->ranks, host->rank, host->ranks);
	if (greeting->rank >= host->ranks)
		return md_error_set(err, MD_ERR_MISMATCH, "rank %u has come, and there are %u ranks", greeting->rank,
				    host->ranks);
	return MD_OK;
}

/* ---- the answer ---- */

enum md_status md_greeting_answer_send(int socket, int memory, const char *why, struct md_error *err)
{
	struct md_greeting_answer answer = {
	    .version = MD_GREETING_VERSION, .bytes = sizeof(answer), .welcome = memory >= 0};
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr aligned;
	} control = {.bytes = {0}};
	struct iovec part = {&answer, sizeof(answer)};
	struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
	memcpy(answer.magic, answer_magic, sizeof(answer.magic));
	if (memory < 0)
		snprintf(answer.why, sizeof(answer.why), "%s", why);
	answer.checksum = md_hash_checksum(&answer, offsetof(struct md_greeting_answer, checksum));
	if (memory >= 0) {
		header.msg_control = control.bytes;
		header.msg_controllen = sizeof(control.bytes);
		struct cmsghdr *at = CMSG_FIRSTHDR(&header);
		*at = (struct cmsghdr){
		    .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(at), &memory, sizeof(memory));
	}
	/* the socket's buffer is empty, and holds it whole */
	if (sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(answer))
		return MD_OK;
	return md_error_set(err, MD_ERR_IO, "answering a rank: %s", strerror(errno));
}

static void take_passed(struct msghdr *header, int *memory)
{
	for (struct cmsghdr *at = CMSG_FIRSTHDR(header); at; at = CMSG_NXTHDR(header, at))
		for (size_t i = 0; at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_RIGHTS &&
				   CMSG_LEN((i + 1) * sizeof(int)) <= at->cmsg_len;
		     i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(at) + i * sizeof(fd), sizeof(fd));
			if (*memory >= 0)
				close(*memory);
			*memory = fd;
		}
}

static enum md_status await_bytes(int socket, uint64_t deadline_ns, struct md_error *err)
{
	struct pollfd ready = {.fd = socket, .events = POLLIN};
	for (;;) {
		uint64_t now = md_clock_ns();
		if (now >= deadline_ns)
			return md_error_set(err, MD_ERR_TIMEOUT,
					    "the rank that waits for others there does not answer");
		uint64_t left = (deadline_ns - now) / NS_PER_MS + 1;
		int got = poll(&ready, 1, left > 1000 ? 1000 : (int)left);
		if (got > 0)
			return MD_OK;
		if (got < 0 && errno != EINTR)
			return md_error_set(err, MD_ERR_IO, "poll: %s", strerror(errno));
	}
}

static enum md_status take_bytes(int socket, void *out, size_t size, uint64_t deadline_ns, int *memory,
				 struct md_error *err)
{
	for (size_t used = 0; used < size;) {
		union {
			char bytes[CMSG_SPACE(4 * sizeof(int))];
			struct cmsghdr aligned;
		} control;
		struct iovec room = {(char *)out + used, size - used};
		struct msghdr header = {.msg_iov = &room,
					.msg_iovlen = 1,
					.msg_control = control.bytes,
					.msg_controllen = sizeof(control.bytes)};
		MD_FORWARD(await_bytes(socket, deadline_ns, err));
		ssize_t got = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (got <= 0)
			return md_error_set(err, MD_ERR_TRUNCATED, "the rank that waits for others there has ended");
		take_passed(&header, memory);
		used += (size_t)got;
	}
	return MD_OK;
}

enum md_status md_greeting_answer_take(int socket, uint64_t deadline_ns, int *memory, struct md_error *err)
{
	struct md_greeting_answer answer;
	MD_AUTO_FD int passed = -1;
	MD_FORWARD(take_bytes(socket, &answer, sizeof(answer), deadline_ns, &passed, err));
	if (memcmp(answer.magic, answer_magic, sizeof(answer.magic)) || answer.bytes != sizeof(answer) ||
	    answer.checksum != md_hash_checksum(&answer, offsetof(struct md_greeting_answer, checksum)))
		return md_error_set(err, MD_ERR_CORRUPT, "what answers there is no rank");
	if (answer.version != MD_GREETING_VERSION)
		return md_error_set(err, MD_ERR_VERSION, "the rank there has another Medusa: it meets by version %u",
				    answer.version);
	answer.why[sizeof(answer.why) - 1] = '\0';
	if (!answer.welcome)
		return md_error_set(err, MD_ERR_MISMATCH, "%s", answer.why);
	if (passed < 0)
		return md_error_set(err, MD_ERR_CORRUPT, "the rank there has not sent what decisions are made in");
	*memory = md_steal_fd(&passed);
	return MD_OK;
}

enum md_status md_greeting_check_peer(int socket, pid_t *process, struct md_error *err)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		return md_error_set(err, MD_ERR_IO, "getsockopt(SO_PEERCRED): %s", strerror(errno));
	if (peer.uid != geteuid())
		return md_error_set(err, MD_ERR_INVALID, "the peer runs as user %u, and not as user %u", peer.uid,
				    geteuid());
	*process = peer.pid;
	return MD_OK;
}
