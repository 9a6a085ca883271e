/* SPDX-License-Identifier: Apache-2.0 */
/* Who writes what a graph reads in memory that nobody bound: each graph is replayed, and what it changed is looked at.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/note.h"
#include "capture/capture_handed.h"

#define CHECK_NS 30000000000ull
#define UNIT_BYTES 4096
#define MOST_RUNS 64 /* of written bytes; what is more scattered is not told byte by byte */

/*
 * What somebody reads: a graph, whose poison test found it; or the engine, which has copied from there. Graphs that
 * were tested later than one that needs a part keep it without a test: `known`, until it matters.
 */
struct interest {
	uint64_t address, size;
	uint64_t graph; /* 0: the engine's */
	uint64_t sequence;
	const char *call;
	bool known;
};

/* All under md_capture.lock. */
static struct interest *interests;
static size_t interest_count;

static void add(struct interest interest)
{
	struct interest *grown = interests;

	if ((interest_count & (interest_count - 1)) == 0)
		grown = realloc(interests, (interest_count ? 2 * interest_count : 1) * sizeof(*grown));
	if (!grown)
		return md_capture_trouble("out of memory for what graphs read");
	interests = grown;
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
		add((struct interest){.address = probe->regions[first->region].address + first->offset,
				      .size = size,
				      .graph = graph,
				      .known = first->known});
	}
}

static void take_touches(void)
{
	struct md_capture_touch *touch;

	for (size_t i = 0; (touch = md_capture_touch_at(i)); i++) {
		if (touch->writes || touch->checked == touch->last)
			continue;
		touch->checked = touch->last;
		add((struct interest){
		    .address = touch->address, .size = touch->size, .call = touch->call, .sequence = touch->last});
	}
}

static bool overlap(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size)
{
	return a < b + b_size && b < a + a_size;
}

/* ---- one replay of one graph ---- */

/* A part of an interest that lies in private memory of the graph. */
struct spot {
	size_t interest;
	uint64_t address, size;
	uint8_t *before, *written; /* owned; a byte of written for each byte */
};

struct trial {
	struct md_capture_probe probe;
	struct spot *spots; /* owned */
	size_t spot_count;
};

static void trial_finish(struct trial *trial)
{
	for (size_t i = 0; i < trial->spot_count; i++) {
		free(trial->spots[i].before);
		free(trial->spots[i].written);
	}
	free(trial->spots);
	md_capture_probe_release(&trial->probe);
}

static bool add_spot(struct trial *trial, size_t interest, uint64_t address, uint64_t size)
{
	struct spot *grown = realloc(trial->spots, (trial->spot_count + 1) * sizeof(*grown));
	struct spot spot = {interest, address, size, malloc(size), calloc(size, 1)};

	if (grown)
		trial->spots = grown;
	if (!grown || !spot.before || !spot.written) {
		free(spot.before);
		free(spot.written);
		return false;
	}
	grown[trial->spot_count++] = spot;
	return true;
}

static bool add_spots(struct trial *trial, size_t index)
{
	const struct interest *interest = &interests[index];

	for (uint32_t i = 0; i < trial->probe.region_count; i++) {
		const struct md_probe_region *region = &trial->probe.regions[i];
		uint64_t from = interest->address > region->address ? interest->address : region->address;
		uint64_t to = interest->address + interest->size < region->address + region->size
				  ? interest->address + interest->size
				  : region->address + region->size;
		if (region->kind == MD_PROBE_REGION_PRIVATE && from < to && !add_spot(trial, index, from, to - from))
			return false;
	}
	return true;
}

/* What the graph needs itself stays, all else is poisoned; its own test has shown that this does no harm. */
static enum md_status keep_own(struct md_capture_probe *probe, uint64_t graph, struct md_error *err)
{
	MD_AUTO_FREE size_t *own = calloc(interest_count + 1, sizeof(*own));
	size_t count = 0;

	if (!own)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory");
	for (size_t i = 0; i < interest_count; i++)
		if (interests[i].graph == graph)
			own[count++] = i;
	for (size_t u = 0; u < probe->unit_count; u++) {
		struct md_probe_unit *unit = &probe->units[u];
		uint64_t address = probe->regions[unit->region].address + unit->offset;
		unit->keep = unit->known = false;
		for (size_t i = 0; i < count && !unit->keep; i++)
			unit->keep = overlap(address, unit->size, interests[own[i]].address, interests[own[i]].size);
	}
	return MD_OK;
}

static enum md_status read_spots(struct trial *trial, bool after, struct md_error *err)
{
	struct md_device_session *device = &trial->probe.session->device;

	for (size_t i = 0; i < trial->spot_count; i++) {
		struct spot *spot = &trial->spots[i];
		for (uint64_t at = 0, size; at < spot->size; at += size) {
			size = spot->size - at < MD_DEVICE_CHUNK ? spot->size - at : MD_DEVICE_CHUNK;
			MD_FORWARD(md_device_session_read(device, device->now, spot->address + at, (size_t)size, err));
			if (!after)
				memcpy(spot->before + at, device->now, size);
			for (uint64_t b = 0; after && b < size; b++)
				spot->written[at + b] |= device->now[b] != spot->before[at + b];
		}
	}
	return MD_OK;
}

static enum md_status replay_poisoned(struct trial *trial, uint32_t word, struct md_error *err)
{
	struct md_capture_probe *probe = &trial->probe;

	MD_FORWARD(md_capture_probe_prepare_poison(probe, word, err));
	MD_FORWARD(md_capture_probe_place(probe, 0, probe->unit_count, err));
	MD_FORWARD(md_cuda_call(err, cuStreamSynchronize, probe->session->device.stream));
	MD_FORWARD(read_spots(trial, false, err));
	MD_FORWARD(md_capture_probe_launch(probe, err));
	MD_FORWARD(read_spots(trial, true, err));
	return md_capture_probe_check_outputs(probe, err);
}

static enum md_status collect(struct trial *trial, const struct md_capture_graph *graph, struct md_error *err)
{
	struct md_capture_probe *probe = &trial->probe;

	MD_FORWARD(md_cuda_call(err, cuCtxSynchronize));
	MD_FORWARD(md_capture_probe_collect(probe, graph, err));
	MD_FORWARD(md_capture_probe_cut(probe, UNIT_BYTES, err));
	return keep_own(probe, graph->id, err);
}

static enum md_status find_written(struct trial *trial, const struct md_capture_graph *graph, struct md_error *err)
{
	MD_FORWARD(collect(trial, graph, err));
	for (size_t i = graph->handed_seen; i < interest_count; i++)
		if (interests[i].graph != graph->id && !add_spots(trial, i))
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory");
	if (!trial->spot_count)
		return MD_OK;
	enum md_status status = replay_poisoned(trial, 0x00000000, err);
	if (status == MD_OK)
		status = replay_poisoned(trial, 0xffffffff, err);
	return md_capture_probe_settle(&trial->probe, status, err);
}

static struct trial new_trial(struct md_probe_session *session, const struct md_capture_graph *graph)
{
	uint64_t now = md_clock_ns();

	return (struct trial){.probe = {.exec = graph->exec,
					.session = session,
					.any_output = true,
					.started_ns = now,
					.deadline_ns = now + CHECK_NS}};
}

/* ---- whether a graph needs what it has kept without a test ---- */

static enum md_status needs(struct trial *trial, const struct md_capture_graph *graph, const struct interest *what,
			    bool *needed, struct md_error *err)
{
	static const uint32_t words[] = {0x00000000, 0x00000001, 0xffffffff};
	struct md_capture_probe *probe = &trial->probe;
	bool equal = true;

	MD_FORWARD(collect(trial, graph, err));
	for (size_t u = 0; u < probe->unit_count; u++) {
		struct md_probe_unit *unit = &probe->units[u];
		unit->keep = !overlap(probe->regions[unit->region].address + unit->offset, unit->size, what->address,
				      what->size);
	}
	MD_FORWARD(md_capture_probe_first_replay(probe, err));
	for (size_t i = 0; i < sizeof(words) / sizeof(*words) && equal; i++) {
		MD_FORWARD(md_capture_probe_prepare_poison(probe, words[i], err));
		MD_FORWARD(md_capture_probe_replay(probe, 0, probe->unit_count, &equal, err));
	}
	*needed = !equal;
	return MD_OK;
}

/* When in doubt, it does. */
static bool is_needed(struct md_probe_session *session, size_t index)
{
	struct interest what = interests[index];
	const struct md_capture_graph *graph = md_capture_graph_at(what.graph - 1);
	struct md_error err = {0};
	bool needed = true;

	if (!what.known || !graph || !graph->exec || !graph->tested)
		return true;
	struct trial trial = new_trial(session, graph);
	trial.probe.outputs = graph->outputs;
	trial.probe.output_count = graph->output_count;
	trial.probe.any_output = false;
	enum md_status status = needs(&trial, graph, &what, &needed, &err);
	if (md_capture_probe_settle(&trial.probe, status, &err) != MD_OK)
		needed = true;
	trial_finish(&trial);
	if (needed)
		interests[index].known = false;
	else
		interests[index].size = 0; /* nobody asks for it any more */
	return needed;
}

/* ---- what was found ---- */

static bool any_written(const struct spot *spot)
{
	return memchr(spot->written, 1, spot->size) != NULL;
}

/* The engine has copied from there after the graph was made. */
static void put_read(const struct md_capture_graph *graph, const struct interest *by)
{
	struct md_trace_handed handed = {0, graph->id, (char *)by->call, by->address, by->size, 0};

	if (by->sequence >= graph->made)
		md_trace_put_handed(md_capture.writer, md_capture_next(), &handed);
}

static void put_handed(const struct md_capture_graph *writer, uint64_t reader, const struct spot *spot)
{
	struct md_trace_handed handed = {.reader = reader, .writer = writer->id};
	uint64_t at = 0, end;
	unsigned runs = 0;

	md_trace_put_handed(md_capture.writer, md_capture_next(), &handed); /* whatever bytes */
	for (; spot->written && at < spot->size && runs < MOST_RUNS; at = end) {
		for (; at < spot->size && !spot->written[at]; at++)
			;
		for (end = at; end < spot->size && spot->written[end]; end++)
			;
		handed.address = spot->address + at;
		handed.size = end - at;
		if (end > at)
			md_trace_put_handed(md_capture.writer, md_capture_next(), &handed);
		runs++;
	}
}

static void conclude(struct md_probe_session *session, struct md_capture_graph *graph, const struct trial *trial)
{
	for (size_t i = 0; i < trial->spot_count; i++) {
		const struct spot *spot = &trial->spots[i];
		struct interest what = interests[spot->interest];
		if (!any_written(spot))
			continue;
		if (!what.graph)
			put_read(graph, &what);
		else if (is_needed(session, spot->interest))
			put_handed(graph, what.graph, spot);
	}
}

static bool reaches(const struct md_capture_graph *graph, const struct interest *what)
{
	const struct md_interval *item = md_interval_find(&md_capture.live, what->address);

	for (size_t i = 0; item && i < graph->candidate_count; i++)
		if (graph->candidates[i] == item->start)
			return true;
	return false;
}

/* A graph that cannot be replayed, or that no test has shown to stand poison, may write all that it reaches. */
static void assume_written(const struct md_capture_graph *graph)
{
	for (size_t i = graph->handed_seen; i < interest_count; i++) {
		struct spot nothing = {0};
		if (interests[i].graph && interests[i].graph != graph->id && reaches(graph, &interests[i]))
			put_handed(graph, interests[i].graph, &nothing);
	}
}

static bool reaches_any(const struct md_capture_graph *graph)
{
	for (size_t i = graph->handed_seen; i < interest_count; i++)
		if (interests[i].size && interests[i].graph != graph->id)
			return true;
	return false;
}

static void check_graph(struct md_probe_session *session, struct md_capture_graph *graph)
{
	struct md_error err = {0};
	size_t known = interest_count;

	if (!reaches_any(graph))
		return;
	if (!graph->tested || graph->pageable || !session->device.open) {
		assume_written(graph);
	} else {
		const struct md_note_of of = {MD_NOTE_POISON, graph->label, graph->batch, graph->id};
		struct trial trial = new_trial(session, graph);
		md_note_begin(&of, "");
		enum md_status status = find_written(&trial, graph, &err);
		md_note_end();
		if (status == MD_OK) {
			conclude(session, graph, &trial);
		} else {
			md_debug("graph %llu: what it writes is not known: %s", (unsigned long long)graph->id,
				 err.message);
			assume_written(graph);
		}
		trial_finish(&trial);
	}
	graph->handed_seen = known;
}

/* ---- what the engine writes ---- */

static void put_write(const struct md_capture_touch *touch, const struct interest *what)
{
	const struct md_capture_graph *graph = what->graph ? md_capture_graph_at(what->graph - 1) : NULL;
	struct md_trace_handed handed = {what->graph, 0, (char *)touch->call, touch->address, touch->size, 0};

	if (graph && touch->last >= graph->tested && overlap(touch->address, touch->size, what->address, what->size))
		md_trace_put_handed(md_capture.writer, md_capture_next(), &handed);
}

static void put_writes(void)
{
	static size_t interests_seen; /* by what has not been done again since */
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

void md_capture_handed_check(struct md_probe_session *session, CUcontext context)
{
	struct md_capture_graph *graph;
	struct md_error err = {0};

	if (!md_capture.options.probe || !md_capture.writer || atomic_load(&md_capture.capturing))
		return;
	take_touches();
	put_writes();
	for (size_t i = 0; interest_count && (graph = md_capture_graph_at(i)); i++) {
		if (!graph->exec || graph->context != context || graph->handed_seen == interest_count)
			continue;
		if (!session->device.open && md_capture_session_open(session, &err) != MD_OK)
			md_warn("who writes what graphs read is not known: %s", err.message);
		check_graph(session, graph);
	}
}
