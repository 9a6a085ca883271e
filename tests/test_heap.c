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
	size_t object;                /* bytes; ten to a node */
	unsigned graphs, nodes;       /* of each graph */
	uint32_t held, share;         /* blocks that were brought in for all graphs; what was learned */
	long first, last, all, pages; /* faults of the first and the last graph and of all, and what a graph takes */
};

static void *make_graphs(void *argument)
{
	struct driver *driver = argument;
	struct md_artifact_graph stored = {.node_count = driver->nodes};
	struct md_restore_graph graph = {.stored = &stored};
	struct md_restore r = {0};
	free(malloc(OBJECT));
	for (unsigned g = 0; g < driver->graphs; g++) {
		cr_assert_eq(md_restore_heap_take(&r, &graph, NULL), MD_OK);
		long before = faults_of_thread();
		for (unsigned i = 0; i < 10 * driver->nodes; i++) /* they stay, as executables do */
			memset(malloc(driver->object - 8), 1, driver->object - 8);
		*(g ? &driver->last : &driver->first) = faults_of_thread() - before;
		driver->all += faults_of_thread() - before;
	}
	driver->pages = (long)(10 * driver->nodes * driver->object / 4096);
	driver->held = r.heap.count;
	driver->share = r.heap.share;
	md_restore_heap_finish(&r.heap);
	return NULL;
}

static struct driver made_with(struct driver driver)
{
	pthread_t thread;
	cr_assert_eq(pthread_create(&thread, NULL, make_graphs, &driver), 0);
	pthread_join(thread, NULL);
	return driver;
}

Test(heap, what_the_driver_takes_is_learned_from_the_first_graph)
{
	struct driver usual = made_with((struct driver){.object = OBJECT, .graphs = 8, .nodes = 500});
	struct driver frugal = made_with((struct driver){.object = 80, .graphs = 8, .nodes = 500});
	cr_expect_gt(usual.first, usual.pages / 2, "no memory ahead of the first graph: %ld faults", usual.first);
	cr_expect_lt(usual.last, usual.pages / 5, "%ld faults for %ld pages", usual.last, usual.pages);
	cr_expect_lt(frugal.last, frugal.pages / 2, "%ld faults for %ld pages", frugal.last, frugal.pages);
	cr_expect_lt(frugal.held, usual.held / 3, "%u and %u blocks", frugal.held, usual.held);
	cr_expect_lt(frugal.share, usual.share / 3, "%u and %u", frugal.share, usual.share);
}

/* A graph of 15 nodes with objects of 80 bytes takes three pages. */
Test(heap, what_small_graphs_take_is_learned_from_many_of_them)
{
	struct driver usual = made_with((struct driver){.object = OBJECT, .graphs = 400, .nodes = 15});
	struct driver frugal = made_with((struct driver){.object = 80, .graphs = 400, .nodes = 15});
	cr_expect_lt(usual.all, 400 * usual.pages / 5, "%ld faults for %ld pages", usual.all, 400 * usual.pages);
	cr_expect_lt(frugal.all, 400 * frugal.pages / 3, "%ld faults for %ld pages", frugal.all, 400 * frugal.pages);
	cr_expect_lt(frugal.held, usual.held / 3, "%u and %u blocks", frugal.held, usual.held);
}
#endif

Test(heap, a_graph_takes_for_its_nodes_and_leaves_the_rest)
{
	struct result with = in_a_thread(true);
	cr_expect_gt(with.loose, NODES * 3000u, "what a template needs is left: %llu", (unsigned long long)with.loose);
	cr_expect_lt(with.loose, NODES * 5000u);
	cr_expect_eq(with.held, 1, "the end of the heap");
}

static unsigned blocks(const struct md_restore *like)
{
	struct md_restore r = *like;
	while (md_restore_heap_lacks(&r))
		md_restore_heap_add(&r);
	unsigned count = r.heap.count;
	md_restore_heap_finish(&r.heap);
	return count;
}

Test(heap, only_graphs_that_wait_are_reckoned_with)
{
	struct md_artifact_graph stored[] = {{.node_count = 1000}, {.node_count = 10000}, {.node_count = 2000}};
	struct md_restore_graph graphs[] = {
	    {.stored = &stored[0]}, {.stored = &stored[1], .state = MD_GRAPH_READY}, {.stored = &stored[2]}};
	struct md_restore r = {.artifact.graph_count = 3, .graphs = graphs};
	unsigned waiting = blocks(&r);
	cr_expect_gt(waiting, 3000u * 6900 / (64 << 10));
	graphs[1].state = MD_GRAPH_REFUSED;
	cr_expect_eq(blocks(&r), waiting);
	graphs[1].state = MD_GRAPH_WAITING;
	unsigned all = blocks(&r);
	cr_expect_gt(all, 3 * waiting, "%u and %u blocks", all, waiting);
	graphs[0].state = graphs[1].state = graphs[2].state = MD_GRAPH_READY;
	cr_expect_eq(blocks(&r), 0);
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
