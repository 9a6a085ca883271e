/* SPDX-License-Identifier: Apache-2.0 */
/* Mappings that lie side by side, as in an expandable segment, count as one allocation. */
#include <stdlib.h>

#include "analyze/analysis.h"
#include "base/cleanup.h"

static uint32_t group_of(uint32_t *group, uint32_t alloc)
{
	while (group[alloc] != alloc) {
		group[alloc] = group[group[alloc]];
		alloc = group[alloc];
	}
	return alloc;
}

static bool adjoin(const struct md_view *view, uint32_t left, uint32_t right)
{
	const struct md_view_alloc *a = &view->allocs[left], *b = &view->allocs[right];
	return a->address + a->size == b->address && a->born < b->died && b->born < a->died;
}

static int compare_addresses(const void *left, const void *right, void *user)
{
	const struct md_view *view = user;
	uint64_t a = view->allocs[*(const uint32_t *)left].address, b = view->allocs[*(const uint32_t *)right].address;
	return (a > b) - (a < b);
}

/*
 * One tensor may lie across several mappings of a reserved range, and pointers may lead into the first mapping only. So
 * mappings that were neighbours stay neighbours in the arena. A mapping that is bound as a whole is the engine's, and
 * ends a group.
 */
bool md_analysis_group_mappings(struct md_analysis *analysis)
{
	const struct md_view *view = &analysis->views[0];
	MD_AUTO_FREE uint32_t *order = calloc(view->alloc_count + 1u, sizeof(*order));
	uint32_t *group = calloc(view->alloc_count + 1u, sizeof(*group));
	uint32_t count = 0;
	analysis->group = group;
	if (!order || !group)
		return false;
	for (uint32_t i = 0; i < view->alloc_count; i++) {
		group[i] = i;
		if (view->allocs[i].family == MD_ALLOC_VMM && !md_view_fully_bound(view, i))
			order[count++] = i;
	}
	qsort_r(order, count, sizeof(*order), compare_addresses, (void *)(uintptr_t)view);
	for (uint32_t i = 0, j = 0; i < count; i++) {
		uint64_t end = view->allocs[order[i]].address + view->allocs[order[i]].size;
		while (j > 0 && view->allocs[order[j - 1]].address >= end)
			j--;
		while (j < count && view->allocs[order[j]].address < end)
			j++;
		for (uint32_t k = j; k < count && view->allocs[order[k]].address == end; k++) {
			uint32_t left = analysis->partner[order[i]], right = analysis->partner[order[k]];
			bool together = adjoin(view, order[i], order[k]) && left != MD_NONE && right != MD_NONE &&
					adjoin(&analysis->views[analysis->captures - 1], left, right);
			if (together)
				group[group_of(group, order[k])] = group_of(group, order[i]);
		}
	}
	for (uint32_t i = 0; i < view->alloc_count; i++)
		group[i] = group_of(group, i);
	return true;
}
