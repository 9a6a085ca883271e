/* SPDX-License-Identifier: Apache-2.0 */
/* Measures and answers KV capacity. */
#include "kvprofile/kvprofile.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "driver/cuda_driver.h"

#define PPM 1000000u
#define STRUCT_MAX 65536u

/* The size of the first version's struct: later versions only append fields. */
#define REQUEST_MIN (offsetof(struct medusa_kv_request, user) + sizeof(void *))
#define REQUEST_MOST (offsetof(struct medusa_kv_request, most) + sizeof(const uint64_t *))
#define OUT_MIN (offsetof(struct medusa_kv, ns) + sizeof(uint64_t))

static _Atomic uint64_t held_now, held_peak;

void md_kvprofile_note_alloc(uint64_t bytes)
{
	uint64_t now = atomic_fetch_add_explicit(&held_now, bytes, memory_order_relaxed) + bytes;
	uint64_t peak = atomic_load_explicit(&held_peak, memory_order_relaxed);
	while (peak < now && !atomic_compare_exchange_weak_explicit(&held_peak, &peak, now, memory_order_relaxed,
								    memory_order_relaxed))
		;
}

void md_kvprofile_note_free(uint64_t bytes)
{
	uint64_t now = atomic_load_explicit(&held_now, memory_order_relaxed);
	/* Memory that was allocated before the hooks were in place may be freed, so the sum stops at 0. */
	while (!atomic_compare_exchange_weak_explicit(&held_now, &now, now > bytes ? now - bytes : 0,
						      memory_order_relaxed, memory_order_relaxed))
		;
}

static enum md_status check_struct(const void *object, size_t size, size_t least, size_t known, const char *name,
				   struct md_error *err)
{
	if (size < least || size > STRUCT_MAX)
		return md_error_set(err, MD_ERR_INVALID, "%s: size is %zu, set it to sizeof(%s) (%zu here)", name, size,
				    name, known);
	for (size_t i = known; i < size; i++)
		if (((const uint8_t *)object)[i])
			return md_error_set(err, MD_ERR_INVALID, "%s: byte %zu is set, but this library knows only %zu",
					    name, i, known);
	return MD_OK;
}

static const char *key_of(const struct medusa_kv_request *request)
{
	return request->key ? request->key : "";
}

static uint32_t utilization_of(const struct medusa_kv_request *request)
{
	return (uint32_t)(request->utilization * PPM + 0.5);
}

static enum md_status check_request(const struct medusa_kv_request *request, struct md_error *err)
{
	static const size_t key_bytes = sizeof(((struct md_kv *)NULL)->key);
	if (!request)
		return md_error_set(err, MD_ERR_INVALID, "medusa_kv_capacity: request is NULL");
	MD_FORWARD(
	    check_struct(request, request->size, REQUEST_MIN, sizeof(*request), "struct medusa_kv_request", err));
	if (!request->block_bytes)
		return md_error_set(err, MD_ERR_INVALID, "medusa_kv_capacity: request->block_bytes is 0");
	/* Written so that a NaN is refused too. */
	if (!(request->utilization > 0 && request->utilization <= 1))
		return md_error_set(err, MD_ERR_INVALID,
				    "medusa_kv_capacity: request->utilization is %g, not in (0, 1]",
				    request->utilization);
	if (strnlen(key_of(request), key_bytes) == key_bytes)
		return md_error_set(err, MD_ERR_INVALID, "medusa_kv_capacity: request->key is longer than %zu bytes",
				    key_bytes - 1);
	return MD_OK;
}

enum md_status md_kvprofile_check(const struct medusa_kv_request *request, const struct medusa_kv *out,
				  struct md_error *err)
{
	MD_FORWARD(check_request(request, err));
	if (!out)
		return md_error_set(err, MD_ERR_INVALID, "medusa_kv_capacity: out is NULL");
	return check_struct(out, out->size, OUT_MIN, sizeof(*out), "struct medusa_kv", err);
}

static enum md_status read_memory(size_t *free_bytes, size_t *total, struct md_error *err)
{
	MD_FORWARD(md_cuda_load(err));
	return md_cuda_call(err, cuMemGetInfo_v2, free_bytes, total);
}

static uint64_t greater(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Runs the profiling forward; *peak is the memory that it needed beyond the memory held before. */
static enum md_status run_profile(const struct medusa_kv_request *request, uint64_t free_before, uint64_t *peak,
				  struct md_error *err)
{
	uint64_t held_before = atomic_load_explicit(&held_now, memory_order_relaxed);
	size_t free_after, total;
	int result;
	if (!request->profile)
		return md_error_set(err, MD_ERR_INVALID,
				    "medusa_kv_capacity: request->profile is NULL, and the artifact stores no answer");
	atomic_store_explicit(&held_peak, held_before, memory_order_relaxed);
	result = request->profile(request->user);
	if (result)
		return md_error_set(err, MD_ERR_INVALID, "the profiling forward failed with %d", result);
	MD_FORWARD(read_memory(&free_after, &total, err));
	*peak = greater(free_before > free_after ? free_before - free_after : 0,
			atomic_load_explicit(&held_peak, memory_order_relaxed) - held_before);
	return MD_OK;
}

/* What the engine itself measured in its profiling forward; a request of an earlier version has no field for it. */
static uint64_t most_of(const struct medusa_kv_request *request)
{
	return request->size >= REQUEST_MOST && request->most ? *request->most : UINT64_MAX;
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

enum md_status md_kvprofile_measure(const struct medusa_kv_request *request, struct md_kv *out, struct md_error *err)
{
	struct md_kv kv = {.present = true};
	size_t free_before, total;
	uint64_t allowed, taken;
	MD_FORWARD(check_request(request, err));
	MD_FORWARD(read_memory(&free_before, &total, err));
	MD_FORWARD(run_profile(request, free_before, &kv.peak, err));
	kv.baseline_free = free_before;
	kv.block_bytes = request->block_bytes;
	kv.utilization_ppm = utilization_of(request);
	memcpy(kv.key, key_of(request), strlen(key_of(request)));
	allowed = (uint64_t)((unsigned __int128)total * kv.utilization_ppm / PPM);
	taken = total - free_before + kv.peak;
	kv.blocks = allowed > taken ? lesser(allowed - taken, most_of(request)) / kv.block_bytes : 0;
	kv.kv_bytes = kv.blocks * kv.block_bytes;
	if (!kv.blocks)
		return md_error_set(
		    err, MD_ERR_DRIVER_MEMORY,
		    "no room for a KV block of %llu bytes: of %llu bytes, %llu may be used (%.4g), %llu were in "
		    "use and the profiling forward needed %llu; the engine's own limit is %llu",
		    (unsigned long long)kv.block_bytes, (unsigned long long)total, (unsigned long long)allowed,
		    request->utilization, (unsigned long long)(total - free_before), (unsigned long long)kv.peak,
		    (unsigned long long)most_of(request));
	*out = kv;
	return MD_OK;
}

static enum md_status compare_request(const struct md_kv *stored, const struct medusa_kv_request *request,
				      struct md_error *err)
{
	if (strcmp(stored->key, key_of(request)))
		return md_error_set(err, MD_ERR_MISMATCH, "KV profile: stored for key \"%.100s\", asked for \"%.100s\"",
				    stored->key, key_of(request));
	if (stored->block_bytes != request->block_bytes)
		return md_error_set(err, MD_ERR_MISMATCH, "KV profile: stored for blocks of %llu bytes, asked for %llu",
				    (unsigned long long)stored->block_bytes, (unsigned long long)request->block_bytes);
	if (stored->utilization_ppm != utilization_of(request))
		return md_error_set(err, MD_ERR_MISMATCH, "KV profile: stored for utilization %g, asked for %g",
				    (double)stored->utilization_ppm / PPM, request->utilization);
	return MD_OK;
}

/*
 * How many bytes fewer than in the capture may be free. There, cache, peak and graphs left memory over: what utilization,
 * or the engine's own limit, keeps back. The engine needs a part of it that no profile measures (workspaces, an
 * allocator's holes, kernels that load late); half of it stays for that.
 */
static uint64_t shortfall_allowed(const struct md_kv *stored, unsigned __int128 needed)
{
	return needed < stored->baseline_free ? (stored->baseline_free - (uint64_t)needed) / 2 : 0;
}

static enum md_status compare_memory(const struct md_kv *stored, uint64_t free_now, struct md_error *err)
{
	unsigned __int128 needed = (unsigned __int128)stored->kv_bytes + stored->peak + stored->graph_bytes;
	uint64_t allowed = shortfall_allowed(stored, needed);
	if (needed > free_now)
		return md_error_set(
		    err, MD_ERR_MISMATCH,
		    "KV profile: cache (%llu bytes), peak (%llu) and graphs (%llu) do not fit into the %llu "
		    "bytes that are free; %llu were free in the capture",
		    (unsigned long long)stored->kv_bytes, (unsigned long long)stored->peak,
		    (unsigned long long)stored->graph_bytes, (unsigned long long)free_now,
		    (unsigned long long)stored->baseline_free);
	if (free_now >= stored->baseline_free)
		return MD_OK;
	if (stored->baseline_free - free_now > allowed)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "KV profile: %llu bytes were free in the capture, %llu are free now, and only %llu "
				    "fewer may be",
				    (unsigned long long)stored->baseline_free, (unsigned long long)free_now,
				    (unsigned long long)allowed);
	return md_error_set(err, MD_OK,
			    "KV profile: %llu bytes were free in the capture, %llu are free now: the stored answer "
			    "holds, because %llu fewer may be",
			    (unsigned long long)stored->baseline_free, (unsigned long long)free_now,
			    (unsigned long long)allowed);
}

enum md_status md_kvprofile_answer(const struct md_kv *stored, const struct medusa_kv_request *request,
				   struct md_kv *out, struct md_error *err)
{
	size_t free_now, total;
	MD_FORWARD(check_request(request, err));
	if (!stored->present)
		return md_error_set(err, MD_ERR_NOT_FOUND, "KV profile: none is stored");
	MD_FORWARD(compare_request(stored, request, err));
	MD_FORWARD(read_memory(&free_now, &total, err));
	MD_FORWARD(compare_memory(stored, free_now, err));
	*out = *stored;
	return MD_OK;
}

void md_kvprofile_to_public(const struct md_kv *kv, int from_profile, uint64_t ns, struct medusa_kv *out)
{
	out->bytes = kv->kv_bytes;
	out->blocks = kv->blocks;
	out->from_profile = from_profile;
	out->ns = ns;
}
