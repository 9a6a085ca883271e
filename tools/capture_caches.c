/* SPDX-License-Identifier: Apache-2.0 */
/* The caches that a capture packs: counted after each run, read when the artifact is written. */
#include <inttypes.h>

#include "tools/cache_pack.h"
#include "tools/capture_job.h"

static uint32_t count_files(const struct md_caches *caches)
{
	uint32_t files = 0;
	for (uint32_t i = 0; i < caches->folder_count; i++)
		files += caches->folders[i].file_count;
	return files;
}

int md_job_check_caches(struct md_job *job)
{
	struct md_caches caches;
	struct md_error err = {0};
	if (!job->wish->with_cache.count)
		return -1;
	if (md_cache_pack(job->command, &job->wish->with_cache, job->wish->cache_limit, false, &caches, &err) != MD_OK)
		return md_job_fail(job, &err, MD_EXIT_INPUT);
	md_caches_finish(&caches);
	return -1;
}

enum md_status md_job_pack_caches(struct md_job *job, struct md_error *err)
{
	struct md_caches *caches = &job->at->artifact.caches;
	if (!job->wish->with_cache.count || md_job_rank(job)) /* those of a bundle travel with its first artifact */
		return MD_OK;
	MD_FORWARD(md_cache_pack(job->command, &job->wish->with_cache, job->wish->cache_limit, true, caches, err));
	md_job_say(job, "caches: %" PRIu64 " bytes in %u files of %u folders", md_caches_bytes(caches),
		   count_files(caches), caches->folder_count);
	return MD_OK;
}
