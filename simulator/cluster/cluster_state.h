/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated cluster while it runs: its nodes, which model stands how where, and the requests. */
#ifndef MD_SIMULATOR_CLUSTER_CLUSTER_STATE_H
#define MD_SIMULATOR_CLUSTER_CLUSTER_STATE_H

#include "scheduler/cluster/first_token.h"
#include "simulator/cluster/sim_cluster.h"
#include "simulator/model/node_model.h"
#include "simulator/random.h"

#define MD_SIM_NEVER UINT64_MAX

/* A function at a node that has been asked for it, or told to load it. */
struct md_sim_seat {
	uint32_t local; /* its number in the node's scheduler and model; MEDUSA_SCHED_NONE: they don't know it */
	struct md_standing told;
	struct md_demand demand;
	uint64_t taken;
	uint32_t there;    /* requests that have not ended */
	bool dirty;        /* its node will look at it when nodes tell each other next */
	uint64_t planned;  /* the number of the plan that had it last, from 1 on; 0: none */
	bool gone;         /* its node is lost; what it told last is what others know */
	uint64_t tried_at; /* when it was loaded for the leader last; 0: never */
};

struct md_sim_seats { /* of one function; a seat keeps its place */
	struct md_sim_seat *seats;
	uint32_t *nodes; /* whose seats these are */
	uint32_t count, room, node_room;
};

struct md_sim_touched {
	uint32_t function, seat;
};

struct md_sim_member {
	bool lives;
	uint64_t lost_at;      /* 0: it was never lost */
	uint64_t doubted;      /* until then others are asked rather */
	uint32_t waiting;      /* requests that have not ended, as it told last */
	uint32_t there;        /* ... as it is */
	struct md_loads loads; /* as it told last */
	uint64_t served;
	double busy_s; /* of all its GPUs together; of lives before this one */
	struct medusa_sched *sched;
	struct md_sim_model *model;
	struct md_sim_functions functions;
	struct md_sim_touched *locals; /* by local number: the function's in the cluster, and its seat's */
	uint32_t local_room, function_room;
	uint64_t timer, due;                         /* due: when its next event is */
	uint32_t heap;                               /* where it stands in the heap */
	uint64_t job;                                /* a load for the leader, as a request's number; 0: none */
	uint32_t *wanted, wanted_count, wanted_room; /* functions that the leader wants there */
};

struct md_sim_asked {          /* a request */
	uint64_t first, batch; /* when its first token came; 0: not yet */
	uint32_t node, from;   /* that computes it, and that was asked */
	uint32_t seat;
	uint8_t aborted;     /* the reason why its run was asked to stop; 0: it was not */
	bool counted, tried; /* tried: elsewhere */
	bool ended;
};

struct md_sim_happening { /* a node is lost, or comes back */
	uint64_t at;
	uint32_t node;
	bool back;
};

struct md_sim_cluster_state {
	const struct md_sim_cluster_inputs *inputs;
	const struct md_sim_cluster *cluster;
	struct md_sim_node node;           /* without reports */
	struct md_sim_functions functions; /* as the policy has them */
	const struct md_sim_workload *workload;
	enum md_sim_routing routing;
	struct md_sim_random random;
	struct md_sim_member *members;
	uint32_t count, alive;
	uint32_t *heap;             /* of members, by due */
	struct md_sim_seats *seats; /* by function */
	struct md_standing *unused; /* by function: on a node that knows nothing of it */
	uint32_t *at;               /* by node: 1 more than the seat of the function that is looked at; 0: none */
	uint32_t *open;             /* from * count + to */
	struct md_sim_touched *touched;
	size_t touched_count, touched_room;
	struct md_sim_asked *asked;
	size_t arrived, ended, oldest;
	struct md_sim_happening *happenings;
	size_t happening_count, happening_room, happened;
	uint64_t now, jobs, plan_at;
	bool warm;                        /* the warm-up is over */
	struct medusa_sched_stats gone;   /* of schedulers that are no more */
	struct medusa_sched_stats before; /* of all, when the warm-up was over */
	struct md_sim_cluster_result *result;
	struct md_error *err;
};

enum md_status md_sim_cluster_no_memory(const struct md_sim_cluster_state *state);

/* ---- member_node.c: one node ---- */
enum md_status md_sim_member_begin(struct md_sim_cluster_state *state, uint32_t node);
void md_sim_member_end(struct md_sim_cluster_state *state, uint32_t node); /* its counts go into the sums */
void md_sim_member_free(struct md_sim_member *member);
/* One event that is due there. */
enum md_status md_sim_member_go_on(struct md_sim_cluster_state *state, uint32_t node);
/* A request, or (job) a load for the leader. */
enum md_status md_sim_member_take(struct md_sim_cluster_state *state, uint32_t node, uint32_t function,
				  uint64_t request, bool job);
void md_sim_member_add_stats(const struct md_sim_member *member, struct medusa_sched_stats *sum);
double md_sim_member_busy_s(const struct md_sim_member *member, uint32_t gpus);
/* After its next event may have come to be another one. */
void md_sim_heap_update(struct md_sim_cluster_state *state, uint32_t node);

/* ---- seats.c: functions at nodes ---- */
/* The number of a node's seat; MEDUSA_SCHED_NONE: it has none. */
uint32_t md_sim_seat_find(const struct md_sim_cluster_state *state, uint32_t function, uint32_t node);
/* One that the node's scheduler knows. MEDUSA_SCHED_NONE: out of memory, or the scheduler refuses the function; err has it. */
uint32_t md_sim_seat_obtain(struct md_sim_cluster_state *state, uint32_t function, uint32_t node);
bool md_sim_seat_touch(struct md_sim_cluster_state *state, struct md_sim_touched touched); /* false: out of memory */
void md_sim_seats_leave(struct md_sim_cluster_state *state, uint32_t node);                /* the node is lost */
void md_sim_seats_begin(struct md_sim_cluster_state *state, uint32_t node);                /* it begins anew */
struct md_loads md_sim_loads_of(const struct md_sim_member *member);                       /* as they are now */
/* As it is now; not rounded. */
void md_sim_seat_standing(const struct md_sim_cluster_state *state, uint32_t function, uint32_t seat,
			  struct md_standing *standing);
void md_sim_seats_tell(struct md_sim_cluster_state *state); /* nodes tell what has changed */
enum md_status md_sim_seats_prepare(struct md_sim_cluster_state *state);
void md_sim_seats_finish(struct md_sim_cluster_state *state);

/* ---- routes.c ---- */
/* A new request, or one that is tried elsewhere: `avoided` has not taken it (MEDUSA_SCHED_NONE: nobody). */
enum md_status md_sim_route(struct md_sim_cluster_state *state, size_t request, uint32_t avoided);
/* Which node it is; MEDUSA_SCHED_NONE: there is none. */
uint32_t md_sim_route_choose(struct md_sim_cluster_state *state, uint32_t function, uint32_t from, uint32_t avoided);

/* ---- leader_rounds.c ---- */
enum md_status md_sim_round(struct md_sim_cluster_state *state);
enum md_status md_sim_obey(struct md_sim_cluster_state *state, uint32_t node);

/* ---- losses.c ---- */
enum md_status md_sim_losses_prepare(struct md_sim_cluster_state *state);
enum md_status md_sim_losses_happen(struct md_sim_cluster_state *state);

/* ---- count_requests.c ---- */
/* What a node's event or its answers say of requests. False: out of memory. */
bool md_sim_count_event(struct md_sim_cluster_state *state, uint32_t node, const struct medusa_sched_event *event);
void md_sim_count_actions(struct md_sim_cluster_state *state, uint32_t node,
			  const struct medusa_sched_action *const *actions, size_t count);
enum md_sim_end { MD_SIM_END_SERVED, MD_SIM_END_REFUSED, MD_SIM_END_BROKEN, MD_SIM_END_NOWHERE };
void md_sim_count_end(struct md_sim_cluster_state *state, size_t request, enum md_sim_end end, unsigned reason);

#endif
