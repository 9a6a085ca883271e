/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the variables of launchers: the rank, how many there are, how many of them are on this host, and the job. */
#include "ranks/rank.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "base/setting.h"
#include "base/hash.h"

#define PATIENCE_S 60u
#define PATIENCE_MOST_S 86400u
#define NS_PER_S UINT64_C(1000000000)

static const char restart[] = "TORCHELASTIC_RESTART_COUNT"; /* the ranks of a restart are another job */

static const struct launcher {
	const char *rank, *ranks, *here; /* here: how many ranks are on this host; NULL: the launcher does not say */
	const char *hosts;               /* how many hosts there are, for those that say that instead */
	const char *job[4];              /* together they tell the job from others; the first one must be set */
} launchers[] = {
    {"MEDUSA_RANK", "MEDUSA_RANKS", NULL, NULL, {NULL}},
    {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", NULL, {"MASTER_PORT", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", restart}},
    {"OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     NULL,
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", NULL, {"PMI_JOBID"}},
    {"SLURM_PROCID", "SLURM_NTASKS", NULL, "SLURM_STEP_NUM_NODES", {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

static enum md_status read_number(const char *name, uint64_t least, uint64_t most, uint32_t *out, struct md_error *err)
{
	const char *text = md_environment_get(name);
	uint64_t value = 0;
	if (!text || !md_setting_parse_number(text, least, most, &value))
		return md_error_set(err, MD_ERR_INVALID,
				    "%s: \"%.40s\" is no number from %llu to %llu, so this process does not know the "
				    "other ranks",
				    name, text ? text : "", (unsigned long long)least, (unsigned long long)most);
	*out = (uint32_t)value;
	return MD_OK;
}

static bool is_set(const char *name)
{
	const char *value = name ? md_environment_get(name) : NULL;
	return value && *value;
}

/* Ranks of other hosts cannot come to the folder. */
static enum md_status check_hosts(const struct launcher *by, uint32_t ranks, struct md_error *err)
{
	uint32_t here = ranks, hosts = 1;
	if (is_set(by->here))
		MD_FORWARD(read_number(by->here, 1, UINT32_MAX, &here, err));
	if (is_set(by->hosts))
		MD_FORWARD(read_number(by->hosts, 1, UINT32_MAX, &hosts, err));
	if (here == ranks && hosts == 1)
		return MD_OK;
	return md_error_set(err, MD_ERR_UNSUPPORTED,
			    "the job has ranks on several hosts (%s), and ranks meet on one host alone",
			    here == ranks ? by->hosts : by->here);
}

static enum md_status name_job(const struct launcher *by, uint64_t *job, struct md_error *err)
{
	struct md_hash_stream *names = md_hash_stream_begin();
	bool own = is_set("MEDUSA_JOB"), known = own;
	struct md_hash hash;
	if (!names)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the name of the job");
	for (size_t i = 0; i < sizeof(by->job) / sizeof(by->job[0]); i++) {
		const char *name = !own ? by->job[i] : i == 0 ? "MEDUSA_JOB" : i == 1 ? restart : NULL;
		const char *value = is_set(name) ? md_environment_get(name) : "";
		known = known || *value;
		md_hash_stream_add(names, value, strlen(value) + 1);
	}
	if (!known && is_set("MEDUSA_JOB_DEFAULT")) { /* where no other job is expected */
		const char *value = md_environment_get("MEDUSA_JOB_DEFAULT");
		md_hash_stream_add(names, value, strlen(value) + 1);
		known = true;
	}
	md_hash_stream_finish(names, &hash);
	memcpy(job, hash.bytes, sizeof(*job));
	if (known)
		return MD_OK;
	return md_error_set(
	    err, MD_ERR_INVALID,
	    "nothing tells this job from others that may meet in MEDUSA_RANKS_FOLDER: set MEDUSA_JOB to a "
	    "name that all of its ranks have, and no other job");
}

static const struct launcher *find_launcher(void)
{
	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
		if (is_set(launchers[i].rank) || (!i && is_set(launchers[i].ranks)))
			return &launchers[i];
	return NULL;
}

static enum md_status read_rank(const struct launcher *by, uint32_t *rank, uint32_t *ranks, struct md_error *err)
{
	MD_FORWARD(read_number(by->ranks, 1, MD_RANKS_MOST, ranks, err));
	return read_number(by->rank, 0, *ranks - 1, rank, err);
}

enum md_status md_rank_said(uint32_t *rank, uint32_t *ranks, struct md_error *err)
{
	const struct launcher *by = find_launcher();
	*rank = *ranks = 0;
	return by ? read_rank(by, rank, ranks, err) : MD_OK;
}

enum md_status md_rank_read(struct md_rank *out, struct md_error *err)
{
	struct md_rank rank = {0};
	uint32_t patience = PATIENCE_S;
	const struct launcher *by = find_launcher();
	*out = rank;
	if (!is_set("MEDUSA_RANKS_FOLDER") || !by)
		return MD_OK;
	if (!md_environment_path("MEDUSA_RANKS_FOLDER", rank.folder, sizeof(rank.folder)))
		return md_error_set(err, MD_ERR_INVALID, "MEDUSA_RANKS_FOLDER: the path is too long");
	MD_FORWARD(read_rank(by, &rank.rank, &rank.ranks, err));
	if (is_set("MEDUSA_RANKS_TIMEOUT"))
		MD_FORWARD(read_number("MEDUSA_RANKS_TIMEOUT", 1, PATIENCE_MOST_S, &patience, err));
	rank.patience_ns = patience * NS_PER_S;
	if (rank.ranks == 1)
		return MD_OK;
	MD_FORWARD(check_hosts(by, rank.ranks, err));
	MD_FORWARD(name_job(by, &rank.job, err));
	rank.meets = true;
	*out = rank;
	return MD_OK;
}
