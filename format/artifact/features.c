/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The required feature bits: the writer sets them, and a reader compares them with what it has read. Without them, a
 * list that a cold start compares could be removed from a file, and the comparison with it, unnoticed.
 */
#include <inttypes.h>

#include "format/artifact/artifact.h"
#include "format/artifact/layout.h"
#include "format/artifact/sections.h"

#define GRAPHS                                                                                                         \
	(MD_FEATURE_NODES | MD_FEATURE_DOUBTFUL | MD_FEATURE_GROUPS |                                                  \
	 MD_FEATURE_EVENTS) /* bits that the section graphs needs */

static bool has_later_nodes(const struct md_artifact_graph *graph)
{
	bool any = false;
	for (uint32_t i = 0; i < graph->node_count; i++)
		any |= graph->nodes[i].type == MD_NODE_CHILD || graph->nodes[i].type == MD_NODE_EVENT_WAIT ||
		       graph->nodes[i].type == MD_NODE_EVENT_RECORD;
	for (uint32_t i = 0; i < graph->pointer_count; i++)
		any |= graph->pointers[i].at >= MD_ATTRIBUTES_AT;
	return any;
}

static bool has_library_events(const struct md_artifact_graph *graph)
{
	bool any = false;
	for (uint32_t i = 0; i < graph->node_count; i++)
		any |= (graph->nodes[i].type == MD_NODE_EVENT_RECORD || graph->nodes[i].type == MD_NODE_EVENT_WAIT) &&
		       graph->nodes[i].event >= graph->node_count;
	return any;
}

static bool has_addresses(const struct md_artifact *artifact)
{
	bool any = false;
	for (uint32_t i = 0; i < artifact->alloc_count; i++)
		any |= artifact->allocs[i].class == MD_CLASS_VARIABLE;
	for (uint32_t i = 0; i < artifact->image_count; i++)
		for (uint32_t v = 0; v < artifact->images[i].value_count; v++)
			any |= artifact->images[i].values[v].pointer_count != 0;
	return any;
}

static uint64_t features_of_head(const struct md_artifact *artifact)
{
	const struct md_fingerprint *fingerprint = &artifact->fingerprint;
	bool limits = false, stored = false, variables = false, constants = false, values = false, neighbours = false;
	bool places = false;
	for (unsigned i = 0; i < MD_LIMITS; i++)
		limits |= fingerprint->limits[i] != 0;
	for (uint32_t i = 0; i < artifact->image_count; i++) {
		stored |= md_image_is_stored(&artifact->images[i]);
		variables |= artifact->images[i].variable != NULL;
		values |= artifact->images[i].value_count != 0;
	}
	for (uint32_t i = 0; i < artifact->binding_count; i++) {
		const struct md_binding *binding = &artifact->bindings[i];
		constants |= binding->hashed, neighbours |= binding->adjoins;
		places |= binding->align > 1 || binding->overlaps;
	}
	return (stored ? MD_FEATURE_FRAMES : 0) | (fingerprint->fact_count ? MD_FEATURE_FACTS : 0) |
	       (variables ? MD_FEATURE_VARIABLES : 0) | (artifact->request_count ? MD_FEATURE_ORDER : 0) |
	       (fingerprint->arguments.count && !fingerprint->fact_count ? MD_FEATURE_ARGUMENTS : 0) |
	       (constants ? MD_FEATURE_CONSTANTS : 0) | (values ? MD_FEATURE_VALUES : 0) |
	       (neighbours ? MD_FEATURE_NEIGHBOURS : 0) | (has_addresses(artifact) ? MD_FEATURE_ADDRESSES : 0) |
	       (limits ? MD_FEATURE_LIMITS : 0) | (places ? MD_FEATURE_PLACES : 0);
}

static uint64_t features_of_graphs(const struct md_artifact *artifact)
{
	bool later_nodes = false, groups = false, events = false;
	for (uint32_t i = 0; i < artifact->graph_count; i++) {
		later_nodes |= has_later_nodes(&artifact->graphs[i]);
		groups |= artifact->graphs[i].group != 0;
		events |= has_library_events(&artifact->graphs[i]);
	}
	return (later_nodes ? MD_FEATURE_NODES : 0) | (md_artifact_doubtful(artifact) ? MD_FEATURE_DOUBTFUL : 0) |
	       (groups ? MD_FEATURE_GROUPS : 0) | (events ? MD_FEATURE_EVENTS : 0);
}

uint64_t md_artifact_features(const struct md_artifact *artifact)
{
	return features_of_head(artifact) | features_of_graphs(artifact);
}

static enum md_status compare(uint64_t said, uint64_t there, struct md_error *err)
{
	if (said == there)
		return MD_OK;
	return md_error_set(err, MD_ERR_CORRUPT,
			    "header at offset 16: the feature bits are 0x%" PRIx64 ", but the sections need 0x%" PRIx64
			    ": something is missing; capture again",
			    said, there);
}

enum md_status md_artifact_check_head_features(const struct md_artifact *artifact, uint64_t said, struct md_error *err)
{
	return compare(said & ~(uint64_t)GRAPHS, features_of_head(artifact), err);
}

enum md_status md_artifact_check_graph_features(const struct md_artifact *artifact, uint64_t said, struct md_error *err)
{
	return compare(said & GRAPHS, features_of_graphs(artifact), err);
}
