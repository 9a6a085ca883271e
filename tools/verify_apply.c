/* SPDX-License-Identifier: Apache-2.0 */
/* Applies a verify report to an artifact: proofs, and refusals of graphs that failed or were not compared. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "tools/verify_report.h"

/* Frees one graph by the format's own code: in an artifact that holds nothing else. */
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
	if (asprintf(&refusal.why, "%s: %s", what, reason) < 0)
		refusal.why = NULL;
	if (!refusal.label || !refusal.why || !MD_ARRAY_EXTEND(artifact->refusals, artifact->refusal_count)) {
		free(refusal.label);
		free(refusal.why);
		return md_error_set(err, MD_ERR_NO_MEMORY, "verify report: out of memory for a refusal");
	}
	artifact->refusals[artifact->refusal_count++] = refusal;
	return MD_OK;
}

enum md_status md_verify_refuse_graph(struct md_artifact *artifact, uint32_t index, const char *what,
				      const char *reason, struct md_error *err)
{
	struct md_artifact_graph graph = artifact->graphs[index];
	MD_FORWARD(add_refusal(artifact, graph.label, graph.batch, what, reason, err));
	memmove(&artifact->graphs[index], &artifact->graphs[index + 1],
		(artifact->graph_count - index - 1) * sizeof(*artifact->graphs));
	artifact->graph_count--;
	free_graph(&graph);
	return MD_OK;
}

/* Why a graph must not be published, as the beginning of its refusal; NULL: it may be. */
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

/* A doubtful word that no replay has proven to be noise; a graph that has one must not be published. */
static const struct md_doubtful *find_unproven(const struct md_verify_graph *found,
					       const struct md_artifact_graph *graph)
{
	for (uint32_t i = 0; i < graph->doubtful_count; i++)
		if (!found || found->outcome != MD_VERIFY_PASSED || !(found->noise[i / 64] >> i % 64 & 1))
			return &graph->doubtful[i];
	return NULL;
}

static enum md_status settle_words(struct md_artifact_graph *graph, struct md_error *err)
{
	while (graph->doubtful_count)
		MD_FORWARD(md_doubtful_settle(graph, graph->doubtful_count - 1, err));
	return MD_OK;
}

/* Why a graph alone must not be published; NULL: it may be. text, unless empty, replaces the reason. */
static const char *object(const struct md_verify_report *report, const struct md_artifact_graph *graph,
			  char text[MD_DOUBTFUL_TEXT], const char **reason)
{
	const struct md_verify_graph *found = md_verify_find(report, graph->label, graph->batch);
	const char *what = objection(report, found);
	const struct md_doubtful *unproven = what ? NULL : find_unproven(found, graph);
	*reason = found ? found->reason : "the verification run did not report it";
	if (!unproven)
		return what;
	md_doubtful_describe(unproven, text);
	*reason = text;
	return "unprovable, for no replay has shown it to be noise";
}

/* Graphs of a group are published together or not at all. Found by label, because indices of graphs change. */
static enum md_status find_broken_groups(const struct md_verify_report *report, const struct md_artifact *artifact,
					 char **broken, struct md_error *err)
{
	for (uint32_t i = 0; i < artifact->graph_count; i++) {
		const struct md_artifact_graph *graph = &artifact->graphs[i];
		char text[MD_DOUBTFUL_TEXT] = "";
		const char *reason, *what = object(report, graph, text, &reason);
		if (!what || !graph->group)
			continue;
		for (uint32_t k = 0; k < artifact->graph_count; k++) {
			if (k == i || broken[k] || artifact->graphs[k].group != graph->group)
				continue;
			if (asprintf(&broken[k],
				     "it is in one group with graph %s/%u (they pass values through unbound memory), "
				     "which is refused: %s: %s",
				     graph->label, graph->batch, what, reason) < 0)
				broken[k] = NULL;
			if (!broken[k])
				return md_error_set(err, MD_ERR_NO_MEMORY,
						    "verify report: out of memory for a refusal");
		}
	}
	return MD_OK;
}

static enum md_status apply_each(const struct md_verify_report *report, struct md_artifact *artifact, char **broken,
				 struct md_error *err)
{
	for (uint32_t i = 0, was = 0; i < artifact->graph_count; was++) {
		struct md_artifact_graph *graph = &artifact->graphs[i];
		const struct md_verify_graph *found = md_verify_find(report, graph->label, graph->batch);
		char text[MD_DOUBTFUL_TEXT] = "";
		const char *reason, *what = object(report, graph, text, &reason);
		if (!what && broken[was]) {
			what = "not published alone";
			reason = broken[was];
		}
		if (what) {
			MD_FORWARD(md_verify_refuse_graph(artifact, i, what, reason, err));
			continue;
		}
		MD_FORWARD(settle_words(graph, err));
		if (found->outcome == MD_VERIFY_PASSED || found->outcome == MD_VERIFY_NONDETERMINISTIC)
			graph->proof = MD_PROOF_REPLAY;
		if (found->outcome == MD_VERIFY_NONDETERMINISTIC)
			graph->accepted = report->tolerance;
		i++;
	}
	return MD_OK;
}

static bool was_shown(const struct md_verify_report *report, const struct md_artifact_graph *graph, uint32_t binding)
{
	const struct md_verify_graph *found = md_verify_find(report, graph->label, graph->batch);
	for (uint32_t i = 0; found && i < found->begins_count; i++)
		if (found->begins[i] == binding)
			return true;
	return false;
}

/* If every graph that is published has shown that the address means the beginning, the two bindings may lie apart. */
static void settle_neighbours(const struct md_verify_report *report, struct md_artifact *artifact)
{
	for (uint32_t b = 0; b < artifact->binding_count; b++) {
		struct md_binding *binding = &artifact->bindings[b];
		bool shown = binding->adjoins;
		for (uint32_t i = 0; shown && i < artifact->graph_count; i++) {
			const struct md_artifact_graph *graph = &artifact->graphs[i];
			shown = !md_artifact_graph_adjoins(artifact, graph, binding->before, b) ||
				was_shown(report, graph, b);
		}
		if (!shown)
			continue;
		binding->adjoins = false;
		binding->before = 0;
	}
}

enum md_status md_verify_apply(const struct md_verify_report *report, struct md_artifact *artifact,
			       struct md_error *err)
{
	uint32_t count = artifact->graph_count;
	char **broken = calloc(count + (size_t)1, sizeof(*broken));
	enum md_status status =
	    broken ? find_broken_groups(report, artifact, broken, err)
		   : md_error_set(err, MD_ERR_NO_MEMORY, "verify report: out of memory for %u graphs", count);
	if (status == MD_OK)
		status = apply_each(report, artifact, broken, err);
	for (uint32_t i = 0; broken && i < count; i++)
		free(broken[i]);
	free(broken);
	if (status == MD_OK)
		settle_neighbours(report, artifact);
	return status == MD_OK ? refuse_strangers(report, artifact, err) : status;
}
