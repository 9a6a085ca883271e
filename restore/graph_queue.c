/* SPDX-License-Identifier: Apache-2.0 */
/* Finds graphs without looking through all of them: an artifact may have thousands, and each has eight stages. */
#include "restore/graph_queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/splitmix.h"

/* ---- by name ---- */

uint64_t md_graph_name_key(const char *label, unsigned batch)
{
	return md_hash_checksum(label, strlen(label)) + batch * MD_RANDOM_STEP;
}

static bool has_name(const struct md_artifact_graph *graph, const char *label, unsigned batch)
{
	return graph->batch == batch && !strcmp(graph->label, label);
}

/* The first graph of a key is listed. Further graphs of the same key, which are very rare, are searched one by one. */
static bool list_names(struct md_restore *r)
{
	const struct md_artifact *a = &r->artifact;
	for (uint32_t i = a->graph_count; i-- > 0;)
		if (!md_map_put(&r->graph_names, md_graph_name_key(a->graphs[i].label, a->graphs[i].batch), i))
			return false;
	return true;
}

struct md_restore_graph *md_restore_find(const struct md_restore *r, const char *label, unsigned batch)
{
	uint64_t at;
	if (!r->graphs || !md_map_get(&r->graph_names, md_graph_name_key(label, batch), &at))
		return NULL;
	for (; at < r->artifact.graph_count; at++)
		if (has_name(&r->artifact.graphs[at], label, batch))
			return &r->graphs[at];
	return NULL;
}

/* ---- in their order ---- */

void md_graph_queue_rewind(struct md_restore *r)
{
	r->order_done = 0;
}

uint32_t md_graph_queue_first(struct md_restore *r)
{
	while (r->order_done < r->artifact.graph_count && r->graphs[r->order[r->order_done]].state != MD_GRAPH_WAITING)
		r->order_done++;
	return r->order_done;
}

/* ---- with something to drop ---- */

void md_graph_queue_drop(struct md_restore *r, struct md_restore_graph *graph)
{
	if (graph->drops || !r->drops)
		return;
	graph->drops = true;
	r->drops[r->drop_count++] = (uint32_t)(graph - r->graphs);
}

struct md_restore_graph *md_graph_queue_look(struct md_restore *r)
{
	return r->drop_count ? &r->graphs[r->drops[r->drop_count - 1]] : NULL;
}

void md_graph_queue_take_off(struct md_restore *r)
{
	r->graphs[r->drops[--r->drop_count]].drops = false;
}

/* ---- life ---- */

bool md_graph_queue_init(struct md_restore *r)
{
	r->drops = calloc((size_t)r->artifact.graph_count + 1, sizeof(*r->drops));
	return r->drops && list_names(r);
}

void md_graph_queue_finish(struct md_restore *r) MD_LOCKS_UNCHECKED /* nobody else has r any more */
{
	md_map_finish(&r->graph_names);
	free(r->drops);
	r->drops = NULL;
	r->drop_count = r->order_done = 0;
}
