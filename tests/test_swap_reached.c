/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In with overlap, through the layer: which memory each call waits for. Nothing is carried in the background, so memory
 * counts as on its way until the test has it settled.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "swap/arrival.h"
#include "swap/exchange.h"
#include "swap/gate.h"
#include "swap/graph_words.h"
#include "swap/layer.h"
#include "swap/reach.h"
#include "tests/fine.h"
#include "tests/hostcuda_fixture.h"

#define MB ((size_t)1 << 20)
#define LARGE (4 * MB)
#define POOL (256 * MB)

static bool may_all_be_lost(uint64_t address, uint64_t bytes)
{
	(void)address, (void)bytes;
	return false;
}

static struct md_cuda table; /* through which bytes come */
static const struct md_swap_below below = {.driver = &table,
					   .close_gate = md_swap_gate_close,
					   .open_gate = md_swap_gate_open,
					   .list = md_swap_memory_list,
					   .unmap = md_swap_memory_unmap,
					   .map = md_swap_memory_map,
					   .discardable = may_all_be_lost};
static struct md_swap_pool *pool;
static struct md_swap_exchange *exchange;
static CUfunction scale;
static CUdeviceptr old;

static CUdeviceptr allocated(size_t bytes)
{
	CUdeviceptr address;
	ok(md_cuda.cuMemAlloc_v2(&address, bytes));
	ok(md_cuda.cuMemsetD32_v2(address, 3, bytes / 4));
	return address;
}

static void set_up(void)
{
	int fd = -1;
	device_open();
	setenv("MEDUSA_SWAP_CONTROL", "none", 1); /* behind the context, so that nobody connects */
	struct md_cuda own = md_swap_real;
	md_swap_layer(&own); /* the reference brings the layer into this program */
	table = md_swap_real;
	fine(md_swap_pool_create(POOL, &fd, &err));
	fine(md_swap_pool_open(fd, &pool, &err));
	close(fd);
	fine(md_swap_exchange_create(&below, pool, &exchange, &err));
	scale = function_named(load_whole_module(), "scale");
	old = allocated(LARGE);
}

TestSuite(swap_reached, .init = set_up, .timeout = 120);

static void out_and_in(void)
{
	struct md_swap_settings settings = {.deadline_ns = 10000000000, .overlap = true};
	struct md_swap_report report;
	fine(md_swap_out(exchange, &settings, &report, &err));
	while (md_swap_exchange_look(exchange))
		;
	fine(md_swap_in(exchange, &settings, &report, &err));
	cr_assert(md_swap_exchange_is_arriving(exchange), "bytes are on their way");
}

/* ---- what launches waited for ---- */

enum waited { NOTHING, SOME, ALL };

static enum waited waited_since(const struct md_swap_arrival_counts *before)
{
	struct md_swap_arrival_counts now;
	md_swap_arrival_count(&now);
	cr_assert_eq(now.launches_free + now.launches_some + now.launches_all,
		     before->launches_free + before->launches_some + before->launches_all + 1, "one launch");
	return now.launches_all > before->launches_all     ? ALL
	       : now.launches_some > before->launches_some ? SOME
							   : NOTHING;
}

/* A kernel that is given an address and touches nothing. */
static CUresult launch(CUstream stream, CUdeviceptr address)
{
	int32_t factor = 2, n = 0;
	void *params[] = {&address, &factor, &n};
	return md_cuda.cuLaunchKernel(scale, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static enum waited launched(CUdeviceptr address)
{
	struct md_swap_arrival_counts before;
	md_swap_arrival_count(&before);
	ok(launch(NULL, address));
	return waited_since(&before);
}

static enum waited launched_graph(CUgraphExec graph)
{
	struct md_swap_arrival_counts before;
	md_swap_arrival_count(&before);
	ok(md_cuda.cuGraphLaunch(graph, NULL));
	return waited_since(&before);
}

#define assert_waited(what, call) cr_assert_eq((call), (what), "line %d: %s", __LINE__, #call)

/* Whether the last wish had the memory, with all that it leads to. */
static bool was_reached(CUdeviceptr address)
{
	bool reached = false;
	pthread_mutex_lock(&md_swap_arrival_lock);
	const struct md_swap_arrival *a = &md_swap_arrival;
	for (uint32_t i = 0; i < a->part_count; i++)
		if (address - a->parts[i].address < a->parts[i].bytes)
			reached = a->parts[i].reached == a->wish;
	pthread_mutex_unlock(&md_swap_arrival_lock);
	return reached;
}

Test(swap_reached, memory_that_was_out_and_memory_that_is_new)
{
	CUdeviceptr other = allocated(LARGE);
	out_and_in();
	assert_waited(NOTHING, launched(allocated(LARGE)));
	assert_waited(SOME, launched(old));
	cr_assert(was_reached(old) && !was_reached(other), "its own memory alone");
}

/* ---- host memory comes ---- */

static void *host_pages(size_t bytes)
{
	void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(pages, MAP_FAILED, "no memory");
	return pages;
}

Test(swap_reached, host_memory_that_is_locked_later)
{
	char *pages = host_pages(8 * MB), *known = pages, *mentioned = pages + 2 * MB, *plain = pages + 5 * MB;
	ok(md_cuda.cuMemHostRegister_v2(known, 4096, 0));
	ok(md_cuda.cuMemcpyHtoD_v2(old, &mentioned, sizeof(mentioned)));
	out_and_in();
	CUdeviceptr young = allocated(LARGE);
	assert_waited(NOTHING, launched(young));
	assert_waited(NOTHING, launched((CUdeviceptr)(uintptr_t)plain));
	ok(md_cuda.cuMemHostRegister_v2(plain, 4096, 0));
	assert_waited(ALL, launched((CUdeviceptr)(uintptr_t)plain));
	assert_waited(NOTHING, launched(young));
	ok(md_cuda.cuMemHostRegister_v2(mentioned, 4096, 0));
	assert_waited(ALL, launched(young));
}

Test(swap_reached, host_memory_at_any_multiple_of_4_bytes)
{
	uint32_t words[6] = {0};
	char *pages = host_pages(4096);
	ok(md_cuda.cuMemHostRegister_v2(pages, 4096, 0));
	memcpy(words + 3, &pages, sizeof(pages));
	out_and_in();
	struct md_swap_arrival_counts before;
	md_swap_arrival_count(&before);
	md_swap_wish_begin();
	md_swap_wish_bytes(words, sizeof(words));
	ok(md_swap_wish_await(NULL, true));
	assert_waited(ALL, waited_since(&before));
}

/* ---- copies ---- */

static enum waited copied_to(CUdeviceptr to, const void *from, size_t bytes)
{
	struct md_swap_arrival_counts before;
	md_swap_arrival_count(&before);
	md_swap_wish_begin();
	md_swap_wish_source((uint64_t)(uintptr_t)from, bytes, to);
	ok(md_swap_wish_await(NULL, true));
	return waited_since(&before);
}

Test(swap_reached, words_count_at_multiples_of_4_bytes_of_where_they_go)
{
	uint8_t bytes[64] = {0};
	out_and_in();
	CUdeviceptr young = allocated(LARGE);
	memcpy(bytes + 14, &old, sizeof(old));
	assert_waited(NOTHING, copied_to(young, bytes, sizeof(bytes)));
	assert_waited(SOME, copied_to(young + 2, bytes, sizeof(bytes)));
	assert_waited(SOME, copied_to(young + 6, bytes, sizeof(bytes)));
}

/* ---- memory that the engine maps ---- */

static void map_at(CUdeviceptr address, CUmemAccess_flags flags)
{
	CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemAccessDesc access = {.location = kind.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	ok(md_cuda.cuMemCreate(&handle, 2 * MB, &kind, 0));
	ok(md_cuda.cuMemMap(address, 2 * MB, 0, handle, 0));
	ok(md_cuda.cuMemSetAccess(address, 2 * MB, &access, 1));
	ok(md_cuda.cuMemsetD32_v2(address, 5, 2 * MB / 4));
	ok(md_cuda.cuCtxSynchronize());
	access.flags = flags;
	ok(md_cuda.cuMemSetAccess(address, 2 * MB, &access, 1));
}

Test(swap_reached, mappings_with_one_that_stays_between_them)
{
	CUdeviceptr place;
	ok(md_cuda.cuMemAddressReserve(&place, 10 * MB, 0, 0, 0));
	map_at(place, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	map_at(place + 2 * MB, CU_MEM_ACCESS_FLAGS_PROT_READ);
	map_at(place + 4 * MB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	map_at(place + 8 * MB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	out_and_in();
	assert_waited(SOME, launched(place));
	cr_assert(was_reached(place) && was_reached(place + 4 * MB), "what follows without a gap");
	cr_assert_not(was_reached(place + 8 * MB), "what follows after a gap");
	assert_waited(ALL, launched(place + 2 * MB + 256 * 1024));
}

/* ---- what nobody sees ---- */

Test(swap_reached, a_heap_for_kernels)
{
	CUdeviceptr young;
	ok(md_cuda.cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8 * MB));
	out_and_in();
	young = allocated(LARGE);
	assert_waited(ALL, launched(young));
}

static CUgraph captured(void)
{
	CUgraph graph;
	CUstream stream;
	ok(md_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ok(md_cuda.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	ok(launch(stream, old));
	ok(md_cuda.cuStreamEndCapture(stream, &graph));
	return graph;
}

static CUgraphExec instantiated(CUgraph graph)
{
	CUgraphExec exec;
	ok(md_cuda.cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

Test(swap_reached, graphs)
{
	CUgraphNode node;
	size_t count = 1;
	CUlaunchAttributeValue value = {.deviceUpdatableKernelNode = {.deviceUpdatable = 1}};
	CUgraph graph = captured();
	CUgraphExec plain = instantiated(graph);
	ok(md_cuda.cuGraphGetNodes(graph, &node, &count));
	ok(md_cuda.cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value));
	CUgraphExec updatable = instantiated(graph);
	setenv("MEDUSA_SWAP_OVERLAP", "0", 1);
	CUgraphExec unknown = instantiated(captured());
	unsetenv("MEDUSA_SWAP_OVERLAP");
	out_and_in();
	assert_waited(SOME, launched_graph(plain));
	assert_waited(ALL, launched_graph(updatable));
	assert_waited(ALL, launched_graph(unknown));
	md_swap_graphs_forget();
	assert_waited(ALL, launched_graph(plain));
}

static CUresult without_flags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	(void)flags;
	return table.cuGraphInstantiateWithFlags(exec, graph, 0);
}

Test(swap_reached, a_graph_that_kernels_launch)
{
	CUgraphExec exec;
	CUgraph graph = captured();
	md_swap_real.cuGraphInstantiateWithFlags = without_flags; /* this device refuses such graphs */
	ok(md_cuda.cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
	out_and_in();
	assert_waited(ALL, launched(allocated(LARGE)));
}

/* ---- variables ---- */

static CUmodule module_with_variable(void)
{
	char path[4096];
	CUmodule loaded;
	const char *build = getenv("MEDUSA_BUILD");
	snprintf(path, sizeof(path), "%s/tests/images/tables_kernels.%s", build ? build : "build",
		 on_hostcuda() ? "host.so" : "fatbin");
	ok(md_cuda.cuModuleLoad(&loaded, path));
	return loaded;
}

Test(swap_reached, a_variable_of_a_module)
{
	CUdeviceptr variable;
	size_t size;
	CUdeviceptr other = allocated(LARGE);
	CUmodule second = module_with_variable();
	ok(md_cuda.cuModuleGetGlobal_v2(&variable, &size, second, "tables_row"));
	ok(md_cuda.cuMemcpyHtoD_v2(variable, &old, sizeof(old)));
	out_and_in();
	assert_waited(SOME, launched(allocated(LARGE)));
	cr_assert(was_reached(old) && !was_reached(other), "what the variable leads to");
	fine(md_swap_exchange_settle(exchange, 10000000000, &err));
	ok(md_cuda.cuModuleUnload(second));
	out_and_in();
	assert_waited(NOTHING, launched(allocated(LARGE)));
}

Test(swap_reached, a_variable_that_cannot_be_read)
{
	CUdeviceptr variable;
	size_t size;
	ok(md_cuda.cuModuleGetGlobal_v2(&variable, &size, module_with_variable(), "tables_row"));
	out_and_in();
	assert_waited(NOTHING, launched(allocated(LARGE)));
	fine(md_swap_exchange_settle(exchange, 10000000000, &err));
	table.cuPointerGetAttribute = NULL;
	out_and_in();
	assert_waited(ALL, launched(allocated(LARGE)));
}

/* ---- locks ---- */

static _Atomic(bool) passed, held_up;

static void *launch_young(void *address)
{
	CUcontext context;
	ok(md_cuda.cuDevicePrimaryCtxRetain(&context, 0));
	ok(md_cuda.cuCtxSetCurrent(context));
	while (!atomic_load(&held_up))
		usleep(1000);
	ok(launch(NULL, (CUdeviceptr)(uintptr_t)address));
	atomic_store(&passed, true);
	return NULL;
}

/* Until the other thread has launched: what it launches could be what this one waits for. */
static CUresult await_other(void)
{
	atomic_store(&held_up, true);
	for (int i = 0; i < 60000 && !atomic_load(&passed); i++)
		usleep(1000);
	cr_assert(atomic_load(&passed), "the other thread's launch is held up");
	return CUDA_SUCCESS;
}

static CUresult wait_event_late(CUstream stream, CUevent event, unsigned flags)
{
	if (!atomic_exchange(&held_up, true))
		await_other();
	return md_swap_real.cuStreamWaitEvent(stream, event, flags);
}

static CUresult synchronize_late(CUevent event)
{
	if (!atomic_exchange(&held_up, true))
		await_other();
	return md_swap_real.cuEventSynchronize(event);
}

static pthread_t other_thread(void)
{
	pthread_t thread;
	cr_assert_eq(pthread_create(&thread, NULL, launch_young, (void *)(uintptr_t)old), 0, "a thread");
	return thread;
}

Test(swap_reached, a_call_that_the_driver_holds_up_holds_up_no_other)
{
	out_and_in();
	table.cuStreamWaitEvent = wait_event_late;
	pthread_t thread = other_thread();
	ok(launch(NULL, old));
	pthread_join(thread, NULL);
}

Test(swap_reached, a_call_that_waits_on_the_host_holds_up_no_other)
{
	CUdeviceptr mapped;
	ok(md_cuda.cuMemAddressReserve(&mapped, 2 * MB, 0, 0, 0));
	map_at(mapped, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	out_and_in();
	table.cuEventSynchronize = synchronize_late;
	pthread_t thread = other_thread();
	ok(md_cuda.cuMemUnmap(mapped, 2 * MB)); /* holds the lock of memory */
	pthread_join(thread, NULL);
	struct md_swap_arrival_counts counts;
	md_swap_arrival_count(&counts);
	cr_assert_eq(counts.launches_all, 1, "without the lock of memory a launch waits for everything");
}
