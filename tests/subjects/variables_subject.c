/* SPDX-License-Identifier: Apache-2.0 */
/* An engine whose kernels read variables of their modules that hold addresses. argv[1]: image; then cases. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "medusa/medusa.h"
#include "tests/subjects/subject.h"

/*
 * stdout: what was computed, the same however it came by its graphs; stderr: how it came by them.
 * SUBJECT_SETS_LATE: variables are set by the first forward pass, before a graph is captured live, as cuFFT does when
 * the first plan is made. SUBJECT_ASKS_EARLY: but their addresses are asked for before. SUBJECT_LOADS_LATE: their
 * modules are loaded then. SUBJECT_BINDS_LATE, SUBJECT_SAYS_LATE: the weights are bound, a fact is said then.
 * SUBJECT_SETS_AGAIN=VALUE: before each replay, variable lookup_own is set to VALUE; SUBJECT_BY_KERNEL: by a kernel,
 * whose first parameter is its address. SUBJECT_READS_AGAIN: it is read then.
 */
enum { N = 96, BYTES = N * sizeof(float), TABLE = 64, REPLAYS = 3 };

static const char *image_path;
static CUmodule module, others;
static CUstream stream;
static CUdeviceptr in, out, weights;

static CUdeviceptr device(size_t bytes)
{
	CUdeviceptr memory;
	TRY(cuMemAlloc_v2, &memory, bytes);
	TRY(cuMemsetD8_v2, memory, 0, bytes);
	return memory;
}

static CUdeviceptr table(float first)
{
	CUdeviceptr memory = device(4 * TABLE * sizeof(float));
	float values[TABLE];
	for (unsigned i = 0; i < TABLE; i++)
		values[i] = first + (float)i;
	TRY(cuMemcpyHtoD_v2, memory + sizeof(values), values, sizeof(values));
	return memory + sizeof(values);
}

/* ---- modules ---- */

static CUmodule load(const char *name)
{
	static const char own[] = "lookup_kernels";
	const char *at = strstr(image_path, own);
	char path[4096];
	CUmodule made;
	snprintf(path, sizeof(path), "%.*s%s%s", (int)(at - image_path), image_path, name, at + sizeof(own) - 1);
	TRY(cuModuleLoad, &made, path);
	return made;
}

static void load_modules(void)
{
	if (module)
		return;
	module = load("lookup_kernels");
	others = load("lookup_others");
}

static CUdeviceptr address_of(CUmodule in_module, const char *name)
{
	CUdeviceptr address;
	size_t size;
	TRY(cuModuleGetGlobal_v2, &address, &size, in_module, name);
	return address;
}

/* What the engine has written, the latest last. */
static struct {
	const char *name;
	uint8_t data[256];
	size_t size;
} written[16];
static unsigned write_count;

static void set(const char *name, const void *data, size_t size)
{
	TRY(cuMemcpyHtoD_v2, address_of(module, name), data, size);
	written[write_count].name = name;
	memcpy(written[write_count].data, data, size);
	written[write_count++].size = size;
}

/* No restore may write the engine's own variables: those that it has not written are as the image has them. */
static void look_at_own(void)
{
	if (medusa_mode() ==
	    MEDUSA_MODE_CAPTURE) /* an engine that reads its variables between replays is another case */
		return;
	static const char *const names[] = {"lookup_table", "lookup_tables", "lookup_ring"};
	static const uint8_t zeros[64];
	for (unsigned i = 0; module && i < 3; i++) {
		size_t size = i == 1 ? 64 : i == 2 ? 16 : 8;
		const uint8_t *expected = zeros;
		uint8_t now[64];
		for (unsigned w = 0; w < write_count; w++)
			if (!strcmp(written[w].name, names[i]))
				expected = written[w].data;
		TRY(cuMemcpyDtoH_v2, now, address_of(module, names[i]), size);
		if (memcmp(now, expected, size))
			printf("variable %s of the engine was written by somebody else\n", names[i]);
	}
}

struct entry { /* as the kernels have them, with what the compiler pads them with */
	CUdeviceptr data;
	int32_t size, padding;
};

struct ring {
	CUdeviceptr next;
	float value, padding;
};

/* ---- cases ---- */

static const char *kernel;
static CUdeviceptr given; /* to the kernel, or 0 */

static void point_to(CUdeviceptr to)
{
	kernel = "lookup_scaled";
	set("lookup_table", &to, sizeof(to));
}

static void private_table(void)
{
	point_to(table(3));
}

static void bound_table(void)
{
	point_to(weights + TABLE * sizeof(float));
}

static void same_module(void)
{
	point_to(address_of(module, "lookup_own"));
}

static void same_module_written(void)
{
	const float values[] = {9, 8, 7};
	set("lookup_own", values, sizeof(values));
	point_to(address_of(module, "lookup_own"));
}

static void other_module(void)
{
	point_to(address_of(others, "lookup_other"));
}

/* What it points to points on. */
static void chain(void)
{
	CUdeviceptr first = device(2 * sizeof(CUdeviceptr)), second = table(7), last[] = {second, second + 4};
	struct entry entries[4] = {{table(2), 8, 0}};
	TRY(cuMemcpyHtoD_v2, first, last, sizeof(last));
	kernel = "lookup_each";
	entries[1] = (struct entry){second, 16, 0};
	entries[2] = (struct entry){weights + TABLE * sizeof(float), 4, 0};
	entries[3] = (struct entry){address_of(others, "lookup_other"), 64, 0};
	set("lookup_tables", entries, sizeof(entries));
}

/* One table for each size, made as it is needed. */
static void entries(void)
{
	struct entry all[4] = {{0}};
	kernel = "lookup_each";
	for (int32_t i = 0; i < 4; i++)
		all[i] = (struct entry){table(10 * (float)i), 16 << i > TABLE ? TABLE : 16 << i, 0};
	set("lookup_tables", all, sizeof(all));
}

static void itself(void)
{
	struct ring ring = {address_of(module, "lookup_ring"), 6, 0};
	kernel = "lookup_around";
	set("lookup_ring", &ring, sizeof(ring));
}

static void parameter(void)
{
	const float values[] = {2, 4, 8, 16, 32};
	kernel = "lookup_by";
	given = address_of(others, "lookup_other") + 2 * sizeof(float);
	TRY(cuMemcpyHtoD_v2, given, values, sizeof(values));
}

/* The variable keeps the value that it has in the image. */
static void parameter_untouched(void)
{
	kernel = "lookup_by";
	given = address_of(module, "lookup_own");
}

static void differs(void)
{
	float value = (float)getpid();
	kernel = "lookup_in_own";
	set("lookup_own", &value, sizeof(value));
}

/* Without any address. */
static void plain(void)
{
	const float values[] = {1, 3, 5, 7, 9, 11};
	kernel = "lookup_in_own";
	set("lookup_own", values, sizeof(values));
}

/* The second capture, which alone has a shift, points to another place than the first. */
static void points_elsewhere(void)
{
	point_to(table(3) + (getenv("MEDUSA_SHIFT") ? 4 : 0));
}

static void kernel_writes(void)
{
	int32_t zero = 0;
	kernel = "lookup_counted";
	set("lookup_count", &zero, sizeof(zero));
}

#define CASE(name)                                                                                                     \
	{                                                                                                              \
#name, name                                                                                            \
	}
static const struct {
	const char *name;
	void (*make)(void);
} cases[] = {
    CASE(parameter_untouched),
    CASE(private_table),
    CASE(bound_table),
    CASE(same_module),
    CASE(same_module_written),
    CASE(other_module),
    CASE(chain),
    CASE(entries),
    CASE(itself),
    CASE(parameter),
    CASE(differs),
    CASE(points_elsewhere),
    CASE(kernel_writes),
    CASE(plain),
};
enum { CASES = sizeof(cases) / sizeof(cases[0]) };

/* ---- a life ---- */

static void launch(void)
{
	int32_t n = N;
	CUfunction function;
	void *plain[] = {&out, &in, &n}, *with[] = {&out, &in, &given, &n};
	TRY(cuModuleGetFunction, &function, module, kernel);
	TRY(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, given ? with : plain, NULL);
}

static CUgraphExec live(const char *name)
{
	CUgraph graph;
	CUgraphExec exec;
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	launch();
	TRY(cuStreamEndCapture, stream, &graph);
	TRY(cuGraphInstantiateWithFlags, &exec, graph, 0);
	TRY(cuGraphDestroy, graph);
	if (medusa_graph_label(exec, name, 1) && medusa_mode() != MEDUSA_MODE_NONE)
		fprintf(stderr, "not labelled: %s\n", medusa_reason());
	return exec;
}

static void launch_set(CUdeviceptr to, float value)
{
	CUfunction set_kernel;
	void *params[] = {&to, &value};
	TRY(cuModuleGetFunction, &set_kernel, module, "lookup_set");
	TRY(cuLaunchKernel, set_kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void set_again(void)
{
	const char *value = getenv("SUBJECT_SETS_AGAIN");
	float first = value ? (float)atoi(value) : 0;
	if (!value && !getenv("SUBJECT_READS_AGAIN"))
		return;
	load_modules();
	CUdeviceptr own = address_of(module, "lookup_own");
	if (!value)
		TRY(cuMemcpyDtoH_v2, &first, own, sizeof(first));
	else if (getenv("SUBJECT_BY_KERNEL"))
		launch_set(own, first);
	else
		TRY(cuMemcpyHtoD_v2, own, &first, sizeof(first));
}

static void replay(const char *name, CUgraphExec exec)
{
	float values[N];
	for (unsigned turn = 0; turn < REPLAYS; turn++) {
		for (unsigned i = 0; i < N; i++)
			values[i] = (float)((i * 7 + turn * 5) % 31);
		set_again();
		TRY(cuMemcpyHtoD_v2, in, values, sizeof(values));
		TRY(cuMemsetD8_v2, out, 0, BYTES);
		TRY(cuCtxSynchronize);
		TRY(cuGraphLaunch, exec, stream);
		TRY(cuStreamSynchronize, stream);
		TRY(cuMemcpyDtoH_v2, values, out, sizeof(values));
		printf("%s", name);
		for (unsigned i = 0; i < N; i++)
			printf(" %g", strcmp(name, "differs") || i % TABLE ? (double)values[i] : 0.0);
		printf("\n");
	}
}

static void bind_weights(void)
{
	medusa_bind("weights", weights, 4 * TABLE * sizeof(float), MEDUSA_BIND_CONSTANT);
}

static void run(unsigned index)
{
	bool late = getenv("SUBJECT_SETS_LATE") || getenv("SUBJECT_LOADS_LATE");
	const char *name = cases[index].name;
	void *exec = NULL;
	kernel = NULL;
	given = 0;
	if (getenv("SUBJECT_ASKS_EARLY")) {
		address_of(module, "lookup_own");
		address_of(module, "lookup_table");
	}
	if (!late)
		cases[index].make();
	if (medusa_graph_get(name, 1, UINT64_MAX, &exec) == MEDUSA_OK) {
		fprintf(stderr, "%s restored\n", name);
	} else {
		fprintf(stderr, "%s live: %s\n", name, medusa_reason());
		load_modules();
		if (getenv("SUBJECT_BINDS_LATE"))
			bind_weights();
		if (getenv("SUBJECT_SAYS_LATE"))
			medusa_fingerprint_add("said", "late");
		if (late)
			cases[index].make();
		exec = live(name);
	}
	replay(name, exec);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	load_driver();
	open_context();
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	image_path = argv[1];
	if (!getenv("SUBJECT_LOADS_LATE"))
		load_modules();
	in = device(BYTES);
	out = device(BYTES);
	weights = table(1) - TABLE * sizeof(float);
	medusa_bind("in", in, BYTES, MEDUSA_BIND_INPUT);
	medusa_bind("out", out, BYTES, MEDUSA_BIND_OUTPUT);
	if (!getenv("SUBJECT_BINDS_LATE"))
		bind_weights();
	for (unsigned i = 0; i < CASES; i++)
		for (int a = 2; a < argc; a++)
			if (!strcmp(argv[a], cases[i].name))
				run(i);
	look_at_own();
	medusa_release();
	return 0;
}
