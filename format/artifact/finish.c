/* SPDX-License-Identifier: Apache-2.0 */
/* Frees what an artifact owns. */
#include <stdlib.h>

#include "format/artifact/artifact.h"

static void finish_graphs(struct md_artifact *artifact)
{
	for (uint32_t i = 0; i < artifact->graph_count; i++) {
		struct md_artifact_graph *graph = &artifact->graphs[i];
		free(graph->label);
		if (!graph->pooled) {
			free(graph->nodes);
			free(graph->edges);
			free(graph->pointers);
			free(graph->noise);
		}
		free(graph->doubtful);
		free(graph->outputs);
		free(graph->handed);
		free(graph->note);
		md_arena_free(&graph->arena);
	}
	for (uint32_t i = 0; i < artifact->refusal_count; i++) {
		free(artifact->refusals[i].label);
		free(artifact->refusals[i].why);
	}
	free(artifact->graphs);
	free(artifact->refusals);
}

static void finish_kernels(struct md_artifact *artifact)
{
	for (uint32_t i = 0; i < artifact->image_count; i++) {
		free(artifact->images[i].path);
		free(artifact->images[i].build_id);
		free(artifact->images[i].variable);
		free(artifact->images[i].data);
		for (uint32_t v = 0; v < artifact->images[i].value_count; v++) {
			free(artifact->images[i].values[v].name);
			free(artifact->images[i].values[v].data);
			free(artifact->images[i].values[v].pointers);
		}
		free(artifact->images[i].values);
	}
	for (uint32_t i = 0; i < artifact->kernel_count; i++) {
		free(artifact->kernels[i].name);
		free(artifact->kernels[i].params);
	}
	free(artifact->images);
	free(artifact->kernels);
}

void md_artifact_finish(struct md_artifact *artifact)
{
	finish_graphs(artifact);
	finish_kernels(artifact);
	for (uint32_t i = 0; i < artifact->binding_count; i++)
		free(artifact->bindings[i].name);
	for (uint32_t i = 0; i < artifact->content_count; i++) {
		free(artifact->contents[i].data);
		free(artifact->contents[i].pointers);
	}
	for (uint32_t i = 0; i < artifact->alloc_count; i++)
		free(artifact->allocs[i].variable);
	md_caches_finish(&artifact->caches);
	md_fingerprint_finish(&artifact->fingerprint);
	free(artifact->allocs);
	free(artifact->bindings);
	free(artifact->requests);
	free(artifact->contents);
	free(artifact->provenance.tool_version);
	free(artifact->provenance.command);
	free(artifact->provenance.created);
	free(artifact->provenance.verification);
	free(artifact->provenance.checks);
	free(artifact->provenance.stages);
	md_arena_free(&artifact->pool);
	*artifact = (struct md_artifact){0};
}
