/* SPDX-License-Identifier: Apache-2.0 */
/* A restore as two lists of stages with undo: once for the artifact, then once for each graph. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define MD_LOG_DOMAIN "restore"
#include "base/clock.h"
#include "base/log.h"
#include "format/checks.h"
#include "restore/bindings.h"
#include "restore/build.h"
#include "restore/constants.h"
#include "restore/graphs_read.h"
#include "restore/heap.h"
#include "restore/image_load.h"
#include "restore/image_registry.h"
#include "restore/patch.h"
#include "restore/plan.h"
#include "restore/restore.h"
#include "restore/restore_arena.h"
#include "restore/restore_bundle.h"
#include "restore/restore_facts.h"
#include "restore/stages.h"
#include "restore/variables.h"
#include "restore/verify/kept_session.h"

/* ---- once ---- */

/* The list of trusted keys is read with each artifact; if it cannot be read, nothing is trusted. */
static enum md_status open_file(struct md_restore *r, const char *path, struct md_error *err)
{
	struct md_trust trust;
	if (!r->trust_asked)
		return md_artifact_open(path, &r->file, &r->artifact, err);
	if (!r->trusted_keys)
		return md_error_set(err, MD_ERR_NO_MEMORY, "MEDUSA_TRUSTED_KEYS: out of memory for its path");
	if (!*r->trusted_keys)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "MEDUSA_TRUSTED_KEYS is set but empty, so no key is trusted; name a file of public "
				    "keys, or unset it");
	if (md_trust_read(r->trusted_keys, &trust, err) != MD_OK)
		return md_error_prefix(err, "MEDUSA_TRUSTED_KEYS");
	enum md_status status = md_artifact_open_trusted(path, &trust, &r->file, &r->artifact, err);
	md_trust_finish(&trust);
	return status;
}

static enum md_status open_artifact(struct md_restore *r, struct md_error *err)
{
	static struct md_own_artifact own; /* large; one thread runs the stages */
	MD_FORWARD(md_own_artifact_find(r->path, r->verify, &own, err));
	MD_FORWARD(open_file(r, own.path, err));
	r->of_rank = own.bundled;
	MD_FORWARD(md_own_artifact_check(&own, r->file, err));
	pthread_mutex_lock(&md_restore_lock);
	r->bundle = own.bundle;
	pthread_mutex_unlock(&md_restore_lock);
	return MD_OK;
}

static enum md_status run_open(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	(void)graph;
	if (!r->path)
		return md_error_set(err, MD_ERR_NOT_FOUND, "MEDUSA_ARTIFACT is not set; medusa-restore sets it");
	uint64_t start = md_clock_ns();
	MD_FORWARD(open_artifact(r, err));
	MD_FORWARD(md_checks_require(&r->artifact, err));
	md_registry_want(&r->registry, r->artifact.images, r->artifact.image_count);
	pthread_mutex_lock(&md_restore_lock);
	r->stats.own_ns += md_clock_ns() - start;
	pthread_mutex_unlock(&md_restore_lock);
	return MD_OK;
}

static void undo_open(struct md_restore *r, struct md_restore_graph *graph)
{
	(void)graph;
	md_registry_want(&r->registry, NULL, 0);
	pthread_mutex_lock(&md_restore_lock);
	r->facts_known = false;
	r->head_known = false;
	pthread_mutex_unlock(&md_restore_lock);
	md_artifact_close(r->file);
	r->file = NULL;
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
	MD_FORWARD(status);
	MD_FORWARD(md_restore_facts_compare(r, err));
	MD_FORWARD(md_restore_arguments_compare(r, err));
	pthread_mutex_lock(&md_restore_lock); /* the KV capacity can be answered from here on */
	r->head_known = true;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&md_restore_lock);
	return MD_OK;
}

static enum md_status run_tables(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	(void)graph;
	return md_restore_plan_tables(r, err);
}

static void undo_tables(struct md_restore *r, struct md_restore_graph *graph)
{
	(void)graph;
	md_restore_plan_finish(r);
	md_restore_scratch_finish(&r->scratch);
	md_restore_heap_finish(&r->heap);
}

static enum md_status run_stream(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	(void)graph;
	return md_cuda_call(err, cuStreamCreate, &r->stream, CU_STREAM_NON_BLOCKING);
}

static void undo_stream(struct md_restore *r, struct md_restore_graph *graph)
{
	(void)graph;
	md_verify_session_drop();
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

/* No graph is left by then: private memory is freed together with the images whose kernels used it. */
static void undo_images(struct md_restore *r, struct md_restore_graph *graph)
{
	(void)graph;
	md_restore_images_join(r);
	md_restore_constants_finish(r);
	md_restore_arena_free(r);
	md_restore_images_unload(r, false);
}

static enum md_status run_graphs(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	(void)graph;
	return md_restore_graphs_read(r, err);
}

static enum md_status run_plan(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	(void)graph;
	return md_restore_plan(r, err);
}

/* Images load as soon as the list of images is read; the graphs are read meanwhile. */
const struct md_restore_stage md_restore_session_stages[] = {
    {.name = "open", .run = run_open, .undo = undo_open, .ns = offsetof(struct medusa_stats, open_ns)},
    {.name = "fingerprint", .run = run_fingerprint, .ns = offsetof(struct medusa_stats, open_ns)},
    {.name = "tables", .run = run_tables, .undo = undo_tables, .ns = offsetof(struct medusa_stats, own_ns)},
    {.name = "stream", .run = run_stream, .undo = undo_stream},
    {.name = "images", .run = run_images, .undo = undo_images},
    {.name = "graphs", .run = run_graphs},
    {.name = "plan", .run = run_plan, .ns = offsetof(struct medusa_stats, own_ns)},
};
const size_t md_restore_session_stage_count = sizeof(md_restore_session_stages) / sizeof(md_restore_session_stages[0]);

/* ---- each graph ---- */

static enum md_status run_arena(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
    MD_REQUIRES(md_restore_work)
{
	if (graph->uses_arena && r->arena_failed.status) {
		md_error_set(err, r->arena_failed.status, "%s", r->arena_failed.message);
		r->arena_failed.status = MD_OK; /* the next graph tries again */
		return err->status;
	}
	if (graph->uses_arena)
		MD_FORWARD(md_restore_arena_reserve(r, err));
	MD_FORWARD(md_restore_variables_load(r, graph, err));
	return md_restore_contents_place(r, graph, false, err);
}

static enum md_status run_patch(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	uint64_t start = md_clock_ns();
	MD_FORWARD(md_restore_patch(r, graph, err));
	pthread_mutex_lock(&md_restore_lock);
	r->stats.own_ns += md_clock_ns() - start;
	pthread_mutex_unlock(&md_restore_lock);
	return MD_OK;
}

static void undo_build(struct md_restore *r, struct md_restore_graph *graph)
{
	(void)r;
	if (graph->graph)
		md_cuda.cuGraphDestroy(graph->graph);
	graph->graph = NULL;
	md_restore_build_finish(graph);
	md_restore_events_destroy(graph);
	graph->nodes_added = 0;
}

void md_restore_drop_template(struct md_restore_graph *graph)
{
	md_cuda.cuGraphDestroy(graph->graph);
	graph->graph = NULL;
}

static bool more_nodes(const struct md_restore_graph *graph)
{
	return graph->nodes_added < graph->stored->node_count;
}

static uint64_t nodes_left(const struct md_restore_graph *graph)
{
	return graph->stored->node_count - graph->nodes_added;
}

static uint64_t all_nodes(const struct md_restore_graph *graph)
{
	return graph->stored->node_count;
}

static uint64_t all_edges(const struct md_restore_graph *graph)
{
	return graph->stored->edge_count;
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

#define NS(field) offsetof(struct medusa_stats, field)
const struct md_restore_stage md_restore_graph_stages[] = {
    {.name = "bindings", .run = md_restore_bindings_take},
    {.name = "arena", .run = run_arena, .ns = NS(arena_ns)},
    {.name = "patch", .run = run_patch, .ns = NS(patch_ns)},
    {.name = "heap", .run = md_restore_heap_take, .ns = NS(heap_ns)},
    {"build", md_restore_build_nodes, undo_build, NS(build_ns), more_nodes, MD_PACE_NODES, nodes_left},
    {"edges", md_restore_build_edges, NULL, NS(build_ns), NULL, MD_PACE_EDGES, all_edges},
    {"instantiate", run_instantiate, undo_instantiate, NS(instantiate_ns), NULL, MD_PACE_INSTANTIATE, all_nodes},
    {"upload", run_upload, NULL, NS(upload_ns), NULL, MD_PACE_UPLOAD, all_nodes},
};
const size_t md_restore_graph_stage_count = sizeof(md_restore_graph_stages) / sizeof(md_restore_graph_stages[0]);
_Static_assert(sizeof(md_restore_graph_stages) / sizeof(md_restore_graph_stages[0]) == MD_GRAPH_STAGES, "eight stages");

/* ---- both ---- */

static void count_time(struct md_restore *r, size_t slot, uint64_t ns)
{
	if (!slot)
		return;
	pthread_mutex_lock(&md_restore_lock);
	*(uint64_t *)((char *)&r->stats + slot) += ns;
	pthread_mutex_unlock(&md_restore_lock);
}

void md_restore_stages_undo(const struct md_restore_stage *stages, size_t count, struct md_restore *r,
			    struct md_restore_graph *graph)
{
	while (count-- > 0)
		if (stages[count].undo)
			stages[count].undo(r, graph);
	if (graph)
		graph->stage = 0;
}

static double milliseconds(struct timeval user, struct timeval system)
{
	return (double)(user.tv_sec + system.tv_sec) * 1e3 + (double)(user.tv_usec + system.tv_usec) / 1e3;
}

/* Tells waiting (for a lock, a processor, the driver) from work, and shows what pages cost that are touched for the first time. */
static void log_stage(const struct md_restore_stage *stage, uint64_t ns, const struct rusage *before)
{
	struct rusage after;
	if (getrusage(RUSAGE_THREAD, &after) != 0)
		return;
	md_debug("stage %s took %.2f ms (%.2f of them on a processor, %ld new pages, %ld waits)", stage->name,
		 (double)ns / 1e6,
		 milliseconds(after.ru_utime, after.ru_stime) - milliseconds(before->ru_utime, before->ru_stime),
		 after.ru_minflt - before->ru_minflt, after.ru_nvcsw - before->ru_nvcsw);
}

static enum md_status run_stage(const struct md_restore_stage *stage, struct md_restore *r,
				struct md_restore_graph *graph, struct md_error *err)
{
	struct rusage before;
	bool logged = !graph && md_log_enabled(MD_LOG_DEBUG) && getrusage(RUSAGE_THREAD, &before) == 0;
	uint64_t start = md_clock_ns();
	enum md_status status = stage->run(r, graph, err);
	uint64_t ns = md_clock_ns() - start;
	count_time(r, stage->ns, ns);
	if (logged)
		log_stage(stage, ns, &before);
	return status == MD_OK ? MD_OK : md_error_prefix(err, "%s", stage->name);
}

enum md_status md_restore_stages_run(const struct md_restore_stage *stages, size_t count, struct md_restore *r,
				     struct md_restore_graph *graph, struct md_error *err)
{
	enum md_status status = MD_OK;
	if (graph)
		graph->slice = UINT32_MAX;
	for (size_t i = 0; i < count && status == MD_OK; i++) {
		do
			status = run_stage(&stages[i], r, graph, err);
		while (status == MD_OK && stages[i].more && stages[i].more(graph));
		if (status != MD_OK)
			md_restore_stages_undo(stages, i + 1, r, graph);
	}
	return status;
}

enum md_status md_restore_graph_step(struct md_restore *r, struct md_restore_graph *graph, bool *done,
				     struct md_error *err)
{
	const struct md_restore_stage *stage = &md_restore_graph_stages[graph->stage];
	enum md_status status = run_stage(stage, r, graph, err);
	if (status != MD_OK) {
		md_restore_stages_undo(md_restore_graph_stages, graph->stage + 1, r, graph);
		return status;
	}
	if (!stage->more || !stage->more(graph))
		graph->stage++;
	*done = graph->stage == md_restore_graph_stage_count;
	return MD_OK;
}

/* ---- graphs that are made together ---- */

static void add_time(struct md_stage_times *times, uint32_t stage, uint64_t ns, uint64_t units)
{
	times->ns[stage] += ns;
	times->units[stage] += units;
}

/* Only begins the upload; the stage's own function would also wait for it. */
static enum md_status run_unwaited(const struct md_restore_stage *stage, struct md_restore *r,
				   struct md_restore_graph *graph, struct md_error *err)
{
	if (stage->run == run_upload)
		return md_cuda_call(err, cuGraphUpload, graph->exec, r->stream);
	return stage->run(r, graph, err);
}

static enum md_status fail_stage(struct md_restore *r, struct md_restore_graph *graph, uint32_t stage,
				 struct md_error *err)
{
	md_restore_stages_undo(md_restore_graph_stages, stage + 1, r, graph);
	return md_error_prefix(err, "%s", md_restore_graph_stages[stage].name);
}

enum md_status md_restore_graph_make(struct md_restore *r, struct md_restore_graph *graph, struct md_stage_times *times,
				     struct md_error *err)
{
	uint64_t start = md_clock_ns();
	for (graph->slice = UINT32_MAX; graph->stage < MD_GRAPH_STAGES; graph->stage++) {
		const struct md_restore_stage *stage = &md_restore_graph_stages[graph->stage];
		uint64_t units = stage->units ? stage->units(graph) : 0;
		if (run_unwaited(stage, r, graph, err) != MD_OK)
			return fail_stage(r, graph, graph->stage, err);
		uint64_t now = md_clock_ns();
		add_time(times, graph->stage, now - start, units);
		start = now;
	}
	return MD_OK;
}

enum md_status md_restore_graphs_wait(struct md_restore *r, struct md_stage_times *times, struct md_error *err)
{
	uint64_t start = md_clock_ns();
	enum md_status status = md_cuda_call(err, cuStreamSynchronize, r->stream);
	add_time(times, MD_GRAPH_STAGES - 1, md_clock_ns() - start, 0);
	return status;
}

enum md_status md_restore_graph_not_uploaded(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	return fail_stage(r, graph, MD_GRAPH_STAGES - 1, err);
}

void md_restore_times_count(struct md_restore *r, const struct md_stage_times *times, bool awaited)
{
	pthread_mutex_lock(&md_restore_lock);
	for (uint32_t i = 0; i < MD_GRAPH_STAGES; i++)
		if (md_restore_graph_stages[i].ns)
			*(uint64_t *)((char *)&r->stats + md_restore_graph_stages[i].ns) += times->ns[i];
	pthread_mutex_unlock(&md_restore_lock);
	for (uint32_t i = 0; i < MD_GRAPH_STAGES; i++)
		md_pace_learned(&r->pace, md_restore_graph_stages[i].pace, times->units[i], times->ns[i],
				times->launches, awaited);
}
