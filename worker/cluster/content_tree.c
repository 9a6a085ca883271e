/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/content_tree.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/utf8.h"

#define DEPTH_MAX 32u
#define YOUNG_S 2

/* ---- stamps ---- */

static struct md_content_stamp stamp_of(const struct stat *status)
{
	return (struct md_content_stamp){.device = status->st_dev,
					 .inode = status->st_ino,
					 .size = (uint64_t)status->st_size,
					 .modified = status->st_mtim,
					 .changed = status->st_ctim};
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool same_stamp(const struct md_content_stamp *a, const struct md_content_stamp *b)
{
	return a->device == b->device && a->inode == b->inode && a->size == b->size &&
	       same_time(&a->modified, &b->modified) && same_time(&a->changed, &b->changed);
}

static enum md_status system_error(struct md_error *err, const char *path)
{
	return md_error_set(err, errno == ENOENT || errno == ENOTDIR ? MD_ERR_NOT_FOUND : MD_ERR_IO, "%.300s: %s", path,
			    strerror(errno));
}

/* ---- finding ---- */

struct walk {
	struct md_content_tree *tree;
	char root[PATH_MAX]; /* the folder out of which nothing may lead, without links */
	struct md_error *err;
};

static enum md_status add_file(struct md_content_tree *tree, const char *name, const char *path,
			       const struct stat *status, struct md_error *err)
{
	if (!md_content_is_name(name) || !md_utf8_valid(name))
		return md_error_set(err, MD_ERR_INVALID,
				    "%.300s: no file of a model may be called so: UTF-8 without control characters and "
				    "\"\\\" is wanted, of at most 1,000 bytes",
				    path);
	if (tree->count == MD_CONTENT_FILES_MAX)
		return md_error_set(err, MD_ERR_INVALID, "%.300s: the model has more than %u files", path,
				    MD_CONTENT_FILES_MAX);
	if ((uint64_t)status->st_size > MD_CONTENT_BYTES_MAX - tree->bytes)
		return md_error_set(err, MD_ERR_INVALID, "%.300s: the model's files have more than 4 TiB", path);
	if (!MD_ARRAY_GROW(tree->items, tree->count, tree->room))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the files of a model");
	struct md_content_item *item = &tree->items[tree->count];
	*item = (struct md_content_item){.name = strdup(name), .path = strdup(path), .stamp = stamp_of(status)};
	tree->count++;
	tree->bytes += item->stamp.size;
	return item->name && item->path ? MD_OK
					: md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the files of a model");
}

static bool is_inside(const char *root, const char *path)
{
	size_t size = strlen(root);
	return !strncmp(root, path, size) && path[size] == '/';
}

static enum md_status walk_folder(struct walk *walk, const char *path, const char *name, unsigned depth);

/* path: below the folder; a link may lead to another file of it. */
static enum md_status walk_entry(struct walk *walk, const char *path, const char *name, unsigned depth)
{
	struct stat status;
	char real[PATH_MAX];
	if (lstat(path, &status))
		return system_error(walk->err, path);
	if (S_ISDIR(status.st_mode))
		return walk_folder(walk, path, name, depth + 1);
	if (S_ISREG(status.st_mode))
		return add_file(walk->tree, name, path, &status, walk->err);
	if (!S_ISLNK(status.st_mode))
		return md_error_set(walk->err, MD_ERR_INVALID, "%.300s: neither a file nor a folder", path);
	if (!realpath(path, real) || lstat(real, &status))
		return system_error(walk->err, path);
	if (!is_inside(walk->root, real) || !S_ISREG(status.st_mode))
		return md_error_set(walk->err, MD_ERR_INVALID,
				    "%.300s: a link to %.150s, which is no file of %.150s: name that in medusa.files",
				    path, real, walk->root);
	return add_file(walk->tree, name, real, &status, walk->err);
}

static enum md_status walk_folder(struct walk *walk, const char *path, const char *name, unsigned depth)
{
	DIR *folder = depth <= DEPTH_MAX ? opendir(path) : NULL;
	enum md_status status = MD_OK;
	char below[PATH_MAX], called[PATH_MAX];
	if (!folder)
		return depth > DEPTH_MAX ? md_error_set(walk->err, MD_ERR_INVALID,
							"%.300s: folders are nested more than %u deep", path, DEPTH_MAX)
					 : system_error(walk->err, path);
	for (struct dirent *entry; status == MD_OK && (entry = readdir(folder));) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		bool fits = snprintf(below, sizeof(below), "%s/%s", path, entry->d_name) < (int)sizeof(below) &&
			    snprintf(called, sizeof(called), "%s/%s", name, entry->d_name) < (int)sizeof(called);
		status = fits ? walk_entry(walk, below, called, depth)
			      : md_error_set(walk->err, MD_ERR_INVALID, "%.300s: a path in it is too long", path);
	}
	closedir(folder);
	return status;
}

/* What a user names may be a link: the content has what it leads to, by its own name. */
static enum md_status find_source(struct walk *walk, const char *source)
{
	struct stat status;
	size_t end = strlen(source);
	char name[NAME_MAX + 1];
	if (!realpath(source, walk->root) || lstat(walk->root, &status))
		return system_error(walk->err, source);
	while (end && source[end - 1] == '/')
		end--;
	size_t begin = end;
	while (begin && source[begin - 1] != '/')
		begin--;
	snprintf(name, sizeof(name), "%.*s", (int)(end - begin), source + begin);
	if (S_ISDIR(status.st_mode))
		return walk_folder(walk, walk->root, name, 0);
	if (S_ISREG(status.st_mode))
		return add_file(walk->tree, name, walk->root, &status, walk->err);
	return md_error_set(walk->err, MD_ERR_INVALID, "%.300s: neither a file nor a folder", source);
}

static int compare_items(const void *a, const void *b)
{
	return strcmp(((const struct md_content_item *)a)->name, ((const struct md_content_item *)b)->name);
}

static void order_items(struct md_content_tree *tree)
{
	uint64_t offset = 0;
	qsort(tree->items, tree->count, sizeof(*tree->items), compare_items);
	for (uint32_t i = 0; i < tree->count; i++) {
		tree->items[i].offset = offset;
		offset += tree->items[i].stamp.size;
	}
}

enum md_status md_content_tree_find(char *const *sources, uint32_t count, struct md_content_tree *tree,
				    struct md_error *err)
{
	struct walk walk = {.tree = tree, .err = err};
	enum md_status status = MD_OK;
	*tree = (struct md_content_tree){0};
	for (uint32_t i = 0; status == MD_OK && i < count; i++)
		status = find_source(&walk, sources[i]);
	if (status == MD_OK && !tree->count)
		status = md_error_set(err, MD_ERR_INVALID, "%.300s: there is no file in it", count ? sources[0] : "");
	if (status == MD_OK)
		order_items(tree);
	else
		md_content_tree_finish(tree);
	return status;
}

enum md_status md_content_tree_of(const char *folder, const struct md_content_manifest *manifest,
				  struct md_content_tree *tree, struct md_error *err)
{
	enum md_status status = MD_OK;
	char path[PATH_MAX];
	struct stat found;
	*tree = (struct md_content_tree){0};
	for (uint32_t i = 0; status == MD_OK && i < manifest->file_count; i++) {
		const struct md_content_file *file = &manifest->files[i];
		if (snprintf(path, sizeof(path), "%s/%s", folder, file->name) >= (int)sizeof(path))
			status = md_error_set(err, MD_ERR_INVALID, "%.300s: a path in it is too long", folder);
		else if (lstat(path, &found))
			status = system_error(err, path);
		else if (!S_ISREG(found.st_mode) || (uint64_t)found.st_size != file->size)
			status = md_error_set(err, MD_ERR_CORRUPT, "%.300s: a file of %llu bytes is wanted", path,
					      (unsigned long long)file->size);
		else
			status = add_file(tree, file->name, path, &found, err);
	}
	if (status == MD_OK)
		order_items(tree);
	else
		md_content_tree_finish(tree);
	return status;
}

void md_content_tree_finish(struct md_content_tree *tree)
{
	for (uint32_t i = 0; i < tree->count; i++) {
		free(tree->items[i].name);
		free(tree->items[i].path);
	}
	free(tree->items);
	*tree = (struct md_content_tree){0};
}

/* ---- what they are ---- */

bool md_content_tree_mark(const struct md_content_tree *tree, struct md_digest *mark)
{
	struct md_buf text = {0};
	for (uint32_t i = 0; i < tree->count; i++) {
		const struct md_content_item *item = &tree->items[i];
		const struct md_content_stamp *stamp = &item->stamp;
		md_buf_put(&text, item->name, strlen(item->name) + 1);
		md_buf_put(&text, item->path, strlen(item->path) + 1);
		md_buf_put_u64(&text, stamp->device);
		md_buf_put_u64(&text, stamp->inode);
		md_buf_put_u64(&text, stamp->size);
		md_buf_put_u64(&text, (uint64_t)stamp->modified.tv_sec);
		md_buf_put_u64(&text, (uint64_t)stamp->modified.tv_nsec);
		md_buf_put_u64(&text, (uint64_t)stamp->changed.tv_sec);
		md_buf_put_u64(&text, (uint64_t)stamp->changed.tv_nsec);
	}
	bool whole = !text.failed;
	if (whole)
		*mark = md_digest_bytes(text.data, text.size);
	md_buf_finish(&text);
	return whole;
}

bool md_content_tree_is_young(const struct md_content_tree *tree)
{
	time_t now = time(NULL);
	for (uint32_t i = 0; i < tree->count; i++)
		if (tree->items[i].stamp.changed.tv_sec + YOUNG_S >= now)
			return true;
	return false;
}

/* ---- reading ---- */

static enum md_status open_item(const struct md_content_item *item, int *fd, struct md_error *err)
{
	struct stat status;
	uint64_t size;
	MD_AUTO_FD int opened = -1;
	MD_FORWARD(md_file_open(item->path, MD_CONTENT_BYTES_MAX, &opened, &size, err));
	if (fstat(opened, &status))
		return system_error(err, item->path);
	struct md_content_stamp stamp = stamp_of(&status);
	if (!same_stamp(&stamp, &item->stamp))
		return md_error_set(err, MD_ERR_BUSY, "%.300s was changed since it was looked at", item->path);
	*fd = md_steal_fd(&opened);
	return MD_OK;
}

static uint32_t item_at(const struct md_content_tree *tree, uint64_t offset)
{
	uint32_t low = 0, high = tree->count;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (tree->items[middle].offset <= offset)
			low = middle;
		else
			high = middle;
	}
	return low;
}

enum md_status md_content_tree_read(const struct md_content_tree *tree, uint64_t offset, void *bytes, size_t size,
				    struct md_error *err)
{
	if (offset > tree->bytes || size > tree->bytes - offset)
		return md_error_set(err, MD_ERR_INVALID, "the content has %llu bytes", (unsigned long long)tree->bytes);
	for (uint32_t i = size ? item_at(tree, offset) : 0; size; i++) {
		const struct md_content_item *item = &tree->items[i];
		uint64_t inside = offset - item->offset, rest = item->stamp.size - inside;
		size_t part = rest < size ? (size_t)rest : size;
		MD_AUTO_FD int fd = -1;
		if (!part)
			continue;
		MD_FORWARD(open_item(item, &fd, err));
		MD_FORWARD(md_file_read_at(fd, inside, bytes, part, err));
		bytes = (char *)bytes + part;
		offset += part;
		size -= part;
	}
	return MD_OK;
}

/* Blocks don't end where files do, so that each file is opened once or twice for each of its blocks. */
enum md_status md_content_tree_hash(const struct md_content_tree *tree, atomic_uint_fast64_t *done,
				    const atomic_bool *ends, struct md_buf *manifest, struct md_error *err)
{
	uint32_t count = (uint32_t)((tree->bytes + MD_CONTENT_BLOCK - 1) / MD_CONTENT_BLOCK);
	MD_AUTO_FREE struct md_digest *blocks = calloc((size_t)count + 1, sizeof(*blocks));
	MD_AUTO_FREE struct md_content_file *files = calloc((size_t)tree->count + 1, sizeof(*files));
	MD_AUTO_FREE char *buffer = malloc(MD_CONTENT_BLOCK);
	if (!blocks || !files || !buffer)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for hashing the files of a model");
	for (uint32_t i = 0; i < count; i++) {
		uint64_t offset = md_content_block_offset(i), rest = tree->bytes - offset;
		size_t size = rest < MD_CONTENT_BLOCK ? (size_t)rest : MD_CONTENT_BLOCK;
		if (atomic_load(ends))
			return md_error_set(err, MD_ERR_TIMEOUT, "hashing was ended");
		MD_FORWARD(md_content_tree_read(tree, offset, buffer, size, err));
		blocks[i] = md_digest_bytes(buffer, size);
		atomic_store(done, offset + size);
	}
	for (uint32_t i = 0; i < tree->count; i++) {
		MD_AUTO_FD int fd = -1;
		MD_FORWARD(open_item(&tree->items[i], &fd, err)); /* once more: nothing has changed since it was read */
		files[i] = (struct md_content_file){.name = tree->items[i].name, .size = tree->items[i].stamp.size};
	}
	return md_content_manifest_print(files, tree->count, blocks, count, manifest)
		   ? MD_OK
		   : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the manifest of a model's files");
}
