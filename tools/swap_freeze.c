/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroup medusa-swap-PID, below the cgroup of the process: whether it is there is all that is remembered. */
#include "tools/swap_freeze.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tools/family.h"

#define NAME "/medusa-swap-"
#define FREEZE_MS 5000

/* ---- files ---- */

static enum md_status put(const char *group, const char *file, const char *text, struct md_error *err)
{
	char path[2 * PATH_MAX];
	snprintf(path, sizeof(path), "%s/%s", group, file);
	MD_AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text))
		return MD_OK;
	return md_error_set(err, MD_ERR_UNSUPPORTED, "%.300s: %s", path, strerror(errno));
}

static enum md_status move(const char *group, pid_t pid, struct md_error *err)
{
	char text[32];
	snprintf(text, sizeof(text), "%d", (int)pid);
	return put(group, "cgroup.procs", text, err);
}

static bool says_frozen(const char *group)
{
	char path[2 * PATH_MAX], line[128];
	bool frozen = false;
	snprintf(path, sizeof(path), "%s/cgroup.events", group);
	MD_AUTO_FILE FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		frozen = frozen || !strcmp(line, "frozen 1\n");
	return frozen;
}

/* Where version 2 is mounted; "" if nowhere. */
static void find_mount(char mount[256])
{
	char line[1024], kind[32];
	MD_AUTO_FILE FILE *file = fopen("/proc/self/mounts", "re");
	*mount = '\0';
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%*s %255s %31s", mount, kind) == 2 && !strcmp(kind, "cgroup2"))
			return;
	*mount = '\0';
}

/* The folder of the cgroup that the process is in; version 2 has a line that begins with "0::". */
static enum md_status find_group(pid_t pid, char group[PATH_MAX], struct md_error *err)
{
	char path[64], line[PATH_MAX], mount[256];
	find_mount(mount);
	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	MD_AUTO_FILE FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		if (!*mount || strncmp(line, "0::/", 4) || strlen(line) > PATH_MAX - 512)
			continue;
		snprintf(group, PATH_MAX, "%s%.*s", mount, PATH_MAX - 512, strcmp(line + 3, "/") ? line + 3 : "");
		return MD_OK;
	}
	return md_error_set(err, MD_ERR_UNSUPPORTED,
			    "--freeze: %s: the process is in no cgroup of version 2, so it cannot be frozen", path);
}

/* "": it is not in one of ours. Otherwise the part before the name is where it was. */
static const char *own_part(const char *group, pid_t pid)
{
	char name[64];
	size_t size = (size_t)snprintf(name, sizeof(name), NAME "%d", (int)pid), length = strlen(group);
	return length > size && !strcmp(group + length - size, name) ? group + length - size : "";
}

/* ---- freezing ---- */

static enum md_status own_group(pid_t pid, char group[PATH_MAX], struct md_error *err)
{
	MD_FORWARD(find_group(pid, group, err));
	if (*own_part(group, pid))
		return MD_OK;
	size_t used = strlen(group);
	snprintf(group + used, PATH_MAX - used, NAME "%d", (int)pid);
	return MD_OK;
}

enum md_status md_swap_freeze_prepare(pid_t pid, struct md_error *err)
{
	char group[PATH_MAX], path[2 * PATH_MAX];
	MD_FORWARD(own_group(pid, group, err));
	if (mkdir(group, 0755) && errno != EEXIST)
		return md_error_set(err, MD_ERR_UNSUPPORTED, "--freeze: %.300s: %s: the processes cannot be frozen",
				    group, strerror(errno));
	snprintf(path, sizeof(path), "%s/cgroup.freeze", group);
	if (!access(path, W_OK))
		return MD_OK;
	md_error_set(err, MD_ERR_UNSUPPORTED, "--freeze: %.300s: %s: the processes cannot be frozen", path,
		     strerror(errno));
	rmdir(group);
	return MD_ERR_UNSUPPORTED;
}

static enum md_status await_frozen(const char *group, struct md_error *err)
{
	for (int ms = 0; ms < FREEZE_MS; ms += 10) {
		if (says_frozen(group))
			return MD_OK;
		md_family_wait_ms(10);
	}
	return md_error_set(err, MD_ERR_TIMEOUT, "%.300s: the processes were not frozen within %d ms", group,
			    FREEZE_MS);
}

enum md_status md_swap_freeze(const pid_t *pids, size_t count, struct md_error *err)
{
	char group[PATH_MAX];
	struct md_error none;
	MD_FORWARD(own_group(pids[0], group, err));
	enum md_status status = MD_OK;
	for (size_t i = 0; i < count && status == MD_OK; i++)
		status = move(group, pids[i], err);
	if (status == MD_OK)
		status = put(group, "cgroup.freeze", "1", err);
	if (status == MD_OK)
		status = await_frozen(group, err);
	if (status != MD_OK)
		md_swap_freeze_end(pids[0], &none);
	return status;
}

bool md_swap_freeze_is_frozen(pid_t pid)
{
	char group[PATH_MAX];
	struct md_error none;
	return find_group(pid, group, &none) == MD_OK && *own_part(group, pid) && says_frozen(group);
}

/* The processes of a cgroup change their place one after the other, so the list is read anew. */
static enum md_status move_all(const char *from, const char *to, struct md_error *err)
{
	char path[2 * PATH_MAX];
	int pid;
	snprintf(path, sizeof(path), "%s/cgroup.procs", from);
	for (;;) {
		MD_AUTO_FILE FILE *file = fopen(path, "re");
		if (!file || fscanf(file, "%d", &pid) != 1)
			return MD_OK;
		MD_FORWARD(move(to, (pid_t)pid, err));
	}
}

enum md_status md_swap_freeze_end(pid_t pid, struct md_error *err)
{
	char group[PATH_MAX], before[PATH_MAX];
	struct md_error none;
	if (own_group(pid, group, &none) != MD_OK || access(group, F_OK))
		return MD_OK;
	snprintf(before, sizeof(before), "%.*s", (int)(own_part(group, pid) - group), group);
	MD_FORWARD(put(group, "cgroup.freeze", "0", err));
	MD_FORWARD(move_all(group, before, err));
	rmdir(group);
	return MD_OK;
}
