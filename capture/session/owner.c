/* SPDX-License-Identifier: Apache-2.0 */
/* Which process of a program writes the trace: the first that uses the device. The others step aside with a warning. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/environment.h"
#include "capture/capture.h"
#include "capture/session/by_rank.h"
#include "capture/session/owner.h"

/*
 * The owner holds a lock on its file until it exits; the writer renames the file at the end. A process that was started
 * with the same MEDUSA_TRACE meets the lock under either name. An owner that dies leaves nothing behind.
 */
static struct md_trace_part owned = {.file = {.fd = -1}};
static bool in_child; /* this process was forked after the recording had begun */

/*
 * medusa-capture makes the file before it starts the program. The file is opened when the library is loaded, because an
 * engine may give up its rights, or go to another root, before it uses the device.
 */
static struct md_descriptor early = {.fd = -1};
static char early_path[MD_TRACE_PATH_BYTES + 8]; /* a process may become a rank, with a trace of its own, afterwards */
static unsigned few_files; /* the limit of open files, if it leaves none for us; 0: it is high enough */

__attribute__((constructor(MD_LOADED_SETTINGS))) static void open_early(void)
{
	char *part = early_path;
	uint32_t rank, ranks;
	if (md_descriptor_scarce(&few_files) || !md_capture_path("MEDUSA_TRACE", part, MD_TRACE_PATH_BYTES) ||
	    md_capture_rank(&rank, &ranks, NULL) != MD_OK)
		return;
	memcpy(part + strlen(part), ".part", sizeof(".part"));
	/* medusa-capture does not know yet how many ranks there are, and makes no files for them */
	md_descriptor_keep(&early, md_descriptor_open(part, O_RDWR | O_NOFOLLOW | (ranks ? O_CREAT : 0), 0600));
}

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The file that was opened early serves until its recording is completed, which gives it another name. */
static bool take_early(const char *path, struct md_trace_part *part)
{
	struct stat mine, there;
	MD_AUTO_FREE char *name = NULL;
	if (!md_descriptor_is_ours(&early) || fstat(early.fd, &mine) || !S_ISREG(mine.st_mode) ||
	    asprintf(&name, "%s.part", path) < 0)
		return false;
	if (strcmp(name, early_path))
		return false;
	if (stat(name, &there) ? mine.st_size > 0 : !is_same(&mine, &there))
		return false;
	if (!md_trace_part_restrict(early.fd))
		return false;
	*part = (struct md_trace_part){early, md_steal_ptr(&name)};
	early = MD_DESCRIPTOR_NONE;
	return true;
}

enum take { TAKEN, TAKEN_BY_ANOTHER, RENAMED, HOLDS_ANOTHER, FAILED };

/* True: the file may hold the complete recording of a process that has ended, which could not be renamed. */
static bool holds_another(const struct md_trace_part *part, const struct stat *info)
{
	char folder[MD_TRACE_PATH_BYTES + 8];
	snprintf(folder, sizeof(folder), "%s", part->path);
	char *slash = strrchr(folder, '/');
	if (slash)
		slash[slash == folder] = 0;
	return info->st_size > 0 && slash && faccessat(AT_FDCWD, folder, W_OK, AT_EACCESS);
}

static enum take take(const char *path, struct md_trace_part *part, pid_t *holder, struct md_error *err)
{
	struct stat mine, there;
	bool is_early = take_early(path, part);
	if (!is_early && md_trace_part_open(path, O_RDWR | O_CREAT, part, err) != MD_OK)
		return FAILED;
	if (fstat(part->file.fd, &mine)) {
		md_error_set(err, MD_ERR_IO, "%s: %s", part->path, strerror(errno));
		return FAILED;
	}
	if (!md_trace_part_lock(part, holder))
		return TAKEN_BY_ANOTHER;
	if (stat(part->path, &there) ? !is_early : !is_same(&mine, &there))
		return RENAMED; /* between opening and locking, by an owner that has ended */
	return holds_another(part, &mine) ? HOLDS_ANOTHER : TAKEN;
}

static enum take take_once(const char *path, pid_t *holder, struct md_error *err)
{
	struct md_trace_part part = MD_TRACE_PART_NONE;
	enum take result = md_trace_part_is_held(path, holder) ? TAKEN_BY_ANOTHER : take(path, &part, holder, err);
	if (result == TAKEN)
		owned = part;
	else
		md_trace_part_close(&part);
	return result;
}

static void say_taken(const char *path, pid_t holder)
{
	if (holder)
		md_warn("process %d records to %s; nothing is recorded in this one", (int)holder, path);
	else
		md_warn("another process records to %s; nothing is recorded in this one", path);
}

struct md_trace_part *md_capture_own(const char *path)
{
	struct md_error err = {0};
	enum take result = RENAMED;
	pid_t holder = 0;
	char pid[24];
	for (int i = 0; i < 3 && result == RENAMED; i++)
		result = take_once(path, &holder, &err);
	if (result == TAKEN_BY_ANOTHER)
		say_taken(path, holder);
	else if (result == HOLDS_ANOTHER)
		md_warn("%s.part holds what another process recorded; nothing is recorded in this one", path);
	else if (result != TAKEN)
		md_error_log("nothing is recorded: %s", err.message);
	if (result != TAKEN)
		return NULL;
	/* Programs that this one starts must not write the same trace. */
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("MEDUSA_TRACE_OWNER", pid, 1);
	unsetenv("MEDUSA_TRACE");
	return &owned;
}

bool md_capture_lacks_files_warn(void)
{
	if (few_files)
		md_warn("nothing is recorded: this process was started with a limit of %u open files (ulimit -n), and "
			"Medusa leaves them to the engine: at least %d are needed",
			few_files, MD_DESCRIPTORS_LEAST);
	return few_files;
}

void md_capture_not_asked_warn(void)
{
	const char *owner = md_environment_get("MEDUSA_TRACE_OWNER");
	if (owner && *owner)
		md_warn("process %s, which started this one, records; nothing is recorded here", owner);
	else
		md_warn("MEDUSA_TRACE is not set; nothing is recorded");
}

void md_capture_disown(void)
{
	md_trace_part_close(&owned);
	in_child = true;
}

void md_capture_disowned_warn(void)
{
	static atomic_bool said;
	if (in_child && !atomic_exchange(&said, true))
		md_warn("process %d records; nothing is recorded in a child that it forked since", (int)getppid());
}
