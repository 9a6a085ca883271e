/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass: graphs that hand a value on through unbound memory. If one of them were restored and the other captured live,
 * there would be two copies of that memory. So they form one group, or are refused where nothing will be compared.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "analyze/analysis.h"
#include "base/array.h"

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
		md_pair_refuse(pair, "%s unbound memory, and graph %s/%" PRIu32 " %s: the engine must bind it", does,
			       other->label, other->batch, does_too);
	else
		md_pair_refuse(pair, "%s unbound memory, and a graph without a label %s: the engine must bind it", does,
			       does_too);
}

/* One of the two is the engine, outside of graphs. */
static void refuse_call(struct md_pair *reader, struct md_pair *writer, const struct md_trace_handed *handed)
{
	if (writer)
		md_pair_refuse(
		    writer,
		    "%s reads %" PRIu64
		    " bytes of unbound memory that the graph writes: bind it, or declare it with medusa_graph_output",
		    handed->call, handed->size);
	if (reader)
		md_pair_refuse(reader, "%s writes %" PRIu64 " bytes of unbound memory that the graph reads: bind it",
			       handed->call, handed->size);
}

/* ---- groups: each pair has the number of its group, or 0 ---- */

static void unite(struct md_analysis *analysis, struct md_pair *one, struct md_pair *two)
{
	uint32_t from = two->group, to = one->group ? one->group : (uint32_t)(one - analysis->pairs) + 1;
	one->group = two->group = to;
	for (uint32_t i = 0; from && from != to && i < analysis->pair_count; i++)
		if (analysis->pairs[i].group == from)
			analysis->pairs[i].group = to;
}

static bool add_handing(struct md_analysis *analysis, const struct md_pair *reader, const struct md_pair *writer,
			unsigned capture, const struct md_trace_handed *handed)
{
	if (!MD_ARRAY_EXTEND(analysis->handings, analysis->handing_count))
		return false;
	analysis->handings[analysis->handing_count++] = (struct md_handing){(uint32_t)(reader - analysis->pairs),
									    (uint32_t)(writer - analysis->pairs),
									    capture,
									    handed->address,
									    handed->size,
									    handed->sequence};
	return true;
}

/* The first record of a pair of graphs says that they hand values on; the records behind it say where. */
static bool says_where(const struct md_trace *trace, const struct md_trace_handed *handed)
{
	const struct md_trace_handed *next = handed + 1;
	return next < trace->handed + trace->handed_count && next->reader == handed->reader &&
	       next->writer == handed->writer && next->size;
}

static void join(struct md_analysis *analysis, const struct md_trace *trace, const struct md_trace_handed *handed,
		 struct md_pair *reader, struct md_pair *writer)
{
	bool known = reader && writer && says_where(trace, handed);
	if (reader && reader == writer) {
		md_pair_refuse(reader, "reads what its own last replay wrote to unbound memory, and passes it on: the "
				       "engine must bind that memory");
		return;
	}
	/* Only a comparison shows that a group's graphs are right together. */
	if (!known || !analysis->options.keep_doubtful) {
		refuse(reader, "reads", writer, "writes it");
		refuse(writer, "writes", reader, "reads it");
	}
	if (reader && writer)
		unite(analysis, reader, writer);
}

enum md_status md_pass_handed(struct md_analysis *analysis, struct md_error *err)
{
	for (unsigned c = 0; c < analysis->captures; c++) {
		const struct md_trace *trace = analysis->traces[c];
		for (uint32_t i = 0; i < trace->handed_count; i++) {
			const struct md_trace_handed *handed = &trace->handed[i];
			struct md_pair *reader = pair_of(analysis, c, handed->reader);
			struct md_pair *writer = pair_of(analysis, c, handed->writer);
			if (handed->call)
				refuse_call(reader, writer, handed);
			else if (!handed->size)
				join(analysis, trace, handed, reader, writer);
			else if (reader && writer && !add_handing(analysis, reader, writer, c, handed))
				return md_analysis_no_memory(err);
		}
	}
	return MD_OK;
}
