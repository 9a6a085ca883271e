/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix library: each of its kernels launched directly with shapes of all kinds, then the library as engines use
 * it. */
#include "tests/kernel_device.h"

#include <dlfcn.h>

#include "models/llama/gemm.h"
#include "models/llama/gemm_params.h"
#include "models/llama/reference.c"

#define BOUND 1e-5
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

TestSuite(gemm, .init = open_device);

/* One multiplication's operands on both sides. */
struct problem {
	int rows, n, k;
	float *host_x, *host_y;
	uint16_t *host_w;
	float *x, *y; /* device */
	uint16_t *w;
};

static struct problem create_problem(int rows, int n, int k)
{
	struct problem p = {.rows = rows, .n = n, .k = k};
	p.host_x = random_floats((size_t)rows * k, 21, 2);
	p.host_y = random_floats((size_t)rows * n, 22, 3);
	p.host_w = random_halves((size_t)n * k, 23, 1);
	p.x = uploaded(p.host_x, sizeof(float) * rows * k);
	p.w = uploaded(p.host_w, sizeof(uint16_t) * n * k);
	p.y = poisoned(sizeof(float) * rows * n);
	return p;
}

static void destroy_problem(struct problem *p)
{
	release(p->x);
	release(p->w);
	release(p->y);
	free(p->host_x);
	free(p->host_y);
	free(p->host_w);
}

static void reset_output(const struct problem *p, bool accumulate)
{
	const size_t bytes = sizeof(float) * p->rows * p->n;
	CU_OK(cuMemsetD8_v2, (CUdeviceptr)(uintptr_t)p->y, POISON, bytes);
	if (accumulate)
		CU_OK(cuMemcpyHtoD_v2, (CUdeviceptr)(uintptr_t)p->y, p->host_y, bytes);
}

static float *output(const struct problem *p)
{
	return downloaded(p->y, sizeof(float) * p->rows * p->n);
}

static void assert_product(const struct problem *p, bool accumulate, const char *what)
{
	const size_t n = (size_t)p->rows * p->n;
	double *want = malloc(n * sizeof(*want));
	float *got = output(p);
	char name[128];
	snprintf(name, sizeof(name), "%s %d x %d x %d%s", what, p->rows, p->n, p->k, accumulate ? " accumulated" : "");
	llama_reference_gemm(want, p->host_x, p->host_w, accumulate ? p->host_y : NULL, p->rows, p->n, p->k);
	assert_near(got, want, n, BOUND, name);
	free(want);
	free(got);
}

/* ---- the kernels themselves -------------------- */

struct direct {
	CUfunction function;
	CUlibrary library;
	float *workspace;
	uint32_t *counters;
	unsigned int tiles;
	int splits;
	const char *name;
};

static unsigned int ceiling(int value, int unit)
{
	return (unsigned int)((value + unit - 1) / unit);
}

static int columns_of(const struct problem *p)
{
	return on_hostcuda ? GEMM_HOST_COLUMNS : p->rows <= GEMM_FEW_ROWS ? GEMM_ROWS_COLUMNS : GEMM_TILE_COLUMNS;
}

static struct direct create_direct(const struct problem *p, const char *name, int splits)
{
	struct direct d = {.library = load_image("gemm_kernels"), .splits = splits, .name = name};
	d.function = find_kernel(d.library, name, true);
	d.tiles = ceiling(p->n, columns_of(p)) * ceiling(p->rows, GEMM_TILE_ROWS);
	d.workspace = poisoned(sizeof(float) * (size_t)splits * p->rows * p->n);
	d.counters = poisoned(sizeof(uint32_t) * d.tiles);
	CU_OK(cuMemsetD32_v2, (CUdeviceptr)(uintptr_t)d.counters, 0, d.tiles);
	return d;
}

static void destroy_direct(struct direct *d)
{
	release(d->workspace);
	release(d->counters);
	CU_OK(cuLibraryUnload, d->library);
}

static void launch_direct(const struct direct *d, const struct problem *p, bool accumulate)
{
	const bool split = strcmp(d->name, "gemm_split_k") == 0, tiled = strcmp(d->name, "gemm_tiled") == 0;
	struct gemm_params params;
	size_t size = sizeof(params);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &params, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			 CU_LAUNCH_PARAM_END};
	memset(&params, 0xa5, sizeof(params)); /* the padding must not matter */
	params.y = p->y;
	params.x = p->x;
	params.w = p->w;
	params.workspace = d->workspace;
	params.counters = d->counters;
	params.rows = p->rows;
	params.n = p->n;
	params.k = p->k;
	params.accumulate = accumulate;
	params.columns = columns_of(p);
	CU_OK(cuLaunchKernel, d->function, ceiling(p->n, columns_of(p)),
	      split   ? (unsigned int)d->splits
	      : tiled ? ceiling(p->rows, GEMM_TILE_ROWS)
		      : 1,
	      split ? ceiling(p->rows, GEMM_TILE_ROWS) : 1, GEMM_BLOCK, 1, 1, 0, NULL, NULL, extra);
}

static void assert_counters_zero(const struct direct *d)
{
	uint32_t *counters = downloaded(d->counters, sizeof(uint32_t) * d->tiles);
	for (unsigned int i = 0; i < d->tiles; i++)
		cr_assert_eq(counters[i], 0, "counter %u of %u is %u after the launch", i, d->tiles, counters[i]);
	free(counters);
}

/* Plain, then accumulated, then the same again: right, the same bits, and the counters as they were. */
static void check_kernel(const char *name, int rows, int n, int k, int splits)
{
	struct problem p = create_problem(rows, n, k);
	struct direct d = create_direct(&p, name, splits);
	float *first, *again;
	reset_output(&p, false);
	launch_direct(&d, &p, false);
	assert_product(&p, false, name);
	first = output(&p);
	assert_counters_zero(&d);
	reset_output(&p, true);
	launch_direct(&d, &p, true);
	assert_product(&p, true, name);
	assert_counters_zero(&d);
	for (int i = 0; i < 3; i++) {
		reset_output(&p, false);
		launch_direct(&d, &p, false);
		again = output(&p);
		cr_assert_eq(memcmp(first, again, sizeof(float) * rows * n), 0, "%s: a repeated launch gave other bits",
			     name);
		free(again);
	}
	free(first);
	destroy_direct(&d);
	destroy_problem(&p);
}

static const struct shape {
	int n, k;
} shapes[] = {{1, 1}, {3, 7}, {33, 40}, {17, 129}, {64, 576}, {130, 1000}, {65, 1037}};

Test(gemm, few_rows_kernel)
{
	for (size_t i = 0; i < COUNT(shapes); i++)
		for (int rows = 1; rows <= GEMM_FEW_ROWS; rows++)
			check_kernel("gemm_rows", rows, shapes[i].n, shapes[i].k, 1);
}

Test(gemm, tiled_kernel)
{
	const int rows[] = {1, 9, 16, 64, 65, 131};
	for (size_t i = 0; i < COUNT(shapes); i++)
		for (size_t j = 0; j < COUNT(rows); j++)
			check_kernel("gemm_tiled", rows[j], shapes[i].n, shapes[i].k, 1);
}

Test(gemm, split_k_kernel)
{
	const int rows[] = {1, 3, 8, 9, 64, 70};
	for (size_t i = 0; i < COUNT(shapes); i++)
		for (size_t j = 0; j < COUNT(rows); j++)
			for (int splits = 1; splits <= 8; splits += splits == 1 ? 2 : 5)
				check_kernel("gemm_split_k", rows[j], shapes[i].n, shapes[i].k, splits);
}

/* Operands at addresses that 16-byte loads can't take. */
Test(gemm, kernels_take_unaligned_operands)
{
	const char *const names[] = {"gemm_rows", "gemm_tiled", "gemm_split_k"};
	for (size_t i = 0; i < COUNT(names); i++) {
		struct problem p = create_problem(4, 50, 65), shifted = p;
		struct direct d = create_direct(&p, names[i], 2);
		/* one row and one column less, read from the second on: 65 elements further */
		shifted.rows = 3;
		shifted.n = 49;
		shifted.k = 64;
		shifted.y = poisoned(sizeof(float) * 3 * 49);
		shifted.x = p.x + 1;
		shifted.w = p.w + 1;
		memmove(shifted.host_x, p.host_x + 1, sizeof(float) * 3 * 64);
		memmove(shifted.host_w, p.host_w + 1, sizeof(uint16_t) * 49 * 64);
		launch_direct(&d, &shifted, false);
		assert_product(&shifted, false, names[i]);
		release(shifted.y);
		destroy_direct(&d);
		destroy_problem(&p);
	}
}

/* The counters decide which block adds up: with wrong ones nobody does, and y stays as it was. */
Test(gemm, split_k_needs_its_counters_zero)
{
	struct problem p = create_problem(5, 200, 2048);
	struct direct d = create_direct(&p, "gemm_split_k", 4);
	float *got;
	CU_OK(cuMemsetD32_v2, (CUdeviceptr)(uintptr_t)d.counters, 1000, d.tiles);
	launch_direct(&d, &p, false);
	got = output(&p);
	for (size_t i = 0; i < 5 * 200; i++)
		cr_assert(isnan(got[i]), "element %zu was written in spite of the poisoned counters", i);
	free(got);
	destroy_direct(&d);
	destroy_problem(&p);
}

/*
 * With two blocks and a counter that starts at 1, whoever counts first adds up and resets it. The other counts before
 * that or after it, and so leaves 0 or 1; no device promises which. 3 would mean that nobody added up.
 */
Test(gemm, split_k_adds_up_once_with_counters_that_were_off_by_one)
{
	struct problem p = create_problem(2, 64, 1024);
	struct direct d = create_direct(&p, "gemm_split_k", 2);
	uint32_t *counters;
	CU_OK(cuMemsetD32_v2, (CUdeviceptr)(uintptr_t)d.counters, 1, d.tiles);
	launch_direct(&d, &p, false);
	counters = downloaded(d.counters, sizeof(uint32_t) * d.tiles);
	for (unsigned int i = 0; i < d.tiles; i++)
		cr_assert_leq(counters[i], 1, "counter %u is %u", i, counters[i]);
	free(counters);
	destroy_direct(&d);
	destroy_problem(&p);
}

/* On hostcuda: the first row's bits do not depend on how many rows come after it. */
Test(gemm, host_rows_do_not_depend_on_the_batch)
{
	const int batches[] = {2, 3, 4, 7, 8, 70};
	struct problem one = create_problem(1, 77, 301);
	struct direct d;
	float *want;
	if (!on_hostcuda) {
		destroy_problem(&one);
		cr_skip("only promised by the hostcuda kernels");
	}
	d = create_direct(&one, "gemm_tiled", 1);
	launch_direct(&d, &one, false);
	want = output(&one);
	for (size_t i = 0; i < COUNT(batches); i++) {
		struct problem p = create_problem(batches[i], 77, 301); /* the same generator: row 0 is the same */
		float *got;
		launch_direct(&d, &p, false);
		got = output(&p);
		cr_assert_eq(memcmp(want, got, sizeof(float) * 77), 0, "row 0 differs in a batch of %d", batches[i]);
		free(got);
		destroy_problem(&p);
	}
	free(want);
	destroy_direct(&d);
	destroy_problem(&one);
}

/* ---- the library -------------------- */

static struct {
	void *handle;
	__typeof__(llama_gemm_create) *create;
	__typeof__(llama_gemm_run) *run;
	__typeof__(llama_gemm_destroy) *destroy;
} gemm;

static void open_library(void)
{
	char path[4096];
	open_device();
	build_path(path, sizeof(path), "libllama-gemm.so");
	gemm.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	cr_assert(gemm.handle, "%s", dlerror());
	gemm.create = (__typeof__(gemm.create))dlsym(gemm.handle, "llama_gemm_create");
	gemm.run = (__typeof__(gemm.run))dlsym(gemm.handle, "llama_gemm_run");
	gemm.destroy = (__typeof__(gemm.destroy))dlsym(gemm.handle, "llama_gemm_destroy");
	cr_assert(gemm.create && gemm.run && gemm.destroy);
}

TestSuite(gemm_library, .init = open_library);

static float *library_product(struct llama_gemm *handle, int rows, int n, int k)
{
	struct problem p = create_problem(rows, n, k);
	cr_assert_eq(gemm.run(handle, NULL, p.y, p.x, p.w, rows, n, k, 0, 0), CUDA_SUCCESS);
	float *got = output(&p);
	destroy_problem(&p);
	return got;
}

/* On hostcuda: a token's bits do not depend on the batch, though the library chooses another kernel for each size. */
Test(gemm_library, host_rows_do_not_depend_on_the_kernel)
{
	const int batches[] = {2, 8, 9, 64, 65, 128};
	const struct shape all[] = {{192, 1536}, {96, 2050}, {640, 2048}, {640, 1024}, {100, 576}};
	struct llama_gemm *handle;
	if (!on_hostcuda)
		cr_skip("only promised by the hostcuda kernels");
	cr_assert_eq(gemm.create(&handle, 128, 1000), CUDA_SUCCESS);
	for (size_t i = 0; i < COUNT(all); i++) {
		float *want = library_product(handle, 1, all[i].n, all[i].k);
		for (size_t j = 0; j < COUNT(batches); j++) {
			float *got = library_product(handle, batches[j], all[i].n, all[i].k);
			cr_assert_eq(memcmp(want, got, sizeof(float) * all[i].n), 0,
				     "%d x %d: row 0 differs in a batch of %d", all[i].n, all[i].k, batches[j]);
			free(got);
		}
		free(want);
	}
	gemm.destroy(handle);
}

/* Shapes for each branch of its choice; each twice, so that a counter left dirty would show. */
Test(gemm_library, multiplies_whatever_kernel_it_chooses)
{
	const int cases[][3] = {{1, 576, 576},  {8, 100, 96},   {9, 300, 64},   {100, 130, 200}, {1, 192, 1536},
				{8, 192, 1536}, {64, 96, 2050}, {65, 96, 2050}, {20, 640, 2048}};
	struct llama_gemm *handle;
	cr_assert_eq(gemm.create(&handle, 128, 1000), CUDA_SUCCESS);
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct problem p = create_problem(cases[i][0], cases[i][1], cases[i][2]);
		for (int accumulate = 0; accumulate < 2; accumulate++)
			for (int pdl = 0; pdl < 2; pdl++) {
				reset_output(&p, accumulate);
				cr_assert_eq(gemm.run(handle, NULL, p.y, p.x, p.w, p.rows, p.n, p.k, accumulate, pdl),
					     CUDA_SUCCESS);
				assert_product(&p, accumulate, "library");
			}
		destroy_problem(&p);
	}
	gemm.destroy(handle);
}

Test(gemm_library, refuses_what_it_has_no_room_for)
{
	struct problem p = create_problem(2, 8, 8);
	struct llama_gemm *handle = NULL;
	cr_assert_eq(gemm.create(NULL, 1, 1), CUDA_ERROR_INVALID_VALUE);
	cr_assert_eq(gemm.create(&handle, 0, 1), CUDA_ERROR_INVALID_VALUE);
	cr_assert_eq(gemm.create(&handle, 1, 8), CUDA_SUCCESS);
	cr_assert_eq(gemm.run(handle, NULL, p.y, p.x, p.w, 2, 8, 8, 0, 0), CUDA_ERROR_INVALID_VALUE, "too many rows");
	cr_assert_eq(gemm.run(handle, NULL, p.y, p.x, p.w, 1, 9, 8, 0, 0), CUDA_ERROR_INVALID_VALUE, "too wide");
	cr_assert_eq(gemm.run(handle, NULL, p.y, p.x, NULL, 1, 8, 8, 0, 0), CUDA_ERROR_INVALID_VALUE, "no weights");
	gemm.destroy(handle);
	gemm.destroy(NULL);
	destroy_problem(&p);
}

Test(gemm_library, exports_its_interface_alone)
{
	const char *const hidden[] = {"gemm_host_image_begin", "gemm_fatbin_begin", "gemm_rows",
				      "hostcuda_kernel_gemm_rows"};
	for (size_t i = 0; i < COUNT(hidden); i++)
		cr_assert_null(dlsym(gemm.handle, hidden[i]), "%s is exported", hidden[i]);
}

/* Hidden as a vendor's kernels are: enumeration alone finds them. */
Test(gemm, kernels_are_hidden)
{
	CUlibrary library = load_image("gemm_kernels");
	const char *const names[] = {"gemm_rows", "gemm_tiled", "gemm_split_k"};
	CUkernel kernel;
	for (size_t i = 0; i < COUNT(names); i++) {
		find_kernel(library, names[i], true);
		cr_assert_neq(md_cuda.cuLibraryGetKernel(&kernel, library, names[i]), CUDA_SUCCESS, "%s by name",
			      names[i]);
	}
	CU_OK(cuLibraryUnload, library);
}

/* Down projection after down projection with pdl: captured, replayed twice, right each time. */
Test(gemm_library, works_in_a_captured_graph)
{
	struct problem p = create_problem(4, 64, 1536);
	struct llama_gemm *handle;
	CUstream stream;
	CUgraph graph;
	CUgraphExec executable;
	CU_OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	cr_assert_eq(gemm.create(&handle, 8, 64), CUDA_SUCCESS);
	/* the first call loads the image, which no capture would allow */
	cr_assert_eq(gemm.run(handle, stream, p.y, p.x, p.w, 4, 64, 1536, 0, 1), CUDA_SUCCESS);
	CU_OK(cuStreamSynchronize, stream);
	CU_OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(gemm.run(handle, stream, p.y, p.x, p.w, 4, 64, 1536, i, 1), CUDA_SUCCESS);
	CU_OK(cuStreamEndCapture, stream, &graph);
	CU_OK(cuGraphInstantiateWithFlags, &executable, graph, 0);
	for (int replay = 0; replay < 2; replay++) {
		double want[4 * 64];
		float *got;
		reset_output(&p, false);
		CU_OK(cuCtxSynchronize, );
		CU_OK(cuGraphLaunch, executable, stream);
		got = output(&p);
		llama_reference_gemm(want, p.host_x, p.host_w, NULL, 4, 64, 1536);
		for (int i = 0; i < 4 * 64; i++)
			want[i] *= 2; /* the second node accumulates onto the first */
		assert_near(got, want, 4 * 64, BOUND, "replay");
		free(got);
	}
	CU_OK(cuGraphExecDestroy, executable);
	CU_OK(cuGraphDestroy, graph);
	gemm.destroy(handle);
	CU_OK(cuStreamDestroy_v2, stream);
	destroy_problem(&p);
}
