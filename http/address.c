/* SPDX-License-Identifier: Apache-2.0 */
#include "http/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#define KEEP_IDLE_S 10 /* without a byte in either direction */
#define KEEP_BETWEEN_S 5
#define KEEP_TIMES 3

static enum md_status parse_local(const char *path, struct md_http_address *address, struct md_error *err)
{
	size_t size = strlen(path);
	if (!size || size >= sizeof(address->local.sun_path))
		return md_error_set(err, MD_ERR_INVALID, "unix:%.200s: a path of 1 to %zu bytes is wanted", path,
				    sizeof(address->local.sun_path) - 1);
	address->local.sun_family = AF_UNIX;
	memcpy(address->local.sun_path, path, size + 1);
	address->size = sizeof(address->local);
	return MD_OK;
}

/* host: the `size` bytes before the colon, without brackets. */
static bool parse_host(const char *host, size_t size, struct md_http_address *address)
{
	char given[INET6_ADDRSTRLEN];
	if (size >= sizeof(given))
		return false;
	memcpy(given, host, size);
	given[size] = '\0';
	const char *text = !size ? "::" : strcmp(given, "localhost") ? given : "127.0.0.1";
	if (inet_pton(AF_INET, text, &address->v4.sin_addr) == 1) {
		address->v4.sin_family = AF_INET;
		address->size = sizeof(address->v4);
		return true;
	}
	if (inet_pton(AF_INET6, text, &address->v6.sin6_addr) != 1)
		return false;
	address->v6.sin6_family = AF_INET6;
	address->size = sizeof(address->v6);
	return true;
}

enum md_status md_http_address_parse(const char *text, struct md_http_address *address, struct md_error *err)
{
	char *end;
	const char *colon = strrchr(text, ':'), *host = text;
	memset(address, 0, sizeof(*address));
	if (!strncmp(text, "unix:", 5))
		return parse_local(text + 5, address, err);
	size_t size = colon ? (size_t)(colon - text) : 0;
	if (size >= 2 && host[0] == '[' && host[size - 1] == ']') {
		host++;
		size -= 2;
	}
	unsigned long port = colon && colon[1] >= '0' && colon[1] <= '9' ? strtoul(colon + 1, &end, 10) : ULONG_MAX;
	if (port > UINT16_MAX || *end || !parse_host(host, size, address))
		return md_error_set(
		    err, MD_ERR_INVALID,
		    "\"%.200s\" is no address: ADDRESS:PORT, [ADDRESS]:PORT, :PORT or unix:PATH is wanted", text);
	if (address->any.sa_family == AF_INET)
		address->v4.sin_port = htons((uint16_t)port);
	else
		address->v6.sin6_port = htons((uint16_t)port);
	return MD_OK;
}

enum md_status md_http_address_clear(const struct md_http_address *address, struct md_error *err)
{
	const char *path = address->local.sun_path;
	struct stat is;
	if (lstat(path, &is))
		return MD_OK;
	if (!S_ISSOCK(is.st_mode))
		return md_error_set(err, MD_ERR_BUSY, "%s is there already, and is no socket: remove it", path);
	MD_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && !connect(fd, &address->any, address->size))
		return md_error_set(err, MD_ERR_BUSY, "%s: another process listens there", path);
	unlink(path);
	return MD_OK;
}

unsigned md_http_address_number(const struct md_http_address *address)
{
	return address->any.sa_family == AF_INET    ? ntohs(address->v4.sin_port)
	       : address->any.sa_family == AF_INET6 ? ntohs(address->v6.sin6_port)
						    : 0;
}

unsigned md_http_address_port(int fd)
{
	struct md_http_address bound;
	socklen_t size = sizeof(bound.v6);
	if (getsockname(fd, &bound.any, &size))
		return 0;
	return md_http_address_number(&bound);
}

void md_http_no_delay(int fd)
{
	int one = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

void md_http_keep_alive(int fd)
{
	int one = 1, idle_s = KEEP_IDLE_S, between_s = KEEP_BETWEEN_S, times = KEEP_TIMES;
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof(between_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof(times));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
}
