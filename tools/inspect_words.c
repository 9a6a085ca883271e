/* SPDX-License-Identifier: Apache-2.0 */
/* Words for the numbers of the formats, and small sums over an artifact. */
#include <stdlib.h>
#include <string.h>

#include "tools/inspect.h"

#define WORD(table, value)                                                                                             \
	((size_t)(value) < sizeof(table) / sizeof((table)[0]) && (table)[value] ? (table)[value] : "unknown")

const char *md_inspect_proof(const struct md_artifact_graph *graph, char text[MD_PROOF_TEXT])
{
	static const char *const words[] = {"unproven", "two captures", "replay"};
	char tolerance[MD_TOLERANCE_TEXT];
	snprintf(text, MD_PROOF_TEXT, "%s%s%s", WORD(words, graph->proof),
		 graph->accepted.given ? ", nondeterministic within " : "",
		 graph->accepted.given ? md_tolerance_print(&graph->accepted, tolerance) : "");
	return text;
}

const char *md_inspect_role(enum md_bind_role role)
{
	static const char *const words[] = {NULL, "constant", "state", "input", "output"};
	return WORD(words, role);
}

const char *md_inspect_family(enum md_alloc_family family)
{
	static const char *const words[] = {NULL,   "device", "pitch",  "async",  "managed",
					    "host", "vmm",    "global", "shared", "graph"};
	return WORD(words, family);
}

const char *md_inspect_node(uint8_t type)
{
	static const char *const words[] = {"kernel",      "memcpy", "memset",     NULL,
					    "child graph", "empty",  "event wait", "event record"};
	return WORD(words, type);
}

const char *md_inspect_image_source(const struct md_image *image)
{
	return image->data       ? "stored"
	       : image->path     ? image->path
	       : image->variable ? "the engine, which writes a variable of it"
				 : "triggering kernels";
}

uint64_t md_inspect_total_nodes(const struct md_artifact *artifact)
{
	uint64_t nodes = 0;
	for (uint32_t i = 0; i < artifact->graph_count; i++)
		nodes += artifact->graphs[i].node_count;
	return nodes;
}

double md_inspect_bytes_per_node(const struct md_artifact *artifact, const struct md_artifact_sizes *sizes)
{
	uint64_t nodes = md_inspect_total_nodes(artifact), bytes = 0;
	for (uint32_t i = 0; i < sizes->section_count; i++) {
		if (strcmp(sizes->sections[i].name, "graphs") == 0 || strcmp(sizes->sections[i].name, "pointers") == 0)
			bytes += sizes->sections[i].stored;
	}
	return nodes ? (double)bytes / (double)nodes : 0;
}

const struct md_artifact_graph *md_inspect_find(const struct md_artifact *artifact, const char *name)
{
	const char *slash = strrchr(name, '/');
	size_t length = slash ? (size_t)(slash - name) : 0;
	char *end;
	unsigned long batch;
	if (!slash || slash[1] < '0' || slash[1] > '9')
		return NULL;
	batch = strtoul(slash + 1, &end, 10);
	for (uint32_t i = 0; !*end && i < artifact->graph_count; i++) {
		const struct md_artifact_graph *graph = &artifact->graphs[i];
		if (graph->batch == batch && strlen(graph->label) == length && memcmp(graph->label, name, length) == 0)
			return graph;
	}
	return NULL;
}
