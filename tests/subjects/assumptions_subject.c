/* SPDX-License-Identifier: Apache-2.0 */
/* Engines whose graphs depend on what nobody stated. Kernels: tests/images/restore_kernels.c. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "medusa/medusa.h"
#include "tests/subjects/image_file.h"
#include "tests/subjects/subject.h"

/* clang-format off */
/*
 * stdout: what it computed, the same however it came by its graphs. stderr: how it came by them, and why. Environment:
 *   SUBJECT=constant     one graph fills "out" with the value of --value (5); other arguments do not matter
 *   SUBJECT=unbound      graph "first" copies in -> mid, "second" mid -> out; only in is bound, the engine reads out
 *   SUBJECT=nothing      graph "first" alone
 *   SUBJECT=between      the same with out bound
 *   SUBJECT=relay        the same with graph "middle" in between, which copies on
 *   SUBJECT=destroys     the same as between; the graphs are destroyed, in order, and then the memory freed
 *   SUBJECT=scratch      two graphs copy in -> mid -> out: neither needs what the other has left in mid
 *   SUBJECT=touch_read   the graph copies in -> mid and in -> out, and the engine reads mid
 *   SUBJECT=touch_write  the graph copies mid -> out, and the engine writes mid before each replay, always the same
 *   SUBJECT=zeros        the inputs of two graphs are zero until REQUEST comes; they read them by a table that nobody bound.
 *                        IMAGE: memory_kernels of tests/images
 *   SUBJECT=moves        the engine binds "out" elsewhere once it has its graph, and asks for the graph again
 *     SUBJECT_HOW=frees  it frees "out" and goes on with memory that it does not bind; sequence: nothing is bound
 *                 host   the same with page-locked memory
 *                 early  the same before it asks for its graph, in a cold start
 *                 destroys  it does not move anything, and destroys the graph
 *   SUBJECT=span         the graph adds up what lies in "in", to its end; SUBJECT_IMAGE has the kernel, and with
 *                        SUBJECT_APART "behind" does not begin where "in" ends
 *   SUBJECT=shared       the graph copies "second" to "out"; "first" and "second" are two names of one buffer, but with
 *                        SUBJECT_APART each has a buffer of its own, and with SUBJECT_MOVE=N both begin N bytes later
 *   SUBJECT_FACT=TEXT    what fact "value" is said to be; without it there are no facts
 */
/* clang-format on */
enum { WORDS = 4096, BYTES = WORDS * 4 };

static CUstream stream;

static const char *setting(const char *name, const char *otherwise)
{
	const char *value = getenv(name);
	return value && *value ? value : otherwise;
}

static CUdeviceptr take(const char *name, enum medusa_role role)
{
	CUdeviceptr address;
	TRY(cuMemAlloc_v2, &address, BYTES);
	if (name && medusa_bind(name, address, BYTES, role) != MEDUSA_OK)
		fprintf(stderr, "%s is not bound: %s\n", name, medusa_reason());
	return address;
}

static bool get(const char *label, CUgraphExec *exec)
{
	bool restored = medusa_graph_get(label, 1, UINT64_MAX, (void **)exec) == MEDUSA_OK;
	if (restored)
		fprintf(stderr, "%s restored\n", label);
	else
		fprintf(stderr, "%s live %s\n", label, medusa_reason());
	return restored;
}

static void begin(void)
{
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static void end(const char *label, CUgraphExec *exec)
{
	CUgraph graph;
	TRY(cuStreamEndCapture, stream, &graph);
	TRY(cuGraphInstantiateWithFlags, exec, graph, 0);
	medusa_graph_label(*exec, label, 1);
}

static void launch(CUgraphExec exec)
{
	TRY(cuGraphLaunch, exec, stream);
	TRY(cuStreamSynchronize, stream);
}

static unsigned first_word(CUdeviceptr address)
{
	unsigned value;
	TRY(cuMemcpyDtoH_v2, &value, address, sizeof(value));
	return value;
}

/* ---- a constant that comes from how the engine was started ---- */

static void constant(int argc, char **argv)
{
	unsigned value = 5;
	CUgraphExec exec;
	for (int i = 1; i + 1 < argc; i++)
		if (!strcmp(argv[i], "--value"))
			value = (unsigned)atoi(argv[i + 1]);
	CUdeviceptr out = take("out", MEDUSA_BIND_OUTPUT);
	if (!get("constant", &exec)) {
		begin();
		TRY(cuMemsetD32Async, out, value, WORDS, stream);
		end("constant", &exec);
	}
	launch(exec);
	printf("out %u, wanted %u\n", first_word(out), value);
}

/* ---- graphs that hand a value on ---- */

static void copy_graph(const char *label, CUdeviceptr to, CUdeviceptr from, CUgraphExec *exec)
{
	if (get(label, exec))
		return;
	begin();
	TRY(cuMemcpyDtoDAsync_v2, to, from, BYTES, stream);
	end(label, exec);
	launch(*exec);
}

static void hand_on(bool out_is_bound, bool destroys)
{
	CUdeviceptr in = take("in", MEDUSA_BIND_INPUT), mid = take(NULL, 0);
	CUdeviceptr out = take(out_is_bound ? "out" : NULL, MEDUSA_BIND_OUTPUT);
	CUgraphExec first, second;
	TRY(cuMemsetD32_v2, in, 9, WORDS);
	TRY(cuCtxSynchronize);
	copy_graph("first", mid, in, &first);
	copy_graph("second", out, mid, &second);
	for (unsigned value = 100; value < 400; value += 100) {
		TRY(cuMemsetD32_v2, in, value, WORDS);
		TRY(cuCtxSynchronize);
		launch(first);
		launch(second);
		printf("out %u, wanted %u\n", first_word(out), value);
	}
	if (destroys && medusa_mode() != MEDUSA_MODE_RESTORE) {
		TRY(cuGraphExecDestroy, first);
		TRY(cuGraphExecDestroy, second);
		TRY(cuMemFree_v2, mid);
	}
}

static void unbound(int argc, char **argv)
{
	(void)argc, (void)argv;
	hand_on(false, false);
}

static void nothing(int argc, char **argv)
{
	CUdeviceptr in = take("in", MEDUSA_BIND_INPUT), mid = take(NULL, 0);
	CUgraphExec first;
	(void)argc, (void)argv;
	TRY(cuMemsetD32_v2, in, 9, WORDS);
	copy_graph("first", mid, in, &first);
	TRY(cuMemsetD32_v2, in, 100, WORDS);
	TRY(cuCtxSynchronize);
	launch(first);
}

static void between(int argc, char **argv)
{
	(void)argc, (void)argv;
	hand_on(true, false);
}

static void relay(int argc, char **argv)
{
	CUdeviceptr in = take("in", MEDUSA_BIND_INPUT), mid = take(NULL, 0), on = take(NULL, 0);
	CUdeviceptr out = take("out", MEDUSA_BIND_OUTPUT);
	CUgraphExec first, middle, second;
	(void)argc, (void)argv;
	TRY(cuMemsetD32_v2, in, 9, WORDS);
	TRY(cuCtxSynchronize);
	copy_graph("first", mid, in, &first);
	copy_graph("middle", on, mid, &middle);
	copy_graph("second", out, on, &second);
	for (unsigned value = 100; value < 400; value += 100) {
		TRY(cuMemsetD32_v2, in, value, WORDS);
		TRY(cuCtxSynchronize);
		launch(first);
		launch(middle);
		launch(second);
		printf("out %u, wanted %u\n", first_word(out), value);
	}
}

static void destroys(int argc, char **argv)
{
	(void)argc, (void)argv;
	hand_on(true, true);
}

static void scratch(int argc, char **argv)
{
	CUdeviceptr in = take("in", MEDUSA_BIND_INPUT), mid = take(NULL, 0), out = take("out", MEDUSA_BIND_OUTPUT);
	CUgraphExec exec[2];
	(void)argc, (void)argv;
	for (int i = 0; i < 2; i++) {
		if (get(i ? "two" : "one", &exec[i]))
			continue;
		begin();
		TRY(cuMemcpyDtoDAsync_v2, mid, in, BYTES, stream);
		TRY(cuMemcpyDtoDAsync_v2, out, mid, BYTES, stream);
		end(i ? "two" : "one", &exec[i]);
	}
	for (unsigned value = 100; value < 400; value += 100) {
		TRY(cuMemsetD32_v2, in, value, WORDS);
		TRY(cuCtxSynchronize);
		launch(exec[value / 100 % 2]);
		printf("out %u, wanted %u\n", first_word(out), value);
	}
}

/* ---- memory of a graph that the engine uses, too ---- */

static void touch_read(int argc, char **argv)
{
	CUdeviceptr in = take("in", MEDUSA_BIND_INPUT), mid = take(NULL, 0), out = take("out", MEDUSA_BIND_OUTPUT);
	CUgraphExec exec;
	(void)argc, (void)argv;
	if (!get("touched", &exec)) {
		begin();
		TRY(cuMemcpyDtoDAsync_v2, mid, in, BYTES, stream);
		TRY(cuMemcpyDtoDAsync_v2, out, in, BYTES, stream);
		end("touched", &exec);
	}
	for (unsigned value = 100; value < 400; value += 100) {
		TRY(cuMemsetD32_v2, in, value, WORDS);
		TRY(cuCtxSynchronize);
		launch(exec);
		printf("out %u, wanted %u\n", first_word(mid), value);
		printf("out %u, wanted %u\n", first_word(out), value);
	}
}

static void touch_write(int argc, char **argv)
{
	CUdeviceptr mid = take(NULL, 0), out = take("out", MEDUSA_BIND_OUTPUT);
	static unsigned words[WORDS];
	CUgraphExec exec;
	(void)argc, (void)argv;
	for (int i = 0; i < WORDS; i++)
		words[i] = 7;
	if (!get("touched", &exec)) {
		begin();
		TRY(cuMemcpyDtoDAsync_v2, out, mid, BYTES, stream);
		end("touched", &exec);
	}
	for (int i = 0; i < 3; i++) {
		TRY(cuMemcpyHtoD_v2, mid, words, BYTES);
		launch(exec);
		printf("out %u, wanted 7\n", first_word(out));
	}
}

/* ---- inputs that are zero while graphs are captured ---- */

enum { ROWS = 4, ROW = 16, ELEMENTS = ROWS * ROW };

static void permute(const char *label, CUdeviceptr out, CUdeviceptr in, CUdeviceptr table, CUfunction kernel,
		    CUgraphExec *exec)
{
	int32_t row = ROW, elements = ELEMENTS;
	void *params[] = {&out, &in, &table, &row, &elements};
	if (get(label, exec))
		return;
	begin();
	TRY(cuMemsetD32Async, out, 0, ELEMENTS, stream);
	TRY(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
	end(label, exec);
}

/* TABLE=device: by a copy on the device, of which capture does not know what it brings. */
static void fill_table(CUdeviceptr table, const void *bytes, size_t size)
{
	CUdeviceptr from = *setting("TABLE", "") ? take(NULL, 0) : table;
	TRY(cuMemcpyHtoD_v2, from, bytes, size);
	if (from != table)
		TRY(cuMemcpyDtoD_v2, table, from, size);
}

/* A request is for the first graph alone. */
static void zeros(int argc, char **argv)
{
	CUdeviceptr in = take("in", MEDUSA_BIND_INPUT), out = take("out", MEDUSA_BIND_OUTPUT), table = take(NULL, 0);
	static const int32_t reversed[ROWS] = {3, 2, 1, 0};
	float values[ELEMENTS], first;
	CUgraphExec execs[2];
	CUfunction kernel;
	CUmodule module;
	(void)argc, (void)argv;
	TRY(cuModuleLoadData, &module, read_file(setting("IMAGE", "")));
	TRY(cuModuleGetFunction, &kernel, module, "memory_blocks");
	TRY(cuMemsetD32_v2, in, 0, WORDS);
	fill_table(table, reversed, sizeof(reversed));
	permute("asked", out, in, table, kernel, &execs[0]);
	permute("idle", out, in, table, kernel, &execs[1]);
	medusa_mark("captured");
	if (!*setting("REQUEST", ""))
		return;
	for (int i = 0; i < ELEMENTS; i++)
		values[i] = (float)(i + 1);
	TRY(cuMemcpyHtoD_v2, in, values, sizeof(values));
	for (int i = 0; i < (medusa_mode() == MEDUSA_MODE_RESTORE ? 2 : 1); i++) {
		launch(execs[i]);
		TRY(cuMemcpyDtoH_v2, &first, out, sizeof(first));
		printf("out %u, wanted %u\n", (unsigned)first, 3 * ROW + 1);
	}
}

/* ---- a binding that moves ---- */

static bool moves_by(const char *how)
{
	return !strcmp(setting("SUBJECT_HOW", "binds"), how);
}

static CUdeviceptr take_locked(const char *name)
{
	CUdeviceptr address;
	void *host;
	TRY(cuMemHostAlloc, &host, BYTES, CU_MEMHOSTALLOC_DEVICEMAP);
	TRY(cuMemHostGetDevicePointer_v2, &address, host, 0);
	if (name)
		medusa_bind(name, address, BYTES, MEDUSA_BIND_OUTPUT);
	return address;
}

/* The old address is another buffer's from then on. */
static CUdeviceptr moved(CUdeviceptr out)
{
	if (moves_by("binds"))
		return take("out", MEDUSA_BIND_OUTPUT);
	if (moves_by("destroys"))
		return out;
	CUdeviceptr elsewhere = moves_by("host") ? take_locked(NULL) : take(NULL, 0);
	if (moves_by("host"))
		TRY(cuMemFreeHost, (void *)(uintptr_t)out);
	else
		TRY(cuMemFree_v2, out);
	TRY(cuMemsetD32_v2, moves_by("host") ? take_locked(NULL) : take(NULL, 0), 9, WORDS);
	return elsewhere;
}

static void moves(int argc, char **argv)
{
	CUdeviceptr out =
	    moves_by("host") ? take_locked("out") : take(moves_by("sequence") ? NULL : "out", MEDUSA_BIND_OUTPUT);
	bool early = moves_by("early") && medusa_mode() == MEDUSA_MODE_RESTORE;
	CUgraphExec exec;
	(void)argc, (void)argv;
	for (int round = 0; round < 2; round++) {
		if (round && moves_by("destroys"))
			TRY(cuGraphExecDestroy, exec);
		if (moves_by("early") ? early && !round : round)
			out = moved(out);
		if (!get("moves", &exec)) {
			begin();
			TRY(cuMemsetD32Async, out, 7, WORDS, stream);
			end("moves", &exec);
		}
		launch(exec);
		printf("out %u, wanted 7\n", first_word(out));
		if (medusa_mode() == MEDUSA_MODE_CAPTURE || medusa_mode() == MEDUSA_MODE_VERIFY)
			return;
	}
}

/* ---- an address that is an end here and a beginning there ---- */

static void span(int argc, char **argv)
{
	CUdeviceptr in, out = take("out", MEDUSA_BIND_OUTPUT), behind;
	CUfunction total;
	CUmodule module;
	CUgraphExec exec;
	(void)argc, (void)argv;
	TRY(cuModuleLoad, &module, setting("SUBJECT_IMAGE", ""));
	TRY(cuModuleGetFunction, &total, module, "total");
	TRY(cuMemAlloc_v2, &in, 4 * (size_t)BYTES);
	behind = in + BYTES;
	TRY(cuMemsetD32_v2, in, 1, 4 * (size_t)WORDS);
	TRY(cuCtxSynchronize);
	medusa_bind("in", in, BYTES, MEDUSA_BIND_INPUT);
	medusa_bind("behind", *setting("SUBJECT_APART", "") ? behind + BYTES : behind, BYTES, MEDUSA_BIND_CONSTANT);
	if (!get("span", &exec)) {
		void *params[] = {&out, &in, &behind};
		begin();
		TRY(cuLaunchKernel, total, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
		end("span", &exec);
	}
	for (unsigned value = 1; value < 4; value++) {
		TRY(cuMemsetD32_v2, in, value, WORDS);
		TRY(cuCtxSynchronize);
		launch(exec);
		printf("out %u, wanted %u\n", first_word(out), value * WORDS);
	}
}

/* ---- two names of one memory ---- */

static void shared(int argc, char **argv)
{
	CUdeviceptr pool, first, second, out = take("out", MEDUSA_BIND_OUTPUT);
	bool apart = *setting("SUBJECT_APART", "");
	CUgraphExec exec;
	(void)argc, (void)argv;
	TRY(cuMemAlloc_v2, &pool, 4 * (size_t)BYTES);
	first = pool + (CUdeviceptr)atoi(setting("SUBJECT_MOVE", "0"));
	second = apart ? first + 2 * (CUdeviceptr)BYTES : first;
	medusa_bind("first", first, BYTES, MEDUSA_BIND_INPUT);
	medusa_bind("second", second, BYTES, MEDUSA_BIND_INPUT);
	if (!get("shared", &exec)) {
		begin();
		TRY(cuMemcpyDtoDAsync_v2, out, second, BYTES, stream);
		end("shared", &exec);
	}
	for (unsigned value = 1; value < 4; value++) {
		TRY(cuMemsetD32_v2, first, value, WORDS);
		TRY(cuMemsetD32_v2, second, value + 10, WORDS);
		TRY(cuCtxSynchronize);
		launch(exec);
		printf("out %u, wanted %u\n", first_word(out), value + 10);
	}
}

static const struct {
	const char *name;
	void (*run)(int argc, char **argv);
} subjects[] = {{"constant", constant}, {"unbound", unbound},       {"nothing", nothing},
		{"between", between},   {"relay", relay},           {"destroys", destroys},
		{"scratch", scratch},   {"touch_read", touch_read}, {"touch_write", touch_write},
		{"zeros", zeros},       {"moves", moves},           {"span", span},
		{"shared", shared}};

int main(int argc, char **argv)
{
	struct md_error err = {0};
	const char *name = setting("SUBJECT", "constant");
	CUcontext context;
	if (md_cuda_load(&err) != MD_OK || md_cuda.cuInit(0) || md_cuda.cuDevicePrimaryCtxRetain(&context, 0) ||
	    md_cuda.cuCtxSetCurrent(context) || md_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) {
		fprintf(stderr, "no device: %s\n", err.message);
		return 1;
	}
	if (*setting("SUBJECT_FACT", ""))
		medusa_fingerprint_add("value", getenv("SUBJECT_FACT"));
	for (size_t i = 0; i < sizeof(subjects) / sizeof(*subjects); i++)
		if (!strcmp(subjects[i].name, name))
			subjects[i].run(argc, argv);
	medusa_mark("ready");
	return 0;
}
