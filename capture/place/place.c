/* SPDX-License-Identifier: Apache-2.0 */
/* Which allocations of a second capture are placed, where they lie, and what becomes of them. */
#include "capture/place/place.h"

#include <limits.h>
#include <stdlib.h>

#include "capture/place/reserve.h"
#include "capture/session/by_rank.h"

static struct {
	pthread_mutex_t lock;
	atomic_bool active; /* never false again: the engine may ask about placed memory as long as the process runs */
	struct md_order order;
	uint32_t *taken;               /* per first item of a kind: how many of the kind were requested */
	CUdeviceptr base;              /* 0: not reserved yet */
	bool useless;                  /* the addresses could not be reserved */
	struct md_interval_index live; /* value is a struct md_placed *, owned */
	size_t parked;
} place = {.lock = PTHREAD_MUTEX_INITIALIZER};

void md_capture_place_open(void)
{
	char path[PATH_MAX];
	struct md_error err = {0};
	if (!md_capture_path("MEDUSA_ORDER", path, sizeof(path)))
		return;
	if (md_order_read(path, &place.order, &err) != MD_OK) {
		md_warn("allocations are not placed: %s", err.message);
		return;
	}
	place.taken = calloc(place.order.count + 1, sizeof(*place.taken));
	if (place.taken)
		atomic_store(&place.active, true);
}

static bool is_active(void)
{
	return atomic_load_explicit(&place.active, memory_order_acquire);
}

/* ---- the next request of a kind ---- */

static bool comes_before(const struct md_order_item *item, uint64_t family, uint64_t size)
{
	return item->family != family ? item->family < family : item->size < size;
}

/* Index of the first item of the kind; false: the first capture made no such request. */
static bool first_of(uint64_t family, uint64_t size, size_t *first)
{
	size_t low = 0, high = place.order.count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (comes_before(&place.order.items[middle], family, size))
			low = middle + 1;
		else
			high = middle;
	}
	*first = low;
	return low < place.order.count && place.order.items[low].family == family &&
	       place.order.items[low].size == size;
}

static uint64_t take_next(uint64_t family, uint64_t size)
{
	size_t first, at;
	if (!first_of(family, size, &first))
		return MD_ORDER_NATURAL;
	at = first + place.taken[first]++;
	if (at >= place.order.count || place.order.items[at].family != family || place.order.items[at].size != size)
		return MD_ORDER_NATURAL;
	return place.order.items[at].offset;
}

void md_capture_place_renew(void)
{
	pthread_mutex_init(&place.lock, NULL);
}

void md_capture_place_failed(uint64_t family, uint64_t bytes)
{
	size_t first;
	if (!is_active())
		return;
	pthread_mutex_lock(&place.lock);
	if (first_of(family, bytes, &first) && place.taken[first])
		place.taken[first]--;
	pthread_mutex_unlock(&place.lock);
}

/* Under lock. */
static bool reserve_all(void)
{
	if (!place.base && !place.useless)
		place.useless = md_capture_reserve(&place.base, place.order.span, place.order.alignment);
	if (place.useless)
		place.base = 0;
	return place.base != 0;
}

/* ---- freeing ---- */

static struct md_placed *placed_at(CUdeviceptr address)
{
	const struct md_interval *item = md_interval_find(&place.live, address);
	return item ? (struct md_placed *)(uintptr_t)item->value : NULL;
}

/* Under lock. */
static void drop(struct md_placed *placed)
{
	md_place_unmap(placed->address, placed->size);
	md_interval_remove(&place.live, placed->address);
	place.parked -= placed->parked;
	free(placed);
}

/* Unmaps what was freed. Not while a stream captures: waiting and unmapping would break the capture. Under lock. */
static void drop_parked(void)
{
	if (!place.parked || atomic_load(&md_capture.capturing))
		return;
	for (size_t i = place.live.count; i-- > 0;) {
		struct md_placed *placed = (struct md_placed *)(uintptr_t)place.live.items[i].value;
		if (placed->parked)
			drop(placed);
	}
}

/* Waits for whatever may still use the memory, as the driver's cuMemFree does. */
static CUresult wait_for(CUcontext context)
{
	CUcontext popped;
	CUresult result = md_cuda.cuCtxPushCurrent_v2(context);
	if (result)
		return result;
	result = md_cuda.cuCtxSynchronize();
	md_cuda.cuCtxPopCurrent_v2(&popped);
	return result;
}

bool md_capture_place_free(CUdeviceptr address, CUresult *result)
{
	struct md_placed *placed;
	bool capturing = atomic_load(&md_capture.capturing);
	CUcontext context;
	if (!is_active())
		return false;
	pthread_mutex_lock(&place.lock);
	placed = placed_at(address);
	if (!placed || placed->parked || placed->address != address) {
		pthread_mutex_unlock(&place.lock);
		return false;
	}
	context = placed->context;
	placed->parked = true; /* no other thread may free it meanwhile */
	place.parked++;
	pthread_mutex_unlock(&place.lock);
	*result = capturing ? CUDA_SUCCESS : wait_for(context);
	pthread_mutex_lock(&place.lock);
	drop_parked();
	pthread_mutex_unlock(&place.lock);
	return true;
}

bool md_capture_place_free_on(CUdeviceptr address, CUstream stream, CUresult *result)
{
	struct md_placed placed;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	if (!md_capture_place_find(address, &placed))
		return false;
	md_cuda.cuStreamIsCapturing(stream, &status);
	return status == CU_STREAM_CAPTURE_STATUS_NONE && md_capture_place_free(address, result);
}

/* ---- allocating ---- */

static bool is_primary(CUcontext context, CUdevice device)
{
	unsigned flags;
	int active = 0;
	CUcontext primary;
	if (md_cuda.cuDevicePrimaryCtxGetState(device, &flags, &active) || !active ||
	    md_cuda.cuDevicePrimaryCtxRetain(&primary, device))
		return false;
	md_cuda.cuDevicePrimaryCtxRelease_v2(device);
	return primary == context;
}

/* Takes memory back that was freed while a stream was capturing and is asked for again. Under lock. */
static bool revive(const struct md_placed *wanted)
{
	struct md_placed *placed = placed_at(wanted->address);
	if (!placed || !placed->parked || placed->address != wanted->address || placed->size != wanted->size ||
	    placed->device != wanted->device)
		return false;
	placed->parked = false;
	placed->context = wanted->context;
	placed->primary = wanted->primary;
	place.parked--;
	return true;
}

static bool is_free(uint64_t address, uint64_t bytes)
{
	const struct md_interval *below = md_interval_floor(&place.live, address + bytes - 1);
	return !below || below->start + below->size <= address;
}

/* Under lock. */
static bool put(const struct md_placed *wanted)
{
	struct md_placed *placed;
	drop_parked();
	if (revive(wanted))
		return true;
	if (!is_free(wanted->address, wanted->size) || !md_place_map(wanted->address, wanted->size, wanted->device))
		return false;
	placed = malloc(sizeof(*placed));
	if (placed && md_interval_add(&place.live, wanted->address, wanted->size, (uintptr_t)placed)) {
		*placed = *wanted;
		return true;
	}
	md_place_unmap(wanted->address, wanted->size);
	free(placed);
	return false;
}

/*
 * A thread in the global mode may not allocate while a stream captures: the driver tells it so. In the relaxed mode it
 * may, and so may we.
 */
static bool enter_relaxed(CUstreamCaptureMode *before)
{
	*before = CU_STREAM_CAPTURE_MODE_RELAXED;
	if (md_cuda.cuThreadExchangeStreamCaptureMode(before))
		return false;
	if (*before == CU_STREAM_CAPTURE_MODE_RELAXED || !atomic_load(&md_capture.capturing))
		return true;
	md_cuda.cuThreadExchangeStreamCaptureMode(before);
	return false;
}

bool md_capture_place_alloc(enum md_alloc_family family, uint64_t bytes, CUdeviceptr *out)
{
	struct md_placed wanted = {.size = bytes};
	CUstreamCaptureMode mode;
	CUdevice device;
	uint64_t offset;
	bool done = false;
	if (!is_active() || !bytes || !out)
		return false;
	pthread_mutex_lock(&place.lock);
	offset = take_next(family, bytes);
	if (offset != MD_ORDER_NATURAL && reserve_all() && !md_cuda.cuCtxGetCurrent(&wanted.context) &&
	    wanted.context && !md_cuda.cuCtxGetDevice(&device) && device < MD_PLACE_DEVICES && enter_relaxed(&mode)) {
		wanted.address = place.base + offset;
		wanted.device = device;
		wanted.primary = is_primary(wanted.context, device);
		done = put(&wanted);
		md_cuda.cuThreadExchangeStreamCaptureMode(&mode);
	}
	pthread_mutex_unlock(&place.lock);
	if (done)
		*out = wanted.address;
	return done;
}

/* ---- addresses alone ---- */

bool md_capture_place_reserve(uint64_t bytes, uint64_t alignment, CUdeviceptr *out)
{
	uint64_t offset = MD_ORDER_NATURAL;
	if (!is_active() || !bytes || !out)
		return false;
	pthread_mutex_lock(&place.lock);
	offset = take_next(MD_ORDER_RESERVATION, bytes);
	if (offset != MD_ORDER_NATURAL && (!reserve_all() || (alignment && (place.base + offset) % alignment)))
		offset = MD_ORDER_NATURAL;
	pthread_mutex_unlock(&place.lock);
	if (offset != MD_ORDER_NATURAL)
		*out = place.base + offset;
	return offset != MD_ORDER_NATURAL;
}

bool md_capture_place_holds(CUdeviceptr address, uint64_t bytes)
{
	return is_active() && place.base && address >= place.base && address - place.base < place.order.span &&
	       bytes <= place.order.span - (address - place.base);
}

/* ---- what is asked of it ---- */

bool md_capture_place_find(CUdeviceptr address, struct md_placed *out)
{
	const struct md_placed *placed;
	if (!md_capture_place_holds(address, 1))
		return false;
	pthread_mutex_lock(&place.lock);
	placed = placed_at(address);
	if (placed && !placed->parked)
		*out = *placed;
	else
		placed = NULL;
	pthread_mutex_unlock(&place.lock);
	return placed != NULL;
}

void md_capture_place_peer(CUcontext owner, bool allowed)
{
	CUdevice from = -1, to = -1;
	CUcontext popped;
	if (!is_active() || md_cuda.cuCtxGetDevice(&to) || md_cuda.cuCtxPushCurrent_v2(owner))
		return;
	md_cuda.cuCtxGetDevice(&from);
	md_cuda.cuCtxPopCurrent_v2(&popped);
	if (from < 0 || from >= MD_PLACE_DEVICES || to < 0 || to >= MD_PLACE_DEVICES || from == to)
		return;
	pthread_mutex_lock(&place.lock);
	md_place_allow(from, to, allowed);
	for (size_t i = 0; i < place.live.count; i++) {
		const struct md_placed *placed = (struct md_placed *)(uintptr_t)place.live.items[i].value;
		if (placed->device == from)
			md_place_allow_range(placed->address, placed->size, to, allowed);
	}
	pthread_mutex_unlock(&place.lock);
}

/* Placed memory goes with its context, as memory of the driver does. */
static void context_gone(CUcontext context, int device)
{
	pthread_mutex_lock(&place.lock);
	for (size_t i = place.live.count; i-- > 0;) {
		struct md_placed *placed = (struct md_placed *)(uintptr_t)place.live.items[i].value;
		if (context ? placed->context == context : placed->primary && placed->device == device)
			drop(placed);
	}
	pthread_mutex_unlock(&place.lock);
}

void md_capture_place_context_gone(CUcontext context)
{
	if (!is_active() || !context)
		return;
	wait_for(context);
	context_gone(context, -1);
}

void md_capture_place_primary_gone(CUdevice device)
{
	unsigned flags;
	int active = 1;
	if (is_active() && !md_cuda.cuDevicePrimaryCtxGetState(device, &flags, &active) && !active)
		context_gone(NULL, device);
}
