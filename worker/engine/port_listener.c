/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/port_listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define LISTENING 0x0Au /* TCP_LISTEN, as the kernel writes it */
#define LOOPBACK 1u     /* the number of the interface, in each network namespace */

enum way { UNKNOWN, ASKED, READ };

bool md_port_is_loopback(const struct md_http_address *address)
{
	return (address->any.sa_family == AF_INET && ntohl(address->v4.sin_addr.s_addr) >> 24 == 127) ||
	       (address->any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr));
}

/* ---- asked of the kernel ---- */

struct question {
	struct nlmsghdr head;
	struct inet_diag_req_v2 body;
};

static struct question question_of(const struct md_http_address *address)
{
	bool v4 = address->any.sa_family == AF_INET;
	struct question made = {
	    .head = {.nlmsg_len = sizeof(made), .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
	    .body = {.sdiag_family = (uint8_t)address->any.sa_family,
		     .sdiag_protocol = IPPROTO_TCP,
		     .idiag_states = UINT32_MAX,
		     .id = {.idiag_sport = v4 ? address->v4.sin_port : address->v6.sin6_port,
			    .idiag_if = LOOPBACK,
			    .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}}};
	if (v4)
		made.body.id.idiag_src[0] = address->v4.sin_addr.s_addr;
	else
		memcpy(made.body.id.idiag_src, &address->v6.sin6_addr, sizeof(made.body.id.idiag_src));
	return made;
}

/* False: the kernel has not answered. The answer is there when send() returns: nothing waits. Inode 0: no socket listens. */
static bool ask_kernel(const struct md_http_address *address, uint64_t *inode)
{
	union {
		struct nlmsghdr head;
		char bytes[8192];
	} answer;
	struct question asked = question_of(address);
	MD_AUTO_FD int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (fd < 0 || send(fd, &asked, sizeof(asked), MSG_DONTWAIT) != (ssize_t)sizeof(asked))
		return false;
	ssize_t size = recv(fd, &answer, sizeof(answer), MSG_DONTWAIT);
	if (size < 0 || !NLMSG_OK(&answer.head, (size_t)size))
		return false;
	if (answer.head.nlmsg_type == NLMSG_ERROR) {
		const struct nlmsgerr *error = NLMSG_DATA(&answer.head);
		*inode = 0;
		return answer.head.nlmsg_len >= NLMSG_LENGTH(sizeof(*error)) && error->error == -ENOENT;
	}
	const struct inet_diag_msg *found = NLMSG_DATA(&answer.head);
	if (answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY || answer.head.nlmsg_len < NLMSG_LENGTH(sizeof(*found)))
		return false;
	*inode = found->idiag_state == LISTENING ? found->idiag_inode : 0;
	return true;
}

static bool lacks_room(void)
{
	return errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
}

/* A kernel without the module says the same as one that finds no socket, so it is asked for one that is there. */
static enum way find_way(void)
{
	struct md_http_address own = {.v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
	socklen_t size = sizeof(own.v4);
	uint64_t inode = 0;
	MD_AUTO_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, &own.any, size) || listen(fd, 1) || getsockname(fd, &own.any, &size))
		return UNKNOWN;
	if (ask_kernel(&own, &inode))
		return inode ? ASKED : READ;
	return lacks_room() ? UNKNOWN : READ;
}

/* ---- read in its tables ---- */

/* Of a v6 address in /proc/net/tcp6: all addresses, ::1, or a v4 address within a v6 one. */
static bool covers_v6(const char *hex, const struct md_http_address *address)
{
	char mapped[33];
	if (!strcmp(hex, "00000000000000000000000000000000"))
		return true;
	if (address->any.sa_family == AF_INET6)
		return !strcmp(hex, "00000000000000000000000001000000");
	snprintf(mapped, sizeof(mapped), "0000000000000000FFFF0000%08X", address->v4.sin_addr.s_addr);
	return !strcmp(hex, mapped);
}

static bool covers_v4(const char *hex, const struct md_http_address *address)
{
	return address->any.sa_family == AF_INET &&
	       (!strcmp(hex, "00000000") || strtoul(hex, NULL, 16) == address->v4.sin_addr.s_addr);
}

/* Closes the table; NULL: there is none. */
static uint64_t find_in_table(FILE *table, const struct md_http_address *address,
			      bool (*covers)(const char *hex, const struct md_http_address *address))
{
	unsigned port = md_http_address_number(address);
	char line[512], local[33];
	unsigned own_port, state;
	uint64_t inode, found = 0;
	while (table && !found && fgets(line, sizeof(line), table))
		if (sscanf(line, " %*d: %32[0-9A-F]:%x %*s %x %*s %*s %*s %*s %*s %" SCNu64, local, &own_port, &state,
			   &inode) == 4 &&
		    state == LISTENING && own_port == port && covers(local, address))
			found = inode;
	if (table)
		fclose(table);
	return found;
}

static uint64_t read_tables(const struct md_http_address *address)
{
	uint64_t inode = find_in_table(fopen("/proc/net/tcp", "re"), address, covers_v4);
	return inode ? inode : find_in_table(fopen("/proc/net/tcp6", "re"), address, covers_v6);
}

/* ---- either ---- */

/* Also what was asked of the kernel before may lack a descriptor now. */
uint64_t md_port_listener(const struct md_http_address *address)
{
	static enum way way;
	uint64_t inode;
	if (way == UNKNOWN) {
		way = find_way();
		if (way == READ)
			md_warn(
			    "the kernel cannot be asked who listens at a port (sock_diag(7)), so /proc/net/tcp is "
			    "read for it: where there are many connections, each start of an engine holds requests up");
	}
	return way == ASKED && ask_kernel(address, &inode) ? inode : read_tables(address);
}
