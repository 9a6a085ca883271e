/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the scheduler that read like a script: events in, and the actions that they brought as lines of text. */
#ifndef MD_TESTS_SCHEDULER_FIXTURE_H
#define MD_TESTS_SCHEDULER_FIXTURE_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "medusa/scheduler.h"

#define MS 1000000ull
#define SECOND 1000000000ull
#define GB 1000000000ull
#define NOBODY MEDUSA_SCHED_NONE

/*
 * Lines, in the actions' order; batches and transfers are numbered as they appear, from 1:
 *   run b1 f0 gpu0 [7 8]                 requests 7 and 8 of function 0
 *   join b1 f0 gpu0 [9]                  so does request 9 from now on
 *   swap t1 weights f0 gpu0 host         source: host, peer1, cold, made; a backbone: "backbone 0"
 *   preload t2 library f0 host cold      into host memory
 *   evict weights f0 gpu0                at once; evict t3 ...: until EVICTED; offload likewise
 *   reject 7 never fits
 *   abort 7 b1 deadline                  request 7; of a transfer: abort t3 weights f0 gpu0
 * The timer is in `timer`; where it matters, a test looks there. After each event the books are audited.
 */
struct script {
	struct medusa_sched *sched;
	uint64_t now, timer;
	uint64_t batches[512], transfers[2048];
	uint32_t batch_count, transfer_count;
	char waits[256]; /* what the last run waits for: "t1 t2 " */
	char log[65536];
	size_t length;
};

struct setup {
	uint32_t gpus, slots;                /* 0: 1 */
	double gb;                           /* of each GPU; 0: 80 */
	double host_gb;                      /* 0: without bound */
	double peer_gb_per_s;                /* between all GPUs */
	const double *links;                 /* or from each to each, GB/s, gpus x gpus */
	struct medusa_sched_options options; /* policies that are NULL: fifo, first, lru, none, none */
};

static inline void script_log(struct script *n, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	n->length += (size_t)vsnprintf(n->log + n->length, sizeof(n->log) - n->length, format, args);
	va_end(args);
	cr_assert_lt(n->length, sizeof(n->log), "the script's log is full");
}

static inline void script_start(struct script *n, const struct setup *setup)
{
	struct medusa_sched_gpu gpus[16];
	double peers[256];
	struct medusa_sched_options o = setup->options;
	uint32_t count = setup->gpus ? setup->gpus : 1;
	for (uint32_t i = 0; i < count; i++)
		gpus[i] = (struct medusa_sched_gpu){.size = sizeof(gpus[i]),
						    .memory_bytes = (uint64_t)((setup->gb > 0 ? setup->gb : 80) * 1e9),
						    .pcie_switch = i / 2,
						    .slots = setup->slots};
	for (uint32_t i = 0; i < count * count; i++)
		peers[i] = (setup->links ? setup->links[i] : setup->peer_gb_per_s) * 1e9;
	struct medusa_sched_node node = {.size = sizeof(node),
					 .gpus = gpus,
					 .gpu_count = count,
					 .host_bytes = (uint64_t)(setup->host_gb * 1e9),
					 .host_bytes_per_s = 10e9,
					 .cold_bytes_per_s = 1e9,
					 .peer_bytes_per_s = setup->links || setup->peer_gb_per_s > 0 ? peers : NULL};
	o.size = sizeof(o);
	o.queueing = o.queueing ? o.queueing : "fifo";
	o.placement = o.placement ? o.placement : "first";
	o.eviction = o.eviction ? o.eviction : "lru";
	o.batching = o.batching ? o.batching : "none";
	o.preloading = o.preloading ? o.preloading : "none";
	*n = (struct script){.now = SECOND};
	cr_assert_eq(medusa_sched_create(&node, &o, &n->sched), 0, "%s", medusa_sched_error(NULL));
}

/* A model with weights of its own that lie in host memory: 100 ms to the first token, 10 ms more for each
 * in a batch. */
static inline struct medusa_sched_function script_model(double gb)
{
	return (struct medusa_sched_function){.size = sizeof(struct medusa_sched_function),
					      .backbone = NOBODY,
					      .weight_bytes = (uint64_t)(gb * 1e9),
					      .in_host = 1,
					      .t0_ns = 100 * MS,
					      .alpha_ns = 10 * MS,
					      .max_batch = 1,
					      .max_parallel = 1};
}

static inline uint32_t script_add(struct script *n, struct medusa_sched_function function)
{
	uint32_t index = NOBODY;
	cr_assert_eq(medusa_sched_add_function(n->sched, &function, &index), 0, "%s", medusa_sched_error(n->sched));
	return index;
}

static inline uint32_t script_backbone(struct script *n, double gb)
{
	uint32_t index = NOBODY;
	struct medusa_sched_backbone b = {.size = sizeof(b), .bytes = (uint64_t)(gb * 1e9), .in_host = 1};
	cr_assert_eq(medusa_sched_add_backbone(n->sched, &b, &index), 0, "%s", medusa_sched_error(n->sched));
	return index;
}

/* ---- actions ---- */

static inline uint32_t script_number(uint64_t *ids, uint32_t *count, uint32_t capacity, uint64_t id)
{
	uint32_t i = 0;
	while (i < *count && ids[i] != id)
		i++;
	cr_assert_lt(i, capacity, "more batches or transfers than the script can number");
	if (i == *count)
		ids[(*count)++] = id;
	return i + 1;
}

static inline void script_run(struct script *n, const struct medusa_sched_action *a)
{
	script_log(n, "%s b%u f%u gpu%u [", medusa_sched_action_name(a->type),
		   script_number(n->batches, &n->batch_count, 512, a->batch), a->function, a->gpu);
	for (uint32_t i = 0; i < a->request_count; i++)
		script_log(n, "%s%llu", i ? " " : "", (unsigned long long)a->requests[i]);
	script_log(n, "]\n");
	n->waits[0] = 0;
	for (uint32_t i = 0, at = 0; i < a->transfer_count; i++)
		at += (uint32_t)snprintf(n->waits + at, sizeof(n->waits) - at, "t%u ",
					 script_number(n->transfers, &n->transfer_count, 2048, a->transfers[i]));
}

static inline void script_copy(struct script *n, const struct medusa_sched_action *a, const char *verb)
{
	static const char *const classes[] = {"backbone", "weights", "context", "library"};
	script_log(n, "%s ", verb);
	if (a->transfer)
		script_log(n, "t%u ", script_number(n->transfers, &n->transfer_count, 2048, a->transfer));
	if (a->artifact == MEDUSA_SCHED_CLASS_BACKBONE)
		script_log(n, "backbone %u ", a->backbone);
	else
		script_log(n, "%s f%u ", classes[a->artifact], a->function);
	if (a->gpu == NOBODY)
		script_log(n, "host");
	else
		script_log(n, "gpu%u", a->gpu);
	switch (a->source) {
	case MEDUSA_SCHED_SOURCE_HOST:
		script_log(n, " host\n");
		break;
	case MEDUSA_SCHED_SOURCE_PEER:
		script_log(n, " peer%u\n", a->peer);
		break;
	case MEDUSA_SCHED_SOURCE_COLD:
		script_log(n, " cold\n");
		break;
	case MEDUSA_SCHED_SOURCE_MADE:
		script_log(n, " made\n");
		break;
	default:
		script_log(n, "\n");
	}
}

static inline void script_abort(struct script *n, const struct medusa_sched_action *a)
{
	if (a->batch)
		script_log(n, "abort %llu b%u %s\n", (unsigned long long)a->request,
			   script_number(n->batches, &n->batch_count, 512, a->batch),
			   medusa_sched_reason_name(a->reason));
	else
		script_copy(n, a, "abort");
}

static inline void script_actions(struct script *n, const struct medusa_sched_action *const *actions, size_t count)
{
	static const char *const verbs[] = {
	    [MEDUSA_SCHED_ACTION_SWAP_IN] = "swap",
	    [MEDUSA_SCHED_ACTION_PRELOAD] = "preload",
	    [MEDUSA_SCHED_ACTION_EVICT] = "evict",
	    [MEDUSA_SCHED_ACTION_OFFLOAD] = "offload",
	};
	for (size_t i = 0; i < count; i++) {
		const struct medusa_sched_action *a = actions[i];
		if (a->type == MEDUSA_SCHED_ACTION_RUN || a->type == MEDUSA_SCHED_ACTION_JOIN)
			script_run(n, a);
		else if (a->type == MEDUSA_SCHED_ACTION_REJECT)
			script_log(n, "reject %llu %s\n", (unsigned long long)a->request,
				   medusa_sched_reason_name(a->reason));
		else if (a->type == MEDUSA_SCHED_ACTION_SET_TIMER)
			n->timer = a->at;
		else if (a->type == MEDUSA_SCHED_ACTION_ABORT)
			script_abort(n, a);
		else
			script_copy(n, a, verbs[a->type]);
	}
}

/* ---- events ---- */

static inline void script_step(struct script *n, struct medusa_sched_event event)
{
	const struct medusa_sched_action *const *actions;
	size_t count;
	event.now = n->now;
	event.size = sizeof(event);
	int code = medusa_sched_step(n->sched, &event, &actions, &count);
	cr_assert_eq(code, 0, "event %d: %s", event.type, medusa_sched_error(n->sched));
	script_actions(n, actions, count);
	cr_assert_eq(medusa_sched_audit(n->sched), 0, "after event %d: %s", event.type, medusa_sched_error(n->sched));
}

/* Time passes; timers ring on their way. */
static inline void script_wait(struct script *n, uint64_t ns)
{
	uint64_t until = n->now + ns;
	while (n->timer && n->timer <= until) {
		n->now = n->timer;
		n->timer = 0;
		script_step(n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TIMER});
	}
	n->now = until;
}

static inline void script_timer(struct script *n)
{
	script_step(n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TIMER});
}

static inline void script_arrive(struct script *n, uint64_t request, uint32_t function)
{
	script_step(n, (struct medusa_sched_event){
			   .type = MEDUSA_SCHED_EVENT_ARRIVAL, .request = request, .function = function});
}

static inline void script_arrive_kv(struct script *n, uint64_t request, uint32_t function, double kv_gb)
{
	script_step(n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_ARRIVAL,
						   .request = request,
						   .function = function,
						   .kv_bytes = (uint64_t)(kv_gb * 1e9)});
}

static inline void script_request(struct script *n, enum medusa_sched_event_type type, uint64_t request)
{
	script_step(n, (struct medusa_sched_event){.type = type, .request = request});
}

static inline void script_done(struct script *n, uint64_t request)
{
	script_request(n, MEDUSA_SCHED_EVENT_DONE, request);
}

static inline void script_batch_failed(struct script *n, uint32_t batch)
{
	cr_assert(batch && batch <= n->batch_count, "b%u was never started", batch);
	script_step(
	    n, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_BATCH_FAILED, .batch = n->batches[batch - 1]});
}

static inline void script_transfer(struct script *n, enum medusa_sched_event_type type, uint32_t transfer)
{
	cr_assert(transfer && transfer <= n->transfer_count, "t%u was never started", transfer);
	script_step(n, (struct medusa_sched_event){.type = type, .transfer = n->transfers[transfer - 1]});
}

static inline void script_copied(struct script *n, uint32_t transfer)
{
	script_transfer(n, MEDUSA_SCHED_EVENT_TRANSFER_DONE, transfer);
}

static inline void script_evicted(struct script *n, uint32_t transfer)
{
	script_transfer(n, MEDUSA_SCHED_EVENT_EVICTED, transfer);
}

static inline void script_gpu(struct script *n, enum medusa_sched_event_type type, uint32_t gpu)
{
	script_step(n, (struct medusa_sched_event){.type = type, .gpu = gpu});
}

static inline void script_bytes(struct script *n, enum medusa_sched_event_type type, uint32_t gpu, double gb)
{
	script_step(
	    n, (struct medusa_sched_event){.type = type, .gpu = gpu, .bytes = (uint64_t)(gb * 1e9), .as_of = n->now});
}

/* One request from its arrival to its end, all copies done: its function is where it ran, idle. */
static inline void script_serve(struct script *n, uint64_t request, uint32_t function)
{
	uint32_t before = n->transfer_count;
	script_arrive(n, request, function);
	while (before < n->transfer_count)
		script_transfer(n, MEDUSA_SCHED_EVENT_TRANSFER_DONE, ++before);
	script_done(n, request);
	n->now += MS;
}

/* ---- what they brought ---- */

static inline void script_forget(struct script *n)
{
	n->length = 0;
	n->log[0] = 0;
}

/* The lines since the last look; "" for none. */
#define expect(n, lines)                                                                                               \
	do {                                                                                                           \
		cr_assert_str_eq((n)->log, lines, "\n--- expected\n%s--- got\n%s---", lines, (n)->log);                \
		script_forget(n);                                                                                      \
	} while (0)

static inline struct medusa_sched_gpu_state script_books(const struct script *n, uint32_t gpu)
{
	struct medusa_sched_gpu_state state = {.size = sizeof(state)};
	cr_assert_eq(medusa_sched_gpu_get(n->sched, gpu, &state), 0);
	return state;
}

static inline struct medusa_sched_function_state script_function(const struct script *n, uint32_t function)
{
	struct medusa_sched_function_state state = {.size = sizeof(state)};
	cr_assert_eq(medusa_sched_function_get(n->sched, function, &state), 0);
	return state;
}

static inline struct medusa_sched_stats script_stats(const struct script *n)
{
	struct medusa_sched_stats stats = {.size = sizeof(stats)};
	cr_assert_eq(medusa_sched_stats_get(n->sched, &stats), 0);
	return stats;
}

static inline void script_end(struct script *n)
{
	medusa_sched_destroy(n->sched);
}

#endif
