/* SPDX-License-Identifier: Apache-2.0 */
/* A bundle: a folder with the artifact of each rank of a job, and a manifest that says which artifact is whose. */
#ifndef MD_RANKS_RANK_BUNDLE_H
#define MD_RANKS_RANK_BUNDLE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"
#include "ranks/rank.h"

#define MD_BUNDLE_MANIFEST "manifest"
#define MD_BUNDLE_VERSION 1u

/*
 * The manifest is text: "medusa-bundle 1", "ranks 2", then a line for each rank, in order: "rank 0 HASH". HASH is the identity
 * of rank-0.medusa (md_artifact_identity), 32 hex digits.
 */
struct md_bundle {
	uint32_t ranks;                          /* at least 2 */
	struct md_hash artifacts[MD_RANKS_MOST]; /* identities, by rank */
};

/* A folder with a manifest, whatever the manifest says. */
bool md_bundle_is(const char *path);
/* Errors name the manifest, the line and what to do. */
enum md_status md_bundle_read(const char *folder, struct md_bundle *out, struct md_error *err);
/* The manifest, which is on the disk afterwards. There must be none. */
enum md_status md_bundle_write(const struct md_bundle *bundle, const char *folder, struct md_error *err);
/*
 * A command that a launcher starts once for each rank is too late to care for all of them: MD_ERR_INVALID says what to do
 * instead.
 */
enum md_status md_bundle_check_launched(const char *folder, struct md_error *err);
/* FOLDER/rank-N.medusa; false: longer than a path may be. */
bool md_bundle_artifact(const char *folder, uint32_t rank, char path[PATH_MAX]);

#endif
