/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that a content is fetched from, and calls to them: who can't be asked rests, and who has sent what is wrong is left out. */
#ifndef MD_WORKER_CLUSTER_CONTENT_SOURCE_H
#define MD_WORKER_CLUSTER_CONTENT_SOURCE_H

#include <event2/event.h>

#include "base/buf.h"
#include "worker/cluster/node_view.h"

#define MD_CONTENT_SOURCES_MAX 64u
#define MD_CONTENT_PATH "/medusa/content/" /* HASH, or HASH/manifest */

struct md_content_origin {
	char name[72], url[300];
	struct md_view_node *node; /* NULL: it can't be asked now; found anew in each turn of the loop, and not kept */
	uint32_t calls;
	uint32_t failures; /* one after the other */
	uint64_t rests;    /* md_clock_ns() */
	bool wrong;        /* it has sent what is not so */
};

struct md_content_sources {
	struct event_base *base;
	const char *hash;
	struct md_content_origin *items;
	uint32_t count, room;
};

void md_content_sources_init(struct md_content_sources *sources, struct event_base *base, const char *hash);
void md_content_sources_finish(struct md_content_sources *sources); /* no call is left */
/* Who has it now; what is known of nodes that are no more among them stays. */
void md_content_sources_refresh(struct md_content_sources *sources, struct md_view_node *const *nodes, uint32_t count);
bool md_content_sources_usable(
    const struct md_content_sources *sources); /* one of them is, or will be, though it rests */
const char *md_content_sources_name(const struct md_content_sources *sources, uint32_t source);
void md_content_sources_good(struct md_content_sources *sources, uint32_t source);
/* Says so in the log; why: a sentence without its end. */
void md_content_sources_failed(struct md_content_sources *sources, uint32_t source, const char *why);
void md_content_sources_wrong(struct md_content_sources *sources, uint32_t source, const char *why);

/* ---- calls ---- */

struct md_content_call;

struct md_content_wish {
	const char *hash;
	bool manifest; /* else these bytes: */
	uint64_t offset;
	uint32_t size;
	struct md_buf *bytes; /* gets what comes */
	unsigned patience_s;  /* beyond what a call may take anyway */
};

/* After `whole` or `failed` the call is no longer there. */
struct md_content_call_events {
	void (*whole)(void *context);
	void (*failed)(void *context, const char *why);
	void (*came)(void *context, size_t size);
};

/* Asks the node with the fewest calls: *source. NULL: none can be asked now. Events come later. */
struct md_content_call *md_content_sources_ask(struct md_content_sources *sources, const struct md_content_wish *wish,
					       const struct md_content_call_events *events, void *context,
					       uint32_t *source);
void md_content_call_pause(struct md_content_call *call, bool paused); /* NULL is fine, also below */
void md_content_call_look(struct md_content_call *call); /* now and then: what was refused, or stands still, fails */
void md_content_call_cancel(struct md_content_call *call);

#endif
