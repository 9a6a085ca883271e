/* SPDX-License-Identifier: Apache-2.0 */
/* The poison test: finds, by replaying with private memory overwritten, the contents that a graph's
 * outputs depend on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/note.h"
#include "capture/probe/copies.h"
#include "capture/probe/handed.h"
#include "capture/probe/poison.h"
#include "capture/probe/poison_test.h"
#include "capture/probe/probe_replay.h"
#include "capture/probe/probe_variables.h"
#include "capture/probe/regions.h"
#include "capture/probe/spread.h"
#include "capture/probe/unread.h"
#include "capture/probe/written.h"
#include "capture/record/constant_hashes.h"
#include "capture/record/given.h"
#include "capture/record/graphs.h"
#include "capture/record/module_variables.h"
#include "capture/record/updates.h"
#include "capture/session/by_rank.h"
#include "driver/replay_watch.h"

/*
 * Patterns, mildest first. A word of private memory may be an index, and a wrong index may fault: zero is the safest
 * one, then one; only what survived both without changing the outputs is filled with 0xff. A fault is still possible (a
 * kernel that computes an address from such a word): it breaks the engine's context, as no driver lets us take it back.
 * A semaphore that a kernel waits for could even hang. Either is noted (base/note.h), and the command starts the engine
 * again with this graph's test left out.
 */
static const uint32_t patterns[] = {0x00000000, 0x00000001, 0xffffffff};
#define PATTERNS (sizeof(patterns) / sizeof(patterns[0]))

#define COARSE_BYTES 4096
#define FINE_BYTES 256
#define MAX_REFINED 16 /* up to so many coarse units are cut finer */
#define RUN_TRUSTED 8  /* after so many needed units in a row, the next ones are taken several at a time */
#define PROBE_NS 30000000000ull

/* ---- search ---- */

static bool replay_equal(struct md_capture_probe *probe, size_t from, size_t to, bool *equal, enum md_status *status,
			 struct md_error *err)
{
	*status = md_capture_probe_replay(probe, from, to, equal, err);
	return *status == MD_OK && *equal;
}

/* How many units are kept at a time: the longer the run of needed units so far, the more. */
static size_t run_width(size_t run)
{
	return run < RUN_TRUSTED ? 1 : run / 4;
}

/*
 * The first unit of [from, to) that changes the outputs when all units from `from` up to it are poisoned. The
 * neighbours are tried first, then units further and further away, and then the search bisects. It is known that the
 * outputs change when the whole range is poisoned.
 */
static enum md_status find_first(struct md_capture_probe *probe, size_t from, size_t to, size_t width, size_t *found,
				 struct md_error *err)
{
	size_t low = from, high = to;
	enum md_status status = MD_OK;
	bool equal;
	for (size_t step = width; from + step < to; step *= 2) {
		if (!replay_equal(probe, from, from + step, &equal, &status, err)) {
			MD_FORWARD(status);
			high = from + step;
			break;
		}
		low = from + step;
	}
	while (high - low > 1 && (low > from || high > from + width)) {
		size_t middle = low + (high - low) / 2;
		if (replay_equal(probe, from, middle, &equal, &status, err))
			low = middle;
		else
			high = middle;
		MD_FORWARD(status);
	}
	*found = low;
	return MD_OK;
}

/* Keeps the units of [from, to) that change the outputs when they are poisoned while all else is as it was. */
static enum md_status search(struct md_capture_probe *probe, size_t from, size_t to, bool differs, struct md_error *err)
{
	size_t run = 0;
	for (;; differs = false) {
		size_t found, width = run_width(run);
		bool equal = false;
		while (from < to && probe->units[from].keep)
			from++;
		while (from < to && probe->units[to - 1].keep)
			to--;
		if (from >= to)
			return MD_OK;
		if (!differs)
			MD_FORWARD(md_capture_probe_replay(probe, from, to, &equal, err));
		if (equal)
			return MD_OK;
		MD_FORWARD(find_first(probe, from, to, width, &found, err));
		run = found == from ? run + width : 0;
		if (found > from)
			width = 1;
		/* a run tells nothing about units elsewhere */
		for (from = found; from < found + width && from < to; from++) {
			if (probe->units[from].region != probe->units[found].region)
				break;
			probe->units[from].keep = true;
		}
	}
}

static size_t kept(const struct md_capture_probe *probe)
{
	size_t count = 0;
	for (size_t i = 0; i < probe->unit_count; i++)
		count += probe->units[i].keep;
	return count;
}

/*
 * When a graph is first found to be nondeterministic and the user accepts a tolerance, the test starts again, by spans.
 */
static enum md_status check_deterministic(struct md_capture_probe *probe, struct md_error *err)
{
	const char *note =
	    probe->sampled_count
		? "; part of the state is too large to be put back, and the graph may not write it idempotently"
		: "";
	bool equal;
	MD_FORWARD(md_capture_probe_replay(probe, 0, 0, &equal, err));
	if (equal)
		return MD_OK;
	if (probe->spread)
		return md_error_set(
		    err, MD_ERR_UNPROVABLE,
		    "two more replays of the same state give outputs outside of the span of the earlier replays%s",
		    note);
	probe->spread =
	    probe->tolerance.given && !probe->communicates; /* what several replays span is each rank's own */
	return md_error_set(err, MD_ERR_UNPROVABLE,
			    "two replays of the same state give different outputs%s; --nondeterministic ULPS[:TYPE] "
			    "accepts such a graph within a tolerance",
			    note);
}

/* Tries each pattern in all of private memory, and searches where a pattern changes the outputs. */
static enum md_status search_whole(struct md_capture_probe *probe, bool *searched, struct md_error *err)
{
	*searched = false;
	for (size_t i = 0; i < PATTERNS; i++) {
		bool equal;
		MD_FORWARD(md_capture_probe_prepare_poison(probe, patterns[i], err));
		MD_FORWARD(md_capture_probe_replay(probe, 0, probe->unit_count, &equal, err));
		if (equal && !*searched)
			MD_FORWARD(md_capture_written_look(probe, err));
		if (equal)
			continue;
		if (!*searched)
			MD_FORWARD(check_deterministic(probe, err));
		*searched = true;
		MD_FORWARD(search(probe, 0, probe->unit_count, true, err));
	}
	return MD_OK;
}

static enum md_status confirm(struct md_capture_probe *probe, struct md_error *err)
{
	bool equal;
	md_capture_written_drop(probe);
	for (size_t i = 0; i < PATTERNS; i++) {
		MD_FORWARD(md_capture_probe_prepare_poison(probe, patterns[i], err));
		MD_FORWARD(md_capture_probe_replay(probe, 0, probe->unit_count, &equal, err));
		if (equal)
			MD_FORWARD(md_capture_written_look(probe, err));
		if (!equal)
			return md_error_set(err, MD_ERR_UNPROVABLE,
					    "outputs still change when private memory is filled with %08x, although "
					    "%zu parts keep their contents",
					    patterns[i], kept(probe));
	}
	return MD_OK;
}

static size_t list_coarse(const struct md_capture_probe *probe, struct md_probe_unit parts[MAX_REFINED])
{
	size_t count = 0;
	for (size_t i = 0; i < probe->unit_count; i++) {
		const struct md_probe_unit *unit = &probe->units[i];
		if (!unit->keep || unit->known || unit->size <= FINE_BYTES)
			continue;
		if (count == MAX_REFINED)
			return 0;
		parts[count++] = *unit;
	}
	return count;
}

static bool lies_in(const struct md_probe_unit *unit, const struct md_probe_unit *part)
{
	return unit->region == part->region && unit->offset >= part->offset && unit->offset - part->offset < part->size;
}

/* Searches inside a coarse unit. A coarse unit that no single fine part explains is kept whole. */
static enum md_status refine_part(struct md_capture_probe *probe, const struct md_probe_unit *part,
				  struct md_error *err)
{
	size_t from = 0, to, found = 0;
	while (!lies_in(&probe->units[from], part))
		from++;
	for (to = from; to < probe->unit_count && lies_in(&probe->units[to], part);)
		to++;
	for (size_t i = 0; i < PATTERNS; i++) {
		MD_FORWARD(md_capture_probe_prepare_poison(probe, patterns[i], err));
		MD_FORWARD(search(probe, from, to, false, err));
	}
	for (size_t at = from; at < to; at++)
		found += probe->units[at].keep;
	for (size_t at = from; !found && at < to; at++)
		probe->units[at].keep = true;
	return MD_OK;
}

static enum md_status refine(struct md_capture_probe *probe, struct md_error *err) MD_CAPTURE_HELD
{
	struct md_probe_unit parts[MAX_REFINED];
	size_t count = list_coarse(probe, parts);
	if (!count)
		return MD_OK;
	MD_FORWARD(md_capture_probe_cut(probe, FINE_BYTES, err));
	for (size_t i = 0; i < count; i++)
		MD_FORWARD(refine_part(probe, &parts[i], err));
	return MD_OK;
}

/* ---- outcome ---- */

static void put_content(const struct md_capture_probe *probe, const struct md_probe_region *region, uint64_t offset,
			uint64_t size) MD_CAPTURE_HELD
{
	MD_AUTO_FREE uint8_t *bytes = malloc(size);
	struct md_error err = {0};
	if (!bytes)
		md_capture_trouble("out of memory for %llu bytes of contents", (unsigned long long)size);
	else if (md_capture_copy_read(probe->session, region->copy, offset, size, bytes, &err) != MD_OK)
		md_capture_trouble("contents cannot be saved: %s", err.message);
	else
		md_trace_put_content(md_capture.writer, md_capture_next(), region->address + offset, size, bytes);
	if (bytes)
		md_capture_given_watch_words(bytes, size);
}

static bool is_put(const struct md_probe_unit *unit, bool anew)
{
	return unit->keep && !(anew && unit->known);
}

void md_capture_probe_put_contents(const struct md_capture_probe *probe, bool anew)
{
	for (size_t i = 0; i < probe->unit_count;) {
		const struct md_probe_unit *first = &probe->units[i];
		const struct md_probe_region *region = &probe->regions[first->region];
		uint64_t size = 0;
		if (!is_put(first, anew)) {
			i++;
			continue;
		}
		while (i < probe->unit_count && is_put(&probe->units[i], anew) &&
		       probe->units[i].region == first->region)
			size += probe->units[i++].size;
		put_content(probe, region, first->offset, size);
	}
	if (kept(probe))
		md_capture_constants_needed();
}

static enum md_status test(struct md_capture_probe *probe, struct md_error *err) MD_CAPTURE_HELD
{
	bool searched;
	md_capture_written_drop(probe);
	MD_FORWARD(md_capture_probe_cut(probe, COARSE_BYTES, err));
	MD_FORWARD(md_capture_probe_first_replay(probe, err));
	if (probe->spread)
		MD_FORWARD(md_capture_spread_gather(probe, err));
	MD_FORWARD(search_whole(probe, &searched, err));
	if (!searched)
		return MD_OK;
	MD_FORWARD(refine(probe, err));
	return confirm(probe, err);
}

/* Starts the test again. keep: needed units that were found stay, but may not be all. */
static void start_over(struct md_capture_probe *probe, bool keep)
{
	for (size_t i = 0; i < probe->unit_count; i++)
		probe->units[i].known = probe->units[i].keep;
	if (keep)
		return;
	free(probe->units);
	probe->units = NULL;
	probe->unit_count = 0;
}

static enum md_status run_probe(struct md_capture_probe *probe, const struct md_capture_graph *graph,
				struct md_error *err) MD_CAPTURE_HELD
{
	enum md_status status;
	MD_FORWARD(md_cuda_call(err, cuCtxSynchronize));
	MD_FORWARD(md_capture_probe_collect(probe, graph, err));
	status = md_capture_probe_settle(probe, test(probe, err), err);
	if (probe->spread && !probe->broken) {
		md_debug("graph %llu is not deterministic", (unsigned long long)graph->id);
		start_over(probe, false);
		*err = (struct md_error){0};
		status = md_capture_probe_settle(probe, test(probe, err), err);
	}
	if (!probe->strayed || probe->broken)
		return status;
	/*
	 * Poison made the graph write where the test did not look, so
	 * the outcome can't be trusted: now the test looks everywhere.
	 */
	md_debug("graph %llu writes to other places when its private memory is poisoned",
		 (unsigned long long)graph->id);
	probe->thorough = true;
	start_over(probe, status == MD_OK);
	*err = (struct md_error){0};
	return md_capture_probe_settle(probe, test(probe, err), err);
}

enum md_status md_capture_probe_again(struct md_capture_probe *probe, const struct md_capture_graph *graph,
				      struct md_error *err)
{
	probe->started_ns = md_clock_ns();
	probe->deadline_ns = probe->started_ns + PROBE_NS;
	probe->tolerance = md_capture_tolerance();
	return run_probe(probe, graph, err);
}

/* "kv: 134538092544 bytes, sampled"; empty when everything was compared whole. */
static void name_sampled(const struct md_capture_probe *probe, char *text, size_t size)
{
	const struct md_probe_region *first = NULL;
	uint64_t bytes = 0;
	*text = '\0';
	for (uint32_t i = 0; i < probe->region_count; i++) {
		if (probe->regions[i].kind != MD_PROBE_REGION_SAMPLED)
			continue;
		first = first ? first : &probe->regions[i];
		bytes += probe->regions[i].size;
	}
	if (probe->sampled_count == 1)
		snprintf(text, size, "%.128s: %llu bytes, sampled", first->name, (unsigned long long)bytes);
	else if (first)
		snprintf(text, size, "%.128s and %u more: %llu bytes, sampled", first->name, probe->sampled_count - 1,
			 (unsigned long long)bytes);
}

static void put_outcome(const struct md_capture_probe *probe, struct md_capture_graph *graph, enum md_status status,
			const struct md_error *err) MD_CAPTURE_HELD
{
	enum md_probe_result result = status != MD_OK ? MD_PROBE_FAILED
				      : kept(probe)   ? MD_PROBE_CONTENT_SAVED
						      : MD_PROBE_CLEAN;
	char sampled[256];
	const char *why;
	md_capture_probe_say_written(probe, graph);
	/* Without a known output nothing can be shown: such a graph stays "not tested". */
	if (status == MD_ERR_NOT_FOUND)
		return;
	if (probe->broken)
		md_error_log("the poison test of graph %llu broke the context (%s); medusa-capture repeats the run "
			     "without it",
			     (unsigned long long)graph->id, err->message);
	if (result == MD_PROBE_CONTENT_SAVED)
		md_capture_probe_put_contents(probe, false);
	if (result != MD_PROBE_FAILED) {
		md_capture_written_put(probe, graph);
		md_capture_handed_learn(probe, graph->id);
		md_capture_probe_learn(probe);
	}
	if (result != MD_PROBE_FAILED && probe->spread)
		md_trace_put_tolerance(md_capture.writer, md_capture_next(), graph->id, &probe->tolerance);
	if (graph->communicates && !graph->refused)
		md_trace_put_together(md_capture.writer, md_capture_next(), graph->id,
				      result == MD_PROBE_FAILED ? err->message : NULL);
	name_sampled(probe, sampled, sizeof(sampled));
	why = status != MD_OK ? err->message : sampled[0] ? sampled : NULL;
	md_debug("graph %llu: probe %d after %u replays, %.3f s, %zu parts kept%s%s", (unsigned long long)graph->id,
		 (int)result, probe->replays, (double)(md_clock_ns() - probe->started_ns) / 1e9, kept(probe),
		 why ? ": " : "", why ? why : "");
	md_trace_put_probe(md_capture.writer, md_capture_next(), graph->id, result, why);
}

static void end_session(struct md_probe_session *session) MD_CAPTURE_HELD
{
	CUcontext popped;
	bool pushed = session->device.open && md_cuda.cuCtxPushCurrent_v2(session->device.context) == CUDA_SUCCESS;
	md_capture_session_close(session);
	if (pushed)
		md_cuda.cuCtxPopCurrent_v2(&popped);
}

/* together: all ranks are about to launch the graph. */
static bool is_due(const struct md_capture_graph *graph, bool together) MD_CAPTURE_HELD
{
	if (graph->communicates && !together)
		return false;
	return !graph->probed && !graph->refused && graph->exec && md_capture.options.probe && md_capture.writer &&
	       !atomic_load(&md_capture.capturing);
}

static enum md_status test_alone(struct md_probe_session *session, struct md_capture_probe *probe,
				 const struct md_capture_graph *graph, struct md_error *err) MD_CAPTURE_HELD
{
	if (graph->pageable)
		return md_error_set(err, MD_ERR_UNPROVABLE,
				    "a memcpy node writes host memory that is not registered, which the poison test "
				    "could not put back");
	if (!session->device.open)
		MD_FORWARD(md_capture_session_open(session, err));
	return run_probe(probe, graph, err);
}

static enum md_status test_graph(struct md_probe_session *session, struct md_capture_probe *probe,
				 const struct md_capture_graph *graph, struct md_error *err) MD_CAPTURE_HELD
{
	if (!graph->communicates)
		return test_alone(session, probe, graph, err);
	MD_FORWARD(md_lockstep_begin(&probe->lockstep, md_capture_together(), "the poison test",
				     graph->label ? graph->label : "number",
				     graph->label ? graph->batch : (unsigned)graph->id, err));
	return md_lockstep_end(&probe->lockstep, test_alone(session, probe, graph, err), err);
}

/* The command knows from an earlier run that this test breaks the engine. */
static bool is_left_out(const struct md_capture_graph *graph, const struct md_note_of *of) MD_CAPTURE_HELD
{
	const char *why = md_note_left_out(of);
	if (why)
		md_trace_put_probe(md_capture.writer, md_capture_next(), graph->id, MD_PROBE_FAILED, why);
	return why != NULL;
}

/* Notes what is about to be tried, because a test that breaks may end the process. */
static enum md_status test_noted(struct md_probe_session *session, struct md_capture_probe *probe,
				 const struct md_capture_graph *graph, const struct md_note_of *of,
				 struct md_error *err) MD_CAPTURE_HELD
{
	enum md_status status;
	md_note_begin(of, "");
	status = test_graph(session, probe, graph, err);
	if (probe->broken)
		md_replay_check_context(err);
	md_note_end();
	return status;
}

/* What was found before the first replay: all ranks launch the graph together, as its nodes alone did not tell. */
static void await_ranks(struct md_probe_session *session, struct md_capture_graph *graph,
			struct md_capture_probe *probe, const struct md_error *why) MD_CAPTURE_HELD
{
	CUcontext popped;
	md_capture_probe_release(probe);
	if (probe->broken)
		md_capture_session_close(session);
	md_cuda.cuCtxPopCurrent_v2(&popped);
	graph->communicates = true;
	graph->probed = !md_capture_together();
	graph->refused |= graph->probed;
	md_trace_put_together(md_capture.writer, md_capture_next(), graph->id, why->message);
}

/*
 * The lock is held, so allocations and frees of other threads wait until all memory is back in place. The session
 * serves the next graph of the same context, too, because its copies still equal the memory.
 */
static void probe_graph(struct md_probe_session *session, struct md_capture_graph *graph, bool together) MD_CAPTURE_HELD
{
	struct md_capture_probe probe = {.exec = graph->exec,
					 .communicates = graph->communicates,
					 .outputs = graph->outputs,
					 .output_count = graph->output_count,
					 .session = session,
					 .tolerance = md_capture_tolerance(),
					 .started_ns = md_clock_ns()};
	const struct md_note_of of = {MD_NOTE_POISON, graph->label, graph->batch, graph->id};
	struct md_error err = {0};
	CUcontext popped;
	if (!is_due(graph, together) || md_cuda.cuCtxPushCurrent_v2(graph->context))
		return;
	if (session->device.context != graph->context)
		end_session(session);
	graph->probed = true;
	probe.deadline_ns = probe.started_ns + PROBE_NS;
	if (!is_left_out(graph, &of)) {
		enum md_status status = test_noted(session, &probe, graph, &of, &err);
		if (probe.reaches_ranks && !graph->communicates) {
			await_ranks(session, graph, &probe, &err);
			if (together)
				probe_graph(session, graph, true);
			return;
		}
		put_outcome(&probe, graph, status, &err);
		graph->tested = status == MD_OK ? md_capture_next() : 0;
		graph->silent =
		    (status == MD_OK || status == MD_ERR_NOT_FOUND) && !graph->output_count && !probe.changed;
		md_capture_probe_release(&probe);
	}
	if (probe.broken)
		md_capture_session_close(session);
	md_cuda.cuCtxPopCurrent_v2(&popped);
}

static void save_unread(struct md_probe_session *session, const struct md_capture_graph *graph) MD_CAPTURE_HELD
{
	CUcontext popped;
	if (md_cuda.cuCtxPushCurrent_v2(graph->context))
		return;
	md_capture_unread_put(session);
	md_cuda.cuCtxPopCurrent_v2(&popped);
}

/*
 * The writers of memory that graphs read are looked for once all
 * graphs are tested that will be; so is the memory beside contents.
 */
static void check_handed(struct md_probe_session *session, CUcontext context) MD_CAPTURE_HELD
{
	struct md_capture_graph *graph, *last = NULL;
	CUcontext popped;
	for (size_t i = 0; (graph = md_capture_graph_at(i)); i++) {
		if (!graph->exec || (context && graph->context != context) ||
		    md_cuda.cuCtxPushCurrent_v2(graph->context))
			continue;
		if (session->device.context != graph->context)
			end_session(session);
		md_capture_handed_check(session, graph->context);
		md_cuda.cuCtxPopCurrent_v2(&popped);
		last = graph;
	}
	if (last)
		save_unread(session, last);
}

void md_capture_probe_exec(CUgraphExec exec)
{
	struct md_probe_session session = {0};
	struct md_capture_graph *graph;
	size_t needed;
	md_capture_variables_check();
	md_capture_lock();
	needed = md_capture_probe_needed()->count;
	graph = md_capture_graph_of(exec);
	if (graph)
		md_capture_graph_flush(graph);
	if (graph)
		probe_graph(&session, graph, true);
	if (graph && needed != md_capture_probe_needed()->count) /* the engine may free this memory before the end */
		save_unread(&session, graph);
	end_session(&session);
	md_capture_constants_put(MD_CONSTANTS_NEW);
	md_capture_unlock();
	md_capture_variables_check(); /* a kernel that writes one shows by what its replays have left */
}

/*
 * The last chance to see what the graph writes. Of the other
 * graphs, those count of which the engine has said everything.
 */
void md_capture_probe_leaving(CUgraphExec exec)
{
	struct md_probe_session session = {0};
	struct md_capture_graph *leaving, *graph;
	md_capture_lock();
	leaving = md_capture_graph_of(exec);
	for (size_t i = 0; leaving && (graph = md_capture_graph_at(i)); i++)
		if (graph == leaving || (leaving->labelled && graph->labelled && graph->context == leaving->context))
			probe_graph(&session, graph, false);
	if (leaving && !atomic_load(&md_capture.capturing))
		check_handed(&session, leaving->context);
	end_session(&session);
	md_capture_unlock();
}
void md_capture_probe_context(CUcontext context)
{
	struct md_probe_session session = {0};
	struct md_capture_graph *graph;
	md_capture_variables_check();
	md_capture_lock();
	for (size_t i = 0; (graph = md_capture_graph_at(i)); i++) {
		if (context && graph->context != context)
			continue;
		md_capture_graph_flush(graph);
		probe_graph(&session, graph, false);
	}
	check_handed(&session, context);
	end_session(&session);
	md_capture_session_drop(context);
	md_capture_constants_put(MD_CONSTANTS_NEW);
	md_capture_unlock();
	md_capture_variables_check(); /* a kernel that writes one shows by what its replays have left */
}
