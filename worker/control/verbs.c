/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/verbs.h"

#include <stdlib.h>
#include <string.h>

#include "worker/accounting/ledger.h"
#include "worker/cluster/cluster_report.h"
#include "worker/control/bill_verbs.h"
#include "worker/core/long_pages.h"

#define DRAIN_S 30 /* until requests that wait are refused, where nobody says */
#define DRAIN_S_MAX 86400

/* Somebody who waits for an order to be carried out. */
struct pending {
	struct md_verbs *verbs;
	struct pending *next; /* of those who wait for the drain */
	struct md_control_call *call;
	void (*forget)(void *order); /* what is under way for it */
	void *order;
	uint32_t gpu; /* that is drained; MEDUSA_SCHED_NONE: the daemon is */
};

struct md_verbs {
	struct md_worker *worker;
	struct pending *draining;
};

struct md_verbs *md_verbs_create(struct md_worker *worker)
{
	struct md_verbs *made = calloc(1, sizeof(*made));
	if (made)
		made->worker = worker;
	return made;
}

void md_verbs_destroy(struct md_verbs *verbs)
{
	free(verbs);
}

/* ---- waiting ---- */

static void on_gone(void *context)
{
	struct pending *pending = context;
	pending->forget(pending->order);
	free(pending);
}

static struct pending *wait_for(struct md_verbs *verbs, struct md_control_call *call, void (*forget)(void *order))
{
	struct pending *made = calloc(1, sizeof(*made));
	if (!made) {
		md_control_refuse(call, MD_ERR_NO_MEMORY, "out of memory for the order");
		return NULL;
	}
	*made = (struct pending){.verbs = verbs, .call = call, .forget = forget};
	md_control_watch(call, on_gone, made);
	return made;
}

static void refuse_order(struct pending *pending)
{
	md_control_refuse(pending->call, MD_ERR_NO_MEMORY, "out of memory for the order");
	free(pending);
}

/* NULL: it has been refused. */
static struct md_model *find(struct md_verbs *verbs, struct md_control_call *call, const json_t *question)
{
	const char *name = json_string_value(json_object_get(question, "model"));
	struct md_model *model = name ? md_models_find(verbs->worker, name) : NULL;
	if (!name) {
		md_control_refuse(call, MD_ERR_INVALID, "the question names no model");
	} else if (!model) {
		char why[300];
		md_models_tell_none(verbs->worker, name, why, sizeof(why));
		md_control_refuse(call, MD_ERR_NOT_FOUND, "%s", why);
	}
	return model;
}

/* ---- load ---- */

static void on_loaded(void *context, const char *why)
{
	struct pending *pending = context;
	if (why)
		md_control_refuse(pending->call, MD_ERR_UNSUPPORTED, "%s", why);
	else
		md_control_answer(pending->call, json_object());
	free(pending);
}

static void load(struct md_verbs *verbs, struct md_control_call *call, const json_t *question)
{
	struct md_model *model = find(verbs, call, question);
	struct pending *pending;
	if (!model)
		return;
	if (md_drain_is_on(verbs->worker->drain)) {
		md_control_refuse(call, MD_ERR_BUSY, "the daemon is being drained: nothing is loaded");
		return;
	}
	if (!(pending = wait_for(verbs, call, md_job_forget)))
		return;
	pending->order = md_job_load(model, on_loaded, pending);
	if (!pending->order)
		refuse_order(pending);
}

/* ---- unload ---- */

static void on_unloaded(void *context)
{
	struct pending *pending = context;
	md_control_answer(pending->call, json_object());
	free(pending);
}

/* "model": all without it. */
static void unload(struct md_verbs *verbs, struct md_control_call *call, const json_t *question)
{
	bool named = json_object_get(question, "model") != NULL;
	struct md_model *model = named ? find(verbs, call, question) : NULL;
	struct pending *pending;
	if (named && !model)
		return;
	if (!(pending = wait_for(verbs, call, md_unload_forget)))
		return;
	pending->order = md_unload_begin(verbs->worker, model, on_unloaded, pending);
	if (!pending->order)
		refuse_order(pending);
	else
		md_unload_look(verbs->worker);
}

/* ---- drain ---- */

static void leave_draining(void *context)
{
	struct pending *pending = context, **at = &pending->verbs->draining;
	while (*at != pending)
		at = &(*at)->next;
	*at = pending->next;
}

static bool is_on(const struct pending *pending)
{
	const struct md_worker *worker = pending->verbs->worker;
	return pending->gpu == MEDUSA_SCHED_NONE ? md_drain_is_on(worker->drain)
						 : md_gpus_is_drained(worker->gpus, pending->gpu);
}

static bool is_empty(const struct pending *pending)
{
	const struct md_worker *worker = pending->verbs->worker;
	return pending->gpu == MEDUSA_SCHED_NONE ? md_drain_is_empty(worker->drain)
						 : md_gpus_is_empty(worker, pending->gpu);
}

void md_verbs_look(struct md_verbs *verbs)
{
	for (struct pending *pending, **at = &verbs->draining; (pending = *at);) {
		if (is_on(pending) && !is_empty(pending)) {
			at = &pending->next;
			continue;
		}
		*at = pending->next;
		if (is_on(pending))
			md_control_answer(pending->call, json_object());
		else
			md_control_refuse(pending->call, MD_ERR_BUSY, "the drain was taken back by resume");
		free(pending);
	}
}

/* "gpu" of the question; MEDUSA_SCHED_NONE without one. False: it has been refused. */
static bool read_gpu(struct md_verbs *verbs, struct md_control_call *call, const json_t *question, uint32_t *gpu)
{
	const json_t *given = json_object_get(question, "gpu");
	uint32_t count;
	md_gpus_list(verbs->worker->gpus, &count);
	*gpu = MEDUSA_SCHED_NONE;
	if (!given)
		return true;
	if (json_is_integer(given) && json_integer_value(given) >= 0 && json_integer_value(given) < count) {
		*gpu = (uint32_t)json_integer_value(given);
		return true;
	}
	md_control_refuse(call, MD_ERR_NOT_FOUND, "gpu: a number from 0 to %u is wanted", count - 1);
	return false;
}

/*
 * "deadline_s": until requests that wait are refused; "exit": the daemon ends then. Answered when no request is left. With
 * "gpu", that GPU is drained instead, and the answer comes when no engine is left there.
 */
static void drain(struct md_verbs *verbs, struct md_control_call *call, const json_t *question)
{
	const json_t *given = json_object_get(question, "deadline_s");
	double seconds = given ? json_number_value(given) : DRAIN_S;
	struct pending *pending;
	uint32_t gpu;
	if (!read_gpu(verbs, call, question, &gpu))
		return;
	if ((given && !json_is_number(given)) || !(seconds >= 0 && seconds <= DRAIN_S_MAX)) {
		md_control_refuse(call, MD_ERR_INVALID, "deadline_s: a number of seconds from 0 to %d is wanted",
				  DRAIN_S_MAX);
		return;
	}
	if (!(pending = wait_for(verbs, call, leave_draining)))
		return;
	pending->order = pending;
	pending->gpu = gpu;
	pending->next = verbs->draining;
	verbs->draining = pending;
	if (gpu != MEDUSA_SCHED_NONE)
		md_gpus_drain(verbs->worker, gpu);
	else
		md_drain_begin(verbs->worker->drain, (uint64_t)(seconds * 1000),
			       json_is_true(json_object_get(question, "exit")), false);
	md_verbs_look(verbs);
}

static void resume(struct md_verbs *verbs, struct md_control_call *call, const json_t *question)
{
	uint32_t gpu;
	if (!read_gpu(verbs, call, question, &gpu))
		return;
	if (gpu != MEDUSA_SCHED_NONE)
		md_gpus_resume(verbs->worker, gpu);
	else
		md_drain_undo(verbs->worker->drain);
	if (gpu == MEDUSA_SCHED_NONE && md_drain_is_on(verbs->worker->drain))
		md_control_refuse(call, MD_ERR_BUSY, "the daemon is to end, which cannot be taken back");
	else
		md_control_answer(call, json_object());
	md_verbs_look(verbs);
}

/* ---- reload ---- */

static void on_reloaded(void *context, const struct md_reload_result *result)
{
	struct pending *pending = context;
	if (result->status != MD_OK)
		md_control_refuse(pending->call, result->status, "%s", result->message);
	else
		md_control_answer(pending->call,
				  json_pack("{s:I, s:I, s:I, s:I, s:s}", "added", (json_int_t)result->added, "removed",
					    (json_int_t)result->removed, "changed", (json_int_t)result->changed,
					    "renewed", (json_int_t)result->renewed, "later", result->later));
	free(pending);
}

static void reload(struct md_verbs *verbs, struct md_control_call *call, const json_t *question)
{
	struct pending *pending = wait_for(verbs, call, md_reload_forget);
	(void)question;
	if (!pending)
		return;
	pending->order = md_reload_begin(verbs->worker->reload, on_reloaded, pending);
	if (!pending->order)
		refuse_order(pending);
}

/* ---- long answers ---- */

static void release(void *context)
{
	md_printed_let_go(context);
}

static void on_printed(void *context, struct md_printed *text)
{
	struct pending *pending = context;
	if (text) {
		md_printed_hold(text);
		md_control_answer_text(pending->call, text->bytes, text->size, release, text);
	} else {
		md_control_refuse(pending->call, MD_ERR_NO_MEMORY, "out of memory for the answer");
	}
	free(pending);
}

static void forget_page(void *order)
{
	md_printer_forget(order);
}

static void order_page(struct pending *pending, enum md_page page)
{
	pending->forget = forget_page;
	pending->order = md_printer_order(md_long_pages_get(pending->verbs->worker->pages, page), on_printed, pending);
	if (!pending->order)
		refuse_order(pending);
}

static void answer_page(struct md_verbs *verbs, struct md_control_call *call, enum md_page page)
{
	struct pending *pending = wait_for(verbs, call, forget_page);
	if (pending)
		order_page(pending, page);
}

/* ---- bill ---- */

static void on_summed(void *context, char *text, const struct md_error *err)
{
	struct pending *pending = context;
	if (err->status != MD_OK)
		md_control_refuse(pending->call, err->status, "medusa.state: %s", err->message);
	else
		md_control_answer_text(pending->call, text, strlen(text), free, text);
	free(pending);
}

/* "since": in seconds since 1970. */
static void bill(struct md_verbs *verbs, struct md_control_call *call, const json_t *question)
{
	struct md_ledger *ledger = verbs->worker->ledger;
	const json_t *since = json_object_get(question, "since");
	struct pending *pending;
	if (!json_is_integer(since) || json_integer_value(since) < 0) {
		md_control_refuse(call, MD_ERR_INVALID, "since: a number of seconds since 1970 is wanted");
		return;
	}
	if (!ledger) {
		md_control_refuse(call, MD_ERR_UNSUPPORTED,
				  "nothing is kept: set medusa.state to the path of a file, and start the daemon anew");
		return;
	}
	if (!(pending = wait_for(verbs, call, md_ledger_forget)))
		return;
	pending->order = md_ledger_sum(ledger, json_integer_value(since), on_summed, pending);
	if (!pending->order)
		refuse_order(pending);
}

/* ---- trace ---- */

static void on_flushed(void *context, char *text, const struct md_error *err)
{
	struct pending *pending = context;
	free(text);
	if (err->status != MD_OK) {
		md_control_refuse(pending->call, err->status, "medusa.state: %s", err->message);
		free(pending);
	} else {
		order_page(pending, MD_PAGE_CONTROL_TRACE);
	}
}

/* Whoever asks reads the requests from the file, to which all that have ended are written first. */
static void trace(struct md_verbs *verbs, struct md_control_call *call, const json_t *question)
{
	struct md_ledger *ledger = verbs->worker->ledger;
	struct pending *pending;
	(void)question;
	if (!ledger || !verbs->worker->config->node.trace_ns) {
		md_control_refuse(
		    call, MD_ERR_UNSUPPORTED,
		    "no requests are kept: set medusa.state to the path of a file, and medusa.trace_time, and "
		    "start the daemon anew");
		return;
	}
	if (!(pending = wait_for(verbs, call, md_ledger_forget)))
		return;
	pending->order = md_ledger_flush(ledger, on_flushed, pending);
	if (!pending->order)
		refuse_order(pending);
}

/* ---- questions ---- */

static void status(struct md_verbs *verbs, struct md_control_call *call, const json_t *question)
{
	(void)question;
	answer_page(verbs, call, MD_PAGE_CONTROL_STATUS);
}

static void models(struct md_verbs *verbs, struct md_control_call *call, const json_t *question)
{
	(void)question;
	answer_page(verbs, call, MD_PAGE_CONTROL_MODELS);
}

/* ---- the cluster ---- */

static void on_wish_written(void *context, const struct md_error *err)
{
	struct pending *pending = context;
	if (err)
		md_control_refuse(pending->call, err->status, "%s", err->message);
	else
		md_control_answer(pending->call, json_object());
	free(pending);
}

/* "node": for which it is wished. */
static void wish(struct md_verbs *verbs, struct md_control_call *call, const json_t *question,
		 enum md_cluster_wish wanted)
{
	struct md_cluster *cluster = verbs->worker->cluster;
	const char *node = json_string_value(json_object_get(question, "node"));
	struct pending *pending;
	if (!node || !md_config_is_node_name(node) || !md_cluster_has(cluster, node)) {
		md_control_refuse(call, node ? MD_ERR_NOT_FOUND : MD_ERR_INVALID, "the cluster has no node \"%.64s\"",
				  node ? node : "");
		return;
	}
	if (!(pending = wait_for(verbs, call, md_cluster_forget)))
		return;
	pending->order = md_cluster_wish(cluster, node, wanted, on_wish_written, pending);
	if (!pending->order)
		refuse_order(pending);
}

/* "model", "node": none: the leader places the model again. */
static void move(struct md_verbs *verbs, struct md_control_call *call, const json_t *question, bool released)
{
	struct md_cluster *cluster = verbs->worker->cluster;
	const char *model = json_string_value(json_object_get(question, "model"));
	const char *node = json_string_value(json_object_get(question, "node"));
	struct md_error err = {0};
	struct pending *pending;
	if (!model || !*model || (!released && !node))
		md_error_set(&err, MD_ERR_INVALID, "a model is wanted, and the name of a node");
	else
		md_cluster_can_move(cluster, model, released ? NULL : node, &err);
	if (err.status != MD_OK) {
		md_control_refuse(call, err.status, "%s", err.message);
		return;
	}
	if (!(pending = wait_for(verbs, call, md_cluster_forget)))
		return;
	pending->order = md_cluster_move(cluster, model, released ? NULL : node, on_wish_written, pending);
	if (!pending->order)
		refuse_order(pending);
}

/* "do": status, nodes, models, tenants, drain, cordon, uncordon, move, release; and what bill_verbs.h has. */
static void cluster(struct md_verbs *verbs, struct md_control_call *call, const json_t *question)
{
	static const struct {
		const char *name;
		enum md_cluster_wish wish;
	} wishes[] = {{"drain", MD_CLUSTER_DRAIN}, {"cordon", MD_CLUSTER_CORDON}, {"uncordon", MD_CLUSTER_UNCORDON}};
	const struct md_cluster *at = verbs->worker->cluster;
	const char *order = json_string_value(json_object_get(question, "do"));
	order = order ? order : "";
	if (!at) {
		md_control_refuse(call, MD_ERR_UNSUPPORTED,
				  "this daemon is in no cluster: start it with --cluster URL, or set "
				  "medusa.cluster.endpoints");
		return;
	}
	for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++)
		if (!strcmp(order, wishes[i].name)) {
			wish(verbs, call, question, wishes[i].wish);
			return;
		}
	if (md_bill_verbs_take(verbs->worker, call, order, question))
		return;
	if (!strcmp(order, "move") || !strcmp(order, "release"))
		move(verbs, call, question, *order == 'r');
	else if (!strcmp(order, "status"))
		md_control_answer(call, md_cluster_report(at));
	else if (!strcmp(order, "nodes"))
		md_control_answer(call, json_pack("{s:o}", "nodes", md_cluster_report_nodes(at)));
	else if (!strcmp(order, "models"))
		answer_page(verbs, call, MD_PAGE_CLUSTER_MODELS);
	else if (!strcmp(order, "tenants"))
		md_control_answer(call, json_pack("{s:o}", "tenants", md_cluster_report_tenants(at)));
	else
		md_control_refuse(call, MD_ERR_UNSUPPORTED, "cluster: this daemon does not know \"%.64s\"", order);
}

/* ---- all ---- */

static const struct {
	const char *name;
	void (*take)(struct md_verbs *verbs, struct md_control_call *call, const json_t *question);
} known[] = {
    {"status", status}, {"models", models}, {"load", load}, {"unload", unload}, {"drain", drain},
    {"resume", resume}, {"reload", reload}, {"bill", bill}, {"trace", trace},   {"cluster", cluster},
};

void md_verbs_take(void *context, struct md_control_call *call, const char *verb, const json_t *question)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(known[i].name, verb) != 0)
			continue;
		known[i].take(context, call, question);
		return;
	}
	md_control_refuse(call, MD_ERR_UNSUPPORTED, "this daemon does not know the verb \"%.64s\"", verb);
}
