/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that a graph has kept in its test only because an earlier graph needs it. Whether the graph needs it, too, is
 * asked only where somebody writes that memory, and for all such memory of the graph at once: most graphs need hardly
 * any of it, and a test of each part by itself would replay each graph as often as there are other graphs.
 */
#include "capture/probe/known.h"

#include <stdlib.h>

#include "capture/probe/poison.h"
#include "capture/probe/probe_replay.h"
#include "capture/probe/search.h"

/* An engine that ends may have freed memory of a graph that it has not destroyed: a replay would fault. */
bool md_capture_has_its_memory(const struct md_capture_graph *graph)
{
	for (size_t i = 0; i < graph->candidate_count; i++)
		if (!md_interval_find(&md_capture.live, graph->candidates[i]))
			return false;
	return true;
}

static bool lies_in(const struct md_capture_probe *probe, const struct md_probe_unit *unit,
		    const struct md_interest *interest)
{
	return md_handed_overlap(probe->regions[unit->region].address + unit->offset, unit->size, interest->address,
				 interest->size);
}

/* Only units that an interest in doubt lies in are poisoned. */
static void choose_units(struct md_capture_probe *probe, uint64_t graph) MD_CAPTURE_HELD
{
	size_t count;
	struct md_interest *interest, *all = md_capture_interests(&count);
	for (size_t u = 0; u < probe->unit_count; u++) {
		struct md_probe_unit *unit = &probe->units[u];
		unit->keep = true;
		for (interest = md_capture_interest_of(graph); interest && unit->keep;
		     interest = md_interest_next(all, interest))
			unit->keep = !(interest->known && lies_in(probe, unit, interest));
		unit->known = unit->keep; /* from here on: it is in no doubt */
	}
}

static enum md_status find_needed(struct md_handed_trial *trial, const struct md_capture_graph *graph,
				  struct md_error *err) MD_CAPTURE_HELD
{
	struct md_capture_probe *probe = &trial->probe;
	MD_FORWARD(md_handed_trial_collect(trial, graph, err));
	choose_units(probe, graph->id);
	MD_FORWARD(md_capture_probe_first_replay(probe, err));
	for (size_t i = 0; i < MD_PROBE_PATTERNS; i++) {
		bool equal;
		MD_FORWARD(md_capture_probe_prepare_poison(probe, md_probe_patterns[i], err));
		MD_FORWARD(md_capture_probe_replay(probe, 0, probe->unit_count, &equal, err));
		if (equal)
			continue;
		MD_FORWARD(md_capture_probe_replay(probe, 0, 0, &equal, err));
		if (!equal)
			return md_error_set(err, MD_ERR_UNPROVABLE, "clean replays differ");
		MD_FORWARD(md_capture_probe_search(probe, 0, probe->unit_count, true, err));
	}
	return MD_OK;
}

/* all: the test has failed, so all of it counts as needed. */
static void conclude(const struct md_capture_probe *probe, uint64_t graph, bool all_needed) MD_CAPTURE_HELD
{
	size_t count;
	struct md_interest *interest, *all = md_capture_interests(&count);
	for (interest = md_capture_interest_of(graph); interest; interest = md_interest_next(all, interest)) {
		bool needed = all_needed;
		if (!interest->known)
			continue;
		for (size_t u = 0; u < probe->unit_count && !needed; u++)
			needed = probe->units[u].keep && !probe->units[u].known &&
				 lies_in(probe, &probe->units[u], interest);
		interest->known = false;
		interest->size = needed ? interest->size : 0; /* no longer an interest */
	}
}

static bool has_known(uint64_t graph) MD_CAPTURE_HELD
{
	size_t count;
	struct md_interest *interest, *all = md_capture_interests(&count);
	for (interest = md_capture_interest_of(graph); interest; interest = md_interest_next(all, interest))
		if (interest->known)
			return true;
	return false;
}

void md_capture_known_settle(struct md_probe_session *session, const struct md_capture_graph *graph)
{
	struct md_error err = {0};
	if (!graph->exec || !graph->tested || !has_known(graph->id) || !md_capture_has_its_memory(graph))
		return;
	struct md_handed_trial trial = md_handed_trial_new(session, graph);
	trial.probe.outputs = md_capture_graph_all_outputs(graph, &trial.probe.output_count);
	enum md_status status = trial.probe.outputs
				    ? find_needed(&trial, graph, &err)
				    : md_error_set(&err, MD_ERR_NO_MEMORY, "out of memory for the outputs of a graph");
	status = md_capture_probe_settle(&trial.probe, status, &err);
	conclude(&trial.probe, graph->id, status != MD_OK);
	md_debug("graph %llu: asked for what earlier graphs need in %u replays%s%s", (unsigned long long)graph->id,
		 trial.probe.replays, status == MD_OK ? "" : ": ", status == MD_OK ? "" : err.message);
	free((void *)trial.probe.outputs);
	md_handed_trial_finish(&trial);
}
