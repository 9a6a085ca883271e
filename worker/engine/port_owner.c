/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/port_owner.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "worker/engine/port_listener.h"
#include "worker/engine/process_facts.h"

/* Also engines that allow their address to be used again, as most servers do, can't have it then. */
static bool can_bind(const struct md_http_address *address)
{
	int yes = 1;
	MD_AUTO_FD int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)))
		return true;
	return !bind(fd, &address->any, (socklen_t)address->size) || errno != EADDRINUSE;
}

enum md_port_use md_port_use(const struct md_http_address *address)
{
	if (!md_port_is_loopback(address))
		return MD_PORT_FREE;
	return md_port_listener(address) ? MD_PORT_LISTENED : can_bind(address) ? MD_PORT_FREE : MD_PORT_CONNECTED;
}

/* ---- processes ---- */

static bool holds(pid_t pid, uint64_t inode)
{
	char path[64], wanted[48], link[48];
	struct dirent *entry;
	bool found = false;
	snprintf(wanted, sizeof(wanted), "socket:[%" PRIu64 "]", inode);
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *folder = opendir(path);
	while (folder && !found && (entry = readdir(folder))) {
		ssize_t size = readlinkat(dirfd(folder), entry->d_name, link, sizeof(link) - 1);
		link[size > 0 ? size : 0] = '\0';
		found = !strcmp(link, wanted);
	}
	if (folder)
		closedir(folder);
	return found;
}

/* A process of the group (-1: of any) that has the socket; 0: none that this process may look into. */
static pid_t find_holder(uint64_t inode, pid_t group)
{
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	pid_t found = 0;
	while (folder && !found && (entry = readdir(folder))) {
		pid_t pid = isdigit((unsigned char)*entry->d_name) ? (pid_t)strtol(entry->d_name, NULL, 10) : 0;
		if (pid && (group < 0 || getpgid(pid) == group) && holds(pid, inode))
			found = pid;
	}
	if (folder)
		closedir(folder);
	return found;
}

uint64_t md_port_socket(const struct md_http_address *address)
{
	return md_port_is_loopback(address) ? md_port_listener(address) : 0;
}

pid_t md_port_foreign_owner(uint64_t inode, pid_t group, const char *mark)
{
	char other[64];
	if (find_holder(inode, group))
		return 0;
	pid_t owner = find_holder(inode, -1);
	if (!owner)
		return 0;
	md_process_variable(owner, MD_ENGINE_MARK, other, sizeof(other));
	if (*other)
		return strcmp(other, mark) ? owner : 0;
	return md_process_began(owner) && md_process_began(owner) < md_process_began(group) ? owner : 0;
}
