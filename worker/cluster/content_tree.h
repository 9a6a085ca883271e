/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A content that lies in files of this node: which files these are, what their blocks hash to, and bytes of it. Everything here may
 * wait for a disk, so it is called on threads.
 */
#ifndef MD_WORKER_CLUSTER_CONTENT_TREE_H
#define MD_WORKER_CLUSTER_CONTENT_TREE_H

#include <stdatomic.h>
#include <sys/types.h>
#include <time.h>

#include "worker/cluster/content_manifest.h"

/* By these a file is known again, so that it need not be read anew. */
struct md_content_stamp {
	dev_t device;
	ino_t inode;
	uint64_t size;
	struct timespec modified, changed;
};

struct md_content_item {
	char *name; /* in the content */
	char *path; /* here, without links */
	uint64_t offset;
	struct md_content_stamp stamp;
};

struct md_content_tree {
	struct md_content_item *items; /* by their names */
	uint32_t count, room;
	uint64_t bytes;
};

/*
 * All files of the sources: a file by its last name, a folder with all that is in it. MD_ERR_NOT_FOUND: a source is not there;
 * MD_ERR_INVALID: something in a folder is no file, leads out of it, or has a name that a content can't have; MD_ERR_IO,
 * MD_ERR_NO_MEMORY.
 */
enum md_status md_content_tree_find(char *const *sources, uint32_t count, struct md_content_tree *tree,
				    struct md_error *err);
/* The files of a manifest, below this folder. MD_ERR_NOT_FOUND, MD_ERR_CORRUPT: one is missing, or has another size. */
enum md_status md_content_tree_of(const char *folder, const struct md_content_manifest *manifest,
				  struct md_content_tree *tree, struct md_error *err);
void md_content_tree_finish(struct md_content_tree *tree);

/* Names, places and stamps of all files in one hash: as long as it stays, nothing was changed. False: out of memory. */
bool md_content_tree_mark(const struct md_content_tree *tree, struct md_digest *mark);
/* Whether a file was changed less than two seconds ago: a second change might leave no trace in its stamp. */
bool md_content_tree_is_young(const struct md_content_tree *tree);

/*
 * Reads everything, and prints the manifest. *done: bytes that were read; *ends: set by somebody else: MD_ERR_TIMEOUT at once.
 * MD_ERR_BUSY: a file was changed meanwhile.
 */
enum md_status md_content_tree_hash(const struct md_content_tree *tree, atomic_uint_fast64_t *done,
				    const atomic_bool *ends, struct md_buf *manifest, struct md_error *err);
/* Bytes of the content. MD_ERR_BUSY: a file was changed since it was found. */
enum md_status md_content_tree_read(const struct md_content_tree *tree, uint64_t offset, void *bytes, size_t size,
				    struct md_error *err);

#endif
