/* SPDX-License-Identifier: Apache-2.0 */
/* What the node knows of its cluster, for the control socket, pages and metrics. */
#ifndef MD_WORKER_CLUSTER_REPORT_H
#define MD_WORKER_CLUSTER_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct md_cluster; /* NULL below: the node is alone */

json_t *md_cluster_report(const struct md_cluster *cluster);       /* of this node in it; null */
json_t *md_cluster_report_nodes(const struct md_cluster *cluster); /* a list, empty where there is no cluster */

/* All models with their nodes: copied in the loop, and described by whoever has the time. */
struct md_cluster_models;
struct md_cluster_models *md_cluster_copy_models(const struct md_cluster *cluster); /* NULL: out of memory */
void md_cluster_free_models(struct md_cluster_models *copy);                        /* NULL is fine */
json_t *md_cluster_report_models(const struct md_cluster_models *copy);             /* a list */

json_t *md_cluster_report_tenants(const struct md_cluster *cluster); /* a list; there is a cluster, as below */
/* [{"tenant", "node", "other"}]: two nodes whose configurations say different things of it. */
json_t *md_cluster_report_differences(const struct md_cluster *cluster);
void md_cluster_print_tenants(const struct md_cluster *cluster, FILE *out); /* metrics */

void md_cluster_print_metrics(const struct md_cluster *cluster, FILE *out);

/* Names of models that other nodes have: of each its node's name behind it, both with a NUL. A model may be there more than once. */
struct md_cluster_names {
	char *bytes; /* owned */
	size_t size;
};
/* aliases: those, too. False: out of memory. */
bool md_cluster_list_names(const struct md_cluster *cluster, bool aliases, struct md_cluster_names *names);
/* The node that is listed for a model of this name; NULL: none but this one. Valid until the loop goes on. */
const char *md_cluster_node_of(const struct md_cluster *cluster, const char *name);

#endif
