/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the configuration anew while the daemon serves, and makes models what it says, without losing a request. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "worker/core/adopt.h"
#include "worker/core/api_keys.h"
#include "worker/core/loop_thread.h"
#include "worker/core/notify.h"
#include "worker/core/model_rules.h"
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

struct md_reload {
	struct md_worker *worker;
	const char *file, *folder;
	struct md_loop_thread *reading; /* NULL: none is under way */
	struct waiter *waiters;
	bool again; /* somebody has asked meanwhile */
	/* of the reading; used by its thread alone while it is under way */
	const struct md_worker_config *config;
	struct md_engine_url *urls;
	struct md_error err;
	/* those that were read, and that somebody uses */
	const struct md_worker_config **kept;
	size_t kept_count, kept_room;
};

static void begin_reading(struct md_reload *reload);

/* ---- which configurations are used ---- */

static bool is_used(const struct md_worker *worker, const struct md_worker_config *config)
{
	for (const struct md_model *model = NULL; (model = md_models_each(worker, model));)
		if (model->from == config || model->made_from == config)
			return true;
	return worker->config == config;
}

void md_reload_look(struct md_reload *reload)
{
	size_t kept = 0;
	if (reload->reading)
		return; /* its thread looks at the worker's one */
	if (reload->again) {
		begin_reading(reload);
		return;
	}
	for (size_t i = 0; i < reload->kept_count; i++) {
		if (is_used(reload->worker, reload->kept[i]))
			reload->kept[kept++] = reload->kept[i];
		else
			md_worker_config_destroy(reload->kept[i]);
	}
	reload->kept_count = kept;
}

/* ---- what the scheduler would refuse is found out before anything changes ---- */

/* What becomes of the models of a configuration, by their indexes there. */
struct plan {
	struct md_worker *worker;
	const struct md_worker_config *config;
	struct md_model **models; /* the ones that there will be; NULL: the scheduler does not know of it yet */
};

static struct md_model *find_current(const struct md_worker *worker, const char *id)
{
	const struct md_config_model *found = md_config_find_model(worker->config, id);
	return found && !strcmp(found->id, id) ? worker->current[found - worker->config->models] : NULL;
}

static enum md_status prepare_model(struct plan *plan, uint32_t index, const struct md_engine_url *url,
				    struct md_error *err)
{
	struct md_model *model = find_current(plan->worker, plan->config->models[index].id);
	uint32_t engine = plan->config->models[index].base;
	struct md_model *base = engine == MD_CONFIG_NONE ? NULL : plan->models[engine];
	if (!model || !md_models_same_engine(model, plan->config, index, base))
		return md_models_add(plan->worker, plan->config, index, url, base, &plan->models[index], err);
	plan->models[index] = model;
	return md_models_promise(model, plan->config, index, err);
}

static uint32_t index_in(const struct md_worker_config *config, const struct md_model *model)
{
	return (uint32_t)(model->config - config->models);
}

/* As it was before: new models end, the others promise what they did. */
static void take_back(struct plan *plan, size_t model_count)
{
	struct md_worker *worker = plan->worker;
	struct md_error ignored;
	md_tenants_tell(worker, worker->config, &ignored);
	for (uint32_t i = 0; plan->models && i < plan->config->model_count; i++)
		if (plan->models[i] && plan->models[i] < &worker->models[model_count])
			md_models_promise(plan->models[i], worker->config, index_in(worker->config, plan->models[i]),
					  &ignored);
	md_model_rules_tell(worker, worker->config, worker->current, &ignored);
	for (size_t i = worker->model_count; i-- > model_count;) { /* adapters before their bases */
		struct md_model *model = &worker->models[i];
		md_models_free(model);
		model->retired = model->gone = true;
		md_decisions_post(worker, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE,
								      .function = model->function});
	}
}

static enum md_status prepare(struct plan *plan, const struct md_engine_url *urls, struct md_error *err)
{
	size_t before = plan->worker->model_count;
	enum md_status status = md_tenants_tell(plan->worker, plan->config, err);
	plan->models = calloc(plan->config->model_count + 1, sizeof(*plan->models));
	if (!plan->models && status == MD_OK)
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the models of the configuration");
	for (int adapters = 0; adapters < 2; adapters++) /* which need their bases */
		for (uint32_t i = 0; status == MD_OK && i < plan->config->model_count; i++)
			if ((plan->config->models[i].base != MD_CONFIG_NONE) == adapters)
				status = prepare_model(plan, i, &urls[i], err);
	if (status == MD_OK)
		status = md_model_rules_tell(plan->worker, plan->config, plan->models, err);
	if (status != MD_OK)
		take_back(plan, before);
	return status;
}

/* ---- the change ---- */

static void inherit(struct md_model *model, const struct md_model *old)
{
	model->starts = old->starts;
	model->failures = old->failures;
	model->requests = old->requests;
	model->usage = old->usage;
	model->first_byte = old->first_byte;
	model->loads = old->loads;
	model->learned = old->learned; /* measured with another command, but better than a guess */
	md_learned_changed(model);
	model->unwanted = old->unwanted;
	memcpy(model->last_failure, old->last_failure, sizeof(model->last_failure));
}

/*
 * Models of earlier configurations that had the model's ID, and have no successor. One that is retired was missing for a
 * while: its requests count for this model from now on, those that are open included.
 */
static void replace_earlier(struct md_worker *worker, struct md_model *model)
{
	for (struct md_model *old = NULL; (old = md_models_each(worker, old)) && old < model;)
		if (!old->successor && !strcmp(old->id, model->id)) {
			if (old->retired)
				inherit(model, old);
			md_model_retire(old, model);
		}
}

static bool same_model(const struct md_model *model, const struct md_config_model *new)
{
	const struct md_config_model *old = model->config;
	bool same = old->concurrency == new->concurrency && old->ttl_ns == new->ttl_ns &&
		    old->health_ns == new->health_ns && old->unload_ns == new->unload_ns &&
		    old->aliases.count == new->aliases.count && old->unlisted == new->unlisted &&
		    old->own.slo_ns == new->own.slo_ns && old->own.priority == new->own.priority &&
		    old->own.max_queue == new->own.max_queue && old->own.max_wait_ns == new->own.max_wait_ns &&
		    old->own.deadline_ns == new->own.deadline_ns && old->own.pin == new->own.pin &&
		    !old->own.min_replicas == !new->own.min_replicas &&
		    old->own.adapter_slots == new->own.adapter_slots;
	for (uint32_t i = 0; same && i < new->aliases.count; i++)
		same = !strcmp(old->aliases.items[i], new->aliases.items[i]);
	return same;
}

static void change_models(struct plan *plan, size_t before, struct md_reload_result *result)
{
	struct md_worker *worker = plan->worker;
	for (uint32_t i = 0; i < plan->config->model_count; i++) {
		struct md_model *model = plan->models[i], *old = find_current(worker, plan->config->models[i].id);
		if (model < &worker->models[before]) {
			result->changed += !same_model(model, &plan->config->models[i]);
			md_models_change(model, plan->config, i);
			continue;
		}
		if (old)
			inherit(model, old);
		*(old ? &result->renewed : &result->added) += 1;
		replace_earlier(worker, model);
	}
}

static void retire_missing(struct plan *plan, struct md_reload_result *result)
{
	struct md_worker *worker = plan->worker;
	for (uint32_t i = 0; i < worker->config->model_count; i++) {
		struct md_model *model = worker->current[i];
		if (model->from == plan->config || model->retired)
			continue;
		md_model_retire(model, NULL);
		result->removed++;
	}
}

static void name_later(const char *key, bool same, struct md_reload_result *result)
{
	size_t used = strlen(result->later);
	if (!same)
		snprintf(result->later + used, sizeof(result->later) - used, "%s%s", used ? ", " : "", key);
}

static bool same_name(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool same_gpus(const struct md_config_node *a, const struct md_config_node *b)
{
	for (uint32_t i = 0; i < a->gpu_count && i < b->gpu_count; i++)
		if (a->gpus[i].memory_bytes != b->gpus[i].memory_bytes || !same_name(a->gpus[i].uuid, b->gpus[i].uuid))
			return false;
	return a->gpu_count == b->gpu_count;
}

static bool same_texts(const struct md_config_texts *a, const struct md_config_texts *b)
{
	for (uint32_t i = 0; i < a->count && i < b->count; i++)
		if (strcmp(a->items[i], b->items[i]) != 0)
			return false;
	return a->count == b->count;
}

static bool same_templates(const struct md_config_node *a, const struct md_config_node *b)
{
	for (uint32_t i = 0; i < a->template_count && i < b->template_count; i++)
		if (strcmp(a->templates[i].name, b->templates[i].name) != 0 ||
		    strcmp(a->templates[i].cmd, b->templates[i].cmd) != 0 ||
		    !same_texts(&a->templates[i].env, &b->templates[i].env))
			return false;
	return a->template_count == b->template_count;
}

/* What a daemon that runs can't take over. */
static void name_all_later(const struct md_config_node *a, const struct md_config_node *b,
			   struct md_reload_result *result)
{
	const struct md_config_policies *p = &a->policies, *q = &b->policies;
	name_later("medusa.gpus", same_gpus(a, b), result);
	name_later("medusa.policies",
		   same_name(p->queueing, q->queueing) && same_name(p->placement, q->placement) &&
		       same_name(p->eviction, q->eviction) && same_name(p->batching, q->batching) &&
		       same_name(p->preloading, q->preloading),
		   result);
	name_later("medusa.retries", a->retries == b->retries, result);
	name_later("medusa.templates", same_templates(a, b), result);
	name_later("medusa.cgroup", same_name(a->cgroup, b->cgroup), result);
	name_later("medusa.listen", same_name(a->listen, b->listen), result);
	name_later("medusa.control", same_name(a->control, b->control), result);
	name_later("medusa.state", same_name(a->state, b->state), result);
	name_later("medusa.trace_time", a->trace_ns == b->trace_ns, result);
	name_later("medusa.pool_bytes", a->pool_bytes == b->pool_bytes, result);
	name_later("medusa.spill", same_name(a->spill, b->spill), result);
	name_later("medusa.spill_bytes", a->spill_bytes == b->spill_bytes, result);
	name_later("medusa.measure_memory", a->measure_memory == b->measure_memory, result);
	name_later("medusa.body_limit", a->body_limit == b->body_limit, result);
	name_later("medusa.bodies_limit", a->bodies_limit == b->bodies_limit, result);
	name_later("medusa.connection_limit", a->connection_limit == b->connection_limit, result);
	name_later("medusa.write_timeout", a->write_ns == b->write_ns, result);
}

/* The whole change happens in one turn of the loop: no request sees a part of it. */
static enum md_status apply(struct md_reload *reload, struct md_reload_result *result)
{
	struct md_worker *worker = reload->worker;
	struct plan plan = {.worker = worker, .config = reload->config};
	size_t before = worker->model_count;
	if (!MD_ARRAY_GROW(reload->kept, reload->kept_count, reload->kept_room))
		return md_error_set(&reload->err, MD_ERR_NO_MEMORY, "out of memory for the configuration");
	enum md_status status = prepare(&plan, reload->urls, &reload->err);
	if (status != MD_OK) {
		free(plan.models);
		return status;
	}
	change_models(&plan, before, result);
	retire_missing(&plan, result);
	name_all_later(&worker->config->node, &plan.config->node, result);
	free(worker->current);
	worker->current = plan.models;
	worker->config = plan.config;
	worker->passes_keys = !md_keys_wanted(plan.config);
	md_adopt_serves(worker);
	reload->kept[reload->kept_count++] = plan.config;
	reload->config = NULL;
	/* what is to be loaded ahead now */
	md_decisions_post(worker, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TIMER});
	return MD_OK;
}

/* ---- reading ---- */

static void read_files(void *context)
{
	struct md_reload *reload = context;
	reload->config = md_worker_config_renew(reload->file, reload->folder, reload->worker->config, &reload->err);
	if (reload->config && !same_name(reload->config->node.cgroup, reload->worker->config->node.cgroup) &&
	    md_cgroups_check(reload->config->node.cgroup, false, &reload->err) != MD_OK)
		return; /* the next start would fail */
	if (reload->config)
		md_engine_url_read_all(reload->config, &reload->urls, &reload->err);
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
}

static void on_read(void *context)
{
	struct md_reload *reload = context;
	struct md_reload_result result = {.status = reload->err.status};
	reload->reading = NULL;
	if (result.status == MD_OK)
		result.status = apply(reload, &result);
	if (result.status != MD_OK)
		snprintf(result.message, sizeof(result.message), "%s", reload->err.message);
	md_worker_config_destroy(reload->config);
	reload->config = NULL;
	free(reload->urls);
	reload->urls = NULL;
	say(reload, &result);
	tell(reload, &result);
	md_notify_ready(reload->worker->notify);
	if (reload->again)
		begin_reading(reload);
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
	if (!reload->reading)
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
	md_worker_config_destroy(reload->config);
	free(reload->urls);
	while (reload->waiters) {
		struct waiter *waiter = reload->waiters;
		reload->waiters = waiter->next;
		free(waiter);
	}
	for (size_t i = 0; i < reload->kept_count; i++)
		md_worker_config_destroy(reload->kept[i]);
	free(reload->kept);
	free(reload);
}
