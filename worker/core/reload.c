/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the configuration anew while the daemon serves, and makes models what it says, without losing a request. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "worker/cluster/cluster_tls.h"
#include "worker/core/loop_thread.h"
#include "worker/core/notify.h"
#include "worker/core/reload_change.h"
#include "worker/core/worker.h"
#include "worker/engine/cgroup.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

/* Somebody who wants to know what has become of it. */
struct waiter {
	struct waiter *next;
	struct md_reload *reload;
	void (*done)(void *context, const struct md_reload_result *result);
	void *context;
	bool told; /* by the reading that is under way; a later one began after that */
};

/* A configuration that was read, and that somebody uses. */
struct kept {
	const struct md_worker_config *config;
	uint32_t holders;
};

struct md_reload {
	struct md_worker *worker;
	const char *file, *folder;
	struct md_loop_thread *reading; /* NULL: none is under way */
	struct waiter *waiters;
	bool again; /* somebody has asked meanwhile */
	/* of the reading; used by its thread alone while it is under way */
	const struct md_worker_config *config;
	struct md_engine_url *urls;
	struct md_http_trust *trust; /* of peers */
	struct md_cluster_secrets *secrets;
	struct md_error err;
	struct md_reload_change *change; /* to what was read; NULL: none is under way */
	struct kept *kept;
	size_t kept_count, kept_room;
	/* those that nobody uses any more: a thread frees them, which takes its time where there are many models */
	const struct md_worker_config **old;
	size_t old_count, old_room;
	struct md_loop_thread *freeing; /* NULL: it does not run, and `old` is the loop's */
};

static void begin_reading(struct md_reload *reload);

/* ---- which configurations are used ---- */

static bool is_used(const struct md_worker *worker, const struct md_worker_config *config)
{
	for (const struct md_model *model = NULL; (model = md_models_each(worker, model));)
		if (model->from == config || model->made_from == config)
			return true;
	return worker->config == config || md_passed_use(worker, config);
}

static void free_old(void *context)
{
	const struct md_reload *reload = context;
	for (size_t i = 0; i < reload->old_count; i++)
		md_worker_config_destroy(reload->old[i]);
}

static void on_freed(void *context)
{
	struct md_reload *reload = context;
	reload->old_count = 0;
	reload->freeing = NULL;
}

/* Without memory for that, it stays where it is. NULL is fine. */
static bool give_away(struct md_reload *reload, const struct md_worker_config *config)
{
	if (!config)
		return true;
	if (reload->freeing || !MD_ARRAY_GROW(reload->old, reload->old_count, reload->old_room))
		return false;
	reload->old[reload->old_count++] = config;
	return true;
}

static void free_unused(struct md_reload *reload)
{
	struct md_error ignored;
	size_t left = 0;
	for (size_t i = 0; i < reload->kept_count; i++) {
		const struct kept *kept = &reload->kept[i];
		if (kept->holders || is_used(reload->worker, kept->config) || !give_away(reload, kept->config))
			reload->kept[left++] = *kept;
	}
	reload->kept_count = left;
	if (reload->old_count && !reload->freeing) /* else later */
		(void)md_loop_thread_start(reload->worker->base, free_old, on_freed, reload, &reload->freeing,
					   &ignored);
}

void md_reload_look(struct md_reload *reload)
{
	if (reload->reading || reload->change)
		return; /* the thread looks at the worker's one, and the change at the one before */
	if (reload->again)
		begin_reading(reload);
	else if (!reload->freeing)
		free_unused(reload);
}

static struct kept *find_kept(const struct md_reload *reload, const struct md_worker_config *config)
{
	for (size_t i = reload->kept_count; i-- > 0;)
		if (reload->kept[i].config == config)
			return &reload->kept[i];
	return NULL;
}

/* The first one is the daemon's, and stays as long as it. */
void md_reload_hold(struct md_reload *reload, const struct md_worker_config *config)
{
	struct kept *kept = find_kept(reload, config);
	if (kept)
		kept->holders++;
}

void md_reload_let_go(struct md_reload *reload, const struct md_worker_config *config)
{
	struct kept *kept = find_kept(reload, config);
	if (kept)
		kept->holders--;
}

bool md_reload_changes(const struct md_reload *reload)
{
	return reload->change && md_reload_change_joins(reload->change);
}

/* ---- reading ---- */

static bool same_name(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static void read_files(void *context)
{
	struct md_reload *reload = context;
	reload->config = md_worker_config_renew(reload->file, reload->folder, reload->worker->config, &reload->err);
	if (reload->config && !same_name(reload->config->node.cgroup, reload->worker->config->node.cgroup) &&
	    md_cgroups_check(reload->config->node.cgroup, false, &reload->err) != MD_OK)
		return; /* the next start would fail */
	if (reload->config)
		md_engine_url_read_all(reload->config, &reload->urls, &reload->err);
	if (reload->config && reload->err.status == MD_OK)
		md_peers_trust(reload->config, &reload->trust, &reload->err);
	if (reload->config && reload->err.status == MD_OK)
		md_cluster_secrets_renew(reload->worker->cluster, &reload->secrets, &reload->err);
}

static void tell(struct md_reload *reload, const struct md_reload_result *result)
{
	for (struct waiter *waiter, **at = &reload->waiters; (waiter = *at);) {
		if (!waiter->told) {
			at = &waiter->next;
			continue;
		}
		*at = waiter->next;
		if (waiter->done)
			waiter->done(waiter->context, result);
		free(waiter);
	}
}

static void say(const struct md_reload *reload, const struct md_reload_result *result)
{
	if (result->status != MD_OK)
		md_error_log("the configuration was not read anew, and nothing has changed: %s", result->message);
	else
		md_warn(
		    "the configuration was read anew: %u models added, %u removed, %u changed, %u get new engines%s%s",
		    result->added, result->removed, result->changed, result->renewed,
		    *result->later ? "; only at the next start: " : "", result->later);
	for (uint32_t i = 0; result->status == MD_OK && i < reload->worker->config->note_count; i++) {
		const struct md_config_note *note = &reload->worker->config->notes[i];
		md_warn("%s:%u: %s: %s", note->file, note->line, note->path, note->text);
	}
	if (result->status == MD_OK)
		md_models_say_ours(reload->worker);
}

static void end_reload(struct md_reload *reload, const struct md_reload_result *result)
{
	free(reload->urls);
	reload->urls = NULL;
	md_http_trust_destroy(reload->trust);
	reload->trust = NULL;
	md_cluster_secrets_destroy(md_steal_ptr(&reload->secrets));
	say(reload, result);
	tell(reload, result);
	md_notify_ready(reload->worker->notify);
	if (reload->again)
		begin_reading(reload);
}

/* What was read is not served by. */
static void refuse_read(struct md_reload *reload, enum md_status status, const char *message)
{
	struct md_reload_result result = {.status = status};
	snprintf(result.message, sizeof(result.message), "%s", message);
	if (!give_away(reload, reload->config))
		md_worker_config_destroy(reload->config);
	reload->config = NULL;
	end_reload(reload, &result);
}

/* A model that was taken back may still have it. */
static void on_changed(void *context, const struct md_reload_result *result)
{
	struct md_reload *reload = context;
	reload->change = NULL;
	reload->kept[reload->kept_count++].config = reload->config;
	reload->config = NULL;
	end_reload(reload, result);
}

static void on_read(void *context)
{
	struct md_reload *reload = context;
	reload->reading = NULL;
	if (reload->err.status != MD_OK) {
		refuse_read(reload, reload->err.status, reload->err.message);
		return;
	}
	struct md_peers *peers;
	enum md_status status =
	    md_peers_create(reload->worker, reload->config, reload->worker->peers, reload->trust, &peers, &reload->err);
	reload->trust = NULL;
	if (status != MD_OK) {
		refuse_read(reload, status, reload->err.message);
		return;
	}
	md_cluster_secrets_use(reload->worker->cluster, md_steal_ptr(&reload->secrets));
	if (MD_ARRAY_GROW(reload->kept, reload->kept_count, reload->kept_room)) {
		reload->kept[reload->kept_count] = (struct kept){0};
		reload->change =
		    md_reload_change_begin(reload->worker, reload->config, reload->urls, peers, on_changed, reload);
	} else {
		md_peers_retire(peers);
	}
	if (!reload->change)
		refuse_read(reload, MD_ERR_NO_MEMORY, "out of memory for the configuration");
}

static void begin_reading(struct md_reload *reload)
{
	struct md_error err = {0};
	reload->again = false;
	reload->err = (struct md_error){0};
	for (struct waiter *waiter = reload->waiters; waiter; waiter = waiter->next)
		waiter->told = true;
	md_notify_reloading(reload->worker->notify);
	if (md_loop_thread_start(reload->worker->base, read_files, on_read, reload, &reload->reading, &err) == MD_OK)
		return;
	md_error_log("the configuration is read anew a little later: %s", err.message);
	reload->again = true;
}

void *md_reload_begin(struct md_reload *reload, void (*done)(void *context, const struct md_reload_result *result),
		      void *context)
{
	struct waiter *waiter = calloc(1, sizeof(*waiter));
	if (!waiter)
		return NULL;
	*waiter = (struct waiter){.next = reload->waiters, .reload = reload, .done = done, .context = context};
	reload->waiters = waiter;
	reload->again = true;
	if (!reload->reading && !reload->change)
		begin_reading(reload);
	return waiter;
}

void md_reload_forget(void *context)
{
	struct waiter *waiter = context;
	waiter->done = NULL;
}

/* ---- beginning and end ---- */

struct md_reload *md_reload_create(struct md_worker *worker, const char *file, const char *folder)
{
	struct md_reload *made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	*made = (struct md_reload){.worker = worker, .file = file, .folder = folder};
	return made;
}

void md_reload_destroy(struct md_reload *reload)
{
	if (!reload)
		return;
	md_loop_thread_destroy(reload->reading);
	md_loop_thread_destroy(reload->freeing);
	md_reload_change_destroy(reload->change);
	if (reload->freeing)
		reload->old_count = 0;
	free_old(reload);
	free(reload->old);
	md_worker_config_destroy(reload->config);
	free(reload->urls);
	md_http_trust_destroy(reload->trust);
	md_cluster_secrets_destroy(reload->secrets);
	while (reload->waiters) {
		struct waiter *waiter = reload->waiters;
		reload->waiters = waiter->next;
		free(waiter);
	}
	for (size_t i = 0; i < reload->kept_count; i++)
		md_worker_config_destroy(reload->kept[i].config);
	free(reload->kept);
	free(reload);
}
