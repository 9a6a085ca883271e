/* SPDX-License-Identifier: Apache-2.0 */
/* cuMemAlloc and cuMemFree on memory that can go: small allocations share pieces of 2 MB, others have their own. */
#include "swap/memory_own.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/child.h"
#include "base/environment.h"
#include "swap/constant.h"
#include "swap/contexts.h"
#include "swap/discard.h"
#include "swap/gate.h"
#include "swap/layer.h"
#include "swap/memory_managed.h"
#include "swap/memory_ordered.h"
#include "swap/peers.h"
#include "swap/unmerge.h"

#define GRANULARITY MD_SWAP_SLAB_BYTES
#define SMALL ((uint64_t)1 << 20)
/* Bytes that a process keeps mapped, so that freeing and allocating again need no call of the driver. */
#define KEPT_MOST ((uint64_t)64 << 20)
#define PITCH 512u
/*
 * Bytes of addresses behind each piece at which nothing is mapped, so that an address past the end of an allocation, or
 * near it, belongs to no other allocation (swap/reach.h).
 */
#define GAP GRANULARITY

struct pieces {
	struct md_swap_physical **items;
	size_t count, room;
};

static struct pieces slabs MD_GUARDED_BY(md_swap_memory_lock);       /* pieces of small allocations */
static struct pieces kept_pieces MD_GUARDED_BY(md_swap_memory_lock); /* pieces without an allocation */
static uint64_t kept MD_GUARDED_BY(md_swap_memory_lock);             /* their bytes, on all devices */
static uint64_t last_id MD_GUARDED_BY(md_swap_memory_lock);

/* Memory that was freed while a stream was being captured, when no thread may wait for the device. */
static CUdeviceptr *waiting MD_GUARDED_BY(md_swap_memory_lock);
static size_t waiting_count MD_GUARDED_BY(md_swap_memory_lock), waiting_room MD_GUARDED_BY(md_swap_memory_lock);
static uint64_t given_back MD_GUARDED_BY(md_swap_memory_lock); /* how many ever were that had waited */

/* ---- pieces: physical memory with one mapping, for one context ---- */

static CUresult place(struct md_swap_physical *piece, CUdevice device) MD_REQUIRES(md_swap_memory_lock)
{
	CUmemAccessDesc access[MD_SWAP_DEVICES_MOST];
	CUdeviceptr address;
	CUresult result = md_swap_real.cuMemAddressReserve(&address, piece->bytes + GAP, 0, 0, 0);
	if (result != CUDA_SUCCESS)
		return result;
	result = md_swap_physical_map(piece, address, piece->bytes, 0, 0);
	if (result == CUDA_SUCCESS) {
		result = md_swap_mapping_allow(piece->mappings, access, md_swap_peers_of(device, access));
		if (result != CUDA_SUCCESS)
			md_swap_mapping_unmap(piece->mappings);
	}
	if (result != CUDA_SUCCESS)
		md_swap_real.cuMemAddressFree(address, piece->bytes + GAP);
	return result;
}

/* The memory may be shared with other processes, as cuMemAlloc's may, if the device supports that. */
static CUresult create_piece(CUdevice device, uint64_t bytes, struct md_swap_physical **made)
    MD_REQUIRES(md_swap_memory_lock)
{
	static bool cannot_share;
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
	CUresult result = cannot_share ? CUDA_ERROR_NOT_SUPPORTED : md_swap_physical_create(bytes, &prop, 0, made);
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY)
		return result;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
	result = md_swap_physical_create(bytes, &prop, 0, made);
	cannot_share = cannot_share || result == CUDA_SUCCESS;
	return result;
}

static CUresult make_piece(CUdevice device, uint64_t bytes, struct md_swap_physical **made)
    MD_REQUIRES(md_swap_memory_lock)
{
	struct md_swap_physical *piece;
	CUresult result = create_piece(device, bytes, &piece);
	if (result == CUDA_ERROR_OUT_OF_MEMORY && md_swap_own_trim())
		result = create_piece(device, bytes, &piece);
	if (result != CUDA_SUCCESS)
		return result;
	result = place(piece, device);
	if (result == CUDA_SUCCESS)
		*made = piece;
	else
		md_swap_physical_drop(piece);
	return result;
}

static void release_piece(struct md_swap_physical *piece) MD_REQUIRES(md_swap_memory_lock)
{
	CUdeviceptr address = piece->mappings->address;
	uint64_t bytes = piece->bytes;
	piece->holds = 0;
	if (md_swap_mapping_unmap(piece->mappings) == CUDA_SUCCESS)
		md_swap_real.cuMemAddressFree(address, bytes + GAP);
	else
		piece->holds = 1;
}

static bool add(struct pieces *pieces, struct md_swap_physical *piece)
{
	if (!MD_ARRAY_GROW(pieces->items, pieces->count, pieces->room))
		return false;
	pieces->items[pieces->count++] = piece;
	return true;
}

static void remove_piece(struct pieces *pieces, const struct md_swap_physical *piece)
{
	for (size_t i = 0; i < pieces->count; i++)
		if (pieces->items[i] == piece) {
			pieces->items[i] = pieces->items[--pieces->count];
			return;
		}
}

static void unkeep(struct md_swap_physical *piece) MD_REQUIRES(md_swap_memory_lock)
{
	kept -= piece->bytes;
	remove_piece(&kept_pieces, piece);
}

uint64_t md_swap_own_trim(void)
{
	uint64_t before = kept;
	while (kept_pieces.count) {
		struct md_swap_physical *piece = kept_pieces.items[kept_pieces.count - 1];
		unkeep(piece);
		release_piece(piece);
	}
	return before;
}

uint64_t md_swap_own_kept(CUdevice device)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < kept_pieces.count; i++)
		if (kept_pieces.items[i]->prop.location.id == device)
			bytes += kept_pieces.items[i]->bytes;
	return bytes;
}

uint64_t md_swap_own_kept_all(void)
{
	return kept;
}

static void keep_or_release(struct md_swap_physical *piece) MD_REQUIRES(md_swap_memory_lock)
{
	if (piece->slab) {
		remove_piece(&slabs, piece);
		free(piece->slab);
		piece->slab = NULL;
	}
	piece->asked = 0;
	if (!piece->resident && !piece->lease && kept + piece->bytes <= KEPT_MOST && add(&kept_pieces, piece))
		kept += piece->bytes;
	else
		release_piece(piece);
}

static struct md_swap_physical *find_kept(CUcontext context, uint64_t bytes) MD_REQUIRES(md_swap_memory_lock)
{
	for (size_t i = 0; i < kept_pieces.count; i++)
		if (kept_pieces.items[i]->context == context && kept_pieces.items[i]->bytes == bytes)
			return kept_pieces.items[i];
	return NULL;
}

/* ---- taking ---- */

static CUresult take_piece(CUcontext context, CUdevice device, uint64_t bytes, struct md_swap_physical **taken)
    MD_REQUIRES(md_swap_memory_lock)
{
	struct md_swap_physical *piece = find_kept(context, bytes);
	if (piece) {
		unkeep(piece);
	} else {
		CUresult result = make_piece(device, bytes, &piece);
		if (result != CUDA_SUCCESS)
			return result;
	}
	piece->context = context;
	*taken = piece;
	return CUDA_SUCCESS;
}

static CUresult take_large(CUcontext context, CUdevice device, uint64_t bytes, CUdeviceptr *address)
    MD_REQUIRES(md_swap_memory_lock)
{
	struct md_swap_physical *piece;
	if (bytes > UINT64_MAX - GRANULARITY)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = take_piece(context, device, (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY, &piece);
	if (result != CUDA_SUCCESS)
		return result;
	piece->asked = bytes;
	piece->id = ++last_id;
	*address = piece->mappings->address;
	return CUDA_SUCCESS;
}

static bool take_in(struct md_swap_physical *piece, uint64_t bytes, CUdeviceptr *address)
{
	uint64_t offset;
	if (!md_swap_slab_take(piece->slab, bytes, &offset))
		return false;
	*address = piece->mappings->address + offset;
	return true;
}

static CUresult make_slab(CUcontext context, CUdevice device, struct md_swap_physical **made)
    MD_REQUIRES(md_swap_memory_lock)
{
	struct md_swap_physical *piece;
	struct md_swap_slab *slab = malloc(sizeof(*slab));
	CUresult result = slab ? take_piece(context, device, GRANULARITY, &piece) : CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS && !add(&slabs, piece)) {
		keep_or_release(piece);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result != CUDA_SUCCESS) {
		free(slab);
		return result;
	}
	md_swap_slab_init(slab);
	piece->slab = slab;
	*made = piece;
	return CUDA_SUCCESS;
}

static CUresult take_small(CUcontext context, CUdevice device, uint64_t bytes, CUdeviceptr *address)
    MD_REQUIRES(md_swap_memory_lock)
{
	struct md_swap_physical *piece;
	for (size_t i = 0; i < slabs.count; i++)
		if (slabs.items[i]->context == context && take_in(slabs.items[i], bytes, address))
			return CUDA_SUCCESS;
	CUresult result = make_slab(context, device, &piece);
	if (result == CUDA_SUCCESS)
		take_in(piece, bytes, address);
	return result;
}

CUresult md_swap_own_take_in(CUcontext context, CUdevice device, uint64_t bytes, CUdeviceptr *address)
{
	CUresult result =
	    bytes <= SMALL ? take_small(context, device, bytes, address) : take_large(context, device, bytes, address);
	if (result != CUDA_SUCCESS)
		return result;
	uint64_t whole = bytes <= SMALL ? bytes : (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
	md_swap_discard_forget(*address, whole);
	md_swap_constant_forget(*address, whole);
	return CUDA_SUCCESS;
}

/* Memory that was freed during captures is free when the device has done the work that it had then. */
static void await_waiting(void)
{
	struct md_swap_context contexts[MD_SWAP_CONTEXTS_MOST];
	pthread_mutex_lock(&md_swap_memory_lock);
	size_t count = waiting_count;
	uint64_t end = given_back + count;
	pthread_mutex_unlock(&md_swap_memory_lock);
	if (!count || md_swap_gate_captures())
		return;
	size_t context_count = md_swap_contexts_list(contexts, MD_SWAP_CONTEXTS_MOST);
	for (size_t i = 0; i < context_count; i++)
		if (md_swap_context_drain(contexts[i].context) != CUDA_SUCCESS)
			return;
	pthread_mutex_lock(&md_swap_memory_lock);
	count = end > given_back ? end - given_back : 0; /* another thread may have been faster */
	for (size_t i = 0; i < count; i++)
		md_swap_own_give(waiting[i]);
	memmove(waiting, waiting + count, (waiting_count - count) * sizeof(*waiting));
	waiting_count -= count;
	given_back += count;
	pthread_mutex_unlock(&md_swap_memory_lock);
}

/* The driver's result for a call that may not be made while a stream is being captured. */
static CUresult ask_capture(void)
{
	return md_swap_gate_captures() ? md_swap_real.cuMemFree_v2(0) : CUDA_SUCCESS;
}

CUresult md_swap_own_take(uint64_t bytes, CUdeviceptr *address)
{
	CUcontext context;
	CUdevice device;
	CUresult result = md_swap_context_current(&context, &device);
	if (result == CUDA_SUCCESS)
		result = ask_capture();
	if (result != CUDA_SUCCESS)
		return result;
	await_waiting();
	pthread_mutex_lock(&md_swap_memory_lock);
	result = md_swap_own_take_in(context, device, bytes, address);
	if (result == CUDA_ERROR_OUT_OF_MEMORY && md_swap_ordered_reclaim(true, true))
		result = md_swap_own_take_in(context, device, bytes, address);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return result;
}

CUresult md_swap_own_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	if (!dptr || !bytesize)
		return md_swap_real.cuMemAlloc_v2(dptr, bytesize);
	return md_swap_own_take(bytesize, dptr);
}

CUresult md_swap_own_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
					unsigned int ElementSizeBytes)
{
	uint64_t bytes, pitch;
	bool element = ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16;
	if (!dptr || !pPitch || !WidthInBytes || !Height || !element || WidthInBytes > SIZE_MAX - PITCH)
		return md_swap_real.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	pitch = (WidthInBytes + PITCH - 1) / PITCH * PITCH;
	if (__builtin_mul_overflow(pitch, (uint64_t)Height, &bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = md_swap_own_take(bytes, dptr);
	if (result == CUDA_SUCCESS)
		*pPitch = pitch;
	return result;
}

/* ---- giving ---- */

bool md_swap_own_find(CUdeviceptr address, struct md_swap_allocation *found)
{
	struct md_swap_mapping *mapping = md_swap_mapping_at(address);
	const struct md_swap_physical *piece = mapping ? mapping->physical : NULL;
	uint64_t start = 0, bytes;
	if (!piece || !md_swap_is_piece(piece))
		return false;
	if (!piece->slab)
		bytes = piece->asked;
	else if (!md_swap_slab_find(piece->slab, address - mapping->address, &start, &bytes))
		return false;
	if (address - mapping->address - start >= bytes)
		return false;
	*found = (struct md_swap_allocation){mapping->address + start, bytes, piece->slab ? 0 : piece->id,
					     piece->context, mapping};
	return true;
}

bool md_swap_own_give(CUdeviceptr address)
{
	struct md_swap_allocation found;
	if (!md_swap_own_find(address, &found) || found.address != address)
		return false;
	struct md_swap_physical *piece = found.mapping->physical;
	md_swap_constant_forget(address, found.bytes);
	if (piece->slab) {
		md_swap_slab_give(piece->slab, address - found.mapping->address);
		if (piece->slab->units)
			return true;
	}
	keep_or_release(piece);
	return true;
}

static bool is_waiting(CUdeviceptr address) MD_REQUIRES(md_swap_memory_lock)
{
	for (size_t i = 0; i < waiting_count; i++)
		if (waiting[i] == address)
			return true;
	return md_swap_ordered_is_freed(address);
}

static CUresult give_later(CUdeviceptr address) MD_REQUIRES(md_swap_memory_lock)
{
	if (!MD_ARRAY_GROW(waiting, waiting_count, waiting_room))
		return CUDA_ERROR_OUT_OF_MEMORY;
	waiting[waiting_count++] = address;
	md_swap_ordered_freed(address);
	return CUDA_SUCCESS;
}

static CUresult give_now(const struct md_swap_allocation *found)
{
	/* The room of what others have as well may be given away, and the engine may want it for something else now. */
	struct md_error none = {0};
	if (atomic_load_explicit(&md_swap_read_only, memory_order_relaxed))
		md_swap_unmerge_ask(found->address, found->bytes, &none);
	/* Waits for the work of the device, as the driver does, before memory can be allocated again. */
	CUresult result = md_swap_context_drain(found->context);
	pthread_mutex_lock(&md_swap_memory_lock);
	md_swap_ordered_freed(found->address);
	if (!md_swap_own_give(found->address))
		result = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&md_swap_memory_lock);
	return result;
}

CUresult md_swap_own_cuMemFree_v2(CUdeviceptr dptr)
{
	struct md_swap_allocation found;
	pthread_mutex_lock(&md_swap_memory_lock);
	bool ours = dptr && md_swap_own_find(dptr, &found);
	bool good = ours && found.address == dptr && !is_waiting(dptr);
	pthread_mutex_unlock(&md_swap_memory_lock);
	if (!ours) {
		CUresult result = md_swap_real.cuMemFree_v2(dptr);
		if (result == CUDA_SUCCESS && dptr)
			md_swap_managed_freed(dptr);
		return result;
	}
	if (!good)
		return CUDA_ERROR_INVALID_VALUE;
	if (!md_swap_gate_captures())
		return give_now(&found);
	CUresult result = ask_capture();
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&md_swap_memory_lock);
	result = give_later(dptr);
	pthread_mutex_unlock(&md_swap_memory_lock);
	return result;
}

/* What was freed there is not given back later, when its address may be another allocation's. */
static void forget_waiting(CUcontext context) MD_REQUIRES(md_swap_memory_lock)
{
	struct md_swap_allocation found;
	for (size_t i = 0; i < waiting_count; i++)
		if (waiting[i] && md_swap_own_find(waiting[i], &found) && found.context == context)
			waiting[i] = 0; /* the others keep their places */
}

void md_swap_own_context_gone(CUcontext context)
{
	struct md_swap_physical *next;
	pthread_mutex_lock(&md_swap_memory_lock);
	forget_waiting(context);
	md_swap_ordered_context_gone(context);
	md_swap_managed_context_gone(context);
	md_swap_own_trim();
	for (struct md_swap_physical *at = md_swap_physicals; at; at = next) {
		next = at->next;
		if (at->context == context)
			keep_or_release(at);
	}
	md_swap_own_trim();
	pthread_mutex_unlock(&md_swap_memory_lock);
}
