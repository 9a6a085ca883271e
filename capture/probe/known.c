/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a graph needs memory that it has kept in its test only because an earlier graph needs it. */
#include "capture/probe/known.h"

#include <stdlib.h>

#include "capture/probe/poison.h"
#include "capture/probe/probe_replay.h"
#include "capture/record/graphs.h"

static const uint32_t words[] = {0x00000000, 0x00000001, 0xffffffff};
#define WORDS (sizeof(words) / sizeof(*words))

bool md_capture_has_its_memory(const struct md_capture_graph *graph)
{
	for (size_t i = 0; i < graph->candidate_count; i++)
		if (!md_interval_find(&md_capture.live, graph->candidates[i]))
			return false;
	return true;
}

/* Poisons only the units that lie in the place. */
static void choose_units(struct md_capture_probe *probe, const struct md_interest *place)
{
	for (size_t u = 0; u < probe->unit_count; u++) {
		struct md_probe_unit *unit = &probe->units[u];
		unit->keep = !md_handed_overlap(probe->regions[unit->region].address + unit->offset, unit->size,
						place->address, place->size);
	}
}

static enum md_status ask_for(struct md_capture_probe *probe, const struct md_interest *place, bool *needed,
			      struct md_error *err)
{
	bool equal = true;
	choose_units(probe, place);
	for (size_t i = 0; i < WORDS && equal; i++) {
		MD_FORWARD(md_capture_probe_prepare_poison(probe, words[i], err));
		MD_FORWARD(md_capture_probe_replay(probe, 0, probe->unit_count, &equal, err));
	}
	*needed = !equal;
	return MD_OK;
}

static enum md_status ask(struct md_handed_trial *trial, const struct md_capture_graph *graph,
			  struct md_interest *const *places, size_t count, bool *needed,
			  struct md_error *err) MD_CAPTURE_HELD
{
	if (!trial->probe.outputs)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the outputs of a graph");
	MD_FORWARD(md_handed_trial_collect(trial, graph, err));
	MD_FORWARD(md_capture_probe_first_replay(&trial->probe, err));
	for (size_t i = 0; i < count; i++)
		MD_FORWARD(ask_for(&trial->probe, places[i], &needed[i], err));
	return MD_OK;
}

void md_capture_known_ask(struct md_probe_session *session, const struct md_capture_graph *graph,
			  struct md_interest *const *places, size_t count, bool *needed)
{
	struct md_error err = {0};
	struct md_handed_trial trial = md_handed_trial_new(session, graph);
	trial.probe.outputs = md_capture_graph_all_outputs(graph, &trial.probe.output_count);
	enum md_status status = ask(&trial, graph, places, count, needed, &err);
	status = md_capture_probe_settle(&trial.probe, status, &err);
	for (size_t i = 0; i < count; i++)
		needed[i] |= status != MD_OK;
	md_debug("graph %llu: asked for %zu places that earlier graphs need in %u replays%s%s",
		 (unsigned long long)graph->id, count, trial.probe.replays, status == MD_OK ? "" : ": ",
		 status == MD_OK ? "" : err.message);
	free((void *)trial.probe.outputs);
	md_handed_trial_finish(&trial);
}
