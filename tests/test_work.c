/* SPDX-License-Identifier: Apache-2.0 */
/* The next work of the background: a graph that somebody waits for is made whatever the context's limits look like. */
#include <criterion/criterion.h>

#include "restore/restore.h"
#include "restore/work.h"
#include "tests/open_guard.h"

#define STACK 8192u /* bytes; the limit with which the graph was captured */

static struct md_restore restore;
static struct md_restore_graph graph;
static struct md_restore_kernel kernel;
static CUresult pushed; /* what the driver answers when the context is pushed to read its limits */
static size_t stack;    /* the limit now */

static CUresult CUDAAPI none_is_current(CUcontext *context)
{
	*context = NULL;
	return CUDA_SUCCESS;
}

static CUresult CUDAAPI push(CUcontext context)
{
	(void)context;
	return pushed;
}

static CUresult CUDAAPI pop(CUcontext *context)
{
	(void)context;
	return CUDA_SUCCESS;
}

static CUresult CUDAAPI tell(size_t *value, CUlimit limit)
{
	*value = limit == CU_LIMIT_STACK_SIZE ? stack : 0;
	return CUDA_SUCCESS;
}

/* One graph with one kernel, which is resolved; nothing is bound, as the graph needs no binding. */
static void set_up(void)
{
	static struct md_artifact_graph stored = {.label = "decode", .batch = 1, .node_count = 1};
	static struct md_kernel stored_kernel = {.image = MD_NONE, .name = "k"};
	static uint32_t first[] = {0};
	graph = (struct md_restore_graph){.stored = &stored, .kernels = first, .kernel_count = 1};
	kernel = (struct md_restore_kernel){.state = MD_KERNEL_RESOLVED};
	restore.artifact.graphs = &stored;
	restore.artifact.kernels = &stored_kernel;
	restore.artifact.graph_count = restore.artifact.kernel_count = 1;
	restore.artifact.fingerprint.limits[CU_LIMIT_STACK_SIZE] = STACK;
	restore.graphs = &graph;
	restore.kernels = &kernel;
	restore.order = first;
	restore.context = (CUcontext)&restore;
	pushed = CUDA_SUCCESS;
	stack = STACK;
	md_cuda.cuCtxGetCurrent = none_is_current;
	md_cuda.cuCtxPushCurrent_v2 = push;
	md_cuda.cuCtxPopCurrent_v2 = pop;
	md_cuda.cuCtxGetLimit = tell;
}

TestSuite(work, .init = set_up);

static void assert_next(enum md_work_kind kind, const char *what)
{
	pthread_mutex_lock(&md_restore_work);
	pthread_mutex_lock(&md_restore_lock);
	struct md_work work = md_restore_work_next(&restore, false);
	pthread_mutex_unlock(&md_restore_lock);
	pthread_mutex_unlock(&md_restore_work);
	cr_assert_eq(work.kind, kind, "%s: work of kind %d, not %d", what, (int)work.kind, (int)kind);
	cr_assert(kind != MD_WORK_BUILD || work.graph == &graph, "%s: the graph", what);
	cr_assert_eq(work.awaited, kind != MD_WORK_WAIT && restore.awaited, "%s: awaited", what);
}

static void someone_waits(void)
{
	graph.awaited = restore.awaited = 1;
}

Test(work, nothing_is_made_ahead_while_the_limits_are_not_right)
{
	assert_next(MD_WORK_BUILD, "limits as captured");
	restore.limits_fit = false;
	stack = STACK / 2;
	assert_next(MD_WORK_WAIT, "a lower limit");
	stack = STACK;
	pushed = CUDA_ERROR_OUT_OF_MEMORY;
	assert_next(MD_WORK_WAIT, "limits that cannot be read");
}

/* medusa_graph_get has compared the limits itself before it waits, and nothing but a change of them wakes the background. */
Test(work, an_awaited_graph_is_made_although_the_limits_cannot_be_read)
{
	pushed = CUDA_ERROR_OUT_OF_MEMORY;
	someone_waits();
	assert_next(MD_WORK_BUILD, "limits that cannot be read");
}

Test(work, a_kernel_of_an_awaited_graph_is_resolved_although_the_limits_cannot_be_read)
{
	pushed = CUDA_ERROR_OUT_OF_MEMORY;
	kernel.state = MD_KERNEL_PENDING;
	someone_waits();
	assert_next(MD_WORK_RESOLVE, "limits that cannot be read");
}
