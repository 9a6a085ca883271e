/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass: bindings that share memory (tied weights under two names, a pool and a buffer in it, an output in place). A
 * pointer into shared memory may belong to either binding. If the two lie the same way in both captures, nothing tells
 * to which; so a restore demands that they lie the same way again.
 */
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"
#include "base/cleanup.h"

struct placed {
	uint64_t moved; /* by how far the second capture has it elsewhere; bindings that moved apart are told apart */
	uint64_t address, end;
	uint32_t index, alloc;
};

static int by_place(const void *a, const void *b)
{
	const struct placed *one = a, *two = b;
	if (one->moved != two->moved)
		return one->moved < two->moved ? -1 : 1;
	if (one->address != two->address)
		return one->address < two->address ? -1 : 1;
	return (one->index > two->index) - (one->index < two->index);
}

static struct placed place_of(const struct md_analysis *analysis, uint32_t index)
{
	const struct md_view_binding *binding = &analysis->views[0].bindings[index];
	uint32_t partner = analysis->captures < 2 ? MD_NONE : analysis->binding_match[index];
	uint64_t moved = partner == MD_NONE ? 0 : analysis->views[1].bindings[partner].address - binding->address;
	return (struct placed){moved, binding->address, binding->address + binding->size, index, binding->alloc};
}

/* Whether both were live at one time. Memory that was freed before the other was made shares its addresses alone. */
static bool at_one_time(const struct md_view *view, const struct placed *a, const struct placed *b)
{
	const struct md_view_alloc *one = &view->allocs[a->alloc], *two = &view->allocs[b->alloc];
	return one == two || (one->born < two->died && two->born < one->died);
}

enum md_status md_pass_overlap(struct md_analysis *analysis, struct md_error *err)
{
	const struct md_view *view = &analysis->views[0];
	uint32_t count = view->binding_count, reach = 0; /* reach: of the earlier bindings, the one that ends last */
	MD_AUTO_FREE struct placed *places = calloc(count + (size_t)1, sizeof(*places));
	analysis->within = malloc((count + (size_t)1) * sizeof(*analysis->within));
	if (!places || !analysis->within)
		return md_analysis_no_memory(err);
	memset(analysis->within, 0xff, (count + (size_t)1) * sizeof(*analysis->within));
	for (uint32_t i = 0; i < count; i++)
		places[i] = place_of(analysis, i);
	qsort(places, count, sizeof(*places), by_place);
	for (uint32_t i = 1; i < count; i++) {
		const struct placed *last = &places[reach], *this = &places[i];
		uint32_t first = analysis->within[last->index];
		bool apart = last->moved != this->moved || last->end <= this->address;
		if (!apart && at_one_time(view, last, this))
			analysis->within[this->index] = first == MD_NONE ? last->index : first;
		if (apart || this->end > last->end)
			reach = i;
	}
	return MD_OK;
}
