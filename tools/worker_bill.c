/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/worker_bill.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/thread.h"
#include "json/tree_text.h"
#include "tools/worker_bill_read.h"
#include "tools/worker_print.h"
#include "worker/control/control_ask.h"

#define ASKED_AT_ONCE 8u   /* nodes */
#define CLOCKS_APART_S 60  /* of a node and of this machine: more is said */
#define CLOCKS_MOST_S 3600 /* the last row of a ledger may be so much later than it says */

/* What is known of the bill; the mutex guards it while threads ask. */
struct whole {
	const struct md_worker_bill *wanted;
	pthread_mutex_t mutex;
	json_t *nodes;    /* as the daemon lists them */
	size_t next;      /* of them, to be asked */
	json_t *asked;    /* [{"node", "identity", "ledger", "rows", "clock_s"}] */
	json_t *missing;  /* [{"node", "ledger", "why"}] */
	json_t *failed;   /* {NODE: why} */
	json_t *said;     /* {NODE: true}: of these, those that `missing` has */
	json_t *counted;  /* {LEDGER: NODE} */
	json_t *shown;    /* {LEDGER: IDENTITY} of the same */
	json_t *answered; /* {IDENTITY: NODE} */
	struct md_bill_sums *sums;
	struct md_error err; /* there is no bill */
};

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static json_t *text_or_null(const char *text)
{
	return text ? json_string(text) : json_null();
}

static void miss(struct whole *whole, const char *node, const char *ledger, const char *why)
{
	json_array_append_new(whole->missing, json_pack("{s:o, s:o, s:o}", "node", text_or_null(node), "ledger",
							text_or_null(ledger), "why", md_jansson_text(why)));
}

/* ---- one node ---- */

/* What the daemon was told, put together; false: out of memory, or it is no base64. */
static bool decode(const json_t *pieces, struct md_buf *text)
{
	const json_t *piece;
	size_t i, got;
	json_array_foreach(pieces, i, piece)
	{
		const char *from = json_string_value(piece);
		size_t size = json_string_length(piece), before = text->size;
		unsigned char *room = from ? md_buf_extend(text, size / 4 * 3 + 3) : NULL;
		if (!room || sodium_base642bin(room, text->size - before, from, size, NULL, &got, NULL,
					       sodium_base64_VARIANT_ORIGINAL))
			return false;
		text->size = before + got;
	}
	return true;
}

/* Of the time in which the node was asked, and of its clock. */
static int64_t clock_off(int64_t began, int64_t ended, int64_t now)
{
	return now < began ? now - began : now > ended ? now - ended : 0;
}

/* By etcd; NULL: it is not known. */
static const char *identity_of(const struct whole *whole, const char *node)
{
	const json_t *one;
	size_t i;
	json_array_foreach(whole->nodes, i, one) if (!strcmp(text_of(one, "node"), node)) return text_of(one,
													 "identity");
	return NULL;
}

/* With the mutex held: all of it counts, or nothing. */
static enum md_status count(struct whole *whole, const char *node, struct md_buf *text, int64_t began,
			    struct md_error *err)
{
	struct md_bill_said said;
	char *bytes = (char *)text->data;
	MD_FORWARD(md_bill_read_head(bytes, text->size, node, whole->wanted->since, &said, err));
	const char *other = text_of(whole->counted, said.ledger), *identity = identity_of(whole, node);
	if (!identity || strcmp(identity, said.identity) != 0)
		return md_error_set(err, MD_ERR_CORRUPT, "it says that its identity is %s, and etcd has another one",
				    said.identity);
	json_object_set_new(whole->answered, said.identity, json_string(node));
	if (other)
		return md_error_set(
		    err, MD_ERR_CORRUPT,
		    "it has the same ledger as node %.64s, or a copy of it, which has been counted: each "
		    "node needs a medusa.state of its own",
		    other);
	MD_FORWARD(md_bill_sums_add(whole->sums, bytes, text->size, node, &said, err));
	int64_t off = clock_off(began, time(NULL), said.now);
	json_object_set_new(whole->counted, said.ledger, json_string(node));
	json_object_set_new(whole->shown, said.ledger, json_string(said.identity));
	json_array_append_new(whole->asked,
			      json_pack("{s:s, s:s, s:s, s:I, s:I}", "node", node, "identity", said.identity, "ledger",
					said.ledger, "rows", (json_int_t)said.rows, "clock_s", (json_int_t)off));
	if (said.lost) {
		char why[160];
		snprintf(why, sizeof(why), "%" PRIu64 " requests could not be written to its ledger since it began",
			 said.lost);
		miss(whole, node, said.ledger, why);
	}
	return MD_OK;
}

static void take(struct whole *whole, const char *node, const json_t *answer, int64_t began)
{
	const char *why = text_of(answer, "why");
	struct md_error err = {0};
	struct md_buf text = {0};
	if (!why && !decode(json_object_get(answer, "pieces"), &text))
		md_error_set(&err, MD_ERR_NO_MEMORY, "out of memory for its bill");
	pthread_mutex_lock(&whole->mutex);
	if (!why && err.status == MD_OK)
		count(whole, node, &text, began, &err);
	if (err.status == MD_ERR_IO)
		whole->err = err;
	if (why || err.status != MD_OK)
		json_object_set_new(whole->failed, node, md_jansson_text(why ? why : err.message));
	pthread_mutex_unlock(&whole->mutex);
	md_buf_finish(&text);
}

/* The daemon itself may have ended, with which there is no bill; else it says why there is none of this node. */
static void refuse(struct whole *whole, const char *node, const struct md_error *err)
{
	pthread_mutex_lock(&whole->mutex);
	if (err->status == MD_ERR_IO)
		whole->err = *err;
	json_object_set_new(whole->failed, node, md_jansson_text(err->message));
	pthread_mutex_unlock(&whole->mutex);
}

static void ask(struct whole *whole, const char *node)
{
	const struct md_worker_bill *wanted = whole->wanted;
	struct md_error err = {0};
	json_t *answer = NULL;
	int64_t began = time(NULL);
	json_t *question = json_pack("{s:s, s:s, s:s, s:I, s:i}", "verb", "cluster", "do", "bill", "node", node,
				     "since", (json_int_t)wanted->since, "deadline_s", (int)wanted->deadline_s);
	if (md_control_ask(wanted->socket, question, &answer, &err) == MD_OK)
		take(whole, node, answer, began);
	else
		refuse(whole, node, &err);
	json_decref(answer);
}

static void *ask_nodes(void *argument)
{
	struct whole *whole = argument;
	for (;;) {
		pthread_mutex_lock(&whole->mutex);
		const json_t *node = whole->err.status == MD_OK ? json_array_get(whole->nodes, whole->next++) : NULL;
		pthread_mutex_unlock(&whole->mutex);
		if (!node)
			return NULL;
		ask(whole, text_of(node, "node"));
	}
}

static void ask_all(struct whole *whole)
{
	pthread_t threads[ASKED_AT_ONCE];
	unsigned begun = 0;
	size_t count = json_array_size(whole->nodes);
	while (begun < ASKED_AT_ONCE && begun < count && !md_thread_start(&threads[begun], ask_nodes, whole))
		begun++;
	if (!begun)
		ask_nodes(whole);
	while (begun)
		pthread_join(threads[--begun], NULL);
}

/* ---- what is missing ---- */

static void print_time(int64_t seconds, char text[32])
{
	struct tm at;
	time_t day = (time_t)seconds;
	if (!gmtime_r(&day, &at) || !strftime(text, 32, "%Y-%m-%d", &at))
		snprintf(text, 32, "?");
}

/* A ledger that the cluster has had, and that nobody has shown. */
static void judge_ledger(struct whole *whole, const json_t *ledger)
{
	const char *id = text_of(ledger, "ledger"), *node = text_of(ledger, "node");
	const char *identity = text_of(ledger, "identity"), *bad = text_of(ledger, "why");
	const char *there = identity ? text_of(whole->answered, identity) : NULL;
	const char *copied = text_of(ledger, "copy_of"), *of = copied ? copied : id;
	json_int_t until = json_integer_value(json_object_get(ledger, "until"));
	char why[300], first[32];
	const char *shown =
	    of ? text_of(whole->shown, of) : NULL; /* by which folder of --state: each has rows of its own */
	print_time(json_integer_value(json_object_get(ledger, "first")), first);
	if (!id || (shown && (!identity || !strcmp(shown, identity))) || (there && !strcmp(id, identity)))
		return;
	if (until && until + CLOCKS_MOST_S < whole->wanted->since)
		return;
	if (node && json_object_get(whole->said, node) && (shown || !there))
		return; /* which is said with the reason */
	if (shown && copied)
		snprintf(why, sizeof(why),
			 "node %.64s shows the ledger of which this one is a copy: what only this one had is not there",
			 text_of(whole->counted, of));
	else if (shown)
		snprintf(why, sizeof(why), "node %.64s shows it, or a copy of it", text_of(whole->counted, of));
	else if (bad)
		snprintf(why, sizeof(why), "its key in etcd can't be read: %.200s", bad);
	else if (there)
		snprintf(why, sizeof(why),
			 "node %.64s has another ledger now, and this one, first seen on %s, is not there", there,
			 first);
	else
		snprintf(why, sizeof(why), "it is not there; its ledger was first seen on %s", first);
	miss(whole, node, id, why);
}

static void judge(struct whole *whole, const json_t *known)
{
	const char *node, *why = text_of(known, "why");
	const json_t *reason, *one;
	size_t i;
	json_object_foreach(whole->failed, node, reason)
	{
		const char *identity = identity_of(whole, node);
		const char *there = identity ? text_of(whole->answered, identity) : NULL;
		if (there && strcmp(there, node) != 0)
			continue; /* its folder of --state has another name now, and was counted */
		miss(whole, node, NULL, json_string_value(reason));
		json_object_set_new(whole->said, node, json_true());
	}
	json_array_foreach(json_object_get(known, "ledgers"), i, one) judge_ledger(whole, one);
	if (!json_is_true(json_object_get(known, "current")))
		miss(whole, NULL, NULL, why ? why : "the nodes of the cluster are not known");
}

static int compare(const void *a, const void *b)
{
	const char *one = text_of(*(json_t *const *)a, "node"), *other = text_of(*(json_t *const *)b, "node");
	return strcmp(one ? one : "", other ? other : "");
}

/* By their nodes: threads end in any order. Takes over the reference. NULL: out of memory. */
static json_t *sort(json_t *list)
{
	size_t count = json_array_size(list);
	MD_AUTO_FREE json_t **items = calloc(count + 1, sizeof(json_t *));
	json_t *sorted = items ? json_array() : NULL;
	for (size_t i = 0; sorted && i < count; i++)
		items[i] = json_array_get(list, i);
	if (sorted)
		qsort(items, count, sizeof(json_t *), compare);
	for (size_t i = 0; sorted && i < count; i++)
		json_array_append(sorted, items[i]);
	json_decref(list);
	return sorted;
}

/* ---- printing ---- */

static void say_missing(const struct whole *whole)
{
	const json_t *one;
	size_t i;
	json_array_foreach(whole->asked, i, one)
	{
		json_int_t off = json_integer_value(json_object_get(one, "clock_s"));
		if (off > CLOCKS_APART_S || off < -CLOCKS_APART_S)
			md_options_say(whole->wanted->command,
				       "the clock of node %s is %lld s %s: its rows since then are by that clock",
				       text_of(one, "node"), (long long)(off < 0 ? -off : off),
				       off < 0 ? "behind" : "ahead");
	}
	json_array_foreach(whole->missing, i, one)
	{
		const char *node = text_of(one, "node"), *ledger = text_of(one, "ledger");
		md_options_say(whole->wanted->command, "the bill is incomplete: %s%s%s%s%s%s", node ? "node " : "",
			       node ? node : "", ledger ? node ? ", ledger " : "ledger " : "", ledger ? ledger : "",
			       node || ledger ? ": " : "", text_of(one, "why"));
	}
}

struct printed {
	const struct md_worker_bill *wanted;
	bool begun;
};

static bool print_row(void *context, const json_t *row)
{
	struct printed *printed = context;
	if (!printed->wanted->json) {
		md_worker_print_bill_row(row, printed->wanted->csv);
		return true;
	}
	MD_AUTO_FREE char *text = md_jansson_print(row, JSON_COMPACT);
	if (text)
		printf("%s%s", printed->begun ? "," : "", text);
	printed->begun = true;
	return text;
}

/* Rows are printed one by one: there may be many. */
static enum md_status print(struct whole *whole, struct md_error *err)
{
	const struct md_worker_bill *wanted = whole->wanted;
	struct printed printed = {.wanted = wanted};
	if (!wanted->json) {
		md_worker_print_bill_head(wanted->by_node, wanted->csv);
		return md_bill_sums_visit(whole->sums, print_row, &printed, err);
	}
	json_t *head = json_pack("{s:b, s:I, s:O, s:O}", "complete", !json_array_size(whole->missing), "since",
				 (json_int_t)(wanted->since - wanted->since % 60), "nodes", whole->asked, "missing",
				 whole->missing);
	MD_AUTO_FREE char *text = head ? md_jansson_print(head, JSON_COMPACT) : NULL;
	json_decref(head);
	if (!text)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the bill");
	printf("%.*s,\"usage\":[", (int)strlen(text) - 1, text);
	enum md_status status = md_bill_sums_visit(whole->sums, print_row, &printed, err);
	if (status == MD_OK)
		printf("]}\n");
	return status;
}

/* ---- all of it ---- */

static enum md_status add_up(struct whole *whole, bool *complete, struct md_error *err)
{
	json_t *known = NULL;
	MD_FORWARD(md_control_ask(whole->wanted->socket, json_pack("{s:s, s:s}", "verb", "cluster", "do", "ledgers"),
				  &known, err));
	whole->nodes = json_object_get(known, "nodes");
	ask_all(whole);
	if (whole->err.status == MD_OK) {
		judge(whole, known);
		whole->asked = sort(whole->asked);
		whole->missing = sort(whole->missing);
	}
	json_decref(known);
	if (whole->err.status != MD_OK)
		return md_error_set(err, whole->err.status, "%s", whole->err.message);
	if (!whole->asked || !whole->missing)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the bill");
	MD_FORWARD(print(whole, err));
	say_missing(whole);
	*complete = !json_array_size(whole->missing);
	return MD_OK;
}

enum md_status md_worker_bill_cluster(const struct md_worker_bill *wanted, bool *complete, struct md_error *err)
{
	struct whole whole = {.wanted = wanted,
			      .mutex = PTHREAD_MUTEX_INITIALIZER,
			      .asked = json_array(),
			      .missing = json_array(),
			      .failed = json_object(),
			      .said = json_object(),
			      .counted = json_object(),
			      .shown = json_object(),
			      .answered = json_object()};
	enum md_status status = md_bill_sums_create(wanted->by_node, &whole.sums, err);
	if (status == MD_OK && !(whole.asked && whole.missing && whole.failed && whole.said && whole.counted &&
				 whole.shown && whole.answered))
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the bill");
	if (status == MD_OK)
		status = add_up(&whole, complete, err);
	md_bill_sums_destroy(whole.sums);
	json_decref(whole.asked);
	json_decref(whole.missing);
	json_decref(whole.failed);
	json_decref(whole.said);
	json_decref(whole.counted);
	json_decref(whole.shown);
	json_decref(whole.answered);
	return status;
}
