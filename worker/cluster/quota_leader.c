/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/quota_leader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "worker/cluster/cluster_parts.h"
#include "worker/cluster/quota_weights.h"
#include "worker/cluster/tenants_view.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define FOR_EVER_S 1e9
#define LOOK_MS 200u
#define REST_NS UINT64_C(200000000)  /* of a tenant's ledger after a write: what it changes has to come back first */
#define IDLE_NS UINT64_C(1000000000) /* nodes are gone long enough without a change that anybody tells */
#define WEIGH_NS UINT64_C(2000000000)
#define TURN_NS UINT64_C(3000000000) /* of a node, where a quota has less than one share for each that wants more */
#define SETTLE_NS ((MD_MEMBER_TTL_S + 1) * UINT64_C(1000000000)) /* as of leader.c: nodes that were away join anew */

/* A tenant with a quota. */
struct division {
	struct md_quota_leader *leader;
	char *tenant;
	struct md_etcd_call *writing;
	uint64_t rests;            /* md_clock_ns() */
	uint64_t turns[MD_QUOTAS]; /* since when, by md_clock_ns(), the turn goes on that began last; 0: none does */
	bool differs;              /* as was said last */
	bool seen;                 /* in this look */
	struct division *next;
};

/* A node that has something, and is not there. */
struct absence {
	char node[64];
	uint64_t since;  /* md_clock_ns() */
	bool seen, left; /* left: it has said that it leaves */
};

struct md_quota_leader {
	struct md_cluster *cluster;
	struct event *look;
	struct division *divisions;
	struct absence *absences;
	uint32_t absence_count, absence_room;
	int64_t created; /* the election for which all of this is */
	uint64_t elected, looked_at, weighed_at;
	uint64_t changes; /* of the view, at the last look */
	struct md_etcd_call *weighing;
	uint64_t writes;
};

/* ---- who is gone ---- */

/* NULL: out of memory. */
static struct absence *miss(struct md_quota_leader *leader, const char *node, uint64_t now)
{
	struct absence *found = NULL;
	for (uint32_t i = 0; i < leader->absence_count && !found; i++)
		if (!strcmp(leader->absences[i].node, node))
			found = &leader->absences[i];
	if (!found && MD_ARRAY_GROW(leader->absences, leader->absence_count, leader->absence_room)) {
		found = &leader->absences[leader->absence_count++];
		*found = (struct absence){.since = now};
		snprintf(found->node, sizeof(found->node), "%s", node);
	}
	if (found)
		found->seen = true;
	return found;
}

static double gone_for_s(struct md_quota_leader *leader, const char *node, uint64_t now)
{
	const struct absence *absence = miss(leader, node, now);
	return !absence ? 0 : absence->left ? FOR_EVER_S : (double)(now - absence->since) * 1e-9;
}

void md_quota_leader_left(struct md_quota_leader *leader, const char *node)
{
	uint32_t missed = leader ? leader->absence_count : 0;
	struct absence *absence = leader ? miss(leader, node, md_clock_ns()) : NULL;
	if (absence &&
	    leader->absence_count > missed) /* else it has said that of another one, which had the name before */
		absence->left = true;
}

/* Whoever was not missed in this look is there again, or nobody waits for it. */
static void forget_absences(struct md_quota_leader *leader)
{
	uint32_t left = 0;
	for (uint32_t i = 0; i < leader->absence_count; i++)
		if (leader->absences[i].seen) {
			leader->absences[left] = leader->absences[i];
			leader->absences[left++].seen = false;
		}
	leader->absence_count = left;
}

/* ---- a tenant ---- */

static struct division *obtain(struct md_quota_leader *leader, const char *tenant)
{
	for (struct division *one = leader->divisions; one; one = one->next)
		if (!strcmp(one->tenant, tenant))
			return one;
	struct division *made = calloc(1, sizeof(*made));
	if (!made || !(made->tenant = strdup(tenant))) {
		free(made);
		return NULL;
	}
	made->leader = leader;
	made->next = leader->divisions;
	leader->divisions = made;
	return made;
}

static void on_written(void *context, const json_t *answer, const struct md_error *err)
{
	struct division *division = context;
	division->writing = NULL;
	division->rests = md_clock_ns() + REST_NS;
	if (!answer)
		md_debug("cluster: the quota of tenant %s: %s", division->tenant, err->message);
	else if (!md_etcd_succeeded(answer))
		md_debug("cluster: the quota of tenant %s was changed meanwhile, or another node leads",
			 division->tenant);
}

/* value: NULL: the key is deleted. */
static void write_ledger(struct division *division, int64_t revision, const char *value)
{
	struct md_quota_leader *leader = division->leader;
	const struct md_cluster *cluster = leader->cluster;
	int64_t created;
	const char *guard = md_leader_key(cluster->leader, &created);
	char *key = NULL;
	if (!guard || asprintf(&key, "%squotas/%s", cluster->prefix, division->tenant) < 0)
		return;
	const struct md_etcd_pair pair = {key, value};
	division->writing = md_etcd_put_if_while(cluster->etcd, revision, &pair, guard, created, on_written, division);
	leader->writes += division->writing != NULL;
	free(key);
}

static int compare_said(const void *a, const void *b)
{
	return strcmp(((const struct md_quota_said *)a)->node, ((const struct md_quota_said *)b)->node);
}

/* Nodes that are listed, and those that only the ledger knows. NULL: out of memory. */
static struct md_quota_said *list_said(struct md_quota_leader *leader, const char *tenant,
				       const struct md_quota_ledger *ledger, uint64_t now, uint32_t *listed)
{
	uint32_t count;
	struct md_view_node *const *nodes = md_view_nodes(leader->cluster->view, &count);
	struct md_quota_said *said = calloc((size_t)count + ledger->count + 1, sizeof(*said));
	*listed = 0;
	for (uint32_t n = 0; said && n < count; n++) {
		struct md_quota_said *one = &said[*listed];
		md_tenant_said(nodes[n], tenant, one);
		const struct md_quota_entry *known = md_quota_ledger_find(ledger, nodes[n]->name);
		if (known && md_quota_is_other(known, one)) {
			*one = (struct md_quota_said){.there = false};
			memcpy(one->node, known->node, sizeof(one->node));
		}
		/* A record that can't be read is of a node that lives, with whatever it has. */
		if (known && !one->there && !*nodes[n]->why)
			one->gone_s = gone_for_s(leader, nodes[n]->name, now);
		*listed += known != NULL || one->there;
	}
	uint32_t of_view = *listed;
	for (uint32_t i = 0; said && i < ledger->count; i++) {
		struct md_quota_said *one = &said[*listed];
		memcpy(one->node, ledger->entries[i].node, sizeof(one->node));
		if (of_view && bsearch(one, said, of_view, sizeof(*said), compare_said))
			continue;
		*one = (struct md_quota_said){.gone_s = gone_for_s(leader, ledger->entries[i].node, now)};
		memcpy(one->node, ledger->entries[i].node, sizeof(one->node));
		++*listed;
	}
	return said;
}

static void say_differences(struct division *division, const struct md_tenant_terms *terms)
{
	if (terms->differ && !division->differs)
		md_warn(
		    "cluster: nodes %s and %s say different things of tenant %.100s (its weight, cluster_max_running, "
		    "cluster_max_waiting): the least counts",
		    terms->one, terms->other, division->tenant);
	division->differs = terms->differ;
}

static bool has_limits(const struct md_tenant_terms *terms)
{
	return terms->limits[MD_QUOTA_RUNNING] != MD_QUOTA_ANY || terms->limits[MD_QUOTA_WAITING] != MD_QUOTA_ANY;
}

static void step(struct division *division, const struct md_tenant_terms *terms, struct md_quota_ledger *ledger,
		 int64_t revision, uint64_t now)
{
	uint32_t count;
	bool changed = false;
	struct md_quota_turns turns = {.runs = {false}};
	struct md_quota_said *said = list_said(division->leader, division->tenant, ledger, now, &count);
	char *text = NULL;
	for (unsigned r = 0; r < MD_QUOTAS; r++)
		turns.over[r] = division->turns[r] && now - division->turns[r] >= TURN_NS;
	if (said && md_quota_ledger_step(ledger, terms->limits, said, count, &turns, &changed) && changed)
		text = md_quota_ledger_print(ledger);
	for (unsigned r = 0; r < MD_QUOTAS; r++)
		if (!turns.runs[r])
			division->turns[r] = 0;
		else if (turns.over[r] || !division->turns[r])
			division->turns[r] = now;
	if (text)
		write_ledger(division, revision, text);
	free(text);
	free(said);
}

/* known: as etcd has it; NULL: there is no such key. */
static void divide(struct division *division, const json_t *known, uint64_t now)
{
	struct md_tenant_terms terms = md_tenant_terms_of(division->leader->cluster->view, division->tenant);
	const json_t *value = json_object_get(known, "value");
	int64_t revision = json_integer_value(json_object_get(known, "revision"));
	struct md_quota_ledger ledger = {.limits = {MD_QUOTA_ANY, MD_QUOTA_ANY}};
	struct md_error ignored = {0};
	say_differences(division, &terms);
	if (division->writing || now < division->rests || (known && !value) || (!known && !has_limits(&terms)))
		return;
	if (value && md_quota_ledger_read(value, &ledger, &ignored) != MD_OK)
		return;
	if (!terms.nodes) /* nobody has the tenant any more: what is held is held until it is over */
		memcpy(terms.limits, ledger.limits, sizeof(terms.limits));
	if (!has_limits(&terms) || (!terms.nodes && !ledger.count))
		write_ledger(division, revision, NULL);
	else
		step(division, &terms, &ledger, revision, now);
	md_quota_ledger_finish(&ledger);
}

/* ---- weights ---- */

static void on_weighed(void *context, const json_t *answer, const struct md_error *err)
{
	struct md_quota_leader *leader = context;
	leader->weighing = NULL;
	if (!answer)
		md_debug("cluster: weights of tenants: %s", err->message);
}

static void weigh(struct md_quota_leader *leader)
{
	struct md_cluster *cluster = leader->cluster;
	int64_t created;
	const char *guard = md_leader_key(cluster->leader, &created);
	struct md_quota_changes changes = {.count = 0};
	if (!guard)
		return;
	md_quota_weigh(cluster->view, md_quotas_weights(cluster->quotas), cluster->prefix, &changes);
	if (changes.count)
		leader->weighing =
		    md_etcd_put_while(cluster->etcd, guard, created, changes.pairs, changes.count, on_weighed, leader);
	leader->writes += leader->weighing ? changes.count : 0;
	md_quota_changes_drop(&changes);
}

/* ---- a look ---- */

static void look(struct md_quota_leader *leader, uint64_t now)
{
	struct md_cluster *cluster = leader->cluster;
	const json_t *ledgers = md_quotas_ledgers(cluster->quotas);
	json_t *names = md_tenants_of_nodes(cluster->view, true);
	const char *name;
	json_t *ignored;
	json_object_update_missing(names, (json_t *)ledgers);
	json_object_foreach(names, name, ignored)
	{
		struct division *division = obtain(leader, name);
		if (division)
			divide(division, json_object_get(ledgers, name), now);
	}
	json_decref(names);
	forget_absences(leader);
	if (!leader->weighing && now - leader->weighed_at >= WEIGH_NS) {
		leader->weighed_at = now;
		weigh(leader);
	}
}

static void on_look(evutil_socket_t fd, short what, void *context)
{
	struct md_quota_leader *leader = context;
	const struct md_cluster *cluster = leader->cluster;
	uint64_t now = md_clock_ns();
	int64_t created;
	(void)fd, (void)what;
	bool leads = md_leader_key(cluster->leader, &created);
	if (created != leader->created) {
		leader->created = created;
		leader->elected = now;
		leader->absence_count = 0; /* others may have come and gone since */
	}
	uint64_t changes = md_view_changes(cluster->view);
	if (!leads || !md_view_is_current(cluster->view) || now - leader->elected < SETTLE_NS ||
	    (changes == leader->changes && now - leader->looked_at < IDLE_NS))
		return;
	leader->changes = changes;
	leader->looked_at = now;
	look(leader, now);
}

/* ---- all of it ---- */

struct md_quota_leader *md_quota_leader_create(struct md_cluster *cluster)
{
	struct md_quota_leader *leader = calloc(1, sizeof(*leader));
	if (!leader)
		return NULL;
	leader->cluster = cluster;
	leader->look = event_new(cluster->worker->base, -1, EV_PERSIST, on_look, leader);
	if (leader->look)
		return leader;
	free(leader);
	return NULL;
}

void md_quota_leader_begin(struct md_quota_leader *leader)
{
	struct timeval every = {.tv_usec = LOOK_MS * 1000};
	event_add(leader->look, &every);
}

void md_quota_leader_end(struct md_quota_leader *leader)
{
	if (!leader)
		return;
	event_del(leader->look);
	md_etcd_cancel(md_steal_ptr(&leader->weighing));
	for (struct division *one = leader->divisions; one; one = one->next)
		md_etcd_cancel(md_steal_ptr(&one->writing));
}

void md_quota_leader_destroy(struct md_quota_leader *leader)
{
	if (!leader)
		return;
	md_quota_leader_end(leader);
	for (struct division *one = leader->divisions, *next; one; one = next) {
		next = one->next;
		free(one->tenant);
		free(one);
	}
	event_free(leader->look);
	free(leader->absences);
	free(leader);
}

uint64_t md_quota_leader_writes(const struct md_quota_leader *leader)
{
	return leader ? leader->writes : 0;
}
