/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: how many, how large, and what they answer to cuDeviceGetAttribute. Also handles and the state lock. */
#include <errno.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/map.h"
#include "base/setting.h"
#include "hostcuda/checkpoint.h"
#include "hostcuda/device.h"
#include "hostcuda/device_state.h"
#include "hostcuda/executor.h"
#include "hostcuda/shared_devices.h"
#include "hostcuda/visible_devices.h"

struct hc_device hc_devices[HC_MAX_DEVICES];
int hc_device_count;
static int machine_count; /* with those that this process does not see */
bool hc_initialised, hc_copied;

pthread_mutex_t hc_state_mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct md_map handles HC_STATE_GUARDED;

void hc_state_lock(void)
{
	pthread_mutex_lock(&hc_state_mutex);
}

void hc_state_unlock(void)
{
	pthread_mutex_unlock(&hc_state_mutex);
}

bool hc_handle_add(const void *object, enum hc_kind kind)
{
	HC_STATE_GUARD();
	return md_map_put(&handles, (uint64_t)(uintptr_t)object, kind);
}

void hc_handle_remove(const void *object)
{
	HC_STATE_GUARD();
	md_map_remove(&handles, (uint64_t)(uintptr_t)object, NULL);
}

enum hc_kind hc_handle_kind(const void *object)
{
	HC_STATE_GUARD();
	uint64_t kind = 0;
	md_map_get(&handles, (uint64_t)(uintptr_t)object, &kind);
	return (enum hc_kind)kind;
}

/* "8G", "512M", "4096"; 0 for nonsense. */
static size_t parse_bytes(const char *text)
{
	char *end;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	unsigned shift = *end == 'G' || *end == 'g'   ? 30
			 : *end == 'M' || *end == 'm' ? 20
			 : *end == 'K' || *end == 'k' ? 10
						      : 0;
	if (errno || end == text || (shift ? end[1] : *end) || value > (SIZE_MAX >> shift))
		return 0;
	return (size_t)value << shift;
}

static CUresult setting_devices(int *count)
{
	const char *text = secure_getenv("HOSTCUDA_DEVICES");
	char *end;
	long value = text ? strtol(text, &end, 10) : 1;
	if (text && (end == text || *end || value < 0 || value > HC_MAX_DEVICES)) {
		fprintf(stderr, "hostcuda: HOSTCUDA_DEVICES=%s is not a number from 0 to %d\n", text, HC_MAX_DEVICES);
		return CUDA_ERROR_INVALID_VALUE;
	}
	*count = (int)value;
	return CUDA_SUCCESS;
}

static CUresult initialise(void) MD_LOCKS_UNCHECKED /* once, before there is a second thread here */
{
	const char *text = secure_getenv("HOSTCUDA_MEM");
	size_t capacity = parse_bytes(text ? text : "8G");
	if (!capacity) {
		fprintf(stderr, "hostcuda: HOSTCUDA_MEM=%s is not a size\n", text);
		return CUDA_ERROR_INVALID_VALUE;
	}
	int places[HC_MAX_DEVICES];
	HC_TRY(setting_devices(&machine_count));
	hc_device_count = hc_visible_devices(machine_count, places);
	if (!hc_device_count)
		return CUDA_ERROR_NO_DEVICE;
	for (int i = 0; i < hc_device_count; i++) {
		hc_devices[i].ordinal = hc_devices[i].default_pool.device = i;
		hc_devices[i].place = places[i];
		hc_devices[i].capacity = capacity;
		if (!hc_handle_add(&hc_devices[i].default_pool, HC_POOL))
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	/* Threads run code of this library until the process ends, so it must never be unmapped. */
	Dl_info self;
	void *handle =
	    dladdr((void *)initialise, &self) ? dlopen(self.dli_fname, RTLD_NOW | RTLD_NODELETE | RTLD_NOLOAD) : NULL;
	if (handle)
		dlclose(handle);
	hc_executor_start();
	hc_checkpoint_start();
	return CUDA_SUCCESS;
}

size_t hc_device_context_bytes(void)
{
	const char *text = secure_getenv("HOSTCUDA_CONTEXT");
	size_t bytes = text ? parse_bytes(text) : 0;
	if (text && !bytes && strcmp(text, "0") != 0)
		md_setting_say_unreadable("HOSTCUDA_CONTEXT", text, "a size, as in 500M", "a context takes none");
	return bytes;
}

static CUresult initialise_once(bool *first)
{
	HC_STATE_GUARD();
	if (hc_initialised)
		return CUDA_SUCCESS;
	HC_TRY(initialise());
	__atomic_store_n(&hc_initialised, true, __ATOMIC_RELEASE);
	*first = true;
	return CUDA_SUCCESS;
}

/* The first cuInit loads CUDA_INJECTION64_PATH. No lock is held, because the loaded library may call the driver. */
static void inject(void)
{
	const char *path = secure_getenv("CUDA_INJECTION64_PATH");
	void *library = path && *path ? dlopen(path, RTLD_NOW) : NULL;
	int (*initialize)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
	if (initialize)
		initialize();
	else if (path && *path)
		fprintf(stderr, "hostcuda: CUDA_INJECTION64_PATH: %s\n", dlerror());
}

/* The child lacks the threads that compute, and locks that they held stay locked for ever. */
static void renew(void)
{
	hc_copied |= __atomic_load_n(&hc_initialised, __ATOMIC_ACQUIRE);
}

__attribute__((constructor)) static void watch_children(void)
{
	static struct md_child_renewal own = {.renew = renew};
	md_child_register(&own);
}

CUresult hc_cuInit(unsigned int Flags)
{
	bool first = false;
	if (hc_copied)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (Flags)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(initialise_once(&first));
	if (first)
		inject();
	return CUDA_SUCCESS;
}

struct hc_device *hc_device_at(CUdevice device)
{
	return device >= 0 && device < hc_device_count ? &hc_devices[device] : NULL;
}

CUresult hc_cuDeviceGetCount(int *count)
{
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = hc_device_count;
	return CUDA_SUCCESS;
}

CUresult hc_cuDeviceGet(CUdevice *device, int ordinal)
{
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!hc_device_at(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult hc_cuDeviceGetName(char *name, int len, CUdevice dev)
{
	if (!name || len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!hc_device_at(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(name, (size_t)len, "hostcuda");
	return CUDA_SUCCESS;
}

CUuuid hc_device_uuid(int place)
{
	CUuuid uuid = {{0}};
	memcpy(uuid.bytes, "hostcuda", 8);
	uuid.bytes[15] = (char)place;
	return uuid;
}

int hc_device_of_uuid(const CUuuid *uuid)
{
	int place = uuid->bytes[15];
	CUuuid its = hc_device_uuid(place);
	return place >= 0 && place < machine_count && !memcmp(uuid, &its, sizeof(its)) ? place : -1;
}

CUresult hc_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	if (!hc_device_at(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	HC_STATE_GUARD();
	*uuid = hc_device_uuid(hc_devices[dev].place);
	return CUDA_SUCCESS;
}

CUresult hc_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!hc_device_at(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = hc_devices[dev].capacity;
	return CUDA_SUCCESS;
}

static int processors(void)
{
	long count = sysconf(_SC_NPROCESSORS_ONLN);
	return count > 0 ? (int)count : 1;
}

/* An attribute that is not listed is 0: this device lacks the feature. */
static const struct {
	CUdevice_attribute attribute;
	int value;
} attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, HC_DEFAULT_DYNAMIC_SHARED},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, HC_MAX_DYNAMIC_SHARED},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 64},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 8 << 20},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT},
    {CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 4},
};

CUresult hc_cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
	if (!pi || attrib <= 0 || attrib >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (!hc_device_at(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*pi = attrib == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? processors()
	      : attrib == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID         ? dev + 1
								 : 0;
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
		if (attributes[i].attribute == attrib)
			*pi = attributes[i].value;
	return CUDA_SUCCESS;
}

CUresult hc_device_charge(struct hc_device *device, size_t bytes)
{
	HC_STATE_GUARD();
	if (bytes > device->capacity - device->used)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return hc_shared_use(device, device->used + bytes);
}

void hc_device_credit(struct hc_device *device, size_t bytes)
{
	HC_STATE_GUARD();
	hc_shared_use(device, device->used - bytes);
}
