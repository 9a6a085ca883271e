/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/content_source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "worker/cluster/content_manifest.h"
#include "worker/core/forward.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define CONNECT_S 3u
#define ANSWER_S 15u /* until the head of an answer */
#define WHOLE_S 120u
#define STILL_NS UINT64_C(10000000000) /* without a byte */
#define FIRST_REST_NS UINT64_C(500000000)
#define LONGEST_REST_NS UINT64_C(30000000000)

/* ---- nodes ---- */

void md_content_sources_init(struct md_content_sources *sources, struct event_base *base, const char *hash)
{
	*sources = (struct md_content_sources){.base = base, .hash = hash};
}

void md_content_sources_finish(struct md_content_sources *sources)
{
	free(sources->items);
	*sources = (struct md_content_sources){0};
}

static struct md_content_origin *obtain(struct md_content_sources *sources, const struct md_view_node *node)
{
	for (uint32_t i = 0; i < sources->count; i++)
		if (!strcmp(sources->items[i].name, node->name))
			return &sources->items[i];
	if (!MD_ARRAY_GROW(sources->items, sources->count, sources->room))
		return NULL;
	struct md_content_origin *made = &sources->items[sources->count++];
	*made = (struct md_content_origin){0};
	snprintf(made->name, sizeof(made->name), "%s", node->name);
	return made;
}

void md_content_sources_refresh(struct md_content_sources *sources, struct md_view_node *const *nodes, uint32_t count)
{
	for (uint32_t i = 0; i < sources->count; i++)
		sources->items[i].node = NULL;
	for (uint32_t i = 0; i < count; i++) {
		struct md_content_origin *origin = obtain(sources, nodes[i]);
		if (!origin)
			continue;
		origin->node = nodes[i];
		snprintf(origin->url, sizeof(origin->url), "%s", nodes[i]->record ? nodes[i]->record->url : "");
	}
}

bool md_content_sources_usable(const struct md_content_sources *sources)
{
	for (uint32_t i = 0; i < sources->count; i++)
		if (sources->items[i].node && !sources->items[i].wrong && sources->items[i].failures < 4)
			return true;
	return false;
}

const char *md_content_sources_name(const struct md_content_sources *sources, uint32_t source)
{
	return sources->items[source].name;
}

void md_content_sources_good(struct md_content_sources *sources, uint32_t source)
{
	sources->items[source].failures = 0;
}

void md_content_sources_failed(struct md_content_sources *sources, uint32_t source, const char *why)
{
	struct md_content_origin *origin = &sources->items[source];
	uint64_t rest = origin->failures < 6 ? FIRST_REST_NS << origin->failures : LONGEST_REST_NS;
	origin->failures++;
	origin->rests = md_clock_ns() + (rest < LONGEST_REST_NS ? rest : LONGEST_REST_NS);
	md_warn("content %s: node %s (%s) failed: %.300s; it is asked again in %.1f s", sources->hash, origin->name,
		origin->url, why, (double)rest * 1e-9);
}

void md_content_sources_wrong(struct md_content_sources *sources, uint32_t source, const char *why)
{
	struct md_content_origin *origin = &sources->items[source];
	if (!origin->wrong)
		md_error_log("content %s: node %s (%s) is left out: %.300s", sources->hash, origin->name, origin->url,
			     why);
	origin->wrong = true;
}

/* ---- calls ---- */

struct md_content_call {
	struct md_content_sources *sources;
	uint32_t source;
	struct md_view_node *node; /* held as a request is */
	struct md_http_call *http;
	const struct md_content_call_events *events;
	void *context;
	struct md_buf *bytes;
	bool manifest, paused;
	uint64_t wanted; /* bytes; of a manifest as the head says */
	uint64_t came_at;
	char refused[200]; /* why the answer is of no use; "": it may be */
};

static void free_call(struct md_content_call *call)
{
	struct md_pass_target *target = &call->node->target;
	call->sources->items[call->source].calls--;
	md_http_call_cancel(call->http);
	free(call);
	if (!--target->open)
		target->unused(target);
}

static void fail(struct md_content_call *call, const char *why)
{
	const struct md_content_call_events *events = call->events;
	void *context = call->context;
	char copy[300];
	snprintf(copy, sizeof(copy), "%s", why);
	free_call(call);
	events->failed(context, copy);
}

static void on_head(void *context, const struct md_http_head *head)
{
	struct md_content_call *call = context;
	unsigned wanted = call->manifest ? 200 : 206;
	call->came_at = md_clock_ns();
	if (head->status != wanted)
		snprintf(call->refused, sizeof(call->refused), "its answer is %u, and %u is wanted", head->status,
			 wanted);
	else if (head->length < 0 || (call->manifest && head->length > (int64_t)MD_CONTENT_TEXT_MAX) ||
		 (!call->manifest && (uint64_t)head->length != call->wanted))
		snprintf(call->refused, sizeof(call->refused),
			 "its answer has %" PRId64 " bytes, which are not what is wanted", head->length);
	if (call->manifest && !*call->refused)
		call->wanted = (uint64_t)head->length;
}

static void on_body(void *context, const char *bytes, size_t size)
{
	struct md_content_call *call = context;
	call->came_at = md_clock_ns();
	if (*call->refused)
		return;
	if (size > call->wanted - call->bytes->size) {
		snprintf(call->refused, sizeof(call->refused), "it sends more than it says");
		return;
	}
	md_buf_put(call->bytes, bytes, size);
	if (call->bytes->failed)
		snprintf(call->refused, sizeof(call->refused), "out of memory for a block");
	call->events->came(call->context, size);
}

static void on_end(void *context)
{
	struct md_content_call *call = context;
	const struct md_content_call_events *events = call->events;
	void *user = call->context;
	call->http = NULL;
	if (!*call->refused && call->bytes->size != call->wanted)
		snprintf(call->refused, sizeof(call->refused), "its answer ends too early");
	if (*call->refused) {
		fail(call, call->refused);
		return;
	}
	free_call(call);
	events->whole(user);
}

static void on_failed(void *context, const char *why)
{
	struct md_content_call *call = context;
	call->http = NULL;
	fail(call, *call->refused ? call->refused : why);
}

static const struct md_http_call_events asking = {.head = on_head, .body = on_body, .end = on_end, .failed = on_failed};

static struct md_content_origin *choose(struct md_content_sources *sources)
{
	struct md_content_origin *best = NULL;
	uint64_t now = md_clock_ns();
	for (uint32_t i = 0; i < sources->count; i++) {
		struct md_content_origin *origin = &sources->items[i];
		if (origin->node && !origin->wrong && origin->rests <= now && (!best || origin->calls < best->calls))
			best = origin;
	}
	return best;
}

static void put_headers(struct md_content_call *call, const struct md_content_wish *wish)
{
	const struct md_pass_target *target = &call->node->target;
	char range[64];
	md_http_call_header(call->http, "Host", target->host);
	md_http_call_header(call->http, "Accept-Encoding", "identity");
	md_http_call_header(call->http, MD_FORWARD_NODE, target->node);
	if (target->node_key)
		md_http_call_header(call->http, MD_FORWARD_NODE_KEY, target->node_key);
	snprintf(range, sizeof(range), "bytes=%" PRIu64 "-%" PRIu64, wish->offset, wish->offset + wish->size - 1);
	if (!wish->manifest)
		md_http_call_header(call->http, "Range", range);
	md_http_call_bound(call->http, WHOLE_S + wish->patience_s);
	md_http_call_send(call->http, NULL, 0, CONNECT_S, ANSWER_S + wish->patience_s);
}

struct md_content_call *md_content_sources_ask(struct md_content_sources *sources, const struct md_content_wish *wish,
					       const struct md_content_call_events *events, void *context,
					       uint32_t *source)
{
	struct md_content_origin *origin = choose(sources);
	struct md_content_call *call = origin ? calloc(1, sizeof(*call)) : NULL;
	char path[400];
	if (!call)
		return NULL;
	snprintf(path, sizeof(path), "%s" MD_CONTENT_PATH "%s%s", origin->node->target.prefix, wish->hash,
		 wish->manifest ? "/manifest" : "");
	*call = (struct md_content_call){.sources = sources,
					 .source = (uint32_t)(origin - sources->items),
					 .node = origin->node,
					 .events = events,
					 .context = context,
					 .bytes = wish->bytes,
					 .manifest = wish->manifest,
					 .wanted = wish->size,
					 .came_at = md_clock_ns()};
	md_buf_clear(wish->bytes);
	wish->bytes->failed = false;
	call->http = md_http_call_begin_by(sources->base, &origin->node->target.way, "GET", path, &asking, call);
	if (!call->http) {
		free(call);
		return NULL;
	}
	call->node->target.open++;
	origin->calls++;
	*source = call->source;
	put_headers(call, wish);
	return call;
}

void md_content_call_pause(struct md_content_call *call, bool paused)
{
	if (!call || call->paused == paused || !call->http)
		return;
	call->paused = paused;
	call->came_at = md_clock_ns();
	md_http_call_pause(call->http, paused);
}

void md_content_call_look(struct md_content_call *call)
{
	if (!call)
		return;
	if (*call->refused)
		fail(call, call->refused);
	else if (!call->paused && md_clock_ns() - call->came_at > STILL_NS)
		fail(call, "nothing has come for 10 s");
}

void md_content_call_cancel(struct md_content_call *call)
{
	if (call)
		free_call(call);
}
