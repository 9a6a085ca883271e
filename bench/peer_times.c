/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what medusa-swap in --gpu-peers is made of, between two GPUs and two processes: taking over memory that another
 * process has exported, and copies from one GPU's to the other's, alone and beside copies from the host:
 * peer_times [MIB_OF_THE_LARGEST_ALLOCATION [MIB_TO_COPY]]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "driver/cuda_driver.h"
#include "swap/carry_wire.h"

#define MIB ((uint64_t)1 << 20)
#define MANY 64u /* allocations of one size, at most */
#define STREAMS 4u
#define TOGETHER 8 /* parts to which one call gives access, as in the carrier (tools/carrier_mapper.h) */
#define HOST_BYTES (256 * MIB)
#define SKIPPED 77

/* What the owner is asked for, in messages of the carrier: link is a device. */
enum { GIVE = MD_CARRY_PART, FREE = MD_CARRY_END, HOST_BEGIN = MD_CARRY_BEGIN, HOST_END = MD_CARRY_READY };

static int peer = -1; /* the connection to the other process */

static void need(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "peer_times: %s: %s\n", what, md_cuda_error_name(result));
	exit(1);
}

static void send_to_peer(uint32_t kind, uint32_t device, uint64_t bytes, int fd)
{
	struct md_carry_message message = {.kind = kind, .link = device, .bytes = bytes};
	struct md_error err = {0};
	if (md_carry_wire_send(peer, &message, fd, &err) == MD_OK)
		return;
	fprintf(stderr, "peer_times: %s\n", err.message);
	exit(1);
}

/* False: nothing has come, and it does not wait. */
static bool hear(struct md_carry_message *message, int *fd, bool waits)
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

static CUmemAllocationProp prop_of(int device)
{
	return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				     .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

/* ---- the process that owns the memory: a lender on device 1 and an engine on device 0 in one ---- */

static CUcontext contexts[2];

static void open_device(int device)
{
	if (!contexts[device])
		need(md_cuda.cuDevicePrimaryCtxRetain(&contexts[device], device), "cuDevicePrimaryCtxRetain");
	need(md_cuda.cuCtxSetCurrent(contexts[device]), "cuCtxSetCurrent");
}

static CUmemGenericAllocationHandle given[2 * MANY + 8];
static size_t given_count;

static void give(const struct md_carry_message *message)
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

static void free_given(void)
{
	while (given_count)
		need(md_cuda.cuMemRelease(given[--given_count]), "cuMemRelease");
	send_to_peer(FREE, 0, 0, -1);
}

/* Copies from the host to device 0 until it is told to end, 32 MiB at a time on four streams; says how fast. */
static void copy_from_host(void)
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

static int own(void)
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

static void get_parts(struct part *parts, unsigned count, int device, uint64_t bytes)
{
	struct md_carry_message message;
	for (unsigned i = 0; i < count; i++) {
		send_to_peer(GIVE, (uint32_t)device, bytes, -1);
		hear(&message, &parts[i].fd, true);
		parts[i].bytes = bytes;
	}
}

static void end_parts(void)
{
	struct md_carry_message message;
	int none;
	send_to_peer(FREE, 0, 0, -1);
	hear(&message, &none, true);
}

static void add(uint64_t *time, uint64_t *began)
{
	uint64_t now = md_clock_ns();
	*time += now - *began;
	*began = now;
}

/* For access by the device of the current context: one behind the other in one range, with access by one call. */
static void take_together(struct part *parts, unsigned count, int reader, bool writes, struct times *times)
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

static void take(struct part *part, int reader, bool writes, struct times *times)
{
	take_together(part, 1, reader, writes, times);
}

/* The first part of those that were taken together comes last. */
static void put_back(struct part *part, struct times *times)
{
	uint64_t began = md_clock_ns();
	need(md_cuda.cuMemUnmap(part->address, part->bytes), "cuMemUnmap");
	if (part->reserved)
		need(md_cuda.cuMemAddressFree(part->address, part->reserved), "cuMemAddressFree");
	need(md_cuda.cuMemRelease(part->handle), "cuMemRelease");
	add(&times->unmap, &began);
}

struct taker {
	pthread_t thread;
	struct part *parts;
	unsigned count, together;
	int reader;
	bool writes;
	struct times times;
};

static void *take_some(void *argument)
{
	struct taker *taker = argument;
	need(md_cuda.cuCtxSetCurrent(contexts[taker->reader]), "cuCtxSetCurrent");
	for (unsigned i = 0; i < taker->count; i += taker->together)
		take_together(&taker->parts[i], taker->count - i < taker->together ? taker->count - i : taker->together,
			      taker->reader, taker->writes, &taker->times);
	return NULL;
}

/* Copies that are under way while memory is taken over; NULL: none. */
struct beside {
	CUstream stream;
	struct part *from, *to;
};

static void copy_beside(const struct beside *beside, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		need(md_cuda.cuMemcpyDtoDAsync_v2(beside->to->address, beside->from->address, beside->from->bytes,
						  beside->stream),
		     "cuMemcpyDtoDAsync");
}

static void take_over(uint64_t bytes, unsigned count, int device, int reader, unsigned threads, unsigned together,
		      const struct beside *beside)
{
	static struct part parts[MANY];
	struct taker takers[STREAMS] = {{0}};
	struct times sum = {0};
	bool under_way = false;
	get_parts(parts, count, device, bytes);
	open_device(reader);
	if (beside)
		copy_beside(beside, 64);
	uint64_t began = md_clock_ns();
	for (unsigned i = 0; i < threads; i++) {
		takers[i] = (struct taker){.parts = parts + i * (count / threads),
					   .count = count / threads,
					   .together = together,
					   .reader = reader,
					   .writes = device != 1};
		if (threads > 1 && pthread_create(&takers[i].thread, NULL, take_some, &takers[i]))
			exit(1);
		if (threads == 1)
			take_some(&takers[i]);
	}
	for (unsigned i = 0; i < threads; i++) {
		if (threads > 1)
			pthread_join(takers[i].thread, NULL);
		sum.import += takers[i].times.import;
		sum.map += takers[i].times.map;
		sum.access += takers[i].times.access;
	}
	uint64_t took = md_clock_ns() - began;
	if (beside)
		under_way = md_cuda.cuStreamQuery(beside->stream) == CUDA_ERROR_NOT_READY;
	if (beside)
		need(md_cuda.cuStreamSynchronize(beside->stream), "cuStreamSynchronize");
	unsigned taken = count / threads * threads;
	for (unsigned i = taken; i--;)
		put_back(&parts[i], &sum);
	printf("take over %4llu MiB of GPU %d by GPU %d, %u threads, %u at once, %s: import %.1f, map %.1f, access "
	       "%.1f, back %.1f us "
	       "each; %u in %.2f ms\n",
	       (unsigned long long)(bytes / MIB), device, reader, threads, together,
	       !beside     ? "idle"
	       : under_way ? "beside copies"
			   : "beside copies that ended before",
	       sum.import / 1e3 / taken, sum.map / 1e3 / taken, sum.access / 1e3 / taken, sum.unmap / 1e3 / taken,
	       taken, took / 1e6);
	fflush(stdout);
	end_parts();
}

/* GB/s of so many bytes in pieces, in turn over streams; issue_us: of a call. */
static double copy_rate(const struct part *from, const struct part *to, uint64_t piece, unsigned streams,
			uint64_t bytes, double *issue_us)
{
	CUstream list[STREAMS];
	uint64_t calls = 0;
	for (unsigned i = 0; i < streams; i++)
		need(md_cuda.cuStreamCreate(&list[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	uint64_t began = md_clock_ns();
	for (uint64_t at = 0; at < bytes; at += piece) {
		uint64_t where = at % (from->bytes - piece + 1) / piece * piece;
		need(md_cuda.cuMemcpyDtoDAsync_v2(to->address + where, from->address + where, piece,
						  list[calls++ % streams]),
		     "cuMemcpyDtoDAsync");
	}
	*issue_us = (double)(md_clock_ns() - began) / 1e3 / (double)calls;
	for (unsigned i = 0; i < streams; i++)
		need(md_cuda.cuStreamSynchronize(list[i]), "cuStreamSynchronize");
	uint64_t took = md_clock_ns() - began;
	for (unsigned i = 0; i < streams; i++)
		need(md_cuda.cuStreamDestroy_v2(list[i]), "cuStreamDestroy");
	return (double)bytes / (double)took;
}

static void copies(int reader, uint64_t large, uint64_t bytes, bool from_host)
{
	static const uint64_t pieces[] = {2, 8, 32, 64};
	static const unsigned streams[] = {1, 2, 4};
	struct part from, to;
	struct times unused = {0};
	struct md_carry_message message;
	int none;
	get_parts(&from, 1, 1, large);
	get_parts(&to, 1, 0, large);
	open_device(reader);
	take(&from, reader, false, &unused);
	take(&to, reader, true, &unused);
	if (from_host) {
		send_to_peer(HOST_BEGIN, 0, 0, -1);
		hear(&message, &none, true);
	}
	for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++)
		for (size_t s = 0; s < sizeof(streams) / sizeof(*streams); s++) {
			double issue_us, rate;
			if (pieces[i] * MIB > large)
				continue;
			rate = copy_rate(&from, &to, pieces[i] * MIB, streams[s], bytes, &issue_us);
			printf("copy GPU 1 to GPU 0 by GPU %d%s, %2llu MiB at a time, %u streams: %.1f GB/s, %.1f us a "
			       "call\n",
			       reader, from_host ? " beside the host's copies" : "", (unsigned long long)pieces[i],
			       streams[s], rate, issue_us);
			fflush(stdout);
		}
	if (from_host) {
		send_to_peer(HOST_END, 0, 0, -1);
		hear(&message, &none, true);
		printf("the host's copies to GPU 0 meanwhile: %.1f GB/s\n", (double)message.bytes / 1e3);
	}
	put_back(&from, &unused);
	put_back(&to, &unused);
	end_parts();
}

static void taking(uint64_t large)
{
	const struct {
		uint64_t bytes;
		unsigned count;
	} sizes[] = {{2 * MIB, MANY}, {64 * MIB, 16}, {large, 2}};
	struct part from, to;
	struct times unused = {0};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int device = 1; device >= 0; device--) {
			uint64_t part = sizes[i].bytes < large ? sizes[i].bytes : large;
			for (unsigned threads = 1; threads <= STREAMS && threads <= sizes[i].count; threads *= 2)
				take_over(part, sizes[i].count, device, 1, threads, 1, NULL);
			if (sizes[i].count >= TOGETHER)
				take_over(part, sizes[i].count, device, 1, 1, TOGETHER, NULL);
		}
	for (size_t i = 0; i < 4; i++)
		for (int device = 1; device >= 0; device--) {
			uint64_t part = sizes[i / 2].bytes < large ? sizes[i / 2].bytes : large;
			get_parts(&from, 1, 1, large);
			get_parts(&to, 1, 0, large);
			open_device(1);
			take(&from, 1, false, &unused);
			take(&to, 1, true, &unused);
			struct beside beside = {.from = &from, .to = &to};
			need(md_cuda.cuStreamCreate(&beside.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
			take_over(part, sizes[i / 2].count, device, 1, 1, i % 2 ? TOGETHER : 1, &beside);
			need(md_cuda.cuStreamDestroy_v2(beside.stream), "cuStreamDestroy");
			put_back(&from, &unused);
			put_back(&to, &unused);
		}
}

static int measure(uint64_t large, uint64_t bytes)
{
	struct md_error err = {0};
	int count = 0, can = 0, back = 0;
	if (md_cuda_load(&err) != MD_OK || md_cuda.cuInit(0) || md_cuda.cuDeviceGetCount(&count) || count < 2) {
		printf("skipped: two GPUs are needed, and %d are here%s%s\n", count, *err.message ? ": " : "",
		       err.message);
		return SKIPPED;
	}
	if (md_cuda.cuDeviceCanAccessPeer(&can, 1, 0) || !can || md_cuda.cuDeviceCanAccessPeer(&back, 0, 1) || !back) {
		printf("skipped: GPU 0 and GPU 1 do not reach each other\n");
		return SKIPPED;
	}
	for (int from_host = 0; from_host < 2; from_host++) {
		copies(1, large, bytes, from_host);
		copies(0, large, bytes, from_host);
	}
	taking(large);
	return 0;
}

int main(int argc, char *argv[])
{
	uint64_t large = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1024) * MIB;
	uint64_t bytes = (argc > 2 ? strtoull(argv[2], NULL, 10) : 8192) * MIB;
	struct md_error err = {0};
	int ends[2];
	if (large < 2 * MIB || large % (2 * MIB) || bytes < large || md_carry_wire_pair(ends, &err) != MD_OK) {
		fprintf(stderr,
			"usage: peer_times [MIB [MIB_TO_COPY]], even numbers, the second one at least the first one\n");
		return 2;
	}
	pid_t owner = fork(); /* before the driver is initialized */
	peer = ends[owner ? 0 : 1];
	close(ends[owner ? 1 : 0]);
	if (owner < 0)
		return 1;
	if (!owner)
		_exit(own());
	int code = measure(large, bytes);
	close(peer);
	waitpid(owner, NULL, 0);
	return code;
}
