/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/quota_weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "json/tree_text.h"
#include "medusa/scheduler_cluster.h"
#include "worker/cluster/tenants_view.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define MOVED 0.05 /* of a weight */
#define USED_MOST 1e6

/* The problem, and whose it is. */
struct scales {
	const char **names; /* of tenants; "": requests of none, as those of a tenant of weight 1 */
	double *weights;
	json_t *index; /* {"TENANT": number} */
	uint32_t tenant_count, tenant_room, weight_room;
	struct medusa_sched_cluster_claim *claims;
	uint32_t claim_count, claim_room;
};

static bool add_tenant(struct scales *scales, const struct md_view *view, const char *name)
{
	if (!MD_ARRAY_GROW(scales->names, scales->tenant_count, scales->tenant_room) ||
	    !MD_ARRAY_GROW(scales->weights, scales->tenant_count, scales->weight_room))
		return false;
	scales->names[scales->tenant_count] = name;
	scales->weights[scales->tenant_count] = *name ? md_tenant_terms_of(view, name).weight : 1;
	return !json_object_set_new(scales->index, name, json_integer((json_int_t)scales->tenant_count++));
}

static bool add_claim(struct scales *scales, const struct md_view *view, uint32_t node, const char *name,
		      const json_t *state)
{
	double used = json_number_value(json_object_get(state, "used"));
	bool more = json_is_true(json_object_get(state, "more"));
	if (!(used > 0 && used < USED_MOST) && !more)
		return true;
	if (!json_object_get(scales->index, name) && !add_tenant(scales, view, name))
		return false;
	if (!MD_ARRAY_GROW(scales->claims, scales->claim_count, scales->claim_room))
		return false;
	scales->claims[scales->claim_count++] = (struct medusa_sched_cluster_claim){
	    .node = node,
	    .tenant = (uint32_t)json_integer_value(json_object_get(scales->index, name)),
	    .used = used > 0 && used < USED_MOST ? used : 0,
	    .more = more};
	return true;
}

static bool gather(struct scales *scales, const struct md_view *view, struct md_view_node *const *nodes, uint32_t count)
{
	for (uint32_t n = 0; n < count; n++) {
		json_t *tenants = json_object_get(json_object_get(nodes[n]->state, "quotas"), "tenants"), *state;
		const char *name;
		if (!md_view_has_lease(nodes[n]))
			continue;
		json_object_foreach(tenants, name, state) if (!add_claim(scales, view, n, name, state)) return false;
	}
	return true;
}

/* By nodes: {"TENANT": weight} of those whose weight is not the configuration's. */
static json_t **describe(const struct scales *scales, uint32_t count, const double *effective)
{
	json_t **nodes = calloc((size_t)count + 1, sizeof(json_t *));
	for (uint32_t i = 0; nodes && i < scales->claim_count; i++) {
		const struct medusa_sched_cluster_claim *claim = &scales->claims[i];
		if (fabs(effective[i] - scales->weights[claim->tenant]) <= MOVED * scales->weights[claim->tenant])
			continue;
		if (!nodes[claim->node])
			nodes[claim->node] = json_object();
		json_object_set_new(nodes[claim->node], scales->names[claim->tenant], json_real(effective[i]));
	}
	return nodes;
}

static bool is_near(const json_t *published, const json_t *wanted)
{
	const char *name;
	json_t *weight;
	if (json_object_size(published) != json_object_size(wanted))
		return false;
	json_object_foreach((json_t *)wanted, name, weight)
	{
		double is = json_number_value(weight), was = json_number_value(json_object_get(published, name));
		if (fabs(is - was) > MOVED * is)
			return false;
	}
	return true;
}

/* wanted: NULL: the key goes. */
static void change(struct md_quota_changes *changes, const char *prefix, const char *node, json_t *wanted)
{
	char *key = NULL, *value = NULL;
	json_t *made = wanted ? json_pack("{s:i, s:O}", "format", MD_RECORD_FORMAT, "tenants", wanted) : NULL;
	if (made)
		value = md_jansson_print(made, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(6));
	json_decref(made);
	if (changes->count == MD_QUOTA_CHANGES_MOST || (wanted && !value) ||
	    asprintf(&key, "%sweights/%s", prefix, node) < 0) {
		free(value);
		return; /* the next time */
	}
	changes->pairs[changes->count++] = (struct md_etcd_pair){key, value};
}

static void compare(struct md_view_node *const *nodes, uint32_t count, json_t **wanted, const json_t *published,
		    const struct md_view *view, const char *prefix, struct md_quota_changes *changes)
{
	const char *node;
	json_t *had;
	for (uint32_t n = 0; n < count; n++) {
		had = json_object_get(published, nodes[n]->name);
		if (wanted[n] ? !is_near(had, wanted[n]) : had != NULL)
			change(changes, prefix, nodes[n]->name, wanted[n]);
	}
	json_object_foreach((json_t *)published, node, had) if (!md_view_find(view, node))
	    change(changes, prefix, node, NULL);
}

void md_quota_weigh(const struct md_view *view, const json_t *published, const char *prefix,
		    struct md_quota_changes *changes)
{
	uint32_t count;
	struct md_view_node *const *nodes = md_view_nodes(view, &count);
	struct scales scales = {.index = json_object()};
	double *effective = NULL;
	json_t **wanted = NULL;
	if (gather(&scales, view, nodes, count))
		effective = calloc((size_t)scales.claim_count + 1, sizeof(*effective));
	const struct medusa_sched_cluster_shares shares = {.size = sizeof(shares),
							   .weights = scales.weights,
							   .claims = scales.claims,
							   .node_count = count,
							   .tenant_count = scales.tenant_count,
							   .claim_count = scales.claim_count};
	if (effective && medusa_sched_cluster_weights(&shares, effective))
		md_warn("cluster: weights of tenants stay as they are: %s", medusa_sched_error(NULL));
	else if (effective)
		wanted = describe(&scales, count, effective);
	if (wanted)
		compare(nodes, count, wanted, published, view, prefix, changes);
	for (uint32_t n = 0; wanted && n < count; n++)
		json_decref(wanted[n]);
	free(wanted);
	free(effective);
	free(scales.names);
	free(scales.weights);
	free(scales.claims);
	json_decref(scales.index);
}

void md_quota_changes_drop(struct md_quota_changes *changes)
{
	for (unsigned i = 0; i < changes->count; i++) {
		free((char *)changes->pairs[i].key);
		free((char *)changes->pairs[i].value);
	}
	changes->count = 0;
}
