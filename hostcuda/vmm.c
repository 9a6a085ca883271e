/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management: physical memory is a memfd, a mapping an mmap of it, access rights an mprotect. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hostcuda/address_space.h"
#include "hostcuda/bus.h"
#include "hostcuda/context.h"
#include "hostcuda/device.h"
#include "hostcuda/device_state.h"
#include "hostcuda/memory.h"
#include "hostcuda/vmm.h"

#define HC_PAGE 4096u

struct hc_physical {
	/* one for the handle, one for each retain, and one for each mapping */
	int refs HC_STATE_GUARDED;
	int handles HC_STATE_GUARDED; /* how many of refs cuMemRelease gives back */
	int fd;                       /* -1: a multicast object to which nothing is bound yet */
	size_t size;
	CUmemAllocationProp prop;
	bool imported; /* another process pays for it */
	bool exported; /* another process may hold it */
	bool mapped;   /* at any time */
	bool multicast;
	bool *missing; /* of each page: it has not been filled, and cannot be touched; NULL: all can be */
};

struct reservation {
	uint64_t address;
	size_t size;
	bool *used; /* of each granule: something was mapped there before */
	struct reservation *next HC_STATE_GUARDED;
};

static struct reservation *reservations HC_STATE_GUARDED;

static struct hc_physical *physical_of(CUmemGenericAllocationHandle handle)
{
	const void *object = (const void *)(uintptr_t)handle;
	return hc_handle_kind(object) == HC_PHYSICAL ? (struct hc_physical *)(uintptr_t)handle : NULL;
}

static void physical_unref(struct hc_physical *physical) HC_STATE_HELD
{
	if (--physical->refs)
		return;
	if (!physical->imported)
		hc_device_credit(hc_device_at(physical->prop.location.id), physical->size);
	hc_handle_remove(physical);
	if (physical->fd >= 0)
		close(physical->fd);
	free(physical->missing);
	free(physical);
}

static CUresult physical_make(int fd, size_t size, const CUmemAllocationProp *prop, bool imported,
			      CUmemGenericAllocationHandle *handle)
{
	struct hc_physical *physical = calloc(1, sizeof(*physical));
	if (!physical || !hc_handle_add(physical, HC_PHYSICAL)) {
		free(physical);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*physical =
	    (struct hc_physical){.refs = 1, .handles = 1, .fd = fd, .size = size, .prop = *prop, .imported = imported};
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
	return CUDA_SUCCESS;
}

/* The name says on which device of the machine the memory is, for processes that import it. */
#define FILE_NAME "hostcuda-memory-"

static int make_file(const struct hc_device *device) HC_STATE_HELD
{
	char name[64];
	snprintf(name, sizeof(name), FILE_NAME "%d", device->place);
	return memfd_create(name, MFD_CLOEXEC);
}

/* The device of this process whose memory the file is; -1: it is none, or this process does not see the device. */
static int device_of_file(int fd) HC_STATE_HELD
{
	char link[64], name[64] = "";
	int place;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (readlink(link, name, sizeof(name) - 1) < 0 || sscanf(name, "/memfd:" FILE_NAME "%d", &place) != 1)
		return -1;
	for (int i = 0; i < hc_device_count; i++)
		if (hc_devices[i].place == place)
			return i;
	return -1;
}

/* Host memory may be on NUMA node 0 only, and the device is charged for it. */
static CUresult check_prop(const CUmemAllocationProp *prop)
{
	const unsigned exportable = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE &&
	     prop->location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA))
		return CUDA_ERROR_INVALID_VALUE;
	if (!hc_device_at(prop->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	return (unsigned)prop->requestedHandleTypes & ~exportable ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult hc_cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
					  CUmemAllocationGranularity_flags option)
{
	(void)option; /* minimum and recommended granularity are the same */
	if (!granularity)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(check_prop(prop));
	*granularity = HC_GRANULARITY;
	return CUDA_SUCCESS;
}

CUresult hc_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
			unsigned long long flags)
{
	HC_STATE_GUARD();
	if (!handle || !size || size % HC_GRANULARITY || flags)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(check_prop(prop));
	struct hc_device *device = hc_device_at(prop->location.id);
	HC_TRY(hc_device_charge(device, size));
	int fd = make_file(device);
	CUresult result = fd >= 0 && !ftruncate(fd, (off_t)size) ? physical_make(fd, size, prop, false, handle)
								 : CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS) {
		hc_device_credit(device, size);
		if (fd >= 0)
			close(fd);
	}
	return result;
}

CUresult hc_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	HC_STATE_GUARD();
	struct hc_physical *physical = physical_of(handle);
	if (!physical || !physical->handles)
		return CUDA_ERROR_INVALID_VALUE;
	physical->handles--;
	physical_unref(physical);
	return CUDA_SUCCESS;
}

/* ---- reservations and mappings ---- */
CUresult hc_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
				unsigned long long flags)
{
	HC_STATE_GUARD();
	if (!ptr || !size || size % HC_GRANULARITY || (alignment & (alignment - 1)) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	struct reservation *reservation = calloc(1, sizeof(*reservation));
	if (!reservation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result =
	    hc_space_take(&reservation->address, size, alignment > HC_GRANULARITY ? alignment : HC_GRANULARITY, addr);
	if (result != CUDA_SUCCESS) {
		free(reservation);
		return result;
	}
	reservation->size = size;
	reservation->used = calloc(size / HC_GRANULARITY, sizeof(*reservation->used));
	reservation->next = reservations;
	reservations = reservation;
	*ptr = reservation->address;
	return CUDA_SUCCESS;
}

/* The first mapping at or after the address, before end. */
static struct hc_memory *next_mapping(uint64_t address, uint64_t end) HC_STATE_HELD
{
	for (; address < end; address += HC_GRANULARITY) {
		struct hc_memory *memory = hc_memory_at(address);
		if (memory && memory->kind == HC_MEMORY_MAPPED)
			return memory;
	}
	return NULL;
}

CUresult hc_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	HC_STATE_GUARD();
	for (struct reservation **link = &reservations; *link; link = &(*link)->next) {
		struct reservation *reservation = *link;
		if (reservation->address != ptr)
			continue;
		if (reservation->size != size || next_mapping(ptr, ptr + size))
			return CUDA_ERROR_INVALID_VALUE;
		*link = reservation->next;
		hc_space_give(ptr, size);
		free(reservation->used);
		free(reservation);
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

static bool is_reserved(uint64_t address, size_t size) HC_STATE_HELD
{
	for (const struct reservation *reservation = reservations; reservation; reservation = reservation->next)
		if (address >= reservation->address && size <= reservation->size &&
		    address - reservation->address <= reservation->size - size)
			return true;
	return false;
}

/* Notes that the range is used. True: a part of it was used before. */
static bool use_again(uint64_t address, size_t size) HC_STATE_HELD
{
	bool again = false;
	for (const struct reservation *at = reservations; at; at = at->next) {
		if (address - at->address >= at->size || !at->used)
			continue;
		size_t first = (address - at->address) / HC_GRANULARITY;
		for (size_t i = first; i < first + size / HC_GRANULARITY; i++) {
			again = again || at->used[i];
			at->used[i] = true;
		}
	}
	return again;
}

/* With HOSTCUDA_REMAPPED=fault, memory that is mapped where other memory was must be filled before it is touched. */
static void note_mapped(struct hc_physical *physical, uint64_t address, size_t size) HC_STATE_HELD
{
	const char *setting = secure_getenv("HOSTCUDA_REMAPPED");
	size_t pages = physical->size / HC_PAGE;
	bool again = use_again(address, size);
	if (again && !physical->mapped && setting && !strcmp(setting, "fault"))
		physical->missing = malloc(pages * sizeof(*physical->missing));
	for (size_t i = 0; physical->missing && !physical->mapped && i < pages; i++)
		physical->missing[i] = true;
	physical->mapped = true;
}

CUresult hc_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		     unsigned long long flags)
{
	HC_STATE_GUARD();
	struct hc_physical *physical = physical_of(handle);
	if (!physical || !physical->handles || physical->fd < 0 || flags || !size || ptr % HC_GRANULARITY ||
	    size % HC_GRANULARITY || offset % HC_GRANULARITY)
		return CUDA_ERROR_INVALID_VALUE;
	if (offset > physical->size || size > physical->size - offset)
		return CUDA_ERROR_NOT_SUPPORTED; /* what NVIDIA's driver returns */
	if (!is_reserved(ptr, size) || next_mapping(ptr, ptr + size))
		return CUDA_ERROR_INVALID_VALUE;
	struct hc_memory *memory = calloc(1, sizeof(*memory));
	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*memory = (struct hc_memory){.kind = HC_MEMORY_MAPPED,
				     .address = ptr,
				     .size = size,
				     .extent = size,
				     .physical = physical,
				     .physical_offset = offset,
				     .device = hc_device_at(physical->prop.location.id)};
	void *got = mmap((void *)ptr, size, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->fd, (off_t)offset);
	if (got == MAP_FAILED || hc_memory_add(memory) != CUDA_SUCCESS) {
		hc_space_blank(ptr, size);
		free(memory);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	note_mapped(physical, ptr, size);
	physical->refs++;
	return CUDA_SUCCESS;
}

/* Whether mappings fill the range exactly, each of them whole. */
static bool whole_mappings(uint64_t address, size_t size) HC_STATE_HELD
{
	uint64_t end = address + size;
	while (address < end) {
		const struct hc_memory *memory = hc_memory_at(address);
		if (!memory || memory->kind != HC_MEMORY_MAPPED || memory->address != address)
			return false;
		address += memory->size;
	}
	return address == end;
}

CUresult hc_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	HC_STATE_GUARD();
	if (!size || !whole_mappings(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	for (uint64_t address = ptr; address < ptr + size;) {
		struct hc_memory *memory = hc_memory_at(address);
		address += memory->size;
		hc_space_blank(memory->address, memory->size);
		physical_unref(memory->physical);
		hc_memory_forget(memory);
	}
	return CUDA_SUCCESS;
}

static int protection_of(CUmemAccess_flags flags)
{
	return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
	       : flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
							   : PROT_NONE;
}

/* Protects pages of a mapping as its access rights say; those that are missing cannot be touched. */
static bool protect(const struct hc_memory *memory, size_t first, size_t end) HC_STATE_HELD
{
	const bool *missing = memory->physical->missing;
	size_t offset = memory->physical_offset / HC_PAGE;
	bool done = true;
	for (size_t i = first, next; i < end && done; i = next) {
		bool out = missing && missing[offset + i];
		for (next = i + 1; next < end && (missing && missing[offset + next]) == out;)
			next++;
		done = !mprotect((void *)(memory->address + i * HC_PAGE), (next - i) * HC_PAGE,
				 out ? PROT_NONE : protection_of(memory->access));
	}
	return done;
}

static void set_reach(struct hc_memory *memory, const CUmemAccessDesc *desc) HC_STATE_HELD
{
	uint16_t bit = (uint16_t)(1u << desc->location.id);
	memory->reach = desc->flags ? memory->reach | bit : memory->reach & (uint16_t)~bit;
}

static bool may_access(uint64_t address, size_t size, int device) HC_STATE_HELD
{
	bool may = true;
	for (uint64_t at = address; at < address + size && may; at += hc_memory_at(at)->size)
		may = hc_memory_at(at)->device == hc_device_at(device) || hc_bus_has_peers();
	return may;
}

/* Devices share the host's page tables, so the last description says for all how pages can be touched. */
CUresult hc_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	HC_STATE_GUARD();
	if (!desc || !count || !size || !whole_mappings(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || desc[i].flags == 2 || desc[i].flags > 3)
			return CUDA_ERROR_INVALID_VALUE;
		if (!hc_device_at(desc[i].location.id) || !may_access(ptr, size, desc[i].location.id))
			return CUDA_ERROR_INVALID_DEVICE;
	}
	CUmemAccess_flags flags = desc[count - 1].flags;
	for (uint64_t address = ptr; address < ptr + size;) {
		struct hc_memory *memory = hc_memory_at(address);
		address += memory->size;
		memory->access = flags;
		for (size_t i = 0; i < count; i++)
			set_reach(memory, &desc[i]);
		if (!protect(memory, 0, memory->size / HC_PAGE))
			return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

/* Protects these pages in each of their mappings. */
static void protect_everywhere(const struct hc_physical *physical, size_t first, size_t end) HC_STATE_HELD
{
	const struct hc_memory *at = NULL;
	while ((at = hc_memory_mapping(physical, at)) != NULL) {
		size_t offset = at->physical_offset / HC_PAGE, pages = at->size / HC_PAGE;
		size_t from = first > offset ? first - offset : 0, to = end > offset ? end - offset : 0;
		protect(at, from < pages ? from : pages, to < pages ? to : pages);
	}
}

void hc_vmm_fill(uint64_t address, size_t size)
{
	HC_STATE_GUARD();
	const struct hc_memory *memory = hc_memory_at(address);
	if (!memory || memory->kind != HC_MEMORY_MAPPED || !memory->physical->missing || !size ||
	    size > memory->address + memory->size - address || memory->access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return;
	size_t at = memory->physical_offset + address - memory->address;
	size_t first = at / HC_PAGE, end = (at + size + HC_PAGE - 1) / HC_PAGE;
	for (size_t i = first; i < end; i++)
		memory->physical->missing[i] = false;
	protect_everywhere(memory->physical, first, end);
}

CUresult hc_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
	HC_STATE_GUARD();
	struct hc_memory *memory = hc_memory_at(ptr);
	if (!flags || !location || !memory || memory->kind != HC_MEMORY_MAPPED)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = memory->access;
	return CUDA_SUCCESS;
}

/* ---- sharing ---- */
CUresult hc_cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
					 CUmemAllocationHandleType handleType, unsigned long long flags)
{
	HC_STATE_GUARD();
	struct hc_physical *physical = physical_of(handle);
	if (!shareableHandle || !physical || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!(physical->prop.requestedHandleTypes & handleType) || physical->fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	int fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	physical->exported = true;
	*(int *)shareableHandle = fd;
	return CUDA_SUCCESS;
}

CUresult hc_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
					   CUmemAllocationHandleType shHandleType)
{
	HC_STATE_GUARD();
	struct stat status;
	int from = (int)(intptr_t)osHandle;
	if (!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	if (fstat(from, &status) || !S_ISREG(status.st_mode) || !status.st_size ||
	    (size_t)status.st_size % HC_GRANULARITY)
		return CUDA_ERROR_INVALID_VALUE;
	int device = device_of_file(from);
	if (device < 0)
		return CUDA_ERROR_INVALID_VALUE;
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	prop.location.id = device;
	int fd = fcntl(from, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	CUresult result = physical_make(fd, (size_t)status.st_size, &prop, true, handle);
	if (result != CUDA_SUCCESS)
		close(fd);
	return result;
}

/* ---- multicast: an object of one device, which is the whole team ---- */

CUresult hc_cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle, const CUmulticastObjectProp *prop)
{
	HC_STATE_GUARD();
	const CUmemAllocationProp of = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	if (!mcHandle || !prop || !prop->size || prop->size % HC_GRANULARITY || prop->flags || !prop->numDevices)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->numDevices != 1 || prop->handleTypes)
		return CUDA_ERROR_NOT_SUPPORTED;
	HC_TRY(physical_make(-1, prop->size, &of, true, mcHandle));
	physical_of(*mcHandle)->multicast = true;
	return CUDA_SUCCESS;
}

/* What is written to the object's mappings is written to the memory, as it is the only one. */
CUresult hc_cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
			       CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
			       unsigned long long flags)
{
	HC_STATE_GUARD();
	struct hc_physical *object = physical_of(mcHandle), *memory = physical_of(memHandle);
	if (!object || !object->multicast || !memory || memory->multicast || flags || object->fd >= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (mcOffset || memOffset || size != object->size || size != memory->size)
		return CUDA_ERROR_NOT_SUPPORTED;
	object->prop.location = memory->prop.location;
	object->fd = fcntl(memory->fd, F_DUPFD_CLOEXEC, 0);
	return object->fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

CUresult hc_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	HC_STATE_GUARD();
	struct hc_memory *memory = hc_memory_at((uint64_t)(uintptr_t)addr);
	if (!handle || !memory || memory->kind != HC_MEMORY_MAPPED)
		return CUDA_ERROR_INVALID_VALUE;
	memory->physical->refs++;
	memory->physical->handles++;
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)memory->physical;
	return CUDA_SUCCESS;
}

CUresult hc_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	HC_STATE_GUARD();
	struct hc_physical *physical = physical_of(handle);
	if (!prop || !physical)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = physical->prop;
	return CUDA_SUCCESS;
}

/* ---- parting ---- */

static int copy_of(const struct hc_physical *physical) HC_STATE_HELD
{
	int fd = make_file(hc_device_at(physical->prop.location.id));
	off_t from = 0;
	if (fd >= 0 && ftruncate(fd, (off_t)physical->size)) {
		close(fd);
		return -1;
	}
	while (fd >= 0 && from < (off_t)physical->size) {
		ssize_t copied = sendfile(fd, physical->fd, &from, physical->size - (size_t)from);
		if (copied > 0)
			continue;
		close(fd);
		return -1;
	}
	return fd;
}

static bool part(struct hc_physical *physical) HC_STATE_HELD
{
	const struct hc_memory *at = NULL;
	int fd = copy_of(physical);
	bool done = fd >= 0;
	while (done && (at = hc_memory_mapping(physical, at)) != NULL)
		done = mmap((void *)at->address, at->size, PROT_NONE, MAP_SHARED | MAP_FIXED, fd,
			    (off_t)at->physical_offset) != MAP_FAILED &&
		       protect(at, 0, at->size / HC_PAGE);
	if (!done)
		return false;
	close(physical->fd);
	physical->fd = fd;
	if (physical->imported)
		hc_device_at(physical->prop.location.id)->used += physical->size;
	physical->imported = physical->exported = false;
	return true;
}

CUresult hc_vmm_part(void)
{
	const struct hc_memory *at = NULL;
	while ((at = hc_memory_mapping(NULL, at)) != NULL)
		if ((at->physical->imported || at->physical->exported) && !part(at->physical))
			return CUDA_ERROR_OUT_OF_MEMORY;
	return CUDA_SUCCESS;
}
