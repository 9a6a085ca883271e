/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations of all families as they come and go, and the pads that move them in a shifted run. */
#include "capture/capture.h"
#include "capture/record/allocs.h"
#include "capture/record/filled.h"
#include "capture/record/given.h"
#include "capture/record/made.h"
#include "capture/record/others.h"
#include "capture/record/shared.h"

#include "kvprofile/kvprofile.h"

#define MAX_PADS 64
#define MAX_PAD_BYTES (64ull << 20)
#define SMALL_ALLOC (1ull << 20) /* the driver carves smaller ones out of shared 2 MiB blocks */

static bool takes_device_memory(uint64_t family)
{
	return (family & MD_FAMILY_COUNTED) || family == MD_ALLOC_MANAGED ||
	       !md_alloc_foreign((enum md_alloc_family)family);
}

void md_capture_alloc_note(enum md_alloc_family family, uint64_t address, uint64_t bytes)
{
	if (!address || !bytes)
		return;
	md_capture_lock();
	if (md_capture.writer) {
		md_capture_others_forget(address);
		md_capture_made_forget(address); /* an allocation there was freed unseen */
		if (!md_interval_add(&md_capture.live, address, bytes, family))
			md_capture_trouble("out of memory for allocation %zu", md_capture.live.count);
		else
			md_trace_put_alloc(md_capture.writer, md_capture_next(), family, address, bytes);
		md_capture_given_freed(address);
		if (takes_device_memory(family))
			md_sequence_add(&md_capture.allocations, family, address, bytes);
	}
	md_capture_unlock();
	if (takes_device_memory(family))
		md_kvprofile_note_alloc(bytes);
}

/* Nothing is bound at these addresses any more, whoever is given them next. */
static void unbind(uint64_t address, uint64_t bytes) MD_CAPTURE_HELD
{
	for (size_t i = md_capture.binds.count; i-- > 0;) {
		const struct md_interval *item = &md_capture.binds.items[i];
		if (item->start < address + bytes && address < item->start + item->size)
			md_interval_remove(&md_capture.binds, item->start);
	}
}

void md_capture_unreserve_note(uint64_t address, uint64_t bytes)
{
	md_capture_lock();
	unbind(address, bytes);
	md_capture_unlock();
}

void md_capture_reserve_note(uint64_t address, uint64_t bytes)
{
	md_capture_lock();
	if (md_capture.writer)
		md_trace_put_reservation(md_capture.writer, md_capture_next(), address, bytes);
	md_capture_unlock();
}

/* Keeps bindings: a mapping may come back at its addresses. */
static void forget(uint64_t address) MD_CAPTURE_HELD
{
	const struct md_interval *item = md_interval_find(&md_capture.live, address);
	uint64_t seen_as = 0;
	if (!item || item->start != address)
		return;
	if (item->value == MD_ALLOC_HOST)
		seen_as = md_capture_host_gone(address);
	if (takes_device_memory(item->value))
		md_kvprofile_note_free(item->size);
	md_capture_filled_forget(address, item->size);
	md_capture_made_forget(address);
	md_capture_others_forget(address);
	md_interval_remove(&md_capture.live, address);
	md_capture_given_freed(address);
	md_sequence_remove(&md_capture.allocations, address, 1);
	if (md_capture.writer)
		md_trace_put_free(md_capture.writer, md_capture_next(), address);
	if (seen_as)
		forget(seen_as);
}

void md_capture_free_note_locked(uint64_t address)
{
	const struct md_interval *item = md_interval_find(&md_capture.live, address);
	if (item && item->start == address && item->value != MD_ALLOC_GRAPH) { /* the graph will have it again */
		unbind(address, item->size);
		forget(address);
	}
}

void md_capture_free_note(uint64_t address)
{
	md_capture_lock();
	md_capture_free_note_locked(address);
	md_capture_unlock();
}

/* A pool may lie on the host, or be managed; then the host reaches its allocations. */
static bool is_of_host(uint64_t address)
{
	unsigned type = CU_MEMORYTYPE_DEVICE, managed = 0;
	if (!md_cuda.cuPointerGetAttribute)
		return false;
	md_cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
	md_cuda.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
	return type == CU_MEMORYTYPE_HOST || managed;
}

void md_capture_alloc_note_on(CUstream stream, uint64_t address, uint64_t bytes)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	if (atomic_load(&md_capture.capturing))
		md_cuda.cuStreamIsCapturing(stream, &status);
	md_capture_alloc_note(status == CU_STREAM_CAPTURE_STATUS_NONE ? MD_ALLOC_ASYNC : MD_ALLOC_GRAPH, address,
			      bytes);
	if (status == CU_STREAM_CAPTURE_STATUS_NONE && is_of_host(address))
		md_capture_shared_reached(address);
}

void md_capture_unmap_note(uint64_t address, uint64_t bytes)
{
	md_capture_lock();
	for (size_t i = md_capture.live.count; i-- > 0;) {
		const struct md_interval *item = &md_capture.live.items[i];
		uint64_t start = item->start;
		if (start < address || start - address >= bytes || !md_capture_is_mapping(start))
			continue;
		forget(start);
		md_capture_unmapped(start);
	}
	md_capture_unlock();
}

/* ---- shift ---- */

static struct {
	pthread_mutex_t lock;
	bool started;
	CUcontext context;
	uint64_t calls;
	unsigned count, reserve_count;
	uint64_t bytes;
	CUdeviceptr pads[MAX_PADS];
	struct {
		CUdeviceptr address;
		size_t size;
	} reserved[MAX_PADS];
} shift = {.lock = PTHREAD_MUTEX_INITIALIZER};

void md_capture_shift_renew(void)
{
	pthread_mutex_init(&shift.lock, NULL);
}

static uint64_t next_random(void)
{
	uint64_t in[2] = {md_capture.options.shift, shift.calls++};
	return md_hash_checksum(in, sizeof(in));
}

static void add_pad(uint64_t bytes)
{
	CUdeviceptr pad;
	if (shift.count >= MAX_PADS || shift.bytes + bytes > MAX_PAD_BYTES || md_cuda.cuMemAlloc_v2(&pad, bytes))
		return;
	shift.pads[shift.count++] = pad;
	shift.bytes += bytes;
}

static void add_reservation(size_t bytes)
{
	CUdeviceptr address;
	if (shift.reserve_count >= MAX_PADS || md_cuda.cuMemAddressReserve(&address, bytes, 0, 0, 0))
		return;
	shift.reserved[shift.reserve_count].address = address;
	shift.reserved[shift.reserve_count++].size = bytes;
}

/* Nothing may be allocated while some stream is capturing: in the global mode it would break the capture. */
static bool may_shift(void)
{
	return md_capture.options.shift && shift.started && !atomic_load(&md_capture.capturing);
}

void md_capture_shift_start(void)
{
	if (!md_capture.options.shift)
		return;
	pthread_mutex_lock(&shift.lock);
	shift.started = md_cuda.cuCtxGetCurrent(&shift.context) == CUDA_SUCCESS;
	if (may_shift()) {
		for (unsigned i = 0; i < 4; i++)
			add_reservation((1 + next_random() % 8) * (2ull << 20));
		add_pad((1 + next_random() % 3) * (2ull << 20));
		add_pad((1 + next_random() % 64) * 512);
	}
	pthread_mutex_unlock(&shift.lock);
}

void md_capture_shift_before_alloc(uint64_t bytes)
{
	uint64_t random;
	if (!may_shift())
		return;
	pthread_mutex_lock(&shift.lock);
	random = next_random();
	/* One call in three at first; the bounds of add_pad make it rarer. */
	if (random % 3 == 0)
		add_pad(bytes < SMALL_ALLOC ? (1 + (random >> 8) % 64) * 512 : 2ull << 20);
	pthread_mutex_unlock(&shift.lock);
}

void md_capture_shift_before_reserve(void)
{
	if (!may_shift())
		return;
	pthread_mutex_lock(&shift.lock);
	if (next_random() % 2 == 0)
		add_reservation((1 + next_random() % 8) * (2ull << 20));
	pthread_mutex_unlock(&shift.lock);
}

void md_capture_shift_release(void)
{
	CUcontext popped;
	if (!shift.context || atomic_load(&md_capture.capturing) || md_cuda.cuCtxPushCurrent_v2(shift.context))
		return;
	pthread_mutex_lock(&shift.lock);
	while (shift.count)
		md_cuda.cuMemFree_v2(shift.pads[--shift.count]);
	while (shift.reserve_count) {
		shift.reserve_count--;
		md_cuda.cuMemAddressFree(shift.reserved[shift.reserve_count].address,
					 shift.reserved[shift.reserve_count].size);
	}
	shift.context = NULL;
	shift.started = false;
	pthread_mutex_unlock(&shift.lock);
	md_cuda.cuCtxPopCurrent_v2(&popped);
}
