/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "worker/engine/cgroup_folder.h"
#include "worker/engine/cgroup_place.h"
#include "worker/engine/process_facts.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define TEXT_MAX (1u << 20) /* of /proc/self/mountinfo */
#define TAG_BYTES 17
#define PATH_ROOM 300 /* for what stands below the folder */
#define TRIES 200u    /* until what has just ended has left its cgroup */
#define TRY_MS 1

struct md_cgroups {
	char path[PATH_MAX];
	int folder;
	char tag[TAG_BYTES]; /* of this daemon, in the names of its cgroups */
	unsigned long long number;
};

struct md_cgroup {
	char *path;
	int folder;
};

/* ---- one ---- */

static struct md_cgroup *open_one(const char *path, struct md_error *err)
{
	struct md_cgroup *made = calloc(1, sizeof(*made));
	if (made)
		*made = (struct md_cgroup){.path = strdup(path), .folder = md_cgroup_folder_open(path)};
	if (made && made->path && made->folder >= 0)
		return made;
	md_error_set(err, MD_ERR_IO, "%.300s: %s", path,
		     errno == EMEDIUMTYPE ? "no cgroup of version 2" : strerror(errno));
	md_cgroup_close(made);
	return NULL;
}

struct md_cgroup *md_cgroup_create(struct md_cgroups *cgroups, const char *model, struct md_error *err)
{
	char name[MD_CGROUP_NAME_BYTES], path[PATH_MAX + MD_CGROUP_NAME_BYTES];
	md_cgroup_name(cgroups->tag, model, cgroups->number++, name);
	snprintf(path, sizeof(path), "%s/%s", cgroups->path, name);
	if (mkdir(path, 0755)) {
		md_error_set(err, MD_ERR_IO, "%.300s: %s", path, strerror(errno));
		return NULL;
	}
	struct md_cgroup *made = open_one(path, err);
	if (!made)
		rmdir(path);
	return made;
}

const char *md_cgroup_path(const struct md_cgroup *cgroup)
{
	return cgroup->path;
}

int md_cgroup_folder(const struct md_cgroup *cgroup)
{
	return cgroup->folder;
}

void md_cgroup_close(struct md_cgroup *cgroup)
{
	if (!cgroup)
		return;
	if (cgroup->folder >= 0)
		close(cgroup->folder);
	free(cgroup->path);
	free(cgroup);
}

void md_cgroup_remove(struct md_cgroup *cgroup)
{
	if (cgroup && !md_cgroup_folder_remove(cgroup->path))
		md_warn("cgroup %s stays, and the next daemon removes it: %s", cgroup->path, strerror(errno));
	md_cgroup_close(cgroup);
}

/* ---- where a process is ---- */

/* NULL: it cannot be read. */
static char *read_all(const char *path)
{
	MD_AUTO_FILE FILE *file = fopen(path, "re");
	char *text = file ? malloc(TEXT_MAX) : NULL;
	if (text)
		text[fread(text, 1, TEXT_MAX - 1, file)] = '\0';
	return text;
}

static enum md_status find_place(pid_t pid, char path[PATH_MAX], struct md_error *err)
{
	char name[48];
	snprintf(name, sizeof(name), "/proc/%d/cgroup", (int)pid);
	MD_AUTO_FREE char *own = read_all(name), *mounts = read_all("/proc/self/mountinfo");
	if (!own || !mounts)
		return md_error_set(err, MD_ERR_IO, "%s: %s", own ? "/proc/self/mountinfo" : name, strerror(errno));
	return md_cgroup_place(own, mounts, path, err);
}

/* Engines may make others below their own. */
static bool is_within(const char *path, const char *cgroup)
{
	size_t size = strlen(cgroup);
	return !strncmp(path, cgroup, size) && (!path[size] || path[size] == '/');
}

bool md_cgroup_has(const struct md_cgroup *cgroup, pid_t pid)
{
	char found[PATH_MAX];
	struct md_error none;
	return find_place(pid, found, &none) == MD_OK && is_within(found, cgroup->path);
}

struct md_cgroup *md_cgroup_open(const char *path, pid_t pid, struct md_error *err)
{
	char found[PATH_MAX];
	const char *name = strrchr(path, '/');
	if (*path != '/' || strncmp(name, "/medusa-", strlen("/medusa-")) != 0) {
		md_error_set(err, MD_ERR_MISMATCH, "%.300s: not a cgroup of an engine", path);
		return NULL;
	}
	if (find_place(pid, found, err) != MD_OK)
		return NULL;
	if (!is_within(found, path)) {
		md_error_set(err, MD_ERR_MISMATCH, "%.200s: process %d is in %.200s", path, (int)pid, found);
		return NULL;
	}
	return open_one(path, err);
}

struct md_cgroup *md_cgroups_open(const struct md_cgroups *cgroups, const char *path, struct md_error *err)
{
	char prefix[MD_CGROUP_NAME_BYTES];
	size_t above = strlen(cgroups->path), size = md_cgroup_name_prefix(cgroups->tag, prefix);
	if (strncmp(path, cgroups->path, above) != 0 || path[above] != '/' ||
	    strncmp(path + above + 1, prefix, size) != 0 || strchr(path + above + 1, '/')) {
		md_error_set(err, MD_ERR_MISMATCH, "%.300s: not a cgroup of this daemon's engines", path);
		return NULL;
	}
	return open_one(path, err);
}

/* ---- whether this daemon may make some ---- */

/* What has just ended may count for a moment. */
static void remove_soon(const char *path)
{
	struct timespec pause = {.tv_nsec = TRY_MS * 1000000};
	for (unsigned i = 0; i < TRIES && !md_cgroup_folder_remove(path); i++)
		nanosleep(&pause, NULL);
}

static enum md_status check_kill(const struct md_cgroup *probe, struct md_error *err)
{
	if (faccessat(probe->folder, "cgroup.kill", W_OK, 0))
		return md_error_set(err, MD_ERR_UNSUPPORTED, "cgroup.kill, which Linux has since 5.14: %s",
				    strerror(errno));
	return MD_OK;
}

static enum md_status fork_into(const struct md_cgroup *probe, struct md_error *err)
{
	MD_FORWARD(check_kill(probe, err));
	int ended = 0;
	pid_t pid = md_cgroup_folder_fork(probe->folder);
	if (!pid)
		_exit(!md_cgroup_has(probe, getpid()));
	if (pid < 0)
		return md_error_set(err, MD_ERR_UNSUPPORTED, "a process cannot be started in a cgroup there: %s",
				    strerror(errno));
	while (waitpid(pid, &ended, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(ended) || WEXITSTATUS(ended))
		return md_error_set(
		    err, MD_ERR_UNSUPPORTED,
		    "/proc/PID/cgroup names another path for a process there: give the path below the first "
		    "mount of cgroups in /proc/self/mountinfo");
	return MD_OK;
}

/* All that an engine needs is done once, but for a process, which only a daemon with one thread may fork so. */
static enum md_status probe(struct md_cgroups *cgroups, bool forks, struct md_error *err)
{
	struct md_cgroup *made = md_cgroup_create(cgroups, "probe", err);
	if (!made)
		return err->status;
	enum md_status status = forks ? fork_into(made, err) : check_kill(made, err);
	remove_soon(made->path);
	md_cgroup_close(made);
	return status;
}

/*
 * systemd manages cgroups where it runs, and lets others make some below those alone that it has delegated. It writes that
 * down where not every user can read it; but a user has another user's folder above his own only there.
 */
static bool is_delegated(int folder)
{
	struct stat is, above;
	char value[4] = "";
	if (access("/run/systemd/system", F_OK))
		return true;
	if (fgetxattr(folder, "user.delegate", value, sizeof(value)) == 1 ||
	    fgetxattr(folder, "trusted.delegate", value, sizeof(value)) == 1)
		return *value == '1';
	return geteuid() && !fstat(folder, &is) && !fstatat(folder, "..", &above, 0) && is.st_uid == geteuid() &&
	       above.st_uid != geteuid();
}

static enum md_status use_folder(struct md_cgroups *cgroups, struct md_error *err)
{
	cgroups->folder = md_cgroup_folder_open(cgroups->path);
	if (cgroups->folder < 0)
		return md_error_set(err, MD_ERR_INVALID, "%.300s: %s", cgroups->path,
				    errno == EMEDIUMTYPE ? "no cgroup of version 2" : strerror(errno));
	return MD_OK;
}

/*
 * Without a leaf for the daemon, its cgroup has processes, so no controller counts for the ones in it. The daemon makes no leaf
 * of its own: systemd could not start the next daemon then, as long as an engine of this one lives there.
 */
static enum md_status use_own(struct md_cgroups *cgroups, struct md_error *err)
{
	MD_FORWARD(find_place(getpid(), cgroups->path, err));
	char *name = strrchr(cgroups->path, '/');
	bool leaf = !strcmp(name + 1, MD_CGROUP_LEAF);
	if (leaf && name > cgroups->path)
		*name = '\0';
	MD_FORWARD(use_folder(cgroups, err));
	if (!is_delegated(cgroups->folder))
		return md_error_set(err, MD_ERR_INVALID, "%.300s: systemd has not delegated it (Delegate=yes)",
				    cgroups->path);
	MD_FORWARD(probe(cgroups, true, err));
	if (leaf)
		md_cgroup_folder_count_memory(cgroups->folder);
	return MD_OK;
}

/* The path as the kernel names it: those of records, and of processes in /proc, are compared with it. */
static enum md_status take_own_name(struct md_cgroups *cgroups, struct md_error *err)
{
	char link[32], name[PATH_MAX];
	snprintf(link, sizeof(link), "/proc/self/fd/%d", cgroups->folder);
	ssize_t size = readlink(link, name, sizeof(name));
	if (size <= 0 || (size_t)size >= sizeof(cgroups->path) - PATH_ROOM)
		return md_error_set(err, MD_ERR_INVALID, "its name cannot be read, or is too long");
	memcpy(cgroups->path, name, (size_t)size);
	cgroups->path[size] = '\0';
	return MD_OK;
}

static enum md_status use_given(const char *path, bool forks, struct md_cgroups *cgroups, struct md_error *err)
{
	struct md_error why = {0};
	if (strlen(path) >= sizeof(cgroups->path) - PATH_ROOM)
		return md_error_set(err, MD_ERR_INVALID, "medusa.cgroup: %.100s...: the path is too long", path);
	snprintf(cgroups->path, sizeof(cgroups->path), "%s", path);
	if (use_folder(cgroups, &why) != MD_OK || take_own_name(cgroups, &why) != MD_OK ||
	    probe(cgroups, forks, &why) != MD_OK)
		return md_error_set(err, MD_ERR_INVALID,
				    "medusa.cgroup is %.200s, where engines can have no cgroups: %s", path,
				    why.message);
	md_cgroup_folder_count_memory(cgroups->folder);
	return MD_OK;
}

/* ---- all of a daemon ---- */

/* Of the folder that one daemon has: also two with equal paths, in containers, are two. */
static void make_tag(const char *place, char tag[TAG_BYTES])
{
	struct stat is;
	char facts[PATH_MAX + 64], text[MD_HASH_TEXT_BYTES];
	if (place && !stat(place, &is))
		snprintf(facts, sizeof(facts), "%llu:%llu:%s", (unsigned long long)is.st_dev,
			 (unsigned long long)is.st_ino, place);
	else
		snprintf(facts, sizeof(facts), "%d:%llu", (int)getpid(),
			 (unsigned long long)md_process_began(getpid()));
	struct md_hash hash = md_hash_bytes(facts, strlen(facts));
	md_hash_format(&hash, text);
	snprintf(tag, TAG_BYTES, "%.16s", text);
}

static struct md_cgroups *make(const char *place)
{
	struct md_cgroups *made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	made->folder = -1;
	make_tag(place, made->tag);
	if (getrandom(&made->number, sizeof(made->number), GRND_NONBLOCK) < 0)
		made->number = (unsigned long long)getpid() << 32;
	return made;
}

static bool is_path(const char *wanted)
{
	return *wanted == '/';
}

enum md_status md_cgroups_create(const char *wanted, const char *place, struct md_cgroups **made, struct md_error *err)
{
	struct md_error why = {0};
	*made = NULL;
	if (!is_path(wanted) && strcmp(wanted, "auto") != 0)
		return MD_OK;
	struct md_cgroups *cgroups = make(place);
	if (!cgroups)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for cgroups of engines");
	enum md_status status = is_path(wanted) ? use_given(wanted, true, cgroups, &why) : use_own(cgroups, &why);
	if (status == MD_OK) {
		md_info("each engine has a cgroup of its own, in %s", cgroups->path);
		*made = cgroups;
		return MD_OK;
	}
	md_cgroups_destroy(cgroups);
	if (is_path(wanted))
		return md_error_set(err, status, "%s", why.message);
	md_info("engines have no cgroups of their own, and are known by their process groups: %s", why.message);
	return MD_OK;
}

enum md_status md_cgroups_check(const char *wanted, bool forks, struct md_error *err)
{
	if (!is_path(wanted))
		return MD_OK;
	struct md_cgroups *cgroups = make(NULL);
	if (!cgroups)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for cgroups of engines");
	enum md_status status = use_given(wanted, forks, cgroups, err);
	md_cgroups_destroy(cgroups);
	return status;
}

void md_cgroups_destroy(struct md_cgroups *cgroups)
{
	if (!cgroups)
		return;
	if (cgroups->folder >= 0)
		close(cgroups->folder);
	free(cgroups);
}

/* All names first, because `take` may remove folders. */
void md_cgroups_list(const struct md_cgroups *cgroups, void (*take)(void *context, struct md_cgroup *cgroup),
		     void *context)
{
	char prefix[MD_CGROUP_NAME_BYTES], path[2 * PATH_MAX];
	struct dirent **names;
	size_t size = md_cgroup_name_prefix(cgroups->tag, prefix);
	int count = scandir(cgroups->path, &names, NULL, alphasort);
	for (int i = 0; i < count; i++) {
		struct md_error none;
		snprintf(path, sizeof(path), "%s/%s", cgroups->path, names[i]->d_name);
		struct md_cgroup *found = names[i]->d_type == DT_DIR && !strncmp(names[i]->d_name, prefix, size)
					      ? open_one(path, &none)
					      : NULL;
		if (found)
			take(context, found);
		free(names[i]);
	}
	if (count >= 0)
		free(names);
}
