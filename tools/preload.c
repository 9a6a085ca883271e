/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a path of a library of ours that LD_PRELOAD can hold, whatever the names of its folders. */
#include "tools/preload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/run.h"
#include "tools/stop.h"

static bool can_be_preloaded(const char *path)
{
	return !strpbrk(path, " :$\t\n");
}

/* the build links another definition into the commands if LIBDIR is another one */
__attribute__((weak)) const char md_run_libdir[] = "../lib";

/* Where it is installed, or in the build folder. */
static enum md_status beside(const char *program, const char *name, char tried[PATH_MAX + 256], struct md_error *err)
{
	const char *const places[] = {md_run_libdir, "../lib"};
	const char *slash = strrchr(program, '/');
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(tried, PATH_MAX + 256, "%.*s/%s/%s", slash ? (int)(slash - program) : 0, program, places[i],
			 name);
		if (slash && !access(tried, R_OK))
			return MD_OK;
	}
	return md_error_set(err, MD_ERR_NOT_FOUND, "%s: %s; build or install the libraries beside the commands", tried,
			    strerror(slash ? errno : ENOENT));
}

enum md_status md_preload_locate(const char *name, char path[PATH_MAX], struct md_error *err)
{
	static char program[PATH_MAX], tried[PATH_MAX + 256];
	ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
	program[size < 0 ? 0 : size] = '\0';
	if (size < 0 && !realpath((const char *)getauxval(AT_EXECFN), program)) /* there is no /proc */
		return md_error_set(err, MD_ERR_IO,
				    "neither /proc/self/exe nor the path of this command leads to it: %s",
				    strerror(errno));
	MD_FORWARD(beside(program, name, tried, err));
	if (!realpath(tried, path))
		return md_error_set(err, MD_ERR_NOT_FOUND, "%s: %s", tried, strerror(errno));
	return MD_OK;
}

/* The program may have been started through a link, whose path may be usable. */
static bool path_as_started(const char *name, const char *real, char path[PATH_MAX])
{
	const char *program = (const char *)getauxval(AT_EXECFN);
	char tried[PATH_MAX + 256];
	struct stat mine, there;
	if (!program || *program != '/' || beside(program, name, tried, NULL) != MD_OK || !can_be_preloaded(tried) ||
	    strlen(tried) >= PATH_MAX || stat(real, &mine) || stat(tried, &there) || mine.st_ino != there.st_ino ||
	    mine.st_dev != there.st_dev)
		return false;
	snprintf(path, PATH_MAX, "%.*s", PATH_MAX - 1, tried);
	return true;
}

void md_preload_finish(struct md_preload *preload)
{
	if (*preload->link)
		unlink(preload->link);
	if (*preload->folder)
		rmdir(preload->folder);
	*preload->folder = *preload->link = 0;
}

/* A folder of our own that every user can reach, because an engine may give up its rights. */
static bool make_folder(char folder[PATH_MAX])
{
	const char *const places[] = {secure_getenv("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"};
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (!places[i] || *places[i] != '/' || !can_be_preloaded(places[i]) ||
		    strlen(places[i]) > PATH_MAX - 64)
			continue;
		snprintf(folder, PATH_MAX, "%s/medusa-XXXXXX", places[i]);
		if (mkdtemp(folder) && !chmod(folder, 0711))
			return true;
	}
	*folder = 0;
	return false;
}

static enum md_status link_to(const char *name, const char *real, struct md_preload *out, struct md_error *err)
{
	if (!make_folder(out->folder))
		return md_error_set(err, MD_ERR_IO,
				    "%s cannot be preloaded, because of a space, a colon or \"$\" in its path, and no "
				    "folder for a link to it can be made in TMPDIR, /tmp, /var/tmp or /dev/shm: %s",
				    real, strerror(errno));
	snprintf(out->link, sizeof(out->link), "%s/%s", out->folder, name);
	md_stop_remove(out->link);
	md_stop_remove(out->folder);
	if (symlink(real, out->link) || strlen(out->link) >= PATH_MAX)
		return md_error_set(err, MD_ERR_IO, "%s: %s", out->link, strerror(errno));
	snprintf(out->path, PATH_MAX, "%.*s", PATH_MAX - 1, out->link);
	return MD_OK;
}

static enum md_status make_link(const char *name, const char *real, struct md_preload *out, struct md_error *err)
{
	md_stop_hold();
	enum md_status status = link_to(name, real, out, err);
	md_stop_release();
	if (status != MD_OK)
		md_preload_finish(out);
	return status;
}

enum md_status md_preload_find(const char *name, bool may_link, struct md_preload *out, struct md_error *err)
{
	char real[PATH_MAX];
	*out->folder = *out->link = 0;
	MD_FORWARD(md_preload_locate(name, real, err));
	if (can_be_preloaded(real)) {
		memcpy(out->path, real, sizeof(real));
		return MD_OK;
	}
	if (path_as_started(name, real, out->path))
		return MD_OK;
	if (may_link)
		return make_link(name, real, out, err);
	return md_error_set(err, MD_ERR_INVALID,
			    "%s: a path with a space, a colon or \"$\" cannot be preloaded; make a link to that folder "
			    "(ln -s) in one without them, and start the command by the path of the link",
			    real);
}
