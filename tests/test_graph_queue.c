/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs by name, in their order, and with something to drop: found without looking through all of them. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "restore/graph_queue.h"
#include "restore/graph_state.h"
#include "tests/open_guard.h"

enum { SIZES = 51, PIECES = 26, COUNT = SIZES * PIECES };

static struct md_restore r;
static struct md_artifact_graph stored[COUNT];
static struct md_restore_graph graphs[COUNT];
static struct md_graph_reasons reasons[COUNT];
static uint32_t order[COUNT];
static char labels[PIECES][16];

static void set_up(void)
{
	for (uint32_t i = 0; i < COUNT; i++) {
		uint32_t piece = i % PIECES;
		snprintf(labels[piece], sizeof(labels[piece]), "piece.%u", piece);
		stored[i] = (struct md_artifact_graph){.label = labels[piece], .batch = i / PIECES + 1};
		graphs[i] = (struct md_restore_graph){.stored = &stored[i], .reasons = &reasons[i]};
		order[i] = COUNT - 1 - i;
	}
	r.artifact.graphs = stored;
	r.artifact.graph_count = COUNT;
	r.graphs = graphs;
	r.order = order;
	cr_assert(md_graph_queue_init(&r), "room for %d graphs", COUNT);
	pthread_mutex_lock(&md_restore_lock);
}

static void tear_down(void)
{
	pthread_mutex_unlock(&md_restore_lock);
	md_graph_queue_finish(&r);
}

TestSuite(graph_queue, .init = set_up, .fini = tear_down);

Test(graph_queue, each_graph_is_found_by_its_label_and_batch)
{
	for (uint32_t i = 0; i < COUNT; i++)
		cr_assert_eq(md_restore_find(&r, stored[i].label, stored[i].batch), &graphs[i], "graph %u", i);
	cr_assert_null(md_restore_find(&r, "piece.0", SIZES + 1), "no such batch");
	cr_assert_null(md_restore_find(&r, "piece", 1), "no such label");
}

/* The key of another name may lead to a graph, and of two graphs of one name the first is meant. */
Test(graph_queue, the_name_decides_and_not_its_key)
{
	stored[7].label = stored[3].label;
	stored[7].batch = stored[3].batch;
	cr_assert_null(md_restore_find(&r, "piece.7", 1), "its key leads to a graph of another name");
	md_graph_queue_finish(&r);
	cr_assert(md_graph_queue_init(&r), "room");
	cr_assert_eq(md_restore_find(&r, "piece.3", 1), &graphs[3], "the first of two");
}

Test(graph_queue, graphs_of_one_key_are_both_found)
{
	uint64_t at;
	size_t cursor = 0;
	uint64_t key;
	while (md_map_next(&r.graph_names, &cursor, &key, &at))
		if (at == 9)
			md_map_put(&r.graph_names, key, 5); /* as if graphs 5 and 9 had one key */
	cr_assert_eq(md_restore_find(&r, stored[9].label, stored[9].batch), &graphs[9], "the second of one key");
}

Test(graph_queue, the_first_waiting_graph_is_searched_once)
{
	for (uint32_t i = 0; i < COUNT; i++) {
		cr_assert_eq(md_graph_queue_first(&r), i, "the first of %u", COUNT - i);
		md_restore_graph_ready(&r, &graphs[order[i]]);
		cr_assert_eq(r.order_done, i, "what was passed is not looked at again");
	}
	cr_assert_eq(md_graph_queue_first(&r), COUNT, "none waits");
	md_restore_graph_unmake(&r, &graphs[order[40]]);
	cr_assert_eq(md_graph_queue_first(&r), 40, "one waits again");
}

Test(graph_queue, graphs_that_are_ready_or_refused_may_have_something_to_drop)
{
	struct md_error err = {.status = MD_ERR_MISMATCH, .message = "tried out"};
	cr_assert_null(md_graph_queue_look(&r), "nothing was built");
	md_restore_graph_ready(&r, &graphs[11]);
	cr_assert_eq(md_graph_queue_look(&r), &graphs[11], "the graph that is ready");
	cr_assert_eq(md_graph_queue_look(&r), &graphs[11], "it stays");
	md_restore_refuse(&r, &graphs[12], &err);
	cr_assert_eq(md_graph_queue_look(&r), &graphs[12], "the graph that is refused");
	md_graph_queue_drop(&r, &graphs[12]);
	md_graph_queue_take_off(&r);
	md_graph_queue_take_off(&r);
	cr_assert_null(md_graph_queue_look(&r), "each graph is listed once");
	for (uint32_t i = 0; i < COUNT; i++)
		md_graph_queue_drop(&r, &graphs[i]);
	cr_assert_eq(r.drop_count, COUNT, "room for all");
}
