/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what medusa-swap in --gpu-peers is made of, between two GPUs and two processes: taking over memory that another
 * process has exported, and copies from one GPU's to the other's, alone and beside copies from the host (peer_push.c has a lender's):
 * peer_times [MIB_OF_THE_LARGEST_ALLOCATION [MIB_TO_COPY]]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "driver/cuda_driver.h"
#include "swap/carry_wire.h"

#include "bench/peer_parts.h"

#define MANY 64u   /* allocations of one size, at most */
#define TOGETHER 8 /* parts to which one call gives access, as in the carrier (tools/carrier_mapper.h) */

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

static uint64_t large_bytes, copied_bytes;

static int measure(void)
{
	uint64_t large = large_bytes, bytes = copied_bytes;
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
	if (large < 2 * MIB || large % (2 * MIB) || bytes < large) {
		fprintf(stderr,
			"usage: peer_times [MIB [MIB_TO_COPY]], even numbers, the second one at least the first one\n");
		return 2;
	}
	large_bytes = large;
	copied_bytes = bytes;
	return run_pair(measure);
}
