/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: graphs that hand a value on through memory that nobody bound. One of them restored and the other captured live
 * would have two copies of it: neither is restored. */
#include <inttypes.h>

#include "analyze/analysis.h"

static struct md_pair *pair_of(struct md_analysis *analysis, unsigned capture, uint64_t id)
{
	for (uint32_t i = 0; i < analysis->pair_count; i++) {
		const struct md_trace_graph *graph = analysis->pairs[i].graph[capture];
		if (graph && graph->id == id)
			return &analysis->pairs[i];
	}
	return NULL;
}

static void refuse(struct md_pair *pair, const char *does, const struct md_pair *other, const char *does_too)
{
	if (!pair)
		return;
	if (other)
		md_pair_refuse(pair,
			       "%s memory that nobody bound, and graph %s/%" PRIu32 " %s: the engine must bind it",
			       does, other->label, other->batch, does_too);
	else
		md_pair_refuse(pair,
			       "%s memory that nobody bound, and a graph without a label %s: the engine must bind it",
			       does, does_too);
}

/* One of the two is the engine, outside of graphs. */
static void refuse_call(struct md_pair *reader, struct md_pair *writer, const struct md_trace_handed *handed)
{
	if (writer)
		md_pair_refuse(writer,
			       "%s reads %" PRIu64
			       " bytes of memory that the graph writes and nobody bound: bind it, or "
			       "say that it is an output of the graph",
			       handed->call, handed->size);
	if (reader)
		md_pair_refuse(reader,
			       "%s writes %" PRIu64 " bytes of memory that the graph reads and nobody bound: bind it",
			       handed->call, handed->size);
}

enum md_status md_pass_handed(struct md_analysis *analysis, struct md_error *err)
{
	(void)err;
	for (unsigned c = 0; c < analysis->captures; c++) {
		for (uint32_t i = 0; i < analysis->traces[c]->handed_count; i++) {
			const struct md_trace_handed *handed = &analysis->traces[c]->handed[i];
			struct md_pair *reader = pair_of(analysis, c, handed->reader);
			struct md_pair *writer = pair_of(analysis, c, handed->writer);
			if (handed->call)
				refuse_call(reader, writer, handed);
			if (handed->call || handed->size) /* the first record of two graphs has no size */
				continue;
			refuse(reader, "reads", writer, "writes it");
			refuse(writer, "writes", reader, "reads it");
		}
	}
	return MD_OK;
}
