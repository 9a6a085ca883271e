/* SPDX-License-Identifier: Apache-2.0 */
/* An engine in small that comes to the driver by one of several doors, on one of several devices or contexts. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "medusa/medusa.h"
#include "tests/doors/runtime.h"

/*
 * Arguments: IMAGE DOOR [word...]
 * Doors: static (the runtime in this program), shared (SUBJECT_RUNTIME names a library of it), both (by turns),
 *	old and new (the driver's symbols by the dlsym of an old and a new C library).
 * Words:
 *	per-thread  the runtime asks for the per-thread default stream's entry points, and that stream is used
 *	second      the engine is on the second device; before that the first one is touched and has an allocation
 *	engines     two engines, one after the other, in one context
 *	same        and both call their graphs by the same names
 *	contexts    two engines, each in a context of its own on the same device
 *	devices     two engines, each on a device of its own
 *	forgets     its arguments are NULL when the driver begins, as after a parser that takes them apart
 */
enum { GRAPHS = 2, WIDTH = 64, FLOATS = GRAPHS * WIDTH, BYTES = FLOATS * 4 };

#define TRY(call)                                                                                                      \
	do {                                                                                                           \
		CUresult result_ = (call);                                                                             \
		if (result_) {                                                                                         \
			fprintf(stderr, "%s: %d\n", #call, (int)result_);                                              \
			exit(5);                                                                                       \
		}                                                                                                      \
	} while (0)

struct engine {
	const char *name;
	CUcontext context;
	CUstream stream;
	CUdeviceptr weights, input, output;
	CUmodule module;
	CUfunction scale_add;
	CUgraphExec execs[GRAPHS + 1];
};

static const char *image;
static char **words;
static struct rt copies[2]; /* of the runtime */

static int has(const char *word)
{
	for (char **at = words; *at; at++)
		if (!strcmp(*at, word))
			return 1;
	return 0;
}

/* ---- doors ---- */

#if defined(__x86_64__)
#define OLD "GLIBC_2.2.5"
#else
#define OLD "GLIBC_2.17"
#endif
void *dlsym_old(void *handle, const char *name);
void *dlsym_new(void *handle, const char *name);
__asm__(".symver dlsym_old, dlsym@" OLD);
__asm__(".symver dlsym_new, dlsym@GLIBC_2.34");

static const char *open_by_symbols(struct rt *rt, void *(*find)(void *, const char *))
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *address;
	/* What has nothing to do with the driver is found as before. */
	if (find(RTLD_NEXT, "getppid") != dlvsym(RTLD_NEXT, "getppid", OLD) ||
	    find(RTLD_DEFAULT, "getppid") != dlvsym(RTLD_DEFAULT, "getppid", OLD) || find(RTLD_NEXT, "main") ||
	    find(RTLD_DEFAULT, "no_such"))
		return "other name";
#define RT(symbol, base, version)                                                                                      \
	address = find(library, #symbol);                                                                              \
	if (!address)                                                                                                  \
		return #symbol;                                                                                        \
	memcpy(&rt->symbol, &address, sizeof(address));
	RT_LIST
#undef RT
	return NULL;
}

static const char *open_shared(struct rt *rt, cuuint64_t flags)
{
	void *library = dlopen(getenv("SUBJECT_RUNTIME"), RTLD_NOW | RTLD_LOCAL);
	const char *(*open)(struct rt *, cuuint64_t) = NULL;
	void *address = library ? dlsym(library, "rt_open") : NULL;
	memcpy(&open, &address, sizeof(open));
	if (!open || open == rt_open)
		return "rt_open";
	return open(rt, flags);
}

static void go_through(const char *door)
{
	cuuint64_t flags =
	    has("per-thread") ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
	const char *missing = NULL;
	if (!strcmp(door, "static") || !strcmp(door, "both"))
		missing = rt_open(&copies[0], flags);
	if (!strcmp(door, "shared"))
		missing = open_shared(&copies[0], flags);
	if (!strcmp(door, "both") && !missing)
		missing = open_shared(&copies[1], flags);
	else if (!strcmp(door, "old") || !strcmp(door, "new"))
		missing = open_by_symbols(&copies[0], *door == 'o' ? dlsym_old : dlsym_new);
	if (missing) {
		fprintf(stderr, "door %s: no %s\n", door, missing);
		exit(3);
	}
	if (strcmp(door, "both"))
		copies[1] = copies[0];
}

/* ---- an engine ---- */

static void fill(const struct engine *engine, CUdeviceptr to, float first)
{
	float values[FLOATS];
	for (int i = 0; i < FLOATS; i++)
		values[i] = first + (float)i / 8;
	TRY(copies[0].cuMemcpyHtoDAsync_v2(to, values, BYTES, engine->stream));
	TRY(copies[0].cuStreamSynchronize(engine->stream));
}

static void bind(const struct engine *engine, const char *what, CUdeviceptr address, enum medusa_role role)
{
	char name[64];
	snprintf(name, sizeof(name), "%s.%s", engine->name, what);
	if (medusa_bind(name, address, BYTES, role) != MEDUSA_OK)
		fprintf(stderr, "bind %s: %s\n", name, medusa_reason());
}

static void set_up(struct engine *engine)
{
	const struct rt *rt = &copies[0];
	TRY(rt->cuCtxSetCurrent(engine->context));
	if (!has("per-thread"))
		TRY(rt->cuStreamCreate(&engine->stream, CU_STREAM_NON_BLOCKING));
	else
		engine->stream = CU_STREAM_PER_THREAD;
	TRY(rt->cuMemAlloc_v2(&engine->weights, BYTES));
	TRY(copies[1].cuMemAlloc_v2(&engine->input, BYTES));
	TRY(rt->cuMemAlloc_v2(&engine->output, BYTES));
	TRY(rt->cuMemsetD8_v2(engine->output, 0, BYTES));
	fill(engine, engine->weights, (float)strlen(engine->name));
	bind(engine, "weights", engine->weights, MEDUSA_BIND_CONSTANT);
	bind(engine, "input", engine->input, MEDUSA_BIND_INPUT);
	bind(engine, "output", engine->output, MEDUSA_BIND_STATE);
}

static CUgraphExec capture(struct engine *engine, unsigned batch)
{
	const struct rt *rt = &copies[batch % 2];
	int n = (int)batch * WIDTH;
	float bias = 0.5f;
	void *params[] = {&engine->output, &engine->weights, &engine->input, &n, &bias};
	void *again[] = {&engine->output, &engine->weights, &engine->output, &n, &bias};
	CUgraph graph;
	CUgraphExec exec;
	if (!engine->module) {
		TRY(rt->cuModuleLoad(&engine->module, image));
		TRY(rt->cuModuleGetFunction(&engine->scale_add, engine->module, "scale_add"));
	}
	TRY(rt->cuStreamBeginCapture_v2(engine->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	TRY(rt->cuLaunchKernel(engine->scale_add, 1, 1, 1, 1, 1, 1, 0, engine->stream, params, NULL));
	TRY(rt->cuLaunchKernel(engine->scale_add, 1, 1, 1, 1, 1, 1, 0, engine->stream, again, NULL));
	TRY(rt->cuStreamEndCapture(engine->stream, &graph));
	TRY(rt->cuGraphInstantiateWithFlags(&exec, graph, 0));
	TRY(rt->cuGraphDestroy(graph));
	if (medusa_graph_label(exec, has("same") ? "same" : engine->name, batch) != MEDUSA_OK)
		fprintf(stderr, "label: %s\n", medusa_reason());
	return exec;
}

static void take_graphs(struct engine *engine)
{
	TRY(copies[0].cuCtxSetCurrent(engine->context));
	for (unsigned batch = 1; batch <= GRAPHS; batch++) {
		void *exec = NULL;
		int result = medusa_graph_get(has("same") ? "same" : engine->name, batch, UINT64_MAX, &exec);
		fprintf(stderr, "graph %s/%u %s %s\n", engine->name, batch, result == MEDUSA_OK ? "restored" : "live",
			result == MEDUSA_OK ? "" : medusa_reason());
		engine->execs[batch] = result == MEDUSA_OK ? (CUgraphExec)exec : capture(engine, batch);
	}
}

static void replay(const struct engine *engine)
{
	float values[FLOATS];
	TRY(copies[0].cuCtxSetCurrent(engine->context));
	for (unsigned batch = 1; batch <= GRAPHS; batch++) {
		const struct rt *rt = &copies[batch % 2];
		fill(engine, engine->input, (float)batch);
		TRY(rt->cuGraphLaunch(engine->execs[batch], engine->stream));
		TRY(rt->cuMemcpyDtoHAsync_v2(values, engine->output, BYTES, engine->stream));
		TRY(rt->cuStreamSynchronize(engine->stream));
		printf("%s %u", engine->name, batch);
		for (unsigned at = 0; at < batch * WIDTH; at += 7)
			printf(" %a", (double)values[at]);
		printf("\n");
	}
}

static unsigned find_contexts(struct engine *engines)
{
	const struct rt *rt = &copies[0];
	CUdeviceptr memory;
	TRY(rt->cuDevicePrimaryCtxRetain(&engines[0].context, 0));
	TRY(rt->cuCtxSetCurrent(engines[0].context));
	if (has("second")) {
		TRY(rt->cuMemAlloc_v2(&memory, BYTES));
		TRY(rt->cuDevicePrimaryCtxRetain(&engines[0].context, 1));
	}
	if (has("contexts"))
		TRY(rt->cuCtxCreate_v2(&engines[1].context, 0, 0));
	else if (has("devices"))
		TRY(rt->cuDevicePrimaryCtxRetain(&engines[1].context, 1));
	else
		engines[1].context = engines[0].context;
	return has("contexts") || has("devices") || has("engines") ? 2 : 1;
}

/* Keeps the words. */
static void forget_arguments(int argc, char **argv)
{
	static char *kept[8];
	for (int i = 3; i < argc && i < 10; i++)
		kept[i - 3] = argv[i];
	words = kept;
	if (has("forgets"))
		memset(argv + 1, 0, (size_t)(argc - 1) * sizeof(*argv));
}

int main(int argc, char **argv)
{
	static struct engine engines[2] = {{.name = "one"}, {.name = "another"}};
	const char *door;
	if (argc < 3)
		return 2;
	image = argv[1];
	door = argv[2];
	forget_arguments(argc, argv);
	go_through(door);
	TRY(copies[0].cuInit(0));
	unsigned count = find_contexts(engines);
	for (unsigned i = 0; i < count; i++)
		set_up(&engines[i]);
	for (unsigned i = 0; i < count; i++)
		take_graphs(&engines[i]);
	for (unsigned i = 0; i < count; i++)
		replay(&engines[i]);
	TRY(copies[0].cuCtxSetCurrent(engines[0].context));
	medusa_mark("ready");
	medusa_release();
	return 0;
}
