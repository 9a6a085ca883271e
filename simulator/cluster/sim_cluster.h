/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cluster of worker nodes, simulated: each node is the scheduler's library with a node model, as in a run of one node; requests are routed
 * and models placed by the code that the worker's nodes do that with.
 */
#ifndef MD_SIMULATOR_CLUSTER_SIM_CLUSTER_H
#define MD_SIMULATOR_CLUSTER_SIM_CLUSTER_H

#include "simulator/simulator.h"

#define MD_SIM_CLUSTER_NODES_MAX 4000u

struct md_sim_domain_loss {
	uint64_t at, back; /* ns; back: so long after it the nodes are there again, 0: never */
	uint32_t domain;
};

/* cluster.yaml: what makes a cluster of one node's file. Times are in ns. */
struct md_sim_cluster {
	char *name, *source;
	uint32_t nodes, domain_nodes; /* domain_nodes: nodes that fail together */
	uint64_t placement_ns;        /* from one plan of the leader to the next; 0: none */
	uint64_t told_ns;             /* how often nodes tell each other how they stand */
	uint64_t hop_ns;              /* what a request that is passed on takes longer to its first token */
	uint64_t lease_ns, grace_ns;
	uint64_t warmup_ns;     /* requests that arrive before are not counted */
	double rate_factor;     /* so many copies of the trace are laid over each other */
	uint64_t change_ns;     /* how often popularity changes; 0: never */
	double change_part;     /* of all functions get another one's popularity then */
	uint64_t lost_every_ns; /* of one node, in the mean; 0: never */
	uint64_t lost_for_ns;
	struct md_sim_domain_loss *losses;
	uint32_t loss_count;
};

/* Errors name file, line and field. */
enum md_status md_sim_cluster_read(const char *path, struct md_sim_cluster *cluster, struct md_error *err);
enum md_status md_sim_cluster_parse(const char *name, const char *text, size_t bytes, struct md_sim_cluster *cluster,
				    struct md_error *err);
void md_sim_cluster_finish(struct md_sim_cluster *cluster);

/* ---- requests ---- */

/* The trace as often as rate_factor says, each copy shifted in time, with popularities that change. Replaces the requests. */
enum md_status md_sim_cluster_load(const struct md_sim_cluster *cluster, const struct md_sim_functions *functions,
				   uint64_t seed, struct md_sim_workload *workload, struct md_error *err);

/* ---- routing ---- */

enum md_sim_routing { MD_SIM_EXPECTED, MD_SIM_RANDOM, MD_SIM_LEAST_LOADED, MD_SIM_LOCALITY };
#define MD_SIM_ROUTINGS 4u

const char *md_sim_routing_name(enum md_sim_routing routing);
const char *md_sim_routing_summary(enum md_sim_routing routing);
/* The name need not end with a NUL; false: there is none of that name. */
bool md_sim_routing_find(const char *name, size_t bytes, enum md_sim_routing *routing);

/* ---- results ---- */

enum md_sim_found { MD_SIM_FOUND_GPU, MD_SIM_FOUND_COMING, MD_SIM_FOUND_HOST, MD_SIM_FOUND_DISK };
#define MD_SIM_FOUNDS 4u

struct md_sim_spread { /* over the nodes that were there to the end */
	double mean, least, most, deviation;
};

struct md_sim_cluster_result {
	enum md_sim_routing routing;
	uint64_t requests, served, met;    /* that were counted; met: within the objective */
	uint64_t rejected[MD_SIM_REASONS]; /* by enum medusa_sched_reason */
	uint64_t broken;                   /* ended by the death of a node */
	uint64_t retried;                  /* tried elsewhere */
	uint64_t nowhere;                  /* no node was there */
	uint64_t passed;                   /* computed on another node than the one that was asked */
	uint64_t found[MD_SIM_FOUNDS]; /* where the model was, at the node that computes it, when the request came */
	struct md_sim_samples ttft_ms;
	/* of the schedulers, behind the warm-up */
	uint64_t swaps_host, swaps_cold, swaps_peer, preloads, bytes_host, bytes_cold, bytes_peer;
	uint64_t ahead;      /* loads for the leader */
	uint64_t lost, back; /* nodes */
	uint64_t rounds, copies,
	    moved;                 /* plans; copies of the last one; copies that plans have added to the ones before */
	struct md_sim_spread load; /* requests that a node has served */
	struct md_sim_spread busy; /* part of the time in which a GPU had a batch, in the mean of a node's GPUs */
	uint64_t unfinished, contradictions;
	double end_s;
	struct md_sim_samples plan_ms; /* real: processor time of each plan */
	double wall_s;                 /* real */
};

void md_sim_cluster_result_finish(struct md_sim_cluster_result *result);

struct md_sim_cluster_inputs {
	const struct md_sim_cluster *cluster;
	const struct md_sim_node *node; /* each of them; memory reports are left out */
	const struct md_sim_functions
	    *functions; /* without backbones and tenants; none is in host memory at the beginning */
	const struct md_sim_workload *workload;
	const struct md_sim_policy *policy; /* of the nodes' schedulers; without early binding */
	uint64_t seed;
};

enum md_status md_sim_cluster_run(const struct md_sim_cluster_inputs *inputs, enum md_sim_routing routing,
				  const struct md_sim_progress *progress, struct md_sim_cluster_result *result,
				  struct md_error *err);

/* ---- reports ---- */

struct md_sim_cluster_report {
	const struct md_sim_cluster_inputs *inputs;
	struct md_sim_cluster_result *results; /* the samples are sorted in place */
	size_t count;
	bool no_real;
};

void md_sim_cluster_text(struct md_sim_cluster_report *report, FILE *out);
enum md_status md_sim_cluster_json(struct md_sim_cluster_report *report, const char *path, struct md_error *err);

#endif
