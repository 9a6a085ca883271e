/* SPDX-License-Identifier: Apache-2.0 */
/* Gives the artifact and the traces the names under which the user finds them. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "ranks/rank_bundle.h"
#include "tools/capture_job.h"
#include "tools/stop.h"

/* Saved private memory may have been made from the weights; then the graphs serve no other weights. */
static void say_constants(const struct md_job *job)
{
	const struct md_artifact *artifact = &job->at->artifact;
	uint32_t hashed = 0, same = 0, uncompared = 0;
	for (uint32_t i = 0; i < artifact->binding_count; i++) {
		hashed += artifact->bindings[i].hashed;
		same += artifact->bindings[i].hashed && !artifact->bindings[i].varied;
	}
	for (uint32_t i = 0; i < artifact->content_count; i++)
		uncompared += !artifact->contents[i].compared;
	if (hashed && (same || uncompared))
		md_job_say(
		    job,
		    "graphs with contents serve these weights alone: no second value was seen of %u of %u constant "
		    "bindings, and %u of %u contents were found in one capture alone (--second, for a capture with "
		    "other "
		    "weights)",
		    same, hashed, uncompared, artifact->content_count);
}

/* Padding cannot be told from a member that differs; only the user knows what the structs are. */
static void say_unset(const struct md_job *job)
{
	uint64_t bytes = 0;
	uint32_t graphs = 0;
	for (uint32_t i = 0; i < job->at->artifact.graph_count; i++) {
		struct md_unset unset = {0};
		if (md_artifact_unset(&job->at->artifact, &job->at->artifact.graphs[i], &unset, NULL) != MD_OK)
			continue;
		bytes += unset.struct_bytes;
		graphs += unset.struct_bytes != 0;
	}
	if (graphs)
		md_job_say(job,
			   "%llu bytes of struct parameters differ from process to process and count as unset, in %u "
			   "graphs: padding, as far as replays show (medusa-inspect counts them by graph, "
			   "--refuse-unset refuses these graphs)",
			   (unsigned long long)bytes, graphs);
}

/* Such memory is mostly workspace, but it may be a table that no input has needed so far. */
static void say_untouched(const struct md_job *job)
{
	if (job->at->untouched.places)
		md_job_say(job,
			   "%llu bytes at %u places of unbound memory were neither read nor written in the capture, "
			   "and are zero at a cold start: bind them if an input can make a kernel read them",
			   (unsigned long long)job->at->untouched.bytes, job->at->untouched.places);
}

static void say_scratch(const struct md_job *job)
{
	if (job->at->artifact.provenance.scratch_addresses)
		md_job_say(job,
			   "ignored %llu addresses that were given to kernels outside of graphs: they lie in memory "
			   "of which the engine says that only graphs use it (medusa_graph_scratch)",
			   (unsigned long long)job->at->artifact.provenance.scratch_addresses);
}

static void summarize(const struct md_job *job)
{
	const struct md_artifact *artifact = &job->at->artifact;
	uint64_t nodes = 0, pointers = 0;
	for (uint32_t i = 0; i < artifact->graph_count; i++) {
		nodes += artifact->graphs[i].node_count;
		pointers += artifact->graphs[i].pointer_count;
	}
	md_job_say(job, "%s: %u graphs, %llu nodes, %llu pointers, %u kernels from %u images, %u contents",
		   job->wish->output, artifact->graph_count, (unsigned long long)nodes, (unsigned long long)pointers,
		   artifact->kernel_count, artifact->image_count, artifact->content_count);
	md_job_say(job, "%llu bytes in the file, %llu bytes of private memory at restore",
		   (unsigned long long)job->at->sizes.file, (unsigned long long)artifact->arena_size);
	say_constants(job);
	say_unset(job);
	say_untouched(job);
	say_scratch(job);
	for (uint32_t i = 0; i < artifact->refusal_count; i++) {
		const struct md_artifact_refusal *refusal = &artifact->refusals[i];
		md_job_say(job, "refused: (%s, %u): %s", refusal->label ? refusal->label : "no label", refusal->batch,
			   refusal->why);
	}
}

/* ---- writing ---- */

static bool has_graphs(const char *path)
{
	struct md_artifact older;
	if (md_artifact_read(path, &older, NULL, NULL) != MD_OK)
		return false;
	bool has = older.graph_count > 0;
	md_artifact_finish(&older);
	return has;
}

/* True if something can be restored: ranks restore a graph together, or not at all. */
static bool is_useful(const struct md_job *job)
{
	for (uint32_t i = 0; i < job->rank_count; i++)
		if (!job->ranks[i].artifact.graph_count)
			return false;
	return true;
}

/* An older artifact with graphs is of more use than a new one without any. */
static bool keeps_older(const struct md_job *job)
{
	struct md_bundle older;
	char path[PATH_MAX];
	if (is_useful(job))
		return false;
	if (!job->bundle)
		return has_graphs(job->workplace.output);
	if (md_bundle_read(job->workplace.output, &older, NULL) != MD_OK)
		return false;
	for (uint32_t i = 0; i < older.ranks; i++)
		if (!md_bundle_artifact(job->workplace.output, i, path) || !has_graphs(path))
			return false;
	return true;
}

static enum md_status write_artifact(struct md_job *job, const char *path, struct md_error *err)
{
	MD_FORWARD(md_job_pack_caches(job, err));
	if (md_artifact_write(&job->at->artifact, path, &job->at->sizes, err) != MD_OK)
		return md_error_prefix(err, "%s", job->wish->output);
	return MD_OK;
}

static enum md_status write_bundle(struct md_job *job, const char *folder, struct md_error *err)
{
	struct md_bundle bundle = {.ranks = job->rank_count};
	char path[PATH_MAX];
	for (uint32_t i = 0; i < job->rank_count; i++) {
		job->at = &job->ranks[i];
		if (!md_bundle_artifact(folder, i, path))
			return md_error_set(err, MD_ERR_INVALID, "%.200s...: the path is too long", folder);
		MD_FORWARD(write_artifact(job, path, err));
		MD_FORWARD(md_artifact_identity(path, &bundle.artifacts[i], err));
	}
	job->at = NULL;
	if (md_bundle_write(&bundle, folder, err) != MD_OK)
		return md_error_prefix(err, "%s", job->wish->output);
	return MD_OK;
}

/* Writes into the workplace, which is removed if this process is ended; a signal waits until the output has its name. */
static enum md_status write_output(struct md_job *job, struct md_error *err)
{
	char path[PATH_MAX + 32];
	if (job->bundle) {
		MD_FORWARD(md_workplace_folder(&job->workplace, "bundle", path, err));
		MD_FORWARD(write_bundle(job, path, err));
		return md_workplace_publish_folder(&job->workplace, path, err);
	}
	snprintf(path, sizeof(path), "%s/artifact.medusa", job->workplace.folder);
	MD_FORWARD(write_artifact(job, path, err));
	MD_FORWARD(md_file_check_output(job->workplace.output, err));
	md_stop_hold();
	enum md_status status = md_file_rename(path, job->workplace.output, err);
	md_stop_release();
	return status;
}

static int check_doubtful(struct md_job *job)
{
	const struct md_artifact_graph *doubtful = md_artifact_doubtful(&job->at->artifact);
	if (!doubtful)
		return -1;
	md_job_say(job, "graph %s/%u has doubtful words that were not tested; nothing was written", doubtful->label,
		   doubtful->batch);
	return MD_EXIT_FAILED;
}

static int summarize_rank(struct md_job *job)
{
	summarize(job);
	return -1;
}

int md_job_publish(struct md_job *job)
{
	struct md_error err = {0};
	bool kept = keeps_older(job), refused = !is_useful(job);
	int result = md_job_each(job, check_doubtful);
	if (result >= 0)
		return result;
	if (!kept && write_output(job, &err) != MD_OK) {
		job->traces_needed = true;
		return md_job_fail(job, &err, MD_EXIT_COMMAND);
	}
	md_job_each(job, summarize_rank);
	if (kept)
		md_job_say(job, "%s: the existing %s holds graphs and is not replaced", job->wish->output,
			   job->bundle ? "bundle" : "artifact");
	for (uint32_t i = 0; i < job->rank_count; i++) {
		refused |= job->ranks[i].artifact.refusal_count != 0;
		if (job->bundle && !job->ranks[i].artifact.graph_count)
			md_job_say(
			    job,
			    "rank %u has no graph, so no rank restores any: they restore a graph together or not "
			    "at all",
			    i);
	}
	return refused ? MD_EXIT_FAILED : MD_EXIT_OK;
}

/* ---- traces ---- */

/* A trace holds the engine's memory, so once nobody else has to write it, only its owner may read it. */
static bool keep_as(const char *trace, const char *kept)
{
	return !chmod(trace, 0600) && !rename(trace, kept);
}

/* OUT.1.mtrace (in a bundle OUT.rank-0.1.mtrace), or OUT.1.mtrace.part of a run that was cut short. */
static bool keep_trace(const struct md_job *job, const struct md_job_rank *rank, unsigned index, char kept[PATH_MAX])
{
	char number[24] = "";
	const char *path = job->workplace.output;
	char part[PATH_MAX + 8];
	size_t size = strlen(path);
	struct stat info;
	if (size > 7 && !strcmp(path + size - 7, ".medusa"))
		size -= 7;
	if (job->bundle)
		snprintf(number, sizeof(number), ".rank-%u", (unsigned)(rank - job->ranks));
	snprintf(kept, PATH_MAX, "%.*s%s.%u.mtrace", (int)size, path, number, index + 1);
	if (keep_as(rank->traces[index], kept))
		return true;
	snprintf(part, sizeof(part), "%s.part", rank->traces[index]);
	if (stat(part, &info) || !info.st_size)
		return false;
	snprintf(kept, PATH_MAX, "%.*s%s.%u.mtrace.part", (int)size, path, number, index + 1);
	return keep_as(part, kept);
}

void md_job_keep_traces(const struct md_job *job)
{
	char kept[PATH_MAX];
	for (uint32_t at = 0; at < job->rank_count; at++)
		for (unsigned i = 0; i < MD_CAPTURES_MOST; i++)
			if (*job->ranks[at].traces[i] && keep_trace(job, &job->ranks[at], i, kept) &&
			    !job->wish->keep_traces)
				md_job_say(job, "the trace is kept: %s", kept);
}
