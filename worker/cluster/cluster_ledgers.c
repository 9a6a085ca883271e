/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/cluster_ledgers.h"

#include <sodium.h>
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
	char key[40];    /* under which it stands, or is to stand: the ID, or that of a copy; "": not known yet */
	bool unreadable; /* the ledger's file can't be opened, as far as was tried */
	struct identity_question *question;
	bool stands, serves, leaving;
	int64_t revision; /* by which the key was changed last, as far as is known */
	int64_t first;    /* as it stands there; 0: not known */
	struct md_etcd_call *call;
	struct event *turn;
	uint64_t rests;    /* md_clock_ns() */
	char stranger[64]; /* the identity of a node that has no key; "": none */
	char stranger_name[72];
	unsigned stranger_looks;
};

const json_t *md_ledgers_known(const struct md_ledgers *ledgers)
{
	return ledgers->known;
}

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
	const json_t *copy_of = json_object_get(root, "copy_of");
	bool good = md_config_is_node_name(node) && is_id(identity) && json_is_integer(first) &&
		    json_integer_value(first) >= 0 &&
		    (!until || (json_is_integer(until) && json_integer_value(until) > 0)) &&
		    (!copy_of || is_id(text_of(root, "copy_of")));
	if (root && !good)
		md_error_set(&err, MD_ERR_CORRUPT, "node, identity and first, and maybe until and copy_of, are wanted");
	if (!good)
		md_warn("cluster: %.200s can't be read: %s: %s", key, err.message, md_record_remedy(err.status, false));
	json_t *entry = json_pack(
	    "{s:o, s:o, s:I, s:I, s:I, s:o}", "node", good ? json_string(node) : json_null(), "identity",
	    good ? json_string(identity) : json_null(), "first", good ? json_integer_value(first) : (json_int_t)0,
	    "until", good && until ? json_integer_value(until) : (json_int_t)0, "revision",
	    (json_int_t)md_etcd_number(pair, "mod_revision"), "why", good ? json_null() : md_jansson_text(err.message));
	if (good && copy_of)
		json_object_set(entry, "copy_of", (json_t *)copy_of);
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
	if (*ledgers->key && !json_object_get(ledgers->known, ledgers->key))
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
	if (!strcmp(id, ledgers->key) && (!entry || !is_ours(ledgers, entry)))
		doubt(ledgers);
	if (entry)
		json_object_set_new(entries, id, entry);
	else
		json_object_del(entries, id);
}

/* ---- this node's key ---- */

/* NULL: out of memory. copy_of: NULL: it is no copy. until: 0: none. */
static char *print_value(const char *node, const char *identity, const char *copy_of, int64_t first, int64_t until)
{
	json_t *value = json_pack("{s:i, s:s, s:s, s:I}", "format", MD_RECORD_FORMAT, "node", node, "identity",
				  identity, "first", (json_int_t)first);
	if (value && copy_of)
		json_object_set_new(value, "copy_of", json_string(copy_of));
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

static const char *copied_from(const struct md_ledgers *ledgers)
{
	return strcmp(ledgers->key, ledgers->id) != 0 ? ledgers->id : NULL;
}

static void on_put(void *context, const json_t *answer, const struct md_error *err);

static void put(struct md_ledgers *ledgers, int64_t revision)
{
	const struct md_cluster *cluster = ledgers->cluster;
	ledgers->first = ledgers->first ? ledgers->first : (int64_t)time(NULL);
	char *value = print_value(cluster->name, cluster->identity, copied_from(ledgers), ledgers->first, 0);
	if (!write_key(ledgers, ledgers->key, value, revision, on_put))
		ledgers->rests = md_clock_ns() + AGAIN_NS;
}

static void take_stand(struct md_ledgers *ledgers, int64_t revision)
{
	ledgers->stands = true;
	ledgers->revision = revision;
	wait_turn(ledgers);
}

/*
 * Another folder of --state has, or had, this ledger. Nobody can tell whether this file is all of it, or a copy to which rows are lacking that the other node
 * has written since. So the other node's key stays, and this node has one of its own: a bill misses each of both that it does not get rows from.
 */
static void stand_beside(struct md_ledgers *ledgers, const char *other)
{
	const struct md_cluster *cluster = ledgers->cluster;
	unsigned char hash[(MD_BILL_ID_BYTES - 1) / 2];
	char both[2 * sizeof(ledgers->id)];
	snprintf(both, sizeof(both), "%s%s", ledgers->id, cluster->identity);
	crypto_generichash(hash, sizeof(hash), (const unsigned char *)both, strlen(both), NULL, 0);
	sodium_bin2hex(ledgers->key, sizeof(ledgers->key), hash, sizeof(hash));
	ledgers->first = 0;
	md_error_log(
	    "cluster: node %s has, or had, the same ledger as this one, or a copy of it (%.200s): each node needs a "
	    "medusa.state of its own. If that node is gone and this is its file, say: medusa-workerctl "
	    "cluster forget %s",
	    other, cluster->worker->config->node.state ? cluster->worker->config->node.state : "-", other);
	put(ledgers, 0);
}

/* What stands there is of this ledger's earlier life, under another name or with the time at which it ended, or of another node. */
static void judge_found(struct md_ledgers *ledgers, const json_t *found)
{
	struct md_buf text = {0};
	json_t *entry = md_etcd_bytes(found, "value", &text) ? read_entry(FOLDER, found, &text) : NULL;
	md_buf_finish(&text);
	const char *identity = text_of(entry, "identity");
	int64_t first = number_of(entry, "first"), revision = md_etcd_number(found, "mod_revision");
	if (*identity && strcmp(identity, ledgers->cluster->identity) != 0 && !copied_from(ledgers)) {
		stand_beside(ledgers, text_of(entry, "node"));
		json_decref(entry);
		return;
	}
	ledgers->first = first ? first : ledgers->first;
	if (entry && is_ours(ledgers, entry))
		take_stand(ledgers, revision);
	else if (found)
		put(ledgers, revision);
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

static void name_ledger(struct md_ledgers *ledgers, const char *id)
{
	snprintf(ledgers->id, sizeof(ledgers->id), "%s", id);
	snprintf(ledgers->key, sizeof(ledgers->key), "%s", id);
}

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
		name_ledger(ledgers, ledgers->unreadable ? "" : question->id);
		wait_turn(ledgers);
	}
	free(question);
}

/* A node that keeps nothing is missed by its own identity. */
static void find_id(struct md_ledgers *ledgers)
{
	struct md_ledger *ledger = ledgers->cluster->worker->ledger;
	if (!ledger) {
		name_ledger(ledgers, ledgers->cluster->identity);
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
			  print_value(ledgers->stranger_name, ledgers->stranger, NULL, (int64_t)time(NULL), 0), 0,
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
		write_key(ledgers, ledgers->key,
			  print_value(cluster->name, cluster->identity, copied_from(ledgers), ledgers->first,
				      (int64_t)time(NULL) + LAST_ROWS_S),
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
	    list, json_pack("{s:s, s:o, s:O, s:O, s:O, s:O, s:O}", "ledger", id, "copy_of",
			    text_or_null(text_of(entry, "copy_of")), "node", json_object_get(entry, "node"), "identity",
			    json_object_get(entry, "identity"), "first", json_object_get(entry, "first"), "until",
			    json_object_get(entry, "until"), "why", json_object_get(entry, "why")));
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
