/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler of a worker node as a library: events in, actions out. No I/O, no clock, no threads,
 * no global state. */
#ifndef MEDUSA_SCHEDULER_H
#define MEDUSA_SCHEDULER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Each function has a manual page in section 3; begin with medusa_sched_create(3).
 *
 * Link with -lmedusa-sched. A node loop tells the scheduler what happened (medusa_sched_step) and carries out the
 * returned actions in their order. When something that an action has started ends later (a transfer, a batch, an
 * eviction), the node loop reports that with another event. The same calls give the same actions, bit for bit. One
 * scheduler is used by one thread at a time; several are independent of each other.
 *
 * Times are ns on a clock of the caller that never goes back. Sizes are bytes. Speeds are bytes a second.
 * Options structs begin with their size (sizeof); a tail that a newer caller knows must be zero. Functions that return
 * int return 0 or a MEDUSA_SCHED_ERR_* code, and medusa_sched_error() then says why in one sentence.
 *
 * A *function* is what users call: a model of its own, or a LoRA adapter on a *backbone* that several functions share.
 * On a GPU a function consists of *artifacts*: the backbone (held once per GPU, whoever uses it), its own weights, and
 * its context (CUDA context, kernels, graphs). In host memory it consists of its library and its weights. The scheduler
 * reserves the bytes of a place before it puts anything there.
 */

enum medusa_sched_result {
	MEDUSA_SCHED_OK = 0,
	MEDUSA_SCHED_ERR_INVALID = 1,   /* an argument; nothing has changed */
	MEDUSA_SCHED_ERR_NO_MEMORY = 2, /* nothing has changed; an event may be sent again later */
	MEDUSA_SCHED_ERR_NOT_FOUND = 4  /* no such policy, function or GPU */
};

#define MEDUSA_SCHED_NONE UINT32_MAX /* no backbone, no GPU (then: the host's memory), no artifact */

/* ---- the node --------------------------------------------------------------------------------------------------- */

struct medusa_sched_gpu {
	size_t size;           /* sizeof(struct medusa_sched_gpu) */
	uint64_t memory_bytes; /* for artifacts, KV cache and residues, without the driver's own memory */
	uint32_t pcie_switch;  /* GPUs with one number share one link to the host (Torpor, figure 5) */
	uint32_t slots;        /* batches that may run at once; 0: 1, one function at a time (Torpor, section 4.5) */
};

struct medusa_sched_node {
	size_t size; /* sizeof(struct medusa_sched_node) */
	const struct medusa_sched_gpu *gpus;
	uint32_t gpu_count;
	uint64_t host_bytes;     /* for artifacts kept ready in host memory; 0: unlimited */
	double host_bytes_per_s; /* host to one GPU, undisturbed. Speeds are finite numbers, and at least 1 */
	double cold_bytes_per_s; /* disk or network to host memory; 0: not counted */
	const double
	    *peer_bytes_per_s; /* gpu_count x gpu_count, [source * gpu_count + target]; 0: no direct link. NULL: none */
};

/*
 * Policies by name, see medusa_sched_policies; NULL: "medusa", our own policy. Everything is copied.
 */
struct medusa_sched_options {
	size_t size;   /* sizeof(struct medusa_sched_options) */
	uint64_t seed; /* of the policies that draw at random */
	const char *queueing, *placement, *eviction, *batching, *preloading;
	uint64_t max_wait_ns;        /* a request that waited longer for its start is refused; 0: 600 s */
	uint32_t max_queue;          /* requests waiting per function, more are refused; 0: unlimited */
	uint32_t retries;            /* how often a request is queued again after its batch failed; 0: never. What
					a lost GPU or a failed backbone held is queued again up to twice beyond that,
					if a GPU that is there can take it */
	uint32_t fixed_batch;        /* batching "fixed": size ... */
	uint64_t fixed_delay_ns;     /* ... and how long the first request waits for it */
	uint64_t preload_period_ns;  /* how often preloading is planned anew; 0: 1 s */
	double residency_per_switch; /* eviction "medusa": least stay, as a multiple of the time to load; 0: 1.0 */
	uint64_t report_lag_ns;      /* memory reports taken less than this after a change are ignored; 0: 1.5 s */
	/*
	 * After so long a transfer, or a run since its start or its first token, is taken as lost: see
	 * MEDUSA_SCHED_ACTION_ABORT. 0: 10 times its expected time, and max_wait_ns (at least 120 s) beyond that.
	 * UINT64_MAX: never.
	 */
	uint64_t transfer_timeout_ns, run_timeout_ns;
};

enum medusa_sched_kind {
	MEDUSA_SCHED_KIND_QUEUEING,
	MEDUSA_SCHED_KIND_PLACEMENT,
	MEDUSA_SCHED_KIND_EVICTION,
	MEDUSA_SCHED_KIND_BATCHING,
	MEDUSA_SCHED_KIND_PRELOADING,
	MEDUSA_SCHED_KINDS /* how many this release has */
};

/* An array has elements of this type, so it has no size and gets no further field. */
struct medusa_sched_policy {
	const char *name;
	const char *summary; /* one sentence, with the paper it comes from */
};

/* Returns the policies of a kind, and their number in *count (which may be NULL). Static. */
const struct medusa_sched_policy *medusa_sched_policies(enum medusa_sched_kind kind, size_t *count);

struct medusa_sched;

int medusa_sched_create(const struct medusa_sched_node *node, const struct medusa_sched_options *options,
			struct medusa_sched **sched);
void medusa_sched_destroy(struct medusa_sched *sched); /* NULL is fine */

/*
 * One sentence on the last failure of this scheduler (NULL: of medusa_sched_create in this thread, or of a call here
 * whose scheduler was NULL). Never NULL. Control characters of what was given are shown as \xHH.
 */
const char *medusa_sched_error(const struct medusa_sched *sched);

/* ---- functions -------------------------------------------------------------------------------------------------- */

/*
 * A backbone stays on GPUs if a function does that has nothing but the backbone (min_replicas, pinned). When all of its
 * functions are unregistered, it leaves.
 */
struct medusa_sched_backbone {
	size_t size;      /* sizeof(struct medusa_sched_backbone) */
	uint64_t bytes;   /* on a GPU, and in host memory */
	uint64_t cold_ns; /* to bring the backbone into host memory, beyond bytes / cold_bytes_per_s */
	int in_host;      /* the backbone lies in host memory from the beginning, and stays */
	uint64_t
	    load_ns; /* from host memory to a GPU; 0: computed. An engine that has the backbone starts in this time */
	uint64_t evict_ns;     /* to take it off a GPU; 0: the host's copy is kept, memory is free at once */
	uint32_t max_replicas; /* GPUs that may hold or load it at one time; 0: all. As of a function */
	/*
	 * Functions of it whose own weights a GPU holds or loads at one time: the places that its engine has for adapters.
	 * For a further one, that of them leaves which was used longest ago and is idle; nobody leaves for what is loaded
	 * ahead of requests. 0: no limit
	 */
	uint32_t adapter_slots;
	uint32_t max_batch; /* requests of all its functions that run on a GPU at one time; 0: no limit */
	uint64_t
	    keep_alive_ns; /* when a function's keep_alive_ns ends, and none was called for so long, it leaves; 0: never */
};

enum medusa_sched_goal { MEDUSA_SCHED_GOAL_COMPLETION = 0, MEDUSA_SCHED_GOAL_FIRST_TOKEN = 1 };

struct medusa_sched_function {
	size_t size;            /* sizeof(struct medusa_sched_function) */
	uint32_t backbone;      /* from medusa_sched_add_backbone; MEDUSA_SCHED_NONE: no backbone */
	uint64_t weight_bytes;  /* the function's own weights, or the adapter's; on a GPU and in host memory */
	uint64_t context_bytes; /* CUDA context, kernels, graphs, workspaces; on each GPU that has the function */
	uint64_t library_bytes; /* process and libraries, in host memory */
	uint64_t residue_bytes; /* stays on the GPU after an eviction, until the context is offloaded; <= context */
	uint64_t kv_bytes;      /* KV cache of one sequence; a request may give its own value */
	uint64_t context_ns; /* to make the context on a GPU, libraries at hand: capture, or restore of an artifact */
	uint64_t cold_ns;    /* to bring library and weights into host memory, beyond bytes / cold_bytes_per_s */
	uint64_t evict_ns;   /* to take the weights off a GPU; 0: the host's copy is kept, memory is free at once */
	int in_host;         /* library and weights lie in host memory as long as the function is registered */
	uint64_t t0_ns;      /* T(b) = t0 + alpha (b - 1): time to the first token of a batch of b (xLoRA, eq. 3) */
	uint64_t alpha_ns;
	uint64_t token_ns;      /* for each further token */
	uint64_t swap_ns;       /* T(1) while its weights come from host memory, undisturbed; 0: computed */
	uint64_t swap_peer_ns;  /* ... from a peer GPU; 0: computed */
	uint64_t keep_alive_ns; /* without a call for so long, its own artifacts leave GPUs and host; 0: they stay */
	uint32_t max_batch;     /* 0: 1, or with `continuous`: unlimited */
	uint32_t max_parallel;  /* its batches at the same time, without those that are lost (TIMED_OUT); 0: 1 */
	uint64_t slo_ns;        /* from arrival; 0: none */
	enum medusa_sched_goal slo_goal;
	/*
	 * Part of the requests that must meet the objective, from 0 to 1; 0: 0.98. With 1, a function that has missed once does
	 * not reach its goal any more.
	 */
	double slo_percentile;
	int abortable; /* a request of it can be stopped while it runs, see MEDUSA_SCHED_ACTION_ABORT */
	/*
	 * Its engine batches by itself: requests join a batch that runs, up to max_batch at one time, whatever the batching
	 * policy says, see MEDUSA_SCHED_ACTION_JOIN. It has one batch on a GPU; max_parallel counts GPUs. After a time-out
	 * nothing of it starts on that GPU until the node has answered the MEDUSA_SCHED_ACTION_ABORT, or is asked again.
	 */
	int continuous;
	/*
	 * GPUs that may hold or load its own weights or context, or run it, at one time; 0: all. GPUs that drain or are lost
	 * do not count, nor does what a dead process has left behind (MEDUSA_SCHED_EVENT_FUNCTION_FAILED, _BACKBONE_FAILED),
	 * which serves nobody while it leaves. What lies on more GPUs already (MEDUSA_SCHED_EVENT_RESIDENT, or the limit was higher) stays there
	 * until it is evicted.
	 */
	uint32_t max_replicas;
	/*
	 * GPUs that hold all that the function needs there, ahead of requests: it is loaded as soon as the memory of enough
	 * GPUs, and host memory for its library, allow that, for which what is idle is evicted. From then on it stays as
	 * long as it is registered and the GPU does not drain.
	 * It counts as used meanwhile, its backbone and library included. At most max_replicas; more than the
	 * node has GPUs are as many as it has. 0: none
	 */
	uint32_t min_replicas;
	int pinned;          /* likewise it stays on each GPU to which requests or preloading have brought it */
	uint32_t leave_cost; /* what it costs that it leaves, see medusa_sched_set_company; 0: 1 */
};

int medusa_sched_add_backbone(struct medusa_sched *sched, const struct medusa_sched_backbone *backbone,
			      uint32_t *index);

/*
 * Changes how long a backbone takes, and its limits. `bytes` and `in_host` must be as before. What is beyond a lower
 * limit stays or runs on until it leaves or ends.
 */
int medusa_sched_change_backbone(struct medusa_sched *sched, uint32_t backbone,
				 const struct medusa_sched_backbone *changed);

/*
 * Registers a function. Indices count up from 0 and are not used again. MEDUSA_SCHED_ERR_INVALID: medusa_sched_error()
 * names the field and the reason; a function that does not even fit alone on any GPU is invalid, too.
 */
int medusa_sched_add_function(struct medusa_sched *sched, const struct medusa_sched_function *function,
			      uint32_t *index);

/*
 * Changes what a function promises and how long it takes: SLO, times, kv_bytes, limits, keep_alive_ns, abortable; for
 * requests that wait, too (kv_bytes: for those that have stated none). What runs keeps its KV memory and its time-out;
 * its deadline, and a cancel that has come before, are heeded from now on if the function has become abortable, and not
 * any more if it is not. What the books are kept in (backbone, bytes on GPUs and in host memory, in_host), and
 * `continuous`, must be as before. kv_bytes may be more than before only as far as the function fits on a GPU with its
 * limit of now. What follows from the change is answered by the next step.
 */
int medusa_sched_change_function(struct medusa_sched *sched, uint32_t function,
				 const struct medusa_sched_function *changed);

/* Functions that may be on the node's GPUs together with one that is loaded. */
struct medusa_sched_company {
	size_t size;               /* sizeof(struct medusa_sched_company) */
	const uint32_t *functions; /* they need not be there */
	uint32_t count;
};

/*
 * With whom a function may be loaded: before anything of it is loaded on a GPU, all functions leave all GPUs of the node that
 * are not in one of these companies, the one for which those that leave cost least (leave_cost); of equals, the first one.
 * What leaves is their own weights and contexts, at once where they are idle, and backbones all of whose functions leave. The function waits for runs of them to end, and
 * nothing that would have to leave is loaded before. What is there takes further requests for 5 s (or max_wait_ns / 16, if
 * that is less) after the function began to wait, or after it was loaded; then they wait, too. A request of a higher
 * priority of the same tenant waits for no further ones.
 * A rule is for one direction: what is loaded later does not have to leave by it, except by a rule of its own. Functions with
 * min_replicas or pinned stay, whatever a rule says. Nothing is loaded ahead of requests against a rule. Functions that are
 * added later are in no company. All is copied; what is given replaces what was given before. count 0: with any.
 */
int medusa_sched_set_company(struct medusa_sched *sched, uint32_t function,
			     const struct medusa_sched_company *companies, uint32_t count);

/* ---- tenants ---------------------------------------------------------------------------------------------------- */

/*
 * Whose requests these are. While several tenants wait, each gets its part of the GPUs' time by its weight, whatever the
 * queueing policy says, which orders the functions of one tenant. What one does not use, the others get at once; who asks
 * for nothing saves nothing up. docs/scheduler.md states the bounds. Tenant 0 exists always, with weight 1 and no limits.
 */
struct medusa_sched_tenant {
	size_t size;          /* sizeof(struct medusa_sched_tenant) */
	double weight;        /* 0.000001 to 1000000; 0: 1 */
	uint32_t max_waiting; /* requests that wait; more are refused (MEDUSA_SCHED_REASON_QUOTA). 0: no limit */
	/*
	 * Requests that run at one time. Only so many are in queues and batches together; the others are held back, by
	 * priority and arrival. They count as waiting for the tenant, and not for their function. 0: no limit.
	 */
	uint32_t max_running;
	int starts_none; /* not 0: as if max_running could be none: all that do not run are held back */
	int takes_none;  /* not 0: as if max_waiting could be none: all that come are refused */
};

/* Indices count up from 1. A tenant stays. */
int medusa_sched_add_tenant(struct medusa_sched *sched, const struct medusa_sched_tenant *tenant, uint32_t *index);

/*
 * All fields are as in `changed` from now on; tenant 0 can change, too. max_waiting refuses only what arrives later. Of what is
 * in queues beyond a lower max_running, the youngest is held back; what runs goes on. The next step answers what follows.
 */
int medusa_sched_change_tenant(struct medusa_sched *sched, uint32_t tenant, const struct medusa_sched_tenant *changed);

/* ---- events ----------------------------------------------------------------------------------------------------- */

/* Of artifacts. */
enum medusa_sched_class {
	MEDUSA_SCHED_CLASS_BACKBONE, /* of `backbone` */
	MEDUSA_SCHED_CLASS_WEIGHTS,  /* of `function`, and the three below */
	MEDUSA_SCHED_CLASS_CONTEXT,
	MEDUSA_SCHED_CLASS_LIBRARY
};

enum medusa_sched_event_type {
	MEDUSA_SCHED_EVENT_ARRIVAL =
	    1, /* request, function, kv_bytes (0: the function's; KV_CHANGED can say none), tokens (expected; 0: unknown),
		  deadline, priority, tenant, load */
	MEDUSA_SCHED_EVENT_CANCEL,      /* request: its client is gone. Waiting: it ends; running: it is aborted if its
				      function is abortable, or else runs to its end */
	MEDUSA_SCHED_EVENT_STARTED,     /* batch: its computation began (optional; the first report counts) */
	MEDUSA_SCHED_EVENT_FIRST_TOKEN, /* request; batch, if it may be of an earlier try that failed */
	MEDUSA_SCHED_EVENT_DONE,        /* likewise; with its last request the batch ends */
	MEDUSA_SCHED_EVENT_BATCH_FAILED, /* batch: its unfinished requests are queued again, or refused after `retries` */
	MEDUSA_SCHED_EVENT_TRANSFER_DONE,   /* transfer: a swap-in or preload */
	MEDUSA_SCHED_EVENT_TRANSFER_FAILED, /* transfer: its artifact is not there; batches that waited for it fail. Of an
					 eviction: it is still there */
	MEDUSA_SCHED_EVENT_EVICTED,         /* transfer: an eviction or offload that takes time has ended */
	MEDUSA_SCHED_EVENT_MEMORY_REPORT,   /* gpu, bytes in use as the driver says, as_of: when it was measured */
	MEDUSA_SCHED_EVENT_MEMORY_LIMIT,    /* gpu, bytes: memory_bytes from now on */
	/*
	 * gpu: everything on it is gone. Its batches fail, see `retries`; the node drops them, and copies to it, without a
	 * report. Copies from it to other GPUs are ended by MEDUSA_SCHED_ACTION_ABORT.
	 */
	MEDUSA_SCHED_EVENT_GPU_LOST,
	MEDUSA_SCHED_EVENT_GPU_BACK, /* gpu, empty */
	/*
	 * gpu, backbone: its owner died. Batches there that use it fail, and the node drops them without a report; another
	 * copy serves (xLoRA 4.4). Copies of it to and from there are ended by MEDUSA_SCHED_ACTION_ABORT. What is left of it
	 * there is used by nobody, and leaves by MEDUSA_SCHED_ACTION_OFFLOAD when copies under way no longer need it, and
	 * with it the weights and contexts of its functions there; an eviction under way goes on.
	 */
	MEDUSA_SCHED_EVENT_BACKBONE_FAILED,
	MEDUSA_SCHED_EVENT_FUNCTION_GONE, /* function: unregistered; waiting requests are refused, running ones end */
	MEDUSA_SCHED_EVENT_TIMER,         /* the requested time has come; the event is allowed at any other time, too */
	/* gpu, function: its process there died. The same, of its own weights and context; they are loaded anew there. */
	MEDUSA_SCHED_EVENT_FUNCTION_FAILED,
	/*
	 * request, batch if it may be of an earlier try; kv_bytes: what the request holds from now on, or, if it waits, will
	 * need. When KV caches outgrow a GPU, what is idle there is evicted; if that is not enough, nothing starts there,
	 * and the youngest requests of abortable functions are aborted (NO_ROOM) until the others fit. What cannot be
	 * aborted runs on: over_bytes of medusa_sched_gpu_get() is what is lacking.
	 */
	MEDUSA_SCHED_EVENT_KV_CHANGED,
	/* gpu: nothing new starts there, what runs ends, what is idle leaves. MEDUSA_SCHED_EVENT_GPU_BACK ends it. */
	MEDUSA_SCHED_EVENT_GPU_DRAIN,
	/*
	 * artifact, function or backbone, gpu (MEDUSA_SCHED_NONE: host memory): it lies there already, for a node loop that
	 * was restarted. bytes, of a context: 0, or its residue_bytes if only those are there. What is of no use or has no
	 * place is sent away by MEDUSA_SCHED_ACTION_OFFLOAD; what is known already, or on a lost GPU, is ignored. For 1 s
	 * after it, and after MEDUSA_SCHED_EVENT_RUNNING, nothing is loaded ahead of requests: it may be there already.
	 */
	MEDUSA_SCHED_EVENT_RESIDENT,
	/*
	 * request, function, gpu, kv_bytes, tokens, deadline, priority, tenant as of an arrival: it runs there already. Its function
	 * must be RESIDENT, and a slot free; requests of one function on one GPU are one batch. The answer is a
	 * MEDUSA_SCHED_ACTION_RUN of that request, which says its batch; there is nothing to start. Latencies count from now.
	 */
	MEDUSA_SCHED_EVENT_RUNNING,
	/*
	 * artifact (weights or a backbone), function or backbone, gpu, share (the caller's number of this memory), bytes: so much of
	 * the artifact is memory that exists once for all artifacts on this GPU of which the same was said. It counts once from now
	 * on, or, of what is on its way there, from its arrival on. It must be so before it is said. bytes 0: it is not so any
	 * more; the node says so, and waits until over_bytes of medusa_sched_gpu_get() is 0, before the artifact has memory of its own
	 * in the place of this. What leaves its GPU, or is lost with it, shares nothing from that event on, without being told.
	 */
	MEDUSA_SCHED_EVENT_SHARED
};

struct medusa_sched_event {
	size_t size; /* sizeof(struct medusa_sched_event) */
	enum medusa_sched_event_type type;
	uint64_t now;     /* ns; never less than in the call before */
	uint64_t request; /* the caller's number, unique among requests that have not ended */
	uint32_t function;
	uint32_t backbone;
	uint32_t gpu;
	uint64_t batch;    /* from a run action */
	uint64_t transfer; /* from a swap-in, preload, evict or offload action */
	uint64_t kv_bytes;
	uint64_t
	    tokens; /* expected: they say how long it runs, for an objective of completion, a deadline, a time-out */
	uint64_t bytes;
	uint64_t as_of; /* ns */
	/*
	 * ns, by the caller's clock; 0: none. A request that waits then is refused, and one that runs is aborted if its
	 * function is abortable.
	 */
	uint64_t deadline;
	/*
	 * Of two requests of one tenant, that of the higher priority starts first, whatever the queueing policy says; the
	 * policy orders equals. A request that has waited for 30 s (or max_wait_ns / 4, if that is less) has the highest one.
	 */
	int32_t priority;
	enum medusa_sched_class artifact; /* of MEDUSA_SCHED_EVENT_RESIDENT, _SHARED */
	uint32_t tenant; /* of an arrival, or of what runs already: from medusa_sched_add_tenant; 0: the default one */
	/*
	 * Of an arrival; not 0: nothing is computed, the function is to be loaded, and MEDUSA_SCHED_EVENT_DONE says that it is.
	 * How long that takes counts in no latency, for no objective, and not as time of service.
	 */
	uint32_t load;
	uint64_t share; /* of MEDUSA_SCHED_EVENT_SHARED */
};

/* ---- actions ---------------------------------------------------------------------------------------------------- */

enum medusa_sched_action_type {
	MEDUSA_SCHED_ACTION_RUN = 1, /* batch, function, gpu, requests, transfers that it waits for */
	MEDUSA_SCHED_ACTION_SWAP_IN, /* transfer, artifact, gpu, source: a batch waits for it */
	MEDUSA_SCHED_ACTION_PRELOAD, /* the same, ahead of requests; gpu MEDUSA_SCHED_NONE: into host memory */
	MEDUSA_SCHED_ACTION_EVICT,   /* artifact, gpu: the residue stays. transfer 0: at once, before the next action */
	MEDUSA_SCHED_ACTION_OFFLOAD, /* artifact, gpu or host (MEDUSA_SCHED_NONE): nothing stays. transfer likewise */
	MEDUSA_SCHED_ACTION_REJECT,  /* request, reason: the request ends */
	MEDUSA_SCHED_ACTION_SET_TIMER, /* at: send MEDUSA_SCHED_EVENT_TIMER then; replaces the previous timer */
	/*
	 * Stop a request that runs (request, batch, gpu, function, reason), or a transfer (transfer, and what an action
	 * that begins one names; request_count and batch are 0).
	 *
	 * Of a request, the answer is MEDUSA_SCHED_EVENT_DONE with its batch when it has stopped, or has ended by itself
	 * meanwhile: it counts as cancelled. Reasons: CANCELLED, DEADLINE and NO_ROOM, of abortable functions only, and TIMED_OUT.
	 * That one comes for any function, when no end was reported in time, or none within 30 s of an abort. The request
	 * has then been queued again (`retries`) or rejected already. As nobody knows whether it still computes, its
	 * memory and its slot stay reserved until the node has made sure that it does not, if need be by ending the engine,
	 * and answers so, or with MEDUSA_SCHED_EVENT_BATCH_FAILED. It is asked again after each further time-out.
	 *
	 * Of a transfer, the answer is the event of its end: done after all, or failed, when it has been stopped. Nothing new
	 * counts on it, and its bytes stay reserved, until the answer: nothing else is sent into that place before.
	 * TIMED_OUT: its end was not reported in time. Runs that waited for it are lost as above.
	 * FAILED: where it reads from, or the process that it is for, was reported as failed. If what it brings is there
	 * whole, it is done, and is used; otherwise it has failed. Runs that wait for it go on waiting for that answer.
	 */
	MEDUSA_SCHED_ACTION_ABORT,
	/*
	 * batch, function, gpu, requests: further requests for a batch that runs, of a `continuous` function whose artifacts
	 * are all there. They get first tokens and ends as those of its run do, and run and abort times count from now; the
	 * batch ends with the last of its requests, and MEDUSA_SCHED_EVENT_BATCH_FAILED fails all of them.
	 *
	 * A batch takes nobody while something of it is on its way, drains or is missing, after a time-out until the answer
	 * to its MEDUSA_SCHED_ACTION_ABORT, while its GPU drains, and when another function has waited for memory or a slot
	 * of that GPU for 5 s (or max_wait_ns / 16, if that is less): then it runs out, and that function has its turn.
	 */
	MEDUSA_SCHED_ACTION_JOIN
};

enum medusa_sched_source {
	MEDUSA_SCHED_SOURCE_HOST = 1,
	MEDUSA_SCHED_SOURCE_PEER, /* `peer` holds a copy, which stays until the transfer ends */
	MEDUSA_SCHED_SOURCE_COLD, /* not even in host memory */
	MEDUSA_SCHED_SOURCE_MADE  /* contexts: made in place */
};

enum medusa_sched_reason {
	MEDUSA_SCHED_REASON_NEVER_FITS = 1, /* more memory than any GPU has left for it */
	MEDUSA_SCHED_REASON_QUEUE_FULL,
	MEDUSA_SCHED_REASON_WAITED_TOO_LONG,
	MEDUSA_SCHED_REASON_UNREGISTERED, /* no such function, or not any more */
	MEDUSA_SCHED_REASON_FAILED,       /* its batches failed, `retries` times over */
	MEDUSA_SCHED_REASON_CANCELLED,    /* the answer to MEDUSA_SCHED_EVENT_CANCEL of a request that waited */
	MEDUSA_SCHED_REASON_LOAD_FAILED,  /* a transfer that it needed failed, `retries` times over */
	MEDUSA_SCHED_REASON_DEADLINE,     /* its deadline has passed */
	MEDUSA_SCHED_REASON_TIMED_OUT,    /* no end of its run was reported, `retries` times over */
	MEDUSA_SCHED_REASON_NO_ROOM,      /* KV caches have outgrown its GPU, and it was the youngest there */
	MEDUSA_SCHED_REASON_QUOTA         /* max_waiting of its tenant */
};

struct medusa_sched_action {
	size_t size; /* of the library's struct medusa_sched_action: a newer caller's further fields are not there */
	enum medusa_sched_action_type type;
	enum medusa_sched_class artifact;
	enum medusa_sched_source source;
	enum medusa_sched_reason reason;
	uint32_t function;
	uint32_t backbone;
	uint32_t gpu;
	uint32_t peer;
	uint64_t batch;
	uint64_t transfer;
	uint64_t bytes; /* bytes that become used, or free */
	uint64_t request;
	const uint64_t *requests; /* of a run or join; valid until the next call */
	uint32_t request_count;
	uint64_t at;
	/*
	 * Of a run: all transfers under way that bring what it needs, begun by it or before it; valid until the next
	 * call. It can compute alone when these have ended; a pipelined engine begins earlier. If one of them fails,
	 * the run has failed, and the node drops it without a report.
	 */
	const uint64_t *transfers;
	uint32_t transfer_count;
	/*
	 * Of a swap-in or preload: 1 if its artifact lies in host memory when the transfer is done, until an OFFLOAD from
	 * there; its bytes are reserved there from now on. 0: no copy of what it reads stays in host memory that was not
	 * there before. If the transfer fails, or its GPU is lost meanwhile, neither place has it.
	 */
	int to_host;
};

/*
 * Takes one event and returns the actions that follow: (*actions)[0] to [*count - 1], valid until the next call. An
 * event about something that has ended meanwhile (a transfer of a lost GPU, for example) is ignored, and so is one about a
 * request that is not known. MEDUSA_SCHED_ERR_INVALID: the event names a GPU, backbone, function, batch or transfer that
 * never existed, a MEDUSA_SCHED_EVENT_ARRIVAL has a number that is in use, or time goes back; then nothing has changed.
 */
int medusa_sched_step(struct medusa_sched *sched, const struct medusa_sched_event *event,
		      const struct medusa_sched_action *const **actions, size_t *count);

/* Times since a request arrived. A request that runs again after a failure waits once. */
enum medusa_sched_latency {
	MEDUSA_SCHED_LATENCY_WAITING,     /* until its first run began */
	MEDUSA_SCHED_LATENCY_FIRST_TOKEN, /* or its end, if no first token was reported */
	MEDUSA_SCHED_LATENCY_COMPLETION   /* of requests that were served */
};

/*
 * A word for logs, one function for each enum: "run", "never fits" ... Never NULL; "unknown ..." for a value that this
 * library does not know.
 */
const char *medusa_sched_action_name(enum medusa_sched_action_type type);
const char *medusa_sched_class_name(enum medusa_sched_class artifact);
const char *medusa_sched_event_name(enum medusa_sched_event_type type);
const char *medusa_sched_goal_name(enum medusa_sched_goal goal);
const char *medusa_sched_kind_name(enum medusa_sched_kind kind);
const char *medusa_sched_latency_name(enum medusa_sched_latency latency);
const char *medusa_sched_reason_name(enum medusa_sched_reason reason);
const char *medusa_sched_result_name(enum medusa_sched_result result);
const char *medusa_sched_source_name(enum medusa_sched_source source);

/* ---- the scheduler's state -------------------------------------------------------------------------------------- */

struct medusa_sched_gpu_state {
	size_t size;             /* sizeof(struct medusa_sched_gpu_state), set by the caller */
	int present;             /* not lost */
	uint64_t limit_bytes;    /* memory_bytes, or the last MEDUSA_SCHED_EVENT_MEMORY_LIMIT */
	uint64_t artifact_bytes; /* artifacts that are there, on their way in, or on their way out */
	uint64_t residue_bytes;
	uint64_t kv_bytes;      /* of running batches */
	uint64_t foreign_bytes; /* used by other processes, as the last report that counted says */
	uint32_t running;       /* batches */
	uint32_t transfers;     /* on their way here */
	uint32_t waiting;       /* reservations that wait for memory and hold none yet */
	int draining;        /* since MEDUSA_SCHED_EVENT_GPU_DRAIN; it is empty when running and artifact_bytes are 0 */
	uint64_t over_bytes; /* used beyond what there is: KV caches have grown, or others have taken memory */
	/*
	 * What artifact_bytes counts more than once, although it is there once (MEDUSA_SCHED_EVENT_SHARED): so much more is free
	 */
	uint64_t shared_bytes;
};

struct medusa_sched_host_state {
	size_t size;             /* sizeof(struct medusa_sched_host_state), set by the caller */
	uint64_t limit_bytes;    /* host_bytes of the node; 0: unlimited */
	uint64_t artifact_bytes; /* artifacts that are in host memory, or on their way in, those that stay included */
	uint32_t transfers;      /* on their way in, from which something stays: those with `to_host` */
};

struct medusa_sched_function_state {
	size_t size;               /* sizeof(struct medusa_sched_function_state), set by the caller */
	uint32_t waiting, running; /* requests */
	uint64_t ended, met;       /* requests that were served, and those of them that met the SLO */
	uint64_t rejected;
	double rate_per_s; /* predicted */
};

struct medusa_sched_tenant_state {
	size_t size;               /* sizeof(struct medusa_sched_tenant_state), set by the caller */
	uint32_t waiting, running; /* requests */
	uint64_t served, rejected;
	/*
	 * The time for which its requests that have ended held a slot of a GPU, loading included. The time of a batch is
	 * divided among the requests that are in it.
	 */
	uint64_t gpu_ns;
	uint32_t held; /* of those that wait: max_running or starts_none holds them back */
};

struct medusa_sched_stats {
	size_t size; /* sizeof(struct medusa_sched_stats), set by the caller */
	uint64_t arrivals, served, rejected, cancelled, retried;
	uint64_t runs, swaps_host, swaps_peer, swaps_cold, preloads, evictions, offloads;
	uint64_t bytes_host, bytes_peer, bytes_cold;
	uint64_t reports_ignored;
	uint64_t memory_bytes; /* of the scheduler itself */
	uint64_t aborts;       /* asked for */
	uint64_t timeouts;     /* of runs and of transfers into memory */
	uint64_t joins;        /* requests that joined a batch that ran */
};

#define MEDUSA_SCHED_BUCKETS 52

struct medusa_sched_histogram {
	size_t size;                            /* sizeof(struct medusa_sched_histogram), set by the caller */
	uint64_t count;                         /* requests */
	uint64_t total_ns;                      /* of all of them */
	uint64_t buckets[MEDUSA_SCHED_BUCKETS]; /* requests by their latency, see medusa_sched_bucket_ns */
};

/* Latencies since the scheduler was created, of a function or (MEDUSA_SCHED_NONE) of all, also of unregistered ones. */
int medusa_sched_latency_get(const struct medusa_sched *sched, uint32_t function, enum medusa_sched_latency which,
			     struct medusa_sched_histogram *histogram);

/*
 * A bucket counts latencies up to this bound, in ns, and above that of the bucket before it. The bounds are 0.1, 0.15,
 * 0.2, 0.3, 0.4, 0.6, 0.8 ms ... to 3355 s: they double with every second one, so a percentile is known to a half. The last
 * bucket (and what is beyond it) has no bound: UINT64_MAX.
 */
uint64_t medusa_sched_bucket_ns(uint32_t bucket);

int medusa_sched_gpu_get(const struct medusa_sched *sched, uint32_t gpu, struct medusa_sched_gpu_state *state);
int medusa_sched_host_get(const struct medusa_sched *sched, struct medusa_sched_host_state *state);
int medusa_sched_function_get(const struct medusa_sched *sched, uint32_t function,
			      struct medusa_sched_function_state *state);
int medusa_sched_tenant_get(const struct medusa_sched *sched, uint32_t tenant, struct medusa_sched_tenant_state *state);
int medusa_sched_stats_get(const struct medusa_sched *sched, struct medusa_sched_stats *stats);

/*
 * Counts everything anew and compares the counts with the scheduler's books: no GPU was given more memory than it had
 * free, every request is in one place, every pin has its batch. Returns 0, or MEDUSA_SCHED_ERR_INVALID and the first
 * difference. For tests; the time is in proportion to GPUs, functions, artifacts and requests.
 */
int medusa_sched_audit(struct medusa_sched *sched);

#ifdef __cplusplus
}
#endif

#endif
