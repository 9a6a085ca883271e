/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares a graph with its restored twin: both are replayed from one state,
 * and the twin again with other bytes where nothing may depend on them.
 */
#define MD_LOG_DOMAIN "verify"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/note.h"
#include "driver/replay_watch.h"
#include "restore/patch.h"
#include "restore/restore_arena.h"
#include "restore/stages.h"
#include "restore/verify/border_words.h"
#include "restore/verify/buffers.h"
#include "restore/verify/constant_samples.h"
#include "restore/verify/doubt.h"
#include "restore/verify/doubtful_words.h"
#include "restore/verify/effects.h"
#include "restore/verify/handed_copies.h"
#include "restore/verify/originals.h"
#include "restore/verify/twins.h"
#include "restore/verify/unbound_outputs.h"

/*
 * How many live replays are made from one state when a restored one differs: at least so many when they all agree, and
 * at most so many. With the first few of them, the restored graph is replayed as well. The time limit counts only once
 * there is enough evidence: 16 replays miss an outcome that comes every other time once in 65,536 times.
 */
#define LIVE_LEAST 3u
#define LIVE_ALONE 8u
#define LIVE_AGREE 16u
#define LIVE_MOST 32u
#define LIVE_MOST_NS 10000000000u
/* If all live replays agree, so many restored ones are made, each as the others. */
#define RESTORED_AGREE 8u

static uint64_t noise_seed = 0x6d65647573610001u;

/* ---- the restored twin; holds work ---- */

static enum md_status make_twin(struct md_restore *r, struct md_restore_graph *graph, uint64_t seed,
				struct md_restore_graph *twin, struct md_error *err)
{
	*twin = *graph;
	twin->graph = NULL;
	twin->exec = NULL;
	twin->events = NULL;
	twin->event_count = 0;
	md_restore_patch_noise(twin, seed);
	return md_restore_stages_run(md_restore_graph_stages, md_restore_graph_stage_count, r, twin, err);
}

/* All ranks launch it, and go on when all have ended. */
static enum md_status launch(CUgraphExec exec, struct md_verify_subject *subject, const char *kind, CUstream stream,
			     struct md_error *err)
{
	if (subject->lockstep.rank) /* what was put in place must be there before others write to it */
		MD_FORWARD(md_cuda_call(err, cuStreamSynchronize, stream));
	MD_FORWARD(md_lockstep_replay(&subject->lockstep, kind, err));
	return md_lockstep_replayed(&subject->lockstep, md_replay(exec, stream, &subject->usual_ns, err), err);
}

static enum md_status replay_live(CUgraphExec live, struct md_verify_subject *subject, CUstream stream,
				  struct md_error *err)
{
	md_note_phase("live replay");
	subject->replays++;
	MD_FORWARD(md_verify_handed_place(&subject->handed, &md_restore, err));
	MD_FORWARD(md_device_forget_maps(&subject->memory.session.device, stream, err));
	return launch(live, subject, "live", stream, err);
}

/*
 * Replays with poison in the engine's own copy of private memory:
 * values that hardly make a kernel fault which goes there.
 */
static enum md_status replay_restored(CUgraphExec exec, struct md_verify_subject *subject, uint8_t poison,
				      CUstream stream, struct md_error *err)
{
	struct md_error lost = {0};
	subject->replays++;
	MD_FORWARD(md_verify_handed_place(&subject->handed, &md_restore, err));
	enum md_status status = md_verify_originals_fill(&subject->originals, poison ? 0x01 : 0x00, err);
	if (status == MD_OK)
		status = md_device_forget_maps(&subject->memory.session.device, stream, err);
	if (status == MD_OK)
		status = launch(exec, subject, poison ? "restored, poisoned" : "restored", stream, err);
	if (md_verify_originals_put_back(&subject->originals, &lost) != MD_OK && status == MD_OK)
		status = md_error_set(err, lost.status, "%s", lost.message);
	return status;
}

/* If the replay breaks the engine, the note is all that is left. A trial has noted its words before. */
static void note_twin(const struct md_restore_graph *graph, uint8_t poison, uint64_t seed)
{
	const struct md_artifact_graph *stored = graph->stored;
	char text[MD_DOUBTFUL_TEXT + 256], doubtful[MD_DOUBTFUL_TEXT];
	if (graph->trial.set || graph->moved_count)
		return;
	int at = snprintf(text, sizeof(text), "restored replay, private memory 0x%02x, noise %s", poison,
			  seed ? "random" : "zero");
	if (stored->noise_count)
		at += snprintf(text + at, sizeof(text) - (size_t)at, " (%u pieces, the first: node %u, bytes %u..%u)",
			       stored->noise_count, stored->noise[0].node, stored->noise[0].at,
			       stored->noise[0].at + stored->noise[0].size - 1);
	if (stored->doubtful_count) {
		md_doubtful_describe(&stored->doubtful[0], doubtful);
		snprintf(text + at, sizeof(text) - (size_t)at, ", %u doubtful words unchanged, the first: %s",
			 stored->doubtful_count, doubtful);
	}
	md_note_phase(text);
}

/* True after a difference; the first one is kept. Any other failure ends the comparison. */
static bool goes_on(enum md_status status, struct md_error *now, struct md_error *first)
{
	if (status != MD_OK && (!first->status || (first->status == MD_ERR_MISMATCH && status != MD_ERR_MISMATCH)))
		*first = *now;
	*now = (struct md_error){0};
	return status == MD_OK || status == MD_ERR_MISMATCH;
}

/* Compares everything, even after a difference, because each difference is to be explained. */
static void compare_replayed(struct md_restore *r, const struct md_restore_graph *twin,
			     struct md_verify_subject *subject, struct md_error *first)
{
	struct md_error now = {0};
	struct md_error outside = {0};
	enum md_status status = md_verify_outputs_compare(&subject->outputs, r, twin->stored, &subject->bytes, &now);
	if (!goes_on(status, &now, first)) /* outputs come first, because the comparison puts bound memory back */
		return;
	status = md_verify_memory_compare(&subject->memory, r->stream, &subject->bytes, &now);
	if (!goes_on(status, &now, first))
		return;
	status = md_verify_memory_check_rest(&subject->memory, r->stream, &outside);
	if (status != MD_OK)
		md_error_set(&now, status, "outside of what the live graph writes: %s", outside.message);
	goes_on(status, &now, first);
}

/*
 * Makes one restored replay with the private memory and the noise bytes
 * at these values, and compares it with what the live graph left.
 */
static enum md_status compare_twin(struct md_restore *r, struct md_restore_graph *graph, uint8_t poison, uint64_t seed,
				   struct md_verify_subject *subject, struct md_error *err)
{
	struct md_restore_graph twin;
	struct md_error first = {0};
	note_twin(graph, poison, seed);
	enum md_status status = make_twin(r, graph, seed, &twin, &first);
	if (status == MD_OK && r->arena)
		status = md_cuda_call(&first, cuMemsetD8Async, r->arena, poison, r->artifact.arena_size, r->stream);
	if (status == MD_OK)
		status = md_restore_contents_place(r, &twin, true, &first);
	if (status == MD_OK)
		status = replay_restored(twin.exec, subject, poison, r->stream, &first);
	if (status == MD_OK)
		compare_replayed(r, &twin, subject, &first);
	md_restore_stages_undo(md_restore_graph_stages, md_restore_graph_stage_count, r, &twin);
	if (first.status != MD_OK)
		md_error_set(err, first.status, "private memory 0x%02x, noise %s: %s", poison, seed ? "random" : "zero",
			     first.message);
	return first.status;
}

/* Names the likeliest reason by far, which the engine's author can mend. */
static enum md_status suspect_contents(const struct md_restore *r, const struct md_restore_graph *graph,
				       struct md_error *err)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < graph->content_count; i++)
		bytes += r->artifact.contents[graph->contents[i]].size;
	if (err->status != MD_ERR_MISMATCH || !bytes)
		return err->status;
	struct md_error first = *err;
	return md_error_set(err, first.status,
			    "%s; %llu bytes of private memory are saved with it: if the engine writes some of them "
			    "between replays, it must bind them",
			    first.message, (unsigned long long)bytes);
}

/* Makes both comparisons, even if the first one differs. */
static enum md_status compare_twins(struct md_restore *r, struct md_restore_graph *graph,
				    struct md_verify_subject *subject, struct md_error *err)
{
	struct md_error now = {0}, first = {0};
	if (goes_on(compare_twin(r, graph, 0x00, 0, subject, &now), &now, &first))
		goes_on(compare_twin(r, graph, 0xff, noise_seed++, subject, &now), &now, &first);
	enum md_status status = md_verify_constants_check(&subject->memory, &now);
	subject->doubt.beyond |= status != MD_OK;
	goes_on(status, &now, &first);
	if (!first.status)
		return MD_OK;
	md_error_set(err, first.status, "%s", first.message);
	return suspect_contents(r, graph, err);
}

/*
 * Puts everything back, whatever the result. A live replay overwrites what restored ones left in sampled state, and
 * must leave what the first live one left: otherwise that state is not written idempotently, and nothing was shown.
 */
static enum md_status put_back(struct md_restore *r, CUgraphExec live, struct md_verify_subject *subject,
			       enum md_status status, struct md_error *err)
{
	struct md_verify_memory *memory = &subject->memory;
	struct md_error lost = {0};
	uint64_t unused = 0;
	enum md_status back = md_verify_memory_check_rest(memory, r->stream, &lost);
	if (back != MD_OK && status == MD_OK)
		status = md_error_set(err, back, "outside of what the live graph writes: %s", lost.message);
	if (!memory->sampled_count || (back != MD_OK && back != MD_ERR_MISMATCH))
		return status;
	lost = (struct md_error){0};
	back = replay_live(live, subject, r->stream, &lost);
	if (back == MD_OK)
		back = md_verify_memory_compare(memory, r->stream, &unused, &lost);
	if (back == MD_OK)
		return status;
	subject->doubt.beyond = true;
	if (back == MD_ERR_MISMATCH)
		return md_error_set(err, back,
				    "two live replays differ; state that is sampled may not be written idempotently: "
				    "%s",
				    lost.message);
	return status == MD_OK ? md_error_set(err, back, "%s", lost.message) : status;
}

/* ---- what differs may differ between live replays as well ---- */

static enum md_status take_again(struct md_restore *r, CUgraphExec exec, struct md_verify_subject *subject,
				 const CUdeviceptr *outputs, bool restored, struct md_error *err)
{
	enum md_status status =
	    restored ? replay_restored(exec, subject, 0, r->stream, err) : replay_live(exec, subject, r->stream, err);
	if (status == MD_OK)
		status = md_verify_doubt_take(&subject->doubt, &subject->memory, outputs, restored, r->stream, err);
	struct md_error changed = {0};
	enum md_status back = md_verify_memory_check_rest(&subject->memory, r->stream, &changed);
	if (status == MD_OK && back != MD_OK && back != MD_ERR_MISMATCH)
		status = md_error_set(err, back, "%s", changed.message);
	return status;
}

/* Makes another restored replay, with private memory as it was for the first one. */
static enum md_status restored_again(struct md_restore *r, struct md_restore_graph *twin,
				     struct md_verify_subject *subject, const CUdeviceptr *outputs,
				     struct md_error *err)
{
	if (r->arena)
		MD_FORWARD(md_cuda_call(err, cuMemsetD8Async, r->arena, 0, r->artifact.arena_size, r->stream));
	MD_FORWARD(md_restore_contents_place(r, twin, true, err));
	return take_again(r, twin->exec, subject, outputs, true, err);
}

static bool asks_more(const struct md_verify_doubt *doubt, uint64_t started_ns)
{
	enum md_doubt_answer answer = md_verify_doubt_ask(doubt);
	if (doubt->live_runs < LIVE_LEAST || answer == MD_DOUBT_ALL)
		return doubt->live_runs < LIVE_LEAST;
	if (doubt->live_runs < LIVE_AGREE)
		return true;
	return answer == MD_DOUBT_SOME && doubt->live_runs < LIVE_MOST && md_clock_ns() - started_ns < LIVE_MOST_NS;
}

/* addresses[0]: of the live graph's outputs; addresses[1]: of the restored one's. Freed by the caller. */
static bool list_outputs(const struct md_restore *r, const struct md_artifact_graph *stored,
			 const struct md_verify_subject *subject, CUdeviceptr *addresses[2])
{
	uint32_t count = subject->outputs.count;
	addresses[0] = calloc(2 * ((size_t)count + 1), sizeof(**addresses));
	if (!addresses[0])
		return false;
	addresses[1] = addresses[0] + count;
	for (uint32_t i = 0; i < count; i++) {
		if (!subject->outputs.live[i].size)
			continue;
		addresses[0][i] = subject->outputs.live[i].address;
		addresses[1][i] = md_verify_output_address(&subject->outputs, r, stored, i);
	}
	return true;
}

/* Replays until there is enough evidence. If something fails, the difference stands. */
static void gather(struct md_restore *r, struct md_restore_graph *graph, CUgraphExec live,
		   struct md_verify_subject *subject, CUdeviceptr *addresses[2])
{
	struct md_verify_doubt *doubt = &subject->doubt;
	struct md_restore_graph twin = {0};
	struct md_error lost = {0};
	uint64_t started = md_clock_ns();
	bool made = false;
	while (asks_more(doubt, started)) {
		if (take_again(r, live, subject, addresses[0], false, &lost) != MD_OK)
			break;
		if (doubt->live_runs < LIVE_ALONE || md_verify_doubt_ask(doubt) != MD_DOUBT_SOME)
			continue;
		if (!made && make_twin(r, graph, 0, &twin, &lost) != MD_OK)
			break;
		made = true;
		if (restored_again(r, &twin, subject, addresses[1], &lost) != MD_OK)
			break;
	}
	if (lost.status == MD_OK && md_verify_doubt_ask(doubt) == MD_DOUBT_NONE && !made)
		made = make_twin(r, graph, 0, &twin, &lost) == MD_OK;
	while (made && lost.status == MD_OK && md_verify_doubt_ask(doubt) == MD_DOUBT_NONE &&
	       !md_verify_doubt_unsteady(doubt) && doubt->restored_runs <= RESTORED_AGREE)
		restored_again(r, &twin, subject, addresses[1], &lost);
	doubt->beyond |= lost.status != MD_OK;
	if (made)
		md_restore_stages_undo(md_restore_graph_stages, md_restore_graph_stage_count, r, &twin);
}

/* Unlike bound memory, a counter in private memory is not put back between live replays. */
static void suspect_state(struct md_error *err)
{
	struct md_error first = *err;
	md_error_set(err, first.status,
		     "%s; if it keeps a counter or other state in unbound memory, the engine must bind that memory",
		     first.message);
}

/* Restored replays that are made alike differ: no memory explains that, so none is searched for. */
static void suspect_chance(const struct md_verify_doubt *doubt, struct md_error *err)
{
	struct md_error first = *err;
	md_error_set(err, first.status,
		     "%s; of what differed, %zu elements are not the same in all of %u restored replays either, which "
		     "were made alike, while %u live ones agree: chance decides, as when kernels of the graph do not "
		     "wait for each other",
		     first.message, md_verify_doubt_unsteady(doubt), doubt->restored_runs - 1, doubt->live_runs);
}

/* Replays both graphs from the same state again and again. MD_OK: all that differed is nondeterministic. */
static enum md_status look_again(struct md_restore *r, struct md_restore_graph *graph, CUgraphExec live,
				 struct md_verify_subject *subject, struct md_error *err)
{
	struct md_verify_doubt *doubt = &subject->doubt;
	CUdeviceptr *addresses[2] = {NULL, NULL};
	if (doubt->beyond || !doubt->count || graph->communicates ||
	    !list_outputs(r, graph->stored, subject, addresses))
		return err->status;
	gather(r, graph, live, subject, addresses);
	free(addresses[0]);
	enum md_doubt_answer answer = md_verify_doubt_ask(doubt);
	if (answer == MD_DOUBT_SOME)
		md_verify_doubt_say_some(doubt, &subject->memory, err);
	if (answer == MD_DOUBT_SOME && r->arena)
		suspect_state(err);
	if (answer == MD_DOUBT_NONE && md_verify_doubt_unsteady(doubt))
		suspect_chance(doubt, err);
	if (answer != MD_DOUBT_ALL)
		return err->status;
	md_verify_doubt_say_all(doubt, &subject->memory, err);
	subject->nondeterministic = true;
	return MD_OK;
}

/*
 * A live replay that changes nothing may write the values that are there already: so the outputs are filled with two
 * values, and it is replayed again each time. Everything is put back.
 */
static enum md_status look_for_effects(struct md_restore *r, const struct md_restore_graph *graph, CUgraphExec live,
				       struct md_verify_subject *subject, struct md_error *err)
{
	static const uint8_t values[] = {0x00, 0x01};
	struct md_verify_memory *memory = &subject->memory;
	bool handed = false;
	subject->effects |= md_verify_effects_seen(memory, r, graph->stored);
	MD_FORWARD(md_verify_handed_changed(&subject->handed, subject->outputs.bytes + subject->outputs.declared,
					    &handed, err));
	subject->effects |= handed;
	/* ranks that differ in this would not make the same replays */
	for (size_t i = 0; i < sizeof(values) && !subject->effects && !graph->communicates; i++) {
		struct md_error changed = {0};
		enum md_status status = md_verify_effects_fill(memory, values[i], r->stream, err);
		if (status == MD_OK)
			status = replay_live(live, subject, r->stream, err);
		if (status == MD_OK)
			status = md_verify_effects_found(memory, values[i], &subject->effects, err);
		enum md_status back = md_verify_memory_check_rest(memory, r->stream, &changed);
		if (status == MD_OK && back != MD_OK && back != MD_ERR_MISMATCH)
			status = md_error_set(err, back, "%s", changed.message);
		MD_FORWARD(status);
	}
	return MD_OK;
}

struct trial_user {
	struct md_restore *r;
	struct md_verify_subject *subject;
};

static enum md_status compare_trial(void *user, struct md_restore_graph *graph, bool other_noise, struct md_error *err)
{
	const struct trial_user *trial = user;
	MD_FORWARD(compare_twin(trial->r, graph, other_noise ? 0xff : 0x00, other_noise ? noise_seed++ : 0,
				trial->subject, err));
	return md_verify_constants_check(&trial->subject->memory, err);
}

static enum md_status prove_words(struct md_restore *r, struct md_restore_graph *graph,
				  struct md_verify_subject *subject, struct md_error *err)
{
	struct trial_user user = {r, subject};
	const struct md_verify_replays replays = {&subject->memory.session.device, compare_trial, &user};
	/* what one rank tries would change the outputs of the others: such words refuse the graph, and neighbours stay so */
	if (graph->communicates && graph->stored->doubtful_count)
		return md_error_set(err, MD_ERR_UNPROVABLE, "it communicates, and has words whose meaning is in doubt");
	if (graph->communicates)
		return MD_OK;
	MD_FORWARD(md_verify_words_prove(r, graph, &replays, err));
	return md_verify_borders_prove(r, graph, &replays, err);
}

static enum md_status compare_both(void *user, struct md_restore_graph *graph, struct md_error *err)
{
	MD_FORWARD(compare_trial(user, graph, false, err));
	return compare_trial(user, graph, true, err);
}

/* If live replays agree: finds whether the graph goes to the engine's own copy of private memory. */
static enum md_status suspect_originals(struct md_restore *r, struct md_restore_graph *graph, CUgraphExec live,
					struct md_verify_subject *subject, struct md_error *err)
    MD_REQUIRES(md_verify_table_lock)
{
	struct trial_user user = {r, subject};
	struct md_error lost = {0};
	if (err->status != MD_ERR_MISMATCH || graph->communicates ||
	    md_verify_doubt_ask(&subject->doubt) == MD_DOUBT_SOME || md_verify_doubt_unsteady(&subject->doubt))
		return err->status;
	md_verify_originals_suspect(&subject->originals, r, graph, compare_both, &user, err);
	put_back(r, live, subject, MD_ERR_MISMATCH, &lost);
	return err->status;
}

static enum md_status compare(struct md_restore *r, struct md_restore_graph *graph, CUgraphExec live,
			      struct md_verify_subject *subject, struct md_error *err) MD_REQUIRES(md_verify_table_lock)
{
	struct md_verify_memory *memory = &subject->memory;
	MD_FORWARD(md_verify_constants_check(memory, err));
	MD_FORWARD(md_verify_memory_save(memory, r->stream, err));
	MD_FORWARD(md_verify_handed_load(&subject->handed, &memory->session.device, err));
	enum md_status status = replay_live(live, subject, r->stream, err);
	if (status == MD_OK) /* first, because taking bound memory puts it back */
		status = md_verify_outputs_take(&subject->outputs, &memory->session.device, err);
	if (status == MD_OK)
		status = md_verify_memory_take_live(memory, r->stream, err);
	if (status == MD_OK)
		status = look_for_effects(r, graph, live, subject, err);
	memory->doubt = subject->outputs.doubt = &subject->doubt;
	if (status != MD_OK)
		md_error_prefix(err, "live replay");
	else
		status = compare_twins(r, graph, subject, err);
	memory->doubt = subject->outputs.doubt = NULL;
	if (status == MD_OK)
		status = prove_words(r, graph, subject, err);
	status = put_back(r, live, subject, status, err);
	if (status == MD_ERR_MISMATCH)
		status = look_again(r, graph, live, subject, err);
	return status == MD_OK ? status : suspect_originals(r, graph, live, subject, err);
}

enum md_status md_verify_twins_compare(struct md_restore *r, struct md_restore_graph *graph, CUgraphExec live,
				       struct md_verify_subject *subject, struct md_error *err)
{
	struct md_error lost = {0};
	enum md_status status = compare(r, graph, live, subject, err);
	if (md_verify_handed_put_back(&subject->handed, r, &lost) == MD_OK || status != MD_OK)
		return status;
	return md_error_set(err, lost.status, "%s", lost.message);
}
