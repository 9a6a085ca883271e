/* SPDX-License-Identifier: Apache-2.0 */
/* The public interface in a capture run: what the engine says goes into the trace; nothing is restored. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "capture/capture.h"
#include "kvprofile/kvprofile.h"
#include "medusa/medusa.h"

#define API __attribute__((visibility("default")))

static _Thread_local char reason[MD_ERROR_MESSAGE_BYTES];

int md_capture_fail(int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	return code;
}

int md_capture_succeed(void)
{
	reason[0] = 0;
	return MEDUSA_OK;
}

static int fail_status(const struct md_error *err)
{
	int code = err->status == MD_ERR_NO_MEMORY  ? MEDUSA_ERR_NO_MEMORY
		   : err->status == MD_ERR_INVALID  ? MEDUSA_ERR_INVALID
		   : err->status == MD_ERR_MISMATCH ? MEDUSA_ERR_MISMATCH
						    : MEDUSA_ERR_DRIVER;

	return md_capture_fail(code, "%s", err->message);
}

API enum medusa_mode medusa_mode(void)
{
	return MEDUSA_MODE_CAPTURE;
}

API const char *medusa_reason(void)
{
	return reason;
}

/* ---- bindings ---- */

/* Under md_capture.lock. */
static bool remember_bind(const char *name, uint64_t address, uint64_t bytes, enum md_bind_role role)
{
	struct md_capture_bind *grown = realloc(md_capture.bound, (md_capture.bind_count + 1) * sizeof(*grown));
	char *copy = strdup(name);

	md_capture_home_note();
	if (grown)
		md_capture.bound = grown;
	if (!grown || !copy) {
		free(copy);
		return false;
	}
	grown[md_capture.bind_count] = (struct md_capture_bind){copy, role, address, bytes, false};
	return md_interval_add(&md_capture.binds, address, bytes, md_capture.bind_count++);
}

API int medusa_bind(const char *name, uint64_t address, size_t bytes, enum medusa_role role)
{
	if (!name || !*name || !address || !bytes || bytes > UINT64_MAX - address)
		return md_capture_fail(MEDUSA_ERR_INVALID, "medusa_bind: needs a name, an address and a size");
	if (role < MEDUSA_BIND_CONSTANT || role > MEDUSA_BIND_OUTPUT)
		return md_capture_fail(MEDUSA_ERR_INVALID, "medusa_bind(%s): role %d is none of medusa.h's", name,
				       (int)role);
	if (*name == '@')
		return md_capture_fail(MEDUSA_ERR_INVALID, "medusa_bind(%s): names that begin with @ are Medusa's own",
				       name);
	if (!md_capture_enter())
		return md_capture_succeed();
	md_capture_lock();
	if (md_capture.writer) {
		if (!remember_bind(name, address, bytes, (enum md_bind_role)role))
			md_capture_trouble("out of memory at binding %s", name);
		else
			md_trace_put_bind(md_capture.writer, md_capture_next(), name, address, bytes,
					  (enum md_bind_role)role);
	}
	md_capture_unlock();
	md_capture_leave();
	return md_capture_succeed();
}

/*
 * An engine that has bound nothing by now will bind nothing: what it has allocated is its own, and a restore finds it
 * by order and size. Later allocations are the graphs' and the libraries'.
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
		if (item->freed != MD_SEQUENCE_NONE)
			continue;
		md_sequence_name(i, name);
		if (!remember_bind(name, address, item->size, MD_BIND_STATE))
			md_capture_trouble("out of memory at binding %s", name);
		else
			md_trace_put_bind(md_capture.writer, md_capture_next(), name, address, item->size,
					  MD_BIND_STATE);
	}
	if (due) /* now, for a restore can only look at what is there when the engine asks for its first graph, too */
		md_capture_constants_put(MD_CONSTANTS_SEQUENCE);
	md_capture_unlock();
}

/* A profiling forward is run in a capture, and mostly not in a restore: what it allocates does not count. */
static void pause_sequence(int change)
{
	md_capture_lock();
	md_capture.allocations.paused += (unsigned)change;
	md_capture_unlock();
}

/* ---- moments ---- */

API int medusa_mark(const char *name)
{
	if (!name || !*name)
		return md_capture_fail(MEDUSA_ERR_INVALID, "medusa_mark: needs a name");
	if (md_capture_said_early(MD_EARLY_MARK, name, NULL, 0) || !md_capture_enter())
		return md_capture_succeed();
	md_capture_probe_context(NULL);
	md_capture_lock();
	if (md_capture.writer)
		md_trace_put_mark(md_capture.writer, md_capture_next(), name);
	md_capture_unlock();
	md_capture_check_until(name);
	md_capture_leave();
	return md_capture_succeed();
}

API int medusa_stage(const char *name, uint64_t ns)
{
	struct md_stage_time stage = {.ns = ns};

	if (!name || !*name)
		return md_capture_fail(MEDUSA_ERR_INVALID, "medusa_stage: needs a name");
	if (md_capture_said_early(MD_EARLY_STAGE, name, NULL, ns) || !md_capture_enter())
		return md_capture_succeed();
	snprintf(stage.name, sizeof(stage.name), "%s", name);
	md_capture_lock();
	if (md_capture.writer)
		md_trace_put_stage(md_capture.writer, md_capture_next(), &stage);
	md_capture_unlock();
	md_capture_leave();
	return md_capture_succeed();
}

/* ---- KV capacity ---- */

/*
 * A second capture must be a repetition of the first, so it takes the first one's bytes; the forward is run all the
 * same, for it allocates and loads what the first one's did.
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

API int medusa_kv_capacity(const struct medusa_kv_request *request, struct medusa_kv *out)
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
		return fail_status(&err);
	md_kvprofile_to_public(&kv, 0, md_clock_ns() - start, out);
	if (recording && md_capture_enter()) {
		md_capture_lock();
		md_capture.kv = kv;
		if (md_capture.writer)
			md_trace_put_kv(md_capture.writer, md_capture_next(), &kv);
		md_capture_unlock();
		md_capture_leave();
	}
	return md_capture_succeed();
}

/* ---- what only a restore does ---- */

API int medusa_graph_get(const char *label, unsigned batch, uint64_t timeout_ns, void **exec)
{
	(void)timeout_ns;
	if (!label || !exec)
		return md_capture_fail(MEDUSA_ERR_INVALID, "medusa_graph_get: needs a label and a place for the graph");
	if (md_capture_enter()) {
		bind_by_sequence();
		md_capture_leave();
	}
	return md_capture_fail(MEDUSA_ERR_NOT_FOUND, "graph (%s, %u): this run captures, nothing is restored", label,
			       batch);
}

API int medusa_graph_ready(const char *label, unsigned batch)
{
	(void)label;
	(void)batch;
	return 0;
}

API int medusa_graph_want(const char *label, const unsigned *batches, size_t count)
{
	if (!label || (count && !batches))
		return md_capture_fail(MEDUSA_ERR_INVALID, "medusa_graph_want: needs a label and batch sizes");
	return md_capture_succeed();
}

API int medusa_trigger(const char *name, int (*run)(void *user), void *user)
{
	(void)user;
	if (!name || !run)
		return md_capture_fail(MEDUSA_ERR_INVALID, "medusa_trigger: needs a name and a function");
	return md_capture_succeed();
}

API int medusa_stats_read(struct medusa_stats *out)
{
	if (!out)
		return md_capture_fail(MEDUSA_ERR_INVALID, "medusa_stats_read: needs a place for the numbers");
	return md_capture_fail(MEDUSA_ERR_NOT_FOUND, "this run captures, nothing is restored");
}

API void medusa_release(void)
{
}
