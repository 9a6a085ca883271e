/* SPDX-License-Identifier: Apache-2.0 */
/* A node model on a bench: Torpor's node and three of its models, driven by hand, with a log of what happened. */
#ifndef MD_TESTS_SIM_BENCH_H
#define MD_TESTS_SIM_BENCH_H

#include <criterion/criterion.h>
#include <string.h>

#include "simulator/model/node_model.h"

#define MS UINT64_C(1000000)
#define GB 1e9
#define MAX_GPUS 4
#define MAX_EVENTS 256

/* A node of two PCIe switches with two GPUs each, and a log of what happened. */
struct bench {
	struct medusa_sched_gpu gpus[MAX_GPUS];
	double peers[MAX_GPUS * MAX_GPUS];
	struct md_sim_node node;
	struct md_sim_function functions[3];
	struct md_sim_backbone backbones[1];
	struct md_sim_functions all;
	struct md_sim_request requests[8];
	struct md_sim_workload workload;
	struct md_sim_model_options options;
	struct md_sim_model *model;
	struct medusa_sched_event events[MAX_EVENTS];
	size_t count;
	uint64_t transfers, batches;
};

enum { DENSENET, RESNET, BERT };

static inline struct md_sim_function function_of(uint64_t bytes, uint64_t work, uint64_t swap, uint64_t peer,
						 double tail)
{
	return (struct md_sim_function){.spec = {.size = sizeof(struct medusa_sched_function),
						 .backbone = MEDUSA_SCHED_NONE,
						 .weight_bytes = bytes,
						 .in_host = 1,
						 .t0_ns = work,
						 .swap_ns = swap,
						 .swap_peer_ns = peer},
					.tail = tail};
}

/* Torpor's node and three of its models, latencies as in its Table 3 and 4. */
static inline void bench_init(struct bench *bench)
{
	*bench = (struct bench){0};
	for (uint32_t i = 0; i < MAX_GPUS; i++)
		bench->gpus[i] = (struct medusa_sched_gpu){sizeof(bench->gpus[i]), UINT64_C(32000000000), i / 2, 1};
	for (uint32_t i = 0; i < MAX_GPUS * MAX_GPUS; i++)
		bench->peers[i] = i / MAX_GPUS == i % MAX_GPUS ? 0 : 40 * GB;
	bench->node = (struct md_sim_node){.gpus = bench->gpus,
					   .gpu_count = MAX_GPUS,
					   .host_bytes_per_s = 9.8 * GB,
					   .switch_bytes_per_s = 11.2 * GB,
					   .cold_bytes_per_s = 1 * GB,
					   .peer_bytes_per_s = bench->peers,
					   .prefill_share = 1};
	bench->functions[DENSENET] = function_of(57 * 1000000, 25 * MS, 27 * MS, 26 * MS, 0.08);
	bench->functions[RESNET] = function_of(241 * 1000000, 17 * MS, 29 * MS, 20 * MS, 0.08);
	bench->functions[BERT] = function_of(1340 * 1000000ull, 43 * MS, 149 * MS, 45 * MS, 0.08);
	bench->all = (struct md_sim_functions){
	    .functions = bench->functions, .count = 3, .backbones = bench->backbones, .model_count = 1};
	bench->workload = (struct md_sim_workload){.requests = bench->requests, .count = 8};
	bench->options =
	    (struct md_sim_model_options){.node = &bench->node, .functions = &bench->all, .workload = &bench->workload};
}

static inline void bench_start(struct bench *bench)
{
	struct md_error err = {0};
	cr_assert_eq(md_sim_model_create(&bench->options, &bench->model, &err), MD_OK, "%s", err.message);
}

static inline void bench_finish(struct bench *bench)
{
	md_sim_model_destroy(bench->model);
}

static inline void assert_no_complaint(const struct bench *bench)
{
	cr_assert_null(md_sim_model_complaint(bench->model, NULL), "%s", md_sim_model_complaint(bench->model, NULL));
}

static inline struct medusa_sched_action weights(struct bench *bench, enum medusa_sched_action_type type,
						 uint32_t function, uint32_t gpu)
{
	return (struct medusa_sched_action){.type = type,
					    .artifact = MEDUSA_SCHED_CLASS_WEIGHTS,
					    .source = MEDUSA_SCHED_SOURCE_HOST,
					    .function = function,
					    .gpu = gpu,
					    .transfer = type == MEDUSA_SCHED_ACTION_EVICT ? 0 : ++bench->transfers,
					    .bytes = bench->functions[function].spec.weight_bytes};
}

static inline struct medusa_sched_action run(struct bench *bench, uint32_t function, uint32_t gpu,
					     const uint64_t *requests, uint32_t count)
{
	return (struct medusa_sched_action){.type = MEDUSA_SCHED_ACTION_RUN,
					    .function = function,
					    .gpu = gpu,
					    .batch = ++bench->batches,
					    .requests = requests,
					    .request_count = count};
}

static inline void apply_all(struct bench *bench, uint64_t now, const struct medusa_sched_action *actions, size_t count)
{
	const struct medusa_sched_action *list[8];
	cr_assert_leq(count, sizeof(list) / sizeof(list[0]));
	for (size_t i = 0; i < count; i++)
		list[i] = &actions[i];
	md_sim_model_apply(bench->model, now, list, count);
}

static inline void apply(struct bench *bench, uint64_t now, struct medusa_sched_action action)
{
	apply_all(bench, now, &action, 1);
}

/* A swap-in with a batch of one that waits for it. */
static inline void swap_and_run(struct bench *bench, uint64_t now, uint32_t function, uint32_t gpu, uint64_t request)
{
	struct medusa_sched_action actions[] = {weights(bench, MEDUSA_SCHED_ACTION_SWAP_IN, function, gpu),
						run(bench, function, gpu, &request, 1)};
	apply_all(bench, now, actions, 2);
}

/* Lets everything happen until `until`, and writes it down. */
static inline void play(struct bench *bench, uint64_t until)
{
	uint64_t at;
	while (md_sim_model_due(bench->model, &at) && at <= until) {
		md_sim_model_advance(bench->model);
		while (bench->count < MAX_EVENTS && md_sim_model_event(bench->model, &bench->events[bench->count]))
			bench->count++;
	}
}

/* When it happened; it must have happened exactly once. number: request, batch or transfer, by type. */
static inline uint64_t time_of(const struct bench *bench, enum medusa_sched_event_type type, uint64_t number)
{
	uint64_t at = UINT64_MAX;
	int times = 0;
	for (size_t i = 0; i < bench->count; i++) {
		const struct medusa_sched_event *event = &bench->events[i];
		uint64_t has = event->request;
		if (type == MEDUSA_SCHED_EVENT_TRANSFER_DONE || type == MEDUSA_SCHED_EVENT_EVICTED ||
		    type == MEDUSA_SCHED_EVENT_TRANSFER_FAILED)
			has = event->transfer;
		else if (type == MEDUSA_SCHED_EVENT_STARTED || type == MEDUSA_SCHED_EVENT_BATCH_FAILED)
			has = event->batch;
		if (event->type != type || has != number)
			continue;
		at = event->now;
		times++;
	}
	cr_assert_eq(times, 1, "event %d of %llu happened %d times", type, (unsigned long long)number, times);
	return at;
}

static inline size_t count_of(const struct bench *bench, enum medusa_sched_event_type type)
{
	size_t count = 0;
	for (size_t i = 0; i < bench->count; i++)
		count += bench->events[i].type == type;
	return count;
}

#endif
