/* SPDX-License-Identifier: Apache-2.0 */
/* Private memory through which graphs hand values on: its record, and the checks of it and of groups. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "format/artifact/sections.h"

void md_visit_handed(struct md_archive *a, void *item, void *user)
{
	struct md_artifact_handed *handed = item;
	(void)user;
	md_archive_u32(a, "alloc", &handed->alloc);
	md_archive_u64(a, "offset", &handed->offset);
	md_archive_u64(a, "size", &handed->size);
	md_archive_bool(a, "reads", &handed->reads);
	md_archive_bool(a, "writes", &handed->writes);
}

static enum md_status bad(const struct md_artifact_graph *graph, uint32_t index, const char *what, struct md_error *err)
{
	return md_error_set(err, MD_ERR_CORRUPT,
			    "section \"graphs\": handed memory %" PRIu32 " of graph %.100s/%" PRIu32 " %s", index,
			    graph->label, graph->batch, what);
}

/* A verify run needs a pointer of the graph to find the engine's copy. */
static bool has_pointer(const struct md_artifact_graph *graph, uint32_t alloc)
{
	for (uint32_t i = 0; i < graph->pointer_count; i++)
		if (graph->pointers[i].alloc == alloc && graph->pointers[i].kind == MD_POINTER_PLAIN)
			return true;
	return false;
}

enum md_status md_artifact_check_handed(const struct md_artifact *artifact, const struct md_artifact_graph *graph,
					struct md_error *err)
{
	if (graph->handed_count > MD_HANDED_MAX || !graph->handed_count != !graph->group)
		return md_error_set(err, MD_ERR_CORRUPT,
				    "section \"graphs\": graph %.100s/%" PRIu32 " of group %" PRIu32 " has %" PRIu32
				    " parts of memory to hand on, of a group 1 to %d",
				    graph->label, graph->batch, graph->group, graph->handed_count, MD_HANDED_MAX);
	for (uint32_t i = 0; i < graph->handed_count; i++) {
		const struct md_artifact_handed *part = &graph->handed[i], *before = i ? part - 1 : NULL;
		const struct md_artifact_alloc *alloc =
		    part->alloc < artifact->alloc_count ? &artifact->allocs[part->alloc] : NULL;
		if (!alloc || alloc->class != MD_CLASS_PRIVATE || !part->size || part->offset > alloc->size ||
		    part->size > alloc->size - part->offset)
			return bad(graph, i, "lies outside of a private allocation", err);
		if (before && (part->alloc < before->alloc ||
			       (part->alloc == before->alloc && part->offset < before->offset + before->size)))
			return bad(graph, i, "is not behind the one before", err);
		if (!part->reads && !part->writes)
			return bad(graph, i, "is neither read nor written", err);
		if ((!before || before->alloc != part->alloc) && !has_pointer(graph, part->alloc))
			return bad(graph, i, "lies in an allocation that the graph has no pointer to", err);
	}
	return MD_OK;
}

/* ---- all graphs of a group ---- */

struct part {
	const struct md_artifact_handed *handed;
	uint32_t group, graph;
};

static int by_place(const void *left, const void *right)
{
	const struct part *a = left, *b = right;
	if (a->group != b->group)
		return a->group < b->group ? -1 : 1;
	if (a->handed->alloc != b->handed->alloc)
		return a->handed->alloc < b->handed->alloc ? -1 : 1;
	if (a->handed->offset != b->handed->offset)
		return a->handed->offset < b->handed->offset ? -1 : 1;
	return (a->graph > b->graph) - (a->graph < b->graph);
}

/*
 * Returns the end of the parts from `first` on that touch each other; *whole: one graph writes there, and another
 * reads.
 */
static size_t cluster_end(const struct part *parts, size_t count, size_t first, bool *whole)
{
	uint64_t end = parts[first].handed->offset;
	bool reads = false, writes = false, others = false;
	size_t at = first;
	for (; at < count && parts[at].group == parts[first].group &&
	       parts[at].handed->alloc == parts[first].handed->alloc && (at == first || parts[at].handed->offset < end);
	     at++) {
		uint64_t stop = parts[at].handed->offset + parts[at].handed->size;
		end = stop > end ? stop : end;
		reads |= parts[at].handed->reads;
		writes |= parts[at].handed->writes;
		others |= parts[at].graph != parts[first].graph;
	}
	*whole = reads && writes && others;
	return at;
}

static size_t list_parts(const struct md_artifact *artifact, struct part *parts)
{
	size_t count = 0;
	for (uint32_t g = 0; g < artifact->graph_count; g++)
		for (uint32_t i = 0; i < artifact->graphs[g].handed_count; i++) {
			if (parts)
				parts[count] =
				    (struct part){&artifact->graphs[g].handed[i], artifact->graphs[g].group, g};
			count++;
		}
	return count;
}

/* Refuses a group that lacks one of its graphs, because it would be restored in part. */
enum md_status md_artifact_check_groups(const struct md_artifact *artifact, struct md_error *err)
{
	size_t count = list_parts(artifact, NULL);
	MD_AUTO_FREE struct part *parts = calloc(count + 1, sizeof(*parts));
	bool whole = true;
	if (!parts)
		return md_error_set(err, MD_ERR_NO_MEMORY, "section \"graphs\": out of memory for what graphs hand on");
	list_parts(artifact, parts);
	qsort(parts, count, sizeof(*parts), by_place);
	for (size_t i = 0, end; i < count; i = end) {
		const struct md_artifact_graph *graph = &artifact->graphs[parts[i].graph];
		end = cluster_end(parts, count, i, &whole);
		if (!whole)
			return bad(graph, (uint32_t)(parts[i].handed - graph->handed),
				   "is not written by one graph of its group and read by another", err);
	}
	return MD_OK;
}
