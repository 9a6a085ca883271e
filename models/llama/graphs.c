/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring and capturing the decode graphs, and timing their replay. */
#include "models/llama/graphs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "models/llama/integration.h"

enum md_status llama_graphs_init(struct llama_graphs *graphs, const struct llama_engine *engine,
				 const unsigned *batches, size_t count, struct md_error *err)
{
	char digest[33];
	memset(graphs, 0, sizeof(*graphs));
	graphs->graphs = calloc(count ? count : 1, sizeof(*graphs->graphs));
	if (!graphs->graphs)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %zu graphs", count);
	graphs->count = count;
	for (size_t i = 0; i < count; i++)
		graphs->graphs[i].batch = batches[i];
	llama_engine_fingerprint(engine, digest);
	snprintf(graphs->label, sizeof(graphs->label), "decode-%.8s", digest);
	return MD_OK;
}

static void note_ready(struct llama_graphs *graphs)
{
	if (!graphs->first_ready_at)
		graphs->first_ready_at = md_clock_ns();
}

static size_t restore_all(struct llama_graphs *graphs)
{
	size_t missing = 0;
	uint64_t start = md_clock_ns();
	for (size_t i = 0; i < graphs->count; i++) {
		struct llama_graph *graph = &graphs->graphs[i];
		graph->restored = integration_graph(graphs->label, graph->batch, &graph->exec);
		if (graph->restored)
			note_ready(graphs);
		else
			missing++;
		snprintf(graph->reason, sizeof(graph->reason), "%s", graph->restored ? "" : integration_reason());
	}
	graphs->restore_ns = md_clock_ns() - start;
	return missing;
}

/*
 * What the rows of warm-up and capture stand for: each another token at another position of a block of its own, so that
 * rows differ and none writes where another one does. Rows for which there is no block are all alike, in the scratch
 * block.
 */
static void set_row(struct llama_engine *engine, int row, int32_t *token, int32_t *position)
{
	const struct llama_shape *shape = &engine->model->shape;
	bool own = row + 1 < engine->kv_blocks;
	*token = own ? (7 * row + 1) % shape->vocabulary : 0;
	*position = own ? row % shape->block_size % engine->limits.max_context : 0;
}

enum md_status llama_graphs_set_rows(struct llama_engine *engine, struct md_error *err)
{
	int batch = engine->limits.max_batch;
	size_t bytes = 4 * (size_t)batch;
	int32_t *staging = engine->staging, ignored;
	for (int row = 0; row < batch; row++)
		set_row(engine, row, &staging[row], &ignored);
	MD_FORWARD(llama_engine_upload(engine, engine->tokens.address, staging, bytes, err));
	for (int row = 0; row < batch; row++)
		set_row(engine, row, &ignored, &staging[row]);
	MD_FORWARD(llama_engine_upload(engine, engine->positions.address, staging, bytes, err));
	for (int row = 0; row < batch; row++)
		staging[row] = row;
	MD_FORWARD(llama_engine_upload(engine, engine->slots.address, staging, bytes, err));
	for (int row = 0; row < batch; row++)
		staging[row] = (row + 1) % (engine->lora.slots + 1) - 1;
	if (engine->lora.slots)
		MD_FORWARD(llama_engine_upload(engine, engine->lora.adapters.address, staging, bytes, err));
	memset(staging, 0, engine->block_table.bytes);
	for (int row = 0; row < batch && row + 1 < engine->kv_blocks; row++)
		staging[row * engine->max_blocks] = row + 1;
	return llama_engine_upload(engine, engine->block_table.address, staging, engine->block_table.bytes, err);
}

static enum md_status warm_up(struct llama_graphs *graphs, struct llama_engine *engine, const struct llama_graph *graph,
			      struct md_error *err)
{
	uint64_t start = md_clock_ns();
	MD_FORWARD(llama_engine_decode(engine, &engine->decode, (int)graph->batch, err));
	MD_FORWARD(llama_engine_wait(engine, err));
	graphs->warmup_ns += md_clock_ns() - start;
	return MD_OK;
}

static enum md_status record(struct llama_engine *engine, const struct llama_graph *graph, CUgraph *out,
			     struct md_error *err)
{
	MD_FORWARD(md_cuda_call(err, cuStreamBeginCapture_v2, engine->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	enum md_status status = llama_engine_decode(engine, &engine->decode, (int)graph->batch, err);
	/* a capture that failed must be ended too, or the stream stays in it */
	if (status != MD_OK) {
		md_cuda_call(NULL, cuStreamEndCapture, engine->stream, out);
		return status;
	}
	return md_cuda_call(err, cuStreamEndCapture, engine->stream, out);
}

static enum md_status capture(struct llama_graphs *graphs, struct llama_engine *engine, struct llama_graph *graph,
			      struct md_error *err)
{
	CUgraph recorded = NULL;
	uint64_t start = md_clock_ns();
	MD_FORWARD(record(engine, graph, &recorded, err));
	graphs->capture_ns += md_clock_ns() - start;
	start = md_clock_ns();
	enum md_status status = md_cuda_call(err, cuGraphGetNodes, recorded, NULL, &graph->nodes);
	if (status == MD_OK)
		status = md_cuda_call(err, cuGraphInstantiateWithFlags, &graph->exec, recorded, 0);
	if (status == MD_OK)
		status = md_cuda_call(err, cuGraphUpload, graph->exec, engine->stream);
	md_cuda_call(NULL, cuGraphDestroy, recorded);
	MD_FORWARD(status);
	graphs->instantiate_ns += md_clock_ns() - start;
	integration_label(graph->exec, graphs->label, graph->batch);
	return MD_OK;
}

enum md_status llama_graphs_prepare(struct llama_graphs *graphs, struct llama_engine *engine, struct md_error *err)
{
	if (!restore_all(graphs))
		return MD_OK;
	MD_FORWARD(llama_engine_take_decode(engine, err));
	MD_FORWARD(llama_graphs_set_rows(engine, err));
	for (size_t i = 0; i < graphs->count; i++) {
		struct llama_graph *graph = &graphs->graphs[i];
		if (graph->restored)
			continue;
		if (warm_up(graphs, engine, graph, err) != MD_OK || capture(graphs, engine, graph, err) != MD_OK)
			return md_error_prefix(err, "graph of batch %u", graph->batch);
		note_ready(graphs);
	}
	return llama_engine_wait(engine, err);
}

void llama_graphs_finish(struct llama_graphs *graphs)
{
	for (size_t i = 0; i < graphs->count; i++)
		if (graphs->graphs[i].exec && !graphs->graphs[i].restored)
			md_cuda_call(NULL, cuGraphExecDestroy, graphs->graphs[i].exec);
	free(graphs->graphs);
	memset(graphs, 0, sizeof(*graphs));
}

const struct llama_graph *llama_graphs_pick(const struct llama_graphs *graphs, size_t live)
{
	for (size_t i = 0; i < graphs->count; i++)
		if (graphs->graphs[i].batch >= live)
			return &graphs->graphs[i];
	return NULL;
}

enum md_status llama_graph_launch(const struct llama_graph *graph, struct llama_engine *engine, struct md_error *err)
{
	return md_cuda_call(err, cuGraphLaunch, graph->exec, engine->stream);
}

static int compare_times(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
	return (left > right) - (left < right);
}

static enum md_status time_replay(struct llama_engine *engine, const struct llama_graph *graph, uint64_t *ns,
				  struct md_error *err)
{
	uint64_t start = md_clock_ns();
	MD_FORWARD(llama_graph_launch(graph, engine, err));
	MD_FORWARD(llama_engine_wait(engine, err));
	*ns = md_clock_ns() - start;
	return MD_OK;
}

static uint64_t median(uint64_t *times, int count)
{
	qsort(times, (size_t)count, sizeof(*times), compare_times);
	return times[count / 2];
}

/* In turns with a twin captured live, when there is one: the device's clocks and warmth meet both alike. */
static enum md_status measure(struct llama_graph *graph, const struct llama_graph *twin, struct llama_engine *engine,
			      uint64_t *times, int rounds, struct md_error *err)
{
	uint64_t *twin_times = times + rounds;
	for (int round = 0; round < rounds; round++) {
		MD_FORWARD(time_replay(engine, graph, &times[round], err));
		if (twin)
			MD_FORWARD(time_replay(engine, twin, &twin_times[round], err));
	}
	graph->replay_ns = median(times, rounds);
	graph->replay_live_ns = twin ? median(twin_times, rounds) : 0;
	return MD_OK;
}

static enum md_status measure_restored(struct llama_graph *graph, struct llama_engine *engine, uint64_t *times,
				       int rounds, struct md_error *err)
{
	struct llama_graphs unnamed = {0};
	struct llama_graph twin = {.batch = graph->batch};
	MD_FORWARD(llama_engine_take_decode(engine, err));
	MD_FORWARD(warm_up(&unnamed, engine, &twin, err));
	MD_FORWARD(capture(&unnamed, engine, &twin, err));
	enum md_status status = measure(graph, &twin, engine, times, rounds, err);
	md_cuda_call(NULL, cuGraphExecDestroy, twin.exec);
	return status;
}

enum md_status llama_graphs_measure(struct llama_graphs *graphs, struct llama_engine *engine, int rounds,
				    struct md_error *err)
{
	MD_AUTO_FREE uint64_t *times = calloc(2 * (size_t)rounds, sizeof(*times));
	if (!times)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %d times", rounds);
	MD_FORWARD(llama_graphs_set_rows(engine, err));
	for (size_t i = 0; i < graphs->count; i++) {
		struct llama_graph *graph = &graphs->graphs[i];
		if (graph->restored)
			MD_FORWARD(measure_restored(graph, engine, times, rounds, err));
		else
			MD_FORWARD(measure(graph, NULL, engine, times, rounds, err));
	}
	return MD_OK;
}
