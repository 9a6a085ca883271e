/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: refuses graphs that a restore could not serve although their pointers are proven. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"
#include "base/cleanup.h"
#include "driver/maker.h"

static void refuse_foreign_memory(const struct md_analysis *analysis, struct md_pair *pair)
{
	for (uint32_t i = 0; i < pair->findings.count; i++) {
		const struct md_finding *finding = &pair->findings.items[i];
		const struct md_view_alloc *alloc = &analysis->views[0].allocs[finding->target.alloc];
		const char *foreign = alloc->family == MD_ALLOC_GLOBAL
					  ? md_variable_foreign(analysis, finding->target.alloc)
					  : md_alloc_foreign(alloc->family);
		bool can_bind = alloc->family == MD_ALLOC_HOST || alloc->family == MD_ALLOC_SHARED ||
				alloc->family == MD_ALLOC_MANAGED;
		if (finding->target.binding != MD_NONE || !foreign)
			continue;
		md_pair_refuse(pair,
			       "node %" PRIu32 ": byte %" PRIu32 " points to %s (allocation %" PRIu32 ", %" PRIu64
			       " bytes), which a restore does not own%s",
			       finding->node, finding->at, foreign, finding->target.alloc, alloc->size,
			       can_bind ? ": the engine must bind it" : "");
		return;
	}
}

/* The name of the communication library's memory that the finding points into; NULL: of no such memory. */
static const char *made_memory(const struct md_analysis *analysis, const struct md_finding *finding)
{
	const char *name =
	    finding->target.binding == MD_NONE ? "" : analysis->views[0].bindings[finding->target.binding].name;
	return md_maker_is_name(name) || md_maker_is_captured(name) ? name : NULL;
}

static const char *whose(const char *name)
{
	return md_maker_is_peers(name) ? "memory that ranks share" : "memory of a communication library";
}

/* In both captures, at the same place of the same memory: so it is no word that happens to look like an address. */
static void check_made_word(const struct md_analysis *analysis, struct md_pair *pair, const char *where,
			    const char *name, const char *first)
{
	if (!pair->graph[0]->together)
		md_pair_refuse(pair,
			       "%s points into %s, %s: no rank restores it unless "
			       "all ranks have replayed it together in a capture, so the engine captures it live",
			       where, name, whose(name));
	else if (analysis->captures < 2)
		md_pair_refuse(pair, "%s points into %s, %s, which one capture alone does not prove", where, name,
			       whose(name));
	else if (md_maker_is_captured(name))
		md_pair_refuse(pair,
			       "%s points into %s, %s, which came to be there when graphs were captured: a start that "
			       "restores the graph does not make it",
			       where, name, whose(name));
	else if (!md_maker_same_library(first, name))
		md_pair_refuse(pair,
			       "%s points into %s, and another word into %s: memory of two communication libraries, or "
			       "of one and of ranks",
			       where, name, first);
}

/*
 * Memory of the library is known by how much of it was made before. Where the captures differ in that, the numbers name other memory in
 * another start, too. mine: of this view; theirs: of the other one.
 */
static const struct md_view_binding *differs_before(const struct md_view *mine, const struct md_view *theirs,
						    const char *library, uint64_t last)
{
	for (uint32_t i = 0, j = 0; i < mine->binding_count; i++) { /* both are listed by name */
		const struct md_view_binding *binding = &mine->bindings[i];
		while (j < theirs->binding_count && strcmp(theirs->bindings[j].name, binding->name) < 0)
			j++;
		bool same = j < theirs->binding_count && !strcmp(theirs->bindings[j].name, binding->name) &&
			    theirs->bindings[j].size == binding->size;
		if (!same && md_maker_same_library(binding->name, library) && md_maker_place_of(binding->name) <= last)
			return binding;
	}
	return NULL;
}

static void check_order_of_made(const struct md_analysis *analysis, struct md_pair *pair, const char *library,
				uint64_t last)
{
	const struct md_view *one = &analysis->views[0], *two = &analysis->views[1];
	const struct md_view_binding *in_one = differs_before(one, two, library, last);
	const struct md_view_binding *found = in_one ? in_one : differs_before(two, one, library, last);
	if (found)
		md_pair_refuse(pair,
			       "it has an address in memory %s %s before, and that "
			       "memory (%" PRIu64
			       " bytes in the %s capture) is missing or of another size in the %s one: "
			       "start both captures with the same settings%s",
			       md_maker_is_peers(library) ? "that ranks share, as they share"
							  : "of a communication library that made",
			       found->name, found->size, in_one ? "first" : "second", in_one ? "second" : "first",
			       md_maker_is_peers(library) ? "" : " of the library");
}

struct made_words { /* of one graph */
	const char *first;
	uint64_t last; /* the latest place in the order of what it has an address in */
};

static void add_made_word(const struct md_analysis *analysis, struct md_pair *pair, struct made_words *words,
			  const char *where, const struct md_finding *finding)
{
	const char *name = made_memory(analysis, finding);
	if (!name || pair->why)
		return;
	words->first = words->first ? words->first : name;
	check_made_word(analysis, pair, where, name, words->first);
	if (md_maker_is_name(name) && md_maker_place_of(name) > words->last)
		words->last = md_maker_place_of(name);
}

static bool holds_made(const struct md_analysis *analysis, const struct md_held *held)
{
	for (uint32_t f = 0; f < held->findings.count; f++)
		if (made_memory(analysis, &held->findings.items[f]))
			return true;
	return false;
}

static void follow(const struct md_analysis *analysis, const struct md_findings *findings, uint8_t *seen)
{
	for (uint32_t f = 0; f < findings->count; f++)
		if (findings->items[f].target.binding == MD_NONE && findings->items[f].target.alloc != MD_NONE)
			seen[analysis->group[findings->items[f].target.alloc]] = 1;
}

static void add_held(const struct md_analysis *analysis, struct md_pair *pair, const struct md_held *held,
		     struct made_words *words)
{
	char where[96];
	for (uint32_t f = 0; f < held->findings.count; f++) {
		if (!made_memory(analysis, &held->findings.items[f]))
			continue;
		snprintf(where, sizeof(where), "contents of allocation %" PRIu32 ": byte %" PRIu64, held->alloc,
			 held->offset + held->findings.items[f].at);
		add_made_word(analysis, pair, words, where, &held->findings.items[f]);
	}
	if (!held->compared && holds_made(analysis, held))
		md_pair_refuse(pair,
			       "contents of allocation %" PRIu32 " have addresses of memory that ranks share, and the "
			       "other capture has not saved the same bytes",
			       held->alloc);
}

/* A table of the other ranks' buffers lies in contents, perhaps behind others. */
static enum md_status add_tables(const struct md_analysis *analysis, struct md_pair *pair, struct made_words *words,
				 struct md_error *err)
{
	bool any = false, more = true;
	for (uint32_t i = 0; i < analysis->held_count && !any; i++)
		any = analysis->held[i].variable == MD_NONE && holds_made(analysis, &analysis->held[i]);
	if (!any)
		return MD_OK;
	MD_AUTO_FREE uint8_t *seen = calloc((size_t)analysis->views[0].alloc_count + analysis->held_count + 1, 1);
	if (!seen)
		return md_analysis_no_memory(err);
	uint8_t *done = seen + analysis->views[0].alloc_count;
	follow(analysis, &pair->findings, seen);
	while (more) {
		more = false;
		for (uint32_t i = 0; i < analysis->held_count; i++) {
			const struct md_held *held = &analysis->held[i];
			if (held->variable != MD_NONE || done[i] || !seen[analysis->group[held->alloc]])
				continue;
			done[i] = 1;
			more = true;
			follow(analysis, &held->findings, seen);
			add_held(analysis, pair, held, words);
		}
	}
	return MD_OK;
}

/* *first: a name of the library with which the graph communicates; NULL: it does not. */
static enum md_status check_made_memory(const struct md_analysis *analysis, struct md_pair *pair, const char **first,
					struct md_error *err)
{
	struct made_words words = {0};
	char where[64];
	for (uint32_t i = 0; i < pair->findings.count && !pair->why; i++) {
		if (!made_memory(analysis, &pair->findings.items[i]))
			continue;
		snprintf(where, sizeof(where), "node %" PRIu32 ": byte %" PRIu32, pair->findings.items[i].node,
			 pair->findings.items[i].at);
		add_made_word(analysis, pair, &words, where, &pair->findings.items[i]);
	}
	MD_FORWARD(add_tables(analysis, pair, &words, err));
	if (words.first && !pair->why)
		check_order_of_made(analysis, pair, words.first, words.last);
	*first = words.first;
	return MD_OK;
}

/* Replays with other values would have to be made by all ranks, and what one of them tries changes what others get. */
static void refuse_doubts(struct md_pair *pair)
{
	if (pair->graph[0]->together && pair->doubts.count && !pair->why)
		md_pair_refuse(pair,
			       "node %" PRIu32 ": byte %" PRIu32
			       " may be an address or not, which replays do not show in a graph that communicates",
			       pair->doubts.items[0].node, pair->doubts.items[0].at);
}

/* An event of the library is found again by its place in the order of that library's events. */
static void check_made_events(const struct md_analysis *analysis, struct md_pair *pair, const char *library)
{
	const struct md_trace_graph *graph = pair->graph[0];
	for (uint32_t n = 0; n < graph->node_count && graph->together && !pair->why; n++) {
		const struct md_node *node = &graph->nodes[n];
		if (node->type != MD_NODE_EVENT_RECORD && node->type != MD_NODE_EVENT_WAIT)
			continue;
		const char *name = md_analysis_event_name(analysis->traces[0], node->event);
		if (name && (!library || !md_maker_same_library(library, name)))
			md_pair_refuse(pair,
				       "node %" PRIu32
				       ": %s %s, an event of a communication library whose memory the graph does not "
				       "use",
				       n, node->type == MD_NODE_EVENT_WAIT ? "waits for" : "records", name);
	}
}

/* Why it matters to a graph what lies at [from, to) of an allocation that is not its own; NULL: it does not matter. */
static const char *what_counts(const struct md_analysis *analysis, uint32_t alloc, uint64_t from, uint64_t to)
{
	const struct md_view *view = &analysis->views[0];
	const char *foreign = md_alloc_foreign(view->allocs[alloc].family);
	for (uint32_t i = view->first_piece[alloc]; i < view->first_piece[alloc + 1]; i++) {
		if (view->pieces[i].start < to && from < view->pieces[i].end)
			return "which is bound";
	}
	for (uint32_t i = 0; i < analysis->held_count; i++) {
		const struct md_held *held = &analysis->held[i];
		if (held->alloc == alloc && held->offset < to && from < held->offset + held->size)
			return "whose contents it needs";
	}
	return foreign ? "which a restore does not own" : NULL;
}

/*
 * A replay reads what lies at an address at that time. If the addresses belonged to another allocation already when the
 * graph was tested, and that allocation matters, then the allocation at the launch proves nothing. (MEDUSA, figure 6.)
 */
static enum md_status refuse_given_away(struct md_analysis *analysis, struct md_pair *pair, struct md_error *err)
{
	struct md_view *view = &analysis->views[0];
	uint64_t tested = pair->graph[0]->probe_sequence;
	for (uint32_t i = 0; tested && !pair->why && i < pair->findings.count; i++) {
		const struct md_finding *finding = &pair->findings.items[i];
		const struct md_view_alloc *alloc = &view->allocs[finding->target.alloc];
		uint64_t start = alloc->address, end = start + alloc->size;
		if (finding->target.binding != MD_NONE || alloc->died > tested)
			continue;
		MD_FORWARD(md_view_seek(view, tested, err));
		for (size_t at = 0; at < view->live.count && !pair->why; at++) {
			const struct md_interval *now = &view->live.items[at];
			uint64_t from = now->start > start ? now->start : start;
			uint64_t to = now->start + now->size < end ? now->start + now->size : end;
			const char *why =
			    from < to ? what_counts(analysis, (uint32_t)now->value, from - now->start, to - now->start)
				      : NULL;
			if (why)
				md_pair_refuse(pair,
					       "node %" PRIu32 ": byte %" PRIu32 " points into allocation %" PRIu32
					       ", which was freed before the graph's test; its addresses were "
					       "allocation %" PRIu64 "'s then, %s",
					       finding->node, finding->at, finding->target.alloc, now->value, why);
		}
	}
	return MD_OK;
}

static bool name_is_unique(const struct md_trace *trace, uint32_t kernel)
{
	for (uint32_t i = 0; i < trace->kernel_count; i++) {
		if (i != kernel && strcmp(trace->kernels[i].name, trace->kernels[kernel].name) == 0)
			return false;
	}
	return true;
}

/* A kernel whose image is not known is found by its name alone, so the name must be unique. */
static void refuse_nameless_kernels(const struct md_analysis *analysis, struct md_pair *pair)
{
	const struct md_trace *trace = analysis->traces[0];
	for (uint32_t n = 0; n < pair->graph[0]->node_count; n++) {
		const struct md_node *node = &pair->graph[0]->nodes[n];
		uint32_t kernel;
		if (node->type != MD_NODE_KERNEL)
			continue;
		kernel = analysis->kernel_identity[0][node->kernel];
		if (trace->kernels[kernel].image != MD_NONE || name_is_unique(trace, kernel))
			continue;
		md_pair_refuse(pair,
			       "node %" PRIu32 ": the image of kernel %s is not known, and another kernel has its name",
			       n, trace->kernels[kernel].name);
		return;
	}
}

enum md_status md_pass_admit(struct md_analysis *analysis, struct md_error *err)
{
	for (uint32_t i = 0; i < analysis->pair_count; i++) {
		const char *library;
		if (analysis->pairs[i].why)
			continue;
		refuse_foreign_memory(analysis, &analysis->pairs[i]);
		MD_FORWARD(check_made_memory(analysis, &analysis->pairs[i], &library, err));
		check_made_events(analysis, &analysis->pairs[i], library);
		refuse_doubts(&analysis->pairs[i]);
		refuse_nameless_kernels(analysis, &analysis->pairs[i]);
		MD_FORWARD(refuse_given_away(analysis, &analysis->pairs[i], err));
	}
	return MD_OK;
}
