/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/content_store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "worker/core/state_lock.h"

#define FOLDER_MODE 0755
#define STORE_MODE 0700 /* whoever else may read the files was not asked: their permissions don't travel */

static enum md_status output_error(struct md_error *err, const char *what, const char *path)
{
	return md_error_set(err, MD_ERR_OUTPUT, "%s %.300s: %s", what, path, strerror(errno));
}

static enum md_status name_path(char path[PATH_MAX], const char *folder, const char *prefix, const char *name,
				struct md_error *err)
{
	if (snprintf(path, PATH_MAX, "%s/%s%s", folder, prefix, name) < PATH_MAX)
		return MD_OK;
	return md_error_set(err, MD_ERR_INVALID, "medusa.cluster.store: %.100s...: the path is too long", folder);
}

static enum md_status make_folder(const char *path, mode_t mode, struct md_error *err)
{
	return !mkdir(path, mode) || errno == EEXIST
		   ? MD_OK
		   : output_error(err, "medusa.cluster.store: making the folder", path);
}

enum md_status md_content_store_begin(const char *store, int *lock, struct md_error *err)
{
	char path[PATH_MAX];
	MD_FORWARD(make_folder(store, STORE_MODE, err));
	MD_FORWARD(name_path(path, store, "", "models", err));
	MD_FORWARD(make_folder(path, FOLDER_MODE, err));
	return md_lock_folder(store, "medusa.cluster.store", lock, err);
}

/* ---- a content that is whole ---- */

enum md_status md_content_store_find(const char *store, const char *hash, struct md_buf *manifest,
				     struct md_content_tree *tree, struct md_error *err)
{
	char path[PATH_MAX], found[MD_CONTENT_HASH_TEXT];
	struct md_file_bytes file;
	struct md_content_manifest read;
	MD_FORWARD(name_path(path, store, hash, "/manifest", err));
	MD_FORWARD(md_file_read(path, MD_CONTENT_TEXT_MAX, &file, err));
	struct md_digest digest = md_digest_bytes(file.data, file.size);
	md_content_hash_print(&digest, found);
	enum md_status status = strcmp(found, hash)
				    ? md_error_set(err, MD_ERR_CORRUPT, "%.300s: it was changed", path)
				    : md_content_manifest_read((const char *)file.data, file.size, &read, err);
	if (status == MD_OK) {
		status = name_path(path, store, hash, "/files", err);
		if (status == MD_OK)
			status = md_content_tree_of(path, &read, tree, err);
		md_content_manifest_finish(&read);
	}
	if (status == MD_OK) {
		md_buf_put(manifest, file.data, file.size + 1);
		if (manifest->failed) {
			status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a manifest");
			md_content_tree_finish(tree);
		} else {
			manifest->size--;
		}
	}
	md_file_release(&file);
	return status;
}

/* ---- where engines find files ---- */

/* A link is replaced in one step, so an engine that starts meanwhile finds the old files or the new ones. */
static enum md_status replace_link(const char *target, const char *place, struct md_error *err)
{
	char fresh[PATH_MAX], now[PATH_MAX];
	ssize_t size = readlink(place, now, sizeof(now) - 1);
	if (size > 0 && (size_t)size == strlen(target) && !memcmp(now, target, (size_t)size))
		return MD_OK;
	if (snprintf(fresh, sizeof(fresh), "%s~new", place) >= (int)sizeof(fresh))
		return md_error_set(err, MD_ERR_INVALID, "medusa.cluster.store: %.100s...: the path is too long",
				    place);
	unlink(fresh);
	if (symlink(target, fresh) || rename(fresh, place))
		return output_error(err, "making the link", place);
	return MD_OK;
}

enum md_status md_content_store_link(const char *place, const char *hash, struct md_error *err)
{
	char target[MD_CONTENT_HASH_TEXT + 16];
	char folder[PATH_MAX];
	snprintf(target, sizeof(target), "../%s/files", hash);
	MD_FORWARD(replace_link(target, place, err));
	int size = (int)(strrchr(place, '/') - place);
	if (snprintf(folder, sizeof(folder), "%.*s/../%s", size, place, hash) < (int)sizeof(folder))
		utimensat(AT_FDCWD, folder, NULL, 0); /* when it was used last */
	return MD_OK;
}

bool md_content_store_linked(const char *place, char hash[MD_CONTENT_HASH_TEXT])
{
	char target[MD_CONTENT_HASH_TEXT + 16];
	ssize_t size = readlink(place, target, sizeof(target) - 1);
	if (size != (ssize_t)(3 + MD_CONTENT_HASH_TEXT - 1 + 6) || strncmp(target, "../", 3) != 0)
		return false;
	snprintf(hash, MD_CONTENT_HASH_TEXT, "%.*s", (int)MD_CONTENT_HASH_TEXT - 1, target + 3);
	return md_content_is_hash(hash);
}

static enum md_status link_source(const char *folder, const char *source, struct md_error *err)
{
	char real[PATH_MAX], path[PATH_MAX];
	size_t end = strlen(source);
	while (end && source[end - 1] == '/')
		end--;
	size_t begin = end;
	while (begin && source[begin - 1] != '/')
		begin--;
	if (!realpath(source, real))
		return md_error_set(err, MD_ERR_NOT_FOUND, "%.300s: %s", source, strerror(errno));
	if (snprintf(path, sizeof(path), "%s/%.*s", folder, (int)(end - begin), source + begin) >= (int)sizeof(path))
		return md_error_set(err, MD_ERR_INVALID, "medusa.cluster.store: %.100s...: the path is too long",
				    folder);
	return replace_link(real, path, err);
}

/* The folder's name is made of what its links lead to, so that the links in it never change. */
enum md_status md_content_store_link_local(const char *store, const char *place, char *const *sources, uint32_t count,
					   struct md_error *err)
{
	char folder[PATH_MAX], target[MD_CONTENT_HASH_TEXT + 16], mark[MD_CONTENT_HASH_TEXT];
	struct md_buf text = {0};
	for (uint32_t i = 0; i < count; i++) {
		char real[PATH_MAX];
		if (!realpath(sources[i], real)) {
			md_buf_finish(&text);
			return md_error_set(err, MD_ERR_NOT_FOUND, "%.300s: %s", sources[i], strerror(errno));
		}
		md_buf_put(&text, sources[i], strlen(sources[i]) + 1);
		md_buf_put(&text, real, strlen(real) + 1);
	}
	if (text.failed) {
		md_buf_finish(&text);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for links to a model's files");
	}
	struct md_digest digest = md_digest_bytes(text.data, text.size);
	md_buf_finish(&text);
	md_content_hash_print(&digest, mark);
	mark[32] = '\0';
	MD_FORWARD(name_path(folder, store, "local-", mark, err));
	MD_FORWARD(make_folder(folder, FOLDER_MODE, err));
	for (uint32_t i = 0; i < count; i++)
		MD_FORWARD(link_source(folder, sources[i], err));
	snprintf(target, sizeof(target), "../local-%s", mark);
	return replace_link(target, place, err);
}
