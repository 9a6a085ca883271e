/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/pages.h"

#include <stdlib.h>
#include <string.h>

#include "worker/cluster/cluster_bill.h"
#include "worker/cluster/cluster_contents.h"
#include "worker/core/health_page.h"
#include "worker/core/long_pages.h"
#include "worker/core/model_pages.h"
#include "worker/core/reply.h"
#include "worker/page/page_orders.h"
#include "worker/page/page_profiles.h"
#include "worker/page/status_page.h"

#define HISTORY (100u << 10) /* bytes of a log that are shown */

/* ---- logs ---- */

static void show_log(struct md_worker *worker, struct md_http_exchange *exchange, const char *name)
{
	struct md_model *model = md_models_find(worker, name);
	char *text = model ? malloc(HISTORY + 1) : NULL;
	uint64_t end = UINT64_MAX, from;
	if (!text) {
		md_reply_error(exchange, MD_REPLY_NOT_FOUND, "model_not_found", "no model is called \"%.200s\"", name);
		return;
	}
	md_log_file_read(model->log, &end, text, 0);
	from = end > HISTORY ? end - HISTORY : 0;
	size_t size = 0;
	for (size_t got; (got = md_log_file_read(model->log, &from, text + size, HISTORY - size));)
		size += got;
	text[size] = '\0';
	md_reply_text(exchange, 200, "text/plain; charset=utf-8", text);
	free(text);
}

/* ---- by path ---- */

bool md_pages_take(struct md_worker *worker, struct md_http_exchange *exchange, const char *path)
{
	const char *method = md_http_exchange_head(exchange)->method;
	if (md_page_take(worker, exchange, path) || md_page_profiles_take(worker, exchange, path) ||
	    md_contents_answer(worker, exchange, path) || md_bill_answer(worker, exchange, path))
		return true;
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return false;
	if (!strcmp(path, "/v1/models") || !strcmp(path, "/models"))
		md_long_pages_answer(worker->pages, MD_PAGE_MODEL_LIST, exchange);
	else if (!strncmp(path, "/v1/models/", 11))
		md_model_pages_show(worker, exchange, path + 11);
	else if (!strcmp(path, "/upstream"))
		md_long_pages_answer(worker->pages, MD_PAGE_UPSTREAMS, exchange);
	else if (!strcmp(path, "/api/version"))
		md_reply_json(
		    exchange, 200,
		    json_pack("{s:s, s:s, s:s}", "version", MD_VERSION, "commit", "unknown", "build_date", "unknown"));
	else if (!strcmp(path, "/running"))
		md_long_pages_answer(worker->pages, MD_PAGE_RUNNING, exchange);
	else if (!strcmp(path, "/health") || !strcmp(path, "/wol-health"))
		md_health_page_answer(worker, exchange);
	else if (!strcmp(path, "/metrics"))
		md_long_pages_answer(worker->pages, MD_PAGE_METRICS, exchange);
	else if (!strcmp(path, "/unload") && !strcmp(method, "GET")) /* HEAD only asks */
		md_page_orders_unload(worker, exchange, NULL, false);
	else if (!strcmp(path, "/logs"))
		md_long_pages_answer(worker->pages, MD_PAGE_LOGS, exchange);
	else if (!strncmp(path, "/logs/", 6))
		show_log(worker, exchange, path + 6);
	else
		return false;
	return true;
}
