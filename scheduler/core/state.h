/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's inside: artifacts and where they lie, functions and their requests, batches, transfers, policies. */
#ifndef MD_SCHEDULER_CORE_STATE_H
#define MD_SCHEDULER_CORE_STATE_H

#include <stdbool.h>

#include "base/export.h"
#include "base/map.h"
#include "medusa/scheduler.h"
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
	bool failed;           /* its owner died: it goes, and drains meanwhile */
	uint32_t pins;         /* batches that use it, transfers that read from it */
	uint32_t older, newer; /* on its GPU, by last use: artifacts THERE or SUSPENDED */
	uint64_t since, used;  /* ns: sent for, last used */
};

struct md_sched_artifact {
	uint8_t kind; /* enum medusa_sched_class */
	uint8_t host; /* enum md_copy_state: ABSENT, LOADING or THERE */
	bool host_fixed;
	uint32_t owner;     /* function, or backbone */
	uint32_t copies;    /* GPUs on which it is THERE */
	uint32_t host_pins; /* batches that need it there, transfers that read it */
	uint64_t bytes;     /* on a GPU; of a library: in host memory */
	uint64_t cold_ns;   /* until it is in host memory, all in all */
	uint32_t host_older, host_newer;
};

struct md_backbone {
	uint32_t artifact;
	uint32_t first_user; /* functions, linked by next_user */
	uint32_t users;
	uint32_t waiting; /* requests of its users */
	double rate;      /* requests/s of its users, as of rated_at */
	uint64_t rated_at;
};

enum md_request_state { MD_WAITING, MD_RUNNING };

struct md_request {
	uint64_t id, arrived, kv_bytes, tokens;
	uint32_t function, batch; /* batch: slot, when RUNNING */
	uint32_t next, previous;  /* in its function's queue, or in its batch */
	uint32_t older, newer;    /* among all that wait, by arrival */
	uint32_t tries;
	uint8_t state;
	bool late; /* in the function's queue of those that missed their SLO already */
	bool first_token, cancelled;
};

struct md_list {
	uint32_t head, tail, count; /* requests */
};

#define MD_FUNCTION_ARTIFACTS 4 /* by enum medusa_sched_class */

struct md_function {
	struct medusa_sched_function spec;
	uint32_t artifacts[MD_FUNCTION_ARTIFACTS]; /* NONE: it has none of this class */
	uint32_t next_user;                        /* of its backbone */
	struct md_list waiting, late;
	uint32_t running, batches;
	uint32_t claim; /* GPU on which it waits for memory, or NONE */
	uint64_t claimed_at;
	uint32_t home; /* placement "early" */
	bool gone, heavy;
	uint64_t ended, met, rejected; /* of requests with an SLO: served in time or not, refused */
	uint64_t served;
	double service_s;            /* sum of the time from start to end of those that were served */
	double recent_n, recent_met; /* the same two, forgetting (queueing "medusa") */
	uint64_t recent_at;
	bool high; /* queueing "torpor": in the high group */
	struct md_rate rate;
};

struct md_batch {
	uint64_t id;
	uint32_t function, gpu;
	uint32_t next_free;
	uint32_t older, newer; /* on its GPU */
	struct md_list requests;
	uint64_t kv_bytes, started;
	bool live, first_token; /* first_token: of some request */
};

enum md_direction { MD_IN, MD_OUT };

struct md_transfer {
	uint64_t id;
	uint32_t artifact, gpu; /* gpu NONE: host memory */
	uint32_t peer;
	uint32_t next_free;
	uint8_t direction, source;
	bool live, to_host, offload, heavy, pins_backbone;
	uint64_t bytes;
};

struct md_gpu {
	uint64_t limit, artifacts, residues, kv, foreign;
	uint64_t leaving; /* that evictions under way will free */
	uint64_t bound;   /* of the functions whose home it is */
	uint64_t held;    /* of the artifacts: in use, or on their way */
	bool draining;    /* some of its copies are */
	uint64_t changed; /* ns: when the books last changed */
	uint32_t pcie_switch, slots, running, transfers;
	uint32_t prefilling;             /* batches without a first token */
	uint32_t host_in, host_in_heavy; /* transfers from the host in progress */
	uint32_t oldest, newest;         /* artifacts, by last use */
	uint32_t first_batch;
	uint32_t *claims; /* functions, in the order in which they claimed */
	uint32_t claim_count, claim_capacity;
	bool present;
};

struct md_queueing;
struct md_placement;
struct md_eviction;
struct md_batching;
struct md_preloading;

struct medusa_sched {
	uint64_t now;
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
	struct md_batch *batches;
	uint32_t batch_count, batch_capacity, free_batch;
	struct md_transfer *transfers;
	uint32_t transfer_count, transfer_capacity, free_transfer;
	uint64_t generation;

	struct md_priority ready;   /* functions that may run now */
	struct md_priority holding; /* functions whose batch still fills, by when it has to start */
	struct md_priority idle;    /* functions that nobody calls, by when their time is over */
	uint32_t *blocked;          /* scratch of a dispatch */
	uint32_t free_slots;
	bool look_again; /* a GPU computes no first token any more: batches that fill may start */

	const struct md_queueing *queueing;
	const struct md_placement *placement;
	const struct md_eviction *eviction;
	const struct md_batching *batching;
	const struct md_preloading *preloading;
	struct medusa_sched_options options;
	uint64_t random;
	uint64_t next_tick, next_preload, timer; /* timer 0: none is set */
	uint64_t retry_at;                       /* something that waits may go on then; 0: nothing */
	uint64_t dispatches;
	struct { /* queueing "torpor" */
		double alpha, ratio;
		uint64_t ended, met;
		uint32_t updates;
	} torpor;
	struct { /* queueing "medusa": requests of functions that are not given up, fading */
		double ended, missed;
		uint32_t calm; /* seconds */
	} first_class;
	void *preload_memory; /* of the preloading policy */

	struct medusa_sched_action *actions;
	const struct medusa_sched_action **action_list; /* of the step that has ended: what its caller sees */
	size_t action_count, action_capacity, action_list_capacity;
	uint64_t *run_requests; /* request numbers of this step's runs; actions hold offsets until the step ends */
	size_t run_request_count, run_request_capacity;
	struct medusa_sched_stats stats;
	char error[256];
};

/* ---- policies: one ops table each ------------------------------------------------------------------------------- */

struct md_queueing {
	const char *name, *summary;
	/* Functions with the least key are served first; only a function that changed is asked again, and the first
	 * one. */
	struct md_key (*key)(struct medusa_sched *s, uint32_t function);
	/* Called every period ns while requests wait; keys are then asked for anew. NULL, 0: never. */
	void (*tick)(struct medusa_sched *s);
	uint64_t period;
	bool separates_late; /* requests that can't meet their SLO any more go to the function's second queue */
};

struct md_choice {
	uint32_t gpu;  /* NONE: no GPU can take it now */
	uint32_t peer; /* to copy from, or NONE: from the host */
};

struct md_placement {
	const char *name, *summary;
	bool bound; /* only on the function's home */
	/* Among GPUs with a free slot where md_fits() holds. */
	struct md_choice (*choose)(struct medusa_sched *s, uint32_t function);
};

struct md_eviction {
	const char *name, *summary;
	/* The copy with the least rank goes first. NULL: nothing is ever evicted for another. */
	struct md_key (*rank)(struct medusa_sched *s, uint32_t artifact, uint32_t gpu);
	/* True if this idle copy may be evicted now. NULL: always. */
	bool (*may)(struct medusa_sched *s, uint32_t artifact, uint32_t gpu);
	/* Busy copies are evicted, too: they get no new batches, and leave when the last one has ended. */
	bool drains;
};

struct md_batching {
	const char *name, *summary;
	/* How many of the waiting requests run together, at least 1; or 0 and *until: not before then, or the next
	 * arrival. */
	uint32_t (*size)(struct medusa_sched *s, uint32_t function, uint64_t *until);
};

struct md_preloading {
	const char *name, *summary;
	void (*plan)(struct medusa_sched *s); /* every preload_period_ns; sends for what it wants. NULL: nothing */
};

extern const struct md_queueing *const md_queueings[];
extern const struct md_placement *const md_placements[];
extern const struct md_eviction *const md_evictions[];
extern const struct md_batching *const md_batchings[];
extern const struct md_preloading *const md_preloadings[]; /* each ends with NULL */

int md_policies_choose(struct medusa_sched *s, const struct medusa_sched_options *options);

/* ---- registry.c ------------------------------------------------------------------------------------------------- */

int md_fail(struct medusa_sched *s, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Copies the struct that a caller gave, which may be an older, shorter one; a longer one must end in zeros. */
bool md_take_struct(const void *given, size_t known, void *out);
static inline struct md_copy *md_copy_at(const struct medusa_sched *s, uint32_t artifact, uint32_t gpu)
{
	return &s->copies[(size_t)artifact * s->gpu_count + gpu];
}

/* ---- policy/cost.c: estimates that policies share, in ns -------------------------------------------------------- */

uint64_t md_first_token_ns(const struct medusa_sched *s, uint32_t function, uint32_t batch);
/* The start time of a batch of one on gpu, with artifacts where they are, copied from peer (or NONE); links idle. */
uint64_t md_start_ns(const struct medusa_sched *s, uint32_t function, uint32_t gpu, uint32_t peer);
/* The time to bring one artifact to gpu from the nearest other place, if it were not there. */
uint64_t md_reload_ns(const struct medusa_sched *s, uint32_t artifact, uint32_t gpu);
double md_artifact_rate(struct medusa_sched *s, uint32_t artifact); /* requests/s of all who need it */
/* The GPU with a link to gpu that holds most of the weights that function lacks there, the fastest such; or NONE. */
uint32_t md_best_peer(const struct medusa_sched *s, uint32_t function, uint32_t gpu);
bool md_all_there(const struct medusa_sched *s, uint32_t function, uint32_t gpu); /* or loading; on a GPU */
uint64_t md_missing_bytes(const struct medusa_sched *s, uint32_t function, uint32_t gpu);
uint64_t md_deadline(const struct medusa_sched *s, uint32_t request); /* UINT64_MAX: none */

/* ---- books.c: memory -------------------------------------------------------------------------------------------- */

int64_t md_free_bytes(const struct medusa_sched *s, uint32_t gpu); /* < 0: others have taken what was ours */
bool md_fits(struct medusa_sched *s, uint32_t function,
	     uint32_t gpu); /* it could have memory here, now or after evictions */
/* Could it ever, on an empty GPU? */
bool md_fits_empty(const struct medusa_sched *s, uint32_t function, uint32_t gpu, uint64_t kv_bytes);
void md_shrink(struct medusa_sched *s, uint32_t gpu);  /* others took memory: gives up what is idle */
void md_drained(struct medusa_sched *s, uint32_t gpu); /* lets go what drains and is idle by now */
void md_undrain(struct medusa_sched *s, uint32_t gpu);
void md_sweep(struct medusa_sched *s,
	      uint32_t function); /* of a function that is gone or not called: what is its own */
/* Frees until `bytes` are free, by evicting idle copies that `keeper` does not need. True: they are free now. */
bool md_make_room(struct medusa_sched *s, uint32_t gpu, uint64_t bytes, uint32_t keeper);
void md_drain_for(struct medusa_sched *s, uint32_t gpu, uint64_t bytes, uint32_t keeper);
void md_copy_enter(struct medusa_sched *s, uint32_t artifact, uint32_t gpu); /* into the list of its GPU */
void md_copy_leave(struct medusa_sched *s, uint32_t artifact, uint32_t gpu);
void md_pin(struct medusa_sched *s, uint32_t function, uint32_t gpu);
void md_unpin(struct medusa_sched *s, uint32_t function, uint32_t gpu);
/* Code that changes a copy's state or pins calls md_held before, and md_held_changed after. */
bool md_held(const struct md_copy *copy);
void md_held_changed(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, bool was);
/* Frees host memory of idle artifacts, except for keeper's. True: `bytes` are free. */
bool md_host_room(struct medusa_sched *s, uint64_t bytes, uint32_t keeper);
void md_host_enter(struct medusa_sched *s, uint32_t artifact);
void md_host_leave(struct medusa_sched *s, uint32_t artifact);

/* ---- transfer.c ------------------------------------------------------------------------------------------------- */

/* Sends for an artifact whose bytes are free. gpu NONE: into host memory. False: out of memory, nothing has changed. */
bool md_send_for(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, uint32_t peer, bool preload);
bool md_transfer_out(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, uint64_t freed, bool offload,
		     bool at_once);
void md_transfer_done(struct medusa_sched *s, uint32_t transfer);
void md_transfer_drop(struct medusa_sched *s, uint32_t transfer); /* it will not come; its bytes leave the books */
uint32_t md_transfer_find(const struct medusa_sched *s, uint64_t id, bool *never);

/* ---- request.c: requests, queues, batches ----------------------------------------------------------------------- */

uint32_t md_request_create(struct medusa_sched *s, uint64_t id, uint32_t function);
void md_request_wait(struct medusa_sched *s, uint32_t request);
void md_request_reject(struct medusa_sched *s, uint32_t request, enum medusa_sched_reason reason); /* one that waits */
void md_request_end(struct medusa_sched *s, uint32_t request);
void md_request_count(struct medusa_sched *s, uint32_t request, bool met); /* for the SLO */
uint32_t md_waiting(const struct medusa_sched *s, uint32_t function);
uint32_t md_first_waiting(const struct medusa_sched *s, uint32_t function); /* in time before late; NONE: none */
void md_sort_late(struct medusa_sched *s, uint32_t function);
uint32_t md_batch_create(struct medusa_sched *s, uint32_t function, uint32_t gpu);
/* Moves up to count waiting requests into the batch, in time before late; their KV memory must be free. */
void md_batch_take(struct medusa_sched *s, uint32_t batch, uint32_t count);
void md_batch_end(struct medusa_sched *s, uint32_t batch);
void md_batch_fail(struct medusa_sched *s, uint32_t batch, enum medusa_sched_reason reason);
uint32_t md_batch_find(const struct medusa_sched *s, uint64_t id, bool *never);

/* ---- dispatch.c ------------------------------------------------------------------------------------------------- */

void md_function_changed(struct medusa_sched *s, uint32_t function); /* its place among those that may run */
void md_dispatch(struct medusa_sched *s);
void md_claim_drop(struct medusa_sched *s, uint32_t function);
static inline bool md_slot_free(const struct medusa_sched *s, uint32_t gpu)
{
	return s->gpus[gpu].present && s->gpus[gpu].running < s->gpus[gpu].slots;
}

/* ---- policy/preloading.c ---- */

void md_preload_next(struct medusa_sched *s); /* sends for what the plan has next, where nothing is in its way */

/* ---- step.c ------------------------------------------------------------------------------------------------------ */

/* Makes sure that the next md_act calls and request numbers find room; false: out of memory. */
bool md_action_room(struct medusa_sched *s, size_t actions, size_t requests);
struct medusa_sched_action *md_act(struct medusa_sched *s,
				   enum medusa_sched_action_type type); /* NULL: out of memory */
uint64_t md_draw(struct medusa_sched *s);                               /* a random number */

#endif
