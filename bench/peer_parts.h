/* SPDX-License-Identifier: Apache-2.0 */
/* A process that owns memory on two GPUs, and one that takes it over and measures that; for peer_times.c and peer_push.c. */
#ifndef MD_BENCH_PEER_PARTS_H
#define MD_BENCH_PEER_PARTS_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "driver/cuda_driver.h"
#include "swap/carry_wire.h"

#define MIB ((uint64_t)1 << 20)
#define STREAMS 4u
#define HOST_BYTES (256 * MIB)
#define SKIPPED 77
#define GIVEN_MOST 136

/* What the owner is asked for, in messages of the carrier: link is a device. */
enum { GIVE = MD_CARRY_PART, FREE = MD_CARRY_END, HOST_BEGIN = MD_CARRY_BEGIN, HOST_END = MD_CARRY_READY };

static int peer = -1; /* the connection to the other process */

static inline void need(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "peer_times: %s: %s\n", what, md_cuda_error_name(result));
	exit(1);
}

static inline void send_to_peer(uint32_t kind, uint32_t device, uint64_t bytes, int fd)
{
	struct md_carry_message message = {.kind = kind, .link = device, .bytes = bytes};
	struct md_error err = {0};
	if (md_carry_wire_send(peer, &message, fd, &err) == MD_OK)
		return;
	fprintf(stderr, "peer_times: %s\n", err.message);
	exit(1);
}

/* False: nothing has come, and it does not wait. */
static inline bool hear(struct md_carry_message *message, int *fd, bool waits)
{
	struct md_error err = {0};
	struct timespec pause = {.tv_nsec = 20000};
	bool there = false;
	while (!there) {
		if (md_carry_wire_receive(peer, message, fd, &there, &err) != MD_OK)
			exit(1);
		if (!waits)
			break;
		if (!there)
			nanosleep(&pause, NULL);
	}
	return there;
}

static inline CUmemAllocationProp prop_of(int device)
{
	return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				     .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

/* ---- the process that owns the memory: a lender on device 1 and an engine on device 0 in one ---- */

static CUcontext contexts[2];

static inline void open_device(int device)
{
	if (!contexts[device])
		need(md_cuda.cuDevicePrimaryCtxRetain(&contexts[device], device), "cuDevicePrimaryCtxRetain");
	need(md_cuda.cuCtxSetCurrent(contexts[device]), "cuCtxSetCurrent");
}

static CUmemGenericAllocationHandle given[GIVEN_MOST];
static size_t given_count;

static inline void give(const struct md_carry_message *message)
{
	CUmemAllocationProp prop = prop_of((int)message->link);
	int fd = -1;
	if (given_count == sizeof(given) / sizeof(*given))
		exit(1);
	open_device((int)message->link);
	need(md_cuda.cuMemCreate(&given[given_count], message->bytes, &prop, 0), "cuMemCreate");
	need(md_cuda.cuMemExportToShareableHandle(&fd, given[given_count++], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
						  0),
	     "cuMemExportToShareableHandle");
	send_to_peer(GIVE, message->link, message->bytes, fd);
	close(fd);
}

static inline void free_given(void)
{
	while (given_count)
		need(md_cuda.cuMemRelease(given[--given_count]), "cuMemRelease");
	send_to_peer(FREE, 0, 0, -1);
}

/* Copies from the host to device 0 until it is told to end, 32 MiB at a time on four streams; says how fast. */
static inline void copy_from_host(void)
{
	CUstream streams[STREAMS];
	CUdeviceptr to;
	void *from;
	struct md_carry_message message;
	int none;
	uint64_t began, bytes = 0, piece = 32 * MIB;
	open_device(0);
	need(md_cuda.cuMemHostAlloc(&from, HOST_BYTES, 0), "cuMemHostAlloc");
	need(md_cuda.cuMemAlloc_v2(&to, HOST_BYTES), "cuMemAlloc");
	for (unsigned i = 0; i < STREAMS; i++)
		need(md_cuda.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	send_to_peer(HOST_BEGIN, 0, 0, -1);
	began = md_clock_ns();
	do {
		for (unsigned i = 0; i < STREAMS; i++) {
			need(md_cuda.cuStreamSynchronize(streams[i]), "cuStreamSynchronize");
			need(md_cuda.cuMemcpyHtoDAsync_v2(to + i * piece, (char *)from + i * piece, piece, streams[i]),
			     "cuMemcpyHtoDAsync");
			bytes += piece;
		}
	} while (!hear(&message, &none, false));
	for (unsigned i = 0; i < STREAMS; i++) {
		need(md_cuda.cuStreamSynchronize(streams[i]), "cuStreamSynchronize");
		need(md_cuda.cuStreamDestroy_v2(streams[i]), "cuStreamDestroy");
	}
	send_to_peer(HOST_END, 0, bytes * 1000 / (md_clock_ns() - began), -1); /* MB/s */
	need(md_cuda.cuMemFree_v2(to), "cuMemFree");
	need(md_cuda.cuMemFreeHost(from), "cuMemFreeHost");
}

static inline int own(void)
{
	struct md_carry_message message;
	struct md_error err = {0};
	int fd;
	if (md_cuda_load(&err) != MD_OK || md_cuda.cuInit(0))
		return 1;
	for (;;) {
		hear(&message, &fd, true);
		if (message.kind == GIVE)
			give(&message);
		else if (message.kind == FREE)
			free_given();
		else
			copy_from_host();
	}
}

/* ---- the process that takes it over ---- */

struct part {
	int fd;
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	uint64_t bytes, reserved; /* reserved: from the address on; 0: with a part before it */
};

struct times {
	uint64_t import, map, access, unmap;
};

static inline void get_parts(struct part *parts, unsigned count, int device, uint64_t bytes)
{
	struct md_carry_message message;
	for (unsigned i = 0; i < count; i++) {
		send_to_peer(GIVE, (uint32_t)device, bytes, -1);
		hear(&message, &parts[i].fd, true);
		parts[i].bytes = bytes;
	}
}

static inline void end_parts(void)
{
	struct md_carry_message message;
	int none;
	send_to_peer(FREE, 0, 0, -1);
	hear(&message, &none, true);
}

static inline void add(uint64_t *time, uint64_t *began)
{
	uint64_t now = md_clock_ns();
	*time += now - *began;
	*began = now;
}

/* For access by the device of the current context: one behind the other in one range, with access by one call. */
static inline void take_together(struct part *parts, unsigned count, int reader, bool writes, struct times *times)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, reader},
				  writes ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ};
	uint64_t began = md_clock_ns(), bytes = 0;
	for (unsigned i = 0; i < count; i++) {
		need(md_cuda.cuMemImportFromShareableHandle(&parts[i].handle, (void *)(intptr_t)parts[i].fd,
							    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
		     "cuMemImportFromShareableHandle");
		bytes += parts[i].bytes;
	}
	add(&times->import, &began);
	need(md_cuda.cuMemAddressReserve(&parts[0].address, bytes, 0, 0, 0), "cuMemAddressReserve");
	for (unsigned i = 0; i < count; i++) {
		parts[i].reserved = i ? 0 : bytes;
		parts[i].address = i ? parts[i - 1].address + parts[i - 1].bytes : parts[0].address;
		need(md_cuda.cuMemMap(parts[i].address, parts[i].bytes, 0, parts[i].handle, 0), "cuMemMap");
	}
	add(&times->map, &began);
	need(md_cuda.cuMemSetAccess(parts[0].address, bytes, &access, 1), "cuMemSetAccess");
	add(&times->access, &began);
	for (unsigned i = 0; i < count; i++)
		close(parts[i].fd);
}

static inline void take(struct part *part, int reader, bool writes, struct times *times)
{
	take_together(part, 1, reader, writes, times);
}

/* The first part of those that were taken together comes last. */
static inline void put_back(struct part *part, struct times *times)
{
	uint64_t began = md_clock_ns();
	need(md_cuda.cuMemUnmap(part->address, part->bytes), "cuMemUnmap");
	if (part->reserved)
		need(md_cuda.cuMemAddressFree(part->address, part->reserved), "cuMemAddressFree");
	need(md_cuda.cuMemRelease(part->handle), "cuMemRelease");
	add(&times->unmap, &began);
}

/* The owner, and the process that measures: neither has initialized the driver. Returns the exit code of the latter. */
static inline int run_pair(int (*measures_it)(void))
{
	struct md_error err = {0};
	int ends[2];
	if (md_carry_wire_pair(ends, &err) != MD_OK)
		return 1;
	pid_t owner = fork(), measures = owner > 0 ? fork() : -1;
	if (!owner || !measures) {
		peer = ends[owner ? 0 : 1];
		close(ends[owner ? 1 : 0]);
		int code = !owner ? own() : measures_it();
		fflush(stdout);
		_exit(code);
	}
	close(ends[0]);
	close(ends[1]);
	int status = 1;
	if (owner > 0)
		waitpid(measures, &status, 0);
	if (owner > 0)
		waitpid(owner, NULL, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

#endif
