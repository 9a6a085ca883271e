/* SPDX-License-Identifier: Apache-2.0 */
/* Makes small graphs many at a time: waits once for the device, and wakes waiting threads once. */
#include "restore/small_graphs.h"

#include "base/clock.h"
#include "restore/graph_state.h"
#include "restore/stages.h"

/*
 * A graph of a few nodes takes the driver some microseconds. Choosing each of its stages, waiting for its upload, and
 * waking the thread that waits for it would take as long again. So all stages of such a graph run in a row, and there is
 * one wait for the first BATCH_LEAST graphs, and for those that are made within a fraction of a millisecond. A thread that
 * waits for the first of them gets it that much later. As long as there is more to make, each batch may take longer than
 * the one before, so that no thread waits for more than an eighth longer than the restore has lasted.
 */
#define SMALL_NODES 64u
#define BATCH_LEAST 4u
#define BATCH_GRAPHS 256u
#define BATCH_NS 200000u
#define BATCH_NS_MOST 1000000u

struct batch {
	struct md_restore_graph *graphs[BATCH_GRAPHS];
	uint32_t count;
	struct md_stage_times times;
};

bool md_restore_batch_fits(struct md_restore *r, const struct md_work *work)
{
	return work->kind == MD_WORK_BUILD && work->graph->stage == 0 &&
	       work->graph->stored->node_count <= SMALL_NODES && !r->holds && md_pace_is_free(work->awaited);
}

static void refuse(struct md_restore *r, struct md_restore_graph *graph, const struct md_error *why)
{
	pthread_mutex_lock(&md_restore_lock);
	md_restore_refuse(r, graph, why);
	pthread_mutex_unlock(&md_restore_lock);
}

/* Makes a graph, and drops the template of its executable, so that the next graph gets that memory. */
static void make(struct md_restore *r, struct md_restore_graph *graph, struct batch *batch)
{
	struct md_error err = {0};
	if (md_restore_graph_make(r, graph, &batch->times, &err) != MD_OK) {
		refuse(r, graph, &err);
		return;
	}
	md_restore_drop_template(graph);
	graph->batched = true;
	batch->graphs[batch->count++] = graph;
}

/* The next graph, if it is as small as those before; NULL ends the batch. */
static struct md_restore_graph *next(struct md_restore *r) MD_REQUIRES(md_restore_work)
{
	pthread_mutex_lock(&md_restore_lock);
	struct md_work work = {.kind = MD_WORK_WAIT};
	if (!atomic_load(&r->stop))
		work = md_restore_work_next(r, false);
	bool fits = md_restore_batch_fits(r, &work);
	pthread_mutex_unlock(&md_restore_lock);
	return fits ? work.graph : NULL;
}

static void hand_on(struct md_restore *r, const struct batch *batch)
{
	pthread_mutex_lock(&md_restore_lock);
	for (uint32_t i = 0; i < batch->count; i++)
		if (batch->graphs[i]->state == MD_GRAPH_WAITING) /* its group may have been refused meanwhile */
			md_restore_graph_ready(r, batch->graphs[i]);
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&md_restore_lock);
}

/* When the wait fails, it is not known which upload has failed, so all of them are undone. */
static void finish(struct md_restore *r, struct batch *batch)
{
	struct md_error failed = {0};
	enum md_status status = md_restore_graphs_wait(r, &batch->times, &failed);
	for (uint32_t i = 0; i < batch->count; i++) {
		struct md_error err = failed;
		batch->graphs[i]->batched = false;
		if (status == MD_OK)
			continue;
		md_restore_graph_not_uploaded(r, batch->graphs[i], &err);
		refuse(r, batch->graphs[i], &err);
	}
	hand_on(r, batch);
}

void md_restore_batch_make(struct md_restore *r, const struct md_work *first)
{
	struct batch batch = {.times.launches = md_pace_launches()};
	uint64_t start = md_clock_ns(), most = r->batch_ns < BATCH_NS ? BATCH_NS : r->batch_ns;
	struct md_restore_graph *graph = first->graph;
	bool in_time = true;
	for (uint32_t made = 1; graph && made <= BATCH_GRAPHS; made++) {
		make(r, graph, &batch);
		in_time = made < BATCH_LEAST || md_clock_ns() - start < most;
		graph = in_time ? next(r) : NULL;
	}
	r->batch_ns = in_time ? BATCH_NS : most + most / 8 < BATCH_NS_MOST ? most + most / 8 : BATCH_NS_MOST;
	finish(r, &batch);
	md_restore_times_count(r, &batch.times, first->awaited);
}
