/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the artifact of this rank in a bundle, and checks it against the manifest. */
#include "restore/restore_bundle.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ranks/rank_bundle.h"

static bool is_folder(const char *path)
{
	struct stat info;
	return !stat(path, &info) && S_ISDIR(info.st_mode);
}

/*
 * A rank that restores a graph which another one captures live would not take part in the other one's warm-up. Without
 * bundles, the ranks may have been started by somebody who knows that they do not communicate.
 */
static enum md_status check_meeting(const char *folder, struct md_error *err)
{
	struct md_rank rank;
	if (md_rank_read(&rank, err) != MD_OK)
		return md_error_prefix(err, "%s is a bundle", folder);
	if (rank.meets)
		return MD_OK;
	return md_error_set(
	    err, MD_ERR_INVALID,
	    "%s is a bundle, and its ranks are not told where to meet: start them by medusa-restore, or set "
	    "MEDUSA_RANKS_FOLDER",
	    folder);
}

/* Ranks of one host have one folder, as a rule; but a bundle may be replaced while they start, or each may have a copy. */
static uint64_t name_of(const struct md_bundle *bundle)
{
	uint64_t hash = md_hash_checksum(bundle->artifacts, bundle->ranks * sizeof(bundle->artifacts[0]));
	return hash ? hash : 1;
}

static enum md_status find_in(const char *folder, bool apart, struct md_own_artifact *out, struct md_error *err)
{
	struct md_bundle bundle;
	uint32_t ranks;
	MD_FORWARD(md_bundle_read(folder, &bundle, err));
	if (md_rank_said(&out->rank, &ranks, err) != MD_OK)
		return md_error_prefix(err, "%s is a bundle", folder);
	if (!ranks)
		return md_error_set(
		    err, MD_ERR_NOT_FOUND,
		    "%s is a bundle of %u ranks, and nothing says which rank this process is (MEDUSA_RANK and "
		    "MEDUSA_RANKS, or a launcher's variables)",
		    folder, bundle.ranks);
	if (ranks != bundle.ranks)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "%s is a bundle of %u ranks, and this job has %u: capture it with as many", folder,
				    bundle.ranks, ranks);
	if (!apart)
		MD_FORWARD(check_meeting(folder, err));
	if (!md_bundle_artifact(folder, out->rank, out->path))
		return md_error_set(err, MD_ERR_INVALID, "%.200s...: the path is too long", folder);
	out->bundled = true;
	out->identity = bundle.artifacts[out->rank];
	out->bundle = name_of(&bundle);
	return MD_OK;
}

enum md_status md_own_artifact_find(const char *path, bool apart, struct md_own_artifact *out, struct md_error *err)
{
	*out = (struct md_own_artifact){0};
	if (is_folder(path))
		return find_in(path, apart, out, err);
	if ((size_t)snprintf(out->path, sizeof(out->path), "%s", path) >= sizeof(out->path))
		return md_error_set(err, MD_ERR_INVALID, "MEDUSA_ARTIFACT: the path is too long");
	return MD_OK;
}

enum md_status md_own_artifact_check(const struct md_own_artifact *own, const struct md_artifact_file *file,
				     struct md_error *err)
{
	struct md_hash found;
	if (!own->bundled)
		return MD_OK;
	MD_FORWARD(md_artifact_file_identity(file, &found, err));
	if (md_hash_equal(&found, &own->identity))
		return MD_OK;
	return md_error_set(
	    err, MD_ERR_MISMATCH,
	    "%s: not the artifact that the bundle was made with for rank %u: capture the bundle again, or "
	    "copy the whole folder again",
	    own->path, own->rank);
}

bool md_own_report(const char *artifact, char *path, size_t room)
{
	uint32_t rank, ranks;
	size_t length = strlen(path);
	if (!is_folder(artifact))
		return true;
	return md_rank_said(&rank, &ranks, NULL) == MD_OK && ranks &&
	       (size_t)snprintf(path + length, room - length, ".rank-%u", rank) < room - length;
}
