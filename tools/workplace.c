/* SPDX-License-Identifier: Apache-2.0 */
/* Where a command works on an output: checked before anything runs, locked, with a private folder that is removed. */
#include "tools/workplace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/plain.h"
#include "ranks/rank_bundle.h"
#include "tools/folder.h"
#include "tools/stop.h"

/* ---- the lock ---- */

#define FOLDER_MARK ".tmp-"
#define TURNS 100 /* of names that are taken already */
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* Which process works on the output, as it wrote it; "" if it has not written yet. */
static void read_lock(int fd, char *text, size_t room)
{
	ssize_t size = pread(fd, text, room - 1, 0);
	text[size > 0 ? size : 0] = 0;
}

static void write_lock(const struct md_workplace *w)
{
	char host[256] = "?", when[32] = "?", text[PATH_MAX + 512];
	time_t now = time(NULL);
	struct tm utc;
	gethostname(host, sizeof(host) - 1);
	if (gmtime_r(&now, &utc))
		strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &utc);
	int size = snprintf(text, sizeof(text), "process %d on %s, since %s\n%s\n", (int)getpid(), host, when,
			    base_name(w->folder));
	if (ftruncate(w->lock_fd, 0) || pwrite(w->lock_fd, text, (size_t)size, 0) != size)
		return; /* the lock holds without its text */
}

static enum md_status say_held(const struct md_workplace *w, int fd, struct md_error *err)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char holder[PATH_MAX];
	read_lock(fd, holder, sizeof(holder));
	holder[strcspn(holder, "\n")] = 0;
	if (!*holder && fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK)
		snprintf(holder, sizeof(holder), "process %d", (int)lock.l_pid);
	return md_error_set(err, MD_ERR_BUSY,
			    "%s: %s is working on it (it holds %s); wait for it, or name another file", w->output,
			    *holder ? holder : "another process", w->lock);
}

static bool is_there(const char *path, int fd)
{
	struct stat mine, there;
	return !fstat(fd, &mine) && !stat(path, &there) && mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

/* Where files cannot be locked (*locked: false), names that nobody else has must be enough. */
static enum md_status take_lock(struct md_workplace *w, bool *locked, struct md_error *err)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	for (;;) {
		MD_AUTO_FD int fd = open(w->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
		if (fd < 0)
			return md_error_set(err, MD_ERR_OUTPUT, "%s: %s", w->lock, strerror(errno));
		*locked = fcntl(fd, F_SETLK, &lock) == 0;
		if (!*locked && (errno == EACCES || errno == EAGAIN))
			return say_held(w, fd, err);
		if (!is_there(w->lock, fd))
			continue; /* its holder has just removed the file */
		w->lock_fd = md_steal_fd(&fd);
		return MD_OK;
	}
}

/* ---- the folder ---- */

/* OUTPUT.tmp-XXXXXX, as mkdtemp makes it. */
static bool is_folder_of(const char *output, const char *name)
{
	size_t length = strlen(output), mark = strlen(FOLDER_MARK);
	if (strncmp(name, output, length) || strncmp(name + length, FOLDER_MARK, mark))
		return false;
	name += length + mark;
	return strlen(name) == 6 && strspn(name, LETTERS) == 6;
}

/*
 * Removes what the lock's last holder named, if it is a name that only this program makes. Nobody holds that lock now.
 */
static void remove_leftover(const struct md_workplace *w)
{
	const char *output = base_name(w->output);
	static char text[PATH_MAX], path[2 * PATH_MAX], gone[2 * PATH_MAX + sizeof(MD_FOLDER_GONE)];
	read_lock(w->lock_fd, text, sizeof(text));
	/* the name of the output may contain line breaks, too */
	char *name = strchr(text, '\n'), *end = strrchr(text, '\n');
	if (!name || name == end)
		return;
	*name++ = *end = 0;
	if (!is_folder_of(output, name))
		return;
	snprintf(path, sizeof(path), "%.*s%s", (int)(output - w->output), w->output, name);
	snprintf(gone, sizeof(gone), "%s" MD_FOLDER_GONE, path);
	const char *left = !access(path, F_OK) ? path : gone;
	if (access(left, F_OK))
		return;
	if (md_folder_remove(path))
		md_plain_line(stderr, "%s: removed, left behind by %s", left, text);
	else
		md_plain_line(stderr, "%s: left behind by %s, cannot be removed (%s); remove it by hand", left, text,
			      strerror(errno));
}

static uint64_t draw_number(void)
{
	uint64_t number = 0;
	if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != (ssize_t)sizeof(number))
		number = (uint64_t)time(NULL) << 32 ^ (uint64_t)getpid();
	return number;
}

static bool is_root(void)
{
	return geteuid() == 0;
}

/* The six letters at the end of the folder's name. */
static void draw_name(struct md_workplace *w)
{
	char *letters = w->folder + strlen(w->folder) - 6;
	uint64_t number = draw_number();
	for (int i = 0; i < 6; i++, number /= strlen(LETTERS))
		letters[i] = LETTERS[number % strlen(LETTERS)];
}

/*
 * The lock names the folder before the folder exists, so that a process that is killed in between leaves nothing
 * unknown.
 */
static bool make_named(struct md_workplace *w)
{
	for (int turn = 0; turn < TURNS; turn++) {
		draw_name(w);
		if (w->lock_fd >= 0)
			write_lock(w);
		if (!mkdir(w->folder, 0700))
			return true;
		if (errno != EEXIST)
			return false;
	}
	return false;
}

/* Makes a folder with exactly this mode, whatever the umask is. */
static enum md_status make_folder(struct md_workplace *w, struct md_error *err)
{
	if (!make_named(w) || chmod(w->folder, is_root() ? 0711 : 0700)) {
		md_error_set(err, MD_ERR_OUTPUT, "%s: cannot make this folder: %s", w->folder, strerror(errno));
		*w->folder = 0;
		return MD_ERR_OUTPUT;
	}
	md_stop_remove(w->folder);
	snprintf(w->secret, sizeof(w->secret), "%016" PRIx64, draw_number());
	return MD_OK;
}

/* ---- all of it; signals are held ---- */

static enum md_status open_held(const char *output, struct md_workplace *w, struct md_error *err)
{
	MD_FORWARD(md_output_check_artifact(output, w->output, err));
	if (strlen(w->output) > PATH_MAX - 64)
		return md_error_set(err, MD_ERR_INVALID, "%s: the path is too long", w->output);
	snprintf(w->lock, sizeof(w->lock), "%.*s.lock", PATH_MAX - 64, w->output);
	bool locked = false;
	enum md_status status = take_lock(w, &locked, err);
	if (status != MD_OK) {
		*w->lock = 0;
		return status;
	}
	md_stop_remove(w->lock);
	if (locked)
		remove_leftover(w);
	snprintf(w->folder, sizeof(w->folder), "%.*s" FOLDER_MARK "XXXXXX", PATH_MAX - 64, w->output);
	return make_folder(w, err);
}

static enum md_status open_temporary_held(struct md_workplace *w, struct md_error *err)
{
	const char *folder = secure_getenv("TMPDIR");
	if ((size_t)snprintf(w->folder, sizeof(w->folder), "%s/medusa-XXXXXX", folder && *folder ? folder : "/tmp") >=
	    sizeof(w->folder) - 64) {
		*w->folder = 0;
		return md_error_set(err, MD_ERR_INVALID, "TMPDIR is longer than a path may be");
	}
	return make_folder(w, err);
}

static enum md_status opened(struct md_workplace *w, enum md_status status)
{
	if (status != MD_OK)
		md_workplace_close(w);
	md_stop_release();
	return status;
}

enum md_status md_workplace_open(const char *output, struct md_workplace *out, struct md_error *err)
{
	*out = (struct md_workplace){.lock_fd = -1};
	md_stop_hold();
	enum md_status status = open_held(output, out, err);
	return opened(out, status);
}

enum md_status md_workplace_open_temporary(struct md_workplace *out, struct md_error *err)
{
	*out = (struct md_workplace){.lock_fd = -1};
	md_stop_hold();
	return opened(out, open_temporary_held(out, err));
}

void md_workplace_share(const char *path)
{
	if (chmod(path, is_root() ? 0644 : 0600))
		return; /* a process that cannot read it will say so */
}

static void name_made(const char *path, const char *suffix, char made[PATH_MAX + 64])
{
	snprintf(made, PATH_MAX + 64, "%s%s", path, strcmp(suffix, ".mtrace") ? "" : ".part");
}

static enum md_status make(const char *made, struct md_error *err)
{
	MD_AUTO_FD int fd = open(made, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || fchmod(fd, is_root() ? 0666 : 0600))
		return md_error_set(err, MD_ERR_OUTPUT, "%s: %s", made, strerror(errno));
	return MD_OK;
}

enum md_status md_workplace_file(const struct md_workplace *w, const char *name, const char *suffix,
				 char path[PATH_MAX], struct md_error *err)
{
	char made[PATH_MAX + 64];
	snprintf(path, PATH_MAX, "%.*s/%s-%s%s", PATH_MAX - 64, w->folder, name, w->secret, suffix);
	name_made(path, suffix, made);
	md_stop_remove(path);
	md_stop_remove(made);
	return make(made, err);
}

enum md_status md_workplace_renew(const char *path, const char *suffix, struct md_error *err)
{
	char made[PATH_MAX + 64];
	name_made(path, suffix, made);
	unlink(path);
	unlink(made);
	return make(made, err);
}

enum md_status md_workplace_folder(const struct md_workplace *w, const char *name, char path[PATH_MAX],
				   struct md_error *err)
{
	snprintf(path, PATH_MAX, "%.*s/%s-%s", PATH_MAX - 64, w->folder, name, w->secret);
	if (mkdir(path, 0755))
		return md_error_set(err, MD_ERR_OUTPUT, "%s: cannot make this folder: %s", path, strerror(errno));
	return MD_OK;
}

/* Where two names cannot be exchanged: the older folder waits in the workplace meanwhile. */
static enum md_status replace(const struct md_workplace *w, const char *folder, struct md_error *err)
{
	char older[PATH_MAX + 16];
	snprintf(older, sizeof(older), "%s/older", w->folder);
	if (rename(w->output, older))
		return md_error_set(err, MD_ERR_OUTPUT, "%s: %s", w->output, strerror(errno));
	if (!rename(folder, w->output))
		return MD_OK;
	md_error_set(err, MD_ERR_OUTPUT, "%s: %s", w->output, strerror(errno));
	if (rename(older, w->output))
		md_plain_line(stderr, "%s: cannot be put back from %s: %s", w->output, older, strerror(errno));
	return MD_ERR_OUTPUT;
}

static enum md_status publish_held(const struct md_workplace *w, const char *folder, struct md_error *err)
{
	struct stat info;
	if (stat(w->output, &info) && errno == ENOENT)
		return md_file_rename(folder, w->output, err);
	if (!md_bundle_is(w->output))
		return md_error_set(err, MD_ERR_OUTPUT, "%s: exists and is no bundle", w->output);
	if (!renameat2(AT_FDCWD, folder, AT_FDCWD, w->output, RENAME_EXCHANGE))
		return MD_OK;
	return replace(w, folder, err);
}

/* The folder's own entries must be on the disk before its name is. */
static enum md_status sync_folder(const char *folder, struct md_error *err)
{
	MD_AUTO_FD int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && (!fsync(fd) || errno == EINVAL)) /* some file systems cannot sync a folder, and need not */
		return MD_OK;
	return md_error_set(err, MD_ERR_OUTPUT, "%s: %s", folder, strerror(errno));
}

enum md_status md_workplace_publish_folder(const struct md_workplace *w, const char *folder, struct md_error *err)
{
	MD_FORWARD(sync_folder(folder, err));
	md_stop_hold();
	enum md_status status = publish_held(w, folder, err);
	md_stop_release();
	return status;
}

void md_workplace_close(struct md_workplace *w)
{
	bool removed = !*w->folder || md_folder_remove(w->folder);
	if (!removed)
		md_plain_line(stderr, "%s: cannot be removed: %s", w->folder, strerror(errno));
	if (*w->lock && w->lock_fd >= 0 && removed) /* otherwise the next run learns from it what is left */
		/* before the lock is released: a process that waits for it checks whether the file is still there */
		unlink(w->lock);
	if (w->lock_fd >= 0)
		close(w->lock_fd);
	md_stop_remove_nothing();
	*w = (struct md_workplace){.lock_fd = -1};
}
