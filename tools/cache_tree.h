/* SPDX-License-Identifier: Apache-2.0 */
/* Files below a folder, reached one component after the other, so that no link leads out of it. */
#ifndef MD_TOOLS_CACHE_TREE_H
#define MD_TOOLS_CACHE_TREE_H

#include <stdbool.h>

#include "base/status.h"
#include "format/artifact/caches.h"

/* Opens a folder for the files in it. Makes it, with its parents, if it is missing (for the user alone). */
enum md_status md_cache_tree_open(const char *path, int *fd, struct md_error *err);

/* The folder that was opened last: files come in the order of their folders. */
struct md_cache_walk {
	int root;                           /* borrowed */
	int fd;                             /* of `folder`; root for "" */
	char folder[MD_CACHE_PATH_MAX + 1]; /* below root */
};

void md_cache_walk_begin(struct md_cache_walk *walk, int root);
/*
 * Opens the folder that a file lies in: *fd belongs to the walk, and *name is the file's name in the folder. A missing
 * folder is made (make) or MD_ERR_NOT_FOUND. Links, and folders of users other than this one and root, are
 * MD_ERR_MISMATCH, because the owner of a folder decides what the engine finds there.
 */
enum md_status md_cache_walk_to(struct md_cache_walk *walk, const char *path, bool make, int *fd, const char **name,
				struct md_error *err);
void md_cache_walk_finish(struct md_cache_walk *walk);

#endif
