/* SPDX-License-Identifier: Apache-2.0 */
/* An engine on a caching allocator that, as PyTorch's, decides by sizes and addresses: whoever lies lower is taken. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "medusa/medusa.h"

/*
 * Arguments: IMAGE [seed=N] [bound] [attributes]. seed: which allocations it makes and frees while it loads; the same
 * in every start of one engine. bound: it hands over its tensors by name; otherwise it binds nothing. attributes: it
 * asks the driver about its memory, and says so when the driver does not speak of its segments.
 */
enum { WEIGHTS = 5, TEMPORARIES = 6, GRAPHS = 3, WIDTH = 64, FLOATS = GRAPHS * WIDTH, CHURN = 60, BLOCKS = 1024 };

#define CALL(call)                                                                                                     \
	do {                                                                                                           \
		CUresult result_ = (call);                                                                             \
		if (result_) {                                                                                         \
			fprintf(stderr, "%s: %d\n", #call, (int)result_);                                              \
			exit(5);                                                                                       \
		}                                                                                                      \
	} while (0)

/* ---- the allocator ---- */

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

struct block { /* a part of a segment; size 0: this slot is not used */
	CUdeviceptr address, segment;
	size_t size;
	int free;
};

static struct block blocks[BLOCKS];

static struct block *new_block(CUdeviceptr address, CUdeviceptr segment, size_t size)
{
	for (int i = 0; i < BLOCKS; i++) {
		if (blocks[i].size)
			continue;
		blocks[i] = (struct block){address, segment, size, 1};
		return &blocks[i];
	}
	exit(6);
}

/* Free blocks are kept by (size, address), and the lowest that fits is taken. */
static struct block *lowest_fit(size_t size, int small)
{
	struct block *best = NULL;
	for (int i = 0; i < BLOCKS; i++) {
		struct block *b = &blocks[i];
		if (!b->size || !b->free || b->size < size || (b->size <= 2 * MIB) != small)
			continue;
		if (!best || b->size < best->size || (b->size == best->size && b->address < best->address))
			best = b;
	}
	return best;
}

static CUdeviceptr take(size_t size)
{
	int small = size < MIB;
	size = (size + 511) / 512 * 512;
	struct block *b = lowest_fit(size, small);
	if (!b) {
		CUdeviceptr segment;
		size_t bytes = small ? 2 * MIB : size < 3 * MIB ? 6 * MIB : (size + 2 * MIB - 1) / (2 * MIB) * 2 * MIB;
		CALL(cuMemAlloc(&segment, bytes));
		b = new_block(segment, segment, bytes);
	}
	if (b->size > size)
		new_block(b->address + size, b->segment, b->size - size);
	b->size = size;
	b->free = 0;
	return b->address;
}

static struct block *beside(const struct block *b, int before)
{
	for (int i = 0; i < BLOCKS; i++) {
		struct block *other = &blocks[i];
		if (other->size && other->free && other->segment == b->segment &&
		    (before ? other->address + other->size == b->address : b->address + b->size == other->address))
			return other;
	}
	return NULL;
}

static void give(CUdeviceptr address)
{
	struct block *b = NULL, *other;
	for (int i = 0; i < BLOCKS; i++)
		if (blocks[i].size && blocks[i].address == address && !blocks[i].free)
			b = &blocks[i];
	if (!b)
		exit(7);
	b->free = 1;
	if ((other = beside(b, 1))) {
		other->size += b->size;
		b->size = 0;
		b = other;
	}
	if ((other = beside(b, 0))) {
		b->size += other->size;
		other->size = 0;
	}
}

/* Whole segments go back, the lowest first. */
static void trim(void)
{
	for (;;) {
		struct block *lowest = NULL;
		for (int i = 0; i < BLOCKS; i++) {
			struct block *b = &blocks[i];
			CUdeviceptr base;
			size_t bytes;
			if (!b->size || !b->free || b->address != b->segment)
				continue;
			CALL(cuMemGetAddressRange(&base, &bytes, b->address));
			if (base == b->address && bytes == b->size && (!lowest || b->address < lowest->address))
				lowest = b;
		}
		if (!lowest)
			return;
		CALL(cuMemFree(lowest->address));
		lowest->size = 0;
	}
}

/* ---- the engine ---- */

static CUdeviceptr weights[WEIGHTS], input, output;
static CUfunction scale_add;
static CUstream stream;
static const char *image;
static unsigned long long state;

static unsigned draw(unsigned limit)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(state >> 33) % limit;
}

static size_t draw_size(void)
{
	static const size_t sizes[] = {512, 4 * KIB, 256 * KIB, MIB, 3 * MIB / 2, 4 * MIB, 4 * MIB, 7 * MIB, 9 * MIB};
	return sizes[draw(sizeof(sizes) / sizeof(*sizes))];
}

static void fill(CUdeviceptr to, float first)
{
	float values[FLOATS];
	for (int i = 0; i < FLOATS; i++)
		values[i] = first + (float)(i % 7) / 8;
	CALL(cuMemcpyHtoD(to, values, sizeof(values)));
	CALL(cuCtxSynchronize());
}

static CUdeviceptr tensor(size_t bytes, float first)
{
	CUdeviceptr at = take(bytes);
	fill(at, first);
	return at;
}

/* As loading does: tensors come and go, what stays lies between them, and now and then the cache is emptied. */
static void load(void)
{
	CUdeviceptr held[CHURN];
	int count = 0, loaded = 0;
	for (int i = 0; i < CHURN; i++) {
		size_t size = draw_size();
		if (count && draw(3) == 0) {
			int which = (int)draw((unsigned)count);
			give(held[which]);
			held[which] = held[--count];
		} else {
			held[count] = take(size < 4 * KIB ? 4 * KIB : size);
			fill(held[count++], -1000.0f - (float)i);
		}
		if (draw(12) == 0)
			trim();
		if (i * WEIGHTS / CHURN >= loaded) {
			weights[loaded] = tensor(draw_size() + 4 * KIB, 0.25f + (float)loaded / 8);
			loaded++;
		}
	}
	input = tensor(MIB, 1);
	output = tensor(MIB, 0);
	while (count)
		give(held[--count]);
	trim();
}

static void launch(CUdeviceptr out, CUdeviceptr by, CUdeviceptr in, int n)
{
	float bias = 0.5f;
	void *params[] = {&out, &by, &in, &n, &bias};
	CALL(cuLaunchKernel(scale_add, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void forward(const CUdeviceptr *temporaries, int n)
{
	CUdeviceptr last = input;
	for (int i = 0; i < TEMPORARIES; i++) {
		launch(temporaries[i], weights[i % WEIGHTS], last, n);
		last = temporaries[i];
	}
	launch(output, weights[0], last, n);
}

static CUgraphExec capture(unsigned batch)
{
	CUdeviceptr temporaries[TEMPORARIES];
	CUgraph graph;
	CUgraphExec exec;
	for (int i = 0; i < TEMPORARIES; i++) {
		temporaries[i] = take(draw_size() + 4 * KIB);
		if (draw(2))
			give(take(draw_size()));
	}
	CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	forward(temporaries, (int)batch * WIDTH);
	CALL(cuStreamEndCapture(stream, &graph));
	CALL(cuGraphInstantiate(&exec, graph, 0));
	CALL(cuGraphDestroy(graph));
	if (medusa_graph_label(exec, "step", batch) != MEDUSA_OK)
		fprintf(stderr, "label: %s\n", medusa_reason());
	return exec; /* the temporaries stay taken, as those of a graph's pool do */
}

static void bind(void)
{
	char name[16];
	for (int i = 0; i < WEIGHTS; i++) {
		snprintf(name, sizeof(name), "weight%d", i);
		medusa_bind(name, weights[i], sizeof(float) * FLOATS, MEDUSA_BIND_CONSTANT);
	}
	medusa_bind("input", input, sizeof(float) * FLOATS, MEDUSA_BIND_INPUT);
	medusa_bind("output", output, sizeof(float) * FLOATS, MEDUSA_BIND_OUTPUT);
}

static void replay(CUgraphExec exec, unsigned batch)
{
	float values[FLOATS];
	for (int i = 0; i < 2; i++) {
		fill(input, (float)(i + (int)batch));
		CALL(cuGraphLaunch(exec, stream));
		CALL(cuStreamSynchronize(stream));
		CALL(cuMemcpyDtoH(values, output, sizeof(values)));
		printf("%u %d", batch, i);
		for (unsigned at = 0; at < batch * WIDTH; at += 5)
			printf(" %a", (double)values[at]);
		printf("\n");
	}
}

/* ---- what a driver says of its memory ---- */

static void expect(int good, const char *what)
{
	if (!good)
		printf("wrong: %s\n", what);
}

static void ask(CUcontext context)
{
	CUdeviceptr at, base = 0, start = 0;
	CUcontext in = NULL;
	size_t bytes = 0, size = 0, pitch = 0;
	unsigned type = 0;
	CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
					    CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
	void *data[] = {&start, &size, &type};
	CALL(cuMemAlloc(&at, 5 * MIB + 512));
	CALL(cuMemGetAddressRange(&base, &bytes, at + 4 * MIB + 100));
	expect(base == at && bytes == 5 * MIB + 512, "cuMemGetAddressRange");
	CALL(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at + 5 * MIB));
	expect(start == at, "RANGE_START_ADDR");
	CALL(cuPointerGetAttribute(&in, CU_POINTER_ATTRIBUTE_CONTEXT, at));
	expect(in == context, "CONTEXT");
	start = 0;
	CALL(cuPointerGetAttributes(3, attributes, data, at + MIB));
	expect(start == at && size == 5 * MIB + 512 && type == CU_MEMORYTYPE_DEVICE, "cuPointerGetAttributes");
	CALL(cuMemsetD8(at, 7, 5 * MIB + 512)); /* over more than one mapping, if that is what it is */
	CALL(cuCtxSynchronize());               /* the stream that frees does not wait for the default one */
	CALL(cuMemFreeAsync(at, stream));
	CALL(cuStreamSynchronize(stream));
	expect(cuMemFree(at) != CUDA_SUCCESS, "freed twice");
	CALL(cuMemAllocPitch(&at, &pitch, 700, 33, 4));
	CALL(cuMemGetAddressRange(&base, &bytes, at + pitch));
	expect(base == at && bytes == pitch * 33, "pitched");
	CALL(cuMemFree(at));
	CALL(cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0));
	CALL(cuMemAddressFree(at, 64 * MIB));
	printf("asked\n");
}

static int has(int argc, char **argv, const char *word)
{
	for (int i = 2; i < argc; i++)
		if (!strcmp(argv[i], word))
			return 1;
	return 0;
}

static void start(int argc, char **argv)
{
	CUmodule module;
	image = argv[1];
	for (int i = 2; i < argc; i++)
		if (!strncmp(argv[i], "seed=", 5))
			state = strtoull(argv[i] + 5, NULL, 10) * 0x9e3779b97f4a7c15ull;
	CALL(cuModuleLoad(&module, image));
	CALL(cuModuleGetFunction(&scale_add, module, "scale_add"));
	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	load();
	if (has(argc, argv, "bound"))
		bind();
}

int main(int argc, char **argv)
{
	CUgraphExec execs[GRAPHS + 1];
	CUcontext context;
	if (argc < 2)
		return 2;
	CALL(cuInit(0));
	CALL(cuDevicePrimaryCtxRetain(&context, 0));
	CALL(cuCtxSetCurrent(context));
	start(argc, argv);
	if (has(argc, argv, "attributes"))
		ask(context);
	for (unsigned batch = 1; batch <= GRAPHS; batch++) {
		void *exec = NULL;
		int result = medusa_graph_get("step", batch, UINT64_MAX, &exec);
		fprintf(stderr, "graph %u %s %s\n", batch, result == MEDUSA_OK ? "restored" : "live",
			result == MEDUSA_OK ? "" : medusa_reason());
		execs[batch] = result == MEDUSA_OK ? (CUgraphExec)exec : capture(batch);
	}
	medusa_mark("ready");
	for (unsigned batch = 1; batch <= GRAPHS; batch++)
		replay(execs[batch], batch);
	medusa_release();
	return 0;
}
