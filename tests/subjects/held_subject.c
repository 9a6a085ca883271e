/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine that makes a child by a system call while another of its threads is stopped in Medusa's code, at one of the
 * places where Medusa asks for memory, with whatever locks it holds there. argv: image, the first place,
 * counted in what one thread does, and the last one.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/export.h"
#include "medusa/medusa.h"
#include "tests/subjects/image_file.h"
#include "tests/subjects/subject.h"

enum { BYTES = 4096, LIMIT_S = 20 };

static void *image;
static CUcontext context;
static sem_t stopped, go_on;
static _Thread_local int stop_at = -1; /* the how manieth place from here; below 0: none */

/* ---- where Medusa asks for memory ---- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

static void come_to(const void *caller)
{
	Dl_info who;
	if (stop_at < 0 || !dladdr(caller, &who) || !who.dli_fname || !strstr(who.dli_fname, "libmedusa-"))
		return;
	if (stop_at-- > 0)
		return;
	sem_post(&stopped);
	sem_wait(&go_on);
}

MD_EXPORT void *malloc(size_t size)
{
	come_to(__builtin_return_address(0));
	return __libc_malloc(size);
}

MD_EXPORT void *calloc(size_t count, size_t size)
{
	come_to(__builtin_return_address(0));
	return __libc_calloc(count, size);
}

MD_EXPORT void *resize(void *old, size_t size) __asm__("realloc");
void *resize(void *old, size_t size)
{
	come_to(__builtin_return_address(0));
	return __libc_realloc(old, size);
}

/* ---- what threads and children do ---- */

static void use_all(unsigned round)
{
	CUdeviceptr memory = 0, pages = 0;
	CUmodule module;
	CUcontext retained;
	CUgraph graph;
	CUgraphExec exec;
	char name[32];
	const unsigned batch = round + 1;
	md_cuda.cuDevicePrimaryCtxRetain(&retained, 0);
	for (int i = 0; i < 40; i++)
		md_cuda.cuMemAlloc_v2(&memory, BYTES);
	md_cuda.cuMemAllocManaged(&pages, BYTES, CU_MEM_ATTACH_GLOBAL);
	snprintf(name, sizeof(name), "held %u", round);
	medusa_bind(name, memory, BYTES, MEDUSA_BIND_STATE);
	if (md_cuda.cuModuleLoadData(&module, image) == CUDA_SUCCESS)
		md_cuda.cuModuleUnload(module);
	if (md_cuda.cuGraphCreate(&graph, 0) == CUDA_SUCCESS &&
	    md_cuda.cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS) {
		medusa_graph_label(exec, "held", batch);
		md_cuda.cuGraphExecDestroy(exec);
	}
	medusa_graph_want("held", &batch, 1);
	medusa_fingerprint_add(name, "1");
	medusa_mark(name);
	medusa_graph_ready("held", batch);
	md_cuda.cuMemFree_v2(memory);
	md_cuda.cuMemFree_v2(pages);
	md_cuda.cuDevicePrimaryCtxRelease_v2(0);
}

struct holder {
	unsigned round;
	int stop_at;
	bool ended; /* without having come so far */
};

static void *hold(void *argument)
{
	struct holder *holder = argument;
	TRY(cuCtxSetCurrent, context);
	stop_at = holder->stop_at;
	use_all(holder->round);
	holder->ended = stop_at >= 0;
	stop_at = -1;
	if (holder->ended)
		sem_post(&stopped);
	return NULL;
}

static void fail(const char *what, int stop, int status)
{
	fprintf(stderr, "held_subject: %s, at place %d: %#x\n", what, stop, (unsigned)status);
	_exit(9);
}

/* The first call may be any: each child begins with another one. */
static void live_as_child(int stop)
{
	struct medusa_stats stats = {.size = sizeof(stats)};
	alarm(LIMIT_S);
	if (stop % 4 == 0)
		medusa_mark("child");
	else if (stop % 4 == 1)
		medusa_graph_ready("held", 1);
	else if (stop % 4 == 2)
		medusa_stats_read(&stats);
	use_all(100000);
	_exit(3);
}

static void have_child(int stop)
{
	int status = 0;
	pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!child)
		live_as_child(stop);
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 3)
		fail("a child did not end by itself", stop, status);
}

int main(int argc, char **argv)
{
	struct holder holder = {0};
	if (argc < 4)
		return 2;
	image = read_file(argv[1]);
	load_driver();
	context = open_context();
	sem_init(&stopped, 0, 0);
	sem_init(&go_on, 0, 0);
	void *exec;
	medusa_graph_get("held", 1, UINT64_MAX, &exec);
	usleep(100000); /* whatever works beside the engine is in no lock of the driver or of the C library any more */
	int stop = atoi(argv[2]), last = atoi(argv[3]);
	for (; stop <= last && !holder.ended; stop++) {
		pthread_t thread;
		holder = (struct holder){.round = (unsigned)stop, .stop_at = stop};
		if (pthread_create(&thread, NULL, hold, &holder))
			fail("no thread", stop, 0);
		sem_wait(&stopped);
		if (!holder.ended) {
			have_child(stop);
			sem_post(&go_on);
		}
		pthread_join(thread, NULL);
	}
	puts(holder.ended ? "no more places" : "stopped");
	return 0;
}
