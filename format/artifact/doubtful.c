/* SPDX-License-Identifier: Apache-2.0 */
/* Doubtful words of graphs: their record, their checks, and how a word is settled as noise. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "format/artifact/check_values.h"
#include "format/artifact/sections.h"

#define WORD_BYTES 8u

void md_visit_doubtful(struct md_archive *a, void *item, void *user)
{
	struct md_doubtful *doubtful = item;
	(void)user;
	md_archive_u32(a, "node", &doubtful->node);
	md_archive_u32(a, "at", &doubtful->at);
	md_archive_u32(a, "alloc", &doubtful->alloc);
	md_archive_i64(a, "offset", &doubtful->offset);
	md_archive_u32(a, "first_order", &doubtful->order[0]);
	md_archive_u64(a, "first_place", &doubtful->place[0]);
	md_archive_u32(a, "second_order", &doubtful->order[1]);
	md_archive_u64(a, "second_place", &doubtful->place[1]);
}

static enum md_status bad(const struct md_artifact_graph *graph, uint32_t index, const char *what, struct md_error *err)
{
	return md_error_set(err, MD_ERR_CORRUPT,
			    "section \"graphs\": doubtful word %" PRIu32 " of graph %.100s/%" PRIu32 " %s", index,
			    graph->label, graph->batch, what);
}

static bool overlaps(const struct md_doubtful *word, uint32_t node, uint64_t at, uint64_t size)
{
	return word->node == node && at < word->at + (uint64_t)WORD_BYTES && word->at < at + size;
}

/* A word that is a pointer or noise already cannot be doubtful. */
static bool is_settled(const struct md_artifact_graph *graph, const struct md_doubtful *word)
{
	bool settled = false;
	for (uint32_t i = 0; i < graph->pointer_count; i++)
		settled |= overlaps(word, graph->pointers[i].node, graph->pointers[i].at,
				    md_pointer_bytes(&graph->pointers[i]));
	for (uint32_t i = 0; i < graph->noise_count; i++)
		settled |= overlaps(word, graph->noise[i].node, graph->noise[i].at, graph->noise[i].size);
	return settled;
}

enum md_status md_artifact_check_doubtful(const struct md_artifact *artifact, const struct md_artifact_graph *graph,
					  struct md_error *err)
{
	if (graph->doubtful_count > MD_DOUBTFUL_MAX)
		return md_error_set(err, MD_ERR_CORRUPT,
				    "section \"graphs\": graph %.100s/%" PRIu32 " has %" PRIu32
				    " doubtful words, at most %d",
				    graph->label, graph->batch, graph->doubtful_count, MD_DOUBTFUL_MAX);
	for (uint32_t i = 0; i < graph->doubtful_count; i++) {
		const struct md_doubtful *word = &graph->doubtful[i], *before = i ? word - 1 : NULL;
		const struct md_node *node = word->node < graph->node_count ? &graph->nodes[word->node] : NULL;
		if (!node || node->type != MD_NODE_KERNEL || word->at > node->params_size ||
		    node->params_size - word->at < WORD_BYTES)
			return bad(graph, i, "lies outside of a kernel's parameters", err);
		if (before && (word->node < before->node ||
			       (word->node == before->node && word->at < before->at + (uint64_t)WORD_BYTES)))
			return bad(graph, i, "is not behind the one before", err);
		if (word->alloc == MD_NONE ? word->offset != 0 : word->alloc >= artifact->alloc_count)
			return bad(graph, i, "points into an allocation that is not there", err);
		if (is_settled(graph, word))
			return bad(graph, i, "is a pointer or noise as well", err);
	}
	return MD_OK;
}

const struct md_artifact_graph *md_artifact_doubtful(const struct md_artifact *artifact)
{
	for (uint32_t i = 0; i < artifact->graph_count; i++) {
		if (artifact->graphs[i].doubtful_count)
			return &artifact->graphs[i];
	}
	return NULL;
}

void md_doubtful_describe(const struct md_doubtful *word, char text[MD_DOUBTFUL_TEXT])
{
	snprintf(text, MD_DOUBTFUL_TEXT,
		 "node %" PRIu32 ", parameter bytes %" PRIu32 "..%" PRIu64 ": points to byte %" PRIu64
		 " of allocation %" PRIu32 " in the first capture and to byte %" PRIu64 " of allocation %" PRIu32
		 " in the second",
		 word->node, word->at, word->at + (uint64_t)WORD_BYTES - 1, word->place[0], word->order[0],
		 word->place[1], word->order[1]);
}

bool md_doubtful_alike(const struct md_artifact_graph *graph, const struct md_doubtful *one,
		       const struct md_doubtful *other)
{
	return one->at == other->at && graph->nodes[one->node].kernel == graph->nodes[other->node].kernel;
}

enum md_status md_doubtful_settle(struct md_artifact_graph *graph, uint32_t index, struct md_error *err)
{
	const struct md_doubtful word = graph->doubtful[index];
	struct md_noise *noise;
	uint32_t to = 0;
	if (!MD_ARRAY_EXTEND(graph->noise, graph->noise_count))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the noise of graph %.100s/%" PRIu32,
				    graph->label, graph->batch);
	noise = graph->noise;
	while (to < graph->noise_count &&
	       (noise[to].node < word.node || (noise[to].node == word.node && noise[to].at < word.at)))
		to++;
	memmove(&noise[to + 1], &noise[to], (graph->noise_count++ - to) * sizeof(*noise));
	noise[to] = (struct md_noise){word.node, word.at, WORD_BYTES};
	graph->noise_words++;
	memmove(&graph->doubtful[index], &graph->doubtful[index + 1],
		(--graph->doubtful_count - index) * sizeof(*graph->doubtful));
	return MD_OK;
}
