/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of a cluster, for the scheduler's library: which models lie on which nodes, and tenants' weights over all of them. No I/O, no clock, no threads,
 * no global state. */
#ifndef MEDUSA_SCHEDULER_CLUSTER_H
#define MEDUSA_SCHEDULER_CLUSTER_H

#include <stddef.h>
#include <stdint.h>

#include "scheduler.h" /* beside this file, wherever it is installed */

#ifdef __cplusplus
extern "C" {
#endif

/* Link with -lmedusa-sched. Results and medusa_sched_error() are those of medusa/scheduler.h; medusa_sched_cluster_plan(3) has an example. */

/*
 * Which models lie on which nodes, one level above a scheduler, whose functions are on the GPUs of one node. A plan is made from
 * what is known of the cluster alone; nothing is kept between two plans. Elements of the arrays begin with no size: the struct
 * that has the arrays tells how large they are.
 */
struct medusa_sched_cluster_node {
	uint64_t
	    memory_bytes; /* of its GPUs together; 0: not known, and it gets only what has min_copies or is fixed there */
	uint32_t domain; /* what fails together has one number: copies are spread over domains, then over nodes */
	int closed;      /* it gets nothing */
	/*
	 * Of each of its GPUs, gpu_count of them: a copy lies on one GPU, and must fit what that has left. 0: not known, and it gets
	 * only what has min_copies or is fixed there, and fits no other one. NULL: one of memory_bytes.
	 */
	const uint64_t *gpu_bytes;
	uint32_t gpu_count; /* at most 1,024 */
};

struct medusa_sched_cluster_model {
	uint64_t
	    bytes; /* on the GPUs of a node; 0: not known, and it is placed only for min_copies, or where it is fixed */
	double rate;         /* requests a second in the whole cluster, predicted */
	double load_s;       /* what a first token takes longer where no GPU has the model */
	double busy_s;       /* of a copy's time that one request takes; 0: one copy is always enough */
	uint32_t min_copies; /* nodes that have it whatever the rate; at most as many as can */
	uint32_t max_copies; /* 0: no limit */
	int anywhere;        /* each node can have it; else those that `places` names */
};

/* A model at a node, in any order, each pair once at most. */
struct medusa_sched_cluster_place {
	uint32_t model, node;
	int loaded;  /* a GPU has it */
	int planned; /* the plan before this one had it */
	int fixed;   /* a user wants it there, and not elsewhere (beyond min_copies) */
	int lacks; /* the node has to fetch its files first: of nodes that are as good otherwise, those that have them are chosen */
};

struct medusa_sched_cluster {
	size_t size; /* sizeof(struct medusa_sched_cluster) */
	const struct medusa_sched_cluster_node *nodes;
	const struct medusa_sched_cluster_model *models;
	const struct medusa_sched_cluster_place *places;
	uint32_t node_count, model_count, place_count;
};

struct medusa_sched_cluster_choice {
	uint32_t model, node;
	int kept; /* it is wanted there whatever the rates are: fixed, or for min_copies */
};

/*
 * First what is fixed, then min_copies, then what saves most seconds of waiting for a byte, up to nine tenths of each node. A model
 * whose copies would be busy for more than 70 % of the time has further ones. What was planned or is loaded stays unless something else is
 * worth a quarter more. *choices, by model and node, is released with medusa_sched_cluster_free; NULL if *count is 0. Equal input gives equal plans, bit for
 * bit. The time is in proportion to models times nodes. MEDUSA_SCHED_ERR_INVALID: medusa_sched_error(NULL) names the field.
 */
int medusa_sched_cluster_plan(const struct medusa_sched_cluster *cluster, struct medusa_sched_cluster_choice **choices,
			      uint32_t *count);
void medusa_sched_cluster_free(struct medusa_sched_cluster_choice *choices); /* NULL is fine */

/* A tenant at a node where it has, or had, requests: in any order, each pair once at most. */
struct medusa_sched_cluster_claim {
	uint32_t node, tenant;
	double used; /* seconds of GPUs that its requests there take in a second, in the mean of the last while */
	int more;    /* requests of it wait there for a GPU, so it would take more */
};

/* The tenants of a cluster, and where they ask for GPUs. */
struct medusa_sched_cluster_shares {
	size_t size;           /* sizeof(struct medusa_sched_cluster_shares) */
	const double *weights; /* of each tenant over the whole cluster, 0.000001 to 1000000 */
	const struct medusa_sched_cluster_claim *claims;
	uint32_t node_count, tenant_count, claim_count;
};

/*
 * With which weights (struct medusa_sched_tenant) nodes divide their GPUs so that what tenants have over all nodes comes near their
 * weights, although they compete on some nodes only: weighted max-min fairness, as far as requests are where they are. What a node's GPUs did
 * (the sum of `used`) is divided among those who want more there, and those who don't have what they used. effective[i] is for claims[i],
 * at its node; a sixteenth of its weight is left to a tenant whose requests wait, however much it has elsewhere, and where nobody waits, weights are as they are.
 * To be called now and then: what it has made shows in `used`. Equal input gives equal weights, bit for bit. MEDUSA_SCHED_ERR_INVALID:
 * medusa_sched_error(NULL) names the field, and effective is not set.
 */
int medusa_sched_cluster_weights(const struct medusa_sched_cluster_shares *shares, double *effective);

#ifdef __cplusplus
}
#endif

#endif
