/* SPDX-License-Identifier: Apache-2.0 */
/* An engine that uses its memory while that is still on its way in: in all the ways by which a kernel finds memory. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "tests/subjects/image_file.h"
#include "tests/subjects/subject.h"

/*
 * argv[1]: the image tables_kernels. argv[2]: threads that launch all the time, and compare what they get. stdin, line by
 * line; each prints its name and a sum:
 *   layers     kernels with one layer's weights each
 *   small      a kernel that uses memory of its own alone
 *   graph      the same layers by a graph
 *   lists      a kernel that finds its rows in a table of addresses
 *   moved      the same with a table that was copied on the device
 *   given      the same with a table that was copied from the host
 *   made       the same with a table that a graph of copies made
 *   pinned     the same with a table in page-locked memory of the host
 *   edge       the same with a table in which addresses lie at a multiple of 4, across the border of two blocks
 *   protect    takes the right to write from memory that the engine has mapped itself, and reads it by a kernel
 *   alias      writes such memory by another address of it, and reads it by the first one
 *   again      maps such memory at one more address, which a kernel finds in a table
 *   join       maps new memory just before such memory, and reads both by one address
 *   variable   a kernel that finds a row by a variable of its module
 *   far        a kernel that finds a row by its distance from another allocation, which nobody can see
 *   padding    a kernel with a parameter that looks like an address in the pool of medusa-swap, and is never used
 *   read       a copy to the host
 *   write      a copy from the host, and a set, over parts of the weights
 *   renew      frees some weights, and allocates others
 *   sum        the sum of all memory
 */
enum { WORDS = 1 << 20, LAYERS = 12, ROWS = 4, THREADS_MOST = 8, RESULTS = 256 };
#define BYTES (WORDS * sizeof(uint32_t))

static CUcontext context;
static CUfunction pair, lists, relative, named;
static CUdeviceptr state[2], weights[LAYERS], rows[ROWS], table, moved, index_memory, scratch, wide;
static CUmemGenericAllocationHandle twin_handle;
static CUdeviceptr held, twin[3]; /* memory that the engine has mapped itself, once and twice; addresses for more */
static CUgraphExec graph, copies;
static CUstream stream, other;
static uint64_t *pinned;
static uint32_t *values;
static atomic_bool stop;
static atomic_uint wrong;

static void launch_pair(CUstream on, CUdeviceptr out, CUdeviceptr in, CUdeviceptr row, uint32_t n)
{
	void *params[] = {&out, &in, &row, &row, &index_memory, &n};
	TRY(cuLaunchKernel, pair, 1, 1, 1, 1, 1, 1, 0, on, params, NULL);
}

static void launch_lists(CUstream on, CUdeviceptr from, uint32_t count)
{
	uint32_t n = WORDS;
	void *params[] = {&state[1], &state[0], &from, &index_memory, &count, &n};
	TRY(cuLaunchKernel, lists, 1, 1, 1, 1, 1, 1, 0, on, params, NULL);
	TRY(cuStreamSynchronize, on);
}

static uint64_t sum_of(CUdeviceptr memory, size_t words)
{
	uint64_t sum = 0;
	TRY(cuMemcpyDtoH_v2, values, memory, words * sizeof(uint32_t));
	for (size_t i = 0; i < words; i++)
		sum = sum * 31 + values[i];
	return sum;
}

static CUdeviceptr make(uint32_t first)
{
	CUdeviceptr memory;
	TRY(cuMemAlloc_v2, &memory, BYTES);
	for (uint32_t i = 0; i < WORDS; i++)
		values[i] = (first + i) * 2654435761u;
	TRY(cuMemcpyHtoD_v2, memory, values, BYTES);
	return memory;
}

/* ---- memory that the engine maps itself ---- */

enum { HELD = BYTES };

static const CUmemAllocationProp held_kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

static void allow(CUdeviceptr at, CUmemAccess_flags flags)
{
	CUmemAccessDesc access = {.location = held_kind.location, .flags = flags};
	TRY(cuMemSetAccess, at, HELD, &access, 1);
}

static void map_held(CUdeviceptr at, CUmemGenericAllocationHandle handle)
{
	TRY(cuMemMap, at, HELD, 0, handle, 0);
	allow(at, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

static CUdeviceptr make_held(CUmemGenericAllocationHandle *handle)
{
	CUdeviceptr place;
	TRY(cuMemAddressReserve, &place, 2 * HELD, 0, 0, 0);
	TRY(cuMemCreate, handle, HELD, &held_kind, 0);
	map_held(place + HELD, *handle);
	for (uint32_t i = 0; i < WORDS; i++)
		values[i] = i * 40503u;
	TRY(cuMemcpyHtoD_v2, place + HELD, values, HELD);
	return place + HELD; /* nothing is mapped just before it */
}

static void make_both(void)
{
	CUmemGenericAllocationHandle handle;
	held = make_held(&handle);
	twin[0] = make_held(&twin_handle);
	for (unsigned i = 1; i < 3; i++) {
		TRY(cuMemAddressReserve, &twin[i], 2 * HELD, 0, 0, 0);
		twin[i] += HELD;
	}
	map_held(twin[1], twin_handle);
}

/* ---- threads ---- */

static void *launch_all_the_time(void *argument)
{
	enum { N = 1 << 10 };
	uint32_t seed = (uint32_t)(uintptr_t)argument, there[N], back[N];
	CUdeviceptr one, two;
	CUstream own;
	TRY(cuCtxSetCurrent, context);
	TRY(cuStreamCreate, &own, CU_STREAM_NON_BLOCKING);
	TRY(cuMemAlloc_v2, &one, sizeof(there));
	TRY(cuMemAlloc_v2, &two, sizeof(there));
	for (uint32_t turn = 0; !atomic_load(&stop); turn++) {
		for (uint32_t i = 0; i < N; i++)
			there[i] = seed + turn + i;
		TRY(cuMemcpyHtoDAsync_v2, one, there, sizeof(there), own);
		launch_pair(own, two, one, one, N);
		TRY(cuMemcpyDtoHAsync_v2, back, two, sizeof(back), own);
		TRY(cuStreamSynchronize, own);
		for (uint32_t i = 0; i < N; i++)
			if (back[i] != 2 * there[i])
				atomic_fetch_add(&wrong, 1);
	}
	return NULL;
}

/* ---- setting up ---- */

static void layers_on(CUstream on)
{
	for (unsigned i = 0; i < LAYERS; i++)
		launch_pair(on, state[(i + 1) % 2], state[i % 2], weights[i], WORDS);
}

static void capture(void)
{
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	layers_on(stream);
	graph = end_capture(stream);
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	TRY(cuMemcpyDtoDAsync_v2, moved, table, ROWS * sizeof(CUdeviceptr), stream);
	copies = end_capture(stream);
}

static void set_up_tables(void)
{
	CUdeviceptr later[ROWS];
	TRY(cuMemAlloc_v2, &table, BYTES);
	TRY(cuMemAlloc_v2, &moved, BYTES);
	TRY(cuMemAlloc_v2, &wide, 2 * BYTES);
	TRY(cuMemAlloc_v2, &index_memory, BYTES);
	TRY(cuMemAlloc_v2, &scratch, 4096);
	TRY(cuMemHostAlloc, (void **)&pinned, 4096, 0);
	TRY(cuMemsetD8_v2, table, 0, BYTES);
	TRY(cuMemsetD8_v2, moved, 0, BYTES);
	TRY(cuMemsetD8_v2, wide, 0, 2 * BYTES);
	TRY(cuMemsetD32_v2, index_memory, 2, WORDS);
	TRY(cuMemcpyHtoD_v2, table + 64, rows, sizeof(rows));
	memcpy(pinned, rows, sizeof(rows));
	/* address 2 of a table that begins 20 bytes before the border lies half on one side */
	TRY(cuMemcpyHtoD_v2, wide + (2u << 20) - 20, rows, sizeof(rows));
	TRY(cuMemsetD32_v2, scratch, 0, 1024);
	for (unsigned i = 0; i < ROWS; i++)
		later[i] = twin[2];
	TRY(cuMemcpyHtoD_v2, table + 4096, later, sizeof(later));
}

static void set_up(const char *path)
{
	void *image = read_file(path);
	CUmodule module;
	CUdeviceptr variable;
	size_t bytes;
	values = malloc(BYTES);
	TRY(cuModuleLoadData, &module, image);
	TRY(cuModuleGetFunction, &pair, module, "tables_pair");
	TRY(cuModuleGetFunction, &lists, module, "tables_lists");
	TRY(cuModuleGetFunction, &relative, module, "tables_rows");
	TRY(cuModuleGetFunction, &named, module, "tables_named");
	TRY(cuModuleGetGlobal_v2, &variable, &bytes, module, "tables_row");
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	TRY(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
	for (unsigned i = 0; i < 2; i++)
		state[i] = make(100 + i);
	for (unsigned i = 0; i < LAYERS; i++)
		weights[i] = make(1000 * i);
	for (unsigned i = 0; i < ROWS; i++)
		rows[i] = make(77777 * i);
	TRY(cuMemcpyHtoD_v2, variable, &rows[ROWS - 1], sizeof(rows[0]));
	make_both();
	set_up_tables();
	capture();
	free(image);
}

/* ---- what is asked ---- */

static void give_table(void)
{
	CUdeviceptr there[ROWS];
	memcpy(there, rows, sizeof(rows));
	TRY(cuMemcpyHtoDAsync_v2, scratch, there, sizeof(there), other);
	TRY(cuStreamSynchronize, other);
	launch_lists(stream, scratch, ROWS);
}

static void move_table(void)
{
	TRY(cuMemcpyDtoDAsync_v2, moved, table + 64, sizeof(rows), other);
	TRY(cuStreamSynchronize, other);
	launch_lists(stream, moved, ROWS);
}

static void write_some(void)
{
	for (uint32_t i = 0; i < 1000; i++)
		values[i] = i;
	TRY(cuMemcpyHtoD_v2, weights[3] + 4096, values, 4000);
	TRY(cuMemsetD32Async, weights[4] + 4096, 7, 1000, stream);
	TRY(cuStreamSynchronize, stream);
}

static CUmemoryPool pool_in_use(void)
{
	CUmemoryPool pool;
	CUdeviceptr memory;
	TRY(cuDeviceGetDefaultMemPool, &pool, 0);
	TRY(cuMemAllocAsync, &memory, 4096, stream);
	TRY(cuMemFreeAsync, memory, stream);
	return pool;
}

/* What is freed is unmapped, and not kept. */
static void renew_some(void)
{
	CUmemoryPool pool = pool_in_use();
	for (unsigned i = 0; i < LAYERS; i += 4) {
		TRY(cuMemFree_v2, weights[i]);
		TRY(cuMemPoolTrimTo, pool, 0);
		weights[i] = make(5000 + i);
	}
	TRY(cuGraphExecDestroy, graph);
	TRY(cuGraphExecDestroy, copies);
	capture();
}

static uint64_t sum_all(void)
{
	uint64_t sum = sum_of(state[0], WORDS);
	for (unsigned i = 0; i < LAYERS; i++)
		sum = sum * 3 + sum_of(weights[i], WORDS);
	for (unsigned i = 0; i < ROWS; i++)
		sum = sum * 3 + sum_of(rows[i], WORDS);
	return sum;
}

static uint64_t do_layers(void)
{
	layers_on(stream);
	TRY(cuStreamSynchronize, stream);
	return sum_of(state[0], WORDS);
}

static uint64_t do_graph(void)
{
	TRY(cuGraphLaunch, graph, stream);
	TRY(cuStreamSynchronize, stream);
	return sum_of(state[0], WORDS);
}

static uint64_t do_small(void)
{
	launch_pair(stream, scratch, scratch, scratch, RESULTS);
	TRY(cuStreamSynchronize, stream);
	return sum_of(scratch, RESULTS);
}

static uint64_t do_lists(void)
{
	launch_lists(stream, table + 64, ROWS);
	return sum_of(state[1], WORDS);
}

static uint64_t do_moved(void)
{
	move_table();
	return sum_of(state[1], WORDS);
}

static uint64_t do_given(void)
{
	give_table();
	return sum_of(state[1], WORDS);
}

static uint64_t do_made(void)
{
	TRY(cuGraphLaunch, copies, other);
	TRY(cuStreamSynchronize, other);
	launch_lists(stream, moved, 1); /* its first words are zeros: row 2 does not exist */
	return sum_of(moved, 64);
}

static uint64_t do_pinned(void)
{
	launch_lists(stream, (CUdeviceptr)(uintptr_t)pinned, ROWS);
	return sum_of(state[1], WORDS);
}

static uint64_t do_edge(void)
{
	launch_lists(stream, wide + (2u << 20) - 20, ROWS);
	return sum_of(state[1], WORDS);
}

static uint64_t read_held(CUdeviceptr from, uint32_t words)
{
	launch_pair(stream, state[1], state[0], from, words);
	TRY(cuStreamSynchronize, stream);
	return sum_of(state[1], words);
}

static uint64_t do_protect(void)
{
	allow(held, CU_MEM_ACCESS_FLAGS_PROT_READ);
	uint64_t sum = read_held(held, WORDS);
	allow(held, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	return sum;
}

static uint64_t do_alias(void)
{
	TRY(cuMemsetD32Async, twin[0] + 4096, 7, 1000, stream);
	TRY(cuMemsetD32Async, twin[1] + 65536, 7, 1000, stream);
	TRY(cuStreamSynchronize, stream);
	return read_held(twin[0], WORDS) + read_held(twin[1], WORDS);
}

static uint64_t do_again(void)
{
	map_held(twin[2], twin_handle);
	launch_lists(stream, table + 4096, ROWS);
	TRY(cuMemUnmap, twin[2], HELD);
	return sum_of(state[1], WORDS);
}

static uint64_t do_join(void)
{
	CUmemGenericAllocationHandle handle;
	uint32_t words = 1 << 17; /* half of them are farther from the old memory than an address may lie beside it */
	TRY(cuMemCreate, &handle, HELD, &held_kind, 0);
	map_held(held - HELD, handle);
	TRY(cuMemsetD32Async, held - HELD, 5, WORDS, stream);
	uint64_t sum = read_held(held - words / 2 * sizeof(uint32_t), words);
	TRY(cuMemUnmap, held - HELD, HELD);
	TRY(cuMemRelease, handle);
	return sum;
}

static uint64_t do_variable(void)
{
	uint32_t n = WORDS;
	void *params[] = {&state[1], &n};
	TRY(cuLaunchKernel, named, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
	TRY(cuStreamSynchronize, stream);
	return sum_of(state[1], WORDS);
}

static uint64_t do_far(void)
{
	uint32_t distance = (uint32_t)((rows[0] - weights[0]) / sizeof(uint32_t)), all = UINT32_MAX, n = 1;
	CUdeviceptr where = scratch + 2048;
	void *params[] = {&scratch, &scratch, &weights[0], &where, &all, &n};
	TRY(cuMemcpyHtoD_v2, where, &distance, sizeof(distance));
	TRY(cuLaunchKernel, relative, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
	TRY(cuStreamSynchronize, stream);
	return sum_of(scratch, 1);
}

/* What is left over in padding may look like any address of the process. */
static CUdeviceptr address_in_pool(void)
{
	char line[512];
	unsigned long long start = 0;
	FILE *maps = fopen("/proc/self/maps", "re");
	while (maps && fgets(line, sizeof(line), maps) && !strstr(line, "/memfd:medusa-swap-pool"))
		;
	if (maps && !feof(maps))
		sscanf(line, "%llx", &start);
	if (maps)
		fclose(maps);
	return start ? start + (64u << 20) : 0;
}

static uint64_t do_padding(void)
{
	uint32_t n = 0;
	CUdeviceptr padding = address_in_pool();
	void *params[] = {&scratch, &scratch, &scratch, &padding, &scratch, &n};
	TRY(cuLaunchKernel, pair, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
	TRY(cuStreamSynchronize, stream);
	return sum_of(state[0], RESULTS);
}

static uint64_t do_read(void)
{
	return sum_of(weights[LAYERS - 1], 1000);
}

static uint64_t do_write(void)
{
	write_some();
	return sum_of(weights[3], WORDS) + sum_of(weights[4], WORDS);
}

static uint64_t do_renew(void)
{
	renew_some();
	return do_layers();
}

static const struct {
	const char *name;
	uint64_t (*run)(void);
} things[] = {
    {"layers", do_layers}, {"graph", do_graph}, {"small", do_small},       {"lists", do_lists},
    {"moved", do_moved},   {"given", do_given}, {"made", do_made},         {"pinned", do_pinned},
    {"edge", do_edge},     {"read", do_read},   {"far", do_far},           {"write", do_write},
    {"renew", do_renew},   {"sum", sum_all},    {"protect", do_protect},   {"alias", do_alias},
    {"again", do_again},   {"join", do_join},   {"variable", do_variable}, {"padding", do_padding},
};

static void obey(const char *line)
{
	for (size_t i = 0; i < sizeof(things) / sizeof(things[0]); i++)
		if (!strncmp(line, things[i].name, strlen(things[i].name)))
			printf("%s %016llx\n", things[i].name, (unsigned long long)things[i].run());
	if (!strncmp(line, "exit", 4))
		exit(6);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS_MOST];
	char line[256];
	int count = argc > 2 ? atoi(argv[2]) : 0;
	if (argc < 2 || count > THREADS_MOST)
		return 2;
	load_driver();
	context = open_context();
	set_up(argv[1]);
	for (int i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, launch_all_the_time, (void *)(uintptr_t)(100 * i)))
			return 9;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		obey(line);
	atomic_store(&stop, true);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	printf("wrong %u\n", atomic_load(&wrong));
	return 0;
}
