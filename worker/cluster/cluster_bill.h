/* SPDX-License-Identifier: Apache-2.0 */
/* The bill of a cluster: what a node tells other nodes of its own, and how others are asked for theirs. docs/cluster.md has the way between nodes. */
#ifndef MD_WORKER_CLUSTER_BILL_H
#define MD_WORKER_CLUSTER_BILL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct md_cluster;
struct md_http_exchange;
struct md_worker;

#define MD_BILL_PATH "/medusa/bill/"  /* SINCE, in seconds since 1970 */
#define MD_BILL_BYTES_MAX (64u << 20) /* of what a node says */
#define MD_BILL_DEADLINE_S 10u        /* a node that says nothing for so long has failed */
#define MD_BILL_WHOLE 30u             /* as many of these is what all of it may take */

/* True: the path was one of a bill, and the exchange is answered, or will be. */
bool md_bill_answer(struct md_worker *worker, struct md_http_exchange *exchange, const char *path);

/* ---- asking ---- */

struct md_bill_ask;

struct md_bill_ask_events {
	void (*piece)(void *context, const char *bytes,
		      size_t size); /* as it came, whatever it is; may pause, and not cancel */
	/* The question is no longer there. why: NULL: all of it came; else a sentence without its end. */
	void (*ended)(void *context, const char *why);
};

/*
 * Asks a node, which may be this one, for its bill since then, in seconds since 1970. Events come later, never within this function. MD_ERR_NOT_FOUND:
 * there is no such node; MD_ERR_UNSUPPORTED: nothing is kept; MD_ERR_INVALID: nothing it says can be read; MD_ERR_NO_MEMORY.
 */
enum md_status md_bill_ask_begin(struct md_cluster *cluster, const char *node, int64_t since, unsigned deadline_s,
				 const struct md_bill_ask_events *events, void *context, struct md_bill_ask **made,
				 struct md_error *err);
void md_bill_ask_pause(struct md_bill_ask *ask,
		       bool paused);              /* whoever wants it is slow: that is no fault of the node */
void md_bill_ask_cancel(struct md_bill_ask *ask); /* no event follows; not from within one */

#endif
