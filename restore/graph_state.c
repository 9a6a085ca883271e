/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a graph: each change of state is counted here, and a refusal is logged. */
#define MD_LOG_DOMAIN "restore"

#include "restore/graph_state.h"

#include <string.h>

#include "base/clock.h"
#include "restore/groups.h"
#include "restore/outcome.h"

static void note_first_ready(struct md_restore *r) MD_RESTORE_HELD
{
	uint64_t from = r->last_bind_ns > r->functions_done_ns ? r->last_bind_ns : r->functions_done_ns;
	uint64_t now = md_clock_ns();
	if (r->stats.graphs_restored == 1)
		r->stats.first_ready_ns = now > from ? now - from : 0;
}

void md_restore_graph_ready(struct md_restore *r, struct md_restore_graph *graph)
{
	graph->state = MD_GRAPH_READY;
	r->stats.graphs_restored++;
	r->stats.nodes += graph->stored->node_count;
	r->stats.pointers += graph->stored->pointer_count;
	md_graph_queue_drop(r, graph);
	note_first_ready(r);
	md_outcome_ready(r);
}

void md_restore_graph_unmake(struct md_restore *r, struct md_restore_graph *graph)
{
	if (graph->state != MD_GRAPH_READY)
		return;
	graph->state = MD_GRAPH_WAITING;
	md_graph_queue_rewind(r);
	r->stats.graphs_restored--;
	r->stats.nodes -= graph->stored->node_count;
	r->stats.pointers -= graph->stored->pointer_count;
}

void md_restore_refuse_at(struct md_restore *r, struct md_restore_graph *graph, const struct md_error *err,
			  enum md_log_level level)
{
	if (graph->state == MD_GRAPH_REFUSED)
		return;
	md_restore_graph_unmake(r, graph);
	graph->state = MD_GRAPH_REFUSED;
	graph->reasons->refused = *err;
	md_graph_queue_drop(r, graph);
	r->stats.graphs_refused++;
	md_log(level, MD_LOG_DOMAIN, "graph %s/%u is not restored: %s", graph->stored->label, graph->stored->batch,
	       err->message);
	md_outcome_changed();
	md_restore_group_refuse(r, graph);
}

void md_restore_refuse(struct md_restore *r, struct md_restore_graph *graph, const struct md_error *err)
{
	md_restore_refuse_at(r, graph, err, MD_LOG_WARN);
}
