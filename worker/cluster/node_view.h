/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cluster as this node knows it: all keys are read page by page, then their changes are watched. While etcd cannot be
 * reached, what was last known stays.
 */
#ifndef MD_WORKER_CLUSTER_NODE_VIEW_H
#define MD_WORKER_CLUSTER_NODE_VIEW_H

#include "worker/cluster/etcd.h"
#include "worker/cluster/record.h"
#include "worker/core/passed.h"

struct md_view;

/* A node, or what is left of it while requests at it have not ended. */
struct md_view_node {
	struct md_pass_target target; /* first: of requests; its URL is that of the record, and never another one */
	struct md_peer_counts counts;
	struct md_view *view;
	char *name;
	struct md_record *record; /* NULL: it is not there, or its record can't be used */
	json_t *state;            /* as it was read last; NULL: none */
	bool cordoned, draining;
	bool left;         /* its state says that it leaves by itself: it is forgotten with its record */
	bool checked;      /* it is being asked by worker/cluster/node_check.c, which holds it as a request does */
	bool probed;       /* it is being asked whether it is there: worker/cluster/node_probe.c */
	uint64_t ended;    /* md_clock_ns(): its lease has ended, and it stays known until then; 0: it has a lease */
	bool listed;       /* it is in the list; else it goes with its last request */
	enum md_wish wish; /* what a user wants of it */
	uint64_t doubted;  /* md_clock_ns(): until then others are asked rather, because it was not reached */
	uint64_t seen[3];  /* the readings of all keys that have found its record, state and wish last */
	char trouble
	    [200]; /* it can't be reached, as far as was tried (worker/cluster/node_check.c); "": it can, or nobody tries */
	char why[160];                  /* its record can't be used; "": it can, or there is none */
	struct md_view_node *next_left; /* of those that are not listed */
};

struct md_view_events {
	/* A node's lease has ended, it is forgotten, or it has begun anew elsewhere: its old target, at which requests may still run. */
	void (*gone)(void *context, struct md_view_node *node);
	/* What this node itself is wanted to do has changed, or may have. */
	void (*wished)(void *context, enum md_wish wish);
	void (*missing)(void *context); /* this node's own record is not there */
	/* All keys are read anew; all have been read. */
	void (*reads)(void *context);
	void (*has_read)(void *context);
	/* A key that is no node's, without the prefix; value: NULL: it is not there any more; pair: as etcd has it. */
	void (*other)(void *context, const char *key, const json_t *pair, const struct md_buf *value);
};

struct md_view_options {
	struct event_base *base;
	struct md_etcd *etcd;
	struct md_http_outside *outside;
	const char *prefix;   /* with "/" at its end */
	bool tls;             /* nodes speak TLS alone, and their certificates have their names */
	const char *self;     /* this node's name */
	const char *node_key; /* NULL: nodes prove nothing to each other */
	uint64_t grace_ns;    /* a node whose lease has ended stays known for so long */
	bool (*again)(struct md_worker *worker, struct md_pass_target *target, struct md_http_exchange *exchange,
		      const char *why); /* of struct md_pass_target */
};

/* What options point to is borrowed. NULL: out of memory. Nothing is read before md_view_begin. */
struct md_view *md_view_create(const struct md_view_options *options, const struct md_view_events *events,
			       void *context);
void md_view_destroy(struct md_view *view); /* no request is open at any node; NULL is fine */
void md_view_begin(struct md_view *view);
/* What is watched may have been cut off without a sign: all keys are read anew, in the loop's next turn. */
void md_view_doubt(struct md_view *view);
bool md_view_is_current(const struct md_view *view); /* all was read, and changes are watched */

/* All that are listed, by their names; valid until the loop goes on. */
struct md_view_node *const *md_view_nodes(const struct md_view *view, uint32_t *count);
struct md_view_node *md_view_find(const struct md_view *view, const char *name); /* NULL: none */
bool md_view_has_lease(const struct md_view_node *node);                         /* it is there, as far as etcd knows */
uint32_t md_view_open(
    const struct md_view_node *node); /* requests at it that have not ended, and what else holds it but node_check.c */
uint64_t md_view_changes(const struct md_view *view); /* keys that have changed, and were told */

#endif
