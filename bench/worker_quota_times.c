/* SPDX-License-Identifier: Apache-2.0 */
/* What a cluster's leader computes for quotas and weights of tenants (quota_ledger.h, medusa_sched_cluster_weights): time, as a Markdown page. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/splitmix.h"
#include "bench/machine.h"
#include "medusa/scheduler_cluster.h"
#include "json/tree_text.h"
#include "worker/cluster/quota_ledger.h"

#define ROUNDS 5
#define MOST 8 /* requests that a node wants to run for a tenant */

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

static double median(double *times)
{
	qsort(times, ROUNDS, sizeof(times[0]), compare);
	return times[ROUNDS / 2];
}

static struct md_quota_said *make_said(uint32_t nodes)
{
	struct md_quota_said *said = calloc(nodes, sizeof(*said));
	if (!said)
		exit(3);
	for (uint32_t n = 0; n < nodes; n++) {
		said[n] = (struct md_quota_said){.there = true,
						 .told = true,
						 .spare = true,
						 .session = 1 + n,
						 .most = {MD_QUOTA_ANY, MD_QUOTA_ANY},
						 .hold_s = 60};
		snprintf(said[n].node, sizeof(said[n].node), "node-%05u", n);
		snprintf(said[n].identity, sizeof(said[n].identity), "identity-%05u", n);
	}
	return said;
}

/* Nodes obey what the ledger says. */
static void obey(struct md_quota_said *said, uint32_t nodes, const struct md_quota_ledger *ledger)
{
	for (uint32_t n = 0; n < nodes; n++) {
		const struct md_quota_entry *entry = md_quota_ledger_find(ledger, said[n].node);
		if (!entry)
			continue;
		said[n].serial = entry->serial;
		said[n].obeys = entry->session;
		memcpy(said[n].most, entry->share, sizeof(said[n].most));
	}
}

static bool step(struct md_quota_ledger *ledger, const struct md_quota_said *said, uint32_t nodes)
{
	bool changed = false;
	const uint32_t limits[MD_QUOTAS] = {2 * nodes, MD_QUOTA_ANY};
	struct md_quota_turns turns = {.over = {false}};
	if (!md_quota_ledger_step(ledger, limits, said, nodes, &turns, &changed))
		exit(3);
	return changed;
}

/* One tenant: a look at which nothing moves, and one after what every node wants has changed, which ends in a text for etcd. */
static void time_quota(uint32_t nodes, uint64_t seed, double *still_ms, double *moved_ms, size_t *bytes)
{
	struct md_quota_said *said = make_said(nodes);
	struct md_quota_ledger ledger = {.limits = {MD_QUOTA_ANY, MD_QUOTA_ANY}};
	double still[ROUNDS], moved[ROUNDS];
	for (int round = 0; round < ROUNDS; round++) {
		for (uint32_t n = 0; n < nodes; n++)
			said[n].wants[MD_QUOTA_RUNNING] = (uint32_t)(md_random_next(&seed) % (MOST + 1));
		double start = cpu_ms();
		step(&ledger, said, nodes);
		char *text = md_quota_ledger_print(&ledger);
		moved[round] = cpu_ms() - start;
		if (!text)
			exit(3);
		free(text);
		int looks = 0;
		do
			obey(said, nodes, &ledger);
		while (step(&ledger, said, nodes) && ++looks < 100);
		if (looks == 100)
			exit(4);
		text = md_quota_ledger_print(&ledger);
		*bytes = text ? strlen(text) : 0;
		json_t *value = text ? md_jansson_parse(text, *bytes, 0, NULL) : NULL;
		struct md_quota_ledger known = {.limits = {MD_QUOTA_ANY, MD_QUOTA_ANY}};
		struct md_error err = {0};
		start = cpu_ms();
		if (!value || md_quota_ledger_read(value, &known, &err) != MD_OK || step(&known, said, nodes))
			exit(5);
		still[round] = cpu_ms() - start;
		md_quota_ledger_finish(&known);
		json_decref(value);
		free(text);
	}
	*still_ms = median(still);
	*moved_ms = median(moved);
	md_quota_ledger_finish(&ledger);
	free(said);
}

/* Every tenant at every node, with a weight of 1 to 8; at every second place it would take more. */
static double time_weights(uint32_t nodes, uint32_t tenants, uint64_t seed)
{
	size_t count = (size_t)nodes * tenants;
	struct medusa_sched_cluster_claim *claims = calloc(count, sizeof(*claims));
	double *weights = calloc(tenants, sizeof(*weights)), *effective = calloc(count, sizeof(*effective));
	double times[ROUNDS];
	if (!claims || !weights || !effective)
		exit(3);
	for (uint32_t t = 0; t < tenants; t++)
		weights[t] = (double)(1 + md_random_next(&seed) % 8);
	for (size_t i = 0; i < count; i++)
		claims[i] = (struct medusa_sched_cluster_claim){.node = (uint32_t)(i / tenants),
								.tenant = (uint32_t)(i % tenants),
								.used = 8.0 * (double)(md_random_next(&seed) % 1000) /
									500 / tenants,
								.more = (int)(md_random_next(&seed) >> 63)};
	const struct medusa_sched_cluster_shares shares = {.size = sizeof(shares),
							   .weights = weights,
							   .claims = claims,
							   .node_count = nodes,
							   .tenant_count = tenants,
							   .claim_count = (uint32_t)count};
	for (int round = 0; round < ROUNDS; round++) {
		double start = cpu_ms();
		if (medusa_sched_cluster_weights(&shares, effective))
			exit(6);
		times[round] = cpu_ms() - start;
	}
	free(claims);
	free(weights);
	free(effective);
	return median(times);
}

static void print_size(uint32_t nodes, uint32_t tenants)
{
	double still, moved;
	size_t bytes;
	time_quota(nodes, 18, &still, &moved, &bytes);
	double weights = time_weights(nodes, tenants, 7);
	printf("| %u | %u | %.3f | %.3f | %.1f | %.1f | %.1f | %.1f |\n", nodes, tenants, still, moved, still * tenants,
	       moved * tenants, (double)bytes / 1000, weights);
}

int main(void)
{
	printf(
	    "# Quotas and weights of tenants in a cluster\n\nMade by `bench/worker_quota_times`: every tenant is at "
	    "every node; its quota is two requests a node, and each node wants 0 to %d. Every fifth of a second a\n"
	    "leader looks at each tenant's ledger: at rest it reads it and finds nothing to do; after every node's "
	    "wish has changed, it makes a step and a text for etcd. Weights are\n"
	    "computed every two seconds (`medusa_sched_cluster_weights`), here with one claim of each tenant at each "
	    "node. Median of %d, CPU time of one thread. The columns for all\n"
	    "tenants are that of one times their number. What the leader takes to find tenants in nodes' states, "
	    "and etcd, are not in it.\n\n",
	    MOST, ROUNDS);
	print_machine();
	time_t now = time(NULL);
	char date[32] = "";
	struct tm parts;
	if (gmtime_r(&now, &parts))
		strftime(date, sizeof(date), "%Y-%m-%d", &parts);
	printf("Date: %s.\n", date);
	printf(
	    "\n| nodes | tenants | look at rest, ms | look with a step, ms | at rest, all tenants | with a step, all "
	    "tenants | a ledger, kB | weights, ms |\n|---|---|---|---|---|---|---|---|\n");
	print_size(16, 10);
	print_size(100, 100);
	print_size(1000, 100);
	return 0;
}
