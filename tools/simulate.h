/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of medusa-simulate: what the command line asks for, and how it is carried out. */
#ifndef MD_TOOLS_SIMULATE_H
#define MD_TOOLS_SIMULATE_H

#include "simulator/cluster/sim_cluster.h"
#include "simulator/simulator.h"
#include "tools/options.h"

#define MD_SIMULATE_POLICIES_MAX 64
#define MD_SIMULATE_KINDS 5 /* queueing, placement, eviction, batching, preloading, as enum medusa_sched_kind */

/* The values of options as they were given; NULL: they were not. */
struct md_simulate_given {
	const struct md_command *command;
	const char *node, *functions, *trace, *faults, *json, *html;
	const char *policies, *kinds[MD_SIMULATE_KINDS];
	const char *mapping, *seed, *speed, *load, *gpus, *goal, *duration, *count;
	const char *fixed_batch, *fixed_delay, *preload_period, *residency;
	const char *max_wait, *max_queue, *retries, *transfer_timeout, *run_timeout;
	const char *cluster, *routing;
	bool no_real, quiet, list;
};

struct md_simulate {
	const struct md_simulate_given *given;
	struct md_sim_node node;
	struct md_sim_functions functions;
	struct md_sim_workload_options arrivals;
	struct md_sim_workload workload;
	const struct md_sim_policy *policies[MD_SIMULATE_POLICIES_MAX];
	struct md_sim_policy changed[MD_SIMULATE_POLICIES_MAX]; /* policies that the command line changes */
	char names[MD_SIMULATE_POLICIES_MAX][32], summaries[MD_SIMULATE_POLICIES_MAX][512];
	struct md_sim_result results[MD_SIMULATE_POLICIES_MAX];
	size_t policy_count, result_count;
	uint32_t count;      /* of functions; 0: as the files have them */
	uint32_t gpus;       /* of the node; 0: as its file has them */
	uint32_t gpus_least; /* --gpus FROM-TO, where gpus is TO at first; 0: it is one number */
	double goal;         /* the part of the requests that is to be in time, of --gpus FROM-TO */
	bool from_trace;     /* the functions are those that the trace names */
	char *paths[3];      /* of the files of node, functions and cluster, when they were found */
	struct md_sim_cluster cluster;
	enum md_sim_routing routings[MD_SIM_ROUTINGS];
	struct md_sim_cluster_result cluster_results[MD_SIM_ROUTINGS];
	size_t routing_count, cluster_result_count;
};

/* ---- simulate_options.c: numbers; these return -1 to go on, else an exit code ---- */
int md_simulate_integer(const struct md_simulate *run, const char *name, const char *text, uint64_t most,
			uint64_t *value);
int md_simulate_take_numbers(struct md_simulate *run);

/* ---- simulate_policies.c ---- */
int md_simulate_take_policies(struct md_simulate *run); /* with what the command line changes in them */
int md_simulate_list(const struct md_command *command); /* prints them; an exit code */

/* ---- simulate_files.c ---- */
/* Reads node, functions, trace and faults; may be called again after md_simulate_forget_inputs. */
enum md_status md_simulate_read(struct md_simulate *run, struct md_error *err);
void md_simulate_forget_inputs(struct md_simulate *run);
/* Whether the files to be written are others than those that were read: -1, else an exit code. */
int md_simulate_check_outputs(const struct md_simulate *run);
/* Says what the user may not expect of the inputs; nothing is ignored in silence. */
void md_simulate_remark(const struct md_simulate *run);

/* ---- simulate_runs.c ---- */
/* Runs all policies, with progress on a terminal. */
enum md_status md_simulate_run(struct md_simulate *run, struct md_error *err);
void md_simulate_forget_results(struct md_simulate *run);
/* Says which policies left requests, which is a defect; an exit code. */
int md_simulate_unfinished(const struct md_simulate *run);

/* ---- simulate_cluster.c: --cluster ---- */
/* What makes no sense for a cluster, or without one, and the routings; -1 to go on, else an exit code. */
int md_simulate_take_routings(struct md_simulate *run);
enum md_status md_simulate_read_cluster(struct md_simulate *run, struct md_error *err); /* and makes its requests */
int md_simulate_cluster(struct md_simulate *run);                                       /* an exit code */

/* ---- simulate_sizes.c ---- */
/* --gpus FROM-TO: finds the smallest number of GPUs for each policy, and prints it; an exit code. */
int md_simulate_sizes(struct md_simulate *run);

#endif
