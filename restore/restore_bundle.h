/* SPDX-License-Identifier: Apache-2.0 */
/* Which artifact of a bundle is this process's, and whether it is the one that the bundle was made with. */
#ifndef MD_RESTORE_RESTORE_BUNDLE_H
#define MD_RESTORE_RESTORE_BUNDLE_H

#include <limits.h>

#include "base/hash.h"
#include "restore/restore.h"

struct md_own_artifact {
	char path[PATH_MAX];
	bool bundled;            /* of a bundle; the rest is set if so */
	uint32_t rank;           /* this process */
	struct md_hash identity; /* what the manifest says of the artifact */
	uint64_t bundle;         /* of all that the manifest says; not 0 */
};

/*
 * path: of an artifact, or of a bundle's folder. apart: nothing is handed out, so the ranks need not agree. Errors say what
 * does not fit the bundle.
 */
enum md_status md_own_artifact_find(const char *path, bool apart, struct md_own_artifact *out, struct md_error *err);
/* Damage, and an artifact that is another rank's, are MD_ERR_MISMATCH. */
enum md_status md_own_artifact_check(const struct md_own_artifact *own, const struct md_artifact_file *file,
				     struct md_error *err);
/* Adds ".rank-N" to the path of a report if the artifact is a bundle; false: this process is none of its ranks. */
bool md_own_report(const char *artifact, char *path, size_t room);

#endif
