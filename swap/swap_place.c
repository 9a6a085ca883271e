/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of sockets: made for one user, and checked before a socket in it is used. */
#include "swap/swap_place.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "swap/wire.h"

#define NAME_MOST 48 /* characters: the path of a socket has 107 */
#define SUFFIX ".sock"

/* ---- the folder ---- */

static enum md_status check_folder(const char *path, uid_t user, struct md_error *err)
{
	struct stat info;
	if (lstat(path, &info))
		return md_error_set(err, errno == ENOENT ? MD_ERR_NOT_FOUND : MD_ERR_IO, "%s: %s", path,
				    strerror(errno));
	if (!S_ISDIR(info.st_mode) || info.st_uid != user || (info.st_mode & 022))
		return md_error_set(
		    err, MD_ERR_INVALID,
		    "%s: not a folder that only user %u can write to; correct its rights or set XDG_RUNTIME_DIR", path,
		    user);
	return MD_OK;
}

static enum md_status enter(const char *path, bool make, uid_t user, struct md_error *err)
{
	if (make && mkdir(path, 0700) && errno != EEXIST)
		return md_error_set(err, MD_ERR_IO, "%s: %s", path, strerror(errno));
	return check_folder(path, user, err);
}

/* Root may ask engines of any user, by naming that user's folder. A folder that nobody has named must be root's own. */
static uid_t whose(const char *named)
{
	struct stat info;
	return named && !geteuid() && !lstat(named, &info) ? info.st_uid : geteuid();
}

static enum md_status find_folder(bool make, char path[PATH_MAX], struct md_error *err)
{
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	const char *named = runtime && *runtime == '/' ? runtime : NULL;
	uid_t user = make ? geteuid() : whose(named);
	int size;
	if (named)
		size = snprintf(path, PATH_MAX, "%s", named);
	else
		size = snprintf(path, PATH_MAX, "/tmp/medusa-%u", geteuid());
	if (size < 0 || size > PATH_MAX / 2)
		return md_error_set(err, MD_ERR_INVALID, "XDG_RUNTIME_DIR has %d bytes, and at most %d can be used",
				    size, PATH_MAX / 2);
	MD_FORWARD(enter(path, make && !named, user, err));
	memcpy(path + size, "/medusa", sizeof("/medusa"));
	MD_FORWARD(enter(path, make, user, err));
	memcpy(path + size, "/medusa/swap", sizeof("/medusa/swap"));
	return enter(path, make, user, err);
}

/* ---- names ---- */

static enum md_status check_name(const char *name, struct md_error *err)
{
	size_t size = strlen(name);
	bool fits = size && size <= NAME_MOST && *name != '.' && *name != '-';
	if (fits && strspn(name, "0123456789") == size)
		return md_error_set(
		    err, MD_ERR_INVALID,
		    "\"%s\" is not a name for an engine: a number names a process (its id); add a letter", name);
	if (fits && name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] == '\0')
		return MD_OK;
	return md_error_set(
	    err, MD_ERR_INVALID,
	    "\"%s\" is not a name for an engine: use at most %d letters, digits, \".\", \"_\" and \"-\"; the first one "
	    "is a letter, a digit or \"_\"",
	    name, NAME_MOST);
}

static enum md_status add_name(char path[PATH_MAX], const char *name, struct md_error *err)
{
	size_t size = strlen(path);
	snprintf(path + size, PATH_MAX - size, "/%s" SUFFIX, name);
	if (strlen(path) < sizeof(((struct sockaddr_un *)0)->sun_path))
		return MD_OK;
	return md_error_set(err, MD_ERR_INVALID, "%s: the path of a socket has at most %zu bytes", path,
			    sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
}

enum md_status md_swap_place_socket(const char *name, char path[PATH_MAX], struct md_error *err)
{
	struct md_error why = {0};
	MD_FORWARD(check_name(name, err));
	if (find_folder(false, path, &why) != MD_OK)
		return md_error_set(err, why.status,
				    why.status == MD_ERR_NOT_FOUND ? "no engine called %s runs (%s)" : "%s: %s", name,
				    why.message);
	return add_name(path, name, err);
}

static int is_socket(const struct dirent *entry)
{
	size_t size = strlen(entry->d_name);
	return size > strlen(SUFFIX) && !strcmp(entry->d_name + size - strlen(SUFFIX), SUFFIX);
}

enum md_status md_swap_place_names(struct md_argument_list *names, struct md_error *err)
{
	char path[PATH_MAX];
	struct dirent **entries;
	struct md_error none;
	bool added = true;
	if (find_folder(false, path, &none) != MD_OK)
		return none.status == MD_ERR_NOT_FOUND ? MD_OK : md_error_set(err, none.status, "%s", none.message);
	int count = scandir(path, &entries, is_socket, alphasort);
	if (count < 0)
		return md_error_set(err, MD_ERR_IO, "%s: %s", path, strerror(errno));
	for (int i = 0; i < count; i++) {
		entries[i]->d_name[strlen(entries[i]->d_name) - strlen(SUFFIX)] = '\0';
		added = added && md_arguments_add(names, entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	return added ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %d names", count);
}

/* ---- listening ---- */

static enum md_status bind_there(int fd, const char *path, struct md_error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct md_error none;
	struct stat there;
	int other = -1;
	memcpy(address.sun_path, path, strlen(path) + 1);
	if (!bind(fd, (struct sockaddr *)&address, sizeof(address)))
		return MD_OK;
	if (errno != EADDRINUSE)
		return md_error_set(err, MD_ERR_IO, "%s: %s", path, strerror(errno));
	if (md_swap_wire_connect(path, &other, &none) == MD_OK) {
		close(other);
		return md_error_set(err, MD_ERR_BUSY, "%s: an engine of this name runs; choose another --name", path);
	}
	if (!lstat(path, &there) && !S_ISSOCK(there.st_mode))
		return md_error_set(err, MD_ERR_BUSY,
				    "%s is there already, and is no socket: remove it, or choose another --name", path);
	if (unlink(path) || bind(fd, (struct sockaddr *)&address, sizeof(address)))
		return md_error_set(err, MD_ERR_IO, "%s: %s", path, strerror(errno));
	return MD_OK;
}

/* Takes a lock, because two that begin at the same time must not both replace the socket of one that was killed. */
enum md_status md_swap_place_listen(const char *name, char path[PATH_MAX], int *fd, struct md_error *err)
{
	char lock[PATH_MAX];
	MD_FORWARD(check_name(name, err));
	MD_FORWARD(find_folder(true, path, err));
	if (snprintf(lock, sizeof(lock), "%s/.lock", path) >= (int)sizeof(lock))
		return md_error_set(err, MD_ERR_INVALID, "%s/.lock: the path has more than %d bytes", path,
				    PATH_MAX - 1);
	MD_FORWARD(add_name(path, name, err));
	MD_AUTO_FD int turn = md_file_open_append(lock, true);
	MD_AUTO_FD int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (turn < 0 || made < 0 || flock(turn, LOCK_EX))
		return md_error_set(err, MD_ERR_IO, "%s: %s", lock, strerror(errno));
	MD_FORWARD(bind_there(made, path, err));
	if (listen(made, 64))
		return md_error_set(err, MD_ERR_IO, "%s: %s", path, strerror(errno));
	*fd = md_steal_fd(&made);
	return MD_OK;
}
