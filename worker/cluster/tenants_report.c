/* SPDX-License-Identifier: Apache-2.0 */
/* What the node knows of the cluster's tenants, for the control socket and metrics. */
#include <inttypes.h>
#include <string.h>

#include "worker/cluster/cluster_parts.h"
#include "worker/cluster/cluster_report.h"
#include "worker/cluster/tenants_view.h"
#include "worker/core/metrics_text.h"
#include "worker/core/worker.h"

/* Sums over all nodes of what their states say: rounded there. */
struct sums {
	uint64_t running, waiting, held, share;
	uint32_t nodes; /* that have the tenant */
};

static uint64_t count_of(const json_t *object, const char *key)
{
	json_int_t count = json_integer_value(json_object_get(object, key));
	return count > 0 ? (uint64_t)count : 0;
}

static json_t *count_or_null(uint32_t count)
{
	return count == MD_QUOTA_ANY ? json_null() : json_integer(count);
}

static bool read_ledger(const struct md_cluster *cluster, const char *tenant, struct md_quota_ledger *ledger)
{
	const json_t *value = json_object_get(json_object_get(md_quotas_ledgers(cluster->quotas), tenant), "value");
	struct md_error ignored = {0};
	*ledger = (struct md_quota_ledger){.limits = {MD_QUOTA_ANY, MD_QUOTA_ANY}};
	return value && md_quota_ledger_read(value, ledger, &ignored) == MD_OK;
}

static void add_node(struct sums *sums, const struct md_view_node *node, const char *tenant)
{
	const json_t *state = md_tenant_of_state(node, tenant);
	sums->running += count_of(state, "running");
	sums->waiting += count_of(state, "waiting");
	sums->held += count_of(state, "held");
	sums->nodes += md_tenant_of_record(node, tenant) != NULL;
}

static json_t *describe_node(const struct md_cluster *cluster, const char *name, const struct md_view_node *node,
			     const char *tenant, const struct md_quota_entry *entry)
{
	const json_t *state = node ? md_tenant_of_state(node, tenant) : NULL;
	const json_t *weights = json_object_get(md_quotas_weights(cluster->quotas), name);
	const json_t *weight = json_object_get(weights, tenant);
	const json_t *own = node ? json_object_get(md_tenant_of_record(node, tenant), "weight") : NULL;
	struct md_quota_said said = {.there = false};
	if (node)
		md_tenant_said(node, tenant, &said);
	bool obeys = entry && said.told && said.serial == entry->serial;
	json_t *made = json_pack(
	    "{s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:b}", "node", name, "state",
	    !node || !node->record ? "gone"
	    : node->ended          ? "lease ended"
				   : "there",
	    "running", (json_int_t)count_of(state, "running"), "waiting", (json_int_t)count_of(state, "waiting"),
	    "held", (json_int_t)count_of(state, "held"), "share_running",
	    count_or_null(entry ? entry->share[MD_QUOTA_RUNNING] : MD_QUOTA_ANY), "share_waiting",
	    count_or_null(entry ? entry->share[MD_QUOTA_WAITING] : MD_QUOTA_ANY), "reserved_running",
	    count_or_null(entry ? entry->held[MD_QUOTA_RUNNING] : MD_QUOTA_ANY), "reserved_waiting",
	    count_or_null(entry ? entry->held[MD_QUOTA_WAITING] : MD_QUOTA_ANY), "obeyed", obeys);
	json_object_set(made, "weight", json_is_number(weight) ? (json_t *)weight : own ? (json_t *)own : json_null());
	return made;
}

static json_t *describe_nodes(const struct md_cluster *cluster, const char *tenant, struct sums *sums)
{
	struct md_quota_ledger ledger;
	uint32_t count;
	struct md_view_node *const *nodes = md_view_nodes(cluster->view, &count);
	json_t *list = json_array();
	read_ledger(cluster, tenant, &ledger);
	for (uint32_t n = 0; n < count; n++) {
		const struct md_quota_entry *entry = md_quota_ledger_find(&ledger, nodes[n]->name);
		if (!entry && !md_tenant_of_record(nodes[n], tenant))
			continue;
		add_node(sums, nodes[n], tenant);
		json_array_append_new(list, describe_node(cluster, nodes[n]->name, nodes[n], tenant, entry));
	}
	for (uint32_t i = 0; i < ledger.count; i++)
		if (!md_view_find(cluster->view, ledger.entries[i].node))
			json_array_append_new(
			    list, describe_node(cluster, ledger.entries[i].node, NULL, tenant, &ledger.entries[i]));
	md_quota_ledger_finish(&ledger);
	return list;
}

/* All tenants of nodes that are there, and those that only etcd knows. */
static json_t *list_names(const struct md_cluster *cluster)
{
	json_t *names = md_tenants_of_nodes(cluster->view, false);
	json_object_update_missing(names, (json_t *)md_quotas_ledgers(cluster->quotas));
	return names;
}

static json_t *describe_tenant(const struct md_cluster *cluster, const char *tenant)
{
	const struct md_tenant_terms terms = md_tenant_terms_of(cluster->view, tenant);
	struct md_quota_here here = md_quotas_here(cluster->quotas, tenant);
	struct sums sums = {0};
	json_t *nodes = describe_nodes(cluster, tenant, &sums);
	return json_pack("{s:s, s:f, s:o, s:o, s:I, s:I, s:I, s:b, s:b, s:o}", "tenant", tenant, "weight", terms.weight,
			 "max_running", count_or_null(terms.limits[MD_QUOTA_RUNNING]), "max_waiting",
			 count_or_null(terms.limits[MD_QUOTA_WAITING]), "running", (json_int_t)sums.running, "waiting",
			 (json_int_t)sums.waiting, "held", (json_int_t)sums.held, "differs", terms.differ, "lost_here",
			 here.lost, "nodes", nodes);
}

json_t *md_cluster_report_tenants(const struct md_cluster *cluster)
{
	json_t *names = list_names(cluster), *list = json_array(), *ignored;
	const char *name;
	json_object_foreach(names, name, ignored) json_array_append_new(list, describe_tenant(cluster, name));
	json_decref(names);
	return list;
}

json_t *md_cluster_report_differences(const struct md_cluster *cluster)
{
	json_t *names = list_names(cluster), *list = json_array(), *ignored;
	const char *name;
	json_object_foreach(names, name, ignored)
	{
		const struct md_tenant_terms terms = md_tenant_terms_of(cluster->view, name);
		if (terms.differ)
			json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "tenant", name, "node", terms.one,
							      "other", terms.other));
	}
	json_decref(names);
	return list;
}

/* ---- metrics ---- */

static void put(FILE *out, const char *name, const char *tenant, double value)
{
	fprintf(out, "medusa_worker_%s{tenant=\"", name);
	md_metrics_text_label(out, tenant);
	fprintf(out, "\"} %.9g\n", value);
}

enum gauge { SHARE_RUNNING, SHARE_WAITING, HELD, WEIGHT, LOST };

static const struct {
	const char *name, *help;
	enum gauge gauge;
} gauges[] = {
    {"cluster_tenant_share_running",
     "Requests of the tenant that this node may run, as its share of the cluster's quota.", SHARE_RUNNING},
    {"cluster_tenant_share_waiting",
     "Requests of the tenant that may wait at this node, as its share of the cluster's quota.", SHARE_WAITING},
    {"cluster_tenant_requests_held", "Requests of the tenant that wait at this node because of its limit or share.",
     HELD},
    {"cluster_tenant_weight", "The weight by which this node serves the tenant, if the cluster's leader has said one.",
     WEIGHT},
    {"cluster_tenant_share_lost",
     "1: the tenant's share has run out at this node, because etcd is not reached; its requests wait.", LOST},
};

static void put_gauge(const struct md_cluster *cluster, FILE *out, enum gauge gauge, const char *name,
		      const struct md_tenant_entry *entry)
{
	struct md_quota_here here = md_quotas_here(cluster->quotas, entry->name);
	struct medusa_sched_tenant_state state = {.size = sizeof(state)};
	medusa_sched_tenant_get(cluster->worker->sched, entry->index, &state);
	if (gauge == SHARE_RUNNING && here.running != MD_QUOTA_ANY)
		put(out, name, entry->name, here.running);
	else if (gauge == SHARE_WAITING && here.waiting != MD_QUOTA_ANY)
		put(out, name, entry->name, here.waiting);
	else if (gauge == HELD)
		put(out, name, entry->name, state.held);
	else if (gauge == WEIGHT && here.weight > 0)
		put(out, name, entry->name, here.weight);
	else if (gauge == LOST && here.limited)
		put(out, name, entry->name, here.lost);
}

void md_cluster_print_tenants(const struct md_cluster *cluster, FILE *out)
{
	const struct md_worker *worker = cluster->worker;
	const struct md_tenant_entry *entry;
	struct medusa_sched_tenant_state state;
	for (size_t g = 0; worker->config->node.tenant_count && g < sizeof(gauges) / sizeof(*gauges); g++) {
		md_metrics_text_begin(out, "medusa_worker_", gauges[g].name, "gauge", gauges[g].help);
		for (uint32_t i = 0; md_tenants_get(worker, i, &entry, &state); i++)
			if (entry)
				put_gauge(cluster, out, gauges[g].gauge, gauges[g].name, entry);
	}
}
