/* SPDX-License-Identifier: Apache-2.0 */
/* The poison test: finds, by replaying with private memory overwritten, the contents that a graph's outputs depend on.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "capture/capture_probe.h"

/*
 * Patterns, mildest first. A word of private memory may be an index, and a wrong index may fault: zero is the safest
 * one, then one; only what survived both without changing the outputs is filled with 0xff. A fault is still possible (a
 * kernel that computes an address from such a word): it breaks the engine's context, as no driver lets us take it back.
 * A semaphore that a kernel waits for could even hang. MEDUSA_PROBE=0 is the way out for such an engine.
 */
static const uint32_t patterns[] = {0x00000000, 0x00000001, 0xffffffff};
#define PATTERNS (sizeof(patterns) / sizeof(patterns[0]))

#define COARSE_BYTES 4096
#define FINE_BYTES 256
#define MAX_REFINED 16 /* coarse units that are worth cutting finer */
#define PROBE_NS 30000000000ull

/* ---- search ---- */

/* Marks the units of [from, to) that, poisoned while all else is as it was, change the outputs. */
static enum md_status search(struct md_capture_probe *probe, size_t from, size_t to, struct md_error *err)
{
	bool equal;
	size_t middle;

	while (from < to && probe->units[from].keep)
		from++;
	while (from < to && probe->units[to - 1].keep)
		to--;
	if (from == to)
		return MD_OK;
	MD_FORWARD(md_capture_probe_replay(probe, from, to, &equal, err));
	if (equal)
		return MD_OK;
	if (to - from == 1) {
		probe->units[from].keep = true;
		return MD_OK;
	}
	middle = from + (to - from) / 2;
	MD_FORWARD(search(probe, from, middle, err));
	return search(probe, middle, to, err);
}

static size_t kept(const struct md_capture_probe *probe)
{
	size_t count = 0;

	for (size_t i = 0; i < probe->unit_count; i++)
		count += probe->units[i].keep;
	return count;
}

static enum md_status search_patterns(struct md_capture_probe *probe, size_t from, size_t to, struct md_error *err)
{
	for (size_t i = 0; i < PATTERNS; i++) {
		MD_FORWARD(md_capture_probe_prepare_poison(probe, patterns[i], err));
		MD_FORWARD(search(probe, from, to, err));
	}
	return MD_OK;
}

static enum md_status confirm(struct md_capture_probe *probe, struct md_error *err)
{
	bool equal;

	for (size_t i = 0; i < PATTERNS; i++) {
		MD_FORWARD(md_capture_probe_prepare_poison(probe, patterns[i], err));
		MD_FORWARD(md_capture_probe_replay(probe, 0, probe->unit_count, &equal, err));
		if (!equal)
			return md_error_set(err, MD_ERR_UNPROVABLE,
					    "outputs change with private memory at %08x although %zu parts are kept",
					    patterns[i], kept(probe));
	}
	return MD_OK;
}

/* Searches again inside each coarse unit; one that no single fine part explains is kept whole. */
static enum md_status refine(struct md_capture_probe *probe, struct md_error *err)
{
	size_t count = 0;
	struct {
		size_t from, to;
	} parts[MAX_REFINED];

	if (kept(probe) > MAX_REFINED)
		return MD_OK;
	MD_FORWARD(md_capture_probe_cut(probe, FINE_BYTES, err));
	for (size_t i = 0; i < probe->unit_count; i++) {
		const struct md_probe_unit *unit = &probe->units[i];
		if (!unit->keep)
			continue;
		if (unit->offset % COARSE_BYTES == 0 && count < MAX_REFINED)
			parts[count++].from = i;
		if (count)
			parts[count - 1].to = i + 1;
	}
	for (size_t i = 0; i < count; i++) {
		size_t found = 0;
		for (size_t at = parts[i].from; at < parts[i].to; at++)
			probe->units[at].keep = false;
		MD_FORWARD(search_patterns(probe, parts[i].from, parts[i].to, err));
		for (size_t at = parts[i].from; at < parts[i].to; at++)
			found += probe->units[at].keep;
		for (size_t at = parts[i].from; !found && at < parts[i].to; at++)
			probe->units[at].keep = true;
	}
	return MD_OK;
}

static enum md_status check_deterministic(struct md_capture_probe *probe, struct md_error *err)
{
	bool equal;

	MD_FORWARD(md_capture_probe_replay(probe, 0, 0, &equal, err));
	return equal ? MD_OK
		     : md_error_set(err, MD_ERR_UNPROVABLE, "two replays of the same state give different outputs");
}

/* ---- outcome ---- */

static void put_contents(const struct md_capture_probe *probe)
{
	for (size_t i = 0; i < probe->unit_count;) {
		const struct md_probe_unit *first = &probe->units[i];
		const struct md_probe_region *region = &probe->regions[first->region];
		uint64_t size = 0;
		if (!first->keep) {
			i++;
			continue;
		}
		while (i < probe->unit_count && probe->units[i].keep && probe->units[i].region == first->region)
			size += probe->units[i++].size;
		md_trace_put_content(md_capture.writer, md_capture_next(), region->address + first->offset, size,
				     region->before + first->offset);
	}
}

static enum md_status run_probe(struct md_capture_probe *probe, const struct md_capture_graph *graph,
				struct md_error *err)
{
	bool equal = true;

	MD_FORWARD(md_cuda_call(err, cuCtxSynchronize));
	MD_FORWARD(md_capture_probe_collect(probe, graph->candidates, graph->candidate_count,
					    md_capture.options.probe_limit, err));
	if (!md_capture_probe_has_output(probe))
		return md_error_set(err, MD_ERR_NOT_FOUND, "no output is bound");
	MD_FORWARD(md_capture_probe_first_replay(probe, err));
	MD_FORWARD(md_capture_probe_cut(probe, COARSE_BYTES, err));
	for (size_t i = 0; i < PATTERNS && equal; i++) {
		MD_FORWARD(md_capture_probe_prepare_poison(probe, patterns[i], err));
		MD_FORWARD(md_capture_probe_replay(probe, 0, probe->unit_count, &equal, err));
	}
	if (equal)
		return MD_OK;
	MD_FORWARD(check_deterministic(probe, err));
	MD_FORWARD(search_patterns(probe, 0, probe->unit_count, err));
	MD_FORWARD(refine(probe, err));
	return confirm(probe, err);
}

static void put_outcome(const struct md_capture_probe *probe, const struct md_capture_graph *graph,
			enum md_status status, const struct md_error *err)
{
	enum md_probe_result result = status != MD_OK ? MD_PROBE_FAILED
				      : kept(probe)   ? MD_PROBE_CONTENT_SAVED
						      : MD_PROBE_CLEAN;

	/* With no output bound nothing can be said: such a graph stays "not tested". */
	if (status == MD_ERR_NOT_FOUND)
		return;
	if (probe->broken)
		md_error_log("the poison test of graph %llu broke the context (%s); run with MEDUSA_PROBE=0",
			     (unsigned long long)graph->id, err->message);
	if (result == MD_PROBE_CONTENT_SAVED)
		put_contents(probe);
	md_debug("graph %llu: probe %d after %u replays, %zu parts kept%s%s", (unsigned long long)graph->id,
		 (int)result, probe->replays, kept(probe), status != MD_OK ? ": " : "",
		 status != MD_OK ? err->message : "");
	md_trace_put_probe(md_capture.writer, md_capture_next(), graph->id, result,
			   status != MD_OK ? err->message : NULL);
}

/* Lock held: allocations and frees of other threads wait until everything is back in place. */
static void probe_graph(struct md_capture_graph *graph)
{
	struct md_capture_probe probe = {.exec = graph->exec, .deadline_ns = md_clock_ns() + PROBE_NS};
	struct md_error err = {0};
	CUcontext popped;
	enum md_status status;

	if (graph->probed || graph->refused || !graph->exec || !md_capture.options.probe || !md_capture.writer ||
	    atomic_load(&md_capture.capturing) || md_cuda.cuCtxPushCurrent_v2(graph->context))
		return;
	graph->probed = true;
	if (graph->pageable)
		status =
		    md_error_set(&err, MD_ERR_UNPROVABLE,
				 "a memcpy node writes host memory that is not registered: it could not be put back");
	else
		status = run_probe(&probe, graph, &err);
	put_outcome(&probe, graph, status, &err);
	md_capture_probe_release(&probe);
	md_cuda.cuCtxPopCurrent_v2(&popped);
}

void md_capture_probe_exec(CUgraphExec exec)
{
	struct md_capture_graph *graph;

	md_capture_lock();
	graph = md_capture_graph_of(exec);
	if (graph)
		probe_graph(graph);
	md_capture_unlock();
}

void md_capture_probe_context(CUcontext context)
{
	struct md_capture_graph *graph;

	md_capture_lock();
	for (size_t i = 0; (graph = md_capture_graph_at(i)); i++) {
		if (!context || graph->context == context)
			probe_graph(graph);
	}
	md_capture_unlock();
}
