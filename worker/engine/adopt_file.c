/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/adopt_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

void md_adopt_file_path(const char *folder, pid_t pid, const char *suffix, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s/" MD_ADOPT_FILE_PREFIX "%d%s", folder, (int)pid, suffix);
}

enum md_status md_adopt_file_read(const char *path, size_t most, struct md_file_bytes *bytes, struct md_error *err)
{
	struct stat is;
	if (lstat(path, &is))
		return md_error_set(err, errno == ENOENT ? MD_ERR_NOT_FOUND : MD_ERR_IO, "%.300s: %s", path,
				    strerror(errno));
	if (!S_ISREG(is.st_mode) || is.st_uid != geteuid() || (is.st_mode & 022))
		return md_error_set(err, MD_ERR_INVALID, "%.300s: not a file that only user %u can write to", path,
				    geteuid());
	return md_file_read(path, most, bytes, err);
}

enum md_status md_adopt_file_write(const char *folder, pid_t pid, const char *suffix, const char *text, size_t size,
				   struct md_error *err)
{
	char path[PATH_MAX], new[PATH_MAX];
	MD_AUTO_FD int fd = -1;
	md_adopt_file_path(folder, pid, suffix, path);
	md_adopt_file_path(folder, pid, ".new", new);
	unlink(new);
	MD_FORWARD(md_file_create(new, 0600, &fd, err));
	enum md_status status = md_file_write(fd, text, size, new, err);
	if (status == MD_OK && rename(new, path))
		status = md_error_set(err, MD_ERR_OUTPUT, "%.300s: %s", path, strerror(errno));
	if (status != MD_OK)
		unlink(new);
	return status;
}
