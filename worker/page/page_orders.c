/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/page/page_orders.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "worker/core/reply.h"

/* A client that waits until its order has been carried out. */
struct waiting {
	struct md_http_exchange *exchange;
	void (*forget)(void *order);
	void *order;
	bool as_json;
};

static void on_gone(void *context)
{
	struct waiting *waiting = context;
	waiting->forget(waiting->order);
	free(waiting);
}

static struct waiting *wait_for(struct md_http_exchange *exchange, void (*forget)(void *order), bool as_json)
{
	struct waiting *made = calloc(1, sizeof(*made));
	if (made)
		*made = (struct waiting){.exchange = exchange, .forget = forget, .as_json = as_json};
	return made;
}

/* order NULL: out of memory. False: the client was told that. */
static bool begin(struct waiting *waiting, struct md_http_exchange *exchange, void *order)
{
	static const struct md_http_exchange_events events = {.gone = on_gone};
	if (!order) {
		free(waiting);
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, NULL, "out of memory for the order");
		return false;
	}
	waiting->order = order;
	md_http_exchange_watch(exchange, &events, waiting);
	return true;
}

static void answer_done(struct waiting *waiting)
{
	if (waiting->as_json)
		md_reply_json(waiting->exchange, 200, json_pack("{s:s}", "msg", "ok"));
	else
		md_reply_text(waiting->exchange, 200, "text/plain; charset=utf-8", "OK");
	free(waiting);
}

/*
 * A page of another site can have its reader's browser send orders, with the reader's password and from this machine. Browsers say so
 * (Fetch Metadata), and what is no browser does not. True: the client was told.
 */
bool md_page_orders_refuse_other_site(struct md_http_exchange *exchange, const char *what)
{
	const char *site = md_http_head_find(md_http_exchange_head(exchange), "Sec-Fetch-Site");
	if (!site || strcasecmp(site, "cross-site") != 0)
		return false;
	md_reply_error(exchange, MD_REPLY_FORBIDDEN, "other_site",
		       "a page of another site may not %s (Sec-Fetch-Site: %s)", what, site);
	return true;
}

/* ---- unload ---- */

static void on_unloaded(void *context)
{
	answer_done(context);
}

void md_page_orders_unload(struct md_worker *worker, struct md_http_exchange *exchange, struct md_model *model,
			   bool as_json)
{
	if (md_page_orders_refuse_other_site(exchange, "load or unload models"))
		return;
	struct waiting *waiting = wait_for(exchange, md_unload_forget, as_json);
	if (begin(waiting, exchange, waiting ? md_unload_begin(worker, model, on_unloaded, waiting) : NULL))
		md_unload_look(worker);
}

/* ---- load ---- */

static void on_loaded(void *context, const char *why)
{
	struct waiting *waiting = context;
	if (!why) {
		answer_done(waiting);
		return;
	}
	md_reply_error(waiting->exchange, MD_REPLY_UPSTREAM, "engine_failed", "%s", why);
	free(waiting);
}

static void load(struct md_model *model, struct md_http_exchange *exchange)
{
	if (md_page_orders_refuse_other_site(exchange, "load or unload models"))
		return;
	if (md_drain_is_on(model->worker->drain)) {
		md_reply_error(exchange, MD_REPLY_UNAVAILABLE, "draining", "the daemon takes no more requests");
		return;
	}
	struct waiting *waiting = wait_for(exchange, md_job_forget, true);
	begin(waiting, exchange, waiting ? md_job_load(model, on_loaded, waiting) : NULL);
}

/* ---- by path ---- */

/* NULL: the client was told that there is none. */
static struct md_model *find(struct md_worker *worker, struct md_http_exchange *exchange, const char *name)
{
	struct md_model *model = md_models_find(worker, name);
	if (!model) {
		char why[300];
		md_models_tell_none(worker, name, why, sizeof(why));
		md_reply_error(exchange, MD_REPLY_NOT_FOUND, "model_not_found", "%s", why);
	}
	return model;
}

bool md_page_orders_take(struct md_worker *worker, struct md_http_exchange *exchange, const char *path)
{
	static const char loading[] = "/api/models/load/", unloading[] = "/api/models/unload";
	size_t size = sizeof(unloading) - 1;
	struct md_model *model;
	if (!strncmp(path, loading, sizeof(loading) - 1)) {
		if ((model = find(worker, exchange, path + sizeof(loading) - 1)))
			load(model, exchange);
		return true;
	}
	if (strncmp(path, unloading, size) != 0 || (path[size] && path[size] != '/'))
		return false;
	if (!path[size])
		md_page_orders_unload(worker, exchange, NULL, true);
	else if ((model = find(worker, exchange, path + size + 1)))
		md_page_orders_unload(worker, exchange, model, false);
	return true;
}
