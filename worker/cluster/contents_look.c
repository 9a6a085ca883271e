/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for the files of models, and reads those whose hash is not known, on a thread, one model after the other. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "worker/cluster/contents_parts.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define LOOK_AGAIN_NS UINT64_C(10000000000)
#define KEPT_S (30 * 24 * 3600) /* a manifest that nobody has used for so long is forgotten */

struct md_contents_look {
	struct md_contents *contents;
	struct md_loop_thread *thread;
	/* copies, so that the entry may go meanwhile */
	uint64_t number;
	char *id, *place, *demanded, *store, *state, **sources;
	uint32_t source_count;
	char hint[MD_CONTENT_HASH_TEXT];
	bool reads; /* the files, to hash them */
	bool fresh; /* what is in the store was verified when it came, a moment ago */
	/* what was found: */
	enum md_entry_state found;
	bool ready, foreign;
	struct md_content *content;
	struct md_error err;
};

static void free_look(struct md_contents_look *look)
{
	for (uint32_t i = 0; look->sources && i < look->source_count; i++)
		free(look->sources[i]);
	free(look->sources);
	free(look->id);
	free(look->place);
	free(look->demanded);
	free(look->store);
	free(look->state);
	md_content_let_go(look->content);
	free(look);
}

/* ---- manifests that are known from an earlier time: STATE/contents/MARK ---- */

static bool name_cache(const struct md_contents_look *look, const struct md_content_tree *tree, char path[PATH_MAX])
{
	struct md_digest mark;
	char text[MD_CONTENT_HASH_TEXT];
	if (!md_content_tree_mark(tree, &mark))
		return false;
	md_content_hash_print(&mark, text);
	return snprintf(path, PATH_MAX, "%s/contents/%s", look->state, text) < PATH_MAX;
}

static bool read_cache(const struct md_contents_look *look, const struct md_content_tree *tree, struct md_buf *text)
{
	char path[PATH_MAX];
	struct md_file_bytes file;
	struct md_content_manifest manifest;
	if (!name_cache(look, tree, path) || md_file_read(path, MD_CONTENT_TEXT_MAX, &file, NULL) != MD_OK)
		return false;
	bool fits = md_content_manifest_read((const char *)file.data, file.size, &manifest, NULL) == MD_OK;
	if (fits) {
		fits = manifest.bytes == tree->bytes && manifest.file_count == tree->count;
		md_content_manifest_finish(&manifest);
	}
	if (fits)
		md_buf_put(text, file.data, file.size);
	md_file_release(&file);
	if (fits)
		utimensat(AT_FDCWD, path, NULL, 0);
	return fits && !text->failed;
}

/* Without it the files are read again at the next start, and nothing else. */
static void write_cache(const struct md_contents_look *look, const struct md_content_tree *tree,
			const struct md_buf *text)
{
	char path[PATH_MAX], *temporary;
	struct md_error err = {0};
	int fd;
	if (!name_cache(look, tree, path))
		return;
	enum md_status status = md_file_create_beside(path, &temporary, &fd, &err);
	if (status == MD_OK) {
		status = md_file_write(fd, text->data, text->size, path, &err);
		if (status == MD_OK)
			status = md_file_publish(fd, temporary, path, &err);
		if (status != MD_OK)
			unlink(temporary);
		close(fd);
		free(temporary);
	}
	if (status != MD_OK)
		md_warn("model %s: its files are read again at the next start: %s", look->id, err.message);
}

static void forget_old(const char *state)
{
	char folder_path[PATH_MAX], path[PATH_MAX];
	snprintf(folder_path, sizeof(folder_path), "%s/contents", state);
	DIR *folder = opendir(folder_path);
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		struct stat status;
		bool fits = snprintf(path, sizeof(path), "%s/%s", folder_path, entry->d_name) < (int)sizeof(path);
		if (*entry->d_name != '.' && fits && !stat(path, &status) && S_ISREG(status.st_mode) &&
		    status.st_mtim.tv_sec + KEPT_S < time(NULL))
			unlink(path);
	}
	if (folder)
		closedir(folder);
}

/* ---- on the thread ---- */

/* The tree and the text are taken over. */
static void take_content(struct md_contents_look *look, struct md_content_tree *tree, struct md_buf *text)
{
	struct md_content *made = calloc(1, sizeof(*made));
	struct md_digest digest = md_digest_bytes(text->data, text->size);
	if (!made) {
		md_error_set(&look->err, MD_ERR_NO_MEMORY, "out of memory for the content of a model");
		md_content_tree_finish(tree);
		md_buf_finish(text);
		return;
	}
	*made = (struct md_content){.holders = 1, .manifest = *text, .tree = *tree};
	md_content_hash_print(&digest, made->hash);
	md_content_let_go(look->content);
	look->content = made;
	*tree = (struct md_content_tree){0};
	*text = (struct md_buf){0};
}

static bool link_own(struct md_contents_look *look)
{
	if (md_content_store_link_local(look->store, look->place, look->sources, look->source_count, &look->err) ==
	    MD_OK)
		return look->ready = true;
	look->found = MD_ENTRY_BROKEN;
	return false;
}

/* What the node has of its own is known: it counts, unless something else is demanded. */
static void judge_own(struct md_contents_look *look, struct md_content_tree *tree, struct md_buf *text)
{
	take_content(look, tree, text);
	if (!look->content) {
		look->found = MD_ENTRY_BROKEN;
		return;
	}
	look->foreign = *look->demanded && strcmp(look->content->hash, look->demanded) != 0;
	if (look->foreign) {
		md_content_let_go(look->content);
		look->content = NULL;
		look->found = MD_ENTRY_MISSING;
	} else if (look->ready || link_own(look)) {
		look->found = MD_ENTRY_HERE;
	}
}

static bool same_text(const struct md_buf *a, const struct md_buf *b)
{
	return a->size == b->size && !memcmp(a->data, b->data, a->size);
}

/* An engine may have written into its files, or somebody else: those that nobody has verified as they are now are read. */
static enum md_status verify_stored(struct md_contents_look *look, const char *hash, const struct md_content_tree *tree,
				    const struct md_buf *manifest, struct md_error *err)
{
	struct md_contents *contents = look->contents;
	struct md_buf known = {0}, found = {0};
	enum md_status status = MD_OK;
	bool same = !look->fresh && read_cache(look, tree, &known) && same_text(&known, manifest);
	if (!same && !look->fresh && !look->reads) {
		status = MD_ERR_BUSY;
	} else if (!same && !look->fresh) {
		status = md_content_tree_hash(tree, &contents->read, &contents->ends, &found, err);
		if (status == MD_OK && !same_text(&found, manifest))
			status =
			    md_error_set(err, MD_ERR_CORRUPT, "%.200s/%s: its files were changed", look->store, hash);
	}
	if (status == MD_OK && !same)
		write_cache(look, tree, manifest);
	md_buf_finish(&known);
	md_buf_finish(&found);
	return status;
}

/* In the store, where an earlier fetch has put it. */
static void look_into_store(struct md_contents_look *look)
{
	char hash[MD_CONTENT_HASH_TEXT];
	struct md_buf text = {0};
	struct md_content_tree tree;
	struct md_error err = {0};
	snprintf(hash, sizeof(hash), "%s", *look->demanded ? look->demanded : look->hint);
	if (!*hash && !md_content_store_linked(look->place, hash))
		return;
	enum md_status status = md_content_store_find(look->store, hash, &text, &tree, &err);
	if (status == MD_OK) {
		status = verify_stored(look, hash, &tree, &text, &err);
		if (status != MD_OK)
			md_content_tree_finish(&tree);
	}
	if (status == MD_ERR_BUSY) {
		look->found = MD_ENTRY_UNREAD;
		md_buf_finish(&text);
		return;
	}
	if (status != MD_OK) {
		if (status != MD_ERR_NOT_FOUND && !atomic_load(&look->contents->ends))
			md_warn("model %s: content %s is fetched again: %s", look->id, hash, err.message);
		md_buf_finish(&text);
		return;
	}
	take_content(look, &tree, &text);
	if (look->content && md_content_store_link(look->place, hash, &look->err) == MD_OK) {
		look->ready = true;
		look->found = MD_ENTRY_HERE;
	} else {
		look->found = MD_ENTRY_BROKEN;
	}
}

static void find_own(struct md_contents_look *look, struct md_content_tree *tree)
{
	struct md_buf text = {0};
	look->found = MD_ENTRY_UNREAD;
	if (!*look->demanded && !link_own(look))
		return;
	if (read_cache(look, tree, &text))
		judge_own(look, tree, &text);
	md_buf_finish(&text);
}

static void read_own(struct md_contents_look *look, struct md_content_tree *tree)
{
	struct md_contents *contents = look->contents;
	struct md_buf text = {0};
	look->found = MD_ENTRY_UNREAD;
	if (!*look->demanded && !link_own(look))
		return;
	enum md_status status = md_content_tree_hash(tree, &contents->read, &contents->ends, &text, &look->err);
	if (status == MD_OK) {
		if (!md_content_tree_is_young(tree))
			write_cache(look, tree, &text);
		judge_own(look, tree, &text);
	} else if (status != MD_ERR_BUSY) { /* else it is read once more */
		look->found = MD_ENTRY_BROKEN;
	}
	md_buf_finish(&text);
}

static void work(void *context)
{
	struct md_contents_look *look = context;
	struct md_content_tree tree;
	look->found = MD_ENTRY_MISSING;
	enum md_status status = look->source_count
				    ? md_content_tree_find(look->sources, look->source_count, &tree, &look->err)
				    : MD_ERR_NOT_FOUND;
	if (status == MD_OK) {
		find_own(look, &tree);
		if (look->found == MD_ENTRY_UNREAD && look->reads)
			read_own(look, &tree);
		md_content_tree_finish(&tree);
	} else if (status != MD_ERR_NOT_FOUND) {
		look->found = MD_ENTRY_BROKEN;
	}
	if (look->found == MD_ENTRY_MISSING || (look->found == MD_ENTRY_BROKEN && *look->demanded && !look->ready))
		look_into_store(look);
}

/* ---- in the loop ---- */

static void take_found(struct md_contents *contents, struct md_contents_entry *entry, struct md_contents_look *look)
{
	struct md_content *old = entry->content;
	entry->state = look->found;
	entry->fresh = false;
	entry->ready = look->ready || (look->found == MD_ENTRY_UNREAD && entry->ready && !*entry->demanded);
	entry->foreign = look->foreign;
	snprintf(entry->missing, sizeof(entry->missing), "%.190s",
		 look->found == MD_ENTRY_MISSING ? look->err.message : "");
	if (look->found == MD_ENTRY_BROKEN || entry->ready) /* else why a fetch has failed stays */
		snprintf(entry->why, sizeof(entry->why), "%.390s",
			 look->found == MD_ENTRY_HERE ? "" : look->err.message);
	if (look->foreign)
		snprintf(entry->missing, sizeof(entry->missing),
			 "the files that medusa.files names are another content than medusa.content");
	if (look->found != MD_ENTRY_UNREAD || !old) {
		entry->content = md_steal_ptr(&look->content);
		md_content_let_go(old);
	}
	if (look->found == MD_ENTRY_HERE && entry->content)
		md_info("model %s: content %s, %llu bytes in %u files", entry->id, entry->content->hash,
			(unsigned long long)entry->content->tree.bytes, entry->content->tree.count);
	else if (look->found == MD_ENTRY_BROKEN || look->foreign)
		md_warn("model %s: %s", entry->id, look->foreign ? entry->missing : entry->why);
	contents->changed = true;
	entry->look_rests = md_clock_ns() + LOOK_AGAIN_NS;
	md_contents_changed(contents, entry);
}

static void done(void *context)
{
	struct md_contents_look *look = context;
	struct md_contents *contents = look->contents;
	struct md_contents_entry *entry = md_contents_find(contents, look->id);
	contents->look = NULL;
	if (entry && entry->number == look->number)
		take_found(contents, entry, look);
	free_look(look);
	md_contents_look_next(contents);
}

static char **copy_texts(char *const *texts, uint32_t count)
{
	char **copy = calloc((size_t)count + 1, sizeof(*copy));
	for (uint32_t i = 0; copy && i < count; i++)
		copy[i] = strdup(texts[i]);
	return copy;
}

static void begin(struct md_contents *contents, const struct md_contents_entry *entry, bool reads)
{
	struct md_contents_look *look = calloc(1, sizeof(*look));
	struct md_error err = {0};
	if (!look)
		return; /* the next tick tries again */
	*look = (struct md_contents_look){.contents = contents,
					  .number = entry->number,
					  .id = strdup(entry->id),
					  .place = strdup(entry->place),
					  .demanded = strdup(entry->demanded),
					  .store = strdup(contents->settings->store),
					  .state = strdup(contents->state),
					  .sources = copy_texts(entry->sources, entry->source_count),
					  .source_count = entry->source_count,
					  .reads = reads,
					  .fresh = entry->fresh};
	snprintf(look->hint, sizeof(look->hint), "%s", entry->hint);
	bool whole = look->id && look->place && look->demanded && look->store && look->state && look->sources;
	for (uint32_t i = 0; whole && i < look->source_count; i++)
		whole = look->sources[i];
	atomic_store(&contents->read, 0);
	if (whole && md_loop_thread_start(contents->worker->base, work, done, look, &look->thread, &err) == MD_OK)
		contents->look = look;
	else
		free_look(look);
}

static struct md_contents_entry *entry_in(const struct md_contents *contents, enum md_entry_state state)
{
	for (uint32_t i = 0; i < contents->count; i++)
		if (contents->entries[i].state == state)
			return &contents->entries[i];
	return NULL;
}

void md_contents_look_next(struct md_contents *contents)
{
	if (contents->look || atomic_load(&contents->ends))
		return;
	const struct md_contents_entry *fresh = entry_in(contents, MD_ENTRY_NEW);
	const struct md_contents_entry *unread = fresh ? NULL : entry_in(contents, MD_ENTRY_UNREAD);
	if (fresh)
		begin(contents, fresh, false);
	else if (unread)
		begin(contents, unread, true);
}

void md_contents_look_begin(const char *state)
{
	char path[PATH_MAX];
	if (snprintf(path, sizeof(path), "%s/contents", state) < (int)sizeof(path) && mkdir(path, 0700) &&
	    errno != EEXIST)
		md_warn("--state: making the folder %s: %s: files of models are read again at each start", path,
			strerror(errno));
	forget_old(state);
}

void md_contents_look_end(struct md_contents *contents)
{
	struct md_contents_look *look = contents->look;
	contents->look = NULL;
	if (!look)
		return;
	md_loop_thread_destroy(look->thread);
	free_look(look);
}
