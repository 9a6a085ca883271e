/* SPDX-License-Identifier: Apache-2.0 */
/* A small engine for the capture tests: it says on stdout, line by line, what a trace of it must contain. */
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "driver/cuda_driver.h"
#include "format/trace/trace.h"
#include "medusa/medusa.h"
#include "tests/subjects/image_file.h"

/*
 * Arguments: IMAGE [kill] [update] [host] [full] [large] [growing] [scatter] [outputs] [unbound] [gone] [wrong] [many] [far]
 * [beside].
 * kill: SIGKILL after the first graph; update, host: what makes a graph refused; full: the disk is full once memory is
 * allocated. large: 1 MiB of state that the first graph writes idempotently; growing: it counts in it, too; scatter: it
 * writes there by a private index. outputs: what graphs write is private, and declared; unbound: so is all they read;
 * gone: an output's memory is freed before the test; wrong: asks for what must be refused.
 * many: graphs that share a pool of 64 MiB and 16 MiB of state, and nothing else. far: the list of addresses lies at the
 * end of a megabyte of private memory; beside: the graph counts beside the content that it needs.
 */

enum { N = 64, TABLE_BYTES = 64 << 10, TABLE_INDEX = 9000, KV_BYTES = 1 << 20, KV_SLOT = 7, FAR = (1 << 20) - 8 };

#define CALL(entry, ...)                                                                                               \
	do {                                                                                                           \
		CUresult result_ = md_cuda.entry(__VA_ARGS__);                                                         \
		if (result_) {                                                                                         \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #entry, md_cuda_error_name(result_));   \
			exit(9);                                                                                       \
		}                                                                                                      \
	} while (0)

static struct {
	CUdeviceptr in, out, state, table, temp, list, aux, weights;
	CUdeviceptr kv, slot, beside; /* 0 unless asked for */
	bool growing;
	CUlibrary library;
	CUmodule module;
	CUfunction scale, finish, count, scatter;
	CUstream stream, side;
	CUevent fork, join;
} it;

static CUdeviceptr allocate(const char *name, size_t bytes)
{
	CUdeviceptr address;
	CALL(cuMemAlloc_v2, &address, bytes);
	CALL(cuMemsetD8_v2, address, 0, bytes);
	printf("alloc %s %llx %zu 1\n", name, (unsigned long long)address, bytes);
	return address;
}

static CUdeviceptr map(const char *name, size_t bytes)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	size_t granularity;
	CALL(cuMemGetAllocationGranularity, &granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	bytes = (bytes + granularity - 1) / granularity * granularity;
	CALL(cuMemAddressReserve, &address, bytes, 0, 0, 0);
	CALL(cuMemCreate, &handle, bytes, &prop, 0);
	CALL(cuMemMap, address, bytes, 0, handle, 0);
	CALL(cuMemSetAccess, address, bytes, &access, 1);
	printf("alloc %s %llx %zu 6\n", name, (unsigned long long)address, bytes);
	return address;
}

static void bind(const char *name, CUdeviceptr address, size_t bytes, enum medusa_role role)
{
	if (medusa_bind(name, address, bytes, role))
		fprintf(stderr, "%s\n", medusa_reason());
	printf("bind %s %llx %zu %d\n", name, (unsigned long long)address, bytes, (int)role);
}

static void set_up(const char *image_path, size_t far)
{
	CUcontext context;
	CUdevice device;
	CUkernel kernel;
	void *image = read_file(image_path);
	float values[N];
	CALL(cuInit, 0);
	CALL(cuDeviceGet, &device, 0);
	CALL(cuDevicePrimaryCtxRetain, &context, device);
	CALL(cuCtxSetCurrent, context);
	/* One copy from anonymous memory, one from the file: the same content, so one image. */
	CALL(cuLibraryLoadData, &it.library, image, NULL, NULL, 0, NULL, NULL, 0);
	CALL(cuLibraryGetKernel, &kernel, it.library, "capture_scale");
	CALL(cuKernelGetFunction, &it.scale, kernel);
	CALL(cuLibraryGetKernel, &kernel, it.library, "capture_count");
	CALL(cuKernelGetFunction, &it.count, kernel);
	CALL(cuModuleLoad, &it.module, image_path);
	CALL(cuModuleGetFunction, &it.finish, it.module, "capture_finish");
	CALL(cuModuleGetFunction, &it.scatter, it.module, "capture_scatter");
	it.in = allocate("in", N * 4);
	it.out = allocate("out", N * 4);
	it.state = allocate("state", 256);
	it.table = allocate("table", TABLE_BYTES);
	it.temp = allocate("temp", 2 * N * 4);
	it.list = allocate("list", far + 64) + far;
	it.aux = allocate("aux", N * 4);
	it.weights = map("weights", N * 4);
	for (int i = 0; i < N; i++)
		values[i] = (float)i;
	CALL(cuMemcpyHtoD_v2, it.in, values, sizeof(values));
	CALL(cuMemcpyHtoD_v2, it.weights, values, sizeof(values));
	CALL(cuMemcpyHtoD_v2, it.aux, values, sizeof(values));
	CALL(cuMemcpyHtoD_v2, it.list, &it.aux, 8);
	CALL(cuMemcpyHtoD_v2, it.table + 4 * TABLE_INDEX, &(float){0.5f}, 4);
	CALL(cuCtxSynchronize);
	CALL(cuStreamCreate, &it.stream, CU_STREAM_NON_BLOCKING);
	CALL(cuStreamCreate, &it.side, CU_STREAM_NON_BLOCKING);
	CALL(cuEventCreate, &it.fork, CU_EVENT_DISABLE_TIMING);
	CALL(cuEventCreate, &it.join, CU_EVENT_DISABLE_TIMING);
	free(image);
}

static void bind_all(bool private_outputs)
{
	bind("weights", it.weights, N * 4, MEDUSA_BIND_CONSTANT);
	bind("in", it.in, N * 4, MEDUSA_BIND_INPUT);
	if (private_outputs)
		return;
	bind("out", it.out, N * 4, MEDUSA_BIND_OUTPUT);
	bind("state", it.state, 256, MEDUSA_BIND_STATE);
}

static void set_up_kv(bool growing, bool scatter)
{
	it.kv = allocate("kv", KV_BYTES);
	CALL(cuCtxSynchronize); /* its memset, for which the other streams don't wait */
	it.growing = growing;
	bind("kv", it.kv, KV_BYTES, MEDUSA_BIND_STATE);
	if (!scatter)
		return;
	it.slot = allocate("slot", 64);
	CALL(cuMemcpyHtoD_v2, it.slot, &(uint32_t){KV_SLOT}, 4);
}

static void launch_scale_to(CUdeviceptr to)
{
	int n = N;
	void *params[] = {&to, &it.in, &it.weights, &n};
	CALL(cuLaunchKernel, it.scale, 1, 1, 1, 32, 1, 1, 0, it.stream, params, NULL);
}

static void launch_scale(void)
{
	launch_scale_to(it.temp);
}

static void launch_scatter(void)
{
	void *params[] = {&it.kv, &it.slot};
	CALL(cuLaunchKernel, it.scatter, 1, 1, 1, 1, 1, 1, 0, it.stream, params, NULL);
}

static void launch_count(CUstream stream, CUdeviceptr counter)
{
	struct {
		CUdeviceptr counter;
		uint32_t step;
	} params = {counter, 3};
	size_t size = sizeof(params);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &params, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			 CU_LAUNCH_PARAM_END};
	CALL(cuLaunchKernel, it.count, 1, 1, 1, 1, 1, 1, 0, stream, NULL, extra);
}

static void launch_finish(void)
{
	int index = TABLE_INDEX, n = N;
	CUdeviceptr from = it.temp + N * 4;
	void *params[] = {&it.out, &from, &it.table, &it.list, &index, &n};
	CUlaunchAttribute attributes[2];
	CUlaunchConfig config = {.gridDimX = 1,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = 64,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .hStream = it.stream,
				 .attrs = attributes,
				 .numAttrs = 2};
	memset(attributes, 0, sizeof(attributes));
	attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
	attributes[0].value.programmaticStreamSerializationAllowed = 1;
	attributes[1].id = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION;
	attributes[1].value.preferredClusterDim.x = attributes[1].value.preferredClusterDim.y = 1;
	attributes[1].value.preferredClusterDim.z = 1;
	CALL(cuLaunchKernelEx, &config, it.finish, params, NULL);
}

static void nothing(void *unused)
{
	(void)unused;
}

/* scale, memset of the state's tail, count on a forked stream, copy, scale again, finish behind a programmatic edge */
static CUgraphExec capture(bool with_host_node)
{
	CUgraph graph;
	CUgraphExec exec;
	CALL(cuStreamBeginCapture_v2, it.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
	launch_scale();
	CALL(cuEventRecord, it.fork, it.stream);
	CALL(cuStreamWaitEvent, it.side, it.fork, 0);
	launch_count(it.side, it.state);
	CALL(cuMemsetD8Async, it.state + 128, 7, 64, it.side);
	CALL(cuEventRecord, it.join, it.side);
	CALL(cuMemcpyDtoDAsync_v2, it.temp + N * 4, it.temp, N * 4, it.stream);
	CALL(cuStreamWaitEvent, it.stream, it.join, 0);
	if (with_host_node)
		CALL(cuLaunchHostFunc, it.stream, nothing, NULL);
	launch_scale();
	launch_finish();
	if (it.kv)
		launch_scale_to(it.kv + KV_BYTES / 2);
	if (it.growing)
		launch_count(it.stream, it.kv);
	if (it.slot)
		launch_scatter();
	if (it.beside)
		launch_count(it.stream, it.beside);
	CALL(cuStreamEndCapture, it.stream, &graph);
	CALL(cuGraphInstantiateWithFlags, &exec, graph, 0);
	CALL(cuGraphDestroy, graph);
	return exec;
}

/* Built by hand: scale, an empty node, a memset. */
static CUgraphExec build(void)
{
	int n = N;
	void *params[] = {&it.temp, &it.in, &it.weights, &n};
	CUDA_KERNEL_NODE_PARAMS kernel = {.func = it.scale,
					  .gridDimX = 2,
					  .gridDimY = 1,
					  .gridDimZ = 1,
					  .blockDimX = 8,
					  .blockDimY = 1,
					  .blockDimZ = 1,
					  .kernelParams = params};
	CUDA_MEMSET_NODE_PARAMS set = {.dst = it.out, .value = 0x3f800000, .elementSize = 4, .width = N, .height = 1};
	CUgraphNode scale, empty, memset_node;
	CUcontext context;
	CUgraphExec exec;
	CUgraph graph;
	CALL(cuCtxGetCurrent, &context);
	CALL(cuGraphCreate, &graph, 0);
	CALL(cuGraphAddKernelNode_v2, &scale, graph, NULL, 0, &kernel);
	CALL(cuGraphAddEmptyNode, &empty, graph, &scale, 1);
	CALL(cuGraphAddMemsetNode, &memset_node, graph, &empty, 1, &set, context);
	CALL(cuGraphInstantiateWithFlags, &exec, graph, 0);
	CALL(cuGraphDestroy, graph);
	return exec;
}

static void print_result(const char *name, CUdeviceptr address, size_t words)
{
	uint32_t values[N];
	CALL(cuMemcpyDtoH_v2, values, address, words * 4);
	printf("result %s", name);
	for (size_t i = 0; i < words; i++)
		printf(" %08" PRIx32, values[i]);
	printf("\n");
}

static void replay(CUgraphExec exec, const char *name)
{
	CALL(cuGraphLaunch, exec, it.stream);
	CALL(cuStreamSynchronize, it.stream);
	print_result(name, it.out, N);
	print_result("state", it.state, N);
	print_result("temp", it.temp, N);
	if (it.kv) {
		print_result("kv", it.kv, N);
		print_result("kv middle", it.kv + KV_BYTES / 2, N);
	}
}

static void update(CUgraphExec exec)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph graph;
	CALL(cuStreamBeginCapture_v2, it.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
	launch_scale();
	CALL(cuStreamEndCapture, it.stream, &graph);
	memset(&info, 0, sizeof(info));
	CALL(cuGraphExecUpdate_v2, exec, graph, &info);
	CALL(cuGraphDestroy, graph);
}

static CUgraphExec capture_scale_alone(void)
{
	CUgraphExec exec;
	CUgraph graph;
	CALL(cuStreamBeginCapture_v2, it.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
	launch_scale();
	CALL(cuStreamEndCapture, it.stream, &graph);
	CALL(cuGraphInstantiateWithFlags, &exec, graph, 0);
	CALL(cuGraphDestroy, graph);
	return exec;
}

static CUdeviceptr allocate_and_free(void)
{
	CUdeviceptr address;
	CALL(cuMemAlloc_v2, &address, 64);
	CALL(cuMemFree_v2, address);
	return address;
}

static bool has(int argc, char *argv[], const char *word)
{
	for (int i = 2; i < argc; i++) {
		if (!strcmp(argv[i], word))
			return true;
	}
	return false;
}

/* ---- what the engine says of its graphs ---- */

static void say(int result, const char *call)
{
	printf("said %s %d %s\n", call, result, result ? medusa_reason() : "");
}

static void say_outputs(void)
{
	say(medusa_fingerprint_add("engine", "old"), "fact");
	say(medusa_fingerprint_add("engine", "subject"), "fact");
	say(medusa_fingerprint_add("batches", "1"), "fact");
	say(medusa_graph_output(NULL, 1, it.temp, N * 4), "output");
	say(medusa_graph_output(NULL, 0, it.out, N * 4), "output");
	say(medusa_graph_note(NULL, "a note", 6), "note");
}

static void say_wrong_things(CUgraphExec launched)
{
	static char large[65537];
	CUdeviceptr address;
	const void *data;
	size_t bytes;
	say(medusa_graph_output(launched, 0, it.out, 4), "launched");
	say(medusa_graph_output(launched, 4096, it.out, 4), "index");
	say(medusa_graph_output(launched, 0, it.out, 0), "size");
	say(medusa_graph_output(launched, 0, UINT64_MAX, 2), "end");
	say(medusa_graph_output(&bytes, 0, it.out, 4), "exec");
	say(medusa_graph_note(launched, large, sizeof(large)), "note");
	say(medusa_graph_note(&bytes, large, 1), "note exec");
	say(medusa_graph_refuse(launched, ""), "refuse");
	say(medusa_graph_refuse(&bytes, "why"), "refuse exec");
	say(medusa_graph_label(&bytes, "decode", 1), "label exec");
	memset(large, 'x', 4097);
	say(medusa_fingerprint_add("fact", large), "value");
	say(medusa_fingerprint_add("", "x"), "name");
	say(medusa_fingerprint_add("fact", NULL), "no value");
	say(medusa_graph_output_get("decode", 1, 0, &address, &bytes), "output_get");
	say(medusa_graph_note_get("decode", 1, &data, &bytes), "note_get");
}

/* The last graph of this thread is forgotten with its handle. */
static void refuse_and_forget(void)
{
	CUgraphExec exec = capture_scale_alone();
	say(medusa_graph_refuse(NULL, "random numbers"), "refuse last");
	say(medusa_graph_label(NULL, "refused", 7), "label last");
	CALL(cuGraphExecDestroy, exec);
	say(medusa_graph_label(NULL, "forgotten", 8), "label forgotten");
}

/* Each writes its own part of the state and of the pool; the pool's part is its output. */
static void run_many(void)
{
	const size_t pool_bytes = 64 << 20, state_bytes = 16 << 20;
	CUdeviceptr pool = allocate("pool", pool_bytes), state = allocate("cache", state_bytes);
	CUgraphExec execs[8];
	bind_all(false);
	bind("cache", state, state_bytes, MEDUSA_BIND_STATE);
	CALL(cuCtxSynchronize);
	for (unsigned i = 0; i < 8; i++) {
		CUgraph graph;
		CALL(cuStreamBeginCapture_v2, it.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
		launch_scale_to(pool + i * (pool_bytes / 8));
		launch_scale_to(state + i * (state_bytes / 8));
		CALL(cuStreamEndCapture, it.stream, &graph);
		CALL(cuGraphInstantiateWithFlags, &execs[i], graph, 0);
		CALL(cuGraphDestroy, graph);
		medusa_graph_output(NULL, 0, pool + i * (pool_bytes / 8), N * 4);
		medusa_graph_label(NULL, "many", i + 1);
	}
	medusa_mark("ready");
	for (unsigned i = 0; i < 8; i++)
		CALL(cuGraphExecDestroy, execs[i]);
}

static bool is_recorded(const char *path, const char *label)
{
	struct md_trace trace;
	struct md_error err = {0};
	bool found = false;
	if (md_trace_read(path, &trace, &err) != MD_OK)
		return false;
	for (uint32_t i = 0; i < trace.graph_count; i++)
		found |= trace.graphs[i].label && !strcmp(trace.graphs[i].label, label);
	md_trace_finish(&trace);
	return found;
}

/* The recorder writes on a thread of its own, which a busy machine may keep waiting. */
static void wait_until_recorded(const char *part, const char *label)
{
	for (int i = 0; i < 6000; i++) {
		if (is_recorded(part, label))
			return;
		usleep(10000);
	}
	fprintf(stderr, "%s: no graph %s after a minute\n", part, label);
	exit(8);
}

/* From now on no file can grow, as on a full disk. Device memory, which hostcuda keeps in files, is
 * allocated by then. */
static void fill_disk(void)
{
	struct rlimit limit = {1, 1};
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &limit);
}

int main(int argc, char *argv[])
{
	struct md_error err = {0};
	CUgraphExec first, second, third;
	const char *trace = getenv("MEDUSA_TRACE"); /* which a recorder takes away, so that no child records, too */
	char part[4096];
	snprintf(part, sizeof(part), "%s.part", trace ? trace : "");
	if (argc < 2 || md_cuda_load(&err) != MD_OK) {
		fprintf(stderr, "capture_subject IMAGE [WORD...]: %s\n", err.message);
		return 9;
	}
	set_up(argv[1], has(argc, argv, "far") ? FAR : 0);
	if (has(argc, argv, "many")) {
		run_many();
		return 0;
	}
	if (has(argc, argv, "full"))
		fill_disk();
	if (!has(argc, argv, "unbound"))
		bind_all(has(argc, argv, "outputs"));
	if (has(argc, argv, "large") || has(argc, argv, "growing") || has(argc, argv, "scatter"))
		set_up_kv(has(argc, argv, "growing"), has(argc, argv, "scatter"));
	for (int i = 0; i < 5; i++)
		launch_scale();
	if (it.slot)
		launch_scatter();
	launch_count(it.stream, it.state);
	CALL(cuStreamSynchronize, it.stream);
	it.beside = has(argc, argv, "beside") ? it.table + 4 * TABLE_INDEX + 8 : 0;
	first = capture(has(argc, argv, "host"));
	if (has(argc, argv, "outputs") || has(argc, argv, "unbound"))
		say_outputs();
	if (has(argc, argv, "gone"))
		medusa_graph_output(first, 2, allocate_and_free(), 64);
	medusa_graph_label(first, "decode", 1);
	if (has(argc, argv, "kill")) {
		wait_until_recorded(part, "decode");
		raise(SIGKILL);
	}
	replay(first, "decode");
	replay(first, "decode");
	second = build();
	medusa_graph_label(second, "explicit", 2);
	replay(second, "explicit");
	if (has(argc, argv, "update")) {
		third = capture_scale_alone();
		medusa_graph_label(third, "updated", 3);
		update(third);
		CALL(cuGraphLaunch, third, it.stream);
		CALL(cuStreamSynchronize, it.stream);
	}
	if (has(argc, argv, "wrong")) {
		say_wrong_things(first);
		refuse_and_forget();
	}
	medusa_stage("warmup", 12345);
	medusa_mark("ready");
	CALL(cuMemFree_v2, it.aux);
	CALL(cuGraphExecDestroy, first);
	CALL(cuGraphExecDestroy, second);
	print_result("state", it.state, N);
	return 0;
}
