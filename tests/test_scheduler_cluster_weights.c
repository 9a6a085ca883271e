/* SPDX-License-Identifier: Apache-2.0 */
/* With which weights the nodes of a cluster serve tenants: medusa_sched_cluster_weights. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/splitmix.h"
#include "medusa/scheduler_cluster.h"

#define SHARE_NODES 6u
#define SHARE_TENANTS 5u
#define SHARE_CLAIMS (SHARE_NODES * SHARE_TENANTS)
#define LEAST_LEFT (1.0 / 16) /* of its weight, to a tenant that has enough elsewhere */

/* A cluster whose nodes divide their GPUs by the weights that they were told last, among those who have requests there. */
struct shared {
	uint32_t nodes, tenants, count;
	double weights[SHARE_TENANTS], rooms[SHARE_NODES];
	struct medusa_sched_cluster_claim claims[SHARE_CLAIMS];
	double asks[SHARE_CLAIMS], effective[SHARE_CLAIMS], has[SHARE_CLAIMS];
};

static void weigh(struct shared *s)
{
	const struct medusa_sched_cluster_shares shares = {.size = sizeof(shares),
							   .weights = s->weights,
							   .claims = s->claims,
							   .node_count = s->nodes,
							   .tenant_count = s->tenants,
							   .claim_count = s->count};
	cr_assert_eq(medusa_sched_cluster_weights(&shares, s->effective), 0, "%s", medusa_sched_error(NULL));
	for (uint32_t i = 0; i < s->count; i++)
		cr_assert(isfinite(s->effective[i]) &&
			      s->effective[i] >= LEAST_LEFT * s->weights[s->claims[i].tenant] * (1 - 1e-9),
			  "claim %u: nobody is left without a part: %g", i, s->effective[i]);
}

/* As nodes do: by weight, nobody more than he asks for, and nothing idle while somebody asks. */
static void serve_node(struct shared *s, uint32_t node)
{
	double left = s->rooms[node], sum = 1;
	bool full[SHARE_CLAIMS] = {false};
	for (uint32_t i = 0; i < s->count; i++)
		if (s->claims[i].node == node)
			s->has[i] = 0;
	for (bool again = true; again && sum > 0 && left > 1e-12;) {
		again = false;
		sum = 0;
		for (uint32_t i = 0; i < s->count; i++)
			sum += s->claims[i].node == node && !full[i] ? s->effective[i] : 0;
		double level = sum > 0 ? left / sum : 0;
		for (uint32_t i = 0; i < s->count; i++)
			if (s->claims[i].node == node && !full[i] && s->asks[i] <= level * s->effective[i]) {
				s->has[i] = s->asks[i];
				left -= s->asks[i];
				full[i] = again = true;
			}
		for (uint32_t i = 0; !again && i < s->count; i++)
			if (s->claims[i].node == node && !full[i])
				s->has[i] = level * s->effective[i];
	}
}

/* One while: nodes serve, and say what was used. */
static void play(struct shared *s)
{
	for (uint32_t n = 0; n < s->nodes; n++)
		serve_node(s, n);
	for (uint32_t i = 0; i < s->count; i++) {
		s->claims[i].used += (s->has[i] - s->claims[i].used) * 0.5;
		s->claims[i].more = s->has[i] < s->asks[i] * (1 - 1e-9);
	}
	weigh(s);
}

static double total_of(const struct shared *s, uint32_t tenant)
{
	double total = 0;
	for (uint32_t i = 0; i < s->count; i++)
		total += s->claims[i].tenant == tenant ? s->has[i] : 0;
	return total;
}

/* What is left to a tenant at a node, whatever it has elsewhere. */
static double left_to(const struct shared *s, uint32_t claim)
{
	double sum = 0;
	for (uint32_t i = 0; i < s->count; i++)
		sum += s->claims[i].node == s->claims[claim].node ? s->effective[i] : 0;
	return s->effective[claim] / sum * s->rooms[s->claims[claim].node];
}

/* Weighted max-min fairness: who has more than what is left to everybody has no more over all nodes, by weight, than those who want more there. */
static void assert_fair(const struct shared *s)
{
	for (uint32_t i = 0; i < s->count; i++)
		for (uint32_t j = 0; j < s->count; j++) {
			uint32_t a = s->claims[i].tenant, b = s->claims[j].tenant;
			bool least = s->effective[i] < 2 * LEAST_LEFT * s->weights[a];
			if (s->claims[i].node != s->claims[j].node || !s->claims[i].more || !s->claims[j].more || least)
				continue;
			double one = total_of(s, a) / s->weights[a], other = total_of(s, b) / s->weights[b];
			cr_assert(
			    one <= other * 1.06 + 0.02,
			    "at node %u tenant %u has %g by weight over all, and tenant %u, who wants more there, %g",
			    s->claims[i].node, a, one, b, other);
		}
}

static void assert_used(const struct shared *s)
{
	for (uint32_t n = 0; n < s->nodes; n++) {
		double has = 0, asks = 0;
		for (uint32_t i = 0; i < s->count; i++) {
			has += s->claims[i].node == n ? s->has[i] : 0;
			asks += s->claims[i].node == n ? s->asks[i] : 0;
			cr_assert(s->claims[i].node != n || !(s->asks[i] > 0) || s->has[i] > 0, "nobody starves");
			cr_assert(s->claims[i].node != n || s->has[i] >= fmin(s->asks[i], left_to(s, i)) * 0.999);
		}
		cr_assert_float_eq(has, fmin(asks, s->rooms[n]), 1e-6, "node %u lets nothing lie idle", n);
	}
}

Test(scheduler_cluster_weights, a_tenant_leaves_a_node_to_those_who_have_nothing_else)
{
	struct shared s = {.nodes = 2,
			   .tenants = 2,
			   .count = 3,
			   .weights = {1, 1},
			   .rooms = {1, 1},
			   .claims = {{0, 0, 0, 1}, {0, 1, 0, 1}, {1, 1, 0, 1}},
			   .asks = {9, 9, 9},
			   .effective = {1, 1, 1}};
	for (unsigned i = 0; i < 40; i++)
		play(&s);
	cr_assert(s.has[0] > 0.93 && s.has[0] < 0.98, "tenant 0 has %g of node 0", s.has[0]);
	s.weights[1] = 3; /* of two GPUs, 1.5 are due to it: it needs half of node 0 */
	for (unsigned i = 0; i < 40; i++)
		play(&s);
	cr_assert_float_eq(s.has[0], 0.5, 0.02, "tenant 0 has %g of node 0", s.has[0]);
	s.asks[2] = 0.2; /* it has a fifth of node 1, so 0.7 are due at node 0: 0.2 + 0.7 is three times 0.3 */
	for (unsigned i = 0; i < 40; i++)
		play(&s);
	cr_assert_float_eq(s.has[1], 0.7, 0.02, "tenant 1 has %g of node 0", s.has[1]);
}

Test(scheduler_cluster_weights, what_tenants_have_comes_near_their_weights)
{
	uint64_t seed = 11;
	for (unsigned draw = 0; draw < 300; draw++) {
		struct shared s = {.nodes = 1 + (uint32_t)(md_random_next(&seed) % SHARE_NODES),
				   .tenants = 1 + (uint32_t)(md_random_next(&seed) % SHARE_TENANTS)};
		for (uint32_t n = 0; n < s.nodes; n++)
			s.rooms[n] = 1 + (double)(md_random_next(&seed) % 4);
		for (uint32_t t = 0; t < s.tenants; t++)
			s.weights[t] = (double)(1 + md_random_next(&seed) % 8) / 2;
		for (uint32_t n = 0; n < s.nodes; n++)
			for (uint32_t t = 0; t < s.tenants; t++) {
				unsigned kind = (unsigned)(md_random_next(&seed) % 4);
				if (!kind)
					continue;
				s.asks[s.count] = kind == 1 ? (double)(md_random_next(&seed) % 8) / 8 : 100;
				s.effective[s.count] = s.weights[t];
				s.claims[s.count++] = (struct medusa_sched_cluster_claim){n, t, 0, 1};
			}
		for (unsigned i = 0; i < 120; i++)
			play(&s);
		assert_used(&s);
		assert_fair(&s);
	}
}

static void assert_no_weights(const struct medusa_sched_cluster_shares *shares, const char *why)
{
	double effective[2] = {-1, -1};
	cr_assert_eq(medusa_sched_cluster_weights(shares, effective), MEDUSA_SCHED_ERR_INVALID);
	cr_assert(strstr(medusa_sched_error(NULL), why), "%s", medusa_sched_error(NULL));
	cr_assert(effective[0] < 0, "nothing is set");
}

Test(scheduler_cluster_weights, shares_that_make_no_sense_are_refused)
{
	static const double weights[] = {1, 2}, wrong[] = {1, 0};
	const struct medusa_sched_cluster_claim good[] = {{0, 0, 1, 0}, {0, 1, 1, 0}},
						twice[] = {{0, 1, 1, 0}, {0, 1, 1, 0}}, nowhere[] = {{1, 0, 1, 0}},
						nobody[] = {{0, 2, 1, 0}}, nan[] = {{0, 0, NAN, 0}};
#define SHARES(w, c, n)                                                                                                \
	(&(struct medusa_sched_cluster_shares){sizeof(struct medusa_sched_cluster_shares), w, c, .node_count = 1,      \
					       .tenant_count = 2, .claim_count = n})
	double effective[2];
	cr_assert_eq(medusa_sched_cluster_weights(SHARES(weights, good, 2), effective), 0);
	cr_assert(effective[0] >= 1 && effective[0] <= 1 && effective[1] >= 2 && effective[1] <= 2,
		  "nobody wants more");
	cr_assert_eq(medusa_sched_cluster_weights(SHARES(weights, NULL, 0), NULL), 0);
	assert_no_weights(NULL, "shares");
	assert_no_weights(&(struct medusa_sched_cluster_shares){.size = 1}, "shares");
	assert_no_weights(SHARES(NULL, good, 2), "weights");
	assert_no_weights(SHARES(wrong, good, 2), "weights[1]");
	assert_no_weights(SHARES(weights, NULL, 2), "claims");
	assert_no_weights(SHARES(weights, twice, 2), "twice");
	assert_no_weights(SHARES(weights, nowhere, 1), "no node 1");
	assert_no_weights(SHARES(weights, nobody, 1), "no tenant 2");
	assert_no_weights(SHARES(weights, nan, 1), "used");
}
