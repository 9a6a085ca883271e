/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares of tenants over the nodes of a cluster. What each node has is divided among those who ask there so that what tenants have over all nodes,
 * by weight, is as equal as can be (weighted max-min fairness): the division whose sum of squares of totals, by weight, is least. It is found node by
 * node: each fills up those who have least elsewhere, until nothing moves any more.
 */
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "medusa/scheduler_cluster.h"
#include "scheduler/core/registry.h"

#define SWEEPS_MOST                                                                                                    \
	64u /* over all nodes; what is not settled then goes on from there at the next call, by what was used meanwhile */
#define STEPS 50u            /* of the search for a node's level */
#define SETTLED 1e-6         /* of a node's time: less does not count as a move */
#define LEAST (1.0 / 16)     /* of its weight is left to a tenant with requests, however much it has elsewhere */
#define ENOUGH 0.99          /* of what it used */
#define COUNT_MOST 10000000u /* of each: nodes, tenants, claims */

struct division {
	const struct medusa_sched_cluster_shares *given;
	uint32_t *order, *first; /* claims by node, and where a node's begin, one more than there are nodes */
	uint32_t *seen;          /* of a tenant: the last node where it was found, plus 1 */
	double *has;             /* of a claim: seconds of GPUs in a second */
	double *total;           /* of a tenant, over all nodes */
	double *room;            /* of a node */
	double *all;             /* of a node: the weights of those who ask there, together */
};

/* ---- what was given ---- */

static int check_claims(const struct medusa_sched_cluster_shares *s)
{
	for (uint32_t i = 0; i < s->claim_count; i++) {
		const struct medusa_sched_cluster_claim *claim = &s->claims[i];
		if (claim->node >= s->node_count || claim->tenant >= s->tenant_count)
			return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID,
				       "claims[%u]: there is no node %u, or no tenant %u", i, claim->node,
				       claim->tenant);
		if (!(isfinite(claim->used) && claim->used >= 0))
			return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID, "claims[%u].used is a finite number from 0 on",
				       i);
	}
	for (uint32_t i = 0; i < s->tenant_count; i++)
		if (!(s->weights[i] >= 1e-6 && s->weights[i] <= 1e6))
			return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID, "weights[%u] is %g: 0.000001 to 1000000", i,
				       s->weights[i]);
	return MEDUSA_SCHED_OK;
}

static int check(const struct medusa_sched_cluster_shares *given, const double *weights,
		 struct medusa_sched_cluster_shares *s)
{
	if (!given || !md_take_struct(given, sizeof(*s), s))
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID,
			       "shares: it is NULL, or its size is not that of struct medusa_sched_cluster_shares");
	if (s->node_count > COUNT_MOST || s->tenant_count > COUNT_MOST || s->claim_count > COUNT_MOST)
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID, "node_count, tenant_count, claim_count: at most %u",
			       COUNT_MOST);
	if ((s->tenant_count && !s->weights) || (s->claim_count && (!s->claims || !weights)))
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID,
			       "weights, claims or effective is NULL, and its count is not 0");
	return check_claims(s);
}

/* Of a node, first[n] to first[n + 1] in `order`. False: a tenant is at a node twice. */
static bool index_claims(struct division *d)
{
	const struct medusa_sched_cluster_shares *s = d->given;
	for (uint32_t i = 0; i < s->claim_count; i++)
		d->first[s->claims[i].node + 2]++;
	for (uint32_t n = 0; n < s->node_count; n++)
		d->first[n + 2] += d->first[n + 1];
	for (uint32_t i = 0; i < s->claim_count; i++)
		d->order[d->first[s->claims[i].node + 1]++] = i;
	for (uint32_t n = 0; n < s->node_count; n++)
		for (uint32_t i = d->first[n]; i < d->first[n + 1]; i++) {
			uint32_t *last = &d->seen[s->claims[d->order[i]].tenant];
			if (*last == n + 1)
				return false;
			*last = n + 1;
		}
	return true;
}

/* ---- the division ---- */

static double most_of(const struct division *d, uint32_t claim)
{
	const struct medusa_sched_cluster_claim *c = &d->given->claims[claim];
	return c->more ? d->room[c->node] : c->used;
}

static double least_of(const struct division *d, uint32_t claim)
{
	const struct medusa_sched_cluster_claim *c = &d->given->claims[claim];
	return fmin(LEAST * d->given->weights[c->tenant] / d->all[c->node] * d->room[c->node], most_of(d, claim));
}

/* What a claim has if its tenant's total by weight is to be `level`. */
static double fill(const struct division *d, uint32_t claim, double level)
{
	uint32_t tenant = d->given->claims[claim].tenant;
	double elsewhere = d->total[tenant] - d->has[claim];
	return fmin(fmax(level * d->given->weights[tenant] - elsewhere, least_of(d, claim)), most_of(d, claim));
}

static double fill_all(const struct division *d, uint32_t node, double level)
{
	double sum = 0;
	for (uint32_t i = d->first[node]; i < d->first[node + 1]; i++)
		sum += fill(d, d->order[i], level);
	return sum;
}

/* A level at which everybody here has all that he may. */
static double highest(const struct division *d, uint32_t node)
{
	double level = 0;
	for (uint32_t i = d->first[node]; i < d->first[node + 1]; i++) {
		uint32_t claim = d->order[i], tenant = d->given->claims[claim].tenant;
		double all = d->total[tenant] - d->has[claim] + most_of(d, claim);
		level = fmax(level, all / d->given->weights[tenant]);
	}
	return level;
}

/* True: something has moved. */
static bool divide_node(struct division *d, uint32_t node)
{
	double low = 0, high = highest(d, node), scale = 1;
	bool moved = false;
	for (unsigned step = 0; step < STEPS; step++) {
		double middle = low + (high - low) / 2;
		*(fill_all(d, node, middle) < d->room[node] ? &low : &high) = middle;
	}
	double sum = fill_all(d, node, high);
	scale = sum > 0 ? d->room[node] / sum : 1; /* what the search has left over */
	for (uint32_t i = d->first[node]; i < d->first[node + 1]; i++) {
		uint32_t claim = d->order[i];
		double has = fill(d, claim, high) * scale;
		moved |= fabs(has - d->has[claim]) > SETTLED * d->room[node];
		d->total[d->given->claims[claim].tenant] += has - d->has[claim];
		d->has[claim] = has;
	}
	return moved;
}

static void divide(struct division *d)
{
	const struct medusa_sched_cluster_shares *s = d->given;
	bool moved = true;
	for (uint32_t i = 0; i < s->claim_count; i++) {
		d->has[i] = s->claims[i].used;
		d->room[s->claims[i].node] += s->claims[i].used;
		d->all[s->claims[i].node] += s->weights[s->claims[i].tenant];
		d->total[s->claims[i].tenant] += s->claims[i].used;
	}
	for (unsigned sweep = 0; sweep < SWEEPS_MOST && moved; sweep++) {
		moved = false;
		for (uint32_t n = 0; n < s->node_count; n++)
			moved |= d->room[n] > 0 && divide_node(d, n);
	}
}

/* ---- weights that make the division ---- */

static void weigh_node(const struct division *d, uint32_t node, double *effective)
{
	const struct medusa_sched_cluster_shares *s = d->given;
	bool more = false;
	for (uint32_t i = d->first[node]; i < d->first[node + 1]; i++)
		more |= s->claims[d->order[i]].more != 0;
	for (uint32_t i = d->first[node]; i < d->first[node + 1]; i++) {
		uint32_t claim = d->order[i];
		double weight = s->weights[s->claims[claim].tenant];
		double due = more && d->room[node] > 0 ? d->has[claim] / d->room[node] * d->all[node] : weight;
		/* Who has enough, and keeps it, is not held back: it may want more at any time, and others have what it leaves. */
		bool enough = !s->claims[claim].more && d->has[claim] >= s->claims[claim].used * ENOUGH;
		effective[claim] = fmax(due, enough ? weight : weight * LEAST);
	}
}

MD_EXPORT int medusa_sched_cluster_weights(const struct medusa_sched_cluster_shares *given, double *effective)
{
	struct medusa_sched_cluster_shares shares;
	int code = check(given, effective, &shares);
	if (code)
		return code;
	MD_AUTO_FREE uint32_t *order = calloc((size_t)shares.claim_count + 1, sizeof(*order));
	MD_AUTO_FREE uint32_t *first = calloc((size_t)shares.node_count + 3, sizeof(*first));
	MD_AUTO_FREE uint32_t *seen = calloc((size_t)shares.tenant_count + 1, sizeof(*seen));
	MD_AUTO_FREE double *has = calloc((size_t)shares.claim_count + 1, sizeof(*has));
	MD_AUTO_FREE double *total = calloc((size_t)shares.tenant_count + 1, sizeof(*total));
	MD_AUTO_FREE double *room = calloc((size_t)shares.node_count + 1, sizeof(*room));
	MD_AUTO_FREE double *all = calloc((size_t)shares.node_count + 1, sizeof(*all));
	if (!order || !first || !seen || !has || !total || !room || !all)
		return md_fail(NULL, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for shares of tenants");
	struct division d = {&shares, order, first, seen, has, total, room, all};
	if (!index_claims(&d))
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID, "claims: a tenant is at a node twice");
	divide(&d);
	for (uint32_t n = 0; n < shares.node_count; n++)
		weigh_node(&d, n, effective);
	return MEDUSA_SCHED_OK;
}
