/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of what an analysis finds in the words of a graph. */
#include <stdlib.h>

#include "analyze/findings.h"
#include "base/array.h"

bool md_findings_add(struct md_findings *findings, uint32_t node, uint32_t at, const struct md_target *target)
{
	if (!MD_ARRAY_GROW(findings->items, findings->count, findings->capacity))
		return false;
	findings->items[findings->count++] = (struct md_finding){node, at, *target, MD_POINTER_PLAIN, 0};
	return true;
}

bool md_noises_add(struct md_noises *noises, uint32_t node, uint32_t at, uint32_t size)
{
	struct md_noise *last = noises->count ? &noises->items[noises->count - 1] : NULL;
	if (last && last->node == node && last->at + last->size == at) {
		last->size += size;
		return true;
	}
	if (!MD_ARRAY_GROW(noises->items, noises->count, noises->capacity))
		return false;
	noises->items[noises->count++] = (struct md_noise){node, at, size};
	return true;
}

bool md_doubts_add(struct md_doubts *doubts, const struct md_doubt *doubt)
{
	if (!MD_ARRAY_GROW(doubts->items, doubts->count, doubts->capacity))
		return false;
	doubts->items[doubts->count++] = *doubt;
	return true;
}

static int compare(uint32_t node, uint32_t at, uint32_t other_node, uint32_t other_at)
{
	if (node != other_node)
		return node < other_node ? -1 : 1;
	return (at > other_at) - (at < other_at);
}

static int compare_findings(const void *left, const void *right)
{
	const struct md_finding *a = left, *b = right;
	return compare(a->node, a->at, b->node, b->at);
}

void md_findings_sort(struct md_findings *findings)
{
	if (findings->count)
		qsort(findings->items, findings->count, sizeof(*findings->items), compare_findings);
}

static int compare_noises(const void *left, const void *right)
{
	const struct md_noise *a = left, *b = right;
	return compare(a->node, a->at, b->node, b->at);
}

void md_noises_sort(struct md_noises *noises)
{
	if (noises->count)
		qsort(noises->items, noises->count, sizeof(*noises->items), compare_noises);
}

static int compare_doubts(const void *left, const void *right)
{
	const struct md_doubt *a = left, *b = right;
	return compare(a->node, a->at, b->node, b->at);
}

void md_doubts_sort(struct md_doubts *doubts)
{
	if (doubts->count)
		qsort(doubts->items, doubts->count, sizeof(*doubts->items), compare_doubts);
}
