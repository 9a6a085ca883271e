/* SPDX-License-Identifier: Apache-2.0 */
/* Engines whose own kernels and copies use memory of their graphs, too. Kernels: tests/images/given_kernels.c. */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "medusa/medusa.h"
#include "tests/subjects/image_file.h"
#include "tests/subjects/subject.h"

/* clang-format off */
/*
 * stdout: what it computed, and what it should have; the same however it came by its graphs. stderr: how it did. Environment:
 *   IMAGE                given_kernels of tests/images
 *   SUBJECT=reads        the graph copies in -> mid and in -> out; a kernel of the engine's copies mid -> own
 *     BY=NAME            how that is launched, or which copy it is: see `ways`
 *     BEFORE=BYTES       it copies from there on, that many bytes before what the graph has
 *   SUBJECT=writes       the graph adds in + mid -> out; a kernel of the engine's copies VALUE (7) to mid before the
 *                        capture and each time, or with VARIES another number each time
 *   SUBJECT=table        the same, but the engine's kernel reads mid, which has held 7 from the start
 *   SUBJECT=scratch      graph and engine copy in -> mid -> out and own, each for itself
 *   SUBJECT=warm         two graphs like that, and the engine does it before each of their captures, and not later
 *   SUBJECT=stale        graph in -> mid -> out; a kernel of the engine's copies in -> own, and the address of mid is in its
 *                        struct, in bytes that it does not read
 *     SCRATCH=all, part  the engine says that only graphs use mid, or the first half of what they use;
 *             late       all, but only after the kernel was launched once more; again: all, before another stream capture;
 *             grows      part, and all after the kernel was launched once more
 *     BY=NAME            the engine copies mid -> own then, one of `ways`
 *   SUBJECT=flag         for inputs over 1000 the graph sets mid to 1, which a kernel of the engine's copies to own (BY)
 *   SUBJECT=mask         for such inputs it adds mid to out, to which the engine has copied VALUE (7) before (BY)
 *     START=N            the inputs begin behind that
 *   SUBJECT=many         one graph, and LAUNCHES of a kernel that is given nothing of it, or with GIVEN mid; their time on stderr
 *   BIND=constant, state mid is bound; DECLARE: it is an output of the graph
 */
/* clang-format on */
enum { WORDS = 1024, BYTES = WORDS * 4, ROUNDS = 3 };

static CUstream stream;
static CUcontext context;
static CUfunction copy, add, packed, rare;
static CUdeviceptr in, mid, out, own, seven;

static const char *setting(const char *name, const char *otherwise)
{
	const char *value = getenv(name);
	return value && *value ? value : otherwise;
}

static bool is(const char *name, const char *value)
{
	return !strcmp(setting(name, ""), value);
}

/* ---- memory ---- */

static CUdeviceptr take(const char *name, enum medusa_role role)
{
	CUdeviceptr address;
	TRY(cuMemAlloc_v2, &address, 2 * (size_t)BYTES);
	TRY(cuMemsetD32_v2, address, 0, 2 * (size_t)WORDS);
	if (name && medusa_bind(name, address, 2 * (size_t)BYTES, role) != MEDUSA_OK)
		fprintf(stderr, "%s is not bound: %s\n", name, medusa_reason());
	return address;
}

/* mid lies in the second half of its allocation if what is before it counts. */
static void take_all(void)
{
	const char *role = setting("BIND", "");
	in = take("in", MEDUSA_BIND_INPUT);
	out = take("out", MEDUSA_BIND_OUTPUT);
	mid = take(*role ? "mid" : NULL, is("BIND", "constant") ? MEDUSA_BIND_CONSTANT : MEDUSA_BIND_STATE);
	mid += *setting("BEFORE", "") ? BYTES : 0;
	own = take(NULL, 0);
	seven = take(NULL, 0);
	TRY(cuMemsetD32_v2, seven, (unsigned)atoi(setting("VALUE", "7")), WORDS);
	TRY(cuCtxSynchronize);
}

static unsigned first_word(CUdeviceptr address)
{
	unsigned value;
	TRY(cuMemcpyDtoH_v2, &value, address, sizeof(value));
	return value;
}

static void set(CUdeviceptr address, unsigned value)
{
	TRY(cuMemsetD32_v2, address, value, WORDS);
	TRY(cuCtxSynchronize);
}

/* ---- what the engine does by itself ---- */

static void launch_copy(CUdeviceptr to, CUdeviceptr from)
{
	int32_t n = WORDS;
	void *params[] = {&to, &from, &n};
	TRY(cuLaunchKernel, copy, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void launch_ex(CUdeviceptr to, CUdeviceptr from)
{
	CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, NULL, 0};
	int32_t n = WORDS;
	void *params[] = {&to, &from, &n};
	TRY(cuLaunchKernelEx, &config, copy, params, NULL);
}

static void launch_cooperative(CUdeviceptr to, CUdeviceptr from)
{
	int32_t n = WORDS;
	void *params[] = {&to, &from, &n};
	TRY(cuLaunchCooperativeKernel, copy, 1, 1, 1, 1, 1, 1, 0, stream, params);
}

static void launch_extra(CUdeviceptr to, CUdeviceptr from)
{
	struct {
		CUdeviceptr out, in;
		int32_t n;
	} all = {to, from, WORDS};
	size_t size = sizeof(all);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &all, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
	TRY(cuLaunchKernel, copy, 1, 1, 1, 1, 1, 1, 0, stream, NULL, extra);
}

struct packed {
	int32_t n, odd, more; /* more is not read, nor are the four bytes behind it */
	CUdeviceptr out, in;
};

static void launch_packed(struct packed *all)
{
	int32_t first = 0;
	void *params[] = {&first, all};
	TRY(cuLaunchKernel, packed, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void launch_struct(CUdeviceptr to, CUdeviceptr from)
{
	struct packed all = {WORDS, 0, 0, to, from};
	launch_packed(&all);
}

static void launch_stale(CUdeviceptr to, CUdeviceptr from)
{
	struct packed all = {WORDS, 0, 0, to, from};
	memcpy((char *)&all + offsetof(struct packed, more), &mid, sizeof(mid));
	launch_packed(&all);
}

/* ---- or copies and sets, four words of it ---- */

static void copy_2d(CUdeviceptr to, CUdeviceptr from)
{
	const CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				    .srcDevice = from,
				    .srcPitch = 64,
				    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				    .dstDevice = to,
				    .dstPitch = 64,
				    .WidthInBytes = 4,
				    .Height = 4};
	if (is("BY", "2d"))
		TRY(cuMemcpy2D_v2, &rows);
	else
		TRY(cuMemcpy2DUnaligned_v2, &rows);
}

static void copy_3d(CUdeviceptr to, CUdeviceptr from)
{
	const CUDA_MEMCPY3D slices = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				      .srcDevice = from,
				      .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				      .dstDevice = to,
				      .WidthInBytes = 4,
				      .Height = 2,
				      .Depth = 2};
	TRY(cuMemcpy3D_v2, &slices);
}

static void copy_peer(CUdeviceptr to, CUdeviceptr from)
{
	if (is("BY", "peer"))
		TRY(cuMemcpyPeer, to, context, from, context, 16);
	else
		TRY(cuMemcpyPeerAsync, to, context, from, context, 16, stream);
}

static void copy_3d_peer(CUdeviceptr to, CUdeviceptr from)
{
	const CUDA_MEMCPY3D_PEER slices = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
					   .srcDevice = from,
					   .srcContext = context,
					   .dstMemoryType = CU_MEMORYTYPE_DEVICE,
					   .dstDevice = to,
					   .dstContext = context,
					   .WidthInBytes = 16,
					   .Height = 1,
					   .Depth = 1};
	if (is("BY", "3d_peer"))
		TRY(cuMemcpy3DPeer, &slices);
	else
		TRY(cuMemcpy3DPeerAsync, &slices, stream);
}

static void copy_batch(CUdeviceptr to, CUdeviceptr from)
{
	CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	size_t size = 16, index = 0;
	TRY(cuMemcpyBatchAsync_v2, &to, &from, &size, 1, &attributes, &index, 1, stream);
}

static void copy_3d_batch(CUdeviceptr to, CUdeviceptr from)
{
	CUDA_MEMCPY3D_BATCH_OP op = {.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = from},
				     .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = to},
				     .extent = {16, 1, 1},
				     .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	TRY(cuMemcpy3DBatchAsync_v2, 1, &op, 0, stream);
}

/* The first word gets the number, whatever the size of what is set. */
static void set_2d(CUdeviceptr to, CUdeviceptr from)
{
	unsigned value = first_word(from);
	if (is("BY", "set_2d8"))
		TRY(cuMemsetD2D8_v2, to, 64, (unsigned char)value, 1, 2);
	else if (is("BY", "set_2d16"))
		TRY(cuMemsetD2D16_v2, to, 64, (unsigned short)value, 1, 2);
	else if (is("BY", "set_2d16_async"))
		TRY(cuMemsetD2D16Async, to, 64, (unsigned short)value, 1, 2, stream);
	else
		TRY(cuMemsetD2D32_v2, to, 64, value, 1, 2);
}

static void write_word(CUdeviceptr to, CUdeviceptr from)
{
	unsigned value = first_word(from);
	CUstreamBatchMemOpParams op = {
	    .writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = to, .value = value}};
	if (is("BY", "word"))
		TRY(cuStreamWriteValue32_v2, stream, to, value, 0);
	else
		TRY(cuStreamBatchMemOp_v2, stream, 1, &op, 0);
}

static const struct {
	const char *name;
	void (*run)(CUdeviceptr to, CUdeviceptr from);
} ways[] = {{"launch", launch_copy},
	    {"ex", launch_ex},
	    {"cooperative", launch_cooperative},
	    {"extra", launch_extra},
	    {"struct", launch_struct},
	    {"2d", copy_2d},
	    {"2d_unaligned", copy_2d},
	    {"3d", copy_3d},
	    {"peer", copy_peer},
	    {"peer_async", copy_peer},
	    {"3d_peer", copy_3d_peer},
	    {"3d_peer_async", copy_3d_peer},
	    {"batch", copy_batch},
	    {"3d_batch", copy_3d_batch},
	    {"set_2d8", set_2d},
	    {"set_2d16", set_2d},
	    {"set_2d16_async", set_2d},
	    {"set_2d32", set_2d},
	    {"word", write_word},
	    {"words", write_word}};

static void copies_by(const char *name, CUdeviceptr to, CUdeviceptr from)
{
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
		if (!strcmp(ways[i].name, name))
			ways[i].run(to, from);
	TRY(cuStreamSynchronize, stream);
	TRY(cuCtxSynchronize);
}

static void engine_copies(CUdeviceptr to, CUdeviceptr from)
{
	copies_by(setting("BY", "launch"), to, from);
}

/* ---- what its graphs do ---- */

static void copy_both(void)
{
	TRY(cuMemcpyDtoDAsync_v2, mid, in, BYTES, stream);
	TRY(cuMemcpyDtoDAsync_v2, out, in, BYTES, stream);
}

static void copy_through(void)
{
	TRY(cuMemcpyDtoDAsync_v2, mid, in, BYTES, stream);
	TRY(cuMemcpyDtoDAsync_v2, out, mid, BYTES, stream);
}

static void add_mid(void)
{
	int32_t n = WORDS;
	void *params[] = {&out, &in, &mid, &n};
	TRY(cuLaunchKernel, add, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void use_rarely(void)
{
	int32_t n = WORDS;
	void *params[] = {&out, &in, &mid, &n};
	TRY(cuLaunchKernel, rare, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static CUgraphExec get(const char *label, void (*forward)(void))
{
	CUgraphExec exec;
	if (medusa_graph_get(label, 1, UINT64_MAX, (void **)&exec) == MEDUSA_OK) {
		fprintf(stderr, "%s restored\n", label);
		size_t bytes;
		if (*setting("DECLARE", "") && medusa_graph_output_get(label, 1, 0, &mid, &bytes) != MEDUSA_OK)
			fprintf(stderr, "no output: %s\n", medusa_reason());
		return exec;
	}
	fprintf(stderr, "%s live %s\n", label, medusa_reason());
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	forward();
	exec = end_capture(stream);
	if (*setting("DECLARE", ""))
		medusa_graph_output(exec, 0, mid, BYTES);
	medusa_graph_label(exec, label, 1);
	return exec;
}

static void launch(CUgraphExec exec)
{
	TRY(cuGraphLaunch, exec, stream);
	TRY(cuStreamSynchronize, stream);
}

/* ---- engines ---- */

static void reads(void)
{
	CUgraphExec exec = get("reads", copy_both);
	unsigned before = (unsigned)atoi(setting("BEFORE", "0"));
	for (unsigned value = 100; value <= 100 * ROUNDS; value += 100) {
		set(in, value);
		launch(exec);
		engine_copies(own, mid - before);
		printf("out %u, wanted %u\n", first_word(own + before), value);
		printf("out %u, wanted %u\n", first_word(out), value);
	}
}

static void writes(void)
{
	engine_copies(mid, seven);
	CUgraphExec exec = get("writes", add_mid);
	for (unsigned round = 1; round <= ROUNDS; round++) {
		unsigned seen = (unsigned)atoi(setting("VALUE", "7")) + (*setting("VARIES", "") ? round : 0);
		set(seven, seen);
		set(in, 100 * round);
		engine_copies(mid, seven);
		launch(exec);
		printf("out %u, wanted %u\n", first_word(out), 100 * round + seen);
	}
}

static void table(void)
{
	set(mid, 7);
	CUgraphExec exec = get("table", add_mid);
	for (unsigned value = 100; value <= 100 * ROUNDS; value += 100) {
		set(in, value);
		launch(exec);
		engine_copies(own, mid);
		printf("out %u, wanted 7\n", first_word(own));
		printf("out %u, wanted %u\n", first_word(out), value + 7);
	}
}

static void scratch(void)
{
	CUgraphExec exec = get("scratch", copy_through);
	for (unsigned value = 100; value <= 100 * ROUNDS; value += 100) {
		set(in, value);
		launch(exec);
		engine_copies(mid, seven);
		engine_copies(own, mid);
		printf("out %u, wanted 7\n", first_word(own));
		printf("out %u, wanted %u\n", first_word(out), value);
	}
}

static void serve_rarely(const char *label, bool mask)
{
	unsigned start = (unsigned)atoi(setting("START", "0")), seen = mask ? (unsigned)atoi(setting("VALUE", "7")) : 0;
	CUgraphExec exec = get(label, use_rarely);
	for (unsigned value = start + 100; value <= start + 100 * ROUNDS; value += 100) {
		set(in, value);
		if (mask)
			engine_copies(mid, seven);
		launch(exec);
		if (!mask)
			engine_copies(own, mid);
		printf("out %u, wanted %u\n", first_word(own), !mask && value > 1000);
		printf("out %u, wanted %u\n", first_word(out), value + (value > 1000 ? seen : 0));
		seen = mask ? seen : 1;
	}
}

static void flag(void)
{
	serve_rarely("flag", false);
}

static void mask(void)
{
	serve_rarely("mask", true);
}

static void capture_nothing(void)
{
	CUgraph graph;
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	TRY(cuStreamEndCapture, stream, &graph);
	TRY(cuGraphDestroy, graph);
}

static void state_scratch(void)
{
	if (*setting("SCRATCH", "") &&
	    medusa_graph_scratch(mid, is("SCRATCH", "part") || is("SCRATCH", "grows") ? BYTES / 2 : BYTES))
		fprintf(stderr, "not said: %s\n", medusa_reason());
	if (is("SCRATCH", "again"))
		capture_nothing();
	if (is("SCRATCH", "grows")) {
		launch_stale(own, in);
		medusa_graph_scratch(mid, BYTES);
	}
}

static void stale(void)
{
	CUgraphExec exec = get("stale", copy_through);
	CUdeviceptr result = *setting("DECLARE", "") ? mid : own; /* of a restored graph, that is elsewhere */
	launch(exec);
	if (is("SCRATCH", "late"))
		launch_stale(own, in);
	state_scratch();
	for (unsigned value = 100; value <= 100 * ROUNDS; value += 100) {
		set(in, value);
		launch(exec);
		launch_stale(own, in);
		copies_by(setting("BY", ""), own, mid);
		TRY(cuStreamSynchronize, stream);
		printf("out %u, wanted %u\n", first_word(result), value);
		printf("out %u, wanted %u\n", first_word(out), value);
	}
}

static void warm(void)
{
	static const char *const labels[] = {"first", "second"};
	CUgraphExec execs[2];
	for (int i = 0; i < 2; i++) {
		if (medusa_mode() != MEDUSA_MODE_RESTORE) {
			engine_copies(mid, in);
			engine_copies(own, mid);
		}
		execs[i] = get(labels[i], copy_through);
	}
	for (unsigned value = 100; value <= 100 * ROUNDS; value += 100) {
		set(in, value);
		launch(execs[value / 100 % 2]);
		printf("out %u, wanted %u\n", first_word(out), value);
	}
}

/* Of this thread alone, as the device's are others. */
static double cpu_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

static void many(void)
{
	CUgraphExec exec = get("many", copy_through);
	CUdeviceptr from = *setting("GIVEN", "") ? mid : seven;
	int count = atoi(setting("LAUNCHES", "1000"));
	int32_t n = 1;
	void *params[] = {&own, &from, &n};
	set(in, 5);
	launch(exec);
	double start = cpu_ns();
	for (int i = 0; i < count; i++)
		TRY(cuLaunchKernel, copy, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
	fprintf(stderr, "%d launches: %.1f ns each\n", count, (cpu_ns() - start) / count);
	TRY(cuStreamSynchronize, stream);
	printf("out %u, wanted 5\n", first_word(out));
}

static const struct {
	const char *name;
	void (*run)(void);
} subjects[] = {{"reads", reads}, {"writes", writes}, {"table", table}, {"scratch", scratch}, {"stale", stale},
		{"warm", warm},   {"flag", flag},     {"mask", mask},   {"many", many}};

int main(void)
{
	CUmodule module;
	load_driver();
	context = open_context();
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	TRY(cuModuleLoadData, &module, read_file(setting("IMAGE", "")));
	TRY(cuModuleGetFunction, &copy, module, "given_copy");
	TRY(cuModuleGetFunction, &add, module, "given_add");
	TRY(cuModuleGetFunction, &packed, module, "given_packed");
	TRY(cuModuleGetFunction, &rare, module, "given_rare");
	take_all();
	for (size_t i = 0; i < sizeof(subjects) / sizeof(*subjects); i++)
		if (!strcmp(subjects[i].name, setting("SUBJECT", "reads")))
			subjects[i].run();
	medusa_mark("ready");
	return 0;
}
