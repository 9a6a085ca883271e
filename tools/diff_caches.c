/* SPDX-License-Identifier: Apache-2.0 */
/* Differences between the caches of two artifacts: folders, and how many of their files are others. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "tools/diff.h"

static char *name_folder(const void *owner, uint32_t index)
{
	const struct md_cache_folder *folder = &((const struct md_artifact *)owner)->caches.folders[index];
	return md_diff_name("%s%s%s", folder->name, *folder->inside ? "/" : "", folder->inside);
}

static void file_text(const struct md_cache_file *file, char *out, size_t room)
{
	char hash[MD_HASH_TEXT_BYTES];
	md_hash_format(&file->hash, hash);
	snprintf(out, room, "%" PRIu64 " bytes, %s%s", file->size, hash, file->executable ? ", executable" : "");
}

static void count(struct md_diff_tally *tally, const struct md_cache_file *a, const struct md_cache_file *b)
{
	if (tally->count++)
		return;
	snprintf(tally->first, sizeof(tally->first), "%s", a ? a->path : b->path);
	if (a)
		file_text(a, tally->a, sizeof(tally->a));
	if (b)
		file_text(b, tally->b, sizeof(tally->b));
}

/* Both lists are in the order of paths. Compilers write times and addresses: other bytes may be due to chance. */
static void compare_files(struct md_diff *diff, const char *name, const struct md_cache_folder *a,
			  const struct md_cache_folder *b)
{
	struct md_diff_tally changed = {0}, missing = {0};
	size_t before = diff->count;
	for (uint32_t i = 0, k = 0; i < a->file_count || k < b->file_count;) {
		const struct md_cache_file *x = i < a->file_count ? &a->files[i] : NULL;
		const struct md_cache_file *y = k < b->file_count ? &b->files[k] : NULL;
		int order = !x ? 1 : !y ? -1 : md_cache_path_compare(x->path, y->path);
		i += order <= 0, k += order >= 0;
		if (order)
			count(&missing, order < 0 ? x : NULL, order < 0 ? NULL : y);
		else if (x->size != y->size || x->executable != y->executable || !md_hash_equal(&x->hash, &y->hash))
			count(&changed, x, y);
	}
	md_diff_tally(diff, "caches", name, "files on one side", &missing);
	md_diff_tally(diff, "caches", name, "files differ", &changed);
	md_diff_text(diff, "caches", name, "captured in", a->path, b->path);
	md_diff_chance(diff, before);
}

static void compare_folder(struct md_diff *diff, const char *name, uint32_t a, uint32_t b)
{
	const struct md_cache_folder *x = a == MD_NONE ? NULL : &diff->a->caches.folders[a];
	const struct md_cache_folder *y = b == MD_NONE ? NULL : &diff->b->caches.folders[b];
	char text[32];
	if (x && y) {
		compare_files(diff, name, x, y);
		return;
	}
	snprintf(text, sizeof(text), "%" PRIu32 " files", x ? x->file_count : y->file_count);
	md_diff_text(diff, "caches", name, NULL, x ? text : NULL, y ? text : NULL);
}

void md_diff_caches(struct md_diff *diff)
{
	md_diff_tables(diff, &(struct md_diff_table){diff->a->caches.folder_count, diff->a, name_folder},
		       &(struct md_diff_table){diff->b->caches.folder_count, diff->b, name_folder}, compare_folder);
}
