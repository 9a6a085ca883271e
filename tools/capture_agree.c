/* SPDX-License-Identifier: Apache-2.0 */
/* Of graphs that communicate, the artifacts of a bundle have the same: a rank cannot launch one without the others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "driver/maker.h"
#include "tools/capture_job.h"
#include "tools/verify_report.h"

static bool is_made(const struct md_artifact *artifact, uint32_t alloc)
{
	return artifact->allocs[alloc].class == MD_CLASS_BOUND &&
	       md_maker_is_name(artifact->bindings[artifact->allocs[alloc].binding].name);
}

/* Marks what the pointers lead to. True: to memory that ranks share, or that their communication library made. */
static bool follow(const struct md_artifact *artifact, const struct md_pointer *pointers, uint32_t count, uint8_t *seen)
{
	bool any = false;
	for (uint32_t i = 0; i < count; i++) {
		any |= is_made(artifact, pointers[i].alloc);
		seen[pointers[i].alloc] = 1;
	}
	return any;
}

/* Contents may be tables of what ranks share. Without memory for the search, the graph counts as one that communicates. */
static bool communicates(const struct md_artifact *artifact, const struct md_artifact_graph *graph)
{
	MD_AUTO_FREE uint8_t *seen = calloc((size_t)artifact->alloc_count + artifact->content_count + 1, 1);
	uint8_t *done = seen ? seen + artifact->alloc_count : NULL;
	bool more = seen != NULL, any = !seen || follow(artifact, graph->pointers, graph->pointer_count, seen);
	while (more && !any) {
		more = false;
		for (uint32_t i = 0; i < artifact->content_count && !any; i++) {
			const struct md_artifact_content *content = &artifact->contents[i];
			if (done[i] || !seen[content->alloc])
				continue;
			done[i] = 1;
			more = true;
			any = follow(artifact, content->pointers, content->pointer_count, seen);
		}
	}
	return any;
}

static bool has_graph(const struct md_artifact *artifact, const struct md_artifact_graph *like)
{
	for (uint32_t i = 0; i < artifact->graph_count; i++)
		if (artifact->graphs[i].batch == like->batch && !strcmp(artifact->graphs[i].label, like->label))
			return communicates(artifact, &artifact->graphs[i]);
	return false;
}

static const char *reason_of(const struct md_artifact *artifact, const struct md_artifact_graph *like)
{
	for (uint32_t i = 0; i < artifact->refusal_count; i++) {
		const struct md_artifact_refusal *refusal = &artifact->refusals[i];
		if (refusal->label && refusal->batch == like->batch && !strcmp(refusal->label, like->label))
			return refusal->why;
	}
	return "it has captured no such graph that communicates";
}

#define TAKEN_OUT "it communicates, and rank "

/*
 * The first rank that lacks the graph for a reason of its own, and not because it was taken out of its artifact here; the number
 * of ranks: all have it.
 */
static uint32_t who_lacks(const struct md_job *job, const struct md_artifact_graph *graph)
{
	uint32_t found = job->rank_count;
	for (uint32_t rank = 0; rank < job->rank_count; rank++) {
		const struct md_artifact *artifact = &job->ranks[rank].artifact;
		if (has_graph(artifact, graph))
			continue;
		if (strncmp(reason_of(artifact, graph), TAKEN_OUT, strlen(TAKEN_OUT)) != 0)
			return rank;
		if (found == job->rank_count)
			found = rank;
	}
	return found;
}

/* Graphs of its group go with it, as they are restored together or not at all. */
static enum md_status refuse_all_of(struct md_artifact *artifact, uint32_t group, const char *what, const char *reason,
				    struct md_error *err)
{
	for (uint32_t i = 0; group && i < artifact->graph_count;) {
		if (artifact->graphs[i].group != group)
			i++;
		else
			MD_FORWARD(md_verify_refuse_graph(artifact, i, what, reason, err));
	}
	return MD_OK;
}

static enum md_status take_out(const struct md_job *job, struct md_artifact *artifact, bool *any, struct md_error *err)
{
	for (uint32_t i = 0; i < artifact->graph_count;) {
		struct md_artifact_graph *graph = &artifact->graphs[i];
		uint32_t lacks = communicates(artifact, graph) ? who_lacks(job, graph) : job->rank_count;
		uint32_t group = graph->group;
		char what[64], reason[512];
		if (lacks == job->rank_count) {
			i++;
			continue;
		}
		*any = true;
		snprintf(what, sizeof(what), TAKEN_OUT "%u cannot restore it", lacks);
		snprintf(reason, sizeof(reason), "%s", reason_of(&job->ranks[lacks].artifact, graph));
		MD_FORWARD(md_verify_refuse_graph(artifact, i, what, reason, err));
		MD_FORWARD(refuse_all_of(artifact, group, what, reason, err));
		i = 0;
	}
	return MD_OK;
}

int md_job_agree(struct md_job *job)
{
	struct md_error err = {0};
	bool any = job->bundle;
	while (any) { /* a group may take a graph along that other ranks have */
		any = false;
		for (uint32_t i = 0; i < job->rank_count; i++)
			if (take_out(job, &job->ranks[i].artifact, &any, &err) != MD_OK)
				return md_job_fail(job, &err, MD_EXIT_FAILED);
	}
	return -1;
}
