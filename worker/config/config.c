/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a configuration from its files, and frees it. */
#include "worker/config/config.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "worker/config/parts.h"
#include "worker/config/patterns.h"

#define FILES_MAX 1000

/* ---- building and freeing ---- */

static void free_config(struct md_worker_config *config)
{
	struct md_config_inner *inner = config->inner;
	if (inner) {
		md_config_free_patterns(inner);
		json_decref(inner->kept);
		md_arena_finish(&inner->forest.arena);
		free(inner);
	}
	free(config);
}

void md_worker_config_destroy(const struct md_worker_config *config)
{
	if (config)
		free_config((struct md_worker_config *)config);
}

static struct md_worker_config *make(struct md_error *err)
{
	struct md_worker_config *config = calloc(1, sizeof(*config));
	struct md_config_inner *inner = calloc(1, sizeof(*inner));
	json_t *kept = json_array();
	if (config && inner && kept) {
		inner->kept = kept;
		config->inner = inner;
		return config;
	}
	json_decref(kept);
	free(inner);
	free(config);
	md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the configuration");
	return NULL;
}

/* Each part needs those before it. */
static enum md_status read_parts(struct md_config_build *build, struct md_tree *root)
{
	struct md_config_sections sections;
	MD_FORWARD(md_config_read_globals(build, root, &sections));
	MD_FORWARD(md_config_read_node(build, &sections));
	MD_FORWARD(md_config_keep_store(build));
	MD_FORWARD(md_config_read_models(build, &sections));
	MD_FORWARD(md_config_note_shared(build, &sections));
	MD_FORWARD(md_config_check_memory(build, &sections));
	MD_FORWARD(md_config_name_models(build, &sections));
	MD_FORWARD(md_config_read_routing(build, &sections));
	MD_FORWARD(md_config_note_kept(build, &sections));
	MD_FORWARD(md_config_read_peers(build, &sections));
	MD_FORWARD(md_config_name_peers(build));
	MD_FORWARD(md_config_read_selectors(build, &sections));
	MD_FORWARD(md_config_name_selectors(build));
	MD_FORWARD(md_config_read_profiles(build, &sections));
	return md_config_read_hooks(build, &sections);
}

/* In the order of the files, whichever part found them. */
static int compare_notes(const void *a, const void *b)
{
	const struct md_config_note *left = a, *right = b;
	int order = strcmp(left->file, right->file);
	if (order)
		return order;
	if (left->line != right->line)
		return left->line < right->line ? -1 : 1;
	return strcmp(left->path, right->path);
}

static enum md_status keep_notes(struct md_config_build *build)
{
	struct md_config_note *notes = md_config_take(build, build->note_count, sizeof(*notes));
	if (!notes)
		return MD_ERR_NO_MEMORY;
	if (build->note_count) {
		memcpy(notes, build->notes, build->note_count * sizeof(*notes));
		qsort(notes, build->note_count, sizeof(*notes), compare_notes);
	}
	build->config->notes = notes;
	build->config->note_count = build->note_count;
	return MD_OK;
}

/* err of the caller may be NULL; inside there is always one. */
static const struct md_worker_config *finish(struct md_worker_config *config, struct md_tree *root,
					     const struct md_worker_config *previous, struct md_error *err)
{
	struct md_config_build build = {.config = config,
					.previous = previous,
					.inner = config->inner,
					.forest = &config->inner->forest,
					.err = err};
	enum md_status status = read_parts(&build, root);
	if (status == MD_OK)
		status = keep_notes(&build);
	free(build.notes);
	if (status == MD_OK)
		return config;
	free_config(config);
	return NULL;
}

static void hand_on(const struct md_error *inner, struct md_error *err)
{
	if (inner->status != MD_OK)
		md_error_set(err, inner->status, "%s", inner->message);
}

/* ---- one text ---- */

static enum md_status parse_text(struct md_worker_config *config, const char *name, const char *text, size_t bytes,
				 struct md_tree **root, struct md_error *err)
{
	const char *kept = md_arena_copy(&config->inner->forest.arena, name, strlen(name));
	return kept ? md_tree_parse(&config->inner->forest, kept, text, bytes, root, err) : md_tree_memory(name, err);
}

const struct md_worker_config *md_worker_config_parse(const char *name, const char *text, size_t bytes,
						      struct md_error *err)
{
	struct md_error inner = {0};
	struct md_worker_config *config = make(&inner);
	const struct md_worker_config *read = NULL;
	struct md_tree *root;
	if (config && parse_text(config, name, text, bytes, &root, &inner) == MD_OK)
		read = finish(config, root, NULL, &inner);
	else if (config)
		free_config(config);
	hand_on(&inner, err);
	return read;
}

/* ---- files ---- */

/* Adds a file to what is there; *root is NULL before the first one. */
static enum md_status add_file(struct md_worker_config *config, const char *path, struct md_tree **root,
			       struct md_error *err)
{
	struct md_file_bytes file;
	struct md_tree *read;
	enum md_status status;
	MD_FORWARD(md_file_read(path, MD_TREE_FILE_MAX, &file, err));
	status = parse_text(config, path, (const char *)file.data, file.size, &read, err);
	md_file_release(&file);
	if (status != MD_OK)
		return status;
	if (*root)
		return md_tree_merge(&config->inner->forest, *root, read, err);
	*root = read;
	return MD_OK;
}

static int is_yaml(const struct dirent *entry)
{
	const char *end = strrchr(entry->d_name, '.');
	return end && end != entry->d_name && (!strcmp(end, ".yml") || !strcmp(end, ".yaml"));
}

/* By bytes, whatever the locale is. */
static int compare_entries(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static enum md_status add_entry(struct md_worker_config *config, const char *folder, const char *name,
				struct md_tree **root, struct md_error *err)
{
	MD_AUTO_FREE char *path = NULL;
	if (asprintf(&path, "%s/%s", folder, name) < 0) {
		path = NULL;
		return md_tree_memory(folder, err);
	}
	return add_file(config, path, root, err);
}

static enum md_status add_folder(struct md_worker_config *config, const char *folder, struct md_tree **root,
				 struct md_error *err)
{
	struct dirent **entries;
	enum md_status status = MD_OK;
	int count = scandir(folder, &entries, is_yaml, compare_entries);
	if (count < 0)
		return md_error_set(err, errno == ENOENT ? MD_ERR_NOT_FOUND : MD_ERR_IO, "%s: %s", folder,
				    strerror(errno));
	if (count == 0 && !*root)
		status = md_error_set(err, MD_ERR_NOT_FOUND, "%s: there is no *.yaml or *.yml in it", folder);
	if (count > FILES_MAX)
		status = md_error_set(err, MD_ERR_TOO_LARGE, "%s: there are more than %d files", folder, FILES_MAX);
	for (int i = 0; i < count; i++) {
		if (status == MD_OK)
			status = add_entry(config, folder, entries[i]->d_name, root, err);
		free(entries[i]);
	}
	free(entries);
	return status;
}

static enum md_status read_files(struct md_worker_config *config, const char *file, const char *folder,
				 struct md_tree **root, struct md_error *err)
{
	if (!file && !folder)
		return md_error_set(err, MD_ERR_INVALID, "a file or a folder of the configuration is wanted");
	if (file)
		MD_FORWARD(add_file(config, file, root, err));
	return folder ? add_folder(config, folder, root, err) : MD_OK;
}

const struct md_worker_config *md_worker_config_renew(const char *file, const char *folder,
						      const struct md_worker_config *previous, struct md_error *err)
{
	struct md_error inner = {0};
	struct md_worker_config *config = make(&inner);
	const struct md_worker_config *read = NULL;
	struct md_tree *root = NULL;
	if (config && read_files(config, file, folder, &root, &inner) == MD_OK)
		read = finish(config, root, previous, &inner);
	else if (config)
		free_config(config);
	hand_on(&inner, err);
	return read;
}

const struct md_worker_config *md_worker_config_create(const char *file, const char *folder, struct md_error *err)
{
	return md_worker_config_renew(file, folder, NULL, err);
}
