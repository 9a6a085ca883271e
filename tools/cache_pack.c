/* SPDX-License-Identifier: Apache-2.0 */
/* Packs the files of compilers' caches: every regular file below a folder, in an order that does not depend on it. */
#include "tools/cache_pack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "tools/cache_place.h"

#define DEPTH_MAX 64 /* folders in folders */
#define SAID_MAX 8   /* files that are left out, by name */

struct packing {
	const struct md_command *command;
	struct md_cache_folder *folder;
	uint64_t limit, files, bytes; /* of all folders until now */
	uint64_t room;                /* of the folder's files */
	unsigned left_out;
	bool data, speaks;
	struct md_error *err;
	char largest[PATH_MAX + MD_CACHE_PATH_MAX + 2]; /* of all folders */
	uint64_t largest_bytes;
};

enum md_status md_cache_limit_parse(const char *text, uint64_t *out, struct md_error *err)
{
	static const char suffixes[] = "KMG";
	char *end;
	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	const char *suffix = *end ? strchr(suffixes, *end) : NULL;
	unsigned shift = suffix ? 10 * (unsigned)(suffix - suffixes + 1) : 0;
	if (*text < '0' || *text > '9' || errno || (*end && (!suffix || end[1])) || !number ||
	    number > MD_CACHE_BYTES_MAX >> shift)
		return md_error_set(err, MD_ERR_INVALID, "\"%s\" is not a number of bytes from 1 to 2G", text);
	*out = number << shift;
	return MD_OK;
}

/* ---- one file ---- */

static void leave_out(struct packing *p, const char *path, const char *why)
{
	p->left_out++;
	if (p->speaks && p->left_out <= SAID_MAX)
		md_options_say(p->command, "%s/%s: %s, left out", p->folder->path, path, why);
}

static const char *kind_of(mode_t mode)
{
	return S_ISLNK(mode) ? "a symbolic link" : S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

static enum md_status read_data(int fd, struct md_cache_file *file, struct md_error *err)
{
	file->data = file->size ? malloc(file->size) : NULL;
	if (file->size && !file->data)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a file of %" PRIu64 " bytes", file->size);
	MD_FORWARD(md_file_read_at(fd, 0, file->data, file->size, err));
	file->hash = md_hash_bytes(file->size ? (const void *)file->data : "", file->size);
	return MD_OK;
}

static enum md_status count_file(struct packing *p, const char *path, uint64_t size)
{
	if (++p->files > MD_CACHE_FILES_MAX)
		return md_error_set(p->err, MD_ERR_TOO_LARGE, "%s: more than %u files", p->folder->path,
				    MD_CACHE_FILES_MAX);
	p->bytes = size > UINT64_MAX - p->bytes ? UINT64_MAX : p->bytes + size;
	if (size > p->largest_bytes) {
		p->largest_bytes = size;
		snprintf(p->largest, sizeof(p->largest), "%s/%s", p->folder->path, path);
	}
	return MD_OK;
}

/* Leaves out a file that may not be read: a start then has to compile more, but the capture is still worth keeping. */
static enum md_status add_file(struct packing *p, int at, const char *name, const char *path)
{
	struct stat info;
	MD_AUTO_FD int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	if (fd < 0 || fstat(fd, &info) != 0) {
		leave_out(p, path, strerror(errno));
		return MD_OK;
	}
	if (!S_ISREG(info.st_mode)) {
		leave_out(p, path, kind_of(info.st_mode));
		return MD_OK;
	}
	MD_FORWARD(count_file(p, path, (uint64_t)info.st_size));
	if (p->bytes > p->limit)
		return MD_OK; /* counted, to say how many there are */
	struct md_cache_folder *folder = p->folder;
	if (!MD_ARRAY_GROW(folder->files, folder->file_count, p->room))
		return md_error_set(p->err, MD_ERR_NO_MEMORY, "%s: out of memory for its files", folder->path);
	struct md_cache_file *file = &folder->files[folder->file_count++];
	*file = (struct md_cache_file){
	    .path = strdup(path), .size = (uint64_t)info.st_size, .executable = info.st_mode & S_IXUSR};
	if (!file->path)
		return md_error_set(p->err, MD_ERR_NO_MEMORY, "%s: out of memory for its files", folder->path);
	if (p->data && read_data(fd, file, p->err) != MD_OK)
		return md_error_prefix(p->err, "%s/%s", folder->path, path);
	return MD_OK;
}

/* ---- a folder ---- */

static enum md_status add_folder(struct packing *p, int fd, const char *path, unsigned depth);

static enum md_status add_entry(struct packing *p, int at, const char *name, const char *folder, unsigned depth)
{
	char path[MD_CACHE_PATH_MAX + 1];
	struct stat info;
	int size = snprintf(path, sizeof(path), "%s%s%s", folder, *folder ? "/" : "", name);
	if (!strncmp(name, MD_CACHE_STAGING, strlen(MD_CACHE_STAGING)))
		return MD_OK; /* what a start that was killed has left */
	if (size >= (int)sizeof(path) || depth == DEPTH_MAX)
		leave_out(p, folder, "it holds folders that nest too deep for an artifact");
	else if (fstatat(at, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
		leave_out(p, path, strerror(errno));
	else if (S_ISREG(info.st_mode))
		return add_file(p, at, name, path);
	else if (!S_ISDIR(info.st_mode))
		leave_out(p, path, kind_of(info.st_mode));
	else
		return add_folder(p, openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), path,
				  depth + 1);
	return MD_OK;
}

static enum md_status add_folder(struct packing *p, int fd, const char *path, unsigned depth)
{
	DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
	enum md_status status = MD_OK;
	if (!folder) {
		leave_out(p, path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return MD_OK;
	}
	for (struct dirent *entry; status == MD_OK && (entry = readdir(folder));)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			status = add_entry(p, dirfd(folder), entry->d_name, path, depth);
	closedir(folder);
	return status;
}

static int compare_files(const void *a, const void *b)
{
	return md_cache_path_compare(((const struct md_cache_file *)a)->path, ((const struct md_cache_file *)b)->path);
}

static enum md_status pack_folder(struct packing *p)
{
	struct md_cache_folder *folder = p->folder;
	int fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return md_error_set(p->err, MD_ERR_IO, "%s: %s", folder->path, strerror(errno));
	p->room = 0;
	p->left_out = 0;
	MD_FORWARD(add_folder(p, fd, "", 0));
	if (p->speaks && p->left_out > SAID_MAX)
		md_options_say(p->command, "%s: %u more left out", folder->path, p->left_out - SAID_MAX);
	if (folder->file_count)
		qsort(folder->files, folder->file_count, sizeof(*folder->files), compare_files);
	else if (p->speaks && p->bytes <= p->limit)
		md_options_say(p->command, "%s holds no files: does the engine keep its cache elsewhere?",
			       folder->path);
	return MD_OK;
}

/* ---- all folders ---- */

static bool is_around(const char *folder, const char *path)
{
	size_t size = strlen(folder);
	return !strncmp(folder, path, size) && (path[size] == '/' || !path[size]);
}

static enum md_status check_apart(const struct md_caches *caches, struct md_error *err)
{
	const struct md_cache_folder *last = &caches->folders[caches->folder_count - 1];
	for (uint32_t i = 0; i + 1 < caches->folder_count; i++) {
		const struct md_cache_folder *folder = &caches->folders[i];
		if (is_around(folder->path, last->path) || is_around(last->path, folder->path))
			return md_error_set(
			    err, MD_ERR_INVALID,
			    "%s and %s are one folder, or one lies in the other: name only the outer one", folder->path,
			    last->path);
		if (!strcmp(folder->name, last->name) && !strcmp(folder->inside, last->inside))
			return md_error_set(err, MD_ERR_INVALID,
					    "%s and %s would both be named %s; write VARIABLE=DIR for one of them",
					    folder->path, last->path, last->name);
	}
	return MD_OK;
}

static enum md_status pack_all(struct packing *p, const struct md_argument_list *wishes, struct md_caches *out)
{
	for (uint32_t i = 0; i < wishes->count; i++) {
		if (out->folder_count == MD_CACHE_FOLDERS_MAX)
			return md_error_set(p->err, MD_ERR_TOO_LARGE, "more than %u folders of caches",
					    MD_CACHE_FOLDERS_MAX);
		if (!MD_ARRAY_EXTEND(out->folders, out->folder_count))
			return md_error_set(p->err, MD_ERR_NO_MEMORY, "out of memory for folders of caches");
		p->folder = &out->folders[out->folder_count++];
		MD_FORWARD(md_cache_place_describe(wishes->items[i].text, p->folder, p->err));
		MD_FORWARD(check_apart(out, p->err));
		MD_FORWARD(pack_folder(p));
	}
	if (p->bytes > p->limit)
		return md_error_set(p->err, MD_ERR_TOO_LARGE,
				    "the caches have %" PRIu64 " bytes, and at most %" PRIu64
				    " are packed (--cache-limit); the largest file is %.200s with %" PRIu64 " bytes",
				    p->bytes, p->limit, p->largest, p->largest_bytes);
	return MD_OK;
}

enum md_status md_cache_pack(const struct md_command *command, const struct md_argument_list *wishes, uint64_t limit,
			     bool data, struct md_caches *out, struct md_error *err)
{
	struct packing *p = calloc(1, sizeof(*p));
	struct md_caches made = {0};
	if (!p)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for packing caches");
	*p = (struct packing){.command = command, .limit = limit, .data = data, .speaks = data, .err = err};
	enum md_status status = pack_all(p, wishes, &made);
	free(p);
	if (status != MD_OK) {
		md_caches_finish(&made);
		return md_error_prefix(err, "--with-cache");
	}
	*out = made;
	return MD_OK;
}
