/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the daemon: one loop, its models with their engines, and the requests that have not ended. */
#ifndef MD_WORKER_CORE_WORKER_H
#define MD_WORKER_CORE_WORKER_H

#include <event2/event.h>

#include "base/map.h"
#include "medusa/scheduler.h"
#include "worker/accounting/usage.h"
#include "worker/accounting/usage_scan.h"
#include "worker/cluster/cluster.h"
#include "worker/config/config.h"
#include "worker/core/adapter.h"
#include "worker/core/engine_log.h"
#include "worker/core/gpus.h"
#include "worker/core/learned.h"
#include "worker/core/engine_url.h"
#include "worker/core/metrics.h"
#include "worker/core/model_keep.h"
#include "worker/core/peer.h"
#include "worker/core/host_pool.h"
#include "worker/core/crowd.h"
#include "worker/core/relay.h"
#include "worker/core/tenants.h"
#include "worker/engine/engine.h"
#include "http/call.h"
#include "http/front.h"

enum md_model_histogram {
	MD_MODEL_FIRST_BYTE, /* from a request to the first byte of its answer */
	MD_MODEL_LOADS,      /* starts and swaps */
	/* of requests that were served: */
	MD_MODEL_QUEUED,          /* until the engine that served it was given it */
	MD_MODEL_QUEUED_FOR_LOAD, /* of it, the time of loads; of requests that waited for one alone */
	MD_MODEL_INFERENCE,       /* from then to the end of its answer */
	MD_MODEL_REQUESTS,        /* both */
	MD_MODEL_HISTOGRAMS,
};

/*
 * Who owns what
 *   worker     the loop, the scheduler, models and requests; all of it is used by one thread
 *   model      an engine and its function in the scheduler; or an adapter, whose engine is that of its base
 *   job        a request of a client (exchange), numbered; WAITING until the scheduler runs it, GRANTED until its
 *              engine is ready, RUNNING while the engine answers (call)
 * The scheduler decides: what happens goes to it as events, in a queue, so that no step begins within another one; what
 * it answers is carried out, and what that starts is an event when it ends.
 */

enum md_job_stage { MD_JOB_WAITING, MD_JOB_GRANTED, MD_JOB_RUNNING };

struct md_worker_job {
	struct md_model *model;
	uint64_t id, batch;
	uint32_t gpu; /* GRANTED, RUNNING: on which it runs */
	enum md_job_stage stage;
	struct md_relay relay; /* to the client */
	struct md_http_call *call;
	struct md_worker_job *next; /* of the model's list of granted ones */
	char *target;               /* as the engine gets it */
	char *body;                 /* NULL: the exchange's */
	size_t body_size;
	struct event *broken; /* set when the connection to the engine has ended: whether it lives is not known yet */
	unsigned broken_ms;   /* the last wait for the engine's end; 0: the connection did not break */
	char why[320];        /* it broke */
	bool until_close;     /* the end of that connection is that of the answer */
	bool all_came;        /* it has ended so, and if the engine lives on, the answer is whole */
	struct event *unseen; /* of an answer that is not streamed: when its first token is assumed; NULL: at its end */
	struct event *loading; /* says now and then that its model is being loaded; NULL: nothing is said */
	bool left;             /* its client, and is counted so */
	bool failed;           /* the same of its engine */
	bool doubted;          /* its engine does not know its adapter, as it seems: it is asked, and then once more */
	bool asked_twice;      /* that was so, and its engine has it */
	bool load;             /* nobody's request: it ends as soon as the engine is ready */
	void (*loaded)(void *context, const char *why); /* of such a one; NULL: nobody waits for it */
	void *waiter;
	bool parked;                        /* it waits for its model's files, and the scheduler does not know of it */
	bool dismissed;                     /* the daemon takes no more work, and this has not begun */
	enum medusa_sched_reason gives_up;  /* a limit of its model, of which the scheduler knows nothing; 0: none */
	struct event *impatient;            /* at the end of max_wait; NULL: there is none */
	struct md_adapter_foreign *foreign; /* the adapter that it uses under /upstream/NAME/; NULL: none is known */
	uint32_t tries;                     /* how often its engine has died before it sent a byte */
	bool first_token;
	bool refused;                    /* what the engine answers does not go on with the head that is ours: why */
	uint64_t arrived, granted, sent; /* md_clock_ns() */
	uint64_t load_ns;                /* before `sent`: for which its model, or its adapter, was being loaded */
	uint64_t first_at;               /* the first byte of its answer came; 0: not yet */
	uint64_t bytes;                  /* of the answer */
	char key[MD_USAGE_KEY_BYTES];    /* who pays */
	uint32_t tenant;                 /* of the scheduler */
	struct md_usage usage;
	struct md_usage_scan scan;
	struct md_prefix_request *prefix; /* its prompt, for worker/cluster/prefixes.h; NULL: none */
	bool in_engine;                   /* and shares its time since then: */
	uint64_t share_began;
};

struct md_model {
	struct md_worker *worker;
	const struct md_worker_config *made_from; /* what its engine was made from */
	const struct md_worker_config *from;      /* what it is served by: config and id are in there */
	const struct md_config_model *config;
	const char *id;
	char host_name[256], prefix[256]; /* of the engine's URL */
	char swap_name[49];               /* medusa-swap takes 48 characters */
	char **argv;                      /* of the engine, as it is started */
	const char **environment;
	const char **fork_environment; /* NULL: no template forks it */
	char *artifact;                /* MEDUSA_ARTIFACT=..., of engines that are forked; NULL: none */
	char visible[128];             /* CUDA_VISIBLE_DEVICES=... */
	pid_t recorded;                /* there is a record of this process; 0: none */
	bool adopting;                 /* an earlier daemon has started its engine, which is being checked */
	bool adopts_memory;            /* and the scheduler was told that its memory is on the GPU */
	char mark[80];                 /* MEDUSA_WORKER_ENGINE=..., of its engine alone */
	struct md_engine *engine;      /* of an adapter: that of its base */
	struct md_model *base;         /* NULL: it is no adapter */
	struct md_adapter adapter;
	struct md_adapter_host host;
	uint32_t backbone; /* of the scheduler, which its engine is; MEDUSA_SCHED_NONE: its engine takes no adapters */
	struct medusa_sched_backbone told_backbone;
	uint32_t
	    shared_backbone; /* of the scheduler: its weights, which engines of other models have, too; MEDUSA_SCHED_NONE: it
				     has none of these */
	struct md_engine_settings settings;
	struct md_log_file *log;
	uint32_t function;                /* of the scheduler */
	uint32_t gpu;                     /* where its engine is, or was last: that of its process */
	uint32_t concurrency, unfinished; /* requests: at most, and that have not ended */
	unsigned connect_s, answer_s;     /* see md_http_call_send */
	uint64_t weight_bytes;            /* as the scheduler knows them, or as those of its backbone */
	bool coming;     /* a reload has made it, and the one that it replaces is not told yet: it loads nothing */
	bool retired;    /* the configuration does not have it any more: what it has may end */
	bool gone;       /* the scheduler knows that */
	bool placed;     /* the cluster's leader wants it kept on this node's GPUs */
	bool unwanted;   /* a user has unloaded it: it stays so until somebody asks for it */
	bool pretended;  /* the scheduler believes that it is loaded: a request starts it */
	bool load_waits; /* for the engine of an earlier configuration to end */
	struct md_model *successor;         /* of a retired one: has its ID and new requests; NULL: nobody */
	uint64_t transfer_in, transfer_out; /* 0: none is under way */
	bool moves;                         /* to next_gpu, when its engine has ended where it is */
	uint32_t next_gpu;
	uint64_t next_transfer;        /* into there */
	bool out_whole;                /* transfer_out wants the process to end */
	struct md_worker_job *granted; /* in the order in which they were granted */
	uint64_t unload_at;            /* when it is stopped although requests run; 0: it is not to be unloaded */
	uint64_t last_end;             /* of a request; ns */
	uint32_t sharing;              /* jobs in the engine */
	uint64_t shared_ns, shared_at; /* the time that each of them would have had, up to then; ns */
	/* counted */
	struct md_usage usage;
	uint64_t starts, failures;
	uint32_t lives; /* engines that it has had: starts that were no swap-ins */
	struct md_metrics_requests requests;
	struct md_metrics_histogram histograms[MD_MODEL_HISTOGRAMS];
	uint64_t load_began, leave_began;
	double load_crowd; /* md_crowd_begin of what began then */
	struct {
		uint64_t began, ended;
	} last_load;     /* of its engine, or of the adapter that it is; md_clock_ns() */
	bool fails;      /* its engine has just failed, and was not told to end */
	bool hopeless;   /* its last start took all the time it may: requests don't wait for another one */
	bool load_swaps; /* what began then is a swap-in */
	struct md_learned learned;
	struct md_model_keep keep;
	struct medusa_sched_function told; /* as the scheduler knows it */
	bool relearned;                    /* it is in the worker's list of those whose times are to be told */
	struct md_model *next_relearned;
	char last_failure[256];
};

/* The model that has the engine. */
static inline struct md_model *md_model_with_engine(struct md_model *model)
{
	return model->base ? model->base : model;
}

/* Priorities of events in the loop; what says nothing else has the one in the middle. */
#define MD_WORKER_PRIORITIES 3
#define MD_WORKER_FIRST                                                                                                \
	0 /* when the daemon has hung, its timers come before what has arrived or can be sent meanwhile */
/* For one kind of work; the rest of it is left to a later turn of the loop. */
#define MD_WORKER_TURN_NS UINT64_C(2000000)
#define MD_WORKER_MODELS_MAX 20000u /* in the life of the daemon: a model whose command changes counts anew */
#define MD_WORKER_GPU_BYTES (UINT64_C(1) << 40) /* of a GPU whose memory nobody has stated */

struct md_worker {
	const struct md_worker_config *config;
	struct event_base *base;
	struct md_http_front *front;
	struct md_engine_processes *processes;
	const char *directory; /* for what engines print */
	struct md_log_writer *log_writer;
	struct md_model *models;     /* by the scheduler's numbers; those without an engine have ended */
	size_t model_count;          /* with those that have ended */
	struct md_model **current;   /* by their indexes in config */
	struct md_model **backbones; /* by the scheduler's numbers; NULL: it is no engine */
	size_t backbone_count, backbone_room;
	struct md_shared_backbone *shared; /* those of them that are weights which engines have in common */
	size_t shared_count, shared_room;
	struct md_shared_leaving *leaving;
	size_t leaving_count, leaving_room;
	char *swap_command, *restore_command;
	struct md_worker_pool pool;
	struct md_gpus *gpus;
	int64_t began;     /* seconds since 1970 */
	uint64_t began_ns; /* md_clock_ns(), which goes on where the clock of the day jumps */
	unsigned port;     /* of HTTP; 0: a Unix socket */
	uint64_t refused;  /* requests of which the body was not wanted */
	struct medusa_sched *sched;
	struct md_tenant_entry *tenants; /* all that there were since the daemon began */
	uint32_t tenant_count, tenant_room;
	struct md_metrics_requests untenanted; /* of no tenant */
	double untenanted_weight;              /* that the scheduler was told of them; 0: none */
	struct md_unload *unloads;             /* who waits for models to stop */
	struct md_map jobs;                    /* by number; pointers */
	uint64_t next_job;                     /* the last number that was given */
	struct medusa_sched_event *queue;
	size_t queued, queue_capacity;
	bool step_waits; /* the scheduler had no memory for the first one in the queue */
	bool step_rests; /* the loop looks at its connections before the next one */
	struct event *step, *timer;
	uint64_t timer_at;          /* md_clock_ns() */
	struct md_model *relearned; /* see md_learned_tell */
	struct md_crowd crowd;
	struct event *look;      /* at retired models, in this turn of the loop */
	struct event *look_on;   /* the rest of them, in the next one */
	struct md_model *looked; /* the last one that was looked at; NULL: none, or all were */
	bool look_again;         /* from the first one on, when all were */
	struct md_reload *reload;
	struct md_peers *peers;   /* of the configuration */
	struct md_passed *passed; /* requests that were passed on to peers, of earlier configurations, too */
	size_t passed_count;
	struct md_cluster *cluster;   /* NULL: the node is alone */
	struct md_contents *contents; /* files of models that travel; NULL: none do */
	uint32_t parked;              /* jobs that wait for those, of which the scheduler knows nothing yet */
	const char *profile;          /* the one that is active, of the configuration; NULL: none */
	char node_name[40];           /* by which this daemon finds itself again in Via */
	struct md_pages *pages;
	struct md_performance *performance;
	struct md_notify *notify; /* the service manager */
	struct md_ledger *ledger; /* NULL: nothing is written */
	struct md_templates *templates;
	struct md_node_broker *broker;    /* of backbones that engines share */
	struct md_sharers *sharers;       /* what of engines is one; NULL: there is no broker */
	struct md_gpu_memory *gpu_memory; /* NULL: it is not measured */
	struct md_adopt *adopt;           /* NULL: engines are neither adopted nor left to the next daemon */
	struct md_drain *drain;           /* of new requests, and at last of the daemon */
	bool ending;                      /* engines are told to end, and none is started */
	bool passes_keys;                 /* the clients' keys are for the engines: the worker itself wants none */
};

/* ---- decisions.c: the scheduler ---- */

enum md_status md_decisions_begin(struct md_worker *worker, struct md_error *err);
void md_decisions_end(struct md_worker *worker);
/*
 * The event happens: the scheduler is told in this turn of the loop, after the caller has returned, or, if there are many, in one
 * of the next ones. `now` is set then.
 */
void md_decisions_post(struct md_worker *worker, struct medusa_sched_event event);

/* ---- job.c ---- */

/* A client's request for this model; target and body (NULL: the exchange's) are taken over. */
void md_job_take(struct md_model *model, struct md_http_exchange *exchange, char *target, char *body, size_t size,
		 bool stream);
/*
 * Loads the model as a request would. `done` is called later, outside of this call: with NULL when its engine is ready,
 * else with the reason. NULL: out of memory, `done` is not called.
 */
struct md_worker_job *md_job_load(struct md_model *model, void (*done)(void *context, const char *why), void *context);
void md_jobs_unpark(struct md_worker *worker);                              /* files of models have come, or will not */
void md_job_forget(void *job);                                              /* `done` is not called; loading goes on */
void md_job_grant(struct md_worker_job *job, uint64_t batch, uint32_t gpu); /* the scheduler runs it */
/*
 * The scheduler has learned that the model's engine there has failed, and with it each batch that waited for it: what is
 * granted waits again. That may have been granted since the engine was seen to fail, and goes to no engine before it is
 * granted anew.
 */
void md_job_take_back(struct md_model *model, uint32_t gpu);
/* Ends a job that has not begun to run: its client is told that the daemon takes no more work. */
void md_job_dismiss(struct md_worker_job *job);
void md_job_cut(struct md_worker_job *job); /* the same of one that runs, too */
/* Ends a job that runs, or is about to: this node has lost its tenant's share of the cluster's quota. */
void md_job_lose_share(struct md_worker_job *job);
void md_job_refuse(struct md_worker_job *job, enum medusa_sched_reason reason);
void md_job_abort(struct md_worker_job *job, enum medusa_sched_reason reason); /* it runs, and is broken off */
struct md_worker_job **md_job_list(const struct md_worker *worker,
				   size_t *count); /* of all; the caller frees the list */
void md_job_end_all(struct md_worker *worker);     /* the daemon ends: they are freed, and nobody is told */
void md_job_forward(struct md_worker_job *job);    /* its engine is ready */
/*
 * The engine of `by`, or the adapter that it is, has failed. True: nothing was sent, and it waits for what the scheduler makes of its
 * batch; false: it has ended, and the scheduler will learn of that.
 */
bool md_job_return(struct md_worker_job *job, const struct md_model *by);
void md_job_doubts_end(
    struct md_model *model); /* it is known which adapters its engine has: doubted jobs are sent again */

/* ---- model_list.c ---- */

enum md_status md_models_create(struct md_worker *worker, struct md_error *err);
void md_models_destroy(struct md_worker *worker);
/* The path of a command of ours: beside this one, or as it is found by its name. The caller frees it; NULL: out of memory. */
char *md_models_find_command(const char *name);
/* The one after it (NULL: the first) of all that have not ended, adapters and retired ones included; NULL: none. */
struct md_model *md_models_each(const struct md_worker *worker, const struct md_model *model);
/* The same of those with an engine of their own. */
struct md_model *md_models_next(const struct md_worker *worker, const struct md_model *model);
/*
 * Adds the model of this index; base: of an adapter; coming: see md_model. On failure the last one of worker->models may be half
 * made.
 */
enum md_status md_models_add(struct md_worker *worker, const struct md_worker_config *config, uint32_t index,
			     const struct md_engine_url *url, struct md_model *base, bool coming,
			     struct md_model **added, struct md_error *err);
void md_models_free(struct md_model *model); /* it has ended */
/* Whether its engine, or with this base its adapter, need not be another one for the model of this index. */
bool md_models_same_engine(const struct md_model *model, const struct md_worker_config *config, uint32_t index,
			   const struct md_model *base);
void md_models_change(struct md_model *model, const struct md_worker_config *config, uint32_t index);
/* Tells all engines to end; true: they have. */
bool md_models_stop(struct md_worker *worker);
struct md_model *md_models_find(struct md_worker *worker, const char *name); /* by ID or alias; NULL: none */
/* Why that has found none: a sentence without its end, in text. */
/* Says which ones have an engine that can't be at its address, because this daemon listens there. */
void md_models_say_ours(const struct md_worker *worker);
void md_models_tell_none(const struct md_worker *worker, const char *name, char *text, size_t size);

/* ---- model_functions.c ---- */

/* Device memory that the scheduler counts for a model, or an adapter, of this configuration; bytes. */
uint64_t md_models_memory(const struct md_worker *worker, const struct md_worker_config *all,
			  const struct md_config_model *config);
/* Tells the scheduler of a new one. */
enum md_status md_models_add_function(struct md_model *model, struct md_error *err);
/* Tells the scheduler what is promised in that configuration; then md_models_change makes it the model's own. */
enum md_status md_models_promise(struct md_model *model, const struct md_worker_config *config, uint32_t index,
				 struct md_error *err);

/* ---- model_unload.c ---- */

/*
 * Unloads a model (NULL: all) when its requests have ended, or its unloadTimeout has passed; then `done` is called, in a
 * later md_unload_look, which the caller calls when it is ready for that. NULL: out of memory.
 */
struct md_unload *md_unload_begin(struct md_worker *worker, struct md_model *model, void (*done)(void *context),
				  void *context);
void md_unload_look(struct md_worker *worker); /* a model has stopped, a request has ended, time has passed */
void md_unload_forget(void *unload);           /* `done` is not called; unloading goes on */

/* ---- request_drain.c ---- */

struct md_drain *md_drain_create(struct md_worker *worker); /* NULL: out of memory */
void md_drain_destroy(struct md_drain *drain);
/*
 * From now on, new requests for models are refused. Those that wait may run until deadline_ms (of now) has passed, then
 * they are refused, too; those that run may end, also later unless `cut` is set. ends: the daemon ends when none is left.
 */
void md_drain_begin(struct md_drain *drain, uint64_t deadline_ms, bool ends, bool cut);
void md_drain_undo(struct md_drain *drain); /* requests are taken again, unless the daemon is to end */
bool md_drain_is_on(const struct md_drain *drain);
bool md_drain_ends(const struct md_drain *drain);     /* so does the daemon */
bool md_drain_is_empty(const struct md_drain *drain); /* no request is left */
bool md_drain_closes(const struct md_drain *drain);   /* the daemon ends, and none is left: streams end, too */
/* Clients whose requests have not ended are told so. False: there are none. */
bool md_drain_cut(struct md_drain *drain);
/* True: the daemon may end now, because it was to, and everything has ended. Called now and then. */
bool md_drain_look(struct md_drain *drain);

/* ---- reload.c ---- */

struct md_reload_result {
	enum md_status status; /* not MD_OK: nothing has changed */
	char message[MD_ERROR_MESSAGE_BYTES];
	unsigned added, removed, changed; /* models */
	unsigned renewed;                 /* models whose engine ends for it, when its requests have ended */
	char later[256];                  /* keys that have changed, and take effect when the daemon starts anew; "" */
};

/* file, folder: as of md_worker_config_create; borrowed, as the first configuration is. NULL: out of memory. */
struct md_reload *md_reload_create(struct md_worker *worker, const char *file, const char *folder);
void md_reload_destroy(struct md_reload *reload); /* with the configurations that it has read; NULL is fine */
/* Reads the configuration anew; `done` (may be NULL) is called later. NULL: out of memory. */
void *md_reload_begin(struct md_reload *reload, void (*done)(void *context, const struct md_reload_result *result),
		      void *context);
void md_reload_forget(void *waiter);           /* `done` is not called; reloading goes on */
void md_reload_look(struct md_reload *reload); /* now and then: frees configurations that nobody uses any more */
/* A configuration that is there stays until it is let go as often. */
void md_reload_hold(struct md_reload *reload, const struct md_worker_config *config);
void md_reload_let_go(struct md_reload *reload, const struct md_worker_config *config);
/* Another configuration has come, and not all models are what it says: counters are on their way from old ones to new ones. */
bool md_reload_changes(const struct md_reload *reload);

/* ---- router.c ---- */

/* As struct md_http_front_events wants them. */
void md_router_take(void *worker, struct md_http_exchange *exchange);
unsigned md_router_admit(void *worker, const struct md_http_head *head, const char **why);
void md_router_refuse(void *worker, struct md_http_exchange *exchange, unsigned status, const char *why);

/* ---- model.c ---- */

/* The model whose counters count for this one: the last of those that came after it. */
struct md_model *md_model_newest(struct md_model *model);
/* No new requests come for it. Without a successor it serves those that are there; else those that wait go to it. */
void md_model_retire(struct md_model *model, struct md_model *successor);
void md_model_look(struct md_worker *worker);    /* at retired ones: time has passed */
void md_model_look_on(struct md_worker *worker); /* at those that were left for the next turn of the loop */

/* What it is in: an adapter is stopped where its engine has nothing of it, and starting while it is loaded. */
enum md_engine_state md_model_state(const struct md_model *model);
uint32_t md_model_all_unfinished(const struct md_model *model); /* requests of it and of its adapters */
void md_model_forward_granted(struct md_model *model);          /* as far as they can be sent */
void md_model_return_jobs(struct md_model *model);              /* its engine, or the adapter that it is, has failed */
void md_model_leave(struct md_model *model);                    /* its engine is swapped out */
extern const struct md_engine_events md_model_events;           /* the context is the model */
void md_model_load(struct md_model *model, uint32_t gpu, uint64_t transfer);
/* The same ahead of requests, which a model that a user has unloaded only pretends. */
void md_model_preload(struct md_model *model, uint32_t gpu, uint64_t transfer);
void md_model_want(struct md_model *model); /* a request was granted: it is loaded now if it has pretended to be */
void md_model_unload(struct md_model *model, uint64_t transfer, bool whole);
/* The scheduler wants the copy in host memory no more: there is none but the engine's own, which ends with it. */
void md_model_forget(struct md_model *model, uint64_t transfer);

#endif
