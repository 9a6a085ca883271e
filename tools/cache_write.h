/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the files of one folder of caches: all of them, or none; never over a file that is there. */
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
 * Fills the open folder `root`. Files are written into a folder of their own inside, compared with their hashes, and
 * moved when all of them are whole; a start that is killed leaves that folder, which the next one removes. Starts at
 * the same time wait for each other, and then find the files there. An error names the file, and then no file
 * was moved, unless moving it was what failed; MD_ERR_OUTPUT: there is no room, say.
 */
enum md_status md_cache_write(const struct md_cache_source *source, const struct md_caches *caches, uint32_t folder,
			      int root, struct md_cache_written *out, struct md_error *err);

#endif
