/* SPDX-License-Identifier: Apache-2.0 */
/* Data that the parts of the simulator share: a node, functions, requests, a policy, and results. */
#ifndef MD_SIMULATOR_SIMULATOR_H
#define MD_SIMULATOR_SIMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "medusa/scheduler.h"

/*
 * config/: node.yaml, functions.yaml -> struct md_sim_node, struct md_sim_functions
 * workload/: a trace, or a law of arrivals -> struct md_sim_workload
 * run/policy_bundles.c: a name -> struct md_sim_policy
 * model/: the node: links, copies, computation; takes actions, gives events
 * run/: the scheduler library and the model in one loop of events -> struct md_sim_result
 * report/: results, side by side, as text, JSON and HTML
 * All names are owned by the struct they stand in; *_finish frees.
 */

/* ---- what is simulated ------------------------------------------------------------------------------------------ */

#define MD_SIM_GPUS_MAX 256u

struct md_sim_node {
	char *name, *source; /* where the numbers come from: a paper's table, a measurement */
	struct medusa_sched_gpu *gpus;
	char **gpu_names;
	uint32_t gpu_count;
	uint64_t host_bytes;     /* 0: unlimited */
	double host_bytes_per_s; /* speed of one GPU's own link */
	/* speed of one PCIe switch's link to the host, which its GPUs share in equal parts; 0: no limit beside theirs */
	double switch_bytes_per_s;
	double cold_bytes_per_s;  /* disk, shared by all GPUs */
	double *peer_bytes_per_s; /* gpu_count x gpu_count, or NULL */
	/*
	 * M batches that compute their first token on one GPU each take 1 + prefill_share (M - 1) times as long (xLoRA,
	 * equation 5: 1.0)
	 */
	double prefill_share;
	double decode_share; /* the same for further tokens */
	/* what a process of its own takes besides its model, for early binding; 0: nothing */
	uint64_t native_instance_bytes;
	double gpu_price_per_h, host_gb_price_per_h; /* for cost; 0: not counted */
	uint64_t allocation_ns; /* time of one driver allocation or free, for the variant without block management */
	uint64_t allocation_block_bytes;
	uint64_t report_every_ns; /* interval of memory reports to the scheduler; 0: none */
	uint64_t report_lag_ns;   /* how old they are when they arrive */
};

struct md_sim_backbone {
	char *name;
	struct medusa_sched_backbone spec;
};

/*
 * By this share each further sequence makes a step of an engine that batches by itself longer, if nothing is stated: a
 * step reads the weights once, and some KV cache and a few operations for each sequence.
 */
#define MD_SIM_SEQUENCE_SHARE 0.01

/* Who sends requests. Tenant 0 is that of requests which name none, called MD_SIM_TENANT_DEFAULT. */
struct md_sim_tenant {
	char *name;
	struct medusa_sched_tenant spec;
};

#define MD_SIM_TENANT_DEFAULT "default"

struct md_sim_function {
	char *name;
	struct medusa_sched_function spec; /* .backbone: index in md_sim_functions.backbones, or MEDUSA_SCHED_NONE */
	/* share of T(1) that cannot overlap with the copy of its weights (the end of the pipeline), 0..1 */
	double tail;
	uint64_t transfer_bytes; /* bytes that a swap copies; 0: weight_bytes */
	/* GPU memory of a process of its own, for early binding; 0: weights + context + native_instance_bytes */
	uint64_t native_bytes;
	uint64_t native_ns;  /* T(1) in such a process; 0: t0 */
	uint64_t capture_ns; /* context_ns without a Medusa artifact; 0: context_ns */
	/* continuous: n sequences take token_ns (1 + sequence_share (n - 1)) for a token of each */
	double sequence_share;
	uint64_t kv_bytes_per_token; /* 0: spec.kv_bytes per sequence, whatever its length */
	double rate_per_min;         /* for generated arrivals; 0: none */
	/* the range that it was drawn from: uniformly or, with rate_log, uniformly in its logarithm */
	double rate_low, rate_high;
	int rate_log;
	/* of a request that a law draws, evenly from this range; 0: unknown */
	uint32_t prompt_low, prompt_high, generated_low, generated_high;
	uint32_t tenant;         /* of requests that name none */
	uint32_t backbone_count; /* functions of a template: on this many backbones from spec.backbone on; 0: on one */
	uint32_t model;          /* the entry of functions.yaml that it came from, for tables by model */
	uint32_t line;           /* of that entry in its file; 0: unknown */
};

struct md_sim_functions {
	char *source;
	char *file; /* that they were read from; NULL: unknown */
	char **artifacts;
	uint32_t artifact_count; /* files that values of models were read from */
	struct md_sim_backbone *backbones;
	uint32_t backbone_count;
	struct md_sim_tenant *tenants;
	uint32_t tenant_count; /* with the default one; 0: there are no others, and results are not divided by tenant */
	struct md_sim_function *functions;
	uint32_t count;
	char **models;
	/* model_count of them: functions of a model are copies of its template, which has no name */
	struct md_sim_function *templates;
	uint32_t model_count;
};

struct md_sim_request {
	uint64_t at; /* ns from the start, which is the first request of a trace */
	uint32_t function;
	uint32_t context_tokens, generated_tokens; /* 0: unknown; 1 generated token is the first one */
	uint32_t tenant;                           /* 0: the default one */
};

#define MD_SIM_GAP_NS (UINT64_C(30) * 86400 * 1000000000)

struct md_sim_workload {
	char *source;
	struct md_sim_request *requests; /* by time */
	size_t count;
	uint64_t end; /* ns; later requests are dropped */
	/*
	 * Offered: GPU seconds of computing for each second of each GPU. A request counts T(1) and its further tokens;
	 * where batches run beside each other (slots > 1), as much of each as it slows the others, prefill_share and
	 * decode_share, or sequence_share. Swaps are not counted, and batches of several requests are not, so a node may bear somewhat
	 * more than 1. 0: not known.
	 */
	double load;
	/* what goes wrong, by time, as struct md_sim_model_options describes it; with early binding there are none */
	struct medusa_sched_event *faults;
	size_t fault_count;
	size_t mapped;  /* requests that the trace gave to no function, so that the mapping did */
	bool reordered; /* the trace was not sorted by time, and is now */
	/*
	 * The longest time of a trace between two requests, if it is more than MD_SIM_GAP_NS, before speed and duration
	 * are applied; and the lines of the two, that on the side with fewer requests first: its time is wrong most
	 * likely. 0: none.
	 */
	uint64_t gap_ns;
	uint32_t gap_lines[2];
};

/* The end of a combination's name if its contexts are captured at each cold start. */
#define MD_SIM_CAPTURE "-capture"

/* A combination of policies: one row of the tables. */
struct md_sim_policy {
	const char *name, *summary;                                          /* summary names the paper */
	const char *queueing, *placement, *eviction, *batching, *preloading; /* names for medusa_sched_options */
	uint32_t fixed_batch;
	uint64_t fixed_delay_ns;
	/*
	 * one process per function for ever, on the first GPU that has room; functions without room never run (Torpor's
	 * Native)
	 */
	bool early_binding;
	bool no_peers;   /* GPUs do not copy from each other */
	bool no_blocks;  /* GPU memory is allocated and freed by the driver at each swap (Torpor-Block) */
	bool no_sharing; /* each function has its own backbone (xLoRA-NBS) */
	/* cold starts without Medusa: creating a context takes as long as a capture (functions.yaml: capture_ns) */
	bool no_artifacts;
	/* of struct medusa_sched_options; 0: its default */
	uint64_t max_wait_ns, preload_period_ns, transfer_timeout_ns, run_timeout_ns;
	uint32_t max_queue, retries;
	double residency_per_switch;
	uint32_t slots; /* at most so many batches at once on a GPU; 0: as many as the node's GPUs have slots */
};

/* ---- what came out ---------------------------------------------------------------------------------------------- */

/* A distribution; every value is kept. */
struct md_sim_samples {
	double *values;
	size_t count, capacity;
	bool sorted;
};

bool md_sim_samples_add(struct md_sim_samples *samples, double value);      /* false: out of memory */
double md_sim_samples_percentile(struct md_sim_samples *samples, double p); /* 0..100, nearest rank; 0 when empty */
double md_sim_samples_mean(const struct md_sim_samples *samples);
void md_sim_samples_finish(struct md_sim_samples *samples);

/* What happened, and how it was on average, in one interval of simulated time. */
struct md_sim_point {
	uint64_t arrived, served, met, rejected; /* requests; met: served within the SLO */
	uint64_t swaps;                          /* begun, from everywhere */
	uint64_t waiting_most;                   /* the longest queue of all functions together */
	double waiting, running;                 /* requests in the queue, and in batches; mean over time */
};

struct md_sim_memory { /* of one GPU, bytes; mean over an interval */
	uint64_t artifacts, kv, residues, free;
};

#define MD_SIM_POINTS_MAX 500

struct md_sim_series {
	uint64_t interval_ns; /* point i is about i x interval_ns (excluded, except for 0) up to the next */
	size_t count;         /* at most MD_SIM_POINTS_MAX; the last interval may not be a whole one */
	struct md_sim_point *points;
	struct md_sim_memory *memory; /* count x gpu_count */
	uint32_t gpu_count;
};

void md_sim_series_finish(struct md_sim_series *series);

#define MD_SIM_REASONS 16

struct md_sim_function_result {
	uint64_t requests, served, met, rejected;
	uint64_t swaps; /* of its weights and library, and of backbones for its batches; no preloads */
	bool compliant; /* met the SLO for at least slo_percentile of its requests; false if none was served */
	bool counted;   /* had a request, and has an SLO */
	double gpu_s;   /* billed: time that its batches held a GPU, divided among batches that ran beside them */
	double cost;    /* gpu_s and host memory, at the node's prices */
	struct md_sim_samples latency_ms, ttft_ms; /* latency: of the goal that the SLO names */
};

/*
 * The time of a batch is divided among its requests that have not ended; where batches run beside each other, as in the
 * bill. A tenant contends while it has requests that wait, though not for its own limit, and another one has such, too;
 * then what those that contend have of the GPUs should be theirs by weight.
 */
struct md_sim_tenant_result {
	uint64_t requests, served, met;
	uint64_t rejected[MD_SIM_REASONS]; /* by enum medusa_sched_reason */
	uint64_t waiting_most;             /* requests at one time, those that are held back included */
	double gpu_s;
	double contended_s, contended_gpu_s; /* time in which it contended; what it had of the GPUs then */
	double contended_due_s;              /* its part by weight of what those had that contended */
	double contended_all_s;              /* what those had */
	struct md_sim_samples ttft_ms, wait_ms;
};

struct md_sim_result {
	const struct md_sim_policy *policy;
	struct md_sim_function_result *functions;
	uint32_t function_count;
	struct md_sim_tenant_result *tenants; /* as in functions; NULL: there are none but the default one */
	uint32_t tenant_count;
	uint32_t running_functions;        /* that were ever served; early binding leaves some out */
	uint64_t rejected[MD_SIM_REASONS]; /* by enum medusa_sched_reason */
	uint64_t requests, served, met;
	struct md_sim_samples latency_ms, ttft_ms, end_ms, wait_ms, batch; /* end: of completion */
	double *gpu_busy_s; /* by GPU: time in which at least one batch computed or waited for its copies */
	uint32_t gpu_count;
	double end_s;                                        /* simulated */
	double wall_s;                                       /* real */
	double decide_us_p50, decide_us_p99, decide_us_p999; /* real time of one medusa_sched_step */
	struct medusa_sched_stats stats;
	struct md_sim_series series;
	uint64_t contradictions; /* actions that the node could not carry out as given: more than 0 is a bug */
	/* requests that had not ended when no event was left: more than 0 means that the scheduler got stuck */
	uint64_t unfinished;
};

void md_sim_result_finish(struct md_sim_result *result);

/* ---- the parts -------------------------------------------------------------------------------------------------- */

/* Errors name file, line and field. */
enum md_status md_sim_node_read(const char *path, struct md_sim_node *node, struct md_error *err);
enum md_status md_sim_functions_read(const char *path, struct md_sim_functions *functions, struct md_error *err);
/* The same from memory; name stands for the path in messages. */
enum md_status md_sim_node_parse(const char *name, const char *text, size_t bytes, struct md_sim_node *node,
				 struct md_error *err);
enum md_status md_sim_functions_parse(const char *name, const char *text, size_t bytes,
				      struct md_sim_functions *functions, struct md_error *err);
/*
 * Keeps the first `count` GPUs of a node. More than there are can be made if all GPUs and all links between them are
 * alike; a single GPU's copies have no links between them.
 */
enum md_status md_sim_node_resize(struct md_sim_node *node, uint32_t count, struct md_error *err);
/* The tenant of that name, which need not end with a NUL; false: there is none. */
bool md_sim_tenant_find(const struct md_sim_functions *functions, const char *name, size_t bytes, uint32_t *tenant);
const char *md_sim_tenant_name(const struct md_sim_functions *functions, uint32_t tenant);
void md_sim_node_finish(struct md_sim_node *node);
void md_sim_functions_finish(struct md_sim_functions *functions);
/*
 * Makes exactly count functions, from the models of functions.yaml in turn (round-robin); existing functions stay as
 * they are. Rates are drawn anew from the same distribution; the rate of a function does not depend on how many others
 * there are.
 */
enum md_status md_sim_functions_resize(struct md_sim_functions *functions, uint32_t count, uint64_t seed,
				       struct md_error *err);

enum md_sim_mapping { MD_SIM_ROUND_ROBIN, MD_SIM_ZIPF };

struct md_sim_workload_options {
	enum md_sim_mapping mapping; /* for a trace that names no functions */
	double zipf;                 /* exponent of Zipf's law; 1.0 is usual */
	uint64_t seed;
	double speed;         /* 2: the trace in half the time; 0: 1 */
	uint64_t duration_ns; /* 0: the whole trace, or 10 minutes of generated arrivals */
	/*
	 * The load to offer, as md_sim_workload.load defines it; it sets the speed of a trace and the rates of a law.
	 * 0: as the trace or the rates have it.
	 */
	double load;
	const struct md_sim_node *node; /* for loads and the law cyclic; NULL: not known */
};

/*
 * spec is a file (CSV of Azure's LLM traces, Mooncake's JSON lines, or CSV with columns of seconds,function,context,
 * generated, tenant), or a law of arrivals, perhaps with values: "poisson", "bursty:cov=4,zipf=1" (medusa-simulate(1) lists them).
 */
enum md_status md_sim_workload_read(const char *spec, const struct md_sim_functions *functions,
				    const struct md_sim_workload_options *options, struct md_sim_workload *workload,
				    struct md_error *err);
enum md_status md_sim_workload_parse(const char *name, const char *text, size_t bytes,
				     const struct md_sim_functions *functions,
				     const struct md_sim_workload_options *options, struct md_sim_workload *workload,
				     struct md_error *err);
void md_sim_workload_finish(struct md_sim_workload *workload);

/* Combinations that restore contexts from artifacts; each exists a second time, as its name and MD_SIM_CAPTURE. */
const struct md_sim_policy *md_sim_policies(size_t *count);
const struct md_sim_policy *md_sim_policy_find(const char *name); /* among both; NULL: there is none */

struct md_sim_progress { /* called about ten times a second of real time; NULL: never */
	void (*report)(void *user, double part, double simulated_s, uint64_t requests);
	void *user;
};

enum md_status md_sim_run(const struct md_sim_node *node, const struct md_sim_functions *functions,
			  const struct md_sim_workload *workload, const struct md_sim_policy *policy, uint64_t seed,
			  const struct md_sim_progress *progress, struct md_sim_result *result, struct md_error *err);

struct md_sim_report {
	const struct md_sim_node *node;
	const struct md_sim_functions *functions;
	const struct md_sim_workload *workload;
	uint64_t seed;                 /* the seed of all runs */
	bool no_real;                  /* leaves out what was measured in real time: equal inputs, equal bytes */
	struct md_sim_result *results; /* the samples are sorted in place */
	size_t count;
};

void md_sim_report_text(struct md_sim_report *report, FILE *out);
enum md_status md_sim_report_json(struct md_sim_report *report, const char *path, struct md_error *err);
enum md_status md_sim_report_html(struct md_sim_report *report, const char *path,
				  struct md_error *err); /* one file, which loads no others */

#endif
