/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: finds where each output of a graph lies, the same place in both captures, or refuses the graph. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "analyze/analysis.h"

static const char *const ordinal[] = {"first", "second"};

/* Whether every byte of the output lies in its binding, or in private memory side by side; false refuses the pair. */
static bool locate(struct md_analysis *analysis, struct md_pair *pair, unsigned capture, uint32_t index,
		   struct md_place *start)
{
	const struct md_view *view = &analysis->views[capture];
	const struct md_trace_output *output = &pair->graph[capture]->outputs[index];
	struct md_place place;
	for (uint64_t at = 0, step; at < output->size; at += step) {
		if (!md_view_locate(view, output->address + at, &place)) {
			md_pair_refuse(pair, "output %" PRIu32 ": byte %" PRIu64 " lies in no live memory (%s capture)",
				       index, at, ordinal[capture]);
			return false;
		}
		if (!at)
			*start = place;
		const struct md_view_alloc *alloc = &view->allocs[place.alloc];
		const struct md_view_piece *piece = md_view_piece_at(view, place.alloc, place.alloc_offset);
		if (place.binding != start->binding || place.replaced) {
			md_pair_refuse(pair,
				       "output %" PRIu32 ": byte %" PRIu64
				       " lies in another binding than byte 0, or in "
				       "one that was moved (%s capture)",
				       index, at, ordinal[capture]);
			return false;
		}
		step = piece ? piece->end - place.alloc_offset : alloc->size - place.alloc_offset;
		/* private memory ends where the next binding of its allocation begins */
		for (uint32_t i = view->first_piece[place.alloc]; !piece && i < view->first_piece[place.alloc + 1];
		     i++) {
			uint64_t begin = view->pieces[i].start;
			if (begin > place.alloc_offset && begin - place.alloc_offset < step)
				step = begin - place.alloc_offset;
		}
	}
	return true;
}

static bool is_foreign(const struct md_view *view, const struct md_place *place)
{
	return place->binding == MD_NONE && md_alloc_foreign(view->allocs[place->alloc].family);
}

static bool same_place(const struct md_analysis *analysis, const struct md_place *one, const struct md_place *two)
{
	if (one->offset != two->offset || (one->binding == MD_NONE) != (two->binding == MD_NONE))
		return false;
	return one->binding != MD_NONE ? analysis->binding_match[one->binding] == two->binding
				       : analysis->partner[one->alloc] == two->alloc;
}

static void refuse_place(const struct md_analysis *analysis, struct md_pair *pair, uint32_t index,
			 const struct md_place *one, const struct md_place *two)
{
	const struct md_place *places[] = {one, two};
	char text[2][160];
	for (unsigned c = 0; c < 2; c++) {
		if (places[c]->binding != MD_NONE)
			snprintf(text[c], sizeof(text[c]), "byte %" PRId64 " of %.100s", places[c]->offset,
				 analysis->views[c].bindings[places[c]->binding].name);
		else
			snprintf(text[c], sizeof(text[c]), "byte %" PRId64 " of allocation %" PRIu32, places[c]->offset,
				 places[c]->alloc);
	}
	md_pair_refuse(pair,
		       "output %" PRIu32 ": at %s in the first capture and at %s in the second, which is another place",
		       index, text[0], text[1]);
}

static void find_output(struct md_analysis *analysis, struct md_pair *pair, uint32_t index)
{
	struct md_place one, two;
	uint64_t size = pair->graph[0]->outputs[index].size;
	pair->outputs[index] = (struct md_target){.alloc = MD_NONE, .binding = MD_NONE};
	if (analysis->captures == 2 && pair->graph[1]->outputs[index].size != size) {
		md_pair_refuse(pair, "output %" PRIu32 ": %" PRIu64 " bytes, in the second capture %" PRIu64, index,
			       size, pair->graph[1]->outputs[index].size);
		return;
	}
	if (!size || !locate(analysis, pair, 0, index, &one))
		return;
	if (is_foreign(&analysis->views[0], &one)) {
		md_pair_refuse(pair, "output %" PRIu32 ": lies in memory that a restore does not own", index);
		return;
	}
	if (analysis->captures == 2) {
		if (!locate(analysis, pair, 1, index, &two))
			return;
		if (!same_place(analysis, &one, &two)) {
			refuse_place(analysis, pair, index, &one, &two);
			return;
		}
	}
	pair->outputs[index] = (struct md_target){one.alloc, one.binding, one.offset};
}

static enum md_status find_outputs(struct md_analysis *analysis, struct md_pair *pair, struct md_error *err)
{
	const struct md_trace_graph *one = pair->graph[0], *two = pair->graph[1];
	pair->outputs = calloc(one->output_count + (size_t)1, sizeof(*pair->outputs));
	if (!pair->outputs)
		return md_analysis_no_memory(err);
	if (analysis->captures == 2 && one->output_count != two->output_count) {
		md_pair_refuse(pair, "%" PRIu32 " outputs, in the second capture %" PRIu32, one->output_count,
			       two->output_count);
		return MD_OK;
	}
	for (unsigned c = 0; one->output_count && c < analysis->captures; c++)
		MD_FORWARD(md_view_seek(&analysis->views[c], pair->graph[c]->sequence, err));
	for (uint32_t i = 0; !pair->why && i < one->output_count; i++)
		find_output(analysis, pair, i);
	return MD_OK;
}

enum md_status md_pass_output(struct md_analysis *analysis, struct md_error *err)
{
	for (uint32_t i = 0; i < analysis->pair_count; i++) {
		if (!analysis->pairs[i].why)
			MD_FORWARD(find_outputs(analysis, &analysis->pairs[i], err));
	}
	return MD_OK;
}
