/* SPDX-License-Identifier: Apache-2.0 */
/* Replays of the poison test on a private stream: put in place or poison, launch, compare; and the clean end of it. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/note.h"
#include "capture/probe/poison.h"
#include "capture/probe/probe.h"
#include "capture/probe/probe_replay.h"
#include "capture/probe/probe_variables.h"
#include "capture/probe/spans.h"
#include "driver/replay_watch.h"

#define MAX_REPLAYS 4096

enum md_status md_capture_probe_launch(struct md_capture_probe *probe, const char *kind, struct md_error *err)
{
	enum md_status status;
	/* Copies from pageable memory may still be on their way, and our stream waits for no other stream. */
	MD_FORWARD(md_cuda_call(err, cuCtxSynchronize));
	MD_FORWARD(md_device_forget_maps(&probe->session->device, probe->session->device.stream, err));
	if (probe->communicates && !probe->lockstep.rank)
		return md_error_set(err, MD_ERR_UNPROVABLE,
				    "the graph communicates with other ranks, which do not replay it now");
	MD_FORWARD(md_lockstep_replay(&probe->lockstep, kind, err));
	probe->replays++;
	status = md_replay(probe->exec, probe->session->device.stream, &probe->usual_ns, err);
	if (status != MD_OK)
		md_error_prefix(err, "replay %u", probe->replays);
	return md_lockstep_replayed(&probe->lockstep, status, err);
}

/*
 * Puts memory in place that the engine owns but does not bind: host
 * memory, variables, and private memory with [from, to) poisoned.
 */
enum md_status md_capture_probe_place(struct md_capture_probe *probe, size_t from, size_t to, struct md_error *err)
{
	for (uint32_t i = 0; i < probe->region_count; i++) {
		const struct md_probe_region *region = &probe->regions[i];
		if (region->kind == MD_PROBE_REGION_HOST)
			memcpy((void *)(uintptr_t)region->address, region->copy->host, region->size);
	}
	MD_FORWARD(md_capture_probe_put_variables(probe, err));
	return md_capture_probe_place_private(probe, from, to, err);
}

enum md_status md_capture_probe_first_replay(struct md_capture_probe *probe, struct md_error *err)
{
	md_note_phase("first replay, nothing poisoned");
	MD_FORWARD(md_capture_probe_launch(probe, "nothing poisoned", err));
	MD_FORWARD(md_capture_probe_find_written(probe, err));
	return md_capture_probe_find_spans(probe, err);
}

/* If the replay breaks the engine, the note is all that is left. Ranks whose memory differs say different things, too. */
static void note_poison(const struct md_capture_probe *probe, size_t from, size_t to, char text[160])
{
	if (from == to)
		snprintf(text, 160, "replay %u, nothing poisoned", probe->replays + 1);
	else
		snprintf(text, 160, "replay %u, units %zu..%zu of %zu of private memory poisoned", probe->replays + 1,
			 from, to - 1, probe->unit_count);
	md_note_phase(text);
}

static enum md_status replay(struct md_capture_probe *probe, size_t from, size_t to, bool *equal, struct md_error *err)
{
	char text[160];
	if (probe->replays >= MAX_REPLAYS || md_clock_ns() > probe->deadline_ns)
		return md_error_set(err, MD_ERR_TIMEOUT,
				    "poison test gave up after %u replays: permanent contents too fragmented",
				    probe->replays);
	note_poison(probe, from, to, text);
	MD_FORWARD(md_capture_probe_place(probe, from, to, err));
	MD_FORWARD(md_capture_probe_launch(probe, text, err));
	MD_FORWARD(md_capture_probe_compare_spans(probe, equal, err));
	return md_lockstep_all(&probe->lockstep, "equal outputs", equal, err);
}

/* If clean replays differ, one poisoned replay outside of their spread may be one of these; two are not. */
enum md_status md_capture_probe_replay(struct md_capture_probe *probe, size_t from, size_t to, bool *equal,
				       struct md_error *err)
{
	MD_FORWARD(replay(probe, from, to, equal, err));
	return probe->spread && !*equal ? replay(probe, from, to, equal, err) : MD_OK;
}

/* Poisoned replays may have left anything in state that is not put back; a clean replay overwrites it. */
static enum md_status replay_clean(struct md_capture_probe *probe, bool *equal, struct md_error *err)
{
	md_note_phase("last replay, nothing poisoned");
	MD_FORWARD(md_capture_probe_launch(probe, "nothing poisoned, the last one", err));
	MD_FORWARD(md_capture_probe_compare_spans(probe, equal, err));
	MD_FORWARD(md_lockstep_all(&probe->lockstep, "equal outputs", equal, err));
	return md_capture_probe_place(probe, 0, 0, err);
}

/* What ranks end together. */
static enum md_status end_together(struct md_capture_probe *probe, bool *equal, struct md_error *err)
{
	MD_FORWARD(md_lockstep_any(&probe->lockstep, "writes to other places", &probe->strayed, err));
	return probe->sampled_count ? replay_clean(probe, equal, err) : MD_OK;
}

/* What ranks no longer do together is left out; memory is put back in any case. */
static enum md_status put_back(struct md_capture_probe *probe, bool *equal, struct md_error *err)
{
	struct md_error lost = {0};
	enum md_status status = MD_OK;
	probe->broken = true; /* unless all is back in place */
	MD_FORWARD(md_capture_probe_place(probe, 0, 0, err));
	MD_FORWARD(md_capture_probe_check_outputs(probe, err));
	if (!probe->lockstep.lost.status)
		status = end_together(probe, equal, err);
	if (status != MD_OK && !probe->lockstep.lost.status)
		return status;
	if (status != MD_OK) /* of a replay that others have not ended, perhaps */
		MD_FORWARD(md_capture_probe_place(probe, 0, 0, &lost));
	MD_FORWARD(md_cuda_call(status == MD_OK ? err : &lost, cuCtxSynchronize));
	probe->broken = false;
	return status;
}

enum md_status md_capture_probe_settle(struct md_capture_probe *probe, enum md_status status, struct md_error *err)
{
	struct md_error second = {0};
	bool equal = true;
	if (status != MD_OK)
		md_lockstep_end(&probe->lockstep, status, err);
	if (!probe->replays)
		return status;
	if (put_back(probe, &equal, &second) != MD_OK) {
		if (status == MD_OK)
			*err = second;
		return err->status;
	}
	if (status == MD_OK && !equal)
		return md_error_set(err, MD_ERR_UNPROVABLE,
				    "a clean replay after the poisoned ones gives different outputs");
	return status;
}
