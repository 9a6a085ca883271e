/* SPDX-License-Identifier: Apache-2.0 */
/* How much a replay is slowed down while other graphs are restored in the background. */
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "models/llama/graphs.h"
#include "models/llama/integration.h"

#define LIMIT_NS 120000000000u /* a graph that is never ready is refused, and only asking for it would tell */

struct times {
	uint64_t *ns;
	size_t count, room;
};

static int compare_times(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
	return (left > right) - (left < right);
}

static struct llama_replays summary(struct times *times)
{
	struct llama_replays replays = {.count = times->count};
	if (!times->count)
		return replays;
	for (size_t i = 0; i < times->count; i++)
		replays.ns += times->ns[i];
	qsort(times->ns, times->count, sizeof(*times->ns), compare_times);
	replays.p50_ns = times->ns[times->count / 2];
	replays.p99_ns = times->ns[times->count - 1 - times->count / 100];
	replays.longest_ns = times->ns[times->count - 1];
	return replays;
}

static enum md_status replay(const struct llama_graph *graph, struct llama_engine *engine, struct times *times,
			     struct md_error *err)
{
	if (!MD_ARRAY_GROW(times->ns, times->count, times->room))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %zu times", times->count + 1);
	uint64_t start = md_clock_ns();
	MD_FORWARD(llama_graph_launch(graph, engine, err));
	MD_FORWARD(llama_engine_wait(engine, err));
	times->ns[times->count++] = md_clock_ns() - start;
	return MD_OK;
}

static bool all_ready(const struct llama_graphs *graphs, size_t *ready)
{
	while (*ready < graphs->count && integration_graph_ready(graphs->label, graphs->graphs[*ready].batch))
		(*ready)++;
	return *ready == graphs->count;
}

static enum md_status measure(const struct llama_graphs *graphs, const struct llama_graph *graph,
			      struct llama_engine *engine, int rounds, struct times *during, struct times *alone,
			      struct md_error *err)
{
	size_t ready = 1;
	uint64_t start = md_clock_ns();
	MD_FORWARD(llama_graphs_set_rows(engine, err));
	while (!all_ready(graphs, &ready) && md_clock_ns() - start < LIMIT_NS)
		MD_FORWARD(replay(graph, engine, during, err));
	for (int i = 0; i < rounds; i++)
		MD_FORWARD(replay(graph, engine, alone, err));
	return MD_OK;
}

enum md_status llama_graphs_measure_background(const struct llama_graphs *graphs, struct llama_engine *engine,
					       int rounds, struct llama_background *out, struct md_error *err)
{
	struct times during = {0}, alone = {0};
	if (!graphs->count)
		return MD_OK;
	struct llama_graph first = graphs->graphs[0];
	if (!integration_graph(graphs->label, first.batch, &first.exec))
		return MD_OK;
	enum md_status status = measure(graphs, &first, engine, rounds, &during, &alone, err);
	if (status == MD_OK)
		*out = (struct llama_background){true, summary(&during), summary(&alone)};
	free(during.ns);
	free(alone.ns);
	return status;
}
