/* SPDX-License-Identifier: Apache-2.0 */
/* An engine whose warm-up leaves things behind in memory that nobody binds: copies of its weights, and what it always
 * has there. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "medusa/medusa.h"
#include "tests/subjects/subject.h"

/*
 * Its graphs copy to the output: "packed" what warm-up made of the weights, "table" what it always makes, "plain" the
 * weights themselves. W and E are the values of its two constants. Other variables, each set or not:
 * BINDS_NOTHING; LOADS_LATE: the weights are still on their way when it asks for graphs; CAPTURES: and a stream capture
 * is in progress; FREES: a third constant, when warm-up is over; CHANGES: the second constant, when it has replayed;
 * FILLS: warm-up writes the weights, which are 0 until then. FILLS_LATE: the
 * engine writes the weights once more, between its graphs. MAPS_LATE: a third constant has memory from warm-up on.
 */
enum { BYTES = 1 << 20, WORDS = BYTES / 4, GRANULE = 2 << 20 };

static CUdeviceptr weights, embed, freed, mapped, out, packed, table;
static CUstream stream, side;

static unsigned value_of(const char *name)
{
	const char *text = getenv(name);
	return text ? (unsigned)atoi(text) : 1;
}

static void bind(const char *name, CUdeviceptr address, enum medusa_role role)
{
	if (!getenv("BINDS_NOTHING"))
		medusa_bind(name, address, BYTES, role);
}

static CUdeviceptr device(unsigned value)
{
	CUdeviceptr memory;
	TRY(cuMemAlloc_v2, &memory, BYTES);
	TRY(cuMemsetD32_v2, memory, value, WORDS);
	TRY(cuCtxSynchronize); /* the streams do not wait for it */
	return memory;
}

/* From page-locked memory, so that the calls return at once; behind others, for which a slow link takes long. */
static void load_late(void)
{
	uint32_t *words, *others;
	TRY(cuMemHostAlloc, (void **)&words, BYTES, 0);
	TRY(cuMemHostAlloc, (void **)&others, BYTES, 0);
	memset(others, 0, BYTES);
	for (int i = 0; i < WORDS; i++)
		words[i] = value_of("W");
	for (int i = 0; i < 8; i++)
		TRY(cuMemcpyHtoDAsync_v2, weights, others, BYTES, side);
	TRY(cuMemcpyHtoDAsync_v2, weights, words, BYTES, side);
}

static void set_up(void)
{
	weights = device(getenv("LOADS_LATE") || getenv("FILLS") ? 0 : value_of("W"));
	embed = device(value_of("E"));
	out = device(0);
	if (getenv("FREES"))
		freed = device(5);
	if (getenv("LOADS_LATE"))
		load_late();
	bind("weights", weights, MEDUSA_BIND_CONSTANT);
	bind("embed", embed, MEDUSA_BIND_CONSTANT);
	bind("out", out, MEDUSA_BIND_OUTPUT);
	if (freed)
		bind("freed", freed, MEDUSA_BIND_CONSTANT);
	if (getenv("MAPS_LATE")) {
		TRY(cuMemAddressReserve, &mapped, GRANULE, 0, 0, 0);
		bind("mapped", mapped, MEDUSA_BIND_CONSTANT);
	}
}

static void map(CUdeviceptr address)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	TRY(cuMemCreate, &handle, GRANULE, &prop, 0);
	TRY(cuMemMap, address, GRANULE, 0, handle, 0);
	TRY(cuMemSetAccess, address, GRANULE, &access, 1);
	TRY(cuMemsetD32_v2, address, 6, WORDS);
}

static void warm_up(void)
{
	if (packed)
		return;
	TRY(cuStreamSynchronize, side);
	if (mapped)
		map(mapped);
	if (getenv("FILLS"))
		TRY(cuMemsetD32_v2, weights, value_of("W"), WORDS);
	packed = device(0);
	table = device(77);
	TRY(cuMemcpyDtoDAsync_v2, packed, weights, BYTES, stream);
	TRY(cuCtxSynchronize);
	if (freed)
		TRY(cuMemFree_v2, freed);
}

static CUgraphExec live(const char *name)
{
	CUdeviceptr from;
	CUgraphExec exec;
	warm_up();
	from = !strcmp(name, "packed") ? packed : !strcmp(name, "table") ? table : weights;
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	TRY(cuMemcpyDtoDAsync_v2, out, from, BYTES, stream);
	exec = end_capture(stream);
	medusa_graph_label(exec, name, 1);
	return exec;
}

static void replay(const char *name, CUgraphExec exec)
{
	uint32_t word = 0;
	TRY(cuMemsetD32_v2, out, 0, WORDS);
	TRY(cuCtxSynchronize);
	TRY(cuGraphLaunch, exec, stream);
	TRY(cuStreamSynchronize, stream);
	TRY(cuMemcpyDtoH_v2, &word, out + BYTES - 4, sizeof(word));
	printf("%s %u\n", name, word);
}

static CUgraphExec get(const char *name)
{
	void *exec = NULL;
	CUgraph unused;
	int result;
	bool captures = getenv("CAPTURES") != NULL;
	if (captures)
		TRY(cuStreamBeginCapture_v2, side, CU_STREAM_CAPTURE_MODE_RELAXED);
	result = medusa_graph_get(name, 1, UINT64_MAX, &exec);
	if (captures)
		TRY(cuStreamEndCapture, side, &unused);
	fprintf(stderr, "%s %s %s\n", name, result == MEDUSA_OK ? "restored" : "live",
		result == MEDUSA_OK ? "" : medusa_reason());
	return result == MEDUSA_OK ? exec : live(name);
}

int main(void)
{
	static const char *const names[] = {"plain", "packed", "table"};
	CUgraphExec execs[3];
	load_driver();
	open_context();
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	TRY(cuStreamCreate, &side, CU_STREAM_NON_BLOCKING);
	set_up();
	for (int i = 0; i < 3; i++) {
		execs[i] = get(names[i]);
		if (i == 1 && getenv("FILLS_LATE"))
			TRY(cuMemsetD32_v2, weights, value_of("W") + 1, WORDS);
	}
	for (int i = 0; i < 3; i++)
		replay(names[i], execs[i]);
	if (getenv("CHANGES"))
		TRY(cuMemsetD32_v2, embed, 9, WORDS);
	medusa_mark("ready");
	struct medusa_stats stats = {.size = sizeof(stats)};
	if (medusa_stats_read(&stats) == MEDUSA_OK)
		fprintf(stderr, "hashed %s\n", stats.constants_ns ? "something" : "nothing");
	medusa_release();
	TRY(cuMemFree_v2, weights);
	return 0;
}
