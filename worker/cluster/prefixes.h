/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests whose prompt begins as one did that a node has computed: what this node remembers of that, and which node such a request
 * goes to (scheduler/cluster/prefix_choice.h). Nothing of a prompt, and no hash of one, leaves the node.
 */
#ifndef MD_WORKER_CLUSTER_PREFIXES_H
#define MD_WORKER_CLUSTER_PREFIXES_H

#include <jansson.h>
#include <stdio.h>

#include "worker/cluster/node_view.h"
#include "worker/core/rewrite.h"

struct md_cluster;
struct md_model;
struct md_prefix_request; /* what is remembered of a request until it has ended; free() frees it */
struct md_prefixes;
struct md_worker;
struct md_worker_job;

/* NULL: out of memory. The cluster is not complete yet. */
struct md_prefixes *md_prefixes_create(const struct md_cluster *cluster);
void md_prefixes_destroy(struct md_prefixes *prefixes); /* NULL is fine, as everywhere here: nothing is remembered */

/* ---- a request that comes ---- */

/* Between these two, what is routed is the request with this body; target: as the client has sent it. */
void md_prefixes_begin(struct md_worker *worker, const char *target, const struct md_rewrite_body *read);
void md_prefixes_end(struct md_worker *worker);
/* The request is for the model of this name; local: what is called so here. Who has a beginning of its prompt is known then. */
void md_prefixes_find(struct md_prefixes *prefixes, const struct md_http_head *head, const char *name,
		      const struct md_model *local);
/* True: *chosen is the node that it goes to, NULL: this one. False: its prompt decides nothing. nodes: sorted by name. */
bool md_prefixes_choose(struct md_prefixes *prefixes, struct md_view_node *const *nodes, uint32_t count,
			const char *name, const struct md_model *local, struct md_view_node **chosen);
/* Of that request, for whoever carries it out. NULL: there is no prompt, or no memory. */
struct md_prefix_request *md_prefixes_take(const struct md_worker *worker);

/* ---- and is answered ---- */

/* Here: the first byte of the answer has come; the job is about to be freed, and so is what it has of this. */
void md_prefixes_job_answers(struct md_worker_job *job);
void md_prefixes_job_end(struct md_worker_job *job);
/* By another node: a byte of an answer that is no error; the node has failed. */
void md_prefixes_passed_answers(const struct md_worker *worker, struct md_prefix_request *request,
				const struct md_pass_target *target);
void md_prefixes_passed_failed(const struct md_worker *worker, struct md_prefix_request *request,
			       const struct md_pass_target *target);

/* ---- what is told of it ---- */

/* Adds what other nodes are told: what a byte of a prompt takes, and which engine it is. */
void md_prefixes_standing(const struct md_model *model, struct md_standing *standing);
json_t *md_prefixes_report(const struct md_prefixes *prefixes); /* an object, or null */
void md_prefixes_print_metrics(const struct md_prefixes *prefixes, FILE *out);

#endif
