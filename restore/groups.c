/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs that hand values on to each other in unbound memory: all of them use Medusa's copy of it, or all of them the
 * engine's. None is handed out before all can be, and when one cannot be, none is. Everything here is under lock.
 */
#define MD_LOG_DOMAIN "restore"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "restore/bindings.h"
#include "restore/constants.h"
#include "restore/graph_state.h"
#include "restore/groups.h"
#include "restore/restore.h"

#define LAUNCHES_WATCHED 4096

atomic_bool md_restore_watching;

static struct md_restore_graph *next_of_group(const struct md_restore *r, const struct md_restore_graph *graph,
					      uint32_t *at)
{
	while (graph->stored->group && *at < r->artifact.graph_count) {
		struct md_restore_graph *other = &r->graphs[(*at)++];
		if (other != graph && other->stored->group == graph->stored->group)
			return other;
	}
	return NULL;
}

static struct md_restore_graph *find_out(const struct md_restore *r, const struct md_restore_graph *graph)
{
	struct md_restore_graph *other;
	for (uint32_t at = 0; (other = next_of_group(r, graph, &at));)
		if (other->handed_out)
			return other;
	return NULL;
}

bool md_restore_group_is_out(const struct md_restore *r, const struct md_restore_graph *graph)
{
	return graph->handed_out || find_out(r, graph);
}

struct md_restore_graph *md_restore_group_waiting(const struct md_restore *r, struct md_restore_graph *graph)
{
	struct md_restore_graph *other;
	if (graph->state == MD_GRAPH_WAITING)
		return graph;
	for (uint32_t at = 0; (other = next_of_group(r, graph, &at));)
		if (other->state == MD_GRAPH_WAITING)
			return other;
	return NULL;
}

/* ---- one of them cannot be restored ---- */

static void say_split(struct md_restore_graph *graph, const struct md_restore_graph *out, const char *why)
{
	if (!graph->split)
		md_error_log("graph %s/%" PRIu32 " is not restored, and graph %s/%" PRIu32
			     " of the same group was handed out before: values that they pass to each other in unbound "
			     "memory are lost; capture all of them live (%s)",
			     graph->stored->label, graph->stored->batch, out->stored->label, out->stored->batch, why);
	graph->split = true;
}

void md_restore_group_lost(struct md_restore *r, const char *label, unsigned batch, const char *why)
{
	struct md_restore_graph *graph = r->phase == MD_PHASE_OPEN ? md_restore_find(r, label, batch) : NULL;
	const struct md_restore_graph *out = graph && !graph->handed_out ? find_out(r, graph) : NULL;
	if (out)
		say_split(graph, out, why);
}

/* The background takes the other graphs of the group apart. */
void md_restore_group_refuse(struct md_restore *r, const struct md_restore_graph *graph)
{
	struct md_restore_graph *other;
	struct md_error why = {0};
	for (uint32_t at = 0; (other = next_of_group(r, graph, &at));) {
		if (other->handed_out)
			say_split((struct md_restore_graph *)graph, other, graph->reasons->refused.message);
		if (other->handed_out || other->state == MD_GRAPH_REFUSED)
			continue;
		md_restore_graph_unmake(r, other);
		md_error_set(&why,
			     graph->reasons->refused.status == MD_ERR_NO_MEMORY ? MD_ERR_NO_MEMORY : MD_ERR_MISMATCH,
			     "it is in one group with graph %s/%" PRIu32 ", which is not restored: %s",
			     graph->stored->label, graph->stored->batch, graph->reasons->refused.message);
		other->state = MD_GRAPH_REFUSED;
		other->reasons->refused = why;
		md_graph_queue_drop(r, other);
		r->stats.graphs_refused++;
		md_log(r->verify ? MD_LOG_INFO : MD_LOG_WARN, MD_LOG_DOMAIN, "graph %s/%u is not restored: %s",
		       other->stored->label, other->stored->batch, why.message);
	}
}

void md_restore_group_stale(struct md_restore *r, struct md_restore_graph *graph)
{
	struct md_restore_graph *other;
	graph->stale = true;
	for (uint32_t at = 0; (other = next_of_group(r, graph, &at));)
		other->stale = true;
}

/* ---- handing out ---- */

/* A graph of the group that the engine gave up waiting for, and may have captured live since. */
static const struct md_restore_graph *find_given_up(const struct md_restore *r, const struct md_restore_graph *graph)
{
	const struct md_restore_graph *other;
	for (uint32_t at = 0; (other = next_of_group(r, graph, &at));)
		if (other->given_up)
			return other;
	return NULL;
}

enum md_status md_restore_group_check(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	struct md_restore_graph *other;
	MD_FORWARD(md_restore_bindings_live(r, graph, err));
	for (uint32_t at = 0; (other = next_of_group(r, graph, &at));)
		if (md_restore_bindings_live(r, other, err) != MD_OK)
			return md_error_prefix(err, "it is in one group with graph %s/%u", other->stored->label,
					       other->stored->batch);
	MD_FORWARD(md_restore_constants_check(r, graph, err));
	if (md_restore_group_is_out(r, graph))
		return MD_OK;
	const struct md_restore_graph *left = find_given_up(r, graph);
	if (left) {
		md_error_set(
		    err, MD_ERR_MISMATCH,
		    "it is in one group with graph %s/%" PRIu32
		    ", which the engine asked for and did not wait for: the engine may have captured that graph live",
		    left->stored->label, left->stored->batch);
		md_restore_refuse(r, graph, err);
		return err->status;
	}
	for (uint32_t at = 0; (other = next_of_group(r, graph, &at));)
		if (md_restore_constants_check(r, other, err) != MD_OK)
			return md_error_prefix(err, "it is in one group with graph %s/%u", other->stored->label,
					       other->stored->batch);
	return MD_OK;
}

bool md_restore_group_open(const struct md_restore *r, const struct md_restore_graph *graph)
{
	const struct md_restore_graph *other;
	bool open = md_restore_constants_open(r, graph);
	for (uint32_t at = 0; !open && (other = next_of_group(r, graph, &at));)
		open = md_restore_constants_open(r, other);
	return open;
}

/* ---- graphs that the engine has captured live in a restore ---- */

static enum md_status apply_live(struct md_restore *r, const struct md_want *live, struct md_error *err)
    MD_REQUIRES(md_restore_lock)
{
	struct md_restore_graph *graph = md_restore_find(r, live->label, live->batch);
	if (!graph || !graph->stored->group || graph->state == MD_GRAPH_REFUSED)
		return MD_OK;
	const struct md_restore_graph *out = graph->handed_out ? graph : find_out(r, graph);
	md_error_set(err, MD_ERR_MISMATCH, "the engine has captured it live");
	if (graph->handed_out)
		say_split(graph, out, err->message);
	else
		md_restore_refuse(r, graph, err);
	if (!out) {
		*err = (struct md_error){0};
		return MD_OK;
	}
	return md_error_set(err, MD_ERR_MISMATCH,
			    "graph %s/%u was captured live, and graph %s/%u of the same group was handed out",
			    live->label, live->batch, out->stored->label, out->stored->batch);
}

void md_restore_group_apply_live(struct md_restore *r)
{
	struct md_error ignored = {0}; /* nothing was handed out yet */
	for (uint32_t i = 0; i < r->live_count; i++)
		apply_live(r, &r->lives[i], &ignored);
}

void md_restore_group_forget_live(struct md_restore *r)
{
	while (r->live_count)
		free(r->lives[--r->live_count].label);
}

enum md_status md_restore_group_captured(struct md_restore *r, const char *label, unsigned batch, struct md_error *err)
{
	struct md_want live = {(char *)label, batch};
	if (r->phase == MD_PHASE_OPEN)
		return apply_live(r, &live, err);
	if (r->phase == MD_PHASE_FAILED || r->released)
		return MD_OK;
	live.label = MD_ARRAY_EXTEND(r->lives, r->live_count) ? strdup(label) : NULL;
	if (!live.label)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for live graph %s/%u", label, batch);
	r->lives[r->live_count++] = live;
	return MD_OK;
}

/* ---- the first launches ---- */

static bool overlap(const struct md_artifact_handed *a, const struct md_artifact_handed *b)
{
	return a->alloc == b->alloc && a->offset < b->offset + b->size && b->offset < a->offset + a->size;
}

void md_restore_group_feed(struct md_restore *r, const struct md_restore_graph *writer)
{
	const struct md_artifact_graph *from = writer->stored;
	for (uint32_t g = 0; g < r->artifact.graph_count; g++) {
		struct md_restore_graph *graph = &r->graphs[g];
		for (uint32_t i = 0; graph->stored->group == from->group && i < graph->stored->handed_count; i++)
			for (uint32_t w = 0; w < from->handed_count; w++)
				graph->fed[i] |=
				    from->handed[w].writes && overlap(&graph->stored->handed[i], &from->handed[w]);
	}
}

static bool is_fed(const struct md_restore_graph *graph)
{
	for (uint32_t i = 0; i < graph->stored->handed_count; i++)
		if (graph->stored->handed[i].reads && !graph->fed[i])
			return false;
	return true;
}

static struct md_restore_graph *find_exec(const struct md_restore *r, CUgraphExec exec)
{
	for (uint32_t g = 0; r->graphs && g < r->artifact.graph_count; g++)
		if (r->graphs[g].handed_out && r->graphs[g].exec == exec)
			return &r->graphs[g];
	return NULL;
}

void md_restore_graph_destroyed(struct md_restore *r, CUgraphExec exec)
{
	struct md_restore_graph *graph = r->phase == MD_PHASE_OPEN ? find_exec(r, exec) : NULL;
	if (!graph)
		return;
	graph->exec = NULL;
	graph->destroyed = true;
}

/*
 * Watches until all graphs that were handed out have been launched in
 * the right order once. Graphs that are never launched cost little.
 */
void md_restore_group_launched(struct md_restore *r, CUgraphExec exec)
{
	struct md_restore_graph *graph = r->phase == MD_PHASE_OPEN ? find_exec(r, exec) : NULL;
	static unsigned launches;
	bool all = true;
	if (!graph || !graph->stored->group)
		return;
	if (!is_fed(graph) && !graph->warned) {
		graph->warned = true;
		md_error_log("graph %s/%" PRIu32 " is launched before another graph has written the unbound memory "
			     "that it reads: it reads what was there in the capture",
			     graph->stored->label, graph->stored->batch);
	}
	md_restore_group_feed(r, graph);
	for (uint32_t g = 0; g < r->artifact.graph_count; g++)
		all &= !r->graphs[g].handed_out || r->graphs[g].warned || is_fed(&r->graphs[g]);
	if (all || ++launches == LAUNCHES_WATCHED)
		atomic_store_explicit(&md_restore_watching, false, memory_order_relaxed);
}
