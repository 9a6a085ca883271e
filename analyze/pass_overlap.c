/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass: bindings that share memory (tied weights under two names, a pool and what lies in it, an output in place). A
 * pointer there is of one of them, and if they lie the same way in both captures nobody can tell of which: a restore
 * sees to it that they lie so again.
 */
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"
#include "base/cleanup.h"

struct placed {
	uint64_t moved; /* from the first capture to the second: what moves apart, the captures tell apart */
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

/* Memory that was freed before the other was made had the same addresses alone. */
static bool at_one_time(const struct md_view *view, const struct placed *a, const struct placed *b)
{
	const struct md_view_alloc *one = &view->allocs[a->alloc], *two = &view->allocs[b->alloc];
	return one == two || (one->born < two->died && two->born < one->died);
}

enum md_status md_pass_overlap(struct md_analysis *analysis, struct md_error *err)
{
	const struct md_view *view = &analysis->views[0];
	uint32_t count = view->binding_count, reach = 0; /* the one that ends last of those that came before */
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
