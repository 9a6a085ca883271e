/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what a lender does which writes into rooms of an engine (swap/lending_push.c), between two GPUs and two processes:
 * taking rooms over, mapping its own memory a second time, and copying from there; once with both GPUs visible to it, and once
 * with its own one alone: peer_push [MIB_OF_AN_ALLOCATION]
 */
#include <string.h>

#include "bench/peer_parts.h"

#define MANY 64u /* allocations of the lender */
#define ROOMS 6u
#define CHUNK (32 * MIB)
#define PUSH_STREAMS 2u

/* Memory of this process, by an address as the engine has it, and by another one of the lender's. */
struct own_part {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr first, second;
};

static CUdeviceptr map_at_new(CUmemGenericAllocationHandle handle, uint64_t bytes, int reader, CUmemAccess_flags flags,
			      struct times *times)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, reader}, flags};
	CUdeviceptr address;
	uint64_t began = md_clock_ns();
	need(md_cuda.cuMemAddressReserve(&address, bytes, 0, 0, 0), "cuMemAddressReserve");
	need(md_cuda.cuMemMap(address, bytes, 0, handle, 0), "cuMemMap");
	add(&times->map, &began);
	need(md_cuda.cuMemSetAccess(address, bytes, &access, 1), "cuMemSetAccess");
	add(&times->access, &began);
	return address;
}

static void unmap_at(CUdeviceptr address, uint64_t bytes)
{
	need(md_cuda.cuMemUnmap(address, bytes), "cuMemUnmap");
	need(md_cuda.cuMemAddressFree(address, bytes), "cuMemAddressFree");
}

/* False: the driver refuses it, as it may where the other GPU is not visible. */
static bool can_take(const struct part *room, int reader)
{
	CUmemGenericAllocationHandle handle;
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, reader}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr address;
	CUresult result = md_cuda.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)room->fd,
								 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (result) {
		printf("push: cuMemImportFromShareableHandle of a room: %s\n", md_cuda_error_name(result));
		return false;
	}
	need(md_cuda.cuMemAddressReserve(&address, room->bytes, 0, 0, 0), "cuMemAddressReserve");
	need(md_cuda.cuMemMap(address, room->bytes, 0, handle, 0), "cuMemMap");
	result = md_cuda.cuMemSetAccess(address, room->bytes, &access, 1);
	if (result)
		printf("push: cuMemSetAccess to a room: %s\n", md_cuda_error_name(result));
	unmap_at(address, room->bytes);
	need(md_cuda.cuMemRelease(handle), "cuMemRelease");
	return !result;
}

/* Parts are mapped when their turn comes, as many as a lender has mapped between its copies. */
static void push_all(struct own_part *parts, unsigned count, uint64_t part_bytes, const struct part *rooms,
		     uint64_t chunk, int device)
{
	struct times times = {0};
	CUstream streams[PUSH_STREAMS];
	unsigned turn = 0, slots = (unsigned)(rooms->bytes / chunk);
	for (unsigned i = 0; i < PUSH_STREAMS; i++)
		need(md_cuda.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	uint64_t began = md_clock_ns();
	for (unsigned i = 0; i < count; i++) {
		parts[i].second =
		    map_at_new(parts[i].handle, part_bytes, device, CU_MEM_ACCESS_FLAGS_PROT_READ, &times);
		for (uint64_t at = 0; at + chunk <= part_bytes; at += chunk, turn++)
			need(md_cuda.cuMemcpyDtoDAsync_v2(rooms[turn / slots % ROOMS].address + turn % slots * chunk,
							  parts[i].second + at, chunk, streams[turn % PUSH_STREAMS]),
			     "cuMemcpyDtoDAsync");
	}
	uint64_t issued = md_clock_ns();
	for (unsigned i = 0; i < PUSH_STREAMS; i++) {
		need(md_cuda.cuStreamSynchronize(streams[i]), "cuStreamSynchronize");
		need(md_cuda.cuStreamDestroy_v2(streams[i]), "cuStreamDestroy");
	}
	uint64_t took = md_clock_ns() - began, back = md_clock_ns();
	for (unsigned i = 0; i < count; i++)
		unmap_at(parts[i].second, part_bytes);
	back = md_clock_ns() - back;
	printf("push: %u parts of %llu MiB in chunks of %llu MiB: %.1f GB/s, all begun after %.2f of %.2f ms; of a "
	       "part: map "
	       "%.1f, access %.1f, back %.1f us\n",
	       count, (unsigned long long)(part_bytes / MIB), (unsigned long long)(chunk / MIB),
	       (double)turn * (double)chunk / (double)took, (double)(issued - began) / 1e6, (double)took / 1e6,
	       times.map / 1e3 / count, times.access / 1e3 / count, (double)back / 1e3 / count);
}

/* device: GPU 1, which may be the only one that this process sees; rooms are on GPU 0, of the other process. */
static void push(int device, uint64_t large)
{
	static struct own_part parts[MANY];
	struct part rooms[ROOMS];
	struct times times = {0};
	CUmemAllocationProp prop = prop_of(device);
	uint64_t part_bytes = large, chunk = CHUNK < part_bytes ? CHUNK : part_bytes;
	open_device(device);
	get_parts(rooms, ROOMS, 0, 4 * chunk);
	bool can = can_take(&rooms[0], device);
	for (unsigned i = 0; i < ROOMS && can; i++)
		take(&rooms[i], device, true, &times);
	if (can)
		printf("push: rooms of %llu MiB of GPU 0: import %.1f, map %.1f, access %.1f us each\n",
		       (unsigned long long)(4 * chunk / MIB), times.import / 1e3 / ROOMS, times.map / 1e3 / ROOMS,
		       times.access / 1e3 / ROOMS);
	for (unsigned i = 0; i < MANY && can; i++) {
		need(md_cuda.cuMemCreate(&parts[i].handle, part_bytes, &prop, 0), "cuMemCreate");
		parts[i].first =
		    map_at_new(parts[i].handle, part_bytes, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &times);
	}
	for (int turn = 0; turn < 3 && can; turn++)
		push_all(parts, MANY, part_bytes, rooms, chunk, device);
	for (unsigned i = 0; i < MANY && can; i++) {
		unmap_at(parts[i].first, part_bytes);
		need(md_cuda.cuMemRelease(parts[i].handle), "cuMemRelease");
	}
	for (unsigned i = 0; i < ROOMS && can; i++)
		put_back(&rooms[i], &times);
	fflush(stdout);
	end_parts();
}

static uint64_t part_of;

/* An engine of the worker sees its own GPU alone. */
static int measure_blind(void)
{
	struct md_error err = {0};
	const char *seen = getenv("CUDA_VISIBLE_DEVICES"), *second = seen ? strchr(seen, ',') : NULL;
	char own[64];
	snprintf(own, sizeof(own), "%.*s", second ? (int)strcspn(second + 1, ",") : 1, second ? second + 1 : "1");
	setenv("CUDA_VISIBLE_DEVICES", own, 1);
	if (md_cuda_load(&err) != MD_OK || md_cuda.cuInit(0))
		return 1;
	printf("push: the lender sees GPU 1 alone\n");
	push(0, part_of);
	return 0;
}

static int measure(void)
{
	struct md_error err = {0};
	int count = 0, can = 0;
	if (md_cuda_load(&err) != MD_OK || md_cuda.cuInit(0) || md_cuda.cuDeviceGetCount(&count) || count < 2 ||
	    md_cuda.cuDeviceCanAccessPeer(&can, 1, 0) || !can) {
		printf("skipped: two GPUs that reach each other are needed, and %d are here%s%s\n", count,
		       *err.message ? ": " : "", err.message);
		return SKIPPED;
	}
	printf("push: the lender sees both GPUs\n");
	push(1, part_of);
	return 0;
}

int main(int argc, char *argv[])
{
	part_of = (argc > 1 ? strtoull(argv[1], NULL, 10) : 64) * MIB;
	if (part_of < 2 * MIB || part_of % (2 * MIB)) {
		fprintf(stderr, "usage: peer_push [MIB], an even number\n");
		return 2;
	}
	int code = run_pair(measure);
	return code ? code : run_pair(measure_blind);
}
