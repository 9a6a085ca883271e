/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the graphs that write unbound memory which others read: each graph is replayed, and its changes are looked at.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/note.h"
#include "capture/probe/copies.h"
#include "capture/probe/handed.h"
#include "capture/probe/handed_trial.h"
#include "capture/probe/ranks_memory.h"
#include "capture/probe/known.h"
#include "capture/probe/poison.h"
#include "capture/probe/probe_replay.h"
#include "capture/record/graphs.h"
#include "capture/record/made.h"

#define MOST_RUNS 64 /* runs of written bytes in one part; the rest of a more scattered part is told as one run */

static struct md_interest *interests MD_CAPTURE_GUARDED;
static size_t interest_count MD_CAPTURE_GUARDED, interest_room MD_CAPTURE_GUARDED;

const struct md_interest *md_capture_interests(size_t *count)
{
	*count = interest_count;
	return interests;
}

static bool is_there(const struct md_interest *interest) MD_CAPTURE_HELD
{
	for (size_t i = 0; interest->graph && i < interest_count; i++)
		if (interests[i].graph == interest->graph && interests[i].known <= interest->known &&
		    interest->address >= interests[i].address &&
		    interest->address - interests[i].address < interests[i].size &&
		    interest->size <= interests[i].size - (interest->address - interests[i].address))
			return true;
	return false;
}

static void add(struct md_interest interest) MD_CAPTURE_HELD
{
	if (is_there(&interest))
		return;
	if (!MD_ARRAY_GROW(interests, interest_count, interest_room))
		return md_capture_trouble("out of memory for what graphs read");
	interests[interest_count++] = interest;
}

void md_capture_handed_learn(const struct md_capture_probe *probe, uint64_t graph)
{
	for (size_t i = 0; i < probe->unit_count;) {
		const struct md_probe_unit *first = &probe->units[i];
		uint64_t size = 0;
		if (!first->keep) {
			i++;
			continue;
		}
		for (; i < probe->unit_count && probe->units[i].keep && probe->units[i].region == first->region &&
		       probe->units[i].known == first->known;
		     i++)
			size += probe->units[i].size;
		add((struct md_interest){
		    .address = probe->regions[first->region].address + first->offset,
		    .size = size,
		    .graph = graph,
		    .known = first->known,
		    .table = md_capture_ranks_memory_lists(&probe->regions[first->region], first->offset, size)});
	}
}

static void take_touches(void) MD_CAPTURE_HELD
{
	struct md_capture_touch *touch;
	for (size_t i = 0; (touch = md_capture_touch_at(i)); i++) {
		if (touch->writes || touch->checked == touch->last)
			continue;
		touch->checked = touch->last;
		add((struct md_interest){
		    .address = touch->address, .size = touch->size, .call = touch->call, .sequence = touch->last});
	}
}

/* ---- whether a graph needs what it has kept without a test ---- */

/* Finds in one test which part of such memory the graph needs. */
static void settle_known(struct md_probe_session *session, const struct md_capture_graph *graph) MD_CAPTURE_HELD
{
	size_t count = 0;
	MD_AUTO_FREE struct md_interest **places = calloc(interest_count + 1, sizeof(*places));
	MD_AUTO_FREE bool *needed = calloc(interest_count + 1, sizeof(*needed));
	if (!graph->exec || !graph->tested || graph->communicates || !places || !needed ||
	    !md_capture_has_its_memory(graph))
		return;
	for (size_t i = 0; i < interest_count; i++)
		if (interests[i].graph == graph->id && interests[i].known)
			places[count++] = &interests[i];
	if (!count)
		return;
	md_capture_known_ask(session, graph, places, count, needed);
	for (size_t i = 0; i < count; i++) {
		places[i]->known = false;
		if (!needed[i])
			places[i]->size = 0; /* no longer an interest */
	}
}

/* In doubt, the graph needs it. */
static bool is_needed(struct md_probe_session *session, size_t index) MD_CAPTURE_HELD
{
	const struct md_capture_graph *graph = md_capture_graph_at(interests[index].graph - 1);
	if (interests[index].known && graph)
		settle_known(session, graph);
	return interests[index].size != 0;
}

/* ---- what was found ---- */

static bool any_written(const struct md_handed_spot *spot)
{
	return memchr(spot->written, 1, spot->size) != NULL;
}

/* The engine has copied from that memory after the graph was made. */
static void put_read(const struct md_capture_graph *graph, const struct md_interest *by) MD_CAPTURE_HELD
{
	struct md_trace_handed handed = {0, graph->id, (char *)by->call, by->address, by->size, 0};
	if (by->sequence >= graph->made)
		md_trace_put_handed(md_capture.writer, md_capture_next(), &handed);
}

/* The next run of written bytes from *at on. The last run of a very scattered part is its whole rest. */
static bool next_run(const struct md_handed_spot *spot, unsigned runs, uint64_t *at, uint64_t *end)
{
	const uint8_t *written = spot->written, *first = memchr(written + *at, 1, spot->size - *at), *last;
	*at = first ? (uint64_t)(first - written) : spot->size;
	last = runs + 1 < MOST_RUNS ? memchr(written + *at, 0, spot->size - *at) : NULL;
	*end = last ? (uint64_t)(last - written) : spot->size;
	return *end > *at;
}

static void put_handed(const struct md_capture_graph *writer, uint64_t reader,
		       const struct md_handed_spot *spot) MD_CAPTURE_HELD
{
	struct md_trace_handed handed = {.reader = reader, .writer = writer->id};
	uint64_t at = 0, end;
	md_trace_put_handed(md_capture.writer, md_capture_next(), &handed); /* whatever bytes */
	for (unsigned runs = 0; spot->written && next_run(spot, runs, &at, &end); runs++, at = end) {
		handed.address = spot->address + at;
		handed.size = end - at;
		md_trace_put_handed(md_capture.writer, md_capture_next(), &handed);
	}
}

static bool is_handed(const struct md_capture_graph *graph, uint64_t address, uint64_t size)
{
	for (size_t i = 0; i < graph->handed_count; i++)
		if (address >= graph->handed[i].address && address - graph->handed[i].address < graph->handed[i].size &&
		    size <= graph->handed[i].size - (address - graph->handed[i].address))
			return true;
	return false;
}

/* Bytes that others read are outputs of the graph, and bytes that it needs for them are among its inputs. */
static void add_handed(struct md_capture_graph *graph, const struct md_handed_spot *spot)
{
	uint64_t at = 0, end;
	for (unsigned runs = 0; next_run(spot, runs, &at, &end); runs++, at = end) {
		if (is_handed(graph, spot->address + at, end - at))
			continue;
		if (!MD_ARRAY_EXTEND(graph->handed, graph->handed_count))
			return md_capture_trouble("out of memory for what graphs hand on");
		graph->handed[graph->handed_count++] = (struct md_capture_output){0, spot->address + at, end - at};
	}
}

/* The part of an interest that lies in a spot, if the graph writes any of it. */
static bool cut_out(const struct md_handed_spot *spot, const struct md_interest *what, struct md_handed_spot *part)
{
	uint64_t from = what->address > spot->address ? what->address : spot->address;
	uint64_t to = what->address + what->size < spot->address + spot->size ? what->address + what->size
									      : spot->address + spot->size;
	if (from >= to)
		return false;
	*part = *spot;
	part->address = from;
	part->size = to - from;
	part->written += from - spot->address;
	return any_written(part);
}

static void conclude_spot(struct md_probe_session *session, struct md_capture_graph *graph,
			  const struct md_handed_spot *spot, size_t count) MD_CAPTURE_HELD
{
	struct md_handed_spot part;
	for (size_t i = graph->handed_seen; i < count; i++) {
		struct md_interest what = interests[i];
		if (!md_handed_matters(&what, graph) || !cut_out(spot, &what, &part))
			continue;
		if (!what.graph)
			put_read(graph, &what);
		else if (is_needed(session, i)) {
			put_handed(graph, what.graph, &part);
			add_handed(graph, &part);
		}
	}
}

static void conclude(struct md_probe_session *session, struct md_capture_graph *graph,
		     const struct md_handed_trial *trial) MD_CAPTURE_HELD
{
	for (size_t i = 0; i < trial->spot_count; i++)
		if (any_written(&trial->spots[i]))
			conclude_spot(session, graph, &trial->spots[i], interest_count);
}

static bool reaches(const struct md_capture_graph *graph, const struct md_interest *what)
{
	const struct md_interval *item = md_interval_find(&md_capture.live, what->address);
	for (size_t i = 0; item && i < graph->candidate_count; i++)
		if (graph->candidates[i] == item->start)
			return true;
	return false;
}

/*
 * A graph that cannot be replayed, or whose replays no test has shown
 * to bear poison, counts as writing everything that it reaches.
 */
static void assume_written(const struct md_capture_graph *graph) MD_CAPTURE_HELD
{
	for (size_t i = graph->handed_seen; i < interest_count; i++) {
		struct md_handed_spot nothing = {0};
		if (interests[i].graph && interests[i].graph != graph->id && reaches(graph, &interests[i]))
			put_handed(graph, interests[i].graph, &nothing);
	}
}

/* A graph that cannot be asked counts as reading everything that it reaches. */
static void assume_read(const struct md_capture_graph *graph) MD_CAPTURE_HELD
{
	for (size_t i = 0; i < graph->candidate_count; i++) {
		const struct md_interval *item = md_interval_find(&md_capture.live, graph->candidates[i]);
		if (item && !md_capture_made_at(item->start))
			add((struct md_interest){.address = item->start, .size = item->size, .graph = graph->id});
	}
}

/* Memory that the graph hands on and also needs carries a value to its own next replay. */
static void put_carried(struct md_probe_session *session, const struct md_capture_graph *graph) MD_CAPTURE_HELD
{
	for (size_t i = 0; i < interest_count; i++)
		for (size_t h = 0; interests[i].graph == graph->id && h < graph->handed_count; h++) {
			const struct md_capture_output *own = &graph->handed[h];
			struct md_trace_handed handed = {.reader = graph->id, .writer = graph->id};
			if (!md_handed_overlap(own->address, own->size, interests[i].address, interests[i].size) ||
			    !is_needed(session, i))
				continue;
			md_trace_put_handed(md_capture.writer, md_capture_next(), &handed);
			return;
		}
}

/*
 * Finds the memory that the graph needs for the bytes that others read of it. keep: contents from before the test.
 * changed: the graph writes bound memory.
 */
static enum md_status learn_again(struct md_probe_session *session, struct md_capture_graph *graph, bool keep,
				  bool *changed, struct md_error *err) MD_CAPTURE_HELD
{
	*changed = false;
	if (!md_capture_has_its_memory(graph))
		return md_error_set(err, MD_ERR_UNPROVABLE, "the engine has freed memory of the graph");
	struct md_handed_trial trial = md_handed_trial_new(session, graph);

	trial.probe.outputs = md_capture_graph_all_outputs(graph, &trial.probe.output_count);
	enum md_status status = trial.probe.outputs
				    ? md_capture_probe_again(&trial.probe, graph, err)
				    : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the outputs of a graph");
	if (status == MD_OK && keep)
		md_capture_probe_put_contents(&trial.probe, true);
	if (status == MD_OK)
		md_capture_handed_learn(&trial.probe, graph->id);
	if (status == MD_OK && keep)
		md_capture_probe_learn(&trial.probe);
	*changed = trial.probe.changed;
	md_debug("graph %llu: asked for the memory that it needs in %u replays, %.3f s", (unsigned long long)graph->id,
		 trial.probe.replays, (double)(md_clock_ns() - trial.probe.started_ns) / 1e9);
	free((void *)trial.probe.outputs);
	md_handed_trial_finish(&trial);
	return status;
}

static void check_again(struct md_probe_session *session, struct md_capture_graph *graph) MD_CAPTURE_HELD
{
	struct md_error err = {0};
	bool changed;
	if (graph->handed_tested == graph->handed_count)
		return;
	graph->handed_tested = graph->handed_count;
	if (learn_again(session, graph, !graph->refused, &changed, &err) == MD_OK) {
		put_carried(session, graph);
		return;
	}
	md_info("graph %llu: the memory that the graph reads is not known: %s", (unsigned long long)graph->id,
		err.message);
	md_trace_put_probe(md_capture.writer, md_capture_next(), graph->id, MD_PROBE_FAILED, err.message);
	assume_read(graph);
}

/* For a graph without any visible output: whatever it writes in private memory may be read by somebody. */
static enum md_status learn_silent(struct md_probe_session *session, struct md_capture_graph *graph,
				   struct md_error *err) MD_CAPTURE_HELD
{
	struct md_handed_trial trial = md_handed_trial_new(session, graph);
	enum md_status status = md_handed_trial_find_all(&trial, graph, err);
	size_t others = graph->handed_count;
	bool changed;
	for (size_t i = 0; status == MD_OK && i < trial.spot_count; i++)
		add_handed(graph, &trial.spots[i]);
	md_debug("graph %llu: asked for all that it writes in %u replays, %.3f s", (unsigned long long)graph->id,
		 trial.probe.replays, (double)(md_clock_ns() - trial.probe.started_ns) / 1e9);
	md_handed_trial_finish(&trial);
	if (status == MD_OK && graph->handed_count > others)
		status = learn_again(session, graph, false, &changed, err);
	graph->handed_count = graph->handed_tested = others; /* bytes that others do read are asked about later */
	return status;
}

/* Refused graphs whose own test showed nothing: no restored graph may read what they read. */
static void check_unseen(struct md_probe_session *session, struct md_capture_graph *graph) MD_CAPTURE_HELD
{
	enum md_status status = MD_OK;
	bool changed = false, silent = graph->silent;
	struct md_error err = {0};
	if (!graph->tested && graph->unwanted) {
		status = learn_again(session, graph, false, &changed, &err);
		silent = status == MD_OK && !changed && !graph->output_count;
	}
	if (silent)
		status = learn_silent(session, graph, &err);
	if (status != MD_OK)
		md_info("graph %llu: the unbound memory that the graph reads is not known: %s",
			(unsigned long long)graph->id, err.message);
}

static bool reaches_any(const struct md_capture_graph *graph) MD_CAPTURE_HELD
{
	for (size_t i = graph->handed_seen; i < interest_count; i++)
		if (md_handed_matters(&interests[i], graph))
			return true;
	return false;
}

/*
 * A graph whose replays no test has shown to bear poison is not
 * asked, except to find the graphs that must be refused with it.
 */
static bool can_be_asked(const struct md_probe_session *session, const struct md_capture_graph *graph,
			 const struct md_note_of *of)
{
	return !graph->pageable && !graph->communicates && session->device.open &&
	       (!graph->refused || graph->unwanted) && !md_note_left_out(of);
}

static void find_writes(struct md_probe_session *session, struct md_capture_graph *graph) MD_CAPTURE_HELD
{
	struct md_error err = {0};
	/* Memory that the graph does not need is poisoned, too: else a write of the value that is there would not show. */
	settle_known(session, graph);
	struct md_handed_trial trial = md_handed_trial_new(session, graph);
	enum md_status status = md_handed_trial_find_written(&trial, graph, &err);

	if (status == MD_OK) {
		conclude(session, graph, &trial);
	} else {
		md_debug("graph %llu: the memory that the graph writes is not known: %s", (unsigned long long)graph->id,
			 err.message);
		assume_written(graph);
	}
	md_debug("graph %llu: asked for %zu places that others read in %u replays, %.3f s",
		 (unsigned long long)graph->id, trial.spot_count, trial.probe.replays,
		 (double)(md_clock_ns() - trial.probe.started_ns) / 1e9);
	md_handed_trial_finish(&trial);
}

/* What it keeps counts as well: its test does not see a byte that it writes there with the value that is there. */
static bool may_write(const struct md_capture_graph *graph, const struct md_interest *what) MD_CAPTURE_HELD
{
	bool may = !graph->written_known;
	for (uint32_t i = 0; !may && i < graph->written_count; i++)
		may = md_handed_overlap(graph->written[i].address, graph->written[i].size, what->address, what->size);
	for (size_t i = 0; !may && i < interest_count; i++)
		may = interests[i].graph == graph->id && !interests[i].table &&
		      md_handed_overlap(interests[i].address, interests[i].size, what->address, what->size);
	return may;
}

static bool writes_any(const struct md_capture_graph *graph) MD_CAPTURE_HELD
{
	for (size_t i = graph->handed_seen; i < interest_count; i++)
		if (md_handed_matters(&interests[i], graph) && may_write(graph, &interests[i]))
			return true;
	return false;
}

/* To learn more of what it reads and writes, all ranks would have to replay it again. */
static void refuse_together(struct md_capture_graph *graph) MD_CAPTURE_HELD
{
	const char *why = "it communicates with other ranks, and may write unbound memory that other graphs read: bind "
			  "the memory that one graph hands to another";
	if (graph->tested)
		md_trace_put_together(md_capture.writer, md_capture_next(), graph->id, why);
	graph->tested = 0;
}

static void check_graph(struct md_probe_session *session, struct md_capture_graph *graph) MD_CAPTURE_HELD
{
	const struct md_note_of of = {MD_NOTE_POISON, graph->label, graph->batch, graph->id};
	bool asked = can_be_asked(session, graph, &of), others;
	size_t known;
	md_note_begin(&of, "");
	if (asked && (graph->silent || graph->unwanted))
		check_unseen(session, graph);
	others = reaches_any(graph);
	known = interest_count;
	if (graph->communicates && graph->tested) {
		others = others && writes_any(graph);
		if (others)
			refuse_together(graph);
	}
	if (others && (!graph->tested || !asked))
		assume_written(graph);
	else if (others)
		find_writes(session, graph);
	if (graph->tested && asked)
		check_again(session, graph);
	graph->handed_seen = known;
	graph->silent = graph->unwanted = false; /* asked once */
	md_note_end();
}

/* ---- what the engine writes ---- */

static void put_write(const struct md_capture_touch *touch, const struct md_interest *what) MD_CAPTURE_HELD
{
	const struct md_capture_graph *graph = what->graph ? md_capture_graph_at(what->graph - 1) : NULL;
	struct md_trace_handed handed = {what->graph, 0, (char *)touch->call, touch->address, touch->size, 0};
	if (graph && touch->last >= graph->tested &&
	    md_handed_overlap(touch->address, touch->size, what->address, what->size))
		md_trace_put_handed(md_capture.writer, md_capture_next(), &handed);
}

static void put_writes(void) MD_CAPTURE_HELD
{
	static size_t interests_seen; /* touches that were not repeated since have been compared with so many */
	struct md_capture_touch *touch;
	for (size_t t = 0; (touch = md_capture_touch_at(t)); t++) {
		for (size_t i = touch->checked == touch->last ? interests_seen : 0; touch->writes && i < interest_count;
		     i++)
			put_write(touch, &interests[i]);
		if (touch->writes)
			touch->checked = touch->last;
	}
	interests_seen = interest_count;
}

static bool is_due(const struct md_capture_graph *graph) MD_CAPTURE_HELD
{
	return graph->handed_seen < interest_count || (graph->silent && graph->probed) || graph->unwanted;
}

void md_capture_handed_check(struct md_probe_session *session, CUcontext context)
{
	struct md_capture_graph *graph;
	struct md_error err = {0};
	bool again = true;
	if (!md_capture.options.probe || !md_capture.writer || atomic_load(&md_capture.capturing))
		return;
	take_touches();
	put_writes();
	while (again) { /* a graph may be found to need what an earlier graph writes */
		again = false;
		for (size_t i = 0; (graph = md_capture_graph_at(i)); i++) {
			if (!graph->exec || graph->context != context || !is_due(graph))
				continue;
			if (!session->device.open && md_capture_session_open(session, &err) != MD_OK)
				md_warn("the writers of the memory that graphs read are not known: %s", err.message);
			check_graph(session, graph);
			again = true;
		}
	}
}
