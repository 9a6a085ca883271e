/* SPDX-License-Identifier: Apache-2.0 */
/* What a verify report does to the artifact: proofs, and refusals of what failed or was not compared. */
#include <stdlib.h>
#include <string.h>

#include "tools/verify_report.h"

/* Frees one graph with the format's own code, by way of an artifact that holds nothing else. */
static void free_graph(const struct md_artifact_graph *graph)
{
	struct md_artifact only = {.graph_count = 1};

	only.graphs = malloc(sizeof(*only.graphs));
	if (!only.graphs)
		return;
	*only.graphs = *graph;
	md_artifact_finish(&only);
}

static enum md_status add_refusal(struct md_artifact *artifact, const char *label, uint32_t batch, const char *what,
				  const char *reason, struct md_error *err)
{
	struct md_artifact_refusal refusal = {strdup(label), batch, NULL};
	struct md_artifact_refusal *refusals =
	    realloc(artifact->refusals, (artifact->refusal_count + (size_t)1) * sizeof(*refusals));

	if (refusals)
		artifact->refusals = refusals;
	if (asprintf(&refusal.why, "%s: %s", what, reason) < 0)
		refusal.why = NULL;
	if (!refusals || !refusal.label || !refusal.why) {
		free(refusal.label);
		free(refusal.why);
		return md_error_set(err, MD_ERR_NO_MEMORY, "verify report: out of memory");
	}
	artifact->refusals[artifact->refusal_count++] = refusal;
	return MD_OK;
}

static enum md_status refuse_graph(struct md_artifact *artifact, uint32_t index, const char *what, const char *reason,
				   struct md_error *err)
{
	struct md_artifact_graph graph = artifact->graphs[index];

	MD_FORWARD(add_refusal(artifact, graph.label, graph.batch, what, reason, err));
	memmove(&artifact->graphs[index], &artifact->graphs[index + 1],
		(artifact->graph_count - index - 1) * sizeof(*artifact->graphs));
	artifact->graph_count--;
	free_graph(&graph);
	return MD_OK;
}

/* What must not be published, as the beginning of its refusal; NULL: it may be. */
static const char *objection(const struct md_verify_report *report, const struct md_verify_graph *found)
{
	if (!found)
		return "not compared";
	if (found->outcome == MD_VERIFY_FAILED)
		return "verification failed";
	if (found->outcome == MD_VERIFY_NONDETERMINISTIC && !report->tolerance.given)
		return "nondeterministic";
	return md_verify_missed(report, found) ? "not compared" : NULL;
}

static enum md_status refuse_strangers(const struct md_verify_report *report, struct md_artifact *artifact,
				       struct md_error *err)
{
	for (size_t i = 0; i < report->graph_count; i++) {
		const struct md_verify_graph *graph = &report->graphs[i];
		if (graph->stranger && !report->allow_strangers)
			MD_FORWARD(add_refusal(artifact, graph->label, graph->batch, "not recorded",
					       "the engine captured it in the verification run only", err));
	}
	return MD_OK;
}

/* Words in doubt that no replay has proven to be noise: nothing that has one may be published. */
static const struct md_doubtful *find_unproven(const struct md_verify_graph *found,
					       const struct md_artifact_graph *graph)
{
	for (uint32_t i = 0; i < graph->doubtful_count; i++)
		if (!found || found->outcome != MD_VERIFY_PASSED || !(found->noise >> i & 1))
			return &graph->doubtful[i];
	return NULL;
}

static enum md_status settle_words(struct md_artifact_graph *graph, struct md_error *err)
{
	while (graph->doubtful_count)
		MD_FORWARD(md_doubtful_settle(graph, graph->doubtful_count - 1, err));
	return MD_OK;
}

enum md_status md_verify_apply(const struct md_verify_report *report, struct md_artifact *artifact,
			       struct md_error *err)
{
	for (uint32_t i = 0; i < artifact->graph_count;) {
		struct md_artifact_graph *graph = &artifact->graphs[i];
		const struct md_verify_graph *found = md_verify_find(report, graph->label, graph->batch);
		const char *what = objection(report, found);
		if (what) {
			MD_FORWARD(refuse_graph(artifact, i, what, found ? found->reason : "no word of it", err));
			continue;
		}
		const struct md_doubtful *unproven = find_unproven(found, graph);
		if (unproven) {
			char text[MD_DOUBTFUL_TEXT];
			md_doubtful_describe(unproven, text);
			MD_FORWARD(
			    refuse_graph(artifact, i, "unprovable, for no replay has shown it to be noise", text, err));
			continue;
		}
		MD_FORWARD(settle_words(graph, err));
		if (found->outcome == MD_VERIFY_PASSED || found->outcome == MD_VERIFY_NONDETERMINISTIC)
			graph->proof = MD_PROOF_REPLAY;
		if (found->outcome == MD_VERIFY_NONDETERMINISTIC)
			graph->accepted = report->tolerance;
		i++;
	}
	return refuse_strangers(report, artifact, err);
}
