/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of a cluster (medusa_sched_cluster_plan): time, how much of the rates is placed, and how much moves when rates do; as a Markdown page. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/splitmix.h"
#include "bench/machine.h"
#include "medusa/scheduler_cluster.h"

#define GB UINT64_C(1000000000)
#define ROUNDS 11
#define DOMAIN 16 /* nodes that fail together */

/* CPU time of this thread: what else the machine does does not count. */
static double cpu_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b)
{
	double one = *(const double *)a, other = *(const double *)b;
	return one < other ? -1 : one > other;
}

struct cluster {
	struct medusa_sched_cluster given;
	struct medusa_sched_cluster_node *nodes;
	struct medusa_sched_cluster_model *models;
	struct medusa_sched_cluster_place *places;
};

static double fraction(uint64_t *random)
{
	return (double)(md_random_next(random) >> 11) / 9007199254740992.0;
}

/* Nodes of 8 GPUs of 141 GB. Rates as 1 / rank (Zipf), one request a second and node in all; 5 to 80 GB a model; every 20th is wanted twice. */
static struct cluster make(uint32_t nodes, uint32_t models, uint64_t seed)
{
	struct cluster c = {.nodes = calloc(nodes, sizeof(*c.nodes)),
			    .models = calloc(models, sizeof(*c.models)),
			    .places = calloc((size_t)models * 8 + 8 * (size_t)nodes, sizeof(*c.places))};
	static const uint64_t gpus[] = {141 * GB, 141 * GB, 141 * GB, 141 * GB, 141 * GB, 141 * GB, 141 * GB, 141 * GB};
	double sum = 0;
	if (!c.nodes || !c.models || !c.places)
		exit(3);
	for (uint32_t i = 0; i < nodes; i++)
		c.nodes[i] = (struct medusa_sched_cluster_node){
		    .memory_bytes = 8 * 141 * GB, .domain = i / DOMAIN, .gpu_bytes = gpus, .gpu_count = 8};
	for (uint32_t i = 0; i < models; i++)
		sum += 1.0 / (i + 1);
	for (uint32_t i = 0; i < models; i++) {
		double size = 5 + 75 * fraction(&seed);
		c.models[i] = (struct medusa_sched_cluster_model){.bytes = (uint64_t)(size * (double)GB),
								  .rate = 10.0 * nodes / (i + 1) / sum,
								  .load_s = size / 10,
								  .busy_s = 0.02 + 0.1 * fraction(&seed),
								  .min_copies = i % 20 ? 0 : 2,
								  .anywhere = 1};
	}
	c.given = (struct medusa_sched_cluster){.size = sizeof(c.given),
						.nodes = c.nodes,
						.models = c.models,
						.places = c.places,
						.node_count = nodes,
						.model_count = models};
	return c;
}

static void drop(struct cluster *c)
{
	free(c->nodes);
	free(c->models);
	free(c->places);
}

static uint32_t plan(const struct cluster *c, struct medusa_sched_cluster_choice **choices, double *ms)
{
	double times[ROUNDS];
	uint32_t count = 0;
	for (int i = 0; i < ROUNDS; i++) {
		double start = cpu_ms();
		if (i)
			medusa_sched_cluster_free(*choices);
		if (medusa_sched_cluster_plan(&c->given, choices, &count))
			exit(3);
		times[i] = cpu_ms() - start;
	}
	qsort(times, ROUNDS, sizeof(times[0]), compare);
	*ms = times[ROUNDS / 2];
	return count;
}

static double part_placed(const struct cluster *c, const struct medusa_sched_cluster_choice *choices, uint32_t count)
{
	double all = 0, placed = 0;
	for (uint32_t i = 0; i < c->given.model_count; i++)
		all += c->models[i].rate;
	for (uint32_t i = 0; i < count; i++)
		if (!i || choices[i].model != choices[i - 1].model)
			placed += c->models[choices[i].model].rate;
	return placed / all;
}

/* The plan was carried out, and every rate is another one, by up to a third more or less. */
static void go_on(struct cluster *c, const struct medusa_sched_cluster_choice *choices, uint32_t count, uint64_t seed)
{
	for (uint32_t i = 0; i < count; i++)
		c->places[i] = (struct medusa_sched_cluster_place){
		    .model = choices[i].model, .node = choices[i].node, .loaded = 1, .planned = 1};
	c->given.place_count = count;
	for (uint32_t i = 0; i < c->given.model_count; i++)
		c->models[i].rate *= exp((2 * fraction(&seed) - 1) * log(1.33));
}

static uint32_t count_new(const struct medusa_sched_cluster_choice *now, uint32_t count,
			  const struct medusa_sched_cluster_choice *before, uint32_t count_before)
{
	uint32_t fresh = 0;
	for (uint32_t i = 0, j = 0; i < count; i++) {
		while (j < count_before && (before[j].model < now[i].model ||
					    (before[j].model == now[i].model && before[j].node < now[i].node)))
			j++;
		fresh += !(j < count_before && before[j].model == now[i].model && before[j].node == now[i].node);
	}
	return fresh;
}

static void print_size(uint32_t nodes, uint32_t models)
{
	struct cluster c = make(nodes, models, 18);
	struct medusa_sched_cluster_choice *first = NULL, *second = NULL;
	double first_ms, second_ms;
	uint32_t count = plan(&c, &first, &first_ms);
	double placed = part_placed(&c, first, count);
	go_on(&c, first, count, 7);
	uint32_t later = plan(&c, &second, &second_ms), moved = count_new(second, later, first, count);
	printf("| %u | %u | %.2f | %.2f | %u | %.1f %% | %u (%.1f %%) |\n", nodes, models, first_ms, second_ms, count,
	       100 * placed, moved, 100.0 * moved / count);
	medusa_sched_cluster_free(first);
	medusa_sched_cluster_free(second);
	drop(&c);
}

int main(void)
{
	printf("# Plans of a cluster\n\nMade by `bench/cluster_plan_times`: nodes of 8 GPUs of 141 GB, %d in a failure "
	       "domain; models of 5 to 80 GB "
	       "that every node can have; rates as 1 / rank,\nten requests a second and node in all; every 20th model "
	       "is wanted twice. Median of %d plans, CPU time of one thread. Then the plan is carried out, every rate "
	       "changes\nby up to a third, and another plan is made.\n\n",
	       DOMAIN, ROUNDS);
	print_machine();
	printf("\n| nodes | models | first plan, ms | next plan, ms | copies | of all requests, for models that are "
	       "placed | copies that the "
	       "next plan adds |\n|---|---|---|---|---|---|---|\n");
	print_size(3, 50);
	print_size(16, 500);
	print_size(200, 10000);
	print_size(1000, 20000);
	return 0;
}
