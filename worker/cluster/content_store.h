/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of contents that were fetched (medusa.cluster.store). Everything here may wait for a disk, so it is called on threads.
 *
 *   STORE/HASH/manifest, STORE/HASH/files/...           a content that is whole
 *   STORE/partial-HASH/manifest, bits, files/...        one that is being fetched: bits has a byte for each block, 1: it is there
 *   STORE/models/MODEL -> ../HASH/files                 where an engine finds its model's files (${content})
 *   STORE/models/MODEL -> ../local-MARK                 the same of a model whose files this node has elsewhere: a folder of links
 */
#ifndef MD_WORKER_CLUSTER_CONTENT_STORE_H
#define MD_WORKER_CLUSTER_CONTENT_STORE_H

#include "worker/cluster/content_tree.h"

/* Makes the folder if it is not there, and locks it: *lock is a descriptor, which the caller closes. MD_ERR_BUSY, MD_ERR_OUTPUT. */
enum md_status md_content_store_begin(const char *store, int *lock, struct md_error *err);

/* The content that is there, whole; files are looked at, but not read. MD_ERR_NOT_FOUND; MD_ERR_CORRUPT: something in it is missing. */
enum md_status md_content_store_find(const char *store, const char *hash, struct md_buf *manifest,
				     struct md_content_tree *tree, struct md_error *err);

/* ---- where engines find files ---- */

/* place: STORE/models/MODEL. */
enum md_status md_content_store_link(const char *place, const char *hash, struct md_error *err);
enum md_status md_content_store_link_local(const char *store, const char *place, char *const *sources, uint32_t count,
					   struct md_error *err);
/* The hash of the content that it leads to; false: to none. */
bool md_content_store_linked(const char *place, char hash[MD_CONTENT_HASH_TEXT]);

/* ---- a content that comes ---- */

struct md_content_part {
	const char *store, *hash;
	const struct md_content_manifest *manifest;
};

struct md_content_room {
	uint64_t limit;      /* bytes of the whole store; 0: none */
	char *const *needed; /* hashes of contents that models of this node need; NULL at the end */
};

/*
 * Makes room and the files, or finds those of an earlier time: there[i] is set where block i is there, which is verified.
 * MD_ERR_OUTPUT: there is no room, or a file could not be written. *ends: as of md_content_tree_hash.
 */
enum md_status md_content_part_open(const struct md_content_part *part, const struct md_content_room *room,
				    const char *text, size_t size, const atomic_bool *ends, bool *there,
				    struct md_error *err);
/* MD_ERR_CORRUPT: the bytes are not those of the block, and nothing was written; MD_ERR_OUTPUT. */
enum md_status md_content_part_write(const struct md_content_part *part, uint32_t block, const void *bytes,
				     struct md_error *err);
/*
 * Which blocks come before all others, so that artifacts are judged before anything else is asked for: by name (*.medusa) at first, then
 * the blocks that have the first bytes of the other files, then those of artifacts among these.
 */
struct md_content_first {
	bool *blocks; /* by blocks; the caller's */
	bool *judged; /* by files; the caller's, false at the beginning: it is no artifact, or its signature is right */
	bool any;     /* one of the blocks is; false: all artifacts were judged */
};
/*
 * Checks the signatures of artifacts that are whole, each once, and says which blocks are wanted next. Needs the blocks of the last time
 * to be there. MD_ERR_MISMATCH: an artifact is not signed by one of the keys (signed_by: as of md_content_part_end, and not ""), and
 * nothing is left; MD_ERR_OUTPUT, MD_ERR_IO, MD_ERR_NO_MEMORY: nothing is known, and all stays.
 */
enum md_status md_content_part_judge(const struct md_content_part *part, const char *signed_by, const bool *there,
				     struct md_content_first *first, struct md_error *err);
/*
 * All blocks are there: they are written to the disk, and the content gets its name. signed_by: a list of keys, one of which must
 * have signed each artifact in it; "": any. MD_ERR_MISMATCH: it is not, and nothing is left; MD_ERR_OUTPUT;
 * MD_ERR_IO, MD_ERR_NO_MEMORY: an artifact could not be read now, and all stays.
 */
enum md_status md_content_part_end(const struct md_content_part *part, const char *signed_by, struct md_error *err);

#endif
