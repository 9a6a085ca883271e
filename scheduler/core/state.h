/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's state: artifacts and where they are, functions and their requests, batches, transfers, policies. */
#ifndef MD_SCHEDULER_CORE_STATE_H
#define MD_SCHEDULER_CORE_STATE_H

#include <stdbool.h>

#include "base/export.h"
#include "base/map.h"
#include "medusa/scheduler.h"
#include "scheduler/core/latency.h"
#include "scheduler/core/priority.h"
#include "scheduler/core/rate.h"

#define NONE MEDUSA_SCHED_NONE

/*
 * Who owns what
 *   artifact   one of a backbone or a function; lies in host memory, and on each GPU as a copy
 *   copy       artifact x GPU: ABSENT -> LOADING -> THERE -> LEAVING -> ABSENT or SUSPENDED (its residue stays)
 *   request    WAITING in its function's queue, or RUNNING in a batch
 *   batch      runs on a GPU, pins the copies that it needs, holds KV memory and a slot
 *   transfer   a copy on its way in or out; pins its source
 *   claim      a function that waits for memory on a GPU: first come first served there, holds nothing meanwhile, so
 *              that no two can wait for each other
 * Bytes are in a GPU's books from the moment an artifact is sent for until it is gone.
 */

enum md_copy_state { MD_ABSENT = 0, MD_LOADING, MD_THERE, MD_LEAVING, MD_SUSPENDED };

struct md_copy {
	uint8_t state;
	bool draining;         /* chosen as a victim: no new batch may use it here */
	bool failed;           /* its owner failed: the copy drains, and is evicted then */
	uint32_t pins;         /* batches that use it, transfers that read from it, functions that are kept with it */
	uint32_t keeps;        /* of these, functions that are kept with it */
	uint32_t older, newer; /* list of its GPU by last use, of artifacts that are THERE or SUSPENDED */
	uint32_t transfer;     /* LOADING or LEAVING: by which transfer */
	uint32_t shares;       /* what it has in common with others: 1 + the first sharer (shares.h); 0: nothing */
	uint64_t since, used;  /* ns: when it was sent for, when it was last used */
};

struct md_sched_artifact {
	uint8_t kind; /* enum medusa_sched_class */
	uint8_t host; /* enum md_copy_state: ABSENT, LOADING or THERE */
	bool host_fixed;
	uint32_t owner;     /* function, or backbone */
	uint32_t copies;    /* GPUs on which it is THERE */
	uint32_t host_pins; /* batches that need it there, transfers that read it */
	uint64_t bytes;     /* its size on a GPU; of a library: its size in host memory */
	uint64_t cold_ns;   /* cold start: total time until it is in host memory */
	uint32_t host_older, host_newer;
	uint32_t host_transfer; /* host LOADING: by which transfer */
};

/* What a GPU has of a backbone's functions. */
struct md_backbone_gpu {
	uint32_t adapters; /* weights of their own, whatever their state but ABSENT */
	uint32_t leaving;  /* of these: on their way out */
	uint32_t running;  /* requests in batches, strays too */
};

struct md_backbone {
	struct medusa_sched_backbone spec;
	struct md_backbone_gpu *gpus; /* owned */
	uint32_t artifact;
	uint32_t first_user; /* functions, linked by next_user */
	uint32_t users;
	uint32_t waiting; /* requests of its users */
	double rate;      /* requests/s of its users, as of rated_at */
	uint64_t rated_at;
};

enum md_request_state { MD_WAITING, MD_RUNNING, MD_STRAY }; /* abort.h says what a stray is */

struct md_request {
	uint64_t id, arrived, kv_bytes, tokens;
	uint64_t deadline;        /* ns; UINT64_MAX: none */
	uint64_t began;           /* ns; RUNNING, STRAY: when it came into its batch */
	uint64_t expires;         /* RUNNING, STRAY: when its end is late */
	int32_t rank;             /* its priority; INT32_MAX when it has waited long */
	uint32_t function, batch; /* batch: slot, when RUNNING */
	uint32_t tenant;
	uint64_t share_from;               /* RUNNING: share_ns of its batch when it came */
	double charged;                    /* RUNNING: ns of GPU time that its tenant was charged with ahead */
	uint32_t next, previous;           /* in its function's queue, or in its batch */
	uint32_t lane_next, lane_previous; /* in its lane, if there are several tenants */
	uint32_t older, newer;             /* among all that wait, by arrival */
	uint32_t tries;
	uint8_t state;
	bool late;      /* it is in the function's queue of requests that have already missed their SLO */
	bool lane_late; /* likewise of its lane */
	bool first_token, cancelled;
	bool held;        /* WAITING: in its tenant's list, not in its function's queue, see max_running */
	bool started;     /* it has run, perhaps in a try that failed */
	bool own_kv;      /* its KV memory was stated for it, and is not just the function's */
	bool counted;     /* for its function's objective */
	bool load;        /* it computes nothing: no latency, objective or time of service is learned from it */
	uint8_t aborting; /* RUNNING: for which reason the node was asked to stop it; 0: it was not */
	bool asked_again; /* STRAY: an ABORT was not answered in time */
	uint8_t losses;   /* how often it was lost with its GPU or backbone, and tried again for that */
};

struct md_list {
	uint32_t head, tail, count; /* requests */
};

/* What of a function's queue is one tenant's (lane.h). */
struct md_lane {
	uint32_t tenant;
	struct md_list in_time, late;
	uint32_t next_in_time, next_late; /* while they are gone through */
};

#define MD_FUNCTION_ARTIFACTS 4 /* by enum medusa_sched_class */

/* With which functions one may be loaded (company.h): one of these sets stays, what is in none of them leaves. */
struct md_companies {
	uint32_t count, words;
	uint32_t chosen; /* of which least has to leave, as of chosen_at */
	uint64_t chosen_at;
	uint64_t bits[]; /* words for each set: bit f % 64 of word f / 64 */
};

struct md_function {
	struct medusa_sched_function spec;
	uint32_t artifacts[MD_FUNCTION_ARTIFACTS]; /* NONE: it has none of this class */
	uint32_t next_user;                        /* of its backbone */
	struct md_list waiting, late; /* with several tenants all are in `waiting`, the next ones in front */
	struct md_lane *lanes;        /* owned */
	uint32_t lane_count, lane_capacity;
	uint32_t requests; /* all that exist: held back, waiting, running, strays */
	uint32_t running, batches;
	uint32_t first_batch; /* its live batches, the youngest first, hung ones too */
	uint32_t claim;       /* GPU on which it claims memory, or NONE */
	uint64_t claimed_at;
	uint32_t home; /* of placement "early": its GPU */
	bool gone, heavy;
	bool let_go; /* it was not called for keep_alive_ns: nothing of it is loaded before it is called again */
	uint64_t ended, met, rejected; /* requests with an SLO: all that ended, those served in time, those rejected */
	uint64_t served;
	double service_s; /* sum of the times from start to end of `served` requests, loads left out */
	bool high;        /* queueing "torpor": in the high group */
	bool *kept;       /* owned, by GPU: it stays there (keep.h); NULL: it never was to stay */
	uint32_t kept_count;
	struct md_companies *companies; /* owned; NULL: any */
	bool company_waits;             /* for others to leave, or for one that waits for its leaving */
	uint64_t company_since;         /* ns: since when */
	uint64_t company_order;         /* of those that wait, the least began first */
	uint64_t loaded_at;             /* ns: when something of its own last came to a GPU */
	uint32_t failures;              /* of loads, and of its process, since a request of its was last served */
	uint64_t preload_after;         /* ns: after a failure nothing of it is loaded ahead of requests before */
	bool stuck;                     /* it is held because it fits nowhere: stuck.h */
	uint64_t stuck_at, stuck_ns;    /* when it was tried, and how long it is held */
	uint64_t stuck_stirs;           /* when it was tried: what had happened until then */
	struct md_rate rate;
};

struct md_tenant {
	double weight;
	uint32_t max_waiting, max_running; /* 0: no limit */
	bool starts_none, takes_none;
	uint32_t waiting, running; /* waiting: those that are held back, too */
	struct md_list held;       /* those, by priority and arrival */
	double turn;               /* its virtual time: ns of GPU time, by its weight */
	uint64_t served, rejected, gpu_ns;
};

struct md_batch {
	uint64_t id;
	uint32_t function, gpu;
	uint32_t next_free;
	uint32_t older, newer;         /* on its GPU */
	uint32_t own_older, own_newer; /* of its function; newer ones are before it */
	struct md_list requests, strays;
	uint64_t kv_bytes, started;
	uint64_t share_ns, divided; /* GPU time of each request that was there all the time, up to the time `divided` */
	bool live, first_token;     /* first_token: some request has its first token */
	bool begun;                 /* its computation, as was reported */
	bool found;                 /* it ran already when this scheduler was made */
	bool hung;                  /* it has only strays, and is none of its function's batches any more */
};

enum md_direction { MD_IN, MD_OUT };

struct md_transfer {
	uint64_t id;
	uint32_t artifact, gpu; /* gpu NONE: host memory */
	uint32_t peer;          /* it reads from there. NONE, of a copy from a peer: from a GPU that is lost */
	uint32_t next_free;
	uint8_t direction, source;
	bool live, to_host, offload, heavy, pins_backbone;
	bool late;    /* its end did not come in time: nothing new may count on it */
	bool failing; /* its source or its place has failed, and the node was asked to end it: likewise */
	uint64_t bytes;
};

struct md_gpu {
	uint64_t limit, artifacts, residues, kv, foreign;
	uint64_t leaving; /* bytes that evictions under way will free */
	uint64_t bound;   /* bytes of the functions whose home it is */
	uint64_t held;    /* bytes of artifacts that are in use, or on their way */
	/* Bytes that artifacts have in common, beyond the first of each: now, once those have left that are on their way out, and of
	 * those alone that are in use and stay (shares.h). */
	uint64_t shared, shared_soon, shared_busy;
	bool draining;    /* some of its copies are draining */
	uint64_t changed; /* ns: when the books last changed */
	uint32_t pcie_switch, slots, running, transfers;
	uint32_t prefilling; /* batches without a first token */
	uint32_t ahead;      /* of placement "medusa": what it has counted, in look ahead_look */
	uint64_t ahead_look;
	uint32_t host_in, host_in_heavy; /* transfers from the host in progress */
	uint32_t oldest, newest;         /* artifacts, by last use */
	uint32_t first_batch;
	uint32_t *claims; /* functions, in the order in which they claimed */
	uint32_t claim_count, claim_capacity;
	uint64_t kept;      /* bytes of copies that are kept: keep.h */
	uint64_t served_at; /* ns: when a claim was last served */
	uint32_t starts;    /* since its oldest claim had its turn */
	bool present;
	bool closed; /* it is being drained: nothing new starts there, what is idle leaves */
	bool grown;  /* KV caches have outgrown it: nothing new starts there, until all has room again */
};

struct md_queueing;
struct md_placement;
struct md_eviction;
struct md_batching;
struct md_preloading;

struct medusa_sched {
	uint64_t now;
	uint64_t look; /* while it stays the same, nothing starts or comes between the calls of a placement policy */
	uint32_t gpu_count, backbone_count, function_count, artifact_count;
	uint32_t backbone_capacity, function_capacity, artifact_capacity;
	struct md_gpu *gpus;
	struct md_backbone *backbones;
	struct md_function *functions;
	struct md_sched_artifact *artifacts;
	struct md_copy *copies; /* artifact * gpu_count + gpu */
	double *peers;
	double host_bytes_per_s, cold_bytes_per_s;
	uint64_t host_limit, host_used; /* limit 0: none */
	uint32_t host_oldest, host_newest;

	struct md_request *requests;
	uint32_t request_count, request_capacity, free_request;
	struct md_map request_ids;
	uint32_t oldest_waiting, newest_waiting, waiting;
	struct md_tenant *tenants; /* the first is the default one */
	uint32_t tenant_count, tenant_capacity;
	uint32_t held; /* waiting requests that are held back, of all tenants */
	double turn;   /* the node's virtual time: the greatest at which a request has begun to run */
	struct md_batch *batches;
	uint32_t batch_count, batch_capacity, free_batch;
	struct md_transfer *transfers;
	uint32_t transfer_count, transfer_capacity, free_transfer;
	struct md_sched_share *shares; /* owned, as sharers: shares.h */
	struct md_sched_sharer *sharers;
	uint32_t share_count, share_capacity, free_share;
	uint32_t sharer_count, sharer_capacity, free_sharer;
	struct md_map share_numbers; /* the first share of a number */
	uint64_t generation;

	struct md_priority ready; /* functions that may run now */
	struct md_priority joins; /* functions that wait and have a batch with room for another request */
	struct md_priority
	    holding;             /* functions whose batch still fills, by the time when it must start, and stuck ones */
	struct md_priority idle; /* functions that are not called, by the time when they are unloaded */
	struct md_priority request_alarms, transfer_alarms; /* alarm.h */
	bool priorities;                                    /* some request has had a priority other than 0 */
	uint32_t *blocked;                                  /* used during a dispatch */
	uint32_t free_slots;
	uint32_t continuous; /* live batches of continuous functions */
	bool refuse_large;   /* sizes have changed: what waits may fit nowhere any more */
	bool look_again;     /* a GPU no longer computes a first token: batches that fill may start */

	const struct md_queueing *queueing;
	const struct md_placement *placement;
	const struct md_eviction *eviction;
	const struct md_batching *batching;
	const struct md_preloading *preloading;
	struct medusa_sched_options options;
	uint64_t random;
	uint64_t next_tick, next_preload, timer; /* timer 0: none is set */
	uint32_t *keepers;                       /* functions that have `kept` */
	uint32_t keeper_count, keeper_capacity;
	struct {
		uint32_t rules;    /* functions that have `companies` */
		uint32_t *waiting; /* functions that wait for others to leave, in the order in which they began */
		uint32_t *there;   /* used while a company is chosen */
		uint32_t waiting_count, capacity;
		uint64_t looks; /* dispatches */
		uint64_t order; /* the last company_order */
		uint64_t bytes; /* of all companies */
	} company;
	struct {
		uint64_t stirs; /* how often something has happened that may help */
		bool patient;   /* some are held for more than the least time */
	} stuck;
	uint64_t keep_after; /* ns: no replica is sent for before */
	uint64_t retry_at;   /* when something that waits may go on; 0: nothing waits */
	uint64_t dispatches;
	uint64_t happened; /* events so far that have changed something else than the time */
	struct {           /* queueing "torpor" */
		double alpha, ratio;
		uint64_t ended, met;
		uint32_t updates;
	} torpor;
	struct {                      /* queueing "medusa": recent requests of functions that are not given up */
		double ended, missed; /* since the last decision */
		double limit;         /* GPU seconds per second that they may ask for */
	} first_class;
	void *preload_memory; /* owned by the preloading policy */
	struct {              /* preloading: what the last plan was for; "medusa": which function is looked at next */
		uint32_t next, left;
		uint64_t seen;
		bool due;    /* a plan is to be made as soon as nothing waits */
		bool asleep; /* there was nothing to plan when the last step ended */
	} preload;

	struct medusa_sched_action *actions;
	/* the actions of the step that has ended, as its caller sees them */
	const struct medusa_sched_action **action_list;
	size_t action_count, action_capacity, action_list_capacity;
	uint64_t *run_requests; /* request numbers of this step's runs; actions hold offsets until the step ends */
	size_t run_request_count, run_request_capacity;
	uint64_t *run_transfers; /* likewise, the transfers that they wait for */
	size_t run_transfer_count, run_transfer_capacity;
	struct md_latencies *latencies; /* of all functions together, then of each */
	uint32_t latency_capacity;
	struct medusa_sched_stats stats;
	char error[256];
};

#define MD_LONGEST_NS (1ull << 60) /* a copy's time at most, so that sums of times cannot overflow: 36 years */

static inline uint64_t md_copy_ns(uint64_t bytes, double bytes_per_s)
{
	double ns = (double)bytes / bytes_per_s * 1e9;
	return ns < (double)MD_LONGEST_NS ? (uint64_t)ns : MD_LONGEST_NS;
}

static inline struct md_copy *md_copy_at(const struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	return &s->copies[(size_t)artifact * s->gpu_count + gpu];
}

/* Whether the transfer, under way, leaves its artifact in host memory; it may bring it to a GPU besides. */
static inline bool md_to_host(const struct md_transfer *t)
{
	return t->live && t->direction == MD_IN && (t->gpu == NONE || t->to_host);
}

/* Whether another GPU may copy the artifact from there. */
static inline bool md_copy_readable(const struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	const struct md_copy *copy = md_copy_at(s, artifact, gpu);
	return copy->state == MD_THERE && !copy->failed;
}

/* Whether anything new may start on the GPU, or be sent there. */
static inline bool md_gpu_open(const struct medusa_sched *s, uint32_t gpu)
{
	return s->gpus[gpu].present && !s->gpus[gpu].closed;
}

#endif
