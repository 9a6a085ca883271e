/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that other processes have, too, or that lies at two addresses: imported, exported, mapped again, or a graph's.
 */
#include "base/map.h"
#include "capture/capture.h"
#include "capture/record/allocs.h"
#include "capture/record/made.h"
#include "capture/record/others.h"
#include "capture/record/shared.h"

/* handles that were imported, exported or span devices -> enum md_others; none of these: the host reaches them, too */
static struct md_map foreign MD_CAPTURE_GUARDED;
static struct md_map imported MD_CAPTURE_GUARDED; /* handles of other processes' memory */
static struct md_map mapped MD_CAPTURE_GUARDED;   /* start of a mapping -> its handle */
static struct md_map seen_as
    MD_CAPTURE_GUARDED; /* start of page-locked memory -> where the device sees it, if that is elsewhere */
static struct md_map opened MD_CAPTURE_GUARDED; /* start of memory of an IPC handle -> how often it is open */

static void put(struct md_map *map, uint64_t key, uint64_t value)
{
	if (!md_map_put(map, key, value))
		md_capture_trouble("out of memory for shared memory 0x%llx", (unsigned long long)key);
}

/* Graphs that were recorded earlier may use the memory, so it counts as shared from its allocation on. */
static void share(uint64_t address) MD_CAPTURE_HELD
{
	const struct md_interval *item = md_interval_find(&md_capture.live, address);
	struct md_interval before;
	if (!item || !md_capture.writer || (item->value & MD_FAMILY_MASK) == MD_ALLOC_SHARED)
		return;
	before = *item;
	if (!md_interval_add(&md_capture.live, before.start, before.size, MD_ALLOC_SHARED | MD_FAMILY_COUNTED))
		md_capture_trouble("out of memory for shared memory 0x%llx", (unsigned long long)address);
	else
		md_trace_put_alloc(md_capture.writer, md_capture_next(), MD_ALLOC_SHARED, before.start, before.size);
}

static void note_others(uint64_t address, enum md_others how) MD_CAPTURE_HELD
{
	const struct md_interval *item = md_interval_find(&md_capture.live, address);
	if (item && how != MD_OTHERS_NONE)
		md_capture_others_note(item->start, how);
}

void md_capture_shared_reached(uint64_t address)
{
	md_capture_lock();
	share(address);
	md_capture_unlock();
}

void md_capture_shared_exported(uint64_t address)
{
	md_capture_lock();
	share(address);
	note_others(address, MD_OTHERS_RANKS);
	md_capture_unlock();
}

void md_capture_shared_imported(uint64_t address)
{
	CUdeviceptr start = 0;
	size_t size = 0;
	if (!md_cuda.cuMemGetAddressRange_v2 || md_cuda.cuMemGetAddressRange_v2(&start, &size, address) || !size) {
		start = address; /* its size is not known: the first bytes count */
		size = 512;
	}
	md_capture_alloc_note(MD_ALLOC_SHARED, start, size);
	md_capture_lock();
	note_others(start, MD_OTHERS_RANKS);
	md_capture_unlock();
}

/* Start of the imported memory that holds the address; 0: there is none. */
static uint64_t start_of(uint64_t address) MD_CAPTURE_HELD
{
	const struct md_interval *item = md_interval_find(&md_capture.live, address);
	return item && (item->value & MD_FAMILY_MASK) == MD_ALLOC_SHARED ? item->start : 0;
}

/* A handle that is open in the context gives the same address again. */
void md_capture_shared_opened(uint64_t address)
{
	uint64_t start, times = 0;
	md_capture_lock();
	start = start_of(address);
	if (start && md_map_get(&opened, start, &times))
		put(&opened, start, times + 1);
	md_capture_unlock();
	if (times)
		return;
	md_capture_shared_imported(address);
	md_capture_lock();
	start = start_of(address);
	if (start)
		put(&opened, start, 1);
	md_capture_unlock();
}

void md_capture_shared_closed(uint64_t address)
{
	uint64_t start, times = 0;
	md_capture_lock();
	start = start_of(address);
	if (start && md_map_get(&opened, start, &times) && times > 1)
		put(&opened, start, times - 1);
	else
		md_map_remove(&opened, start, NULL);
	md_capture_unlock();
	if (start && times < 2)
		md_capture_free_note(start);
}

/* ---- handles ---- */

/* A handle that was released may come again for other memory, while the old one is still mapped. */
static void forget_handle(CUmemGenericAllocationHandle handle) MD_CAPTURE_HELD
{
	uint64_t start, of;
	size_t cursor = 0;
	md_map_remove(&foreign, handle, NULL);
	md_map_remove(&imported, handle, NULL);
	while (md_map_next(&mapped, &cursor, &start, &of))
		if (of == handle)
			put(&mapped, start, 0);
}

void md_capture_handle_made(CUmemGenericAllocationHandle handle, bool on_device)
{
	md_capture_lock();
	forget_handle(handle);
	if (!on_device)
		put(&foreign, handle, MD_OTHERS_NONE);
	md_capture_unlock();
}

void md_capture_handle_retained(CUmemGenericAllocationHandle handle, uint64_t address)
{
	const struct md_interval *item;
	uint64_t before, how;
	md_capture_lock();
	item = md_interval_find(&md_capture.live, address);
	if (item && md_map_get(&mapped, item->start, &before)) {
		if (before != handle && md_map_get(&foreign, before, &how))
			put(&foreign, handle, how);
		if (before != handle && md_map_get(&imported, before, NULL))
			put(&imported, handle, 1);
		put(&mapped, item->start, handle);
	}
	md_capture_unlock();
}

static void share_mappings(CUmemGenericAllocationHandle handle, enum md_others how) MD_CAPTURE_HELD
{
	uint64_t start, of, before = MD_OTHERS_NONE;
	size_t cursor = 0;
	md_map_get(&foreign, handle, &before);
	how = before > (uint64_t)how ? (enum md_others)before : how;
	put(&foreign, handle, how);
	while (md_map_next(&mapped, &cursor, &start, &of)) {
		if (of != handle)
			continue;
		share(start);
		note_others(start, how);
	}
}

void md_capture_handle_foreign(CUmemGenericAllocationHandle handle, bool own)
{
	md_capture_lock();
	if (!own)
		put(&imported, handle, 1);
	share_mappings(handle, MD_OTHERS_RANKS);
	md_capture_unlock();
}

/* Memory at two addresses stays without a name: a write by one of them is seen by the other. */
void md_capture_handle_named(const void *caller, CUmemGenericAllocationHandle handle)
{
	uint64_t start, of, only = 0, count = 0, how = MD_OTHERS_NONE;
	size_t cursor = 0;
	bool own;
	md_capture_lock();
	md_map_get(&foreign, handle, &how);
	own = !md_map_get(&imported, handle, NULL);
	while (md_map_next(&mapped, &cursor, &start, &of))
		if (of == handle) {
			only = start;
			count++;
		}
	md_capture_unlock();
	if (count == 1 && how == MD_OTHERS_RANKS)
		md_capture_made_shared(caller, only, own);
}

static bool multicast MD_CAPTURE_GUARDED;

void md_capture_handle_multicast(CUmemGenericAllocationHandle handle)
{
	md_capture_lock();
	multicast = true;
	share_mappings(handle, MD_OTHERS_MULTICAST);
	md_capture_unlock();
}

void md_capture_shared_multicast(uint64_t address)
{
	md_capture_lock();
	share(address);
	note_others(address, MD_OTHERS_MULTICAST);
	md_capture_unlock();
}

bool md_capture_has_multicast(void)
{
	return multicast;
}

/* Bytes that are written by one address are read by the other one, and perhaps only one of the two is bound. */
static bool is_mapped_elsewhere(CUmemGenericAllocationHandle handle, uint64_t address) MD_CAPTURE_HELD
{
	uint64_t start, of;
	size_t cursor = 0;
	while (md_map_next(&mapped, &cursor, &start, &of))
		if (of == handle && start != address)
			return true;
	return false;
}

/* A binding is a range of addresses: memory that is mapped there anew is bound as well. */
static void bind_again(uint64_t address, uint64_t bytes) MD_CAPTURE_HELD
{
	for (size_t i = 0; md_capture.writer && i < md_capture.binds.count; i++) {
		const struct md_interval *item = &md_capture.binds.items[i];
		const struct md_capture_bind *bind = &md_capture.bound[item->value];
		if (item->start < address + bytes && address < item->start + item->size)
			md_trace_put_bind(md_capture.writer, md_capture_next(), bind->name, item->start, item->size,
					  bind->role);
	}
}

void md_capture_mapped(uint64_t address, uint64_t bytes, CUmemGenericAllocationHandle handle)
{
	bool shared;
	md_capture_lock();
	put(&mapped, address, handle);
	shared = md_map_get(&foreign, handle, NULL) || is_mapped_elsewhere(handle, address);
	md_capture_unlock();
	md_capture_alloc_note(MD_ALLOC_VMM, address, bytes);
	md_capture_lock();
	if (shared)
		share_mappings(handle, MD_OTHERS_NONE);
	bind_again(address, bytes);
	md_capture_unlock();
}

/* ---- devices of this process ---- */

/* -1: the driver does not say, or it lies on the host. */
static int device_of(uint64_t address)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp prop = {0};
	if (!md_cuda.cuMemRetainAllocationHandle || !md_cuda.cuMemGetAllocationPropertiesFromHandle ||
	    md_cuda.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address))
		return -1;
	CUresult result = md_cuda.cuMemGetAllocationPropertiesFromHandle(&prop, handle);
	md_cuda.cuMemRelease(handle);
	return result == CUDA_SUCCESS && prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? prop.location.id : -1;
}

static bool reach_it(const CUmemAccessDesc *desc, size_t count, int device)
{
	for (size_t i = 0; i < count; i++)
		if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && desc[i].flags != 0 &&
		    desc[i].location.id != device)
			return true;
	return false;
}

/* Another device than the one that has the memory may use it whenever it likes. */
void md_capture_access_given(uint64_t address, uint64_t bytes, const CUmemAccessDesc *desc, size_t count)
{
	md_capture_lock();
	for (size_t i = 0; md_capture.writer && i < md_capture.live.count; i++) {
		const struct md_interval *item = &md_capture.live.items[i];
		if (item->start < address || item->start - address >= bytes || !md_capture_is_mapping(item->start) ||
		    (item->value & MD_FAMILY_MASK) == MD_ALLOC_SHARED)
			continue;
		int device = device_of(item->start);
		if (device >= 0 && reach_it(desc, count, device))
			share(item->start);
	}
	md_capture_unlock();
}

/* ---- page-locked memory ---- */

void md_capture_host_seen(const void *host, uint64_t device)
{
	const struct md_interval *item;
	uint64_t start = 0, size = 0, offset = 0;
	if ((uintptr_t)host == device)
		return;
	md_capture_lock();
	item = md_interval_find(&md_capture.live, (uintptr_t)host);
	if (item && !md_map_get(&seen_as, item->start, NULL)) {
		offset = (uintptr_t)host - item->start;
		start = item->start;
		size = item->size;
		put(&seen_as, start, device - offset);
	}
	md_capture_unlock();
	if (size)
		md_capture_alloc_note(MD_ALLOC_HOST, device - offset, size);
}

/* Lock held. */
uint64_t md_capture_host_gone(uint64_t start)
{
	uint64_t device = 0;
	md_map_remove(&seen_as, start, &device);
	return device;
}

bool md_capture_is_mapping(uint64_t start)
{
	return md_map_get(&mapped, start, NULL);
}

void md_capture_unmapped(uint64_t start)
{
	md_map_remove(&mapped, start, NULL);
}
