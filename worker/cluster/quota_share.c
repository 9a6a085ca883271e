/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/quota_share.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "worker/cluster/quota_parts.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define LOOK_MS 200u

uint64_t md_quotas_clock_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- shares ---- */

static struct md_quota_share *find_share(const struct md_quotas *quotas, const char *tenant)
{
	for (uint32_t i = 0; i < quotas->count; i++)
		if (!strcmp(quotas->shares[i].tenant, tenant))
			return &quotas->shares[i];
	return NULL;
}

static struct md_quota_share *obtain_share(struct md_quotas *quotas, const char *tenant)
{
	struct md_quota_share *share = find_share(quotas, tenant);
	if (share)
		return share;
	char *name = strdup(tenant);
	if (!name || !MD_ARRAY_GROW(quotas->shares, quotas->count, quotas->room)) {
		free(name);
		return NULL;
	}
	share = &quotas->shares[quotas->count++];
	*share = (struct md_quota_share){.tenant = name,
					 .stated = {MD_QUOTA_ANY, MD_QUOTA_ANY},
					 .limits = {MD_QUOTA_ANY, MD_QUOTA_ANY},
					 .given = {MD_QUOTA_ANY, MD_QUOTA_ANY},
					 .now = {MD_QUOTA_ANY, MD_QUOTA_ANY}};
	return share;
}

bool md_quota_is_limited(const struct md_quota_share *share)
{
	return share->limits[MD_QUOTA_RUNNING] != MD_QUOTA_ANY || share->limits[MD_QUOTA_WAITING] != MD_QUOTA_ANY;
}

static void tell_scheduler(struct md_quotas *quotas, const struct md_quota_share *share)
{
	const struct md_tenant_share told = {share->now[MD_QUOTA_RUNNING], share->now[MD_QUOTA_WAITING],
					     share->told_weight};
	md_tenants_share(quotas->cluster->worker, share->tenant, &told);
}

static uint64_t hold_of(const struct md_quotas *quotas)
{
	return quotas->cluster->settings.quota_hold_ns;
}

static void break_off(struct md_quotas *quotas, const struct md_quota_share *share)
{
	struct md_worker *worker = quotas->cluster->worker;
	size_t count, ended = 0;
	struct md_worker_job **jobs = md_job_list(worker, &count);
	for (size_t i = 0; jobs && i < count; i++) {
		const struct md_tenant_entry *tenant = md_tenants_find(worker, jobs[i]->tenant);
		if (!tenant || strcmp(tenant->name, share->tenant) != 0 || jobs[i]->stage == MD_JOB_WAITING)
			continue;
		ended++;
		md_job_lose_share(jobs[i]);
	}
	free(jobs);
	if (ended)
		md_warn("cluster: %zu requests of tenant %.100s were broken off: others may have its share now", ended,
			share->tenant);
}

/*
 * What may be taken of a quota now. Requests wait where nothing may run: without a share as many as may in the whole cluster, and with one that has run
 * out as many as it said.
 */
static uint32_t value_of(const struct md_quota_share *share, enum md_quota r)
{
	uint32_t without = r == MD_QUOTA_WAITING || share->limits[r] == MD_QUOTA_ANY ? share->limits[r] : 0;
	if (share->limits[r] != MD_QUOTA_ANY && !share->configured)
		return 0;
	if (!share->serial)
		return without;
	return share->lost && r == MD_QUOTA_RUNNING && share->given[r] != MD_QUOTA_ANY ? 0 : share->given[r];
}

static void say_lost(const struct md_quota_share *share)
{
	if (share->lost)
		md_warn("cluster: tenant %.100s has no share of its quota here any more, because etcd was not reached "
			"for too "
			"long: its requests wait (medusa.cluster.quota_hold)",
			share->tenant);
	else
		md_warn("cluster: tenant %.100s has a share of its quota again", share->tenant);
}

/* Tells the scheduler what counts from now on. */
static void apply(struct md_quotas *quotas, struct md_quota_share *share, uint64_t now)
{
	uint64_t hold = hold_of(quotas);
	if (share->session == quotas->lease && share->serial)
		share->contact = quotas->contact;
	bool lost = share->serial && md_quota_is_limited(share) && now >= share->contact + hold;
	if (lost != share->lost) {
		share->lost = lost;
		say_lost(share);
	}
	uint32_t values[MD_QUOTAS] = {value_of(share, MD_QUOTA_RUNNING), value_of(share, MD_QUOTA_WAITING)};
	double weight = share->weight;
	bool changed = memcmp(values, share->now, sizeof(values)) != 0 || weight < share->told_weight ||
		       weight > share->told_weight;
	memcpy(share->now, values, sizeof(values));
	share->told_weight = weight;
	if (changed && share->configured)
		tell_scheduler(quotas, share);
	bool over = lost && now >= share->contact + 2 * hold;
	if (over && !share->broken)
		break_off(quotas, share);
	share->broken = over;
}

void md_quotas_apply(struct md_quotas *quotas)
{
	uint64_t now = md_quotas_clock_ns(), hold = hold_of(quotas);
	quotas->expires = UINT64_MAX;
	for (uint32_t i = 0; i < quotas->count; i++) {
		struct md_quota_share *share = &quotas->shares[i];
		apply(quotas, share, now);
		if (!share->serial || !md_quota_is_limited(share) || share->broken)
			continue;
		uint64_t next = share->contact + (share->lost ? 2 : 1) * hold;
		quotas->expires = next < quotas->expires ? next : quotas->expires;
	}
}

void md_quota_check(struct md_cluster *cluster)
{
	struct md_quotas *quotas = cluster ? cluster->quotas : NULL;
	if (quotas && quotas->expires != UINT64_MAX && md_quotas_clock_ns() >= quotas->expires)
		md_quotas_apply(quotas);
}

void md_quotas_contact(struct md_quotas *quotas, int64_t lease, uint64_t at)
{
	quotas->lease = lease;
	quotas->contact = at;
	md_quotas_apply(quotas);
}

void md_quotas_leave(struct md_quotas *quotas)
{
	quotas->left = true;
	for (uint32_t i = 0; i < quotas->count; i++)
		if (quotas->shares[i].limits[MD_QUOTA_RUNNING] != MD_QUOTA_ANY)
			break_off(quotas, &quotas->shares[i]); /* which only a daemon that is told to end at once has */
	for (uint32_t i = 0; i < quotas->count; i++) {
		struct md_quota_share *share = &quotas->shares[i];
		for (unsigned r = 0; r < MD_QUOTAS; r++)
			share->limits[r] = share->given[r] = share->limits[r] != MD_QUOTA_ANY ? 0 : share->given[r];
	}
	md_quotas_apply(quotas);
}

/* ---- the configuration ---- */

static uint32_t limit_of(uint32_t stated)
{
	return stated ? stated : MD_QUOTA_ANY;
}

/* Nobody states a limit any more: the last share bounds nothing, and a limit that comes later begins with none. */
static void forget_share(struct md_quota_share *share)
{
	share->serial = 0;
	share->session = 0;
	for (unsigned r = 0; r < MD_QUOTAS; r++)
		share->given[r] = MD_QUOTA_ANY;
}

/* What etcd says of the tenant's limits, and of this node's share. */
static void look_at_ledger(struct md_quotas *quotas, struct md_quota_share *share)
{
	const json_t *known = json_object_get(quotas->known.ledgers, share->tenant),
		     *value = json_object_get(known, "value");
	struct md_quota_ledger ledger = {.limits = {MD_QUOTA_ANY, MD_QUOTA_ANY}};
	struct md_error err = {0};
	if ((known && !value) || (value && md_quota_ledger_read(value, &ledger, &err) != MD_OK))
		return; /* it can't be read, which was said when it came: all stays as it is */
	const struct md_quota_entry *entry = md_quota_ledger_find(&ledger, quotas->cluster->name);
	for (unsigned r = 0; r < MD_QUOTAS; r++)
		share->limits[r] = ledger.limits[r] < share->stated[r] ? ledger.limits[r] : share->stated[r];
	if (!value && !md_quota_is_limited(share))
		forget_share(share);
	if (entry && !quotas->left && entry->session == quotas->lease && entry->serial > share->serial) {
		share->serial = entry->serial;
		share->session = entry->session;
		share->contact = quotas->contact;
		memcpy(share->given, entry->share, sizeof(share->given));
	}
	md_quota_ledger_finish(&ledger);
}

static void look_at_weight(const struct md_quotas *quotas, struct md_quota_share *share)
{
	const struct md_cluster *cluster = quotas->cluster;
	bool led = cluster->wanted && md_wanted_leader(cluster->wanted) &&
		   md_quotas_clock_ns() < quotas->contact + hold_of(quotas);
	const json_t *of_node = led ? json_object_get(quotas->known.weights, cluster->name) : NULL;
	double weight = json_number_value(json_object_get(of_node, share->tenant));
	share->weight = weight >= 1e-6 && weight <= 1e6 ? weight : 0;
}

static void look_at_keys(struct md_quotas *quotas)
{
	for (uint32_t i = 0; i < quotas->count; i++) {
		look_at_ledger(quotas, &quotas->shares[i]);
		look_at_weight(quotas, &quotas->shares[i]);
	}
	md_quotas_apply(quotas);
}

static void configure(struct md_quotas *quotas, const struct md_worker_config *config)
{
	const struct md_config_node *node = &config->node;
	for (uint32_t i = 0; i < quotas->count; i++)
		quotas->shares[i].configured = false;
	struct md_quota_share *rest = node->tenant_count ? obtain_share(quotas, "") : NULL;
	if (rest)
		rest->configured = true;
	for (uint32_t i = 0; i < node->tenant_count; i++) {
		struct md_quota_share *share = obtain_share(quotas, node->tenants[i].name);
		if (!share)
			continue;
		share->configured = true;
		share->stated[MD_QUOTA_RUNNING] = limit_of(node->tenants[i].cluster_max_running);
		share->stated[MD_QUOTA_WAITING] = limit_of(node->tenants[i].cluster_max_waiting);
	}
	look_at_keys(quotas);
	for (uint32_t i = 0; i < quotas->count; i++)
		if (quotas->shares[i].configured)
			tell_scheduler(quotas, &quotas->shares[i]);
}

void md_quota_configured(struct md_cluster *cluster, const struct md_worker_config *config)
{
	if (cluster && cluster->quotas)
		configure(cluster->quotas, config);
}

/* ---- keys in etcd ---- */

static bool begin(struct md_quota_keys *keys)
{
	*keys = (struct md_quota_keys){json_object(), json_object()};
	return keys->ledgers && keys->weights;
}

static void drop(struct md_quota_keys *keys)
{
	json_decref(keys->ledgers);
	json_decref(keys->weights);
	*keys = (struct md_quota_keys){0};
}

void md_quotas_begin(struct md_quotas *quotas)
{
	drop(&quotas->coming);
	if (!begin(&quotas->coming))
		drop(&quotas->coming);
}

void md_quotas_end(struct md_quotas *quotas)
{
	if (!quotas->coming.ledgers)
		return;
	drop(&quotas->known);
	quotas->known = quotas->coming;
	quotas->coming = (struct md_quota_keys){0};
	look_at_keys(quotas);
}

static json_t *read_value(const char *key, const struct md_buf *value)
{
	struct md_error err = {0};
	json_t *root = md_record_read_state((const char *)value->data, value->size, &err);
	if (!root)
		md_warn("cluster: %.200s is left out: %s: %s", key, err.message, md_record_remedy(err.status, false));
	return root;
}

static void say_undivided(const char *key, const struct md_error *err)
{
	md_warn("cluster: %.200s is left out, and the quota is not divided: %s: %s", key,
		err->status == MD_ERR_CORRUPT ? "remove the key" : md_record_remedy(err->status, false), err->message);
}

/* With its revision: who writes it compares that. A value that can't be read is one that nobody may overwrite. */
static json_t *read_ledger(const char *key, const json_t *pair, const struct md_buf *value)
{
	struct md_quota_ledger ledger;
	struct md_error err = {0};
	json_t *root = md_record_read_state((const char *)value->data, value->size, &err);
	if (!root || md_quota_ledger_read(root, &ledger, &err) != MD_OK) {
		say_undivided(key, &err);
		json_decref(root);
		return json_pack("{s:I, s:b}", "revision", (json_int_t)md_etcd_number(pair, "mod_revision"), "unread",
				 1);
	}
	md_quota_ledger_finish(&ledger);
	return json_pack("{s:I, s:o}", "revision", (json_int_t)md_etcd_number(pair, "mod_revision"), "value", root);
}

static json_t *read_weights(const char *key, const struct md_buf *value)
{
	json_t *root = read_value(key, value), *tenants = json_incref(json_object_get(root, "tenants"));
	if (root && !json_is_object(tenants))
		md_warn("cluster: %.200s is left out: tenants: an object is wanted: %s", key,
			md_record_remedy(MD_ERR_CORRUPT, false));
	json_decref(root);
	if (json_is_object(tenants))
		return tenants;
	json_decref(tenants);
	return NULL;
}

static void set(json_t *keys, const char *name, json_t *value)
{
	if (value)
		json_object_set_new(keys, name, value);
	else
		json_object_del(keys, name);
}

static const char *behind(const char *key, const char *folder)
{
	size_t size = strlen(folder);
	return !strncmp(key, folder, size) && key[size] ? key + size : NULL;
}

void md_quotas_take(struct md_quotas *quotas, const char *key, const json_t *pair, const struct md_buf *value)
{
	struct md_quota_keys *keys = quotas->coming.ledgers ? &quotas->coming : &quotas->known;
	const char *name;
	if ((name = behind(key, "quotas/"))) {
		set(keys->ledgers, name, value ? read_ledger(key, pair, value) : NULL);
		struct md_quota_share *share = find_share(quotas, name);
		if (keys == &quotas->known && share) {
			look_at_ledger(quotas, share);
			md_quotas_apply(quotas);
		}
	} else if ((name = behind(key, "weights/")) && md_config_is_node_name(name)) {
		set(keys->weights, name, value ? read_weights(key, value) : NULL);
	}
}

const json_t *md_quotas_ledgers(const struct md_quotas *quotas)
{
	return quotas->known.ledgers;
}

const json_t *md_quotas_weights(const struct md_quotas *quotas)
{
	return quotas->known.weights;
}

/* ---- all of it ---- */

static void on_look(evutil_socket_t fd, short what, void *context)
{
	struct md_quotas *quotas = context;
	(void)fd, (void)what;
	for (uint32_t i = 0; i < quotas->count; i++)
		look_at_weight(quotas, &quotas->shares[i]);
	md_quotas_apply(quotas);
}

struct md_quotas *md_quotas_create(struct md_cluster *cluster)
{
	struct md_quotas *quotas = calloc(1, sizeof(*quotas));
	if (!quotas)
		return NULL;
	*quotas = (struct md_quotas){.cluster = cluster, .expires = UINT64_MAX};
	quotas->look = event_new(cluster->worker->base, -1, EV_PERSIST, on_look, quotas);
	if (quotas->look)
		event_priority_set(quotas->look, MD_WORKER_FIRST);
	if (quotas->look && begin(&quotas->known)) {
		configure(quotas, cluster->worker->config);
		return quotas;
	}
	md_quotas_destroy(quotas);
	return NULL;
}

void md_quotas_run(struct md_quotas *quotas)
{
	struct timeval every = {.tv_usec = LOOK_MS * 1000};
	event_add(quotas->look, &every);
}

void md_quotas_destroy(struct md_quotas *quotas)
{
	if (!quotas)
		return;
	if (quotas->look)
		event_free(quotas->look);
	for (uint32_t i = 0; i < quotas->count; i++)
		free(quotas->shares[i].tenant);
	free(quotas->shares);
	drop(&quotas->known);
	drop(&quotas->coming);
	free(quotas);
}

struct md_quota_here md_quotas_here(const struct md_quotas *quotas, const char *tenant)
{
	const struct md_quota_share *share = find_share(quotas, tenant);
	if (!share)
		return (struct md_quota_here){.running = MD_QUOTA_ANY, .waiting = MD_QUOTA_ANY};
	return (struct md_quota_here){.limited = md_quota_is_limited(share),
				      .lost = share->lost,
				      .running = share->now[MD_QUOTA_RUNNING],
				      .waiting = share->now[MD_QUOTA_WAITING],
				      .weight = share->told_weight};
}
