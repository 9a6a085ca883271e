/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saved contents may have been made from the weights. Before a graph with such contents is handed out, its constant
 * bindings are hashed, and must have the hashes of the capture.
 */
#define MD_LOG_DOMAIN "restore"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "driver/device_hash.h"
#include "restore/background.h"
#include "restore/bindings.h"
#include "restore/constants.h"
#include "restore/graph_state.h"
#include "restore/restore.h"
#include "restore/stages.h"

/* ---- the kernel, which takes a while to be translated ---- */

static void open_hasher(struct md_restore *r)
{
	CUstream stream = NULL; /* of its own: the restore's stream may be capturing a launch */
	struct md_device_hasher hasher = {0};
	if (md_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
		md_device_hasher_open(&hasher, stream);
		md_cuda.cuStreamDestroy_v2(stream);
	}
	pthread_mutex_lock(&md_restore_lock);
	r->hasher = hasher;
	r->hasher_state = MD_HASHER_OPEN;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&md_restore_lock);
}

static bool has_hashes(const struct md_restore *r)
{
	bool any = false;
	for (uint32_t i = 0; i < r->artifact.binding_count; i++)
		any |= r->artifact.bindings[i].hashed;
	return any;
}

void md_restore_constants_prepare(struct md_restore *r)
{
	pthread_mutex_lock(&md_restore_lock);
	bool ours = r->hasher_state == MD_HASHER_CLOSED && has_hashes(r);
	if (ours)
		r->hasher_state = MD_HASHER_OPENING;
	while (!ours && r->hasher_state == MD_HASHER_OPENING)
		md_restore_wait(r, UINT64_MAX);
	pthread_mutex_unlock(&md_restore_lock);
	if (ours)
		open_hasher(r);
}

void md_restore_constants_finish(struct md_restore *r)
{
	md_device_hasher_close(&r->hasher);
	r->hasher_state = MD_HASHER_CLOSED;
}

/* ---- what is known; under lock ---- */

bool md_restore_constants_open(const struct md_restore *r, const struct md_restore_graph *graph)
{
	bool open = false;
	for (uint32_t i = 0; i < graph->constant_count && !open; i++)
		open = r->constants[graph->constants[i]] == MD_CONSTANT_UNKNOWN &&
		       r->binding_of[graph->constants[i]] != MD_NONE;
	return open;
}

enum md_status md_restore_constants_check(const struct md_restore *r, const struct md_restore_graph *graph,
					  struct md_error *err)
{
	for (uint32_t i = 0; i < graph->constant_count; i++) {
		const struct md_binding *binding = &r->artifact.bindings[graph->constants[i]];
		switch (r->constants[graph->constants[i]]) {
		case MD_CONSTANT_IDLE:
		case MD_CONSTANT_SAME:
			break;
		case MD_CONSTANT_OTHER:
			return md_error_set(err, MD_ERR_MISMATCH,
					    "contents of graph %s/%u were made with other weights: binding \"%s\" has "
					    "another hash than in the capture",
					    graph->stored->label, graph->stored->batch, binding->name);
		case MD_CONSTANT_UNREAD:
		case MD_CONSTANT_UNKNOWN:
			return md_error_set(err, MD_ERR_MISMATCH,
					    "contents of graph %s/%u may be made of binding \"%s\", which could not be "
					    "hashed",
					    graph->stored->label, graph->stored->batch, binding->name);
		}
	}
	return MD_OK;
}

void md_restore_constants_rebound(struct md_restore *r, uint32_t binding)
{
	if (r->constants && r->constants[binding] != MD_CONSTANT_IDLE)
		r->constants[binding] = MD_CONSTANT_UNKNOWN;
}

/* ---- hashing; holds work ---- */

struct batch {
	struct md_hash_range *ranges;
	uint32_t *bindings; /* indices in the artifact */
	size_t count;
};

static void batch_finish(struct batch *batch)
{
	free(batch->ranges);
	free(batch->bindings);
}

/*
 * Lists all bindings at once, whichever graph is asked for: a
 * few large launches cost hardly more than one small launch.
 */
static enum md_status list_unknown(struct md_restore *r, struct batch *batch, struct md_error *err) MD_RESTORE_HELD
{
	uint32_t count = r->artifact.binding_count;
	batch->ranges = calloc(count + 1u, sizeof(*batch->ranges));
	batch->bindings = calloc(count + 1u, sizeof(*batch->bindings));
	if (!batch->ranges || !batch->bindings)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the hashes of %u bindings", count);
	for (uint32_t i = 0; i < count; i++) {
		if (r->constants[i] != MD_CONSTANT_UNKNOWN || r->binding_of[i] == MD_NONE)
			continue;
		const struct md_bound *bound = &r->bound[r->binding_of[i]];
		batch->bindings[batch->count] = i;
		batch->ranges[batch->count++] = (struct md_hash_range){.address = bound->address, .size = bound->size};
	}
	return MD_OK;
}

static void settle_one(struct md_restore *r, const struct batch *batch, size_t index, enum md_status status)
{
	uint32_t binding = batch->bindings[index];
	bool same = md_hash_equal(&batch->ranges[index].hash, &r->artifact.bindings[binding].hash);
	r->constants[binding] = status != MD_OK ? MD_CONSTANT_UNREAD : same ? MD_CONSTANT_SAME : MD_CONSTANT_OTHER;
}

/* Hashes the bindings one by one when they can't be hashed together, so that the right one is named. */
static void hash_batch(struct md_restore *r, const struct batch *batch)
{
	struct md_error err = {0};
	size_t failed;
	enum md_status all = md_device_hash(&r->hasher, r->stream, batch->ranges, batch->count, &failed, &err);
	for (size_t i = 0; i < batch->count; i++) {
		enum md_status status = all;
		if (all != MD_OK)
			status = md_device_hash(&r->hasher, r->stream, &batch->ranges[i], 1, &failed, &err);
		if (status != MD_OK)
			md_warn("binding \"%s\" cannot be hashed: %s", r->artifact.bindings[batch->bindings[i]].name,
				err.message);
		pthread_mutex_lock(&md_restore_lock);
		settle_one(r, batch, i, status);
		pthread_mutex_unlock(&md_restore_lock);
	}
}

/* Refuses graphs of other constants that were not handed out. True: what was made for them may be freed now. */
static bool refuse_others(struct md_restore *r) MD_REQUIRES(md_restore_lock)
{
	bool refused = false, waiting = false;
	for (uint32_t i = 0; i < r->artifact.graph_count; i++) {
		struct md_restore_graph *graph = &r->graphs[i];
		struct md_error why = {0};
		waiting |= graph->state == MD_GRAPH_WAITING;
		if (r->verify || graph->handed_out || graph->state == MD_GRAPH_REFUSED ||
		    md_restore_constants_open(r, graph) || md_restore_bindings_check(r, graph, &why) != MD_OK ||
		    md_restore_constants_check(r, graph, &why) == MD_OK)
			continue;
		refused = true;
		md_restore_refuse(r, graph, &why);
		md_restore_stages_undo(md_restore_graph_stages, md_restore_graph_stage_count, r, graph);
	}
	pthread_cond_broadcast(&r->changed);
	return refused && !waiting; /* otherwise it is freed when the waiting graphs are made */
}

/* The context is current. Work that the engine has submitted may still be writing its weights. */
static enum md_status hash_when_written(struct md_restore *r, const struct batch *batch, struct md_error *err)
{
	if (atomic_load(&r->captures))
		return md_error_set(err, MD_ERR_TIMEOUT,
				    "constant bindings must be hashed first, which waits for the context and would "
				    "break the stream capture in progress");
	MD_FORWARD(md_cuda_call(err, cuCtxSynchronize));
	md_restore_constants_prepare(r);
	hash_batch(r, batch);
	return MD_OK;
}

static enum md_status hash_in_context(struct md_restore *r, const struct batch *batch, struct md_error *err)
    MD_REQUIRES(md_restore_work)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUcontext popped;
	MD_FORWARD(md_cuda_call(err, cuCtxPushCurrent_v2, r->context));
	md_cuda.cuThreadExchangeStreamCaptureMode(&mode);
	enum md_status status = hash_when_written(r, batch, err);
	pthread_mutex_lock(&md_restore_lock);
	bool over = refuse_others(r);
	pthread_mutex_unlock(&md_restore_lock);
	if (over)
		md_restore_settle(r);
	md_cuda.cuThreadExchangeStreamCaptureMode(&mode);
	md_cuda.cuCtxPopCurrent_v2(&popped);
	return status;
}

enum md_status md_restore_constants_hash(struct md_restore *r, struct md_error *err)
{
	struct batch batch MD_CLEANUP(batch_finish) = {0};
	uint64_t start = md_clock_ns();
	pthread_mutex_lock(&md_restore_lock);
	enum md_status status = MD_OK;
	if (r->phase == MD_PHASE_OPEN) /* otherwise the caller looks at the phase again, and finds the reason */
		status = list_unknown(r, &batch, err);
	bool due = status == MD_OK && batch.count;
	if (due)
		md_restore_busy(r, +1);
	pthread_mutex_unlock(&md_restore_lock);
	if (!due)
		return status;
	status = hash_in_context(r, &batch, err);
	pthread_mutex_lock(&md_restore_lock);
	md_restore_busy(r, -1);
	r->stats.constants_ns += md_clock_ns() - start;
	pthread_mutex_unlock(&md_restore_lock);
	return status;
}

enum md_status md_restore_constants_settle(struct md_restore *r, struct md_error *err)
{
	pthread_mutex_lock(&md_restore_work);
	enum md_status status = md_restore_constants_hash(r, err);
	pthread_mutex_unlock(&md_restore_work);
	return status;
}
