/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches one content from other nodes into the store, in the daemon's loop: blocks come from several of them at one time. */
#ifndef MD_WORKER_CLUSTER_CONTENT_FETCH_H
#define MD_WORKER_CLUSTER_CONTENT_FETCH_H

#include <event2/event.h>

#include "worker/cluster/content_store.h"
#include "worker/cluster/node_view.h"

struct md_content_fetch;

/* Counted over all fetches; of the daemon. */
struct md_content_counts {
	uint64_t bytes, blocks;   /* that came, and were right */
	uint64_t wrong;           /* blocks and manifests that were not */
	uint64_t failed_calls;    /* that ended before they were whole */
	uint64_t whole, failed;   /* fetches */
	uint64_t served, refused; /* bytes for other nodes; questions of others */
};

struct md_content_fetch_options {
	struct event_base *base;
	const char *store, *hash, *signed_by;
	struct md_content_room room; /* borrowed until the fetch has ended */
	uint32_t streams;
	uint64_t rate; /* bytes a second; 0: any */
	struct md_content_counts *counts;
	/* Nodes that say that they have it: at most `most` of them, and how many there are. */
	uint32_t (*sources)(void *context, const char *hash, struct md_view_node **nodes, uint32_t most);
	/* why: NULL: the content is in the store. The fetch is no longer there then. */
	void (*ended)(void *context, const struct md_error *why);
	void *context;
};

/* Texts are copied. NULL: out of memory. `ended` is never called from within. */
struct md_content_fetch *md_content_fetch_begin(const struct md_content_fetch_options *options);
void md_content_fetch_end(struct md_content_fetch *fetch); /* `ended` is not called, threads have ended; NULL is fine */
/* The fetch ends as one that has failed, when its threads have ended: `ended` is called then. */
void md_content_fetch_give_up(struct md_content_fetch *fetch);

/* How far it is, in bytes; of 0: the manifest has not come yet. */
struct md_content_progress {
	uint64_t done, of;
	uint64_t came; /* since it was begun: what was there before is not in it */
	uint64_t ns;   /* since the first block was asked for */
};
struct md_content_progress md_content_fetch_progress(const struct md_content_fetch *fetch);

#endif
