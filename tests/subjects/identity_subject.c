/* SPDX-License-Identifier: Apache-2.0 */
/* An engine whose images have kernels of the same names: every way to load an image, and to lose it again. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "medusa/medusa.h"
#include "tests/subjects/subject.h"

/*
 * Arguments: FOLDER [HOW] [word...]. FOLDER holds the images; HOW is the way that the first one is loaded (see ways[]).
 * Graphs: 1 launches the first image's kernels, 2 the second's, 3 both, 4 those of all four images.
 * Words of a capture:
 *	twice     the first image is loaded twice, and graph 1 launches both copies' kernels
 *	before    an image is loaded, launched from and unloaded before the captures; handles come again
 *	during    the first image is unloaded while graph 1 is captured, and the second one loaded in its place
 *	after     the first image is unloaded once its graphs were captured and replayed
 *	unseen    the third image is loaded past all hooks
 *	decoy     and another, which has a kernel of its kernel's name, before them (in a restore, too)
 *	context   the same as before, but the context that the image is in is destroyed
 *	limited   the first image is compiled with a limit of registers (in a restore, too)
 *	handles   a library's kernels are launched by their own handles, as the CUDA runtime does it
 * Words of a restore:
 *	second    the second image is loaded before there is a context, and so before anything is restored
 *	all       all images are loaded before graphs are asked for
 *	trigger   the third image is loaded when the trigger is pulled
 */
enum { N = 64, BYTES = N * 4, GRAPHS = 4 };

struct loaded {
	CUmodule module;
	CUlibrary library;
	CUfunction apply, stir, tail;
};

static const char *folder, *how = "memory";
static char **words;
static struct loaded first, again, second, third, fourth, decoy;
static CUdeviceptr in, out;
static CUstream stream;

static int has(const char *word)
{
	for (char **at = words; *at; at++)
		if (!strcmp(*at, word))
			return 1;
	return 0;
}

/* ---- images ---- */

static int is_gpu(void)
{
	const char *device = getenv("MEDUSA_DEVICE");
	return device && !strcmp(device, "gpu");
}

static const char *named(const char *image, const char *suffix)
{
	static char path[4096];
	snprintf(path, sizeof(path), "%s/%s%s", folder, image, suffix);
	return path;
}

static const char *path_of(const char *image)
{
	return named(image, is_gpu() ? ".fatbin" : ".host.so");
}

static void *map_file(const char *path, size_t *size)
{
	struct stat about;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &about))
		exit(2);
	void *data = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (data == MAP_FAILED)
		exit(2);
	*size = (size_t)about.st_size;
	return data;
}

/* In memory that no file is mapped to, as a JIT compiler has it. */
static char *copy_file(const char *path, size_t *size)
{
	const void *data = map_file(path, size);
	char *copy = malloc(*size + 1);
	if (!copy)
		exit(2);
	memcpy(copy, data, *size);
	copy[*size] = 0; /* text must end */
	munmap((void *)data, *size);
	return copy;
}

static char *write_ptx(const char *image, size_t *size)
{
	size_t bytes, used;
	unsigned char *data;
	char *text;
	if (is_gpu()) {
		text = copy_file(named(image, ".ptx"), size);
		*size += 1;
		return text;
	}
	data = (unsigned char *)copy_file(path_of(image), &bytes);
	text = malloc(bytes * 4 + 256);
	if (!text)
		exit(2);
	used = (size_t)sprintf(text,
			       "// for hostcuda\n.version 8.0\n.target sm_90\n.address_size 64\n"
			       ".global .align 1 .b8 hostcuda_image[%zu] = {",
			       bytes);
	for (size_t i = 0; i < bytes; i++)
		used += (size_t)sprintf(text + used, "%u%s", data[i], i + 1 < bytes ? "," : "};\n");
	free(data);
	*size = used + 1;
	return text;
}

static void load_file(struct loaded *to, const char *image)
{
	TRY(cuModuleLoad, &to->module, path_of(image));
}

static void load_memory(struct loaded *to, const char *image)
{
	size_t size;
	char *data = copy_file(path_of(image), &size);
	TRY(cuModuleLoadData, &to->module, data);
	memset(data, 0, size); /* as a JIT compiler's next image would */
	free(data);
}

static void load_mapped(struct loaded *to, const char *image)
{
	size_t size;
	void *data = map_file(path_of(image), &size);
	TRY(cuModuleLoadDataEx, &to->module, data, 0, NULL, NULL);
	munmap(data, size);
}

static void load_ptx(struct loaded *to, const char *image)
{
	size_t size;
	char *text = write_ptx(image, &size);
	TRY(cuModuleLoadData, &to->module, text);
	free(text);
}

/* Options that only report, and with the word "limited" one that changes the code. */
static unsigned jit_options(CUjit_option *options, void **values)
{
	unsigned count = 0;
	options[count] = CU_JIT_LOG_VERBOSE;
	values[count++] = (void *)0;
	options[count] = CU_JIT_OPTIMIZATION_LEVEL;
	values[count++] = (void *)4;
	if (has("limited")) {
		options[count] = CU_JIT_MAX_REGISTERS;
		values[count++] = (void *)32;
	}
	return count;
}

static void load_compiled(struct loaded *to, const char *image)
{
	size_t size;
	char *text = write_ptx(image, &size);
	CUjit_option options[4];
	void *values[4];
	TRY(cuModuleLoadDataEx, &to->module, text, jit_options(options, values), options, values);
	free(text);
}

static void load_compiled_library(struct loaded *to, const char *image)
{
	size_t size;
	char *text = write_ptx(image, &size);
	CUjit_option options[4];
	void *values[4];
	unsigned count = jit_options(options, values);
	TRY(cuLibraryLoadData, &to->library, text, options, values, count, NULL, NULL, 0);
	free(text);
}

static void load_linked(struct loaded *to, const char *image)
{
	size_t size;
	char *text = write_ptx(image, &size);
	CUlinkState state;
	void *linked;
	TRY(cuLinkCreate_v2, 0, NULL, NULL, &state);
	TRY(cuLinkAddData_v2, state, CU_JIT_INPUT_PTX, text, size, "identity", 0, NULL, NULL);
	TRY(cuLinkComplete, state, &linked, &size);
	TRY(cuModuleLoadData, &to->module, linked);
	TRY(cuLinkDestroy, state);
	free(text);
}

static void load_library(struct loaded *to, const char *image)
{
	size_t size;
	char *data = copy_file(path_of(image), &size);
	TRY(cuLibraryLoadData, &to->library, data, NULL, NULL, 0, NULL, NULL, 0);
	free(data);
}

static void load_library_file(struct loaded *to, const char *image)
{
	TRY(cuLibraryLoadFromFile, &to->library, path_of(image), NULL, NULL, 0, NULL, NULL, 0);
}

static const struct way {
	const char *name;
	void (*load)(struct loaded *to, const char *image);
} ways[] = {
    {"file", load_file},     {"memory", load_memory},     {"mapped", load_mapped},
    {"ptx", load_ptx},       {"compiled", load_compiled}, {"libcompiled", load_compiled_library},
    {"linked", load_linked}, {"library", load_library},   {"libfile", load_library_file},
};

/* ---- kernels ---- */

/* Also where a compiler has put the parameters' types into the name. */
static int is_called(const char *name, const char *wanted)
{
	char mangled[64];
	int length = snprintf(mangled, sizeof(mangled), "_Z%zu%s", strlen(wanted), wanted);
	return !strcmp(name, wanted) || !strncmp(name, mangled, (size_t)length);
}

static CUfunction find_kernel(CUlibrary library, const char *wanted)
{
	CUkernel kernels[32];
	unsigned count = 0;
	TRY(cuLibraryGetKernelCount, &count, library);
	TRY(cuLibraryEnumerateKernels, kernels, count, library);
	for (unsigned i = 0; i < count; i++) {
		const char *name = NULL;
		TRY(cuKernelGetName, &name, kernels[i]);
		if (is_called(name, wanted))
			return (CUfunction)kernels[i];
	}
	return NULL;
}

static CUfunction find(const struct loaded *it, const char *wanted)
{
	CUfunction functions[32];
	if (it->library && has("handles"))
		return find_kernel(it->library, wanted);
	CUmodule module = it->module;
	unsigned count = 0;
	if (it->library)
		TRY(cuLibraryGetModule, &module, it->library);
	TRY(cuModuleGetFunctionCount, &count, module);
	TRY(cuModuleEnumerateFunctions, functions, count, module);
	for (unsigned i = 0; i < count; i++) {
		const char *name = NULL;
		TRY(cuFuncGetName, &name, functions[i]);
		if (is_called(name, wanted))
			return functions[i];
	}
	return NULL;
}

static void load(struct loaded *to, const char *image, const char *way)
{
	if (to->apply || to->tail)
		return;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		if (!strcmp(ways[i].name, way) && !to->module && !to->library)
			ways[i].load(to, image);
	to->apply = find(to, "apply");
	to->stir = find(to, "stir");
	to->tail = find(to, strcmp(image, "arith") ? "tail" : "add");
}

static void unload(struct loaded *it)
{
	if (it->library)
		TRY(cuLibraryUnload, it->library);
	else
		TRY(cuModuleUnload, it->module);
	*it = (struct loaded){0};
}

/* By the driver's own entry point: dlvsym leads past everybody who is preloaded. */
static void load_unseen(void)
{
	static const char *const tags[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
	void *(*under)(void *, const char *) = NULL;
	CUresult (*real)(CUmodule *, const void *) = NULL;
	size_t size;
	char *data = copy_file(path_of("identity_third"), &size);
	for (size_t i = 0; !under && i < sizeof(tags) / sizeof(tags[0]); i++)
		*(void **)&under = dlvsym(RTLD_DEFAULT, "dlsym", tags[i]);
	if (under)
		*(void **)&real = under(dlopen("libcuda.so.1", RTLD_NOW), "cuModuleLoadData");
	if (!real || real(&third.module, data))
		exit(4);
	free(data);
	third.tail = find(&third, "tail");
}

static void load_third(void)
{
	if (has("unseen") && !third.tail && medusa_mode() < MEDUSA_MODE_RESTORE)
		load_unseen();
	if (has("decoy"))
		load(&decoy, "identity_decoy", "memory");
	load(&third, "identity_third", "memory");
}

static void load_all(void)
{
	load(&second, "identity_second", "memory");
	load(&first, "identity_first", how);
	if (has("twice"))
		load(&again, "identity_first", how);
	load_third();
	load(&fourth, "arith", "memory");
}

static int pull(void *unused)
{
	(void)unused;
	if (has("trigger"))
		load_third();
	return 0;
}

/* ---- graphs ---- */

static void launch(CUfunction function, CUdeviceptr to, CUdeviceptr from)
{
	int n = N;
	TRY(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&to, &from, &n}, NULL);
}

static void launch_add(void)
{
	int n = N;
	TRY(cuLaunchKernel, fourth.tail, 1, 1, 1, N, 1, 1, 0, stream, (void *[]){&out, &out, &in, &n}, NULL);
}

static void enqueue(unsigned graph)
{
	switch (graph) {
	case 1:
		launch(first.apply, out, in);
		launch(has("twice") ? again.stir : first.stir, out, in);
		if (has("twice"))
			launch(again.apply, out, out);
		break;
	case 2:
		launch(second.apply, out, in);
		launch(second.stir, out, in);
		break;
	case 3:
		launch(first.apply, out, in);
		launch(second.stir, out, in);
		launch(second.apply, out, out);
		launch(first.stir, out, in);
		break;
	default:
		launch(second.apply, out, in);
		launch(first.stir, out, in);
		launch(third.tail, out, in);
		launch_add();
	}
}

/* Loads the second image until its kernel has the handle that the first one's had: a driver may give it again. */
static void load_in_place_of(CUfunction was, struct loaded *to)
{
	int tries = 0;
	do {
		*to = (struct loaded){0};
		load(to, "identity_second", "memory");
	} while (to->apply != was && ++tries < 64);
	fprintf(stderr, "handle given again: %d\n", to->apply == was);
}

static CUgraphExec capture(unsigned batch)
{
	CUgraph graph;
	CUgraphExec exec = NULL;
	load_all();
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	enqueue(batch);
	if (batch == 1 && has("during")) {
		CUfunction was = first.apply;
		unload(&first);
		load_in_place_of(was, &first);
	}
	TRY(cuStreamEndCapture, stream, &graph);
	if (md_cuda.cuGraphInstantiateWithFlags(&exec, graph, 0) != CUDA_SUCCESS)
		return NULL;
	TRY(cuGraphDestroy, graph);
	if (medusa_graph_label(exec, "g", batch) != MEDUSA_OK)
		fprintf(stderr, "label: %s\n", medusa_reason());
	return exec;
}

static void replay(CUgraphExec exec, unsigned batch)
{
	float values[N];
	for (int turn = 0; exec && turn < 2; turn++) {
		for (int i = 0; i < N; i++)
			values[i] = (float)(i + turn * 100 + (int)batch);
		TRY(cuMemcpyHtoD_v2, in, values, BYTES);
		TRY(cuCtxSynchronize); /* copies from pageable memory, for which the stream does not wait */
		TRY(cuGraphLaunch, exec, stream);
		TRY(cuStreamSynchronize, stream);
		TRY(cuMemcpyDtoH_v2, values, out, BYTES);
		printf("%u %d", batch, turn);
		for (int i = 0; i < N; i += 7)
			printf(" %g", (double)values[i]);
		printf("\n");
	}
}

static void lose_image(void)
{
	CUfunction was;
	load(&first, "identity_first", how);
	was = first.apply;
	launch(first.apply, out, in);
	TRY(cuStreamSynchronize, stream);
	unload(&first);
	load_in_place_of(was, &second);
}

static void lose_context(void)
{
	CUcontext before, context;
	CUfunction was;
	CUdeviceptr memory;
	int n = N;
	TRY(cuCtxGetCurrent, &before);
	TRY(cuCtxCreate_v2, &context, 0, 0);
	load(&first, "identity_first", how);
	was = first.apply;
	TRY(cuMemAlloc_v2, &memory, BYTES);
	TRY(cuLaunchKernel, was, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&memory, &memory, &n}, NULL);
	TRY(cuCtxSynchronize);
	TRY(cuCtxDestroy_v2, context);
	TRY(cuCtxSetCurrent, before);
	if (first.library)
		TRY(cuLibraryUnload, first.library);
	first = (struct loaded){0};
	load_in_place_of(was, &second);
}

int main(int argc, char **argv)
{
	static char *none[] = {NULL};
	CUgraphExec execs[GRAPHS + 1];
	struct md_error err = {0};
	struct medusa_stats stats = {.size = sizeof(stats)};
	CUcontext context;
	if (argc < 2 || md_cuda_load(&err) != MD_OK)
		return 2;
	folder = argv[1];
	how = argc > 2 ? argv[2] : how;
	words = argc > 3 ? argv + 3 : none;
	TRY(cuInit, 0);
	if (has("second"))
		load_library(&second, "identity_second");
	TRY(cuDevicePrimaryCtxRetain, &context, 0);
	TRY(cuCtxSetCurrent, context);
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	TRY(cuMemAlloc_v2, &in, BYTES);
	TRY(cuMemAlloc_v2, &out, BYTES);
	TRY(cuMemsetD8_v2, out, 0, BYTES);
	medusa_bind("in", in, BYTES, MEDUSA_BIND_INPUT);
	medusa_bind("out", out, BYTES, MEDUSA_BIND_STATE);
	medusa_trigger("third", pull, NULL);
	if (has("before"))
		lose_image();
	if (has("context"))
		lose_context();
	if (has("all"))
		load_all();
	for (unsigned batch = 1; batch <= GRAPHS; batch++) {
		void *exec = NULL;
		int result = medusa_graph_get("g", batch, UINT64_MAX, &exec);
		fprintf(stderr, "graph %u %s %s\n", batch, result == MEDUSA_OK ? "restored" : "live",
			result == MEDUSA_OK ? "" : medusa_reason());
		execs[batch] = result == MEDUSA_OK ? (CUgraphExec)exec : capture(batch);
	}
	for (unsigned batch = 1; batch <= GRAPHS; batch++)
		replay(execs[batch], batch);
	if (has("after"))
		unload(&first);
	medusa_mark("ready");
	if (medusa_stats_read(&stats) == MEDUSA_OK)
		fprintf(stderr, "kernels: loaded %u stored %u triggered %u\n", stats.kernels_loaded_image,
			stats.kernels_stored_image, stats.kernels_triggered);
	medusa_release();
	return 0;
}
