/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/bill_verbs.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "json/tree_text.h"
#include "worker/cluster/cluster_bill.h"
#include "worker/cluster/cluster_ledgers.h"
#include "worker/core/worker.h"

#define UNSENT_MAX (256u << 10) /* bytes that wait for whoever asks: the node waits until they are sent */
#define DEADLINE_S_MAX 3600
#define TEXT_BYTES 3072u /* of a piece of the answer: a multiple of 3, so that base64 has no padding within */

/* Somebody who waits for an order on ledgers. */
struct ledger_waiter {
	struct md_control_call *call;
	void *order;
};

/* A bill that is passed on to whoever asks. */
struct bill_relay {
	struct md_control_call *call;
	struct md_bill_ask *ask;
};

/* ---- bill ---- */

static void on_asker_gone(void *context)
{
	struct bill_relay *relay = context;
	md_bill_ask_cancel(relay->ask);
	free(relay);
}

static void on_drained(void *context)
{
	struct bill_relay *relay = context;
	md_bill_ask_pause(relay->ask, false);
}

/* What a node says may be no JSON, and not even a text. */
static void on_piece(void *context, const char *bytes, size_t size)
{
	struct bill_relay *relay = context;
	char text[2 + sodium_base64_ENCODED_LEN(TEXT_BYTES, sodium_base64_VARIANT_ORIGINAL)];
	size_t unsent = 0;
	for (size_t at = 0, part; at < size; at += part) {
		part = size - at < TEXT_BYTES ? size - at : TEXT_BYTES;
		text[0] = ',';
		text[1] = '"';
		sodium_bin2base64(text + 2, sizeof(text) - 2, (const unsigned char *)bytes + at, part,
				  sodium_base64_VARIANT_ORIGINAL);
		size_t length = strlen(text);
		text[length] = '"'; /* instead of the NUL */
		unsent = md_control_answer_write(relay->call, text, length + 1);
	}
	if (unsent > UNSENT_MAX)
		md_bill_ask_pause(relay->ask, true);
}

static void on_ended(void *context, const char *why)
{
	struct bill_relay *relay = context;
	json_t *reason = why ? md_jansson_text(why) : NULL;
	MD_AUTO_FREE char *text = reason ? md_jansson_print(reason, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
	const char *said = text ? text : why ? "\"out of memory for the reason\"" : "null";
	static const char before[] = "],\"why\":", behind[] = "}";
	md_control_answer_write(relay->call, before, sizeof(before) - 1);
	md_control_answer_write(relay->call, said, strlen(said));
	md_control_answer_write(relay->call, behind, sizeof(behind) - 1);
	md_control_answer_end(relay->call);
	json_decref(reason);
	free(relay);
}

static const struct md_bill_ask_events asking = {.piece = on_piece, .ended = on_ended};

/* "node", "since": in seconds since 1970, "deadline_s": for which a node may say nothing. */
static void bill(struct md_worker *worker, struct md_control_call *call, const json_t *question)
{
	static const char begin[] = "{\"pieces\":[\"\"";
	const char *node = json_string_value(json_object_get(question, "node"));
	const json_t *since = json_object_get(question, "since"), *given = json_object_get(question, "deadline_s");
	json_int_t deadline = given ? json_integer_value(given) : MD_BILL_DEADLINE_S;
	struct md_error err = {0};
	if (!node || !json_is_integer(since) || json_integer_value(since) < 0 || deadline < 1 ||
	    deadline > DEADLINE_S_MAX) {
		md_control_refuse(call, MD_ERR_INVALID,
				  "cluster bill: node, since (seconds since 1970) and deadline_s (1 to %d) are wanted",
				  DEADLINE_S_MAX);
		return;
	}
	struct bill_relay *relay = calloc(1, sizeof(*relay));
	if (!relay) {
		md_control_refuse(call, MD_ERR_NO_MEMORY, "out of memory for the order");
		return;
	}
	relay->call = call;
	if (md_bill_ask_begin(worker->cluster, node, json_integer_value(since), (unsigned)deadline, &asking, relay,
			      &relay->ask, &err) != MD_OK) {
		free(relay);
		md_control_refuse(call, err.status, "%s", err.message);
		return;
	}
	md_control_watch(call, on_asker_gone, relay);
	md_control_answer_begin(call, on_drained);
	md_control_answer_write(call, begin, sizeof(begin) - 1);
}

/* ---- forget ---- */

static void on_order_gone(void *context)
{
	struct ledger_waiter *waiter = context;
	md_ledgers_leave_order(waiter->order);
	free(waiter);
}

static void on_forgotten(void *context, const struct md_error *err)
{
	struct ledger_waiter *waiter = context;
	if (err)
		md_control_refuse(waiter->call, err->status, "%s", err->message);
	else
		md_control_answer(waiter->call, json_object());
	free(waiter);
}

/* "node": its name, or a ledger's ID. */
static void forget(struct md_worker *worker, struct md_control_call *call, const json_t *question)
{
	const char *name = json_string_value(json_object_get(question, "node"));
	struct md_error err = {0};
	struct ledger_waiter *waiter = name ? calloc(1, sizeof(*waiter)) : NULL;
	if (!waiter) {
		md_control_refuse(call, name ? MD_ERR_NO_MEMORY : MD_ERR_INVALID, "%s",
				  name ? "out of memory for the order" : "the name of a node is wanted");
		return;
	}
	waiter->call = call;
	waiter->order = md_ledgers_forget(worker->cluster, name, on_forgotten, waiter, &err);
	if (waiter->order) {
		md_control_watch(call, on_order_gone, waiter);
		return;
	}
	free(waiter);
	md_control_refuse(call, err.status, "%s", err.message);
}

/* ---- all ---- */

bool md_bill_verbs_take(struct md_worker *worker, struct md_control_call *call, const char *order,
			const json_t *question)
{
	if (!strcmp(order, "ledgers"))
		md_control_answer(call, md_ledgers_report(worker->cluster));
	else if (!strcmp(order, "bill"))
		bill(worker, call, question);
	else if (!strcmp(order, "forget"))
		forget(worker, call, question);
	else
		return false;
	return true;
}
