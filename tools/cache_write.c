/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the files of one folder of caches: compares existing files, writes the others aside, and moves them. */
#include "tools/cache_write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/thread.h"
#include "tools/cache_tree.h"

#define THREADS_MAX 8
#define LOCK_MOST_NS 60000000000u /* then this start goes on beside the other one */
#define PIECE (1u << 20)          /* bytes that are read at once of a file that is there */
#define NAMES_TRIED 100

enum state { FILE_MISSING, FILE_PRESENT, FILE_SAME, FILE_OTHER };

struct writing {
	const struct md_cache_source *source;
	const struct md_caches *caches;
	const struct md_cache_folder *folder;
	struct md_cache_unit *units; /* of this folder */
	uint32_t unit_count;
	uint8_t *states; /* by file; each is changed by the thread that has its unit */
	int root, staging;
	char staging_name[sizeof(MD_CACHE_STAGING) + 16];
	atomic_uint next;
	atomic_bool failed;
	pthread_mutex_t lock;  /* of error */
	struct md_error error; /* the first one */
};

/* ---- what is there already ---- */

static enum md_status look_at(struct writing *w, struct md_cache_walk *walk, uint32_t index, struct md_error *err)
{
	const char *name;
	struct stat info;
	int at;
	enum md_status status = md_cache_walk_to(walk, w->folder->files[index].path, false, &at, &name, err);
	w->states[index] = FILE_MISSING;
	if (status == MD_ERR_NOT_FOUND)
		return MD_OK;
	MD_FORWARD(status);
	if (fstatat(at, name, &info, AT_SYMLINK_NOFOLLOW) == 0)
		w->states[index] = S_ISREG(info.st_mode) ? FILE_PRESENT : FILE_OTHER;
	else if (errno != ENOENT)
		return md_error_set(err, MD_ERR_IO, "%s: %s", w->folder->files[index].path, strerror(errno));
	return MD_OK;
}

/* *missing: files that are to be written; *bytes: how many they have. */
static enum md_status look(struct writing *w, uint32_t *missing, uint64_t *bytes, struct md_error *err)
{
	struct md_cache_walk walk;
	enum md_status status = MD_OK;
	*missing = 0, *bytes = 0;
	md_cache_walk_begin(&walk, w->root);
	for (uint32_t i = 0; i < w->folder->file_count && status == MD_OK; i++) {
		status = look_at(w, &walk, i, err);
		*missing += w->states[i] == FILE_MISSING;
		*bytes += w->states[i] == FILE_MISSING ? w->folder->files[i].size : 0;
	}
	md_cache_walk_finish(&walk);
	return status;
}

static enum md_status hash_file(int fd, uint64_t size, uint8_t *room, struct md_hash *hash, struct md_error *err)
{
	struct md_hash_stream *stream = md_hash_stream_begin();
	enum md_status status = MD_OK;
	if (!stream)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a hash");
	for (uint64_t at = 0; at < size && status == MD_OK; at += PIECE) {
		size_t piece = size - at < PIECE ? (size_t)(size - at) : PIECE;
		status = md_file_read_at(fd, at, room, piece, err);
		if (status == MD_OK)
			md_hash_stream_add(stream, room, piece);
	}
	md_hash_stream_finish(stream, hash);
	return status;
}

/* A file that cannot be read, or that changes meanwhile, counts as different. */
static bool has_same_bytes(const struct md_cache_file *file, int at, const char *name, uint8_t *room)
{
	struct stat info;
	struct md_hash hash;
	MD_AUTO_FD int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || (uint64_t)info.st_size != file->size)
		return false;
	return hash_file(fd, file->size, room, &hash, NULL) == MD_OK && md_hash_equal(&hash, &file->hash);
}

/* ---- the folder in which files are written ---- */

static void remove_folder_at(int root, const char *name)
{
	int fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
	if (!folder && fd >= 0)
		close(fd);
	if (!folder)
		return;
	for (struct dirent *entry; (entry = readdir(folder));)
		unlinkat(dirfd(folder), entry->d_name, 0); /* "." and ".." are folders, which it leaves */
	closedir(folder);
	unlinkat(root, name, AT_REMOVEDIR);
}

/* A start that works on such a folder holds its lock. */
static bool is_abandoned(int root, const char *name)
{
	MD_AUTO_FD int fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

static void remove_abandoned(int root)
{
	int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
	if (!folder && fd >= 0)
		close(fd);
	if (!folder)
		return;
	for (struct dirent *entry; (entry = readdir(folder));)
		if (!strncmp(entry->d_name, MD_CACHE_STAGING, strlen(MD_CACHE_STAGING)) &&
		    is_abandoned(root, entry->d_name))
			remove_folder_at(root, entry->d_name);
	closedir(folder);
}

/* Makes and locks a folder; tries again if another start took it for an abandoned one in between. */
static bool make_staging(struct writing *w)
{
	for (unsigned i = 0; i < NAMES_TRIED; i++) {
		struct stat made, named;
		uint64_t random = 0;
		if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
			return false;
		snprintf(w->staging_name, sizeof(w->staging_name), MD_CACHE_STAGING "%016" PRIx64, random);
		if (mkdirat(w->root, w->staging_name, 0700) != 0 && errno != EEXIST)
			return false;
		MD_AUTO_FD int fd = openat(w->root, w->staging_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &made) != 0 ||
		    fstatat(w->root, w->staging_name, &named, AT_SYMLINK_NOFOLLOW) != 0 || made.st_ino != named.st_ino)
			continue;
		w->staging = md_steal_fd(&fd);
		return true;
	}
	return false;
}

/* ---- writing ---- */

struct output { /* the file that is being written */
	int fd;
	struct md_hash_stream *hash;
};

static void output_finish(struct output *out)
{
	if (out->fd >= 0)
		close(out->fd);
	md_hash_stream_finish(out->hash, NULL);
	*out = (struct output){.fd = -1};
}

static enum md_status output_begin(struct writing *w, uint32_t index, struct output *out, struct md_error *err)
{
	char name[16];
	snprintf(name, sizeof(name), "%u", index);
	out->fd = openat(w->staging, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			 w->folder->files[index].executable ? 0700 : 0600);
	if (out->fd < 0)
		return md_error_set(err, MD_ERR_OUTPUT, "%s", strerror(errno));
	out->hash = md_hash_stream_begin();
	return out->hash ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a hash");
}

static enum md_status output_put(struct output *out, const uint8_t *data, uint64_t size, struct md_error *err)
{
	md_hash_stream_add(out->hash, data, size);
	return md_file_write(out->fd, data, size, "written aside", err);
}

static enum md_status output_end(struct writing *w, uint32_t index, struct output *out, struct md_error *err)
{
	struct md_hash hash;
	md_hash_stream_finish(out->hash, &hash);
	out->hash = NULL;
	int result = close(out->fd);
	out->fd = -1;
	if (result != 0) /* some file systems notice only now that there is no room */
		return md_error_set(err, MD_ERR_OUTPUT, "%s", strerror(errno));
	if (!md_hash_equal(&hash, &w->folder->files[index].hash))
		return md_error_set(err, MD_ERR_CORRUPT, "its hash differs from the one in the index");
	return MD_OK;
}

struct rooms { /* of a thread */
	uint8_t *stored, *raw;
	struct md_cache_walk walk;
};

/* One file out of several blocks, or of one. */
static enum md_status write_large(struct writing *w, const struct md_cache_unit *unit, struct rooms *rooms,
				  struct output *out, struct md_error *err)
{
	MD_FORWARD(output_begin(w, unit->file, out, err));
	for (uint32_t i = unit->block; i < unit->block + unit->blocks; i++) {
		MD_FORWARD(md_cache_source_read(w->source, i, rooms->stored, rooms->raw, err));
		MD_FORWARD(output_put(out, rooms->raw, w->caches->blocks[i].raw, err));
	}
	return output_end(w, unit->file, out, err);
}

static enum md_status write_small(struct writing *w, const struct md_cache_unit *unit, struct rooms *rooms,
				  struct output *out, struct md_error *err)
{
	const uint8_t *at = rooms->raw;
	if (unit->blocks)
		MD_FORWARD(md_cache_source_read(w->source, unit->block, rooms->stored, rooms->raw, err));
	for (uint32_t i = unit->file; i < unit->file + unit->files; at += w->folder->files[i++].size) {
		if (w->states[i] != FILE_MISSING)
			continue;
		enum md_status status = output_begin(w, i, out, err);
		if (status == MD_OK)
			status = output_put(out, at, w->folder->files[i].size, err);
		if (status == MD_OK)
			status = output_end(w, i, out, err);
		if (status != MD_OK)
			return md_error_prefix(err, "%s", w->folder->files[i].path);
	}
	return MD_OK;
}

static enum md_status compare_present(struct writing *w, uint32_t index, struct rooms *rooms)
{
	const char *name;
	int at;
	w->states[index] = FILE_OTHER;
	if (md_cache_walk_to(&rooms->walk, w->folder->files[index].path, false, &at, &name, NULL) == MD_OK &&
	    has_same_bytes(&w->folder->files[index], at, name, rooms->raw))
		w->states[index] = FILE_SAME;
	return MD_OK;
}

static enum md_status take_unit(struct writing *w, const struct md_cache_unit *unit, struct rooms *rooms,
				struct md_error *err)
{
	struct output out = {.fd = -1};
	uint32_t missing = 0;
	enum md_status status = MD_OK;
	for (uint32_t i = unit->file; i < unit->file + unit->files; i++) {
		if (w->states[i] == FILE_PRESENT)
			compare_present(w, i, rooms);
		missing += w->states[i] == FILE_MISSING;
	}
	if (missing && unit->files == 1) {
		status = write_large(w, unit, rooms, &out, err);
		if (status != MD_OK)
			md_error_prefix(err, "%s", w->folder->files[unit->file].path);
	} else if (missing) {
		status = write_small(w, unit, rooms, &out, err);
	}
	output_finish(&out);
	return status;
}

static void fail(struct writing *w, const struct md_error *err)
{
	pthread_mutex_lock(&w->lock);
	if (!atomic_exchange(&w->failed, true))
		w->error = *err;
	pthread_mutex_unlock(&w->lock);
}

static uint64_t largest_stored(const struct md_caches *caches)
{
	uint64_t most = 1;
	for (uint32_t i = 0; i < caches->block_count; i++)
		most = caches->blocks[i].stored > most ? caches->blocks[i].stored : most;
	return most;
}

static void *write_main(void *argument)
{
	struct writing *w = argument;
	struct md_error err = {0};
	struct rooms *rooms = malloc(sizeof(*rooms));
	MD_AUTO_FREE uint8_t *stored = malloc(largest_stored(w->caches));
	MD_AUTO_FREE uint8_t *raw = malloc(MD_CACHE_BLOCK_BYTES);
	if (!rooms || !stored || !raw) {
		md_error_set(&err, MD_ERR_NO_MEMORY, "out of memory for a block");
		fail(w, &err);
		free(rooms);
		return NULL;
	}
	rooms->stored = stored, rooms->raw = raw;
	md_cache_walk_begin(&rooms->walk, w->root);
	for (unsigned i; !atomic_load(&w->failed) && (i = atomic_fetch_add(&w->next, 1)) < w->unit_count;)
		if (take_unit(w, &w->units[i], rooms, &err) != MD_OK)
			fail(w, &err);
	md_cache_walk_finish(&rooms->walk);
	free(rooms);
	return NULL;
}

static enum md_status write_aside(struct writing *w, struct md_error *err)
{
	pthread_t threads[THREADS_MAX];
	unsigned count = 0;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	while (count + 1 < THREADS_MAX && count + 1 < cpus && count + 1 < w->unit_count &&
	       md_thread_start(&threads[count], write_main, w) == 0)
		count++;
	write_main(w);
	while (count > 0)
		pthread_join(threads[--count], NULL);
	return atomic_load(&w->failed) ? md_error_set(err, w->error.status, "%s", w->error.message) : MD_OK;
}

/* ---- moving ---- */

/* Moves a file, never over another one: on kernels without a call for that, by a link, which fails there. */
static int move_at(int from, const char *name, int to, const char *as)
{
	if (renameat2(from, name, to, as, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	return linkat(from, name, to, as, 0) == 0 ? unlinkat(from, name, 0) : -1;
}

static enum md_status move_file(struct writing *w, struct md_cache_walk *walk, uint32_t index, uint8_t *room,
				struct md_error *err)
{
	const struct md_cache_file *file = &w->folder->files[index];
	const char *name;
	char aside[16];
	int at;
	MD_FORWARD(md_cache_walk_to(walk, file->path, true, &at, &name, err));
	snprintf(aside, sizeof(aside), "%u", index);
	if (move_at(w->staging, aside, at, name) == 0)
		return MD_OK;
	if (errno != EEXIST)
		return md_error_set(err, MD_ERR_OUTPUT, "%s: %s", file->path, strerror(errno));
	w->states[index] = has_same_bytes(file, at, name, room) ? FILE_SAME : FILE_OTHER;
	return MD_OK;
}

static enum md_status move_all(struct writing *w, struct md_cache_written *out, struct md_error *err)
{
	struct md_cache_walk walk;
	enum md_status status = MD_OK;
	MD_AUTO_FREE uint8_t *room = malloc(PIECE);
	if (!room)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a piece of a file");
	md_cache_walk_begin(&walk, w->root);
	for (uint32_t i = 0; i < w->folder->file_count && status == MD_OK; i++) {
		if (w->states[i] != FILE_MISSING)
			continue;
		status = move_file(w, &walk, i, room, err);
		if (status == MD_OK && w->states[i] == FILE_MISSING) {
			out->files++;
			out->bytes += w->folder->files[i].size;
		}
	}
	md_cache_walk_finish(&walk);
	return status;
}

/* ---- one start at a time ---- */

/* Goes on without the lock if the file system has no locks, or if another start does not release it. */
static bool take_lock(int fd, bool *unlocked)
{
	uint64_t end = md_clock_ns() + LOCK_MOST_NS;
	const struct timespec pause = {0, 5000000};
	while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return false;
		if (md_clock_ns() >= end) {
			*unlocked = true;
			return false;
		}
		nanosleep(&pause, NULL);
	}
	return true;
}

static enum md_status check_room(const struct writing *w, uint64_t bytes, struct md_error *err)
{
	struct statvfs info;
	if (fstatvfs(w->root, &info) != 0)
		return MD_OK; /* writing will show it */
	uint64_t there = (uint64_t)info.f_bavail * info.f_frsize;
	if (bytes > there)
		return md_error_set(err, MD_ERR_OUTPUT,
				    "%" PRIu64 " bytes are to be written, and the disk has room for %" PRIu64, bytes,
				    there);
	return MD_OK;
}

static enum md_status fill(struct writing *w, uint32_t missing, uint64_t bytes, struct md_cache_written *out,
			   struct md_error *err)
{
	if (!missing)
		return write_aside(w, err); /* which compares only */
	MD_FORWARD(check_room(w, bytes, err));
	if (!make_staging(w))
		return md_error_set(err, MD_ERR_OUTPUT, "a folder in it cannot be made: %s", strerror(errno));
	enum md_status status = write_aside(w, err);
	if (status == MD_OK)
		status = move_all(w, out, err);
	remove_folder_at(w->root, w->staging_name);
	close(w->staging);
	return status;
}

static enum md_status write_locked(struct writing *w, struct md_cache_written *out, struct md_error *err)
{
	uint32_t missing;
	uint64_t bytes;
	bool locked = false;
	MD_FORWARD(look(w, &missing, &bytes, err));
	if (missing) {
		locked = take_lock(w->root, &out->unlocked);
		if (locked)
			remove_abandoned(w->root);
		MD_FORWARD(look(w, &missing, &bytes, err)); /* another start may have written them meanwhile */
	}
	enum md_status status = fill(w, missing, bytes, out, err);
	if (locked)
		flock(w->root, LOCK_UN);
	return status;
}

static void count(const struct writing *w, struct md_cache_written *out)
{
	for (uint32_t i = 0; i < w->folder->file_count; i++) {
		out->there += w->states[i] == FILE_SAME;
		if (w->states[i] != FILE_OTHER)
			continue;
		if (out->others < MD_CACHE_OTHERS_MAX)
			out->named[out->others] = i;
		out->others++;
	}
}

/* Units of other folders are dropped. */
static enum md_status take_units(struct writing *w, uint32_t folder, struct md_error *err)
{
	uint32_t all, kept = 0;
	MD_FORWARD(md_cache_units_make(w->caches, &w->units, &all, err));
	for (uint32_t i = 0; i < all; i++)
		if (w->units[i].folder == folder)
			w->units[kept++] = w->units[i];
	w->unit_count = kept;
	return MD_OK;
}

enum md_status md_cache_write(const struct md_cache_source *source, const struct md_caches *caches, uint32_t folder,
			      int root, struct md_cache_written *out, struct md_error *err)
{
	struct writing w = {.source = source,
			    .caches = caches,
			    .folder = &caches->folders[folder],
			    .root = root,
			    .staging = -1,
			    .lock = PTHREAD_MUTEX_INITIALIZER};
	MD_AUTO_FREE uint8_t *states = calloc((size_t)w.folder->file_count + 1, 1);
	if (!states)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u files", w.folder->file_count);
	w.states = states;
	*out = (struct md_cache_written){0};
	enum md_status status = take_units(&w, folder, err);
	if (status == MD_OK)
		status = write_locked(&w, out, err);
	if (status == MD_OK)
		count(&w, out);
	free(w.units);
	return status;
}
