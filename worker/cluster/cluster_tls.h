/* SPDX-License-Identifier: Apache-2.0 */
/* What the cluster proves itself with: certificates and a password, read of files, and the listener of other nodes. */
#ifndef MD_WORKER_CLUSTER_CLUSTER_TLS_H
#define MD_WORKER_CLUSTER_CLUSTER_TLS_H

#include <jansson.h>

#include "http/front.h"
#include "http/trust.h"
#include "worker/config/config.h"

struct md_cluster;

#define MD_CLUSTER_CERTIFICATES_MAX 4u

struct md_cluster_certificate {
	const char *path, *use; /* borrowed of the settings; static: "nodes", "etcd" */
	bool ca;
	int64_t expires; /* seconds since 1970 */
};

/* As files had it when they were read. */
struct md_cluster_secrets {
	struct md_http_trust *etcd, *nodes, *front; /* front: NULL: nodes have no listener of their own */
	char *password;                             /* of etcd's user; NULL: of no file */
	struct md_cluster_certificate certificates[MD_CLUSTER_CERTIFICATES_MAX];
	unsigned count;
};

/*
 * Takes etcd's password out of the environment, where engines and `ps` would see it: *password, malloc'd; NULL: it is not to be there.
 * MD_ERR_NOT_FOUND, MD_ERR_NO_MEMORY.
 */
enum md_status md_cluster_password_take(const struct md_config_cluster *settings, char **password,
					struct md_error *err);
/* Reads files, outside of the loop; settings are borrowed. node: this one's name. MD_ERR_INVALID, MD_ERR_NOT_FOUND, MD_ERR_IO, MD_ERR_CORRUPT, MD_ERR_NO_MEMORY. */
enum md_status md_cluster_secrets_read(const struct md_config_cluster *settings, const char *node,
				       struct md_cluster_secrets **made, struct md_error *err);
void md_cluster_secrets_destroy(struct md_cluster_secrets *secrets); /* NULL is fine */
/* The same of a daemon that runs: *made is NULL where there is no cluster. For a thread of md_reload. */
enum md_status md_cluster_secrets_renew(const struct md_cluster *cluster, struct md_cluster_secrets **made,
					struct md_error *err);
/* Connections that begin from now on use it. Taken over; NULL is fine. */
void md_cluster_secrets_use(struct md_cluster *cluster, struct md_cluster_secrets *secrets);

/*
 * Other nodes are served from now on; nothing without medusa.cluster.tls. limits, events and context are as those of everybody's front, and what
 * comes of a node has a certificate in its head.
 */
enum md_status md_cluster_listen(struct md_cluster *cluster, const struct md_http_limits *limits,
				 const struct md_http_front_events *events, struct md_error *err);
void md_cluster_unlisten(struct md_cluster *cluster);
/* As md_http_front_drain; the connections that are left. */
void md_cluster_drain(struct md_cluster *cluster);
unsigned md_cluster_connections(const struct md_cluster *cluster);

/* For /api/status and `cluster status`. */
json_t *md_cluster_report_tls(const struct md_cluster *cluster);

#endif
