/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/cluster_ledgers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "json/tree_text.h"
#include "worker/accounting/bill_reader.h"
#include "worker/cluster/cluster_parts.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define FOLDER "ledgers/"
#define SOON_MS 50u /* until the key stands */
#define LATER_MS 1000u
#define AGAIN_NS UINT64_C(1000000000)
#define STRANGER_LOOKS 5u /* in a row, a second apart: a node that has no key then will put none itself */
#define LAST_ROWS_S 60    /* requests that are broken off at the end of a daemon are in its ledger a moment later */

/* The identity of this node's ledger is being read; whoever is gone has left. */
struct identity_question {
	struct md_ledgers *ledgers; /* NULL: nobody waits */
	char id[MD_BILL_ID_BYTES];
};

struct md_ledgers {
	struct md_cluster *cluster;
	json_t *known,
	    *coming; /* {ID: {"node", "identity", "first", "until", "revision", "why"}}; coming: NULL: no reading is under way */
	char id[40];     /* this node's; "": not known yet */
	bool unreadable; /* the ledger's file can't be opened, as far as was tried */
	struct identity_question *question;
	bool stands, serves, leaving;
	bool said;        /* that another node has this ledger, too */
	int64_t revision; /* by which the key was changed last, as far as is known */
	int64_t first;    /* as it stands there; 0: not known */
	struct md_etcd_call *call;
	struct event *turn;
	uint64_t rests;    /* md_clock_ns() */
	char stranger[64]; /* the identity of a node that has no key; "": none */
	char stranger_name[72];
	unsigned stranger_looks;
};

static bool is_id(const char *text)
{
	return strlen(text) == MD_BILL_ID_BYTES - 1 && strspn(text, "0123456789abcdef") == MD_BILL_ID_BYTES - 1;
}

static const char *text_of(const json_t *entry, const char *key)
{
	const char *text = json_string_value(json_object_get(entry, key));
	return text ? text : "";
}

static int64_t number_of(const json_t *entry, const char *key)
{
	return json_integer_value(json_object_get(entry, key));
}

/* ---- what keys say ---- */

/* A key that can't be read stands for a ledger that is missed: somebody has put it. */
static json_t *read_entry(const char *key, const json_t *pair, const struct md_buf *value)
{
	struct md_error err = {0};
	json_t *root = md_record_read_state((const char *)value->data, value->size, &err);
	const char *node = text_of(root, "node"), *identity = text_of(root, "identity");
	const json_t *first = json_object_get(root, "first"), *until = json_object_get(root, "until");
	bool good = md_config_is_node_name(node) && is_id(identity) && json_is_integer(first) &&
		    json_integer_value(first) >= 0 &&
		    (!until || (json_is_integer(until) && json_integer_value(until) > 0));
	if (root && !good)
		md_error_set(&err, MD_ERR_CORRUPT, "node, identity and first, and maybe until, are wanted");
	if (!good)
		md_warn("cluster: %.200s can't be read: %s", key, err.message);
	json_t *entry = json_pack(
	    "{s:o, s:o, s:I, s:I, s:I, s:o}", "node", good ? json_string(node) : json_null(), "identity",
	    good ? json_string(identity) : json_null(), "first", good ? json_integer_value(first) : (json_int_t)0,
	    "until", good && until ? json_integer_value(until) : (json_int_t)0, "revision",
	    (json_int_t)md_etcd_number(pair, "mod_revision"), "why", good ? json_null() : md_jansson_text(err.message));
	json_decref(root);
	return entry;
}

/* Whether it says of this node what this node would say. */
static bool is_ours(const struct md_ledgers *ledgers, const json_t *entry)
{
	const struct md_cluster *cluster = ledgers->cluster;
	return !strcmp(text_of(entry, "node"), cluster->name) &&
	       !strcmp(text_of(entry, "identity"), cluster->identity) && !number_of(entry, "until");
}

static void wait_turn(struct md_ledgers *ledgers)
{
	unsigned ms = ledgers->stands ? LATER_MS : SOON_MS;
	event_add(ledgers->turn, &(struct timeval){.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000});
}

/* Of two nodes that have one file, none writes over the other's key: a bill counts the file once, and names the second. */
static bool is_shared(struct md_ledgers *ledgers, const json_t *entry)
{
	const struct md_cluster *cluster = ledgers->cluster;
	const struct md_view_node *other = md_view_find(cluster->view, text_of(entry, "node"));
	bool shared = !number_of(entry, "until") && strcmp(text_of(entry, "node"), cluster->name) != 0 && other &&
		      md_view_has_lease(other) && strcmp(other->record->identity, cluster->identity) != 0 &&
		      !strcmp(other->record->identity, text_of(entry, "identity"));
	if (shared && !ledgers->said)
		md_error_log("cluster: node %s has the same ledger as this one, or a copy of it (%.200s): each needs a "
			     "medusa.state of its own",
			     other->name, cluster->worker->config->node.state);
	ledgers->said = ledgers->said || shared;
	return shared;
}

/* Somebody has removed this node's key, or what it has written long ago comes late. */
static void doubt(struct md_ledgers *ledgers)
{
	if (!ledgers->stands || ledgers->leaving)
		return;
	ledgers->stands = false;
	wait_turn(ledgers);
}

void md_ledgers_reads(struct md_ledgers *ledgers)
{
	json_decref(ledgers->coming);
	ledgers->coming = json_object();
}

void md_ledgers_has_read(struct md_ledgers *ledgers)
{
	if (!ledgers->coming)
		return;
	json_decref(ledgers->known);
	ledgers->known = md_steal_ptr(&ledgers->coming);
	if (*ledgers->id && !json_object_get(ledgers->known, ledgers->id))
		doubt(ledgers);
}

void md_ledgers_take(struct md_ledgers *ledgers, const char *key, const json_t *pair, const struct md_buf *value)
{
	size_t folder = strlen(FOLDER);
	if (strncmp(key, FOLDER, folder) != 0 || !is_id(key + folder))
		return;
	json_t *entries = ledgers->coming ? ledgers->coming : ledgers->known;
	const char *id = key + folder;
	json_t *entry = value ? read_entry(key, pair, value) : NULL;
	if (!strcmp(id, ledgers->id) && (!entry || !(is_ours(ledgers, entry) || is_shared(ledgers, entry))))
		doubt(ledgers);
	if (entry)
		json_object_set_new(entries, id, entry);
	else
		json_object_del(entries, id);
}

/* ---- this node's key ---- */

/* NULL: out of memory. until: 0: none. */
static char *print_value(const char *node, const char *identity, int64_t first, int64_t until)
{
	json_t *value = json_pack("{s:i, s:s, s:s, s:I}", "format", MD_RECORD_FORMAT, "node", node, "identity",
				  identity, "first", (json_int_t)first);
	if (value && until)
		json_object_set_new(value, "until", json_integer(until));
	char *text = value ? md_jansson_print(value, JSON_COMPACT) : NULL;
	json_decref(value);
	return text;
}

static bool write_key(struct md_ledgers *ledgers, const char *id, char *value, int64_t revision, md_etcd_done *done)
{
	MD_AUTO_FREE char *text = value;
	char key[400];
	snprintf(key, sizeof(key), "%s" FOLDER "%s", ledgers->cluster->prefix, id);
	struct md_etcd_pair pair = {key, text};
	ledgers->call = text ? md_etcd_put_if(ledgers->cluster->etcd, revision, &pair, 1, 0, done, ledgers) : NULL;
	return ledgers->call;
}

static void on_put(void *context, const json_t *answer, const struct md_error *err);

static void put(struct md_ledgers *ledgers, int64_t revision)
{
	const struct md_cluster *cluster = ledgers->cluster;
	ledgers->first = ledgers->first ? ledgers->first : (int64_t)time(NULL);
	if (!write_key(ledgers, ledgers->id, print_value(cluster->name, cluster->identity, ledgers->first, 0), revision,
		       on_put))
		ledgers->rests = md_clock_ns() + AGAIN_NS;
}

static void take_stand(struct md_ledgers *ledgers, int64_t revision)
{
	ledgers->stands = true;
	ledgers->revision = revision;
	wait_turn(ledgers);
}

/* What stands there is of this ledger's earlier life: under another name, or with the time at which it ended. */
static void judge_found(struct md_ledgers *ledgers, const json_t *found)
{
	struct md_buf text = {0};
	json_t *entry = md_etcd_bytes(found, "value", &text) ? read_entry(FOLDER, found, &text) : NULL;
	md_buf_finish(&text);
	int64_t first = number_of(entry, "first");
	ledgers->first = first ? first : ledgers->first;
	if (entry && (is_ours(ledgers, entry) || is_shared(ledgers, entry)))
		take_stand(ledgers, md_etcd_number(found, "mod_revision"));
	else if (found)
		put(ledgers, md_etcd_number(found, "mod_revision"));
	json_decref(entry);
}

static void on_put(void *context, const json_t *answer, const struct md_error *err)
{
	struct md_ledgers *ledgers = context;
	(void)err; /* which md_etcd has said */
	ledgers->call = NULL;
	if (md_etcd_succeeded(answer))
		take_stand(ledgers, md_etcd_revision(answer));
	else if (answer)
		judge_found(ledgers, md_etcd_found(answer));
	else
		ledgers->rests = md_clock_ns() + AGAIN_NS;
}

/* ---- which ledger it is ---- */

static void read_id(void *context, const char *path, struct md_error *err)
{
	struct identity_question *question = context;
	md_bill_read_ledger(path, question->id, err);
}

static void on_id(void *context, char *none, const struct md_error *err)
{
	struct identity_question *question = context;
	struct md_ledgers *ledgers = question->ledgers;
	(void)none;
	if (ledgers) {
		ledgers->question = NULL;
		ledgers->unreadable = err->status != MD_OK;
		ledgers->rests = ledgers->unreadable ? md_clock_ns() + AGAIN_NS : 0;
		snprintf(ledgers->id, sizeof(ledgers->id), "%s", ledgers->unreadable ? "" : question->id);
		wait_turn(ledgers);
	}
	free(question);
}

/* A node that keeps nothing is missed by its own identity. */
static void find_id(struct md_ledgers *ledgers)
{
	struct md_ledger *ledger = ledgers->cluster->worker->ledger;
	if (!ledger) {
		snprintf(ledgers->id, sizeof(ledgers->id), "%s", ledgers->cluster->identity);
		return;
	}
	struct identity_question *question = ledgers->question ? NULL : calloc(1, sizeof(*question));
	if (!question)
		return;
	*question = (struct identity_question){.ledgers = ledgers};
	if (md_ledger_work(ledger, read_id, on_id, question))
		ledgers->question = question;
	else
		free(question);
}

/* ---- nodes that put no key: of versions before this one ---- */

static bool has_key(const struct md_ledgers *ledgers, const char *identity)
{
	const char *id;
	json_t *entry;
	json_object_foreach(ledgers->known, id, entry) if (!strcmp(text_of(entry, "identity"), identity)) return true;
	return false;
}

/* The first by name of the nodes that know of ledgers looks after the others. */
static const struct md_view_node *find_stranger(const struct md_ledgers *ledgers)
{
	const struct md_view_node *stranger = NULL;
	bool first = false, seen = false;
	uint32_t count;
	struct md_view_node *const *nodes = md_view_nodes(ledgers->cluster->view, &count);
	for (uint32_t i = 0; i < count; i++) {
		const struct md_view_node *node = nodes[i];
		if (!md_view_has_lease(node) || !is_id(node->record->identity))
			continue;
		bool known = has_key(ledgers, node->record->identity);
		if (known && !seen) {
			first = !strcmp(node->name, ledgers->cluster->name);
			seen = true;
		}
		if (!known && (!stranger || !strcmp(node->record->identity, ledgers->stranger)))
			stranger = node;
	}
	return first ? stranger : NULL;
}

static void on_stranger_put(void *context, const json_t *answer, const struct md_error *err)
{
	struct md_ledgers *ledgers = context;
	(void)err;
	ledgers->call = NULL;
	if (md_etcd_succeeded(answer))
		md_info("cluster: node %s, of an earlier version, is noted for bills", ledgers->stranger_name);
	ledgers->stranger_looks = 0;
}

static void look_for_strangers(struct md_ledgers *ledgers)
{
	const struct md_view_node *node = md_view_is_current(ledgers->cluster->view) ? find_stranger(ledgers) : NULL;
	if (!node || strcmp(node->record->identity, ledgers->stranger) != 0) {
		snprintf(ledgers->stranger, sizeof(ledgers->stranger), "%s", node ? node->record->identity : "");
		snprintf(ledgers->stranger_name, sizeof(ledgers->stranger_name), "%s", node ? node->name : "");
		ledgers->stranger_looks = 0;
	} else if (++ledgers->stranger_looks >= STRANGER_LOOKS) {
		write_key(ledgers, ledgers->stranger,
			  print_value(ledgers->stranger_name, ledgers->stranger, (int64_t)time(NULL), 0), 0,
			  on_stranger_put);
	}
}

/* ---- turns ---- */

/* A node that begins, and whose name another one has, ends without having served: nothing is to be missed of it. */
static bool may_put(const struct md_ledgers *ledgers)
{
	return ledgers->cluster->reached &&
	       (ledgers->serves || md_member_state(ledgers->cluster->member) == MD_MEMBER_JOINED);
}

static void on_turn(evutil_socket_t fd, short what, void *context)
{
	struct md_ledgers *ledgers = context;
	(void)fd, (void)what;
	if (ledgers->leaving)
		return;
	wait_turn(ledgers);
	if (ledgers->call || md_clock_ns() < ledgers->rests)
		return;
	if (!*ledgers->id)
		find_id(ledgers);
	if (!*ledgers->id || !may_put(ledgers))
		return;
	if (!ledgers->stands)
		put(ledgers, 0);
	else
		look_for_strangers(ledgers);
}

void md_ledgers_begin(struct md_ledgers *ledgers)
{
	wait_turn(ledgers);
}

bool md_ledgers_settled(const struct md_ledgers *ledgers)
{
	return ledgers->stands || ledgers->unreadable;
}

void md_ledgers_serve(struct md_ledgers *ledgers)
{
	ledgers->serves = true;
}

/* ---- the end ---- */

static void on_left(void *context, const json_t *answer, const struct md_error *err)
{
	struct md_ledgers *ledgers = context;
	(void)answer, (void)err; /* whoever asks for a bill misses this node then, which is true */
	ledgers->call = NULL;
}

void md_ledgers_leave(struct md_ledgers *ledgers)
{
	const struct md_cluster *cluster = ledgers->cluster;
	ledgers->leaving = true;
	event_del(ledgers->turn);
	md_etcd_cancel(md_steal_ptr(&ledgers->call));
	if (ledgers->stands && cluster->reached)
		write_key(
		    ledgers, ledgers->id,
		    print_value(cluster->name, cluster->identity, ledgers->first, (int64_t)time(NULL) + LAST_ROWS_S),
		    ledgers->revision, on_left);
}

bool md_ledgers_has_left(const struct md_ledgers *ledgers)
{
	return !ledgers->call;
}

struct md_ledgers *md_ledgers_create(struct md_cluster *cluster)
{
	struct md_ledgers *ledgers = calloc(1, sizeof(*ledgers));
	if (!ledgers)
		return NULL;
	ledgers->cluster = cluster;
	ledgers->known = json_object();
	ledgers->turn = evtimer_new(cluster->worker->base, on_turn, ledgers);
	if (ledgers->known && ledgers->turn)
		return ledgers;
	md_ledgers_destroy(ledgers);
	return NULL;
}

void md_ledgers_destroy(struct md_ledgers *ledgers)
{
	if (!ledgers)
		return;
	if (ledgers->question)
		ledgers->question->ledgers = NULL;
	md_etcd_cancel(ledgers->call);
	if (ledgers->turn)
		event_free(ledgers->turn);
	json_decref(ledgers->known);
	json_decref(ledgers->coming);
	free(ledgers);
}

/* ---- what a bill needs to know ---- */

static json_t *text_or_null(const char *text)
{
	return text && *text ? json_string(text) : json_null();
}

static json_t *list_nodes(const struct md_cluster *cluster)
{
	json_t *list = json_array();
	uint32_t count;
	struct md_view_node *const *nodes = md_view_nodes(cluster->view, &count);
	json_array_append_new(list, json_pack("{s:s, s:s}", "node", cluster->name, "identity", cluster->identity));
	for (uint32_t i = 0; i < count; i++)
		if (strcmp(nodes[i]->name, cluster->name) != 0 && (nodes[i]->record || *nodes[i]->why))
			json_array_append_new(
			    list, json_pack("{s:s, s:o}", "node", nodes[i]->name, "identity",
					    text_or_null(nodes[i]->record ? nodes[i]->record->identity : NULL)));
	return list;
}

static json_t *list_ledgers(const struct md_ledgers *ledgers)
{
	json_t *list = json_array(), *entry;
	const char *id;
	json_object_foreach(ledgers->known, id, entry) json_array_append_new(
	    list, json_pack("{s:s, s:O, s:O, s:O, s:O, s:O}", "ledger", id, "node", json_object_get(entry, "node"),
			    "identity", json_object_get(entry, "identity"), "first", json_object_get(entry, "first"),
			    "until", json_object_get(entry, "until"), "why", json_object_get(entry, "why")));
	return list;
}

json_t *md_ledgers_report(const struct md_cluster *cluster)
{
	const char *lack = md_cluster_lack(cluster);
	bool current = md_view_is_current(cluster->view) && !lack;
	return json_pack("{s:s, s:b, s:o, s:o, s:o}", "node", cluster->name, "current", current, "why",
			 current ? json_null() : text_or_null(lack ? lack : "the nodes of the cluster are being read"),
			 "nodes", list_nodes(cluster), "ledgers", list_ledgers(cluster->ledgers));
}

/* ---- forgetting ---- */

struct forget_order {
	struct md_cluster *cluster;
	struct md_etcd_call *call;
	json_t *left; /* [[ID, revision], ...], of which the last one is being removed */
	void (*done)(void *context, const struct md_error *err); /* NULL: nobody waits */
	void *context;
};

static void end_order(struct forget_order *order, const struct md_error *err)
{
	if (order->done)
		order->done(order->context, err);
	json_decref(order->left);
	free(order);
}

/* True: it has begun. */
static bool remove_next(struct forget_order *order);

static void on_removed(void *context, const json_t *answer, const struct md_error *err)
{
	struct forget_order *order = context;
	struct md_error why = {0};
	order->call = NULL;
	const json_t *last = json_array_get(order->left, json_array_size(order->left) - 1);
	if (answer && !md_etcd_succeeded(answer) && md_etcd_found(answer))
		md_error_set(&why, MD_ERR_BUSY,
			     "the key of ledger %s has been changed meanwhile, maybe because its node is back: it was "
			     "left so; look at it, and say it again if it is still wanted",
			     json_string_value(json_array_get(last, 0)));
	else if (!answer)
		why = *err;
	json_array_remove(order->left, json_array_size(order->left) - 1);
	if (why.status == MD_OK && json_array_size(order->left) && !remove_next(order))
		md_error_set(&why, MD_ERR_NO_MEMORY, "out of memory for a question to etcd");
	if (!order->call)
		end_order(order, why.status == MD_OK ? NULL : &why);
}

static bool remove_next(struct forget_order *order)
{
	const json_t *last = json_array_get(order->left, json_array_size(order->left) - 1);
	char key[400];
	snprintf(key, sizeof(key), "%s" FOLDER "%s", order->cluster->prefix,
		 json_string_value(json_array_get(last, 0)));
	struct md_etcd_pair pair = {key, NULL};
	order->call = md_etcd_put_if(order->cluster->etcd, json_integer_value(json_array_get(last, 1)), &pair, 1, 0,
				     on_removed, order);
	return order->call;
}

/* The last one that the folder of its --state has had. */
static bool is_newest(const struct md_ledgers *ledgers, const json_t *asked)
{
	const char *id;
	json_t *entry;
	json_object_foreach(ledgers->known, id,
			    entry) if (!strcmp(text_of(entry, "identity"), text_of(asked, "identity")) &&
				       number_of(entry, "first") > number_of(asked, "first")) return false;
	return true;
}

static const struct md_view_node *find_owner(const struct md_cluster *cluster, const char *identity)
{
	uint32_t count;
	struct md_view_node *const *nodes = md_view_nodes(cluster->view, &count);
	for (uint32_t i = 0; i < count; i++)
		if (nodes[i]->record && !strcmp(nodes[i]->record->identity, identity))
			return nodes[i];
	return NULL;
}

static void list_named(const struct md_ledgers *ledgers, const char *name, json_t *list)
{
	const char *id;
	json_t *entry;
	json_object_foreach(ledgers->known, id, entry) if (!strcmp(text_of(entry, "node"), name))
	    json_array_append_new(list, json_pack("[s, I]", id, (json_int_t)number_of(entry, "revision")));
}

static enum md_status list_wanted(const struct md_cluster *cluster, const char *name, json_t *list,
				  struct md_error *err)
{
	const struct md_ledgers *ledgers = cluster->ledgers;
	const struct md_view_node *node = md_view_find(cluster->view, name);
	const json_t *entry = json_object_get(ledgers->known, name);
	list_named(ledgers, name, list);
	if (json_array_size(list) && node && (node->record || *node->why))
		return md_error_set(
		    err, MD_ERR_BUSY,
		    "node %s is there%s: what it has used is in bills; of an earlier ledger of it say the ID, as "
		    "cluster bill names it",
		    name, node->ended ? ", although its lease has ended" : "");
	if (json_array_size(list))
		return MD_OK;
	if (!entry)
		return md_error_set(
		    err, MD_ERR_NOT_FOUND,
		    "no bill misses \"%.64s\": the name of a node that is gone, or the ID of a ledger, is wanted",
		    name);
	node = find_owner(cluster, text_of(entry, "identity"));
	if (node && is_newest(ledgers, entry))
		return md_error_set(err, MD_ERR_BUSY,
				    "node %s, whose ledger it is, is there: what it has used is in bills", node->name);
	json_array_append_new(list, json_pack("[s, I]", name, (json_int_t)number_of(entry, "revision")));
	return MD_OK;
}

void *md_ledgers_forget(struct md_cluster *cluster, const char *name,
			void (*done)(void *context, const struct md_error *err), void *context, struct md_error *err)
{
	struct forget_order *order = calloc(1, sizeof(*order));
	json_t *list = json_array();
	if (!order || !list)
		md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the order");
	else if (list_wanted(cluster, name, list, err) == MD_OK) {
		*order = (struct forget_order){.cluster = cluster, .left = list, .done = done, .context = context};
		if (remove_next(order))
			return order;
		md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a question to etcd");
	}
	json_decref(list);
	free(order);
	return NULL;
}

void md_ledgers_leave_order(void *context)
{
	((struct forget_order *)context)->done = NULL;
}
