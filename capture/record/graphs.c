/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: walked into the trace when they are instantiated, with the engine's later statements about them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "capture/probe/copies.h"
#include "capture/record/given.h"
#include "capture/record/graphs.h"
#include "capture/record/touched.h"
#include "capture/record/updates.h"
#include "capture/record/walk.h"
#include "capture/session/by_rank.h"

static struct {
	struct md_capture_graph *items;
	size_t count, capacity;
	size_t labelled;
	struct md_map by_exec; /* CUgraphExec -> index */
} graphs MD_CAPTURE_GUARDED;

static CUcontext home
    /* the context in which the engine bound its memory, or made its first graph; NULL: not known yet */
    MD_CAPTURE_GUARDED;

static _Thread_local uint64_t instantiated_last; /* id of this thread's last graph, 0: none */

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* Replaces the graph's candidates by the allocations into which its parameters point now. */
bool md_capture_graph_take_candidates(struct md_capture_graph *graph, struct md_capture_walk *walk)
{
	uint64_t *list = calloc(walk->candidates.used + 1, sizeof(uint64_t));
	size_t cursor = 0;
	uint64_t key, value;
	if (!list)
		return false;
	free(graph->candidates);
	graph->candidates = list;
	graph->candidate_count = 0;
	while (md_map_next(&walk->candidates, &cursor, &key, &value)) {
		list[graph->candidate_count++] = key;
		if (value & MD_CANDIDATE_PRIVATE)
			md_capture_given_watch(key);
	}
	qsort(list, graph->candidate_count, sizeof(uint64_t), compare_u64);
	md_capture_touched_watch(list, graph->candidate_count);
	return true;
}

static bool remember(struct md_capture_walk *walk, CUgraphExec exec) MD_CAPTURE_HELD
{
	struct md_capture_graph *graph;
	if (!MD_ARRAY_GROW(graphs.items, graphs.count, graphs.capacity))
		return false;
	graph = &graphs.items[graphs.count];
	*graph =
	    (struct md_capture_graph){.id = walk->out.id,
				      .exec = exec,
				      .refused = walk->refused[0] || (walk->communicates[0] && !md_capture_together()),
				      .communicates = walk->communicates[0] != 0,
				      .pageable = walk->pageable,
				      .unread = walk->unread};
	graph->context = walk->context;
	graph->made = walk->out.sequence;
	if (!md_capture_graph_take_candidates(graph, walk) ||
	    !md_map_put(&graphs.by_exec, (uintptr_t)exec, graphs.count)) {
		free(graph->candidates);
		return false;
	}
	graphs.count++;
	instantiated_last = graph->id;
	return true;
}

/* Records the limits of the context: a kernel that needs them may not have them at a cold start. */
static void note_limits(void) MD_CAPTURE_HELD
{
	static uint64_t noted[MD_LIMITS];
	uint64_t now[MD_LIMITS];
	md_limits_read(now);
	if (!memcmp(now, noted, sizeof(now)))
		return;
	memcpy(noted, now, sizeof(now));
	md_trace_put_limits(md_capture.writer, md_capture_next(), now);
}

static void note_free_memory(void) MD_CAPTURE_HELD
{
	size_t free_bytes, total;
	if (md_cuda.cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS)
		md_capture.free_after_instantiate = free_bytes + md_capture_session_held();
}

void md_capture_graph_instantiated(CUgraph graph, CUgraphExec exec, uint64_t flags)
{
	struct md_capture_walk walk = {0};
	md_capture_lock();
	if (md_capture.writer) {
		walk.out.id = graphs.count + 1;
		walk.out.sequence = md_capture_next();
		walk.out.instantiate_flags = flags;
		md_cuda.cuCtxGetCurrent(&walk.context);
		md_capture_walk(&walk, graph);
		walk.out.refused = md_capture_walk_reason(&walk);
		if (walk.out_of_memory || !remember(&walk, exec))
			md_capture_trouble("out of memory for graph %zu", graphs.count);
		else {
			md_trace_put_graph(md_capture.writer, walk.out.sequence, &walk.out);
			md_capture_graph_keep(&graphs.items[graphs.count - 1], &walk, graph);
		}
		note_free_memory();
		note_limits();
	}
	md_capture_unlock();
	md_capture_walk_finish(&walk);
}

/* The graph's number stays in use, because other graphs are found by theirs. */
static void forget(struct md_capture_graph *graph) MD_CAPTURE_HELD
{
	md_capture_graph_flush(graph);
	md_capture_graph_drop(graph);
	graph->exec = NULL;
	free(md_steal_ptr(&graph->candidates));
	free(md_steal_ptr(&graph->outputs));
	free(md_steal_ptr(&graph->handed));
	free(md_steal_ptr(&graph->label));
	graph->candidate_count = graph->output_count = graph->handed_count = 0;
}

void md_capture_exec_destroyed(CUgraphExec exec)
{
	struct md_capture_graph *graph;
	md_capture_lock();
	graph = md_capture_graph_of(exec);
	if (graph)
		forget(graph);
	md_map_remove(&graphs.by_exec, (uintptr_t)exec, NULL);
	md_capture_unlock();
}

struct md_capture_graph *md_capture_graph_of(CUgraphExec exec)
{
	uint64_t index;
	return md_map_get(&graphs.by_exec, (uintptr_t)exec, &index) ? &graphs.items[index] : NULL;
}

struct md_capture_graph *md_capture_graph_meant(CUgraphExec exec)
{
	struct md_capture_graph *last;
	if (exec)
		return md_capture_graph_of(exec);
	last = instantiated_last ? md_capture_graph_at(instantiated_last - 1) : NULL;
	return last && last->exec ? last : NULL;
}

struct md_capture_graph *md_capture_graph_at(size_t index)
{
	return index < graphs.count ? &graphs.items[index] : NULL;
}

size_t md_capture_graphs_labelled(void)
{
	return graphs.labelled;
}

size_t md_capture_graphs_recorded(void)
{
	return graphs.count;
}

/* ---- what is said of them ---- */

void md_capture_home_note(void)
{
	if (!home)
		md_cuda.cuCtxGetCurrent(&home);
}

CUcontext md_capture_home(void)
{
	return home;
}

static void note_name(struct md_capture_graph *graph, const char *label, unsigned batch) MD_CAPTURE_HELD
{
	uint64_t key[2] = {md_hash_checksum(label, strlen(label)), batch};
	graph->name = md_hash_checksum(key, sizeof(key));
	graph->later = 0;
	for (size_t i = 0; i < graphs.count; i++) {
		struct md_capture_graph *earlier = &graphs.items[i];
		if (earlier == graph || !earlier->exec || !earlier->labelled || earlier->name != graph->name)
			continue;
		earlier->later = graph->id; /* the earlier graph still exists: mostly the graph was captured again */
	}
}

static void refuse_namesake(struct md_capture_graph *later, const struct md_capture_graph *earlier) MD_CAPTURE_HELD
{
	MD_AUTO_FREE char *why = NULL;
	if (asprintf(
		&why,
		"another graph of this name is launched, too: graph number %llu (%u nodes) and number %llu (%u nodes) "
		"are both labelled (%.100s, %u); give each graph that is in use a name of its own, or destroy the one "
		"that the other replaces",
		(unsigned long long)earlier->id, earlier->kept.node_count, (unsigned long long)later->id,
		later->kept.node_count, later->label ? later->label : "?", later->batch) < 0)
		why = NULL;
	md_capture_graph_refuse(later, why ? why : "another graph of this name is launched, too");
}

void md_capture_graph_launching(CUgraphExec exec, bool runs)
{
	struct md_capture_graph *graph;
	md_capture_lock();
	graph = md_capture_graph_of(exec);
	if (graph && runs && !graph->launched)
		graph->launched = md_capture_next();
	if (graph && graph->later && md_capture.writer) {
		refuse_namesake(&graphs.items[graph->later - 1], graph);
		graph->later = 0;
	}
	md_capture_unlock();
}

/*
 * A restore makes every graph in one context. A launch in
 * another context would find neither its kernels nor its memory.
 */
void md_capture_graph_label(struct md_capture_graph *graph, const char *label, unsigned batch)
{
	md_capture_graph_flush(graph);
	home = home ? home : graph->context;
	if (graph->context != home)
		md_capture_graph_refuse(graph, "made in another context than the one that the engine bound memory in");
	free(graph->label);
	graph->label = strdup(label); /* without memory the graph goes by its number */
	graph->batch = batch;
	note_name(graph, label, batch);
	note_limits();
	md_trace_put_label(md_capture.writer, md_capture_next(), graph->id, label, batch);
	graphs.labelled += !graph->labelled;
	graph->labelled = true;
}

static bool keep_output(struct md_capture_graph *graph, struct md_capture_output output)
{
	for (size_t i = 0; i < graph->output_count; i++) {
		if (graph->outputs[i].index == output.index) {
			graph->outputs[i] = output;
			return true;
		}
	}
	if (!MD_ARRAY_EXTEND(graph->outputs, graph->output_count))
		return false;
	graph->outputs[graph->output_count++] = output;
	return true;
}

/* The engine reads it, so its allocation takes part in the probe even if no parameter points into it. */
static bool keep_candidate(struct md_capture_graph *graph, uint64_t start)
{
	size_t at = 0;
	while (at < graph->candidate_count && graph->candidates[at] < start)
		at++;
	if (at < graph->candidate_count && graph->candidates[at] == start)
		return true;
	if (!MD_ARRAY_EXTEND(graph->candidates, graph->candidate_count))
		return false;
	memmove(&graph->candidates[at + 1], &graph->candidates[at],
		(graph->candidate_count++ - at) * sizeof(*graph->candidates));
	graph->candidates[at] = start;
	return true;
}

bool md_capture_graph_output(struct md_capture_graph *graph, struct md_capture_output output)
{
	const struct md_interval *item = md_interval_floor(&md_capture.live, output.address + output.size - 1);
	/* mapped memory may lie in several allocations, one behind the other */
	for (; item && item->start + item->size > output.address; item--) {
		if (!keep_candidate(graph, item->start))
			return false;
		if (item == md_capture.live.items)
			break;
	}
	if (!keep_output(graph, output))
		return false;
	md_capture_touched_declared(output);
	md_trace_put_output(md_capture.writer, md_capture_next(), graph->id, output.index, output.address, output.size);
	return true;
}

struct md_capture_output *md_capture_graph_all_outputs(const struct md_capture_graph *graph, size_t *count)
{
	struct md_capture_output *all = calloc(graph->output_count + graph->handed_count + 1, sizeof(*all));
	*count = all ? graph->output_count + graph->handed_count : 0;
	if (all && graph->output_count)
		memcpy(all, graph->outputs, graph->output_count * sizeof(*all));
	if (all && graph->handed_count)
		memcpy(all + graph->output_count, graph->handed, graph->handed_count * sizeof(*all));
	return all;
}

void md_capture_graph_note(struct md_capture_graph *graph, const void *data, size_t bytes)
{
	md_trace_put_note(md_capture.writer, md_capture_next(), graph->id, data, bytes);
}

void md_capture_graph_refuse(struct md_capture_graph *graph, const char *why)
{
	md_trace_put_refusal(md_capture.writer, md_capture_next(), graph->id, why);
	graph->unwanted |= !graph->refused;
	graph->refused = true;
}
