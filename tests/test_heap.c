/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory brought in ahead of the driver: what a thread allocates afterwards touches hardly any new page. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "restore/heap.h"
#include "restore/restore.h"

#define NODES 4000u
#define OBJECT 690u /* bytes; ten to a node, as the driver allocates them */

struct result {
	bool ahead;
	long faults, pages; /* of 10 * NODES objects */
	uint64_t loose;
	uint32_t held;
};

static long faults_of_thread(void)
{
	struct rusage usage;
	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_minflt;
}

static void *allocate(void *argument)
{
	static struct md_artifact_graph stored = {.node_count = NODES};
	struct md_restore_graph graph = {.stored = &stored};
	struct md_restore r = {.heap = {.learned = true, .share = 256}};
	struct result *result = argument;
	void **objects = malloc(10 * NODES * sizeof(*objects));
	memset(objects, 0, 10 * NODES * sizeof(*objects));
	free(malloc(OBJECT)); /* the thread's heap is there */
	if (result->ahead)
		cr_assert_eq(md_restore_heap_take(&r, &graph, NULL), MD_OK);
	long before = faults_of_thread();
	for (unsigned i = 0; i < 10 * NODES; i++) {
		objects[i] = malloc(OBJECT - 8); /* with malloc's own word */
		memset(objects[i], 1, OBJECT - 8);
	}
	result->faults = faults_of_thread() - before;
	result->pages = 10 * NODES * OBJECT / 4096;
	result->loose = r.heap.loose;
	result->held = r.heap.count - r.heap.first;
	for (unsigned i = 0; i < 10 * NODES; i++)
		free(objects[i]);
	free(objects);
	md_restore_heap_finish(&r.heap);
	return NULL;
}

static struct result in_a_thread(bool ahead)
{
	struct result result = {.ahead = ahead};
	pthread_t thread;
	cr_assert_eq(pthread_create(&thread, NULL, allocate, &result), 0);
	pthread_join(thread, NULL);
	return result;
}

#ifndef MD_SANITIZED /* its allocator never uses memory again */
Test(heap, what_was_brought_in_is_what_the_thread_gets)
{
	struct result without = in_a_thread(false), with = in_a_thread(true);
	cr_expect_gt(without.faults, without.pages / 2, "%ld faults for %ld pages", without.faults, without.pages);
	cr_expect_lt(with.faults, with.pages / 20, "%ld faults for %ld pages", with.faults, with.pages);
}
#endif

#ifndef MD_SANITIZED
/* ---- a driver that takes more or less ---- */

struct driver {
	size_t object;           /* bytes; ten to a node */
	uint32_t held, share;    /* blocks that were brought in for eight graphs; what was learned */
	long first, last, pages; /* faults of the first and the last graph, and what a graph takes */
};

static void *make_graphs(void *argument)
{
	enum { GRAPHS = 8, SMALL = 500 };
	static struct md_artifact_graph stored = {.node_count = SMALL};
	struct md_restore_graph graph = {.stored = &stored};
	struct md_restore r = {0};
	struct driver *driver = argument;
	free(malloc(OBJECT));
	for (unsigned g = 0; g < GRAPHS; g++) {
		cr_assert_eq(md_restore_heap_take(&r, &graph, NULL), MD_OK);
		long before = faults_of_thread();
		for (unsigned i = 0; i < 10 * SMALL; i++) /* they stay, as executables do */
			memset(malloc(driver->object - 8), 1, driver->object - 8);
		*(g ? &driver->last : &driver->first) = faults_of_thread() - before;
	}
	driver->pages = (long)(10 * SMALL * driver->object / 4096);
	driver->held = r.heap.count;
	driver->share = r.heap.share;
	md_restore_heap_finish(&r.heap);
	return NULL;
}

static struct driver with_objects_of(size_t bytes)
{
	struct driver driver = {.object = bytes};
	pthread_t thread;
	cr_assert_eq(pthread_create(&thread, NULL, make_graphs, &driver), 0);
	pthread_join(thread, NULL);
	return driver;
}

Test(heap, what_the_driver_takes_is_learned_from_the_first_graph)
{
	struct driver usual = with_objects_of(OBJECT), frugal = with_objects_of(80);
	cr_expect_gt(usual.first, usual.pages / 2, "no memory ahead of the first graph: %ld faults", usual.first);
	cr_expect_lt(usual.last, usual.pages / 5, "%ld faults for %ld pages", usual.last, usual.pages);
	cr_expect_lt(frugal.last, frugal.pages / 2, "%ld faults for %ld pages", frugal.last, frugal.pages);
	cr_expect_lt(frugal.held, usual.held / 3, "%u and %u blocks", frugal.held, usual.held);
	cr_expect_lt(frugal.share, usual.share / 3, "%u and %u", frugal.share, usual.share);
}
#endif

Test(heap, a_graph_takes_for_its_nodes_and_leaves_the_rest)
{
	struct result with = in_a_thread(true);
	cr_expect_gt(with.loose, NODES * 3000u, "what a template needs is left: %llu", (unsigned long long)with.loose);
	cr_expect_lt(with.loose, NODES * 5000u);
	cr_expect_eq(with.held, 1, "the end of the heap");
}

static unsigned slices(const struct md_restore *like)
{
	struct md_restore r = *like;
	unsigned count = 0;
	for (; md_restore_heap_lacks(&r); count++)
		md_restore_heap_add(&r);
	md_restore_heap_finish(&r.heap);
	return count;
}

Test(heap, only_graphs_that_wait_are_reckoned_with)
{
	struct md_artifact_graph stored[] = {{.node_count = 1000}, {.node_count = 10000}, {.node_count = 2000}};
	struct md_restore_graph graphs[] = {
	    {.stored = &stored[0]}, {.stored = &stored[1], .state = MD_GRAPH_READY}, {.stored = &stored[2]}};
	struct md_restore r = {.artifact.graph_count = 3, .graphs = graphs};
	unsigned waiting = slices(&r);
	cr_expect_gt(waiting, 0);
	graphs[1].state = MD_GRAPH_REFUSED;
	cr_expect_eq(slices(&r), waiting);
	graphs[1].state = MD_GRAPH_WAITING;
	cr_expect_gt(slices(&r), 3 * waiting);
	graphs[0].state = graphs[1].state = graphs[2].state = MD_GRAPH_READY;
	cr_expect_eq(slices(&r), 0);
}

Test(heap, should_go_on_without_memory)
{
	struct md_artifact_graph stored = {.node_count = 1000};
	struct md_restore_graph graph = {.stored = &stored};
	struct md_restore r = {.artifact.graph_count = 1, .graphs = &graph, .heap.full = true};
	cr_expect_not(md_restore_heap_lacks(&r));
	cr_expect_eq(md_restore_heap_take(&r, &graph, NULL), MD_OK);
	cr_expect_eq(r.heap.count, 0);
	md_restore_heap_finish(&r.heap);
}
