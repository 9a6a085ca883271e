/* SPDX-License-Identifier: Apache-2.0 */
/* What has become of the artifact in this process, in files: a report for people, and a line that medusa-restore judges by. */
#define MD_LOG_DOMAIN "restore"

#include "restore/outcome.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "format/outcome_line.h"
#include "ranks/rank.h"
#include "restore/graph_queue.h"

#define PAUSE_NS 200000000u /* an engine that is denied many graphs asks for them one after the other */
#define DENIED_MOST 1000    /* more are counted and not listed */

struct denied {
	char *label; /* owned */
	unsigned batch;
	struct md_error why;
};

static char report[PATH_MAX], folder[PATH_MAX]; /* set once, before anything else happens; "": nobody wants it */
static _Atomic(uint64_t) written_ns;
static atomic_bool changed, engaged, complete, whole, writing, warned;

/* As the engine has asked for graphs. */
static struct md_map asked MD_RESTORE_GUARDED; /* name of a graph -> whether it was handed out */
static struct denied *denied MD_RESTORE_GUARDED;
static uint32_t denied_listed MD_RESTORE_GUARDED, denied_count MD_RESTORE_GUARDED, handed_out MD_RESTORE_GUARDED;

static bool is_wanted(void)
{
	return *report || *folder;
}

/* ---- settings ---- */

void md_outcome_init(const struct md_restore *r)
{
	if (r->verify)
		return;
	md_environment_path("MEDUSA_REPORT", report, sizeof(report));
	md_environment_path("MEDUSA_OUTCOMES", folder, sizeof(folder));
}

static bool read_rank(uint32_t *rank)
{
	uint32_t ranks = 0;
	return md_rank_said(rank, &ranks, NULL) == MD_OK && ranks > 1;
}

/*
 * %p is the process; a rank of several has its number behind the path, as all of them have the same environment. A process may have been
 * forked, and have become a rank, after the settings were read.
 */
static void name_report(char path[PATH_MAX])
{
	const char *place = strstr(report, "%p");
	char process[16] = "", rank[32] = "";
	uint32_t number;
	if (place)
		snprintf(process, sizeof(process), "%d", (int)getpid());
	if (read_rank(&number))
		snprintf(rank, sizeof(rank), ".rank-%u", number);
	int head = place ? (int)(place - report) : PATH_MAX - 64;
	snprintf(path, PATH_MAX, "%.*s%s%.*s%s", head, report, process, PATH_MAX - 64 - (place ? head : 0),
		 place ? place + 2 : "", rank);
}

/* ---- what happens ---- */

void md_outcome_changed(void)
{
	if (is_wanted())
		atomic_store(&changed, true);
}

void md_outcome_engaged(void)
{
	if (is_wanted() && !atomic_exchange(&engaged, true))
		md_outcome_changed();
}

void md_outcome_complete(void)
{
	if (is_wanted() && !atomic_exchange(&complete, true))
		md_outcome_changed();
}

static void list_denied(const char *label, unsigned batch, const struct md_error *why) MD_RESTORE_HELD
{
	denied_count++;
	if (denied_listed >= DENIED_MOST || !MD_ARRAY_EXTEND(denied, denied_listed))
		return;
	char *copy = strdup(label);
	if (copy)
		denied[denied_listed++] = (struct denied){copy, batch, *why};
}

void md_outcome_asked(struct md_restore *r, const char *label, unsigned batch, const struct md_error *why,
		      bool expected)
{
	uint64_t key = md_graph_name_key(label, batch), before = 0;
	if (!is_wanted())
		return;
	md_outcome_engaged();
	bool known = md_map_get(&asked, key, &before), given = !why->status;
	if (why->status == MD_ERR_TIMEOUT || expected || (known && before == given) || !md_map_put(&asked, key, given))
		return;
	if (!given)
		list_denied(label, batch, why);
	else
		handed_out++;
	if (!given || handed_out == 1 || handed_out == r->stats.graphs_total)
		md_outcome_changed();
}

/* ---- writing ---- */

static bool is_settled(const struct md_restore *r) MD_RESTORE_HELD
{
	if (r->phase != MD_PHASE_OPEN)
		return false;
	for (uint32_t i = 0; i < r->artifact.graph_count; i++)
		if (r->graphs[i].state == MD_GRAPH_WAITING)
			return false;
	return true;
}

void md_outcome_ready(const struct md_restore *r)
{
	if (is_wanted() && r->stats.graphs_restored == r->stats.graphs_total)
		atomic_store(&whole, true);
}

static const char *reason_of(const struct md_restore *r) MD_RESTORE_HELD
{
	if (r->refusal.status)
		return r->refusal.message;
	return r->phase == MD_PHASE_FAILED && r->failure.status ? r->failure.message : NULL;
}

static const struct md_restore_graph *next_refused(const struct md_restore *r, uint32_t *at) MD_RESTORE_HELD
{
	for (; r->phase == MD_PHASE_OPEN && *at < r->artifact.graph_count; ++*at)
		if (r->graphs[*at].state == MD_GRAPH_REFUSED)
			return &r->graphs[(*at)++];
	return NULL;
}

static void put_graph(struct md_json *json, const char *label, unsigned batch, const char *why)
{
	md_json_object(json, NULL);
	md_json_text(json, "label", label);
	md_json_number(json, "batch", batch);
	md_json_text(json, "reason", why);
	md_json_end(json);
}

static void put_graphs(const struct md_restore *r, struct md_json *json) MD_RESTORE_HELD
{
	const struct md_restore_graph *graph;
	uint32_t at = 0;
	md_json_list(json, "refused");
	while ((graph = next_refused(r, &at)))
		put_graph(json, graph->stored->label, graph->stored->batch, graph->reasons->refused.message);
	md_json_end(json);
	md_json_list(json, "not_given");
	for (uint32_t i = 0; i < denied_listed; i++)
		put_graph(json, denied[i].label, denied[i].batch, denied[i].why.message);
	md_json_end(json);
	md_json_list(json, "not_in_artifact");
	for (uint32_t i = 0; r->phase == MD_PHASE_OPEN && i < r->artifact.refusal_count; i++)
		put_graph(json, r->artifact.refusals[i].label, r->artifact.refusals[i].batch,
			  r->artifact.refusals[i].why);
	md_json_end(json);
}

static void put_times(const struct medusa_stats *stats, struct md_json *json)
{
	md_json_number(json, "nodes", stats->nodes);
	md_json_number(json, "pointers", stats->pointers);
	md_json_number(json, "kernels_loaded_image", stats->kernels_loaded_image);
	md_json_number(json, "kernels_stored_image", stats->kernels_stored_image);
	md_json_number(json, "kernels_triggered", stats->kernels_triggered);
	md_json_number(json, "open_ns", stats->open_ns);
	md_json_number(json, "first_ready_ns", stats->first_ready_ns);
	md_json_number(json, "total_ns", stats->total_ns);
	md_json_number(json, "private_bytes", stats->private_bytes);
	md_json_number(json, "image_bytes", stats->image_bytes);
}

static void write_report(struct md_restore *r, FILE *out)
{
	struct md_json json;
	uint32_t rank;
	pthread_mutex_lock(&md_restore_lock);
	struct medusa_stats stats = r->stats;
	stats.total_ns = r->busy_ns + (r->busy ? md_clock_ns() - r->busy_since_ns : 0);
	md_json_init(&json, out);
	md_json_object(&json, NULL);
	md_json_number(&json, "format", 1);
	md_json_number(&json, "process", (uint64_t)getpid());
	if (read_rank(&rank))
		md_json_number(&json, "rank", rank);
	md_json_text(&json, "artifact", r->path);
	md_json_bool(&json, "settled", is_settled(r));
	md_json_bool(&json, "complete", atomic_load(&complete));
	md_json_bool(&json, "whole", atomic_load(&whole));
	md_json_text(&json, "reason", reason_of(r));
	md_json_number(&json, "graphs_total", stats.graphs_total);
	md_json_number(&json, "graphs_restored", stats.graphs_restored);
	md_json_number(&json, "graphs_refused", stats.graphs_refused);
	md_json_number(&json, "graphs_given", handed_out);
	md_json_number(&json, "graphs_not_given", denied_count);
	put_graphs(r, &json);
	put_times(&stats, &json);
	md_json_end(&json);
	pthread_mutex_unlock(&md_restore_lock);
}

static void write_line(struct md_restore *r, FILE *out)
{
	char name[300] = "";
	uint32_t at = 0;
	pthread_mutex_lock(&md_restore_lock);
	const struct md_restore_graph *first = next_refused(r, &at);
	struct md_outcome outcome = {.process = (uint32_t)getpid(),
				     .total = r->stats.graphs_total,
				     .restored = r->stats.graphs_restored,
				     .refused = r->stats.graphs_refused,
				     .handed_out = handed_out,
				     .denied = denied_count,
				     .settled = is_settled(r),
				     .complete = atomic_load(&complete),
				     .whole = atomic_load(&whole),
				     .reason = reason_of(r)};
	if (denied_listed) {
		snprintf(name, sizeof(name), "%.200s/%u", denied[0].label, denied[0].batch);
		outcome.why = denied[0].why.message;
	} else if (first) {
		snprintf(name, sizeof(name), "%.200s/%u", first->stored->label, first->stored->batch);
		outcome.why = first->reasons->refused.message;
	}
	outcome.graph = *name ? name : NULL;
	md_outcome_line_write(&outcome, out);
	pthread_mutex_unlock(&md_restore_lock);
}

/* In one step: a reader finds the file whole, or as it was before. */
static enum md_status replace(const char *path, const char *text, size_t size, struct md_error *err)
{
	MD_AUTO_FREE char *temporary = NULL;
	int fd = -1;
	MD_FORWARD(md_file_create_beside(path, &temporary, &fd, err));
	enum md_status status = md_file_write(fd, text, size, path, err);
	if (close(fd) && status == MD_OK)
		status = md_error_set(err, MD_ERR_OUTPUT, "%s: %s", path, strerror(errno));
	if (status == MD_OK && rename(temporary, path))
		status = md_error_set(err, MD_ERR_OUTPUT, "%s: %s", path, strerror(errno));
	if (status != MD_OK)
		unlink(temporary);
	return status;
}

static void write_file(struct md_restore *r, const char *path, void (*put)(struct md_restore *r, FILE *out))
{
	struct md_error err = {0};
	MD_AUTO_FREE char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	if (out)
		put(r, out);
	if (!out || fclose(out))
		md_error_set(&err, MD_ERR_NO_MEMORY, "%s: out of memory for the report", path);
	else
		replace(path, text, size, &err);
	if (err.status && !atomic_exchange(&warned, true))
		md_warn("what has become of the artifact cannot be told: %s", err.message);
}

bool md_outcome_due(void)
{
	return atomic_load_explicit(&changed, memory_order_relaxed) && atomic_load(&engaged) && !atomic_load(&writing);
}

static void write_all(struct md_restore *r)
{
	char path[PATH_MAX];
	if (*report) {
		name_report(path);
		write_file(r, path, write_report);
	}
	if (*folder) {
		snprintf(path, sizeof(path), "%.*s/%d", PATH_MAX - 16, folder, (int)getpid());
		write_file(r, path, write_line);
	}
}

/* Of two threads that come at the same time, one writes for both. */
void md_outcome_write(struct md_restore *r)
{
	int before = errno;
	while (md_outcome_due() && !atomic_exchange(&writing, true)) {
		atomic_store(&changed, false);
		write_all(r);
		atomic_store(&written_ns, md_clock_ns());
		atomic_store(&writing, false);
	}
	errno = before;
}

void md_outcome_tell(struct md_restore *r)
{
	if (!md_outcome_due() || atomic_load(&r->off))
		return;
	pthread_mutex_lock(&md_restore_lock);
	bool beside = r->thread_started && !r->thread_done;
	if (beside)
		pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&md_restore_lock);
	if (!beside && md_clock_ns() - atomic_load(&written_ns) >= PAUSE_NS)
		md_outcome_write(r);
}

void md_outcome_end(struct md_restore *r)
{
	pthread_mutex_lock(&md_restore_lock);
	bool restores = r->phase == MD_PHASE_OPEN || r->phase == MD_PHASE_FAILED;
	pthread_mutex_unlock(&md_restore_lock);
	if (!restores)
		return; /* what was written before stands */
	md_outcome_changed();
	md_outcome_write(r);
}
