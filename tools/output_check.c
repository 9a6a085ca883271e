/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that an output can be written, before an engine runs for minutes. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ranks/rank_bundle.h"
#include "tools/workplace.h"

#define SPACE_LEAST (16u << 10) /* bytes that even the smallest trace needs */

static const char *kind_of(mode_t mode)
{
	return S_ISDIR(mode) ? "a folder" : S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

/* The file that is there, or none: then the folder and the name in it. */
static enum md_status resolve(const char *path, char absolute[PATH_MAX], struct md_error *err)
{
	char folder[PATH_MAX];
	struct stat info;
	if (realpath(path, absolute))
		return MD_OK;
	if (errno != ENOENT || !*path || path[strlen(path) - 1] == '/')
		return md_error_set(err, MD_ERR_IO, "%s: %s", path, strerror(*path ? errno : ENOENT));
	if (!lstat(path, &info))
		return md_error_set(err, MD_ERR_IO, "%s: a link to a file that does not exist", path);
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t length = slash ? (size_t)(slash - path) : 0;
	if (length >= sizeof(folder))
		return md_error_set(err, MD_ERR_IO, "%s: %s", path, strerror(ENAMETOOLONG));
	snprintf(folder, sizeof(folder), "%.*s", (int)length, path);
	if (!realpath(slash ? length ? folder : "/" : ".", absolute))
		return md_error_set(err, MD_ERR_IO, "%s: %s: %s", path, slash ? folder : ".", strerror(errno));
	length = strlen(absolute);
	if (length + strlen(name) + 2 > PATH_MAX)
		return md_error_set(err, MD_ERR_IO, "%s: %s", path, strerror(ENAMETOOLONG));
	snprintf(absolute + length, PATH_MAX - length, "%s%s", length > 1 ? "/" : "", name);
	return MD_OK;
}

/* In a folder like /tmp only the owner of a file may replace it. */
static enum md_status check_sticky(const char *path, const struct stat *folder, struct md_error *err)
{
	struct stat file;
	if (!(folder->st_mode & S_ISVTX) || geteuid() == 0 || folder->st_uid == geteuid() || lstat(path, &file) ||
	    file.st_uid == geteuid())
		return MD_OK;
	return md_error_set(err, MD_ERR_IO, "%s: is another user's, and cannot be replaced in this folder", path);
}

static enum md_status check_folder(const char *path, struct md_error *err)
{
	char folder[PATH_MAX];
	struct statvfs space;
	struct stat info;
	snprintf(folder, sizeof(folder), "%s", path);
	char *slash = strrchr(folder, '/');
	slash[slash == folder] = 0;
	if (faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS))
		return md_error_set(err, MD_ERR_IO, "%s: cannot write into this folder: %s", folder, strerror(errno));
	if (!stat(folder, &info))
		MD_FORWARD(check_sticky(path, &info, err));
	uint64_t left = statvfs(folder, &space) ? UINT64_MAX : (uint64_t)space.f_bavail * space.f_frsize;
	if (left < SPACE_LEAST)
		return md_error_set(err, MD_ERR_OUTPUT, "%s: %s: %" PRIu64 " bytes are free, at least %u are needed",
				    folder, strerror(ENOSPC), left, SPACE_LEAST);
	return MD_OK;
}

static enum md_status check(const char *path, bool may_be_bundle, char absolute[PATH_MAX], struct md_error *err)
{
	struct stat info;
	MD_FORWARD(resolve(path, absolute, err));
	if (!stat(absolute, &info) && !S_ISREG(info.st_mode) && !(may_be_bundle && md_bundle_is(absolute)))
		return md_error_set(err, MD_ERR_INVALID, "%s: is %s%s; name a file", path, kind_of(info.st_mode),
				    may_be_bundle && S_ISDIR(info.st_mode) ? ", and no bundle" : "");
	return check_folder(absolute, err);
}

enum md_status md_output_check_artifact(const char *path, char absolute[PATH_MAX], struct md_error *err)
{
	return check(path, true, absolute, err);
}

enum md_status md_output_check_report(const char *path, struct md_error *err)
{
	char absolute[PATH_MAX];
	struct stat info;
	if (stat(path, &info) || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))
		return check(path, false, absolute, err);
	if (faccessat(AT_FDCWD, path, W_OK, AT_EACCESS))
		return md_error_set(err, MD_ERR_IO, "%s: %s", path, strerror(errno));
	return MD_OK;
}
