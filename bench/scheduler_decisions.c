/* SPDX-License-Identifier: Apache-2.0 */
/* What a step of the scheduler costs: a node with 8 GPUs at work in simulated time, policy after policy; as a page. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/stopwatch.h"
#include "bench/machine.h"
#include "medusa/scheduler.h"

#define GPUS 8
#define GB 1000000000ull
#define MS 1000000ull
#define SECOND 1000000000ull
#define STEPS 200000
#define WARM_UP 50000

static const struct policies {
	const char *name, *queueing, *placement, *eviction, *batching, *preloading;
} all_policies[] = {
    {"medusa", "medusa", "medusa", "medusa", "medusa", "medusa"},
    {"torpor", "torpor", "torpor", "torpor", "none", "none"},
    {"xlora", "margin", "xlora", "density", "xlora", "xlora"},
    {"fifo-lru", "fifo", "first", "lru", "none", "none"},
};

/* ---- a node that does what it is told, in simulated time ---- */

struct due {
	uint64_t at, order;
	struct medusa_sched_event event;
};

struct node {
	struct medusa_sched *sched;
	struct due *heap;
	size_t count, capacity;
	uint64_t now, timer, order, random, link_free[GPUS];
	uint64_t t0_ns, gap_ns, next_arrival, next_request;
	uint32_t functions, tenants;
	double *cumulated; /* popularity */
	uint64_t *costs;   /* ns of each step, and of those that start a batch */
	uint64_t *starts;
	uint64_t steps, started;
	struct md_stopwatch stopwatch;
};

static double uniform(struct node *n)
{
	n->random = n->random * 6364136223846793005ull + 1442695040888963407ull;
	return (double)(n->random >> 11) * 0x1p-53;
}

static bool before(const struct due *a, const struct due *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void push(struct node *n, uint64_t at, struct medusa_sched_event event)
{
	if (!MD_ARRAY_GROW(n->heap, n->count, n->capacity))
		exit(3);
	struct due due = {at, n->order++, event};
	size_t i = n->count++;
	for (; i && before(&due, &n->heap[(i - 1) / 2]); i = (i - 1) / 2)
		n->heap[i] = n->heap[(i - 1) / 2];
	n->heap[i] = due;
}

static struct medusa_sched_event pop(struct node *n)
{
	struct due first = n->heap[0], last = n->heap[--n->count];
	size_t i = 0;
	for (size_t child; (child = 2 * i + 1) < n->count; i = child) {
		child += child + 1 < n->count && before(&n->heap[child + 1], &n->heap[child]);
		if (!before(&n->heap[child], &last))
			break;
		n->heap[i] = n->heap[child];
	}
	n->heap[i] = last;
	n->now = first.at > n->now ? first.at : n->now;
	return first.event;
}

static void carry_out(struct node *n, const struct medusa_sched_action *a)
{
	struct medusa_sched_event e = {.type = MEDUSA_SCHED_EVENT_TRANSFER_DONE, .transfer = a->transfer};
	uint64_t takes = a->bytes / 12, start = n->now; /* 12 GB/s */
	if (a->type == MEDUSA_SCHED_ACTION_SET_TIMER) {
		n->timer = a->at;
	} else if (a->type == MEDUSA_SCHED_ACTION_RUN) {
		uint64_t first = n->now + n->t0_ns;
		first = n->link_free[a->gpu] > first ? n->link_free[a->gpu] : first;
		for (uint32_t i = 0; i < a->request_count; i++) {
			e = (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FIRST_TOKEN,
							.request = a->requests[i]};
			push(n, first, e);
			e.type = MEDUSA_SCHED_EVENT_DONE;
			push(n, first + (uint64_t)(2 * uniform(n) * (double)n->t0_ns), e);
		}
	} else if (a->transfer) {
		if (a->gpu != MEDUSA_SCHED_NONE) {
			start = n->link_free[a->gpu] > start ? n->link_free[a->gpu] : start;
			n->link_free[a->gpu] = start + takes;
		}
		push(n, start + takes, e);
	}
}

static uint32_t popular(struct node *n)
{
	double at = uniform(n) * n->cumulated[n->functions - 1];
	uint32_t low = 0, high = n->functions - 1;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (n->cumulated[middle] < at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct medusa_sched_event next_event(struct node *n)
{
	uint64_t due = n->count ? n->heap[0].at : UINT64_MAX, timer = n->timer ? n->timer : UINT64_MAX;
	if (due <= n->next_arrival && due <= timer)
		return pop(n);
	if (timer <= n->next_arrival) {
		n->now = timer > n->now ? timer : n->now;
		n->timer = 0;
		return (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TIMER};
	}
	n->now = n->next_arrival > n->now ? n->next_arrival : n->now;
	n->next_arrival = n->now + (uint64_t)(2 * uniform(n) * (double)n->gap_ns);
	struct medusa_sched_event arrival = {
	    .type = MEDUSA_SCHED_EVENT_ARRIVAL, .request = n->next_request++, .function = popular(n)};
	arrival.tenant = n->tenants ? 1 + (uint32_t)(uniform(n) * n->tenants) : 0;
	return arrival;
}

static bool starts_something(const struct medusa_sched_action *const *actions, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (actions[i]->type == MEDUSA_SCHED_ACTION_RUN)
			return true;
	}
	return false;
}

static void play(struct node *n, uint64_t steps)
{
	n->started = 0;
	for (n->steps = 0; n->steps < steps; n->steps++) {
		struct medusa_sched_event e = next_event(n);
		e.size = sizeof(e);
		const struct medusa_sched_action *const *actions;
		size_t count;
		e.now = n->now;
		md_stopwatch_start(&n->stopwatch);
		int code = medusa_sched_step(n->sched, &e, &actions, &count);
		n->costs[n->steps] = md_stopwatch_stop(&n->stopwatch);
		if (starts_something(actions, count))
			n->starts[n->started++] = n->costs[n->steps];
		if (code) {
			fprintf(stderr, "scheduler_decisions: %s\n", medusa_sched_error(n->sched));
			exit(3);
		}
		for (size_t i = 0; i < count; i++)
			carry_out(n, actions[i]);
	}
}

/* ---- what runs on the node ---- */

struct load {
	const char *title;
	uint32_t functions, backbones; /* backbones 0: weights of their own, 0.5 to 2.5 GB */
	double busy;                   /* part of the calls that the GPUs bear, roughly */
	bool grouped;                  /* few adapters on each backbone, from 4 to 20 GB; else evenly, on 14 GB */
	uint32_t tenants;              /* with weights of 1 to 4; 0: only the default one */
};

static const struct load many_adapters = {"1,000 LoRA functions over 4 backbones of 14 GB", 1000, 4, 1, false, 0};
static const struct load own_weights = {
    "1,000 functions with weights of their own, 0.5 to 2.5 GB", 1000, 0, 1, false, 0};
static const struct load backbones_52 = {
    "276 LoRA functions over 52 backbones of 4 to 20 GB, often idle", 276, 52, 0.1, true, 0};
static const struct load backbones_75 = {
    "276 LoRA functions over 75 backbones of 4 to 20 GB, often idle", 276, 75, 0.1, true, 0};
static const struct load few = {"12 LoRA functions over 6 backbones of 14 GB, often idle", 12, 6, 0.1, false, 0};
static const struct load tenants_100 = {
    .title = "1,000 LoRA functions over 4 backbones of 14 GB, requests of 100 tenants",
    .functions = 1000,
    .backbones = 4,
    .busy = 1,
    .tenants = 100,
};
static const struct load tenants_1000 = {
    .title = "12 LoRA functions over 6 backbones of 14 GB, requests of 1,000 tenants, twice as many as the GPUs bear",
    .functions = 12,
    .backbones = 6,
    .busy = 2,
    .tenants = 1000,
};

static void add_backbones(struct node *n, const struct load *load)
{
	uint32_t index;
	for (uint32_t b = 0; b < load->backbones; b++) {
		struct medusa_sched_backbone backbone = {
		    .size = sizeof(backbone), .bytes = load->grouped ? (4 + b % 5 * 4) * GB : 14 * GB, .in_host = 1};
		if (medusa_sched_add_backbone(n->sched, &backbone, &index))
			exit(3);
	}
}

static void add_functions(struct node *n, const struct load *load)
{
	uint32_t index;
	bool lora = load->backbones;
	for (uint32_t i = 0; i < n->functions; i++) {
		struct medusa_sched_function f = {
		    .size = sizeof(f),
		    .backbone = lora ? i % load->backbones : MEDUSA_SCHED_NONE,
		    .weight_bytes = lora ? GB / 10 * (1 + i % 4) : GB / 2 * (1 + i % 5),
		    .context_bytes = lora ? GB / 2 : 0,
		    .context_ns = lora ? 50 * MS : 0,
		    .kv_bytes = lora ? GB / 2 : 0,
		    .in_host = 1,
		    .t0_ns = n->t0_ns,
		    .alpha_ns = n->t0_ns / 20,
		    .token_ns = n->t0_ns / 10,
		    .max_batch = lora ? 16 : 1,
		    .slo_ns = 10 * n->t0_ns,
		};
		if (medusa_sched_add_function(n->sched, &f, &index)) {
			fprintf(stderr, "scheduler_decisions: %s\n", medusa_sched_error(n->sched));
			exit(3);
		}
		n->cumulated[i] = (i ? n->cumulated[i - 1] : 0) + 1 / (5.0 + (i * 7919u) % n->functions);
	}
}

static void add_tenants(struct node *n)
{
	uint32_t index;
	for (uint32_t i = 0; i < n->tenants; i++) {
		struct medusa_sched_tenant tenant = {.size = sizeof(tenant), .weight = 1 + i % 4};
		if (medusa_sched_add_tenant(n->sched, &tenant, &index))
			exit(3);
	}
}

struct cost {
	double median, p99, p999, start_median, start_p99, most, mean, add, bytes, swaps;
	uint64_t preloads;
};

static int compare(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
	return one < other ? -1 : one > other;
}

static double at(const uint64_t *sorted, uint64_t count, double part)
{
	return count ? (double)sorted[(uint64_t)((double)count * part)] / 1e3 : 0;
}

static void sum_up(struct node *n, struct cost *cost)
{
	double sum = 0;
	qsort(n->costs, STEPS, sizeof(uint64_t), compare);
	qsort(n->starts, n->started, sizeof(uint64_t), compare);
	for (size_t i = 0; i < STEPS; i++)
		sum += (double)n->costs[i] / STEPS;
	struct medusa_sched_stats stats = {.size = sizeof(stats)};
	medusa_sched_stats_get(n->sched, &stats);
	cost->median = at(n->costs, STEPS, 0.5);
	cost->p99 = at(n->costs, STEPS, 0.99);
	cost->p999 = at(n->costs, STEPS, 0.999);
	cost->start_median = at(n->starts, n->started, 0.5);
	cost->start_p99 = at(n->starts, n->started, 0.99);
	cost->most = (double)n->costs[STEPS - 1] / 1e3;
	cost->mean = sum / 1e3;
	cost->bytes = (double)stats.memory_bytes / n->functions;
	cost->swaps = (double)stats.swaps_host / (double)(stats.runs ? stats.runs : 1);
	cost->preloads = stats.preloads;
}

static struct cost measure(const struct policies *p, const struct load *load)
{
	struct medusa_sched_gpu gpus[GPUS];
	bool lora = load->backbones;
	struct node n = {
	    .functions = load->functions, .tenants = load->tenants, .random = 71, .t0_ns = lora ? 150 * MS : 20 * MS};
	struct cost cost = {0};
	for (uint32_t i = 0; i < GPUS; i++)
		gpus[i] = (struct medusa_sched_gpu){sizeof(gpus[i]), 80 * GB, i / 2, lora ? 4 : 1};
	struct medusa_sched_node node = {
	    .size = sizeof(node), .gpus = gpus, .gpu_count = GPUS, .host_bytes_per_s = 12e9};
	struct medusa_sched_options options = {.size = sizeof(options),
					       .queueing = p->queueing,
					       .placement = p->placement,
					       .eviction = p->eviction,
					       .batching = p->batching,
					       .preloading = p->preloading,
					       .max_wait_ns = 30 * SECOND};
	n.gap_ns = (uint64_t)((double)(n.t0_ns * (lora ? 2 : 4) / (lora ? 32 : GPUS)) / load->busy);
	n.cumulated = malloc(n.functions * sizeof(double));
	n.costs = malloc(STEPS * sizeof(uint64_t));
	n.starts = malloc(STEPS * sizeof(uint64_t));
	if (!n.cumulated || !n.costs || !n.starts || medusa_sched_create(&node, &options, &n.sched))
		exit(3);
	uint64_t start = md_clock_ns();
	add_backbones(&n, load);
	add_functions(&n, load);
	cost.add = (double)(md_clock_ns() - start) / n.functions / 1e3;
	add_tenants(&n);
	play(&n, WARM_UP);
	play(&n, STEPS);
	sum_up(&n, &cost);
	medusa_sched_destroy(n.sched);
	free(n.cumulated);
	free(n.costs);
	free(n.starts);
	free(n.heap);
	return cost;
}

/* ---- the page ---- */

static void print_steps(const struct load *load)
{
	printf("\n## %s\n\n| policies | all: median, us | 99 %%, us | 99.9 %%, us | starting a batch: median, us | 99 "
	       "%%, us "
	       "| most, us | mean, us | swaps a batch | preloads |\n|---|---|---|---|---|---|---|---|---|---|\n",
	       load->title);
	for (size_t i = 0; i < sizeof(all_policies) / sizeof(all_policies[0]); i++) {
		struct cost c = measure(&all_policies[i], load);
		printf("| %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.0f | %.2f | %.2f | %" PRIu64 " |\n",
		       all_policies[i].name, c.median, c.p99, c.p999, c.start_median, c.start_p99, c.most, c.mean,
		       c.swaps, c.preloads);
		fflush(stdout);
	}
}

static void print_growth(void)
{
	static const uint32_t sizes[] = {100, 1000, 10000};
	printf("\n## Growth\n\nMean of a step, us (its 99 %%), and what adding a function takes.\n\n"
	       "| policies, functions of | 100 | 1,000 | 10,000 | adding one, of 10,000, us | bytes a function |\n"
	       "|---|---|---|---|---|---|\n");
	for (size_t i = 0; i < 2 * sizeof(all_policies) / sizeof(all_policies[0]); i++) {
		struct cost c = {0};
		printf("| %s, %s |", all_policies[i / 2].name, i % 2 ? "LoRA" : "own weights");
		for (size_t j = 0; j < 3; j++) {
			struct load load = i % 2 ? many_adapters : own_weights;
			load.functions = sizes[j];
			c = measure(&all_policies[i / 2], &load);
			printf(" %.2f (%.2f) |", c.mean, c.p99);
		}
		printf(" %.2f | %.0f |\n", c.add, c.bytes);
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	printf(
	    "# A step of the scheduler\n\nMade by `bench/scheduler_decisions`: 8 GPUs of 80 GB, %d steps of each row "
	    "after %d to warm up, in simulated time;\ncalls by Zipf's law, about as many as the GPUs bear, or a tenth "
	    "of that where it says often idle. Wanted: "
	    "5 us in the median, 50 us in 99 of 100, 500 us in 999 of 1,000. What other processes took is left out. ",
	    STEPS, WARM_UP);
	print_machine();
	print_steps(&many_adapters);
	print_steps(&own_weights);
	print_steps(&backbones_52);
	print_steps(&backbones_75);
	print_steps(&few);
	print_steps(&tenants_100);
	print_steps(&tenants_1000);
	if (argc < 2 || strcmp(argv[1], "--short"))
		print_growth();
	return 0;
}
