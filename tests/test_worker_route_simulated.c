/* SPDX-License-Identifier: Apache-2.0 */
/* The worker and the simulator route alike: for the same views, drawn at random, worker/cluster/route.c and simulator/cluster/routes.c choose the same node. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/splitmix.h"
#include "simulator/cluster/cluster_state.h"
#include "worker/cluster/cluster_parts.h"
#include "worker/cluster/route.h"

#define NODES 12u
#define VIEWS 20000u
#define S UINT64_C(1000000000)

/* One view, twice: as the worker has it, and as the simulator. All times of a node are told as they are. */
struct twins {
	struct md_view_node nodes[NODES], *list[NODES];
	struct md_record records[NODES];
	struct md_record_model models[NODES];
	struct md_record_name names[NODES];
	char labels[NODES][8];
	struct md_cluster cluster;
	struct md_sim_cluster config;
	struct md_sim_cluster_state state;
	struct md_sim_member members[NODES];
	struct md_sim_seats seats;
	struct md_sim_seat seat[NODES];
	uint32_t seat_nodes[NODES], at[NODES], open[NODES * NODES];
	struct md_standing unused;
	uint32_t from, avoided;
};

static uint32_t draw(uint64_t *random, uint32_t below)
{
	return (uint32_t)(md_random_next(random) % below);
}

/* Few values, so that many nodes are equal. */
static struct md_standing draw_standing(uint64_t *random)
{
	static const double seconds[] = {0.05, 0.0625, 0.5, 4, 5};
	struct md_standing standing = {.place = (enum md_place)draw(random, 4), .waiting = draw(random, 4)};
	for (unsigned i = 0; i < MD_STARTS; i++)
		standing.first_s[i] = seconds[draw(random, 5)];
	return standing;
}

static void make(struct twins *t, uint64_t seed)
{
	memset(t, 0, sizeof(*t));
	uint64_t random = seed, now = md_clock_ns();
	t->from = draw(&random, NODES);
	t->avoided = draw(&random, 3) ? MEDUSA_SCHED_NONE : draw(&random, NODES);
	t->config = (struct md_sim_cluster){.nodes = NODES, .lease_ns = 3 * S, .grace_ns = 10 * S};
	t->unused = draw_standing(&random);
	t->unused.waiting = 0;
	t->seats = (struct md_sim_seats){.seats = t->seat, .nodes = t->seat_nodes};
	t->state = (struct md_sim_cluster_state){.cluster = &t->config,
						 .count = NODES,
						 .members = t->members,
						 .seats = &t->seats,
						 .unused = &t->unused,
						 .at = t->at,
						 .open = t->open,
						 .now = 1000 * S,
						 .routing = MD_SIM_EXPECTED};
	for (uint32_t i = 0; i < NODES; i++) {
		struct md_view_node *node = &t->nodes[i];
		bool knows = i != t->from && draw(&random, 4) != 0; /* what the asking node has is given beside */
		snprintf(t->labels[i], sizeof(t->labels[i]), "n%02u", i);
		t->models[i] =
		    (struct md_record_model){.id = "m", .standing = knows ? draw_standing(&random) : t->unused};
		t->names[i] = (struct md_record_name){.name = "m"};
		t->records[i] =
		    (struct md_record){.models = &t->models[i], .count = 1, .names = &t->names[i], .name_count = 1};
		*node = (struct md_view_node){.name = t->labels[i], .record = &t->records[i], .listed = true};
		node->target.open = draw(&random, 3);
		t->open[t->from * NODES + i] = (uint32_t)node->target.open;
		t->list[i] = node;
		if (i != t->from)
			t->records[i].loads = (struct md_loads){.count = draw(&random, 4), .slows = 0.5};
		t->members[i] = (struct md_sim_member){.lives = true, .loads = t->records[i].loads};
		if (knows) {
			t->seat_nodes[t->seats.count] = i;
			t->seat[t->seats.count++] =
			    (struct md_sim_seat){.local = MEDUSA_SCHED_NONE, .told = t->models[i].standing};
		}
		uint32_t how = i == t->from ? 9 : draw(&random, 10);
		if (how == 0) { /* its lease has ended */
			node->ended = now + 5 * S;
			t->members[i].lives = false;
			t->members[i].lost_at = t->state.now - 5 * S;
		} else if (how == 1) { /* it is forgotten */
			node->record = NULL;
			t->members[i].lives = false;
			t->members[i].lost_at = t->state.now - 50 * S;
		} else if (how == 2) { /* it was not reached */
			node->doubted = now + 3600 * S;
			t->members[i].doubted = t->state.now + 3 * S;
		}
	}
	t->cluster.avoided = t->avoided == MEDUSA_SCHED_NONE ? NULL : t->list[t->avoided];
	snprintf(t->cluster.name, sizeof(t->cluster.name), "%s", t->labels[t->from]);
}

Test(worker_route_simulated, both_choose_the_same_node)
{
	struct twins *t = malloc(sizeof(*t));
	unsigned passed = 0, ties = 0;
	cr_assert(t);
	for (uint64_t seed = 1; seed <= VIEWS; seed++) {
		make(t, seed);
		if (t->avoided == t->from)
			t->cluster.avoided = NULL;
		double here_s = md_offer_here_s(&t->unused, (struct md_loads){0}, false);
		const struct md_view_node *worker = md_route_pick(&t->cluster, t->list, NODES, "m", here_s);
		uint32_t simulated = md_sim_route_choose(&t->state, 0, t->from, t->avoided);
		cr_assert_str_eq(worker ? worker->name : t->cluster.name, t->labels[simulated], "view %llu",
				 (unsigned long long)seed);
		passed += worker != NULL;
		for (uint32_t i = 0; worker && i < NODES; i++)
			ties += t->list[i] != worker && t->list[i]->record &&
				md_standing_expected_s(&t->models[i].standing, (struct md_loads){0}) <=
				    md_standing_expected_s(&worker->record->models->standing, (struct md_loads){0});
	}
	cr_assert(passed > VIEWS / 4 && passed < VIEWS && ties > VIEWS / 10, "%u passed, %u ties", passed, ties);
	free(t);
}

Test(worker_route_simulated, equal_nodes_are_chosen_from_the_asking_one_on)
{
	struct twins *t = malloc(sizeof(*t));
	uint32_t chosen[NODES] = {0};
	cr_assert(t);
	for (uint32_t from = 0; from < NODES; from++) {
		make(t, 1);
		memset(t->open, 0, sizeof(t->open));
		for (uint32_t i = 0; i < NODES; i++) {
			t->nodes[i] = (struct md_view_node){.name = t->labels[i], .record = &t->records[i]};
			t->models[i].standing = (struct md_standing){.place = i == from ? MD_PLACE_DISK : MD_PLACE_GPU,
								     .first_s = {1, 2, 9}};
		}
		t->cluster.avoided = NULL;
		snprintf(t->cluster.name, sizeof(t->cluster.name), "%s", t->labels[from]);
		const struct md_view_node *node = md_route_pick(&t->cluster, t->list, NODES, "m", 9);
		cr_assert(node);
		chosen[node - t->nodes]++;
	}
	for (uint32_t i = 0; i < NODES; i++)
		cr_assert_eq(chosen[i], 1, "node %u is chosen by %u others", i, chosen[i]);
	free(t);
}
