/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/control_place.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum md_status enter(const char *path, bool make, struct md_error *err)
{
	struct stat is;
	if (make && mkdir(path, 0700) && errno != EEXIST)
		return md_error_set(err, MD_ERR_OUTPUT, "%s: %s", path, strerror(errno));
	if (lstat(path, &is))
		return md_error_set(err, errno == ENOENT ? MD_ERR_NOT_FOUND : MD_ERR_IO, "%s: %s", path,
				    strerror(errno));
	if (!S_ISDIR(is.st_mode) || is.st_uid != geteuid() || (is.st_mode & 022))
		return md_error_set(
		    err, MD_ERR_INVALID,
		    "%s: not a folder that only user %u can write to; correct its rights or set XDG_RUNTIME_DIR", path,
		    geteuid());
	return MD_OK;
}

static enum md_status find_default(bool make, char path[PATH_MAX], struct md_error *err)
{
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	bool given = runtime && *runtime == '/';
	if (given)
		snprintf(path, PATH_MAX / 2, "%s", runtime);
	else
		snprintf(path, PATH_MAX / 2, "/tmp/medusa-%u", geteuid());
	MD_FORWARD(enter(path, make && !given, err));
	memcpy(path + strlen(path), "/medusa", sizeof("/medusa"));
	MD_FORWARD(enter(path, make, err));
	memcpy(path + strlen(path), "/worker.sock", sizeof("/worker.sock"));
	return MD_OK;
}

enum md_status md_control_place(const char *given, bool make, struct md_http_address *address, struct md_error *err)
{
	char path[PATH_MAX];
	if (given && *given)
		snprintf(path, sizeof(path), "%s", given);
	else
		MD_FORWARD(find_default(make, path, err));
	memset(address, 0, sizeof(*address));
	if (strlen(path) >= sizeof(address->local.sun_path))
		return md_error_set(err, MD_ERR_INVALID, "%.200s: the path of a socket has at most %zu bytes", path,
				    sizeof(address->local.sun_path) - 1);
	address->local.sun_family = AF_UNIX;
	snprintf(address->local.sun_path, sizeof(address->local.sun_path), "%s", path);
	address->size = sizeof(address->local);
	return MD_OK;
}
