/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/tenants.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "worker/cluster/quota_share.h"
#include "worker/core/api_keys.h"
#include "worker/core/worker.h"

static struct md_tenant_entry *find_name(const struct md_worker *worker, const char *name)
{
	for (uint32_t i = 0; i < worker->tenant_count; i++)
		if (!strcmp(worker->tenants[i].name, name))
			return &worker->tenants[i];
	return NULL;
}

static enum md_status refused(const struct md_worker *worker, const char *name, struct md_error *err)
{
	return md_error_set(err, MD_ERR_INVALID, "medusa.tenants: %.100s: %s", name, medusa_sched_error(worker->sched));
}

static uint32_t least(uint32_t stated, uint32_t share)
{
	uint32_t own = stated ? stated : MD_TENANT_ANY, less = own < share ? own : share;
	return less == MD_TENANT_ANY ? 0 : less;
}

/* As the scheduler is told: a share of 0 is none, where a limit of 0 is no limit. */
static struct medusa_sched_tenant with_share(const struct medusa_sched_tenant *stated,
					     const struct md_tenant_share *share)
{
	struct medusa_sched_tenant spec = *stated;
	spec.weight = share->weight > 0 ? share->weight : stated->weight;
	spec.max_running = least(stated->max_running, share->running);
	spec.max_waiting = least(stated->max_waiting, share->waiting);
	spec.starts_none = !share->running;
	spec.takes_none = !share->waiting;
	return spec;
}

static enum md_status add(struct md_worker *worker, const char *name, const struct medusa_sched_tenant *spec,
			  struct md_error *err)
{
	struct md_tenant_entry entry = {.stated = *spec, .told = *spec, .share = MD_TENANT_ALONE};
	if (!MD_ARRAY_GROW(worker->tenants, worker->tenant_count, worker->tenant_room) || !(entry.name = strdup(name)))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the tenant %.100s", name);
	if (medusa_sched_add_tenant(worker->sched, spec, &entry.index)) {
		free(entry.name);
		return refused(worker, name, err);
	}
	worker->tenants[worker->tenant_count++] = entry;
	return MD_OK;
}

static bool is_same(const struct medusa_sched_tenant *a, const struct medusa_sched_tenant *b)
{
	return a->weight >= b->weight && a->weight <= b->weight && a->max_waiting == b->max_waiting &&
	       a->max_running == b->max_running && a->starts_none == b->starts_none && a->takes_none == b->takes_none;
}

/* What is stated, or the share, has changed. False: the scheduler refuses it. */
static bool tell(struct md_worker *worker, struct md_tenant_entry *entry)
{
	const struct medusa_sched_tenant spec = with_share(&entry->stated, &entry->share);
	if (is_same(&entry->told, &spec))
		return true;
	if (medusa_sched_change_tenant(worker->sched, entry->index, &spec))
		return false;
	entry->told = spec;
	md_decisions_post(worker, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_TIMER});
	return true;
}

enum md_status md_tenants_tell(struct md_worker *worker, const struct md_worker_config *config, struct md_error *err)
{
	for (uint32_t i = 0; i < config->node.tenant_count; i++) {
		const struct md_config_tenant *wanted = &config->node.tenants[i];
		const struct medusa_sched_tenant spec = {.size = sizeof(spec),
							 .weight = wanted->weight,
							 .max_waiting = wanted->max_waiting,
							 .max_running = wanted->max_running};
		struct md_tenant_entry *known = find_name(worker, wanted->name);
		if (!known) {
			MD_FORWARD(add(worker, wanted->name, &spec, err));
			continue;
		}
		struct medusa_sched_tenant before = known->stated;
		known->stated = spec;
		if (!tell(worker, known)) {
			known->stated = before;
			return refused(worker, wanted->name, err);
		}
	}
	md_quota_configured(worker->cluster, config);
	return MD_OK;
}

/* Requests of no tenant have no entry: what the scheduler was told of them is remembered beside. */
static void share_rest(struct md_worker *worker, const struct md_tenant_share *share)
{
	const struct medusa_sched_tenant spec = {.size = sizeof(spec), .weight = share->weight > 0 ? share->weight : 1};
	double before = worker->untenanted_weight > 0 ? worker->untenanted_weight : 1;
	if ((spec.weight < before || spec.weight > before) && !medusa_sched_change_tenant(worker->sched, 0, &spec))
		worker->untenanted_weight = spec.weight;
}

void md_tenants_share(struct md_worker *worker, const char *name, const struct md_tenant_share *share)
{
	struct md_tenant_entry *entry = *name ? find_name(worker, name) : NULL;
	if (!*name)
		share_rest(worker, share);
	if (!entry)
		return;
	entry->share = *share;
	tell(worker, entry);
}

void md_tenants_destroy(struct md_worker *worker)
{
	for (uint32_t i = 0; i < worker->tenant_count; i++)
		free(worker->tenants[i].name);
	free(worker->tenants);
}

uint32_t md_tenants_of(const struct md_worker *worker, const struct md_model *model, const struct md_http_head *head)
{
	const struct md_config_node *node = &worker->config->node;
	uint32_t tenant;
	if (!md_keys_allow(worker->config, head, &tenant) || tenant == MD_CONFIG_NONE)
		tenant = model->config->own.tenant;
	const struct md_tenant_entry *entry =
	    tenant < node->tenant_count ? find_name(worker, node->tenants[tenant].name) : NULL;
	return entry ? entry->index : 0;
}

static struct md_tenant_entry *find_index(const struct md_worker *worker, uint32_t index)
{
	for (uint32_t i = 0; i < worker->tenant_count; i++)
		if (worker->tenants[i].index == index)
			return &worker->tenants[i];
	return NULL;
}

const struct md_tenant_entry *md_tenants_named(const struct md_worker *worker, const char *name)
{
	return find_name(worker, name);
}

const struct md_tenant_entry *md_tenants_find(const struct md_worker *worker, uint32_t index)
{
	return find_index(worker, index);
}

static void add_to(struct md_metrics_requests *requests, size_t which, int more)
{
	*(uint64_t *)(void *)((char *)requests + which) += (uint64_t)(int64_t)more;
}

void md_tenants_count(struct md_model *model, uint32_t tenant, size_t which, int more)
{
	struct md_tenant_entry *entry = find_index(model->worker, tenant);
	add_to(&md_model_newest(model)->requests, which, more);
	add_to(entry ? &entry->requests : &model->worker->untenanted, which, more);
}

bool md_tenants_get(const struct md_worker *worker, uint32_t number, const struct md_tenant_entry **entry,
		    struct medusa_sched_tenant_state *state)
{
	const struct md_config_node *node = &worker->config->node;
	if (!node->tenant_count || number > node->tenant_count)
		return false;
	*state = (struct medusa_sched_tenant_state){.size = sizeof(*state)};
	*entry = number < node->tenant_count ? find_name(worker, node->tenants[number].name) : NULL;
	return !medusa_sched_tenant_get(worker->sched, *entry ? (*entry)->index : 0, state);
}

const struct md_metrics_requests *md_tenants_requests(const struct md_worker *worker,
						      const struct md_tenant_entry *entry)
{
	return entry ? &entry->requests : &worker->untenanted;
}
