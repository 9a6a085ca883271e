/* SPDX-License-Identifier: Apache-2.0 */
/* The public interface in a capture run: what the engine says goes into the trace; nothing is restored. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/array.h"
#include "base/clock.h"
#include "capture/api/early.h"
#include "capture/capture.h"
#include "capture/probe/poison_test.h"
#include "capture/record/constant_hashes.h"
#include "capture/record/graphs.h"
#include "capture/record/made.h"
#include "kvprofile/kvprofile.h"

MD_EXPORT enum medusa_mode medusa_mode(void)
{
	return MEDUSA_MODE_CAPTURE;
}

MD_EXPORT const char *medusa_reason(void)
{
	return md_api_reason();
}

/* ---- bindings ---- */

static bool remember_bind(const char *name, uint64_t address, uint64_t bytes, enum md_bind_role role) MD_CAPTURE_HELD
{
	char *copy = strdup(name);
	md_capture_home_note();
	if (!copy || !MD_ARRAY_EXTEND(md_capture.bound, md_capture.bind_count)) {
		free(copy);
		return false;
	}
	md_capture.bound[md_capture.bind_count] =
	    (struct md_capture_bind){.name = copy, .role = role, .address = address, .size = bytes};
	return md_interval_add(&md_capture.binds, address, bytes, md_capture.bind_count++);
}

MD_EXPORT int medusa_bind(const char *name, medusa_deviceptr address, size_t bytes, enum medusa_role role)
{
	struct md_error err = {0};
	if (md_api_check_bind(name, address, bytes, role, &err) != MD_OK)
		return md_api_fail(&err);
	if (!md_capture_enter())
		return md_api_ok();
	md_capture_lock();
	if (md_capture.writer) {
		if (!remember_bind(name, address, bytes, (enum md_bind_role)role))
			md_capture_trouble("out of memory for binding %s", name);
		else
			md_trace_put_bind(md_capture.writer, md_capture_next(), name, address, bytes,
					  (enum md_bind_role)role);
	}
	md_capture_unlock();
	md_capture_leave();
	return md_api_ok();
}

/*
 * An engine that has bound nothing when it asks for its first graph will bind nothing. All allocations up to then are
 * the engine's own, and a restore finds them by order and size. Later allocations belong to graphs and libraries.
 */
static void bind_by_sequence(void)
{
	struct md_alloc_sequence *allocations = &md_capture.allocations;
	char name[MD_SEQUENCE_NAME_BYTES];
	md_capture_lock();
	bool due = !allocations->closed && !allocations->broken && !md_capture.bind_count && md_capture.writer;
	allocations->closed = true;
	for (size_t i = 0; due && i < allocations->count; i++) {
		const struct md_sequence_request *item = &allocations->items[i];
		uint64_t address = allocations->addresses[i];
		md_trace_put_request(md_capture.writer, md_capture_next(), item);
		if (item->freed != MD_SEQUENCE_NONE || md_capture_made_at(address))
			continue;
		md_sequence_name(i, name);
		if (!remember_bind(name, address, item->size, MD_BIND_STATE))
			md_capture_trouble("out of memory for binding %s", name);
		else
			md_trace_put_bind(md_capture.writer, md_capture_next(), name, address, item->size,
					  MD_BIND_STATE);
	}
	if (due) /* now, because a restore sees no more than this when the engine asks for its first graph */
		md_capture_constants_put(MD_CONSTANTS_SEQUENCE);
	md_capture_unlock();
}

/* A capture runs the profiling forward, but a restore mostly does not: allocations of the forward do not count. */
static void pause_sequence(int change)
{
	md_capture_lock();
	md_capture.allocations.paused += (unsigned)change;
	md_capture_unlock();
}

/* ---- moments ---- */

MD_EXPORT int medusa_mark(const char *name)
{
	struct md_error err = {0};
	if (md_api_check_mark(name, &err) != MD_OK)
		return md_api_fail(&err);
	if (md_capture_said_early(MD_EARLY_MARK, name, NULL, 0) || !md_capture_enter())
		return md_api_ok();
	md_capture_probe_context(NULL);
	md_capture_lock();
	md_capture_constants_last_look();
	if (md_capture.writer)
		md_trace_put_mark(md_capture.writer, md_capture_next(), name);
	md_capture_unlock();
	md_capture_check_until(name);
	md_capture_leave();
	return md_api_ok();
}

MD_EXPORT int medusa_stage(const char *name, uint64_t ns)
{
	struct md_stage_time stage = {.ns = ns};
	struct md_error err = {0};
	if (md_api_check_stage(name, &err) != MD_OK)
		return md_api_fail(&err);
	if (md_capture_said_early(MD_EARLY_STAGE, name, NULL, ns) || !md_capture_enter())
		return md_api_ok();
	snprintf(stage.name, sizeof(stage.name), "%s", name);
	md_capture_lock();
	if (md_capture.writer)
		md_trace_put_stage(md_capture.writer, md_capture_next(), &stage);
	md_capture_unlock();
	md_capture_leave();
	return md_api_ok();
}

/* ---- KV capacity ---- */

/*
 * A second capture must repeat the first one, so it takes the KV bytes of the first. The forward is run all the same,
 * because it allocates and loads the same as the forward of the first capture. The engine's own measurement in this run
 * does not count.
 */
static enum md_status repeat(const struct medusa_kv_request *request, struct md_kv *kv, struct md_error *err)
{
	uint64_t bytes = md_capture.options.kv_bytes;
	int failed = request->profile ? request->profile(request->user) : 0;
	if (failed)
		return md_error_set(err, MD_ERR_INVALID, "the profiling forward failed with %d", failed);
	*kv = (struct md_kv){.present = true, .block_bytes = request->block_bytes};
	kv->blocks = request->block_bytes ? bytes / request->block_bytes : 0;
	kv->kv_bytes = kv->blocks * kv->block_bytes;
	kv->utilization_ppm = (uint32_t)(request->utilization * 1e6 + 0.5);
	snprintf(kv->key, sizeof(kv->key), "%s", request->key ? request->key : "");
	return MD_OK;
}

MD_EXPORT int medusa_kv_capacity(const struct medusa_kv_request *request, struct medusa_kv *out)
{
	uint64_t start = md_clock_ns();
	bool recording = md_capture_enter();
	struct md_error err = {0};
	struct md_kv kv = {0};
	enum md_status status;
	/* The forward's own calls are the engine's: they must be seen by the hooks. */
	if (recording)
		md_capture_leave();
	status = md_kvprofile_check(request, out, &err);
	pause_sequence(+1);
	if (status == MD_OK)
		status =
		    md_capture.options.kv_bytes ? repeat(request, &kv, &err) : md_kvprofile_measure(request, &kv, &err);
	pause_sequence(-1);
	if (status != MD_OK)
		return md_api_fail(&err);
	md_kvprofile_to_public(&kv, 0, md_clock_ns() - start, out);
	if (recording && md_capture_enter()) {
		md_capture_lock();
		md_capture.kv = kv;
		/* Drops graphs that the engine captured while it measured. The KV cache, which comes next, is in no graph. */
		md_capture.free_before_capture = md_capture.free_after_instantiate = 0;
		if (md_capture.writer)
			md_trace_put_kv(md_capture.writer, md_capture_next(), &kv);
		md_capture_unlock();
		md_capture_leave();
	}
	return md_api_ok();
}

/* ---- what only a restore does ---- */

MD_EXPORT int medusa_graph_get(const char *label, unsigned batch, uint64_t timeout_ns, void **exec)
{
	struct md_error err = {0};
	(void)timeout_ns;
	if (md_api_check_get(label, exec, &err) != MD_OK)
		return md_api_fail(&err);
	if (md_capture_enter()) {
		bind_by_sequence();
		md_capture_lock();
		md_capture_constants_put(MD_CONSTANTS_ASKED);
		md_capture_unlock();
		md_capture_leave();
	}
	return md_api_refuse(MD_ERR_NOT_FOUND, "graph (%s, %u): this run captures, nothing is restored", label, batch);
}

MD_EXPORT int medusa_graph_ready(const char *label, unsigned batch)
{
	(void)label;
	(void)batch;
	return 0;
}

MD_EXPORT int medusa_graph_want(const char *label, const unsigned *batches, size_t count)
{
	struct md_error err = {0};
	return md_api_answer(md_api_check_want(label, batches, count, &err), &err);
}

MD_EXPORT int medusa_trigger(const char *name, int (*run)(void *user), void *user)
{
	struct md_error err = {0};
	(void)user;
	return md_api_answer(md_api_check_trigger(name, run, &err), &err);
}

MD_EXPORT int medusa_stats_read(struct medusa_stats *out)
{
	struct md_error err = {0};
	if (md_api_check_stats(out, &err) != MD_OK)
		return md_api_fail(&err);
	return md_api_refuse(MD_ERR_NOT_FOUND, "this run captures, nothing is restored");
}

MD_EXPORT void medusa_release(void)
{
}
