/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/leader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "worker/cluster/cluster_placement.h"
#include "worker/core/loop_thread.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define LOOK_MS 500u
#define ROUND_NS UINT64_C(1000000000) /* between two plans, at least */
#define IDLE_NS UINT64_C(10000000000) /* and at most: rates fall without a change that anybody tells */
#define REST 4u /* times as long as a plan took; it may have a processor for a fifth of the time */
/* After an election: a lease and a second. When etcd was away, all nodes join anew, and a plan for the first of them would load everything there. */
#define SETTLE_NS ((MD_MEMBER_TTL_S + 1) * UINT64_C(1000000000))
#define AGAIN_NS UINT64_C(1000000000) /* after a refused election */
#define WRITES_MOST 64u               /* keys of one transaction; etcd takes 128 operations */

struct md_leader {
	struct md_leader_options options;
	char *election;
	struct event *look;
	struct md_etcd_call *campaign, *writing;
	int64_t lease;                 /* with which it stands; 0: it does not */
	int64_t created;               /* the revision that has made its key; 0: it does not lead */
	char *key;                     /* that is there as long as it leads */
	uint64_t rests;                /* ns: until then it does not stand again */
	bool moved;                    /* the election was asked of an endpoint that is not asked any more */
	uint64_t planned_at, changes;  /* of the last plan: when, and what the view had counted then */
	uint64_t waits;                /* ns: from it to the next one, at least */
	bool unfinished;               /* not all of it is written */
	struct md_placement *planning; /* NULL: none */
	struct event *copies;          /* the next part of what it is made from */
	struct md_loop_thread *thread;
	uint64_t planning_began; /* ns */
	bool useless;            /* what is planned: this node leads no longer */
	struct md_leader_state state;
};

/* ---- the election ---- */

static void step_down(struct md_leader *leader, const char *why)
{
	md_etcd_cancel(md_steal_ptr(&leader->campaign));
	md_etcd_cancel(md_steal_ptr(&leader->writing));
	if (leader->created)
		md_info("cluster: this node leads no longer: %s", why);
	leader->created = leader->lease = 0;
	leader->useless = true;
	leader->rests = md_clock_ns() + AGAIN_NS;
	free(md_steal_ptr(&leader->key));
}

static void on_elected(void *context, const json_t *answer, const struct md_error *err)
{
	struct md_leader *leader = context;
	const json_t *won = json_object_get(answer, "leader");
	struct md_buf key = {0};
	leader->campaign = NULL;
	int64_t created = md_etcd_number(won, "rev");
	if (answer && created > 0 && md_etcd_bytes(won, "key", &key)) {
		leader->key = (char *)key.data; /* with its NUL */
		leader->created = created;
		leader->planned_at = md_clock_ns();
		leader->waits = SETTLE_NS;
		leader->unfinished = true;
		leader->state.elections++;
		md_info("cluster: this node leads: it places the cluster's models");
		return;
	}
	md_buf_finish(&key);
	md_debug("cluster: the election: %s", answer ? "its answer has no key" : err->message);
	step_down(leader, "the election was refused");
}

static void stand(struct md_leader *leader, int64_t lease)
{
	if (md_clock_ns() < leader->rests)
		return;
	leader->campaign =
	    md_etcd_campaign(leader->options.etcd, leader->election, leader->options.name, lease, on_elected, leader);
	leader->lease = leader->campaign ? lease : 0;
}

/* Nothing may be cancelled in here (md_etcd_events). */
void md_leader_moved(struct md_leader *leader)
{
	if (leader)
		leader->moved = true;
}

/* ---- a round ---- */

static void on_written(void *context, const json_t *answer, const struct md_error *err)
{
	struct md_leader *leader = context;
	leader->writing = NULL;
	if (md_etcd_succeeded(answer))
		return;
	leader->unfinished = true;
	if (answer)
		step_down(leader, "another node was elected meanwhile");
	else
		md_debug("cluster: placements: %s", err->message);
}

/* Pairs with texts that are freed with them. */
struct changes {
	struct md_etcd_pair pairs[WRITES_MOST];
	unsigned count;
	bool more;
};

static void drop(struct changes *changes)
{
	for (unsigned i = 0; i < changes->count; i++) {
		free((char *)changes->pairs[i].key);
		free((char *)changes->pairs[i].value);
	}
}

/* models: NULL: the key is deleted. */
static void add(const struct md_leader *leader, struct changes *changes, const char *node, const json_t *models)
{
	char *key = NULL, *value = models ? md_wanted_print_placement(models) : NULL;
	changes->more |= changes->count == WRITES_MOST;
	if (changes->more || (models && !value) ||
	    asprintf(&key, "%splacements/%s", leader->options.prefix, node) < 0) {
		changes->more = true;
		free(value);
		return;
	}
	changes->pairs[changes->count++] = (struct md_etcd_pair){key, value};
}

/* The plan, and what the node had besides. NULL: out of memory. */
static json_t *add_to(const json_t *had, const json_t *models)
{
	json_t *both = had ? json_copy((json_t *)had) : json_object();
	if (!both || json_object_update(both, (json_t *)models)) {
		json_decref(both);
		return NULL;
	}
	return both;
}

/* complete: else the node loses nothing: what it has may be planned for a node that is not as it was. */
static void compare_node(const struct md_leader *leader, const char *node, const json_t *models, bool complete,
			 struct changes *changes)
{
	const json_t *had = md_wanted_placement(leader->options.wanted, node);
	json_t *wanted = complete ? json_incref((json_t *)models) : add_to(had, models);
	if (!wanted)
		changes->more = true;
	else if (had ? !json_equal((json_t *)had, wanted) : json_object_size(wanted) > 0)
		add(leader, changes, node, wanted);
	json_decref(wanted);
}

/* Whether all nodes of the plan are as they were when it was begun. */
static bool all_stand(const struct md_leader *leader, const json_t *plan)
{
	bool all = true;
	const char *node;
	json_t *models;
	json_object_foreach((json_t *)plan, node, models)
	{
		if (md_placement_stands(leader->planning, node, leader->options.view, leader->options.wanted))
			continue;
		md_debug("cluster: the plan is stale for node %s, which has changed meanwhile", node);
		all = false;
	}
	return all;
}

/* What a node has that is not in the plan, because it is gone or does not take models, is deleted. */
static void compare(struct md_leader *leader, const json_t *plan, struct changes *changes)
{
	const json_t *now = md_wanted_placements(leader->options.wanted);
	bool complete = all_stand(leader, plan);
	const char *node;
	json_t *models;
	json_object_foreach((json_t *)plan, node, models)
	{
		if (complete ||
		    md_placement_stands(leader->planning, node, leader->options.view, leader->options.wanted))
			compare_node(leader, node, models, complete, changes);
	}
	json_object_foreach((json_t *)now, node, models)
	{
		const struct md_view_node *there = md_view_find(leader->options.view, node);
		if (!json_object_get(plan, node) && !(there && (there->ended || md_placement_takes_models(there))))
			add(leader, changes, node, NULL);
	}
	changes->more |= !complete;
}

static void write_plan(struct md_leader *leader, const json_t *plan)
{
	struct changes changes = {.count = 0};
	compare(leader, plan, &changes);
	if (changes.count)
		leader->writing = md_etcd_put_while(leader->options.etcd, leader->key, leader->created, changes.pairs,
						    changes.count, on_written, leader);
	leader->unfinished = changes.more || (changes.count && !leader->writing);
	leader->state.writes += leader->writing ? changes.count : 0;
	drop(&changes);
}

static void end_plan(struct md_leader *leader)
{
	md_placement_free(md_steal_ptr(&leader->planning));
	leader->planned_at = md_clock_ns();
	leader->waits = (leader->planned_at - leader->planning_began) * REST;
	leader->waits = leader->waits > ROUND_NS ? leader->waits : ROUND_NS;
}

static void give_up_plan(struct md_leader *leader, const char *why)
{
	md_warn("cluster: nothing is placed: %s", why);
	leader->unfinished = true;
	end_plan(leader);
}

static void on_planned(void *context)
{
	struct md_leader *leader = context;
	const char *why;
	const json_t *plan = md_placement_plan(leader->planning, &why);
	leader->thread = NULL;
	leader->state.rounds++;
	if (!plan) {
		give_up_plan(leader, why);
		return;
	}
	if (leader->useless || !leader->created || !md_view_is_current(leader->options.view)) {
		leader->unfinished = true;
	} else if (!md_placement_pins_stand(leader->planning, leader->options.wanted)) {
		md_debug("cluster: the plan is stale: users have moved models meanwhile");
		leader->unfinished = true;
	} else {
		write_plan(leader, plan);
	}
	bool elected = leader->useless && leader->created; /* meanwhile: it settles first */
	uint64_t planned_at = leader->planned_at, waits = leader->waits;
	end_plan(leader);
	if (elected) {
		leader->planned_at = planned_at;
		leader->waits = waits;
	}
}

static void solve(void *context)
{
	const struct md_leader *leader = context;
	md_placement_solve(leader->planning);
}

static void copy_part(struct md_leader *leader)
{
	struct timeval at_once = {0};
	struct md_error err = {0};
	switch (md_placement_copy(leader->planning, leader->options.view, leader->options.wanted)) {
	case MD_PLACEMENT_MORE:
		event_add(leader->copies, &at_once);
		return;
	case MD_PLACEMENT_COPIED:
		if (md_loop_thread_start(leader->options.base, solve, on_planned, leader, &leader->thread, &err) !=
		    MD_OK)
			give_up_plan(leader, err.message);
		return;
	case MD_PLACEMENT_NO_MEMORY:
		give_up_plan(leader, "out of memory for a plan");
		return;
	}
}

static void on_copies(evutil_socket_t fd, short what, void *context)
{
	(void)fd, (void)what;
	copy_part(context);
}

static void begin_plan(struct md_leader *leader)
{
	leader->planning_began = md_clock_ns();
	leader->useless = false;
	leader->changes = md_view_changes(leader->options.view);
	leader->planning = md_placement_create(leader->options.wanted);
	if (leader->planning)
		copy_part(leader);
	else
		give_up_plan(leader, "out of memory for a plan");
}

static void on_look(evutil_socket_t fd, short what, void *context)
{
	struct md_leader *leader = context;
	int64_t lease = md_member_lease(leader->options.member);
	uint64_t now = md_clock_ns();
	(void)fd, (void)what;
	if (leader->lease && leader->lease != lease)
		step_down(leader, "its lease has ended");
	if (leader->moved && leader->campaign)
		step_down(leader, "another endpoint of etcd is asked");
	leader->moved = false;
	if (!leader->lease && lease)
		stand(leader, lease);
	if (!leader->created || leader->writing || leader->planning || !md_view_is_current(leader->options.view) ||
	    now - leader->planned_at < leader->waits)
		return;
	if (leader->unfinished || leader->changes != md_view_changes(leader->options.view) ||
	    now - leader->planned_at >= IDLE_NS)
		begin_plan(leader);
}

/* ---- all of it ---- */

struct md_leader *md_leader_create(const struct md_leader_options *options)
{
	struct md_leader *leader = calloc(1, sizeof(*leader));
	if (!leader)
		return NULL;
	*leader = (struct md_leader){.options = *options};
	if (asprintf(&leader->election, "%sleader", options->prefix) < 0)
		leader->election = NULL;
	leader->look = event_new(options->base, -1, EV_PERSIST, on_look, leader);
	leader->copies = evtimer_new(options->base, on_copies, leader);
	if (leader->election && leader->look && leader->copies)
		return leader;
	md_leader_destroy(leader);
	return NULL;
}

void md_leader_begin(struct md_leader *leader)
{
	struct timeval every = {.tv_usec = LOOK_MS * 1000};
	event_add(leader->look, &every);
}

void md_leader_end(struct md_leader *leader)
{
	if (!leader)
		return;
	event_del(leader->look);
	step_down(leader, "it leaves");
}

void md_leader_destroy(struct md_leader *leader)
{
	if (!leader)
		return;
	md_etcd_cancel(leader->campaign);
	md_etcd_cancel(leader->writing);
	md_loop_thread_destroy(leader->thread);
	md_placement_free(leader->planning);
	if (leader->look)
		event_free(leader->look);
	if (leader->copies)
		event_free(leader->copies);
	free(leader->election);
	free(leader->key);
	free(leader);
}

const char *md_leader_key(const struct md_leader *leader, int64_t *created)
{
	*created = leader ? leader->created : 0;
	return *created ? leader->key : NULL;
}

struct md_leader_state md_leader_state_of(const struct md_leader *leader)
{
	struct md_leader_state state = leader ? leader->state : (struct md_leader_state){0};
	state.leads = leader && leader->created;
	return state;
}
