/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/reload_change.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/hash.h"
#include "worker/core/adopt.h"
#include "worker/core/api_keys.h"
#include "worker/core/model_rules.h"
#include "worker/core/worker.h"

/* A model of an earlier configuration that the last one did not have, by its ID's hash. */
struct missed {
	uint64_t hash;
	struct md_model *model;
};

/*
 * A step for each model, as many in a turn of the loop as fit. Up to `swap` nothing that a request can see has changed, and all can be
 * taken back; it is one turn, so a request is served by one configuration or by the other. After it old models give way to new
 * ones, which load nothing before that (md_model.coming).
 */
enum stage { PREPARE_MODELS, PREPARE_ADAPTERS, PREPARE_RULES, SWAP, JOIN, RETIRE, TAKE_BACK, ENDED };

struct md_reload_change {
	struct md_worker *worker;
	const struct md_worker_config *config, *before;
	struct md_peers *peers; /* NULL: the worker has them */
	const struct md_engine_url *urls;
	struct md_model **models;     /* by their indexes in config; NULL: the scheduler does not know of it yet */
	struct md_model **old_models; /* those that have had their IDs; NULL: none */
	struct md_model **current;    /* of the configuration before; the change's own after the swap */
	struct missed *missed;
	size_t missed_count, missed_room;
	size_t model_count; /* before */
	struct md_model_rules *rules;
	enum stage stage;
	uint32_t at;
	struct event *turn;
	struct md_reload_result result;
	struct md_error err;
	void (*done)(void *context, const struct md_reload_result *result);
	void *context;
};

/* ---- what the scheduler would refuse is found out before anything changes ---- */

static struct md_model *find_current(const struct md_worker *worker, const char *id)
{
	const struct md_config_model *found = md_config_find_model(worker->config, id);
	return found && !strcmp(found->id, id) ? worker->current[found - worker->config->models] : NULL;
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

static enum md_status prepare_model(struct md_reload_change *change, uint32_t index)
{
	const struct md_config_model *config = &change->config->models[index];
	struct md_model *model = find_current(change->worker, config->id), **made = &change->models[index];
	struct md_model *base = config->base == MD_CONFIG_NONE ? NULL : change->models[config->base];
	change->old_models[index] = model;
	if (!model || !md_models_same_engine(model, change->config, index, base))
		return md_models_add(change->worker, change->config, index, &change->urls[index], base, true, made,
				     &change->err);
	change->result.changed += !same_model(model, config);
	*made = model;
	return md_models_promise(model, change->config, index, &change->err);
}

/* Adapters need their bases, so they come after them. */
static enum md_status prepare(struct md_reload_change *change)
{
	bool adapters = change->stage == PREPARE_ADAPTERS;
	if (change->at == change->config->model_count) {
		change->stage = adapters ? PREPARE_RULES : PREPARE_ADAPTERS;
		change->at = 0;
		return MD_OK;
	}
	uint32_t index = change->at++;
	return (change->config->models[index].base != MD_CONFIG_NONE) == adapters ? prepare_model(change, index)
										  : MD_OK;
}

static enum md_status prepare_rules(struct md_reload_change *change)
{
	bool more = true;
	if (!change->rules)
		MD_FORWARD(
		    md_model_rules_begin(change->worker, change->config, change->models, &change->rules, &change->err));
	MD_FORWARD(md_model_rules_step(change->rules, &more, &change->err));
	if (!more)
		change->stage = SWAP;
	return MD_OK;
}

/* ---- as it was before ---- */

/* One that has an engine ends as one that the configuration does not have any more: it may have been asked for already. */
static void drop_model(struct md_model *model)
{
	model->coming = false;
	if (model->engine) {
		md_model_retire(model, NULL);
		return;
	}
	md_models_free(model);
	model->retired = model->gone = true;
	md_decisions_post(model->worker, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE,
								     .function = model->function});
}

static uint32_t index_in(const struct md_worker_config *config, const struct md_model *model)
{
	return (uint32_t)(model->config - config->models);
}

/* Models that stay promise what they did; the others end, adapters before their bases. */
static void take_back(struct md_reload_change *change)
{
	struct md_worker *worker = change->worker;
	struct md_error ignored;
	uint32_t count = change->config->model_count;
	if (change->at < count) {
		struct md_model *model = change->models ? change->models[change->at] : NULL;
		if (model && model < &worker->models[change->model_count])
			md_models_promise(model, worker->config, index_in(worker->config, model), &ignored);
		change->at++;
	} else if (worker->model_count - (change->at - count) > change->model_count) {
		drop_model(&worker->models[worker->model_count - 1 - (change->at++ - count)]);
	} else {
		md_tenants_tell(worker, worker->config, &ignored);
		md_model_rules_tell(worker, worker->config, worker->current, &ignored);
		event_active(worker->look, EV_TIMEOUT, 0);
		change->stage = ENDED;
	}
}

static void begin_to_take_back(struct md_reload_change *change)
{
	change->result.status = change->err.status;
	snprintf(change->result.message, sizeof(change->result.message), "%s", change->err.message);
	change->stage = TAKE_BACK;
	change->at = 0;
}

/* ---- the change ---- */

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

static bool same_tls(const struct md_config_tls *a, const struct md_config_tls *b)
{
	return a->given == b->given && same_name(a->ca, b->ca) && same_name(a->certificate, b->certificate) &&
	       same_name(a->key, b->key);
}

static bool same_cluster(const struct md_config_cluster *a, const struct md_config_cluster *b)
{
	return same_texts(&a->endpoints, &b->endpoints) && same_name(a->node, b->node) &&
	       same_name(a->advertise, b->advertise) && same_name(a->prefix, b->prefix) &&
	       same_name(a->key_file, b->key_file) && same_name(a->ca, b->ca) &&
	       same_name(a->certificate, b->certificate) && same_name(a->certificate_key, b->certificate_key) &&
	       same_tls(&a->tls, &b->tls) && same_tls(&a->etcd_tls, &b->etcd_tls) && same_name(a->listen, b->listen) &&
	       same_name(a->etcd_user, b->etcd_user) && same_name(a->etcd_password_file, b->etcd_password_file) &&
	       same_name(a->etcd_password_env, b->etcd_password_env) && a->lease_grace_ns == b->lease_grace_ns &&
	       same_name(a->domain, b->domain) && a->placement == b->placement && same_name(a->store, b->store) &&
	       a->store_bytes == b->store_bytes && a->fetch == b->fetch && a->fetch_streams == b->fetch_streams &&
	       a->fetch_rate == b->fetch_rate && same_name(a->signed_by, b->signed_by) && a->prefixes == b->prefixes &&
	       a->prefix_blocks == b->prefix_blocks && a->prefix_age_ns == b->prefix_age_ns;
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
	name_later("medusa.cluster", same_cluster(&a->cluster, &b->cluster), result);
	name_later("medusa.write_timeout", a->write_ns == b->write_ns, result);
}

static int compare_missed(const void *a, const void *b)
{
	const struct missed *one = a, *other = b;
	return (one->hash > other->hash) - (one->hash < other->hash);
}

static uint64_t hash_of(const char *id)
{
	return md_hash_checksum(id, strlen(id));
}

/* Models that are missing now, and whose requests have not ended. */
static enum md_status find_missed(struct md_reload_change *change)
{
	for (struct md_model *model = NULL; (model = md_models_each(change->worker, model));) {
		if (!model->retired || model->successor)
			continue;
		if (!MD_ARRAY_GROW(change->missed, change->missed_count, change->missed_room))
			return md_error_set(&change->err, MD_ERR_NO_MEMORY, "out of memory for the configuration");
		change->missed[change->missed_count++] = (struct missed){.hash = hash_of(model->id), .model = model};
	}
	if (change->missed_count)
		qsort(change->missed, change->missed_count, sizeof(*change->missed), compare_missed);
	return MD_OK;
}

static enum md_status swap(struct md_reload_change *change)
{
	struct md_worker *worker = change->worker;
	const struct md_worker_config *config = change->config;
	MD_FORWARD(find_missed(change));
	change->before = worker->config;
	change->current = worker->current;
	for (uint32_t i = 0; i < config->model_count; i++)
		if (change->models[i] < &worker->models[change->model_count])
			md_models_change(change->models[i], config, i);
	name_all_later(&worker->config->node, &config->node, &change->result);
	worker->current = change->models;
	worker->config = config;
	md_peers_retire(worker->peers);
	worker->peers = change->peers;
	change->peers = NULL;
	worker->profile = NULL; /* as at the start */
	worker->passes_keys = !md_keys_wanted(config);
	md_adopt_serves(worker);
	change->stage = JOIN;
	change->at = 0;
	return MD_OK;
}

/* ---- new models in the places of old ones ---- */

static void add_requests(struct md_metrics_requests *sum, const struct md_metrics_requests *part)
{
	sum->taken += part->taken;
	sum->open += part->open;
	sum->served += part->served;
	sum->failed += part->failed;
	sum->refused += part->refused;
	sum->limited += part->limited;
	sum->left_waiting += part->left_waiting;
	sum->left_running += part->left_running;
	sum->retried += part->retried;
}

/* Requests may have come for the model already. */
static void inherit(struct md_model *model, const struct md_model *old)
{
	model->starts += old->starts;
	model->failures += old->failures;
	add_requests(&model->requests, &old->requests);
	for (unsigned i = 0; i < MD_USAGE_KINDS; i++)
		model->usage.of[i] += old->usage.of[i];
	for (unsigned i = 0; i < MD_MODEL_HISTOGRAMS; i++)
		md_metrics_add(&model->histograms[i], &old->histograms[i]);
	model->learned = old->learned; /* measured with another command, but better than a guess */
	if (!model->unfinished)
		model->unwanted = old->unwanted;
	memcpy(model->last_failure, old->last_failure, sizeof(model->last_failure));
}

/* Where models whose ID has this hash begin. */
static size_t find_hash(const struct md_reload_change *change, uint64_t hash)
{
	size_t low = 0, high = change->missed_count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (change->missed[middle].hash < hash)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* One that was missing for a while: its requests count for this model from now on, those that are open included. */
static void replace_missed(struct md_reload_change *change, struct md_model *model)
{
	uint64_t hash = hash_of(model->id);
	for (size_t i = find_hash(change, hash); i < change->missed_count && change->missed[i].hash == hash; i++) {
		struct md_model *old = change->missed[i].model;
		if (!old->engine || old->successor || strcmp(old->id, model->id) != 0)
			continue;
		inherit(model, old);
		md_model_retire(old, model);
	}
}

static void join(struct md_reload_change *change)
{
	struct md_worker *worker = change->worker;
	if (change->at == change->config->model_count) {
		change->stage = RETIRE;
		change->at = 0;
		return;
	}
	uint32_t index = change->at++;
	struct md_model *model = change->models[index], *old = change->old_models[index];
	if (model < &worker->models[change->model_count]) {
		md_learned_changed(model); /* the promise of the configuration before may have been told again */
		return;
	}
	if (old) {
		inherit(model, old);
		md_model_retire(old, model);
	}
	*(old ? &change->result.renewed : &change->result.added) += 1;
	replace_missed(change, model);
	model->coming = false;
	md_learned_changed(model);
	if (model->load_waits || model->base)
		event_active(worker->look, EV_TIMEOUT, 0);
}

static void retire(struct md_reload_change *change)
{
	if (change->at == change->before->model_count) {
		change->stage = ENDED;
		/* what is to be loaded ahead now */
		md_decisions_post(change->worker, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TIMER});
		return;
	}
	struct md_model *model = change->current[change->at++];
	if (model->from == change->config || model->retired)
		return;
	md_model_retire(model, NULL);
	change->result.removed++;
}

/* ---- one step after the other ---- */

static enum md_status step(struct md_reload_change *change)
{
	switch (change->stage) {
	case PREPARE_MODELS:
	case PREPARE_ADAPTERS:
		return prepare(change);
	case PREPARE_RULES:
		return prepare_rules(change);
	case SWAP:
		return swap(change);
	case JOIN:
		join(change);
		return MD_OK;
	case RETIRE:
		retire(change);
		return MD_OK;
	case TAKE_BACK:
		take_back(change);
		return MD_OK;
	case ENDED:
		break;
	}
	return MD_OK;
}

static void end(struct md_reload_change *change)
{
	struct md_reload_result result = change->result;
	void (*done)(void *context, const struct md_reload_result *result) = change->done;
	void *context = change->context;
	md_reload_change_destroy(change);
	done(context, &result);
}

/* A timer that has run out lets the loop look at its connections first. Without one, the rest is done at once. */
static void on_turn(evutil_socket_t fd, short what, void *context)
{
	struct md_reload_change *change = context;
	uint64_t until = md_clock_ns() + MD_WORKER_TURN_NS;
	(void)fd, (void)what;
	while (change->stage != ENDED) {
		if (step(change) != MD_OK)
			begin_to_take_back(change);
		if (change->stage != ENDED && md_clock_ns() > until &&
		    !event_add(change->turn, &(struct timeval){.tv_usec = 0}))
			return;
	}
	end(change);
}

bool md_reload_change_joins(const struct md_reload_change *change)
{
	return change->stage == JOIN || change->stage == RETIRE;
}

/* ---- beginning and end ---- */

/* The worker serves by its configuration. */
static bool took(const struct md_reload_change *change)
{
	return change->worker->config == change->config;
}

struct md_reload_change *md_reload_change_begin(struct md_worker *worker, const struct md_worker_config *config,
						const struct md_engine_url *urls, struct md_peers *peers,
						void (*done)(void *context, const struct md_reload_result *result),
						void *context)
{
	struct md_reload_change *made = calloc(1, sizeof(*made));
	if (!made) {
		md_peers_retire(peers);
		return NULL;
	}
	*made = (struct md_reload_change){.worker = worker,
					  .config = config,
					  .urls = urls,
					  .peers = peers,
					  .model_count = worker->model_count,
					  .done = done,
					  .context = context};
	made->models = calloc(config->model_count + 1, sizeof(*made->models));
	made->old_models = calloc(config->model_count + 1, sizeof(*made->old_models));
	made->turn = evtimer_new(worker->base, on_turn, made);
	if (!made->models || !made->old_models || !made->turn ||
	    event_add(made->turn, &(struct timeval){.tv_usec = 0})) {
		md_reload_change_destroy(made);
		return NULL;
	}
	if (md_tenants_tell(worker, config, &made->err) != MD_OK)
		begin_to_take_back(made);
	return made;
}

void md_reload_change_destroy(struct md_reload_change *change)
{
	if (!change)
		return;
	if (!took(change))
		free(change->models);
	else
		free(change->current);
	free(change->old_models);
	free(change->missed);
	md_peers_retire(change->peers);
	md_model_rules_end(change->rules);
	if (change->turn)
		event_free(change->turn);
	free(change);
}
