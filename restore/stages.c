/* SPDX-License-Identifier: Apache-2.0 */
/* A restore as two lists of stages with undo: once for the artifact, then once for each graph. */
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "restore/restore.h"

/* ---- once ---- */

static enum md_status run_open(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	(void)graph;
	if (!r->path)
		return md_error_set(err, MD_ERR_NOT_FOUND, "MEDUSA_ARTIFACT is not set");
	uint64_t start = md_clock_ns();
	MD_FORWARD(md_artifact_read(r->path, &r->artifact, NULL, err));
	pthread_mutex_lock(&r->lock);
	r->stats.own_ns += md_clock_ns() - start;
	pthread_mutex_unlock(&r->lock);
	return MD_OK;
}

static void undo_open(struct md_restore *r, struct md_restore_graph *graph)
{
	(void)graph;
	md_registry_want(&r->registry, NULL, 0);
	pthread_mutex_lock(&r->lock);
	r->facts_known = false;
	pthread_mutex_unlock(&r->lock);
	md_artifact_finish(&r->artifact);
	memset(&r->artifact, 0, sizeof(r->artifact));
}

static enum md_status run_fingerprint(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	(void)graph;
	struct md_fingerprint now = {0};
	MD_FORWARD(md_fingerprint_read(&now, err));
	enum md_status status = md_fingerprint_compare(&r->artifact.fingerprint, &now, err);
	md_fingerprint_finish(&now);
	return status == MD_OK ? md_restore_facts_compare(r, err) : status;
}

static enum md_status run_plan(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	(void)graph;
	MD_FORWARD(md_restore_plan(r, err));
	md_registry_want(&r->registry, r->artifact.images, r->artifact.image_count);
	return MD_OK;
}

static void undo_plan(struct md_restore *r, struct md_restore_graph *graph)
{
	(void)graph;
	md_restore_plan_finish(r);
	md_restore_scratch_finish(&r->scratch);
}

static enum md_status run_stream(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	(void)graph;
	return md_cuda_call(err, cuStreamCreate, &r->stream, CU_STREAM_NON_BLOCKING);
}

static void undo_stream(struct md_restore *r, struct md_restore_graph *graph)
{
	(void)graph;
	if (r->stream)
		md_cuda.cuStreamDestroy_v2(r->stream);
	r->stream = NULL;
}

static enum md_status run_images(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	(void)graph;
	(void)err;
	md_restore_images_start(r);
	return MD_OK;
}

/* By then no graph is left: the private memory goes with the images whose kernels used it. */
static void undo_images(struct md_restore *r, struct md_restore_graph *graph)
{
	(void)graph;
	md_restore_images_join(r);
	md_restore_arena_free(r);
	md_restore_images_unload(r, false);
}

const struct md_restore_stage md_restore_session_stages[] = {
    {"open", run_open, undo_open, offsetof(struct medusa_stats, open_ns)},
    {"fingerprint", run_fingerprint, NULL, offsetof(struct medusa_stats, open_ns)},
    {"plan", run_plan, undo_plan, offsetof(struct medusa_stats, own_ns)},
    {"stream", run_stream, undo_stream, 0},
    {"images", run_images, undo_images, 0},
};
const size_t md_restore_session_stage_count = sizeof(md_restore_session_stages) / sizeof(md_restore_session_stages[0]);

/* ---- each graph ---- */

static enum md_status run_bindings(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	pthread_mutex_lock(&r->lock);
	enum md_status status = md_restore_bindings_check(r, graph, err);
	for (uint32_t i = 0; status == MD_OK && i < graph->binding_count; i++)
		r->addresses[graph->bindings[i]] = r->bound[r->binding_of[graph->bindings[i]]].address;
	pthread_mutex_unlock(&r->lock);
	return status;
}

static enum md_status run_arena(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	if (graph->uses_arena)
		MD_FORWARD(md_restore_arena_reserve(r, err));
	return md_restore_contents_place(r, graph, false, err);
}

static enum md_status run_patch(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	uint64_t start = md_clock_ns();
	MD_FORWARD(md_restore_patch(r, graph, err));
	pthread_mutex_lock(&r->lock);
	r->stats.own_ns += md_clock_ns() - start;
	pthread_mutex_unlock(&r->lock);
	return MD_OK;
}

static void undo_build(struct md_restore *r, struct md_restore_graph *graph)
{
	(void)r;
	if (graph->graph)
		md_cuda.cuGraphDestroy(graph->graph);
	graph->graph = NULL;
}

/* Uploading is a stage of its own; with the flag, the driver would want a stream at instantiation. */
static enum md_status run_instantiate(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	(void)r;
	unsigned long long flags =
	    graph->stored->instantiate_flags & ~(unsigned long long)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
	return md_cuda_call(err, cuGraphInstantiateWithFlags, &graph->exec, graph->graph, flags);
}

static void undo_instantiate(struct md_restore *r, struct md_restore_graph *graph)
{
	(void)r;
	if (graph->exec)
		md_cuda.cuGraphExecDestroy(graph->exec);
	graph->exec = NULL;
}

static enum md_status run_upload(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	MD_FORWARD(md_cuda_call(err, cuGraphUpload, graph->exec, r->stream));
	return md_cuda_call(err, cuStreamSynchronize, r->stream);
}

const struct md_restore_stage md_restore_graph_stages[] = {
    {"bindings", run_bindings, NULL, 0},
    {"arena", run_arena, NULL, offsetof(struct medusa_stats, arena_ns)},
    {"patch", run_patch, NULL, offsetof(struct medusa_stats, patch_ns)},
    {"build", md_restore_build, undo_build, offsetof(struct medusa_stats, build_ns)},
    {"instantiate", run_instantiate, undo_instantiate, offsetof(struct medusa_stats, instantiate_ns)},
    {"upload", run_upload, NULL, offsetof(struct medusa_stats, upload_ns)},
};
const size_t md_restore_graph_stage_count = sizeof(md_restore_graph_stages) / sizeof(md_restore_graph_stages[0]);

/* ---- both ---- */

static void count_time(struct md_restore *r, size_t slot, uint64_t ns)
{
	if (!slot)
		return;
	pthread_mutex_lock(&r->lock);
	*(uint64_t *)((char *)&r->stats + slot) += ns;
	pthread_mutex_unlock(&r->lock);
}

void md_restore_stages_undo(const struct md_restore_stage *stages, size_t count, struct md_restore *r,
			    struct md_restore_graph *graph)
{
	while (count-- > 0)
		if (stages[count].undo)
			stages[count].undo(r, graph);
}

enum md_status md_restore_stages_run(const struct md_restore_stage *stages, size_t count, struct md_restore *r,
				     struct md_restore_graph *graph, struct md_error *err)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t start = md_clock_ns();
		enum md_status status = stages[i].run(r, graph, err);
		count_time(r, stages[i].ns, md_clock_ns() - start);
		if (status == MD_OK)
			continue;
		md_restore_stages_undo(stages, i + 1, r, graph);
		return md_error_prefix(err, "%s", stages[i].name);
	}
	return MD_OK;
}
