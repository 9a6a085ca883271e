/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of the caches in an artifact: names that stay in their folder, order, bounds, hashes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "format/artifact/bad.h"
#include "format/artifact/caches.h"

#define COMPONENT_MAX 255u
#define NAME_MAX_BYTES 255u
#define RATIO_MAX 1000u /* raw to stored bytes, beyond RATIO_FREE; see artifact.c */
#define RATIO_FREE (64u << 20)
#define RAW_FREE (256ull << 20) /* raw bytes that every reader has room for */
#define RAW_RATIO 8u            /* and so many more for each stored one */

/* ---- names ---- */

static bool is_component(const char *at, size_t size)
{
	if (!size || size > COMPONENT_MAX || (size == 1 && *at == '.') || (size == 2 && !memcmp(at, "..", 2)))
		return false;
	return strncmp(at, MD_CACHE_STAGING, strlen(MD_CACHE_STAGING)) != 0;
}

bool md_cache_path_valid(const char *path)
{
	if (!path || strlen(path) > MD_CACHE_PATH_MAX)
		return false;
	for (const char *at = path;; at++) {
		size_t size = strcspn(at, "/");
		if (!is_component(at, size))
			return false;
		at += size;
		if (!*at)
			return true;
	}
}

int md_cache_path_compare(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	if (*a == *b)
		return 0;
	/* the end comes first, then what is in a folder of that name, then all longer names */
	int x = !*a ? 0 : *a == '/' ? 1 : 2 + (unsigned char)*a, y = !*b ? 0 : *b == '/' ? 1 : 2 + (unsigned char)*b;
	return x - y;
}

bool md_cache_variable_valid(const char *name)
{
	size_t size = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");
	return size && size <= NAME_MAX_BYTES && !name[size] && (*name < '0' || *name > '9');
}

/* ---- folders and files ---- */

static bool is_inside(const char *path, const char *folder)
{
	size_t size = strlen(folder);
	return !strncmp(path, folder, size) && path[size] == '/';
}

static enum md_status check_file(const struct md_cache_folder *folder, uint32_t index, struct md_error *err)
{
	const struct md_cache_file *file = &folder->files[index], *before = index ? file - 1 : NULL;
	if (!md_cache_path_valid(file->path))
		return md_bad_section(err, "caches",
				      "folder %s: the path of file %u, \"%.300s\", does not name a file inside",
				      folder->name, index, file->path ? file->path : "");
	if (before && md_cache_path_compare(before->path, file->path) >= 0)
		return md_bad_section(err, "caches", "folder %s: file %.300s appears twice or out of order",
				      folder->name, file->path);
	if (before && is_inside(file->path, before->path))
		return md_bad_section(err, "caches", "folder %s: %.200s lies in %.200s, which is a file", folder->name,
				      file->path, before->path);
	if (!file->data && file->size)
		return MD_OK;
	struct md_hash hash = md_hash_bytes(file->data ? (const void *)file->data : "", file->size);
	if (!md_hash_equal(&hash, &file->hash))
		return md_bad_section(err, "caches", "folder %s: the hash of file %.300s differs", folder->name,
				      file->path);
	return MD_OK;
}

static bool has_good_name(const struct md_cache_folder *folder)
{
	if (!folder->name || !folder->inside || (*folder->inside && !md_cache_path_valid(folder->inside)))
		return false;
	if (folder->variable)
		return md_cache_variable_valid(folder->name);
	return !*folder->inside && is_component(folder->name, strlen(folder->name)) && !strpbrk(folder->name, "/=");
}

static enum md_status check_folder(const struct md_caches *caches, uint32_t index, uint64_t *files, uint64_t *bytes,
				   struct md_error *err)
{
	const struct md_cache_folder *folder = &caches->folders[index];
	if (!has_good_name(folder))
		return md_bad_section(err, "caches", "folder %u: the name \"%.100s\", or the place \"%.100s\", is none",
				      index, folder->name ? folder->name : "", folder->inside ? folder->inside : "");
	if (!folder->path || *folder->path != '/' || strlen(folder->path) > MD_CACHE_PATH_MAX)
		return md_bad_section(err, "caches", "folder %s: its path is not absolute, or too long", folder->name);
	for (uint32_t i = 0; i < index; i++)
		if (!strcmp(caches->folders[i].name, folder->name) &&
		    !strcmp(caches->folders[i].inside, folder->inside))
			return md_bad_section(err, "caches", "folder %s appears twice", folder->name);
	*files += folder->file_count;
	if (*files > MD_CACHE_FILES_MAX)
		return md_bad_section(err, "caches", "more than %u files", MD_CACHE_FILES_MAX);
	for (uint32_t i = 0; i < folder->file_count; i++) {
		if (folder->files[i].size > MD_CACHE_BYTES_MAX - *bytes)
			return md_bad_section(err, "caches", "more than %llu bytes", MD_CACHE_BYTES_MAX);
		*bytes += folder->files[i].size;
		MD_FORWARD(check_file(folder, i, err));
	}
	return MD_OK;
}

enum md_status md_caches_check(const struct md_caches *caches, struct md_error *err)
{
	uint64_t files = 0, bytes = 0;
	if (caches->folder_count > MD_CACHE_FOLDERS_MAX)
		return md_bad_section(err, "caches", "%u folders, at most %u", caches->folder_count,
				      MD_CACHE_FOLDERS_MAX);
	for (uint32_t i = 0; i < caches->folder_count; i++)
		MD_FORWARD(check_folder(caches, i, &files, &bytes, err));
	return MD_OK;
}

uint64_t md_cache_folder_bytes(const struct md_cache_folder *folder)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < folder->file_count; i++)
		bytes += folder->files[i].size;
	return bytes;
}

uint64_t md_caches_bytes(const struct md_caches *caches)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < caches->folder_count; i++)
		bytes += md_cache_folder_bytes(&caches->folders[i]);
	return bytes;
}

enum md_status md_caches_check_sizes(uint64_t raw, uint64_t stored, struct md_error *err)
{
	if (raw > MD_CACHE_BYTES_MAX || (raw > RATIO_FREE && raw / RATIO_MAX > stored) ||
	    raw > RAW_FREE + RAW_RATIO * stored)
		return md_error_set(err, MD_ERR_TOO_LARGE,
				    "section \"cache_data\": %" PRIu64 " bytes of files out of %" PRIu64
				    ", more than a reader has room for: leave out the files that hold nothing but "
				    "repetitions",
				    raw, stored);
	return MD_OK;
}

/* ---- blocks ---- */

struct cursor { /* the file whose turn it is */
	uint32_t folder, file;
};

/* Skips folders that have no more files. NULL behind the last file. */
static const struct md_cache_file *file_at(const struct md_caches *caches, struct cursor *at)
{
	while (at->folder < caches->folder_count && at->file == caches->folders[at->folder].file_count)
		*at = (struct cursor){at->folder + 1, 0};
	return at->folder < caches->folder_count ? &caches->folders[at->folder].files[at->file] : NULL;
}

static enum md_status misfit(uint32_t block, struct md_error *err)
{
	return md_error_set(err, MD_ERR_CORRUPT, "section \"caches\": block %u does not fit the files", block);
}

/* One file out of several blocks. */
static enum md_status take_parts(const struct md_caches *caches, struct cursor *at, struct md_cache_unit *unit,
				 struct md_error *err)
{
	uint64_t left = file_at(caches, at)->size;
	for (; left; unit->blocks++) {
		uint32_t block = unit->block + unit->blocks;
		if (block == caches->block_count || !caches->blocks[block].raw || caches->blocks[block].raw > left)
			return misfit(block, err);
		left -= caches->blocks[block].raw;
	}
	unit->files = 1;
	at->file++;
	return MD_OK;
}

/* Files out of one block, with those without bytes behind them; or only such, if the first one is. */
static enum md_status take_whole(const struct md_caches *caches, struct cursor *at, struct md_cache_unit *unit,
				 uint64_t raw, struct md_error *err)
{
	const struct md_cache_file *file;
	while ((file = file_at(caches, at)) && at->folder == unit->folder && file->size <= raw) {
		raw -= file->size;
		unit->files++;
		at->file++;
	}
	return raw ? misfit(unit->block, err) : MD_OK;
}

static enum md_status take_unit(const struct md_caches *caches, struct cursor *at, uint32_t block,
				struct md_cache_unit *unit, struct md_error *err)
{
	const struct md_cache_file *file = file_at(caches, at);
	*unit = (struct md_cache_unit){.folder = at->folder, .file = at->file, .block = block};
	if (!file->size)
		return take_whole(caches, at, unit, 0, err);
	if (block == caches->block_count)
		return misfit(block, err);
	if (caches->blocks[block].raw < file->size)
		return take_parts(caches, at, unit, err);
	unit->blocks = 1;
	return take_whole(caches, at, unit, caches->blocks[block].raw, err);
}

enum md_status md_cache_units_make(const struct md_caches *caches, struct md_cache_unit **units, uint32_t *count,
				   struct md_error *err)
{
	struct cursor at = {0};
	uint64_t most = (uint64_t)caches->block_count + 1, made = 0;
	uint32_t block = 0;
	for (uint32_t i = 0; i < caches->folder_count; i++)
		most += caches->folders[i].file_count;
	MD_AUTO_FREE struct md_cache_unit *list = calloc(most, sizeof(*list));
	if (!list)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the blocks of caches");
	while (file_at(caches, &at)) {
		MD_FORWARD(take_unit(caches, &at, block, &list[made], err));
		block += list[made++].blocks;
	}
	if (block != caches->block_count)
		return misfit(block, err);
	*units = md_steal_ptr(&list);
	*count = (uint32_t)made;
	return MD_OK;
}

/* ---- memory ---- */

void md_caches_finish(struct md_caches *caches)
{
	for (uint32_t i = 0; i < caches->folder_count; i++) {
		struct md_cache_folder *folder = &caches->folders[i];
		for (uint32_t k = 0; k < folder->file_count; k++) {
			free(folder->files[k].path);
			free(folder->files[k].data);
		}
		free(folder->files);
		free(folder->name);
		free(folder->inside);
		free(folder->path);
	}
	free(caches->folders);
	free(caches->blocks);
	*caches = (struct md_caches){0};
}
