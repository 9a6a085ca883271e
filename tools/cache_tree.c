/* SPDX-License-Identifier: Apache-2.0 */
/* Files below a folder, reached one component after the other, so that no link leads out of it. */
#include "tools/cache_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC)
#define FOLDER_MODE 0700

static enum md_status failed(const char *what, struct md_error *err)
{
	int code = errno;
	return md_error_set(err, code == ENOENT ? MD_ERR_NOT_FOUND : MD_ERR_OUTPUT, "%s: %s", what, strerror(code));
}

static enum md_status check_owner(int fd, const char *path, struct md_error *err)
{
	struct stat info;
	if (fstat(fd, &info) != 0)
		return failed(path, err);
	if (info.st_uid == geteuid() || info.st_uid == 0)
		return MD_OK;
	return md_error_set(err, MD_ERR_MISMATCH,
			    "%s belongs to user %u, who could change what the engine runs; name a folder of your own",
			    path, info.st_uid);
}

/* Links above the folder are allowed, because the user chose the path: /tmp may be a link. */
static enum md_status make_above(char *path, struct md_error *err)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		int result = mkdir(path, FOLDER_MODE);
		if (result && errno != EEXIST && access(path, F_OK) != 0)
			return failed(path, err);
		*slash = '/';
	}
	return mkdir(path, FOLDER_MODE) == 0 || errno == EEXIST ? MD_OK : failed(path, err);
}

enum md_status md_cache_tree_open(const char *path, int *fd, struct md_error *err)
{
	MD_AUTO_FREE char *copy = strdup(path);
	if (!copy)
		return md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory for its path", path);
	MD_AUTO_FD int opened = open(path, FOLDER_FLAGS);
	if (opened < 0 && errno == ENOENT) {
		MD_FORWARD(make_above(copy, err));
		opened = open(path, FOLDER_FLAGS);
	}
	if (opened < 0)
		return failed(path, err);
	MD_FORWARD(check_owner(opened, path, err));
	*fd = md_steal_fd(&opened);
	return MD_OK;
}

void md_cache_walk_begin(struct md_cache_walk *walk, int root)
{
	walk->root = walk->fd = root;
	*walk->folder = 0;
}

void md_cache_walk_finish(struct md_cache_walk *walk)
{
	if (walk->fd != walk->root)
		close(walk->fd);
	md_cache_walk_begin(walk, walk->root);
}

static enum md_status step(struct md_cache_walk *walk, const char *name, const char *path, bool make,
			   struct md_error *err)
{
	if (make && mkdirat(walk->fd, name, FOLDER_MODE) != 0 && errno != EEXIST)
		return failed(path, err);
	MD_AUTO_FD int fd = openat(walk->fd, name, FOLDER_FLAGS | O_NOFOLLOW);
	if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
		return md_error_set(err, MD_ERR_MISMATCH, "%s is a link or a file, not a folder", path);
	if (fd < 0)
		return failed(path, err);
	MD_FORWARD(check_owner(fd, path, err));
	if (walk->fd != walk->root)
		close(walk->fd);
	walk->fd = md_steal_fd(&fd);
	return MD_OK;
}

enum md_status md_cache_walk_to(struct md_cache_walk *walk, const char *path, bool make, int *fd, const char **name,
				struct md_error *err)
{
	const char *slash = strrchr(path, '/');
	size_t size = slash ? (size_t)(slash - path) : 0;
	if (strlen(walk->folder) != size || strncmp(walk->folder, path, size) != 0) {
		char folder[MD_CACHE_PATH_MAX + 1], *at = folder, *end;
		md_cache_walk_finish(walk);
		memcpy(folder, path, size);
		folder[size] = 0;
		for (; size && at; at = end ? end + 1 : NULL) {
			if ((end = strchr(at, '/')))
				*end = 0;
			enum md_status status = step(walk, at, folder, make, err);
			if (status != MD_OK) {
				md_cache_walk_finish(walk);
				return status;
			}
			if (end)
				*end = '/';
		}
		memcpy(walk->folder, folder, size + 1);
	}
	*fd = walk->fd;
	*name = slash ? slash + 1 : path;
	return MD_OK;
}
