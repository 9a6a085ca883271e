/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the files of one folder of caches: all of them, or none; never over an existing file. */
#ifndef MD_TOOLS_CACHE_WRITE_H
#define MD_TOOLS_CACHE_WRITE_H

#include "format/artifact/caches.h"

#define MD_CACHE_OTHERS_MAX 3 /* files with other bytes, by name */

struct md_cache_written {
	uint64_t bytes;                /* of the files that were written */
	uint32_t files, there, others; /* written; there with the same bytes; there with other bytes, and left alone */
	uint32_t named[MD_CACHE_OTHERS_MAX]; /* the first of the others */
	bool unlocked; /* another start was still at work on the folder when there was no more waiting for it */
};

/*
 * Fills the open folder `root`. Files are written into a separate folder inside of it, compared with their hashes, and
 * moved when all of them are whole. A start that is killed leaves the separate folder behind, and the next start removes
 * it. Starts at the same time wait for each other, and then find the files. An error names the file; no file has been
 * moved then, unless the move itself failed. MD_ERR_OUTPUT: a file could not be written (no room, for example).
 */
enum md_status md_cache_write(const struct md_cache_source *source, const struct md_caches *caches, uint32_t folder,
			      int root, struct md_cache_written *out, struct md_error *err);

#endif
