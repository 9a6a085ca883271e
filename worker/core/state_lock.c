/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/state_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/file.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

/* A record lock, unlike that of flock(2), ends with this very process, whatever engines and helpers have inherited. */
enum md_status md_lock_folder(const char *folder, const char *option, int *fd, struct md_error *err)
{
	char path[PATH_MAX], process[48] = "another process";
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET}, other = lock;
	if (snprintf(path, sizeof(path), "%s/lock", folder) >= (int)sizeof(path))
		return md_error_set(err, MD_ERR_INVALID, "%s %.100s...: the path is too long", option, folder);
	MD_AUTO_FD int made = md_file_open_append(path, true);
	if (made < 0 || fchmod(made, 0600))
		return md_error_set(err, MD_ERR_OUTPUT, "%s: %.300s: %s", option, path, strerror(errno));
	if (fcntl(made, F_SETLK, &lock)) {
		if (errno != EACCES && errno != EAGAIN) {
			md_warn("%s: %.300s can't be locked (%s): see to it that no other daemon has this folder",
				option, path, strerror(errno));
		} else {
			if (!fcntl(made, F_GETLK, &other) && other.l_type != F_UNLCK && other.l_pid > 0)
				snprintf(process, sizeof(process), "process %d", (int)other.l_pid);
			return md_error_set(err, MD_ERR_BUSY,
					    "%s %.300s: the daemon of %s has this folder: say another %s", option,
					    folder, process, option);
		}
	}
	*fd = md_steal_fd(&made);
	return MD_OK;
}

enum md_status md_state_lock(const char *folder, int *fd, struct md_error *err)
{
	return md_lock_folder(folder, "--state", fd, err);
}
