/* SPDX-License-Identifier: Apache-2.0 */
/* An engine whose memory is taken away and given back: it does what lines on its stdin say, and threads of it launch all
 * the time. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "medusa/medusa.h"
#include "medusa/swap.h"
#include "tests/subjects/image_file.h"
#include "tests/subjects/subject.h"

/*
 * argv[1]: the image arith. argv[2]: threads that launch all the time, and compare what they get. stdin, line by line:
 *   work N     N rounds; prints a sum of the state
 *   free       prints what cuMemGetInfo says is free
 *   wait       launches a kernel that ends when "flag" comes
 *   flag
 *   alloc MB   allocates, writes, prints a sum; the memory stays
 *   managed MB allocates managed memory, writes, prints a sum; the memory stays
 *   drop       what the newest of them holds need not come back
 *   need       it is needed again; it is written
 *   bind NAME ROLE FIRST BYTES  binds that part of it; role: a number of enum medusa_role
 *   write N    other values are written to it, which N chooses
 *   store      tries to copy and to set something there; prints both results
 *   add        a kernel writes to it
 *   renew      it is freed and allocated again, and written
 *   sum        of all that it holds
 *   sleep MS   takes its own memory away, within a deadline; prints the result and the bytes
 *   full NAME  asks for a checkpoint of itself, as this process and as the engine NAME; prints both results
 *   wake       gives it back
 *   look       calls that do not wait for the memory: what is free, and whether work has ended
 *   status     what its medusa-swap run says of it
 *   share      its state, with other processes that might want it
 *   fork       a child that uses no device, and ends by exit()
 *   exec       becomes a shell that ends with 3 when its input ends; "exec again": becomes this program again
 *   exit N     ends by exit(N), with handlers that free device memory
 * and at its end as with "exit 0".
 */
enum { FLOATS = 1 << 20, THREADS_MOST = 8, SMALL = 200, EXTRA_MOST = 64 };
#define BYTES (FLOATS * sizeof(float))

static CUcontext context;
static CUfunction add, wait_flag;
static CUdeviceptr state, weights, small[SMALL], extra[EXTRA_MOST], seen;
static CUgraphExec graph;
static CUstream stream, waiting;
static CUevent event;
static int32_t *flag;
static unsigned extra_count, extra_megabytes; /* of the newest one */
static atomic_bool stop;
static atomic_uint wrong;
static float *values;
static bool in_child;
static char **arguments;

static void launch_add(CUstream on, CUdeviceptr out, CUdeviceptr a, CUdeviceptr b, int32_t n)
{
	void *params[] = {&out, &a, &b, &n};
	TRY(cuLaunchKernel, add, (unsigned)n / 256, 1, 1, 256, 1, 1, 0, on, params, NULL);
}

static void fill(CUdeviceptr memory, unsigned first, size_t floats)
{
	for (size_t i = 0; i < floats; i++)
		values[i] = (float)((first + i * 7) % 1009);
	TRY(cuMemcpyHtoD_v2, memory, values, floats * sizeof(float));
}

/* ---- threads ---- */

static void *launch_all_the_time(void *argument)
{
	enum { N = 1 << 14 };
	CUdeviceptr mine, result;
	CUstream own;
	float *there, *back;
	unsigned seed = (unsigned)(uintptr_t)argument;
	TRY(cuCtxSetCurrent, context);
	TRY(cuStreamCreate, &own, CU_STREAM_NON_BLOCKING);
	TRY(cuMemAlloc_v2, &mine, N * sizeof(float));
	TRY(cuMemAlloc_v2, &result, N * sizeof(float));
	TRY(cuMemHostAlloc, (void **)&there, N * sizeof(float), 0);
	TRY(cuMemHostAlloc, (void **)&back, N * sizeof(float), 0);
	for (unsigned turn = 0; !atomic_load(&stop); turn++) {
		for (unsigned i = 0; i < N; i++)
			there[i] = (float)(seed + turn + i);
		TRY(cuMemcpyHtoDAsync_v2, mine, there, N * sizeof(float), own);
		launch_add(own, result, mine, mine, N);
		memset(back, 0, N * sizeof(float));
		TRY(cuMemcpyDtoHAsync_v2, back, result, N * sizeof(float), own);
		while (md_cuda.cuStreamQuery(own) == CUDA_ERROR_NOT_READY)
			usleep(200); /* a core is for what is tested */
		for (unsigned i = 0; i < N; i++)
			if (back[i] != 2 * (float)(seed + turn + i))
				atomic_fetch_add(&wrong, 1);
	}
	return NULL;
}

/* ---- setting up ---- */

static void capture(void)
{
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	launch_add(stream, state, state, weights, FLOATS);
	for (unsigned i = 0; i < SMALL; i++)
		launch_add(stream, small[i], small[i], weights, 256);
	graph = end_capture(stream);
}

static void set_up(const char *path)
{
	void *image = read_file(path);
	CUmodule module;
	values = malloc(BYTES);
	TRY(cuModuleLoadData, &module, image);
	TRY(cuModuleGetFunction, &add, module, "add");
	TRY(cuModuleGetFunction, &wait_flag, module, "wait_flag");
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	TRY(cuStreamCreate, &waiting, CU_STREAM_NON_BLOCKING);
	TRY(cuEventCreate, &event, 0);
	TRY(cuEventRecord, event, stream);
	TRY(cuMemAlloc_v2, &state, BYTES);
	TRY(cuMemAlloc_v2, &weights, BYTES);
	TRY(cuMemAlloc_v2, &seen, 4);
	TRY(cuMemHostAlloc, (void **)&flag, 4, 0);
	*flag = 0;
	fill(state, 1, FLOATS);
	fill(weights, 2, FLOATS);
	for (unsigned i = 0; i < SMALL; i++) {
		TRY(cuMemAlloc_v2, &small[i], 1024);
		fill(small[i], 3 + i, 256);
	}
	capture();
	free(image);
}

/* ---- what is asked ---- */

static double sum_of(CUdeviceptr memory, size_t floats)
{
	double sum = 0;
	TRY(cuMemcpyDtoH_v2, values, memory, floats * sizeof(float));
	for (size_t i = 0; i < floats; i++)
		sum += (double)values[i] * (double)(i % 4001 + 1);
	return sum;
}

static void work(unsigned rounds)
{
	double sum;
	for (unsigned i = 0; i < rounds; i++)
		TRY(cuGraphLaunch, graph, stream);
	TRY(cuStreamSynchronize, stream);
	sum = sum_of(state, FLOATS);
	for (unsigned i = 0; i < SMALL; i++)
		sum += sum_of(small[i], 256);
	for (unsigned i = 0; i < extra_count; i++)
		sum += sum_of(extra[i], FLOATS);
	printf("work %u %.17g\n", rounds, sum);
}

static void say_free(void)
{
	size_t free_bytes, total;
	TRY(cuMemGetInfo_v2, &free_bytes, &total);
	printf("free %zu\n", free_bytes);
}

static void fill_with(CUdeviceptr memory, unsigned megabytes, unsigned what)
{
	for (size_t at = 0; at < megabytes; at++)
		fill(memory + (at << 20), (unsigned)at + what, (1 << 20) / sizeof(float));
}

static void fill_all(CUdeviceptr memory, unsigned megabytes)
{
	fill_with(memory, megabytes, 5);
}

static void write_newest(unsigned what)
{
	fill_with(extra[extra_count - 1], extra_megabytes, what);
	printf("write %u\n", what);
}

static void allocate(unsigned megabytes)
{
	CUdeviceptr memory;
	if (extra_count == EXTRA_MOST || megabytes < 4)
		exit(9);
	TRY(cuMemAlloc_v2, &memory, (size_t)megabytes << 20);
	fill_all(memory, megabytes);
	extra[extra_count++] = memory;
	extra_megabytes = megabytes;
	printf("alloc %u %.17g\n", megabytes, sum_of(memory, FLOATS));
}

static void allocate_managed(unsigned megabytes)
{
	CUdeviceptr memory;
	if (extra_count == EXTRA_MOST || megabytes < 4)
		exit(9);
	TRY(cuMemAllocManaged, &memory, (size_t)megabytes << 20, CU_MEM_ATTACH_GLOBAL);
	fill_all(memory, megabytes);
	extra[extra_count++] = memory;
	extra_megabytes = megabytes;
	printf("managed %u %.17g\n", megabytes, sum_of(memory, FLOATS));
}

/* Says of the newest of these that it is needed, or not. */
static void declare(int (*say)(medusa_deviceptr, size_t))
{
	printf("said %d\n", say(extra[extra_count - 1], (size_t)extra_megabytes << 20));
}

static void bind_newest(const char *line)
{
	char name[64];
	unsigned role;
	unsigned long long first, bytes;
	if (sscanf(line, "bind %63s %u %llu %llu", name, &role, &first, &bytes) == 4)
		medusa_bind(name, extra[extra_count - 1] + first, bytes, (enum medusa_role)role);
	printf("bound\n");
}

static void store(void)
{
	CUresult copied = md_cuda.cuMemcpyHtoD_v2(extra[extra_count - 1], values, 4);
	CUresult set = md_cuda.cuMemsetD32Async(extra[extra_count - 1], 1, 1, stream);
	TRY(cuStreamSynchronize, stream);
	printf("store %d %d\n", copied, set);
}

static void add_to_newest(void)
{
	CUdeviceptr newest = extra[extra_count - 1];
	launch_add(stream, newest, newest, newest, 1024);
	TRY(cuStreamSynchronize, stream);
	puts("added");
}

static void renew(void)
{
	TRY(cuMemFree_v2, extra[--extra_count]);
	allocate(extra_megabytes);
}

static void say_sum(void)
{
	double sum = 0;
	for (size_t at = 0; at < extra_megabytes; at++)
		sum += sum_of(extra[extra_count - 1] + (at << 20), (1 << 20) / sizeof(float));
	printf("sum %.17g\n", sum);
}

static void say_swapped(const char *what, int result, const struct medusa_swap_report *report)
{
	printf("%s %d %llu %s\n", what, result, (unsigned long long)(result ? 0 : report->bytes), medusa_reason());
}

static void go_to_sleep(unsigned ms)
{
	struct medusa_swap_options options = {.size = sizeof(options), .deadline_ns = ms * 1000000ull};
	struct medusa_swap_report report = {.size = sizeof(report)};
	say_swapped("sleep", medusa_swap_out(NULL, &options, &report), &report);
}

static void ask_for_all(const char *name)
{
	struct medusa_swap_options options = {.size = sizeof(options), .deadline_ns = 1000000000, .full = 1};
	struct medusa_swap_report report = {.size = sizeof(report)};
	int own = medusa_swap_out(NULL, &options, &report);
	printf("full %d %s; ", own, medusa_reason());
	say_swapped("by name", medusa_swap_out(name, &options, &report), &report);
}

static void wake_up(void)
{
	struct medusa_swap_report report = {.size = sizeof(report)};
	say_swapped("wake", medusa_swap_in(NULL, NULL, &report), &report);
}

static void look(void)
{
	size_t free_bytes, total;
	TRY(cuCtxSynchronize);
	TRY(cuStreamSynchronize, stream);
	TRY(cuStreamQuery, stream);
	TRY(cuEventSynchronize, event);
	TRY(cuEventQuery, event);
	TRY(cuMemGetInfo_v2, &free_bytes, &total);
	printf("look %zu\n", free_bytes);
}

static void say_status(void)
{
	struct medusa_swap_engine engine = {.size = sizeof(engine)};
	int result = medusa_swap_status(NULL, &engine);
	printf("status %d %s %llu of %llu\n", result, engine.name, (unsigned long long)engine.processes_out,
	       (unsigned long long)engine.processes);
}

static void start_waiting(void)
{
	CUdeviceptr there = (CUdeviceptr)(uintptr_t)flag;
	void *params[] = {&seen, &there};
	*flag = 0;
	TRY(cuLaunchKernel, wait_flag, 1, 1, 1, 1, 1, 1, 0, waiting, params, NULL);
	puts("waiting");
}

static void share(void)
{
	CUipcMemHandle handle;
	TRY(cuIpcGetMemHandle, &handle, state);
	puts("shared");
}

static void make_child(void)
{
	int status = 0;
	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		in_child = true; /* another thread may have held a lock of the driver */
#ifdef __SANITIZE_ADDRESS__
		_exit(7); /* exit() waits for ever where another thread held a lock of the sanitizer */
#endif
		exit(7);
	}
	waitpid(child, &status, 0);
	printf("child %d\n", WEXITSTATUS(status));
}

/* Libraries do so, and do not care whether it works. */
static void free_all(void)
{
	if (in_child)
		return;
	md_cuda.cuMemFree_v2(state);
	md_cuda.cuStreamSynchronize(stream);
	md_cuda.cuGraphExecDestroy(graph);
}

static void obey(const char *line)
{
	unsigned number = 0;
	char name[64];
	if (sscanf(line, "work %u", &number) == 1)
		work(number);
	else if (!strcmp(line, "free\n"))
		say_free();
	else if (!strcmp(line, "wait\n"))
		start_waiting();
	else if (!strcmp(line, "flag\n"))
		__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	else if (sscanf(line, "alloc %u", &number) == 1)
		allocate(number);
	else if (sscanf(line, "write %u", &number) == 1)
		write_newest(number);
	else if (sscanf(line, "managed %u", &number) == 1)
		allocate_managed(number);
	else if (!strcmp(line, "drop\n"))
		declare(medusa_swap_discardable);
	else if (!strcmp(line, "need\n")) {
		declare(medusa_swap_needed);
		fill_all(extra[extra_count - 1], extra_megabytes);
	} else if (!strncmp(line, "bind ", 5))
		bind_newest(line);
	else if (!strcmp(line, "store\n"))
		store();
	else if (!strcmp(line, "add\n"))
		add_to_newest();
	else if (!strcmp(line, "renew\n"))
		renew();
	else if (!strcmp(line, "sum\n"))
		say_sum();
	else if (sscanf(line, "sleep %u", &number) == 1)
		go_to_sleep(number);
	else if (sscanf(line, "full %63s", name) == 1)
		ask_for_all(name);
	else if (!strcmp(line, "wake\n"))
		wake_up();
	else if (!strcmp(line, "look\n"))
		look();
	else if (!strcmp(line, "status\n"))
		say_status();
	else if (!strcmp(line, "share\n"))
		share();
	else if (!strcmp(line, "fork\n"))
		make_child();
	else if (!strcmp(line, "exec\n"))
		execlp("sh", "sh", "-c", "read line; exit 3", NULL);
	else if (!strcmp(line, "exec again\n"))
		execv("/proc/self/exe", arguments);
	else if (sscanf(line, "exit %u", &number) == 1)
		exit((int)number);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS_MOST];
	char line[256];
	int count = argc > 2 ? atoi(argv[2]) : 0;
	if (argc < 2 || count > THREADS_MOST)
		return 2;
	arguments = argv;
	load_driver();
	context = open_context();
	set_up(argv[1]);
	atexit(free_all);
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
