/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/long_pages.h"

#include <stdlib.h>

#include "json/tree_text.h"
#include "worker/cluster/cluster_report.h"
#include "worker/control/state_report.h"
#include "worker/control/trace_report.h"
#include "worker/core/metrics_models.h"
#include "worker/core/metrics_node.h"
#include "worker/core/metrics_text.h"
#include "worker/core/model_pages.h"
#include "worker/core/model_rows.h"
#include "worker/page/log_page.h"
#include "worker/page/page_events.h"

#define JSON_TYPE "application/json"

/* What any of them is printed from. */
struct copy {
	struct md_model_rows *rows;
	char *node; /* what there is to say besides; NULL: nothing */
	int64_t began;
	const char *directory; /* of logs */
};

struct md_pages {
	struct md_printer *printers[MD_PAGES];
};

/* ---- copying ---- */

/* What is not of models is small, and copied with the last of them. */
static enum md_printer_step copy_all(struct md_worker *worker, void **copy, char *(*node)(struct md_worker *worker))
{
	struct copy *made = *copy ? *copy : calloc(1, sizeof(*made));
	*copy = made;
	if (!made)
		return MD_PRINTER_NO_MEMORY;
	made->began = worker->began;
	made->directory = worker->directory;
	enum md_printer_step step = md_model_rows_copy(worker, &made->rows);
	if (step != MD_PRINTER_DONE || !node)
		return step;
	made->node = node(worker);
	return made->node ? MD_PRINTER_DONE : MD_PRINTER_NO_MEMORY;
}

static void free_copy(void *copy)
{
	struct copy *made = copy;
	if (!made)
		return;
	md_model_rows_free(made->rows);
	free(made->node);
	free(made);
}

static enum md_printer_step copy_rows(struct md_worker *worker, void **copy)
{
	return copy_all(worker, copy, NULL);
}

static char *state_node(struct md_worker *worker)
{
	return md_report_node(worker);
}

static enum md_printer_step copy_state(struct md_worker *worker, void **copy)
{
	return copy_all(worker, copy, state_node);
}

static char *metrics_node(struct md_worker *worker)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	if (!out)
		return NULL;
	md_metrics_node_print(worker, out);
	bool failed = ferror(out) != 0;
	if (!fclose(out) && !failed)
		return text;
	free(text);
	return NULL;
}

static enum md_printer_step copy_metrics(struct md_worker *worker, void **copy)
{
	return copy_all(worker, copy, metrics_node);
}

/* ---- printing ---- */

static bool print_metrics(const void *copy, FILE *out)
{
	const struct copy *from = copy;
	return md_metrics_models_print(from->rows, out) && fputs(from->node, out) >= 0;
}

/* Takes over the reference. */
static bool print_json(json_t *value, FILE *out)
{
	char *text = value ? md_jansson_print(value, JSON_COMPACT) : NULL;
	bool printed = text && fputs(text, out) >= 0;
	free(text);
	json_decref(value);
	return printed;
}

static bool print_list(const void *copy, FILE *out)
{
	const struct copy *from = copy;
	return print_json(md_model_pages_list(from->rows, from->began), out);
}

static bool print_upstreams(const void *copy, FILE *out)
{
	return print_json(md_model_pages_upstreams(((const struct copy *)copy)->rows), out);
}

static bool print_running(const void *copy, FILE *out)
{
	return print_json(md_model_pages_running(((const struct copy *)copy)->rows), out);
}

static json_t *state_of(const struct copy *from)
{
	json_t *state = md_report_status(from->rows, from->node);
	json_object_set_new(state, "models", md_report_models(from->rows));
	return state;
}

static bool print_state(const void *copy, FILE *out)
{
	return print_json(state_of(copy), out);
}

static bool print_state_event(const void *copy, FILE *out)
{
	return md_page_events_print("medusa", state_of(copy), out);
}

static bool print_models_event(const void *copy, FILE *out)
{
	return md_page_events_print("modelStatus", md_page_events_models(((const struct copy *)copy)->rows), out);
}

static bool print_logs(const void *copy, FILE *out)
{
	const struct copy *from = copy;
	return md_log_page_print(from->rows, from->directory, out);
}

static bool print_control_status(const void *copy, FILE *out)
{
	const struct copy *from = copy;
	return print_json(md_report_status(from->rows, from->node), out);
}

static bool print_control_models(const void *copy, FILE *out)
{
	return print_json(json_pack("{s:o}", "models", md_report_models(((const struct copy *)copy)->rows)), out);
}

/* ---- the cluster ---- */

static enum md_printer_step copy_cluster(struct md_worker *worker, void **copy)
{
	*copy = md_cluster_copy_models(worker->cluster);
	return *copy ? MD_PRINTER_DONE : MD_PRINTER_NO_MEMORY;
}

static bool print_cluster(const void *copy, FILE *out)
{
	return print_json(json_pack("{s:o}", "models", md_cluster_report_models(copy)), out);
}

static void free_cluster(void *copy)
{
	md_cluster_free_models(copy);
}

static const struct md_printer_kind kinds[MD_PAGES] = {
    [MD_PAGE_METRICS] = {"the metrics", MD_METRICS_TEXT_TYPE, copy_metrics, print_metrics, free_copy},
    [MD_PAGE_MODEL_LIST] = {"the list of models", JSON_TYPE, copy_rows, print_list, free_copy},
    [MD_PAGE_UPSTREAMS] = {"the list of models", JSON_TYPE, copy_rows, print_upstreams, free_copy},
    [MD_PAGE_RUNNING] = {"the list of engines", JSON_TYPE, copy_rows, print_running, free_copy},
    [MD_PAGE_STATE] = {"the state of the daemon", JSON_TYPE, copy_state, print_state, free_copy},
    [MD_PAGE_STATE_EVENT] = {"an event", JSON_TYPE, copy_state, print_state_event, free_copy},
    [MD_PAGE_MODELS_EVENT] = {"an event", JSON_TYPE, copy_rows, print_models_event, free_copy},
    [MD_PAGE_LOGS] = {"the log", "text/plain; charset=utf-8", copy_rows, print_logs, free_copy},
    [MD_PAGE_CONTROL_STATUS] = {"the answer", JSON_TYPE, copy_state, print_control_status, free_copy},
    [MD_PAGE_CONTROL_MODELS] = {"the answer", JSON_TYPE, copy_rows, print_control_models, free_copy},
    [MD_PAGE_CONTROL_TRACE] = {"the answer", JSON_TYPE, md_trace_copy, md_trace_print, md_trace_free},
    [MD_PAGE_CLUSTER_MODELS] = {"the answer", JSON_TYPE, copy_cluster, print_cluster, free_cluster},
};

/* ---- all of them ---- */

struct md_pages *md_long_pages_create(struct md_worker *worker)
{
	struct md_pages *made = calloc(1, sizeof(*made));
	bool done = made;
	for (unsigned i = 0; done && i < MD_PAGES; i++) {
		made->printers[i] = md_printer_create(worker, &kinds[i]);
		done = made->printers[i];
	}
	if (done)
		return made;
	md_long_pages_destroy(made);
	return NULL;
}

void md_long_pages_destroy(struct md_pages *pages)
{
	for (unsigned i = 0; pages && i < MD_PAGES; i++)
		md_printer_destroy(pages->printers[i]);
	free(pages);
}

struct md_printer *md_long_pages_get(struct md_pages *pages, enum md_page page)
{
	return pages->printers[page];
}

void md_long_pages_answer(struct md_pages *pages, enum md_page page, struct md_http_exchange *exchange)
{
	md_printer_answer(pages->printers[page], exchange);
}
