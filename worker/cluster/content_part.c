/* SPDX-License-Identifier: Apache-2.0 */
/* A content that comes, block by block: nothing of it is seen under its name before all of it is on the disk. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "format/artifact/artifact.h"
#include "worker/cluster/content_store.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define FOLDER_MODE 0755
#define FILE_MODE 0644
#define LOOK_FDS 16

static enum md_status part_path(const struct md_content_part *part, const char *below, char path[PATH_MAX],
				struct md_error *err)
{
	if (snprintf(path, PATH_MAX, "%s/partial-%s/%s", part->store, part->hash, below) < PATH_MAX)
		return MD_OK;
	return md_error_set(err, MD_ERR_INVALID, "medusa.cluster.store: %.100s...: the path is too long", part->store);
}

static enum md_status output_error(struct md_error *err, const char *what, const char *path)
{
	return md_error_set(err, MD_ERR_OUTPUT, "%s %.300s: %s", what, path, strerror(errno));
}

/* ---- what takes room ---- */

static _Thread_local uint64_t counted;

static int count_entry(const char *path, const struct stat *status, int kind, struct FTW *where)
{
	(void)path, (void)where;
	if (kind == FTW_F)
		counted += (uint64_t)status->st_size;
	return 0;
}

static uint64_t bytes_below(const char *path)
{
	counted = 0;
	nftw(path, count_entry, LOOK_FDS, FTW_PHYS);
	return counted;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *where)
{
	(void)status, (void)kind, (void)where;
	return remove(path);
}

static void remove_below(const char *path)
{
	nftw(path, remove_entry, LOOK_FDS, FTW_PHYS | FTW_DEPTH);
}

struct old {
	char path[PATH_MAX];
	uint64_t bytes;
	struct timespec used;
};

static bool is_needed(const struct md_content_room *room, const char *hash)
{
	for (char *const *at = room->needed; *at; at++)
		if (!strcmp(*at, hash))
			return true;
	return false;
}

static int compare_old(const void *a, const void *b)
{
	const struct timespec *one = &((const struct old *)a)->used, *other = &((const struct old *)b)->used;
	if (one->tv_sec != other->tv_sec)
		return one->tv_sec < other->tv_sec ? -1 : 1;
	return (one->tv_nsec > other->tv_nsec) - (one->tv_nsec < other->tv_nsec);
}

/* Contents that no model of this node needs, those in parts, too: what was used longest ago comes first. The caller frees the list. */
static struct old *list_old(const struct md_content_part *part, const struct md_content_room *room, size_t *count)
{
	struct old *list = NULL;
	size_t there = 0;
	DIR *folder = opendir(part->store);
	*count = 0;
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		const char *name = entry->d_name, *hash = strncmp(name, "partial-", 8) ? name : name + 8;
		struct stat status;
		if (!md_content_is_hash(hash) || !strcmp(hash, part->hash) || is_needed(room, hash))
			continue;
		if (!MD_ARRAY_GROW(list, *count, there))
			break;
		struct old *old = &list[*count];
		if (snprintf(old->path, sizeof(old->path), "%s/%s", part->store, name) >= (int)sizeof(old->path) ||
		    stat(old->path, &status))
			continue;
		old->bytes = bytes_below(old->path);
		old->used = status.st_mtim;
		++*count;
	}
	if (folder)
		closedir(folder);
	if (*count)
		qsort(list, *count, sizeof(*list), compare_old);
	return list;
}

static uint64_t free_bytes(const char *store)
{
	struct statvfs fs;
	return statvfs(store, &fs) ? UINT64_MAX : (uint64_t)fs.f_bavail * fs.f_frsize;
}

/* wanted: bytes that are still to be written. */
static enum md_status make_room(const struct md_content_part *part, const struct md_content_room *room, uint64_t wanted,
				struct md_error *err)
{
	size_t count, at = 0;
	uint64_t used = room->limit ? bytes_below(part->store) : 0;
	MD_AUTO_FREE struct old *list = list_old(part, room, &count);
	for (;;) {
		uint64_t there = free_bytes(part->store);
		bool limited = room->limit && (wanted > room->limit || used > room->limit - wanted);
		if (!limited && there >= wanted)
			return MD_OK;
		if (at == count && limited)
			return md_error_set(err, MD_ERR_OUTPUT,
					    "medusa.cluster.store: %.200s: %llu bytes are needed for %s, and "
					    "medusa.cluster.store_bytes is %llu, of which models need %llu",
					    part->store, (unsigned long long)wanted, part->hash,
					    (unsigned long long)room->limit, (unsigned long long)used);
		if (at == count)
			return md_error_set(err, MD_ERR_OUTPUT,
					    "medusa.cluster.store: %.200s: %llu bytes are needed for %s, and its file "
					    "system has %llu free: make room there",
					    part->store, (unsigned long long)wanted, part->hash,
					    (unsigned long long)there);
		md_warn("medusa.cluster.store: %s is removed (%llu bytes), because no model needs it and there is no "
			"room for %s",
			list[at].path, (unsigned long long)list[at].bytes, part->hash);
		remove_below(list[at].path);
		used -= list[at].bytes < used ? list[at].bytes : used;
		at++;
	}
}

/* ---- the files ---- */

/* Nobody else writes in the store, and no link in it leads out: names of a manifest have no "..", and folders are made here. */
static int open_file(const char *path, int flags)
{
	return open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, FILE_MODE);
}

static enum md_status make_folders(char path[PATH_MAX], const char *from, struct md_error *err)
{
	for (char *slash = path + (from - path); (slash = strchr(slash + 1, '/'));) {
		*slash = '\0';
		bool made = !mkdir(path, FOLDER_MODE) || errno == EEXIST;
		enum md_status status = made ? MD_OK : output_error(err, "making the folder", path);
		*slash = '/';
		MD_FORWARD(status);
	}
	return MD_OK;
}

static enum md_status file_path(const struct md_content_part *part, const struct md_content_file *file,
				char path[PATH_MAX], struct md_error *err)
{
	if (snprintf(path, PATH_MAX, "%s/partial-%s/files/%s", part->store, part->hash, file->name) < PATH_MAX)
		return MD_OK;
	return md_error_set(err, MD_ERR_INVALID, "medusa.cluster.store: a path in it is too long for %.200s",
			    file->name);
}

static enum md_status make_file(const struct md_content_part *part, const struct md_content_file *file,
				struct md_error *err)
{
	char path[PATH_MAX];
	MD_FORWARD(file_path(part, file, path, err));
	MD_FORWARD(make_folders(path, path + strlen(part->store), err));
	MD_AUTO_FD int fd = open_file(path, O_RDWR | O_CREAT);
	if (fd < 0 || ftruncate(fd, (off_t)file->size))
		return output_error(err, "making", path);
	return MD_OK;
}

static uint32_t file_at(const struct md_content_manifest *m, uint64_t offset)
{
	uint32_t low = 0, high = m->file_count;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (m->files[middle].offset <= offset)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* Reads or writes a block. */
static enum md_status move_block(const struct md_content_part *part, uint32_t block, char *bytes, bool writes,
				 struct md_error *err)
{
	uint64_t offset = md_content_block_offset(block);
	size_t size = md_content_block_size(part->manifest, block);
	for (uint32_t i = file_at(part->manifest, offset); size; i++) {
		const struct md_content_file *file = &part->manifest->files[i];
		uint64_t inside = offset - file->offset, rest = file->size - inside;
		size_t now = rest < size ? (size_t)rest : size;
		char path[PATH_MAX];
		if (!now)
			continue;
		MD_FORWARD(file_path(part, file, path, err));
		MD_AUTO_FD int fd = open_file(path, writes ? O_WRONLY : O_RDONLY);
		if (fd < 0)
			return output_error(err, "opening", path);
		for (size_t done = 0; done < now;) {
			ssize_t moved = writes ? pwrite(fd, bytes + done, now - done, (off_t)(inside + done))
					       : pread(fd, bytes + done, now - done, (off_t)(inside + done));
			if (moved < 0 && errno == EINTR)
				continue;
			if (moved < 0)
				return output_error(err, writes ? "writing" : "reading", path);
			if (!moved)
				return md_error_set(err, MD_ERR_OUTPUT, "%.300s: the file was cut off", path);
			done += (size_t)moved;
		}
		bytes += now;
		offset += now;
		size -= now;
	}
	return MD_OK;
}

static bool is_right(const struct md_content_part *part, uint32_t block, const void *bytes)
{
	struct md_digest digest = md_digest_bytes(bytes, md_content_block_size(part->manifest, block));
	return !memcmp(digest.bytes, part->manifest->blocks[block].bytes, sizeof(digest.bytes));
}

/* ---- opening ---- */

/* Whether this is what an earlier fetch has begun: else all of it begins anew. */
static bool is_begun(const struct md_content_part *part, const char *text, size_t size)
{
	char path[PATH_MAX];
	struct md_file_bytes file;
	if (part_path(part, "manifest", path, NULL) != MD_OK ||
	    md_file_read(path, MD_CONTENT_TEXT_MAX, &file, NULL) != MD_OK)
		return false;
	bool same = file.size == size && !memcmp(file.data, text, size);
	md_file_release(&file);
	return same;
}

static enum md_status write_whole(const struct md_content_part *part, const char *name, const void *bytes, size_t size,
				  struct md_error *err)
{
	char path[PATH_MAX];
	MD_FORWARD(part_path(part, name, path, err));
	MD_AUTO_FD int fd = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
	if (fd < 0)
		return output_error(err, "making", path);
	return md_file_write(fd, bytes, size, path, err);
}

static enum md_status make_files(const struct md_content_part *part, struct md_error *err)
{
	for (uint32_t i = 0; i < part->manifest->file_count; i++)
		MD_FORWARD(make_file(part, &part->manifest->files[i], err));
	return MD_OK;
}

/* A byte for each block, 0 where nothing is known; bytes that are there stay. */
static enum md_status make_bits(const struct md_content_part *part, struct md_error *err)
{
	char path[PATH_MAX];
	MD_FORWARD(part_path(part, "bits", path, err));
	MD_AUTO_FD int fd = open_file(path, O_RDWR | O_CREAT);
	return fd >= 0 && !ftruncate(fd, part->manifest->block_count) ? MD_OK : output_error(err, "making", path);
}

/* A daemon that was killed while it removed this may have left some of it. */
static enum md_status mend(const struct md_content_part *part, struct md_error *err)
{
	MD_FORWARD(make_files(part, err));
	return make_bits(part, err);
}

static enum md_status begin_anew(const struct md_content_part *part, const char *text, size_t size,
				 struct md_error *err)
{
	char path[PATH_MAX];
	MD_FORWARD(part_path(part, "", path, err));
	remove_below(path);
	if (mkdir(path, FOLDER_MODE))
		return output_error(err, "making the folder", path);
	MD_FORWARD(make_files(part, err));
	MD_FORWARD(make_bits(part, err));
	return write_whole(part, "manifest", text, size, err);
}

/* The machine may have lost power after a bit was written and before its block was: what counts is what the block hashes to. */
static enum md_status verify(const struct md_content_part *part, const atomic_bool *ends, bool *there,
			     struct md_error *err)
{
	char path[PATH_MAX];
	struct md_file_bytes bits;
	MD_AUTO_FREE char *buffer = malloc(MD_CONTENT_BLOCK);
	if (!buffer)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a block");
	MD_FORWARD(part_path(part, "bits", path, err));
	if (md_file_read(path, part->manifest->block_count, &bits, err) != MD_OK)
		return MD_OK; /* then none is known */
	for (uint32_t i = 0; i < part->manifest->block_count && i < bits.size && !atomic_load(ends); i++)
		there[i] =
		    bits.data[i] && move_block(part, i, buffer, false, err) == MD_OK && is_right(part, i, buffer);
	md_file_release(&bits);
	return atomic_load(ends) ? md_error_set(err, MD_ERR_TIMEOUT, "looking at what is there was ended") : MD_OK;
}

enum md_status md_content_part_open(const struct md_content_part *part, const struct md_content_room *room,
				    const char *text, size_t size, const atomic_bool *ends, bool *there,
				    struct md_error *err)
{
	uint64_t wanted = part->manifest->bytes;
	bool begun = is_begun(part, text, size);
	if (begun) {
		MD_FORWARD(mend(part, err));
		MD_FORWARD(verify(part, ends, there, err));
	}
	for (uint32_t i = 0; i < part->manifest->block_count; i++)
		wanted -= there[i] ? md_content_block_size(part->manifest, i) : 0;
	struct md_content_room counted_once = *room; /* files of a part have their whole size from the beginning */
	if (begun && counted_once.limit)
		counted_once.limit += wanted;
	MD_FORWARD(make_room(part, &counted_once, wanted, err));
	return begun ? MD_OK : begin_anew(part, text, size, err);
}

/* ---- writing ---- */

enum md_status md_content_part_write(const struct md_content_part *part, uint32_t block, const void *bytes,
				     struct md_error *err)
{
	char path[PATH_MAX];
	if (!is_right(part, block, bytes))
		return md_error_set(err, MD_ERR_CORRUPT, "block %u (bytes %llu to %llu) of content %s is wrong", block,
				    (unsigned long long)md_content_block_offset(block),
				    (unsigned long long)md_content_block_offset(block) +
					md_content_block_size(part->manifest, block) - 1,
				    part->hash);
	MD_FORWARD(move_block(part, block, (char *)bytes, true, err));
	MD_FORWARD(part_path(part, "bits", path, err));
	MD_AUTO_FD int fd = open_file(path, O_WRONLY);
	if (fd < 0 || pwrite(fd, "\1", 1, block) != 1)
		return output_error(err, "writing", path);
	return MD_OK;
}

/* ---- the end ---- */

static enum md_status sync_path(const char *path, struct md_error *err)
{
	MD_AUTO_FD int fd = open_file(path, O_RDONLY);
	return fd >= 0 && !fsync(fd) ? MD_OK : output_error(err, "writing", path);
}

static _Thread_local char unsynced[PATH_MAX];

static int sync_folder(const char *path, const struct stat *status, int kind, struct FTW *where)
{
	struct md_error err;
	(void)status, (void)where;
	if ((kind != FTW_F && kind != FTW_D) || sync_path(path, &err) == MD_OK)
		return 0;
	snprintf(unsynced, sizeof(unsynced), "%.300s", err.message);
	return 1;
}

#define MAGIC_SIZE (sizeof(MD_ARTIFACT_MAGIC) - 1)

/*
 * By what is in it, as readers of artifacts know one: its name may be any. A file that can't be read now (the daemon has no
 * descriptors left) is no file without a signature to check: that is an error.
 */
static enum md_status is_artifact(const struct md_content_part *part, const struct md_content_file *file, bool *is,
				  struct md_error *err)
{
	char path[PATH_MAX], magic[MAGIC_SIZE];
	uint64_t size;
	MD_AUTO_FD int fd = -1;
	*is = false;
	if (file->size <= sizeof(magic))
		return MD_OK;
	MD_FORWARD(file_path(part, file, path, err));
	MD_FORWARD(md_file_open(path, UINT64_MAX, &fd, &size, err));
	MD_FORWARD(md_file_read_at(fd, 0, magic, sizeof(magic), err));
	*is = !memcmp(magic, MD_ARTIFACT_MAGIC, sizeof(magic));
	return MD_OK;
}

/* Everything in the artifact is read and checked. */
static enum md_status check_signature(const struct md_content_part *part, const struct md_content_file *file,
				      const struct md_trust *trust, struct md_error *err)
{
	char path[PATH_MAX];
	struct md_artifact_file *opened;
	struct md_artifact artifact;
	MD_FORWARD(file_path(part, file, path, err));
	enum md_status status = md_artifact_open_trusted(path, trust, &opened, &artifact, err);
	if (status == MD_ERR_NO_MEMORY || status == MD_ERR_IO)
		return status; /* nothing is known of the signature: the content stays */
	if (status != MD_OK)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "%.120s of content %s is refused (medusa.cluster.signed_by: %.100s): %.150s",
				    file->name, part->hash, trust->path, md_status_name(status));
	status = md_artifact_read_graphs(opened, &artifact, err);
	md_artifact_finish(&artifact);
	md_artifact_close(opened);
	return status;
}

static enum md_status read_trust(const char *signed_by, struct md_trust *trust, struct md_error *err)
{
	if (md_trust_read(signed_by, trust, err) == MD_OK)
		return MD_OK;
	md_error_prefix(err, "medusa.cluster.signed_by");
	return MD_ERR_OUTPUT; /* which may be put right: the content stays */
}

static enum md_status check_signatures(const struct md_content_part *part, const char *signed_by, struct md_error *err)
{
	struct md_trust trust = {0};
	enum md_status status = MD_OK;
	if (!*signed_by)
		return MD_OK;
	MD_FORWARD(read_trust(signed_by, &trust, err));
	for (uint32_t i = 0; status == MD_OK && i < part->manifest->file_count; i++) {
		bool is;
		status = is_artifact(part, &part->manifest->files[i], &is, err);
		if (status == MD_OK && is)
			status = check_signature(part, &part->manifest->files[i], &trust, err);
	}
	md_trust_finish(&trust);
	return status;
}

/* ---- artifacts first ---- */

/* What is being found out about a content of which blocks are missing. */
struct look {
	const struct md_content_part *part;
	const struct md_trust *trust;
	const bool *there;
	struct md_content_first *first;
};

static bool is_called_artifact(const struct md_content_file *file)
{
	static const char end[] = ".medusa";
	size_t size = strlen(file->name);
	return size >= sizeof(end) && !strcmp(file->name + size - (sizeof(end) - 1), end);
}

/* The blocks that have the first `size` bytes of the file, one at least, are wanted where they are missing. True: none is. */
static bool want(const struct look *look, const struct md_content_file *file, uint64_t size)
{
	uint64_t begin = file->offset / MD_CONTENT_BLOCK, end = (file->offset + size - 1) / MD_CONTENT_BLOCK;
	bool whole = true;
	for (uint64_t i = begin; i <= end; i++) {
		look->first->blocks[i] = look->first->blocks[i] || !look->there[i];
		whole = whole && look->there[i];
	}
	look->first->any = look->first->any || !whole;
	return whole;
}

static bool has(const struct look *look, const struct md_content_file *file, uint64_t size)
{
	uint64_t begin = file->offset / MD_CONTENT_BLOCK, end = (file->offset + size - 1) / MD_CONTENT_BLOCK;
	while (begin <= end && look->there[begin])
		begin++;
	return begin > end;
}

/* By its first bytes if they are there, and else by its name. */
static enum md_status look_at(const struct look *look, uint32_t i, struct md_error *err)
{
	const struct md_content_file *file = &look->part->manifest->files[i];
	bool is = is_called_artifact(file);
	if (look->first->judged[i] || file->size <= MAGIC_SIZE)
		return MD_OK;
	bool known = has(look, file, MAGIC_SIZE);
	if (known)
		MD_FORWARD(is_artifact(look->part, file, &is, err));
	if (is && want(look, file, file->size))
		MD_FORWARD(check_signature(look->part, file, look->trust, err));
	look->first->judged[i] = known && (!is || has(look, file, file->size));
	return MD_OK;
}

enum md_status md_content_part_judge(const struct md_content_part *part, const char *signed_by, const bool *there,
				     struct md_content_first *first, struct md_error *err)
{
	const struct md_content_manifest *manifest = part->manifest;
	struct md_trust trust = {0};
	const struct look look = {.part = part, .trust = &trust, .there = there, .first = first};
	char path[PATH_MAX];
	MD_FORWARD(part_path(part, "", path, err));
	MD_FORWARD(read_trust(signed_by, &trust, err));
	enum md_status status = MD_OK;
	memset(first->blocks, 0, manifest->block_count * sizeof(*first->blocks));
	first->any = false;
	for (uint32_t i = 0; status == MD_OK && i < manifest->file_count; i++)
		status = look_at(&look, i, err);
	bool heads = status == MD_OK && !first->any; /* a file with another name may be one, too */
	for (uint32_t i = 0; heads && i < manifest->file_count; i++)
		if (!first->judged[i] && manifest->files[i].size > MAGIC_SIZE)
			want(&look, &manifest->files[i], MAGIC_SIZE);
	md_trust_finish(&trust);
	if (status == MD_ERR_MISMATCH)
		remove_below(path);
	return status;
}

/* ---- the name ---- */

enum md_status md_content_part_end(const struct md_content_part *part, const char *signed_by, struct md_error *err)
{
	char from[PATH_MAX], to[PATH_MAX], bits[PATH_MAX];
	MD_FORWARD(part_path(part, "", from, err));
	enum md_status status = check_signatures(part, signed_by, err);
	if (status == MD_ERR_MISMATCH)
		remove_below(from);
	MD_FORWARD(status);
	from[strlen(from) - 1] = '\0';
	if (nftw(from, sync_folder, LOOK_FDS, FTW_PHYS))
		return md_error_set(err, MD_ERR_OUTPUT, "%.400s", unsynced);
	if (snprintf(to, sizeof(to), "%s/%s", part->store, part->hash) >= (int)sizeof(to) ||
	    snprintf(bits, sizeof(bits), "%s/bits", to) >= (int)sizeof(bits))
		return md_error_set(err, MD_ERR_INVALID, "medusa.cluster.store: %.100s...: the path is too long",
				    part->store);
	remove_below(to); /* what was found damaged there */
	MD_FORWARD(md_file_rename(from, to, err));
	unlink(bits); /* not before: whoever is killed meanwhile goes on with what is there */
	return MD_OK;
}
