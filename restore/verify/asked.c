/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verify mode: refuses a graph that a cold start would lack something for when the engine asks for it. The process of a
 * verify run has more, because it captures live.
 */
#include "restore/background.h"
#include "restore/bindings.h"
#include "restore/constants.h"
#include "restore/graph_state.h"
#include "restore/resolve.h"
#include "restore/restore.h"
#include "restore/restore_api.h"
#include "restore/trigger.h"
#include "restore/restore_facts.h"
#include "restore/variables.h"
#include "restore/verify/asked.h"

/*
 * A cold start does not capture live the graphs that it hands out. So what the engine loads and writes between asking
 * for a graph and labelling it does not count for the graphs that it asks for meanwhile.
 */

/* ---- under lock ---- */

static void set_live(struct md_restore *r)
{
	pthread_mutex_lock(&r->registry.lock);
	r->registry.live = r->live_graphs > 0;
	pthread_mutex_unlock(&r->registry.lock);
}

/* Looks at the engine's own variables when its first live capture begins and when its last one has ended. */
static void look_at_own(struct md_restore *r, bool begins) MD_REQUIRES(md_restore_work)
{
	for (uint32_t i = 0; i < r->artifact.image_count; i++) {
		struct md_restore_image *image = &r->images[i];
		if (!r->artifact.images[i].variable)
			continue;
		bool ready = md_restore_variable_ready(r, i);
		if (begins)
			image->own = ready;
		else
			image->own_is_live |= ready && !image->own;
	}
}

static void begin_live(struct md_restore *r, struct md_restore_graph *graph) MD_REQUIRES(md_restore_work)
{
	if (!r->live_graphs)
		look_at_own(r, true);
	graph->live = true;
	r->live_graphs++;
	set_live(r);
}

static void end_live(struct md_restore *r, struct md_restore_graph *graph) MD_REQUIRES(md_restore_work)
{
	graph->live = false;
	r->live_graphs--;
	if (!r->live_graphs)
		look_at_own(r, false);
	set_live(r);
}

/* ---- under work, in the context ---- */

static bool is_stored(const struct md_restore *r, const struct md_kernel *kernel)
{
	const struct md_image *image = kernel->image == MD_NONE ? NULL : &r->artifact.images[kernel->image];
	return image && md_restore_has_step(r, MD_STEP_STORED) && (md_image_is_stored(image) || image->path);
}

static enum md_status check_kernels(struct md_restore *r, const struct md_restore_graph *graph, struct md_error *err)
    MD_REQUIRES(md_restore_work)
{
	for (uint32_t i = 0; i < graph->kernel_count; i++)
		if (!is_stored(r, &r->artifact.kernels[graph->kernels[i]]))
			MD_FORWARD(md_restore_kernel_loaded(r, graph->kernels[i], err));
	return MD_OK;
}

/* ---- no lock ---- */

/*
 * asked: the graph that is to be captured live, unless a cold start would
 * refuse it; labelled: the graph that was captured. Either may be NULL.
 */
static enum md_status in_context(struct md_restore *r, struct md_restore_graph *asked,
				 struct md_restore_graph *labelled, struct md_error *err)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUcontext popped;
	pthread_mutex_lock(&md_restore_work);
	bool pushed = r->context && md_cuda.cuCtxPushCurrent_v2(r->context) == CUDA_SUCCESS;
	md_cuda.cuThreadExchangeStreamCaptureMode(&mode);
	enum md_status status = asked ? check_kernels(r, asked, err) : MD_OK;
	pthread_mutex_lock(&md_restore_lock);
	if (asked && status == MD_OK)
		begin_live(r, asked);
	if (labelled && labelled->live)
		end_live(r, labelled);
	pthread_mutex_unlock(&md_restore_lock);
	md_cuda.cuThreadExchangeStreamCaptureMode(&mode);
	if (pushed)
		md_cuda.cuCtxPopCurrent_v2(&popped);
	pthread_mutex_unlock(&md_restore_work);
	return status;
}

/*
 * Pulls the trigger as a cold start would, but at once: otherwise
 * a live capture would load what the trigger is there to load.
 */
static void pull_trigger(struct md_restore *r) MD_REQUIRES(md_restore_lock)
{
	bool due = r->trigger && !r->trigger_done && !r->trigger_running && !r->live_graphs, lacks = false;
	for (uint32_t k = 0; due && k < r->artifact.kernel_count; k++)
		lacks |= !is_stored(r, &r->artifact.kernels[k]);
	if (lacks)
		md_restore_trigger_pull(r);
}

void md_verify_asked(struct md_restore *r, const char *label, unsigned batch)
{
	struct md_error err = {0}, unread = {0};
	pthread_mutex_lock(&md_restore_lock);
	bool open = md_restore_wait_open(r, UINT64_MAX) && r->phase == MD_PHASE_OPEN && !r->refusal.status;
	struct md_restore_graph *graph = open ? md_restore_find(r, label, batch) : NULL;
	if (graph)
		pull_trigger(r);
	bool first = graph && !graph->asked && graph->state != MD_GRAPH_REFUSED;
	if (graph)
		graph->asked = true;
	enum md_status status = first ? md_restore_facts_check(r, &err) : MD_OK;
	if (first && status == MD_OK)
		status = md_restore_limits_check(r, &err);
	if (first && status == MD_OK)
		status = md_restore_bindings_check(r, graph, &err);
	if (first && status == MD_OK)
		status = md_restore_bindings_live(r, graph, &err);
	pthread_mutex_unlock(&md_restore_lock);
	if (!first)
		return;
	if (status == MD_OK)
		/* of the bytes that they hold now; after an error they are hashed later */
		md_restore_constants_settle(r, &unread);
	if (status == MD_OK)
		status = in_context(r, graph, NULL, &err);
	if (status != MD_OK)
		md_error_set(&graph->reasons->too_late, MD_ERR_MISMATCH, "a cold start would refuse it: %s",
			     err.message);
}

void md_verify_labelled(struct md_restore *r, const char *label, unsigned batch)
{
	struct md_error unused = {0};
	pthread_mutex_lock(&md_restore_lock);
	struct md_restore_graph *graph = r->phase == MD_PHASE_OPEN ? md_restore_find(r, label, batch) : NULL;
	bool live = graph && graph->live;
	pthread_mutex_unlock(&md_restore_lock);
	if (live)
		in_context(r, NULL, graph, &unused);
}
