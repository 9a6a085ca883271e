/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the next work of the background: awaited graphs first,
 * then by the engine's wishes; kernels as their images come.
 */
#include "restore/bindings.h"
#include "restore/graph_state.h"
#include "restore/heap.h"
#include "restore/image_load.h"
#include "restore/resolve.h"
#include "restore/restore.h"
#include "restore/restore_facts.h"
#include "restore/stages.h"
#include "restore/work.h"

/* 1: all bound; 0: not yet; -1: one does not fit, and the graph is refused. */
static int bindings_state(struct md_restore *r, struct md_restore_graph *graph) MD_REQUIRES(md_restore_lock)
{
	struct md_error err = {0};
	for (; graph->bindings_done < graph->binding_count; graph->bindings_done++) {
		enum md_status status = md_restore_binding_check(r, graph->bindings[graph->bindings_done], &err);
		if (status == MD_ERR_NOT_FOUND)
			return 0;
		if (status != MD_OK) {
			md_restore_refuse(r, graph, &err);
			return -1;
		}
	}
	/* The library may still be making events and further memory. */
	return !graph->communicates || graph->awaited;
}

/* Whether the kernel can be resolved now without waiting for a loader. */
static bool resolvable(const struct md_restore *r, uint32_t kernel) MD_REQUIRES(md_restore_lock)
{
	uint32_t image = r->artifact.kernels[kernel].image;
	return r->kernels[kernel].state == MD_KERNEL_PENDING &&
	       (image == MD_NONE || !md_restore_image_coming(r, image));
}

/* 1: all resolved; 0: not yet, and *next may be a kernel to resolve; -1: one is refused, and so is the graph. */
static int kernels_state(struct md_restore *r, struct md_restore_graph *graph, uint32_t *next)
    MD_REQUIRES(md_restore_lock)
{
	for (; graph->kernels_done < graph->kernel_count; graph->kernels_done++) {
		const struct md_restore_kernel *kernel = &r->kernels[graph->kernels[graph->kernels_done]];
		if (kernel->state == MD_KERNEL_REFUSED) {
			md_restore_refuse(r, graph, &kernel->reason);
			return -1;
		}
		if (kernel->state != MD_KERNEL_RESOLVED)
			break;
	}
	for (uint32_t i = graph->kernels_done; *next == MD_NONE && i < graph->kernel_count; i++)
		if (resolvable(r, graph->kernels[i]))
			*next = graph->kernels[i];
	return graph->kernels_done == graph->kernel_count;
}

static struct md_work build(struct md_restore_graph *graph)
{
	const struct md_restore_stage *stage = &md_restore_graph_stages[graph->stage];
	return (struct md_work){.kind = MD_WORK_BUILD,
				.graph = graph,
				.pace = stage->pace,
				.units = stage->units ? stage->units(graph) : 0,
				.awaited = graph->awaited > 0};
}

static struct md_work resolve(const struct md_restore *r, uint32_t kernel) MD_RESTORE_HELD
{
	return (struct md_work){
	    .kind = MD_WORK_RESOLVE, .kernel = kernel, .pace = MD_PACE_FUNCTION, .units = 1, .awaited = r->awaited > 0};
}

/* *waiting: it can't be built now, but later. */
static bool can_be_built(struct md_restore *r, struct md_restore_graph *graph, uint32_t *kernel, bool *waiting)
    MD_REQUIRES(md_restore_lock)
{
	if (graph->state != MD_GRAPH_WAITING)
		return false;
	*waiting |= graph->batched;
	if (graph->batched)
		return false;
	int kernels = kernels_state(r, graph, kernel);
	int bindings = kernels < 0 ? -1 : bindings_state(r, graph);
	*waiting |= bindings >= 0;
	return kernels > 0 && bindings > 0;
}

/*
 * A graph that can be built, or else the kernel that the first
 * such graph lacks. *waiting: graphs are still to be built.
 */
static struct md_work next_graph(struct md_restore *r, bool awaited, uint32_t *kernel, bool *waiting)
    MD_REQUIRES(md_restore_lock)
{
	struct md_restore_graph *last = awaited ? r->awaited_last : NULL;
	if (last && last->awaited && can_be_built(r, last, kernel, waiting))
		return build(last);
	if (last && last->awaited == r->awaited) /* nobody waits for another graph */
		return (struct md_work){.kind = MD_WORK_WAIT};
	for (uint32_t i = md_graph_queue_first(r); i < r->artifact.graph_count; i++) {
		struct md_restore_graph *graph = &r->graphs[r->order[i]];
		if ((!awaited || graph->awaited) && can_be_built(r, graph, kernel, waiting))
			return build(graph);
	}
	return (struct md_work){.kind = MD_WORK_WAIT};
}

/* Some graph will need private memory, and the engine, which binds now, has made its own allocations. */
static bool arena_due(const struct md_restore *r) MD_RESTORE_HELD
{
	bool wanted = false;
	if (r->arena || r->arena_tried || !r->artifact.arena_size || !r->bound_count)
		return false;
	for (uint32_t i = 0; i < r->artifact.graph_count; i++)
		wanted |= r->graphs[i].state == MD_GRAPH_WAITING && r->graphs[i].uses_arena;
	return wanted;
}

static struct md_work next_drop(struct md_restore *r) MD_RESTORE_HELD
{
	struct md_restore_graph *graph;
	for (; (graph = md_graph_queue_look(r)); md_graph_queue_take_off(r)) {
		if (graph->state == MD_GRAPH_REFUSED && !graph->handed_out &&
		    (graph->exec || graph->graph || graph->nodes || graph->events))
			return (struct md_work){.kind = MD_WORK_UNDO,
						.graph = graph,
						.pace = MD_PACE_DROP,
						.units = graph->stored->node_count + 1};
		if (graph->state == MD_GRAPH_READY && graph->graph)
			return (struct md_work){.kind = MD_WORK_DROP,
						.graph = graph,
						.pace = MD_PACE_DROP,
						.units = graph->stored->node_count + 1,
						.awaited = r->awaited > 0};
	}
	return (struct md_work){.kind = MD_WORK_WAIT};
}

struct md_work md_restore_work_next(struct md_restore *r, bool settled)
{
	uint32_t kernel = MD_NONE;
	bool waiting = false;
	r->choices++;
	if (r->verify)
		return (struct md_work){.kind = settled ? MD_WORK_WAIT : MD_WORK_SETTLE};
	struct md_work work = next_drop(r);
	/* Whoever waits for a graph has found the limits right; if they could not be read here, nobody would try again. */
	if (work.kind == MD_WORK_WAIT && !r->awaited && !md_restore_limits_fit(r))
		return work;
	if (work.kind == MD_WORK_WAIT && r->awaited)
		work = next_graph(r, true, &kernel, &waiting);
	if (work.kind == MD_WORK_WAIT && kernel != MD_NONE)
		return resolve(r, kernel);
	if (work.kind == MD_WORK_WAIT && arena_due(r))
		return (struct md_work){.kind = MD_WORK_ARENA};
	if (work.kind == MD_WORK_WAIT)
		work = next_graph(r, false, &kernel, &waiting);
	if (work.kind == MD_WORK_WAIT && kernel != MD_NONE)
		return resolve(r, kernel);
	if (work.kind == MD_WORK_WAIT && waiting && md_restore_heap_lacks(r)) /* there is nothing better to do */
		return (struct md_work){.kind = MD_WORK_HEAP};
	if (work.kind == MD_WORK_WAIT && !waiting && !settled)
		work.kind = MD_WORK_SETTLE;
	return work;
}
