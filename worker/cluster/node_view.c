/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/node_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "json/tree_text.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define PAGE 16u /* keys that are read at once */
#define AGAIN_MS 500
#define CONNECT_S 2u
#define NODES_MAX 100000u
#define GRACE_LOOK_MS 100u

struct md_view {
	struct md_view_options options;
	const struct md_view_events *events;
	void *context;
	struct md_view_node **nodes; /* sorted by name */
	uint32_t count, room;
	struct md_view_node *left; /* not listed any more, with requests that have not ended */
	struct event *renew;
	struct event *graces; /* while a node is known whose lease has ended */
	struct md_etcd_call *reading;
	struct md_etcd_watch *watch;
	int64_t revision; /* of the reading; 0: its first page tells */
	uint64_t readings;
	uint64_t changes;
	bool current;
};

/* ---- nodes ---- */

static void free_node(struct md_view_node *node)
{
	md_record_free(node->record);
	json_decref(node->state);
	free(node->name);
	free(node);
}

/* Where the name is, or would be. */
static uint32_t place_of(const struct md_view *view, const char *name, bool *there)
{
	uint32_t low = 0, high = view->count;
	*there = false;
	while (low < high && !*there) {
		uint32_t middle = low + (high - low) / 2;
		int order = strcmp(view->nodes[middle]->name, name);
		*there = !order;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return high;
}

struct md_view_node *md_view_find(const struct md_view *view, const char *name)
{
	bool there;
	uint32_t at = place_of(view, name, &there);
	return there ? view->nodes[at] : NULL;
}

static void on_unused(struct md_pass_target *target)
{
	struct md_view_node *node = (struct md_view_node *)target;
	if (node->listed)
		return;
	for (struct md_view_node **at = &node->view->left; *at; at = &(*at)->next_left) {
		if (*at != node)
			continue;
		*at = node->next_left;
		free_node(node);
		return;
	}
}

static struct md_view_node *make_node(struct md_view *view, const char *name)
{
	struct md_view_node *node = calloc(1, sizeof(*node));
	if (!node || !(node->name = strdup(name))) {
		free(node);
		return NULL;
	}
	node->view = view;
	node->target = (struct md_pass_target){.kind = "node",
					       .id = node->name,
					       .connect_s = CONNECT_S,
					       .node = view->options.self,
					       .node_key = view->options.node_key,
					       .names_clients = view->options.tls,
					       .counts = &node->counts,
					       .unused = on_unused,
					       .again = view->options.again};
	return node;
}

/* NULL: out of memory, or there are too many. */
static struct md_view_node *obtain(struct md_view *view, const char *name)
{
	bool there;
	uint32_t at = place_of(view, name, &there);
	if (there)
		return view->nodes[at];
	struct md_view_node *node = view->count < NODES_MAX && MD_ARRAY_GROW(view->nodes, view->count, view->room)
					? make_node(view, name)
					: NULL;
	if (!node)
		return NULL;
	memmove(view->nodes + at + 1, view->nodes + at, (view->count - at) * sizeof(struct md_view_node *));
	view->nodes[at] = node;
	view->count++;
	node->listed = true;
	return node;
}

/* The node stays as long as requests at it have not ended. */
static void unlist(struct md_view *view, struct md_view_node *node)
{
	bool there;
	uint32_t at = place_of(view, node->name, &there);
	memmove(view->nodes + at, view->nodes + at + 1, (view->count - at - 1) * sizeof(struct md_view_node *));
	view->count--;
	node->listed = false;
	if (!node->target.open) {
		free_node(node);
		return;
	}
	node->next_left = view->left;
	view->left = node;
}

static bool is_self(const struct md_view *view, const char *name)
{
	return !strcmp(view->options.self, name);
}

enum key { RECORD, STATE, WISH };

/* Of a node that nothing is known of any more. */
static void drop_if_empty(struct md_view *view, struct md_view_node *node)
{
	if (!node->record && !node->state && node->wish == MD_WISH_NONE && !*node->why)
		unlist(view, node);
}

/* Another record than the one that is there begins another node: its target is where requests of the old one still run. */
static struct md_view_node *begin_anew(struct md_view *view, struct md_view_node *node)
{
	struct md_view_node *made = make_node(view, node->name);
	bool there;
	if (!made)
		return NULL;
	made->wish = node->wish;
	memcpy(made->seen, node->seen, sizeof(made->seen));
	made->listed = true;
	made->state = md_steal_ptr(&node->state);
	view->nodes[place_of(view, node->name, &there)] = made;
	node->listed = false;
	node->next_left = view->left;
	view->left = node;
	node->target.open++; /* nobody frees it in `gone` */
	view->events->gone(view->context, node);
	node->target.open--;
	if (!node->target.open)
		on_unused(&node->target);
	return made;
}

/* ---- what keys say ---- */

static void refuse_record(struct md_view_node *node, const char *why, const char *remedy)
{
	if (strncmp(node->why, why, 150) != 0)
		md_warn("cluster: what node %s says of itself (nodes/%s) is left out: %s: %s", node->name, node->name,
			why, remedy);
	snprintf(node->why, sizeof(node->why), "%.150s", why);
	node->ended = 0;
	md_record_free(md_steal_ptr(&node->record));
}

static bool is_same(const struct md_record *a, const struct md_record *b)
{
	return !strcmp(a->identity, b->identity) && !strcmp(a->url, b->url);
}

static void take_record(struct md_view *view, struct md_view_node *node, const struct md_buf *text)
{
	struct md_error err = {0};
	struct md_record *record;
	if (md_record_read((const char *)text->data, text->size, &record, &err) != MD_OK) {
		refuse_record(node, err.message, md_record_remedy(err.status, false));
		return;
	}
	if (node->record && !is_same(node->record, record) && !(node = begin_anew(view, node))) {
		md_record_free(record);
		return;
	}
	if (!node->record && !md_pass_target_read(&node->target, record->url, view->options.outside)) {
		md_record_free(record);
		refuse_record(node, "its url is no http://HOST[:PORT]", "see medusa.cluster.advertise there");
		return;
	}
	if (view->options.tls && !node->target.remote.tls) {
		md_record_free(record);
		refuse_record(node, "its url has no https", "say medusa.cluster.tls there, as here");
		return;
	}
	node->target.remote.name = view->options.tls ? node->name : NULL;
	md_record_free(node->record);
	node->record = record;
	node->why[0] = '\0';
	node->doubted = node->ended = 0;
	md_record_apply(record, node->state, &node->cordoned, &node->draining);
}

static void take_state(struct md_view_node *node, const struct md_buf *text)
{
	struct md_error err = {0};
	json_t *state = text ? md_record_read_state((const char *)text->data, text->size, &err) : NULL;
	if (text && !state)
		md_warn("cluster: how node %s stands (states/%s) is left out: %s: %s", node->name, node->name,
			err.message, md_record_remedy(err.status, false));
	json_decref(node->state);
	node->state = state;
	node->left = md_record_says_left(state);
	if (node->left && !node->record)
		json_decref(md_steal_ptr(&node->state)); /* it has left, and its lease is about to end */
	if (node->record)
		md_record_apply(node->record, state, &node->cordoned, &node->draining);
}

/* What comes under its name later is another one. */
static void forget(struct md_view *view, struct md_view_node *node)
{
	md_info("cluster: node %s is gone", node->name);
	if (node->ended || node->left)
		json_decref(md_steal_ptr(&node->state));
	md_record_free(md_steal_ptr(&node->record));
	struct md_view_node *next = begin_anew(view, node);
	if (next)
		drop_if_empty(view, next);
}

static void look_at_graces(struct md_view *view)
{
	struct timeval wait = {.tv_usec = GRACE_LOOK_MS * 1000};
	if (!event_pending(view->graces, EV_TIMEOUT, NULL))
		event_add(view->graces, &wait);
}

/* etcd tells no difference between a lease that has ended and one that was revoked, so a node that leaves says so before. */
static void lose_record(struct md_view *view, struct md_view_node *node)
{
	node->why[0] = '\0';
	if (is_self(view, node->name))
		view->events->missing(view->context);
	if (!node->record) {
		drop_if_empty(view, node);
		return;
	}
	if (node->ended)
		return;
	if (node->left || !view->options.grace_ns) {
		forget(view, node);
		return;
	}
	md_info("cluster: the lease of node %s has ended: it is asked for what nobody else has", node->name);
	node->ended = md_clock_ns() + view->options.grace_ns;
	look_at_graces(view);
	node->target.open++; /* as in begin_anew */
	view->events->gone(view->context, node);
	node->target.open--;
}

/* Who cannot come back, because etcd does not answer, is not forgotten meanwhile. */
static void on_graces(evutil_socket_t fd, short what, void *context)
{
	struct md_view *view = context;
	uint64_t now = md_clock_ns();
	(void)fd, (void)what;
	for (uint32_t i = view->count; i-- > 0;) {
		struct md_view_node *node = view->nodes[i];
		if (!node->ended)
			continue;
		if (node->ended <= now && view->current)
			forget(view, node);
		else
			look_at_graces(view);
	}
}

/* Graces that ran out while etcd did not answer begin again: nodes that live need a moment to come back. */
static void renew_graces(struct md_view *view)
{
	uint64_t now = md_clock_ns();
	for (uint32_t i = 0; i < view->count; i++)
		if (view->nodes[i]->ended && view->nodes[i]->ended <= now)
			view->nodes[i]->ended = now + view->options.grace_ns;
}

/* Which key of a node it is, and the node's name; false: none that this version knows, or nothing that a node could be called. */
static bool read_key(const struct md_view *view, const char *key, enum key *kind, const char **name)
{
	static const char *const folders[] = {[RECORD] = "nodes/", [STATE] = "states/", [WISH] = "wishes/"};
	const char *rest = key + strlen(view->options.prefix);
	for (unsigned i = 0; i < 3; i++) {
		size_t size = strlen(folders[i]);
		if (strncmp(rest, folders[i], size) != 0)
			continue;
		*kind = (enum key)i;
		*name = rest + size;
		return md_config_is_node_name(*name);
	}
	return false;
}

/* What a later version wishes is not known here, and not done. */
static enum md_wish read_wish(const struct md_view_node *node, const struct md_buf *text)
{
	struct md_error err = {0};
	enum md_wish wish = MD_WISH_NONE;
	if (md_wish_read((const char *)text->data, text->size, &wish, &err) != MD_OK)
		md_warn("cluster: what node %s is wanted to do (wishes/%s) is left out: %s: %s", node->name, node->name,
			err.message, md_record_remedy(err.status, true));
	return wish;
}

static void take_wish(struct md_view *view, struct md_view_node *node, enum md_wish wish)
{
	node->wish = wish;
	if (is_self(view, node->name))
		view->events->wished(view->context, wish);
}

/* The node may be another one, or gone, then. */
static void lose_key(struct md_view *view, struct md_view_node *node, enum key kind)
{
	if (kind == RECORD) {
		lose_record(view, node);
		return;
	}
	if (kind == WISH)
		take_wish(view, node, MD_WISH_NONE);
	else if (!node->ended) /* else what it said last counts as long as it is known */
		take_state(node, NULL);
	drop_if_empty(view, node);
}

static void take_other(struct md_view *view, const char *key, const json_t *pair, const struct md_buf *text)
{
	view->changes++;
	view->events->other(view->context, key + strlen(view->options.prefix), pair, text);
}

/* text: NULL: the key is not there any more. */
static void take_key(struct md_view *view, const char *key, const json_t *pair, const struct md_buf *text)
{
	enum key kind;
	const char *name;
	if (!read_key(view, key, &kind, &name)) {
		take_other(view, key, pair, text);
		return;
	}
	struct md_view_node *node = text ? obtain(view, name) : md_view_find(view, name);
	if (!node)
		return;
	view->changes++;
	node->seen[kind] = view->readings;
	if (!text)
		lose_key(view, node, kind);
	else if (kind == RECORD)
		take_record(view, node, text);
	else if (kind == WISH)
		take_wish(view, node, read_wish(node, text));
	else {
		take_state(node, text);
		drop_if_empty(view, node);
	}
}

static void take_pair(struct md_view *view, const json_t *pair, bool deleted)
{
	struct md_buf key = {0}, value = {0};
	bool read = md_etcd_bytes(pair, "key", &key) && strlen((char *)key.data) == key.size &&
		    !strncmp((char *)key.data, view->options.prefix, strlen(view->options.prefix));
	if (read && deleted)
		take_key(view, (char *)key.data, pair, NULL);
	else if (read && md_etcd_bytes(pair, "value", &value))
		take_key(view, (char *)key.data, pair, &value);
	md_buf_finish(&key);
	md_buf_finish(&value);
}

/* ---- reading and watching ---- */

static void read_page(struct md_view *view, const char *from);

static void renew_in(struct md_view *view, unsigned ms)
{
	struct timeval wait = {.tv_usec = (suseconds_t)ms * 1000};
	event_add(view->renew, &wait);
}

void md_view_begin(struct md_view *view)
{
	renew_in(view, 0);
}

void md_view_doubt(struct md_view *view)
{
	if (view->watch)
		renew_in(view, 0);
}

static void on_changed(void *context, const json_t *events)
{
	const json_t *event;
	size_t i;
	json_array_foreach(events, i, event)
	{
		const char *type = json_string_value(json_object_get(event, "type"));
		take_pair(context, json_object_get(event, "kv"), type && !strcmp(type, "DELETE"));
	}
}

static void on_watch_ended(void *context, const char *why)
{
	struct md_view *view = context;
	view->watch = NULL;
	view->current = false;
	md_debug("cluster: all keys are read anew: %s", why);
	renew_in(view, AGAIN_MS);
}

static const struct md_etcd_watch_events watching = {.changed = on_changed, .ended = on_watch_ended};

/* A key that no page had is not there. A node without its record keeps its state as long as it is known. */
static void sweep(struct md_view *view)
{
	for (uint32_t i = view->count; i-- > 0;) {
		struct md_view_node *node = view->nodes[i];
		if (node->state && node->seen[STATE] != view->readings &&
		    (!node->record || node->seen[RECORD] == view->readings))
			take_state(node, NULL);
		if (node->wish != MD_WISH_NONE && node->seen[WISH] != view->readings)
			take_wish(view, node, MD_WISH_NONE);
		if ((node->record || *node->why) && node->seen[RECORD] != view->readings)
			lose_record(view, node);
		else
			drop_if_empty(view, node);
	}
}

static void end_reading(struct md_view *view)
{
	sweep(view);
	view->events->has_read(view->context);
	renew_graces(view);
	if (!md_view_find(view, view->options.self))
		view->events->missing(view->context);
	view->watch =
	    md_etcd_watch_begin(view->options.etcd, view->options.prefix, view->revision + 1, &watching, view);
	view->current = view->watch;
	if (!view->watch)
		renew_in(view, AGAIN_MS);
}

static void on_page(void *context, const json_t *answer, const struct md_error *err)
{
	struct md_view *view = context;
	const json_t *pairs = json_object_get(answer, "kvs"), *pair;
	size_t i;
	view->reading = NULL;
	if (!answer) {
		md_debug("cluster: reading all keys: %s", err->message);
		renew_in(view, AGAIN_MS);
		return;
	}
	view->revision = view->revision ? view->revision : md_etcd_revision(answer);
	json_array_foreach(pairs, i, pair) take_pair(view, pair, false);
	struct md_buf last = {0};
	if (json_is_true(json_object_get(answer, "more")) &&
	    md_etcd_bytes(json_array_get(pairs, json_array_size(pairs) - 1), "key", &last))
		read_page(view, (char *)last.data);
	else
		end_reading(view);
	md_buf_finish(&last);
}

static void read_page(struct md_view *view, const char *from)
{
	view->reading =
	    md_etcd_range(view->options.etcd, view->options.prefix, from, PAGE, view->revision, on_page, view);
	if (!view->reading)
		renew_in(view, AGAIN_MS);
}

static void on_renew(evutil_socket_t fd, short what, void *context)
{
	struct md_view *view = context;
	(void)fd, (void)what;
	md_etcd_cancel(md_steal_ptr(&view->reading));
	md_etcd_watch_end(md_steal_ptr(&view->watch));
	view->current = false;
	view->revision = 0;
	view->readings++;
	view->events->reads(view->context);
	read_page(view, view->options.prefix);
}

/* ---- all of it ---- */

struct md_view *md_view_create(const struct md_view_options *options, const struct md_view_events *events,
			       void *context)
{
	struct md_view *view = calloc(1, sizeof(*view));
	if (!view)
		return NULL;
	*view = (struct md_view){.options = *options, .events = events, .context = context};
	view->renew = evtimer_new(options->base, on_renew, view);
	view->graces = evtimer_new(options->base, on_graces, view);
	if (view->renew && view->graces)
		return view;
	md_view_destroy(view);
	return NULL;
}

void md_view_destroy(struct md_view *view)
{
	if (!view)
		return;
	md_etcd_cancel(view->reading);
	md_etcd_watch_end(view->watch);
	if (view->renew)
		event_free(view->renew);
	if (view->graces)
		event_free(view->graces);
	for (uint32_t i = 0; i < view->count; i++)
		free_node(view->nodes[i]);
	free(view->nodes);
	free(view);
}

bool md_view_is_current(const struct md_view *view)
{
	return view->current;
}

struct md_view_node *const *md_view_nodes(const struct md_view *view, uint32_t *count)
{
	*count = view->count;
	return view->nodes;
}

bool md_view_has_lease(const struct md_view_node *node)
{
	return node->record && !node->ended;
}

uint32_t md_view_open(const struct md_view_node *node)
{
	return node->target.open - node->checked;
}

uint64_t md_view_changes(const struct md_view *view)
{
	return view->changes;
}
