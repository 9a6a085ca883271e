/* SPDX-License-Identifier: Apache-2.0 */
#include "base/unix_socket.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"

#define BACKLOG 128

enum md_status md_unix_socket_listen(const char *path, mode_t denied, int *fd, struct md_error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat there;
	if (strlen(path) >= sizeof(address.sun_path))
		return md_error_set(err, MD_ERR_INVALID, "%.200s: the path of a socket has at most %zu bytes", path,
				    sizeof(address.sun_path) - 1);
	memcpy(address.sun_path, path, strlen(path) + 1);
	if (!lstat(path, &there) && S_ISSOCK(there.st_mode))
		unlink(path);
	MD_AUTO_FD int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t mask = umask(denied);
	bool done = made >= 0 && !bind(made, (struct sockaddr *)&address, sizeof(address)) && !listen(made, BACKLOG);
	int why = errno;
	umask(mask);
	if (!done)
		return md_error_set(err, MD_ERR_IO, "%.200s: %s", path, strerror(why));
	*fd = md_steal_fd(&made);
	return MD_OK;
}
