/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/tenants_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const limit_keys[MD_QUOTAS] = {"max_running", "max_waiting"};
static const char *const most_keys[MD_QUOTAS] = {"most_running", "most_waiting"};
static const char *const wants_keys[MD_QUOTAS] = {"wants_running", "wants_waiting"};

static uint32_t count_of(const json_t *object, const char *key, uint32_t otherwise)
{
	const json_t *value = json_object_get(object, key);
	json_int_t count = json_integer_value(value);
	return !json_is_integer(value) || count < 0 ? otherwise : count < INT32_MAX ? (uint32_t)count : INT32_MAX;
}

/* As in the configuration, 0 is no limit. */
static uint32_t limit_of(const json_t *tenant, enum md_quota r)
{
	uint32_t limit = count_of(tenant, limit_keys[r], MD_QUOTA_ANY);
	return limit ? limit : MD_QUOTA_ANY;
}

static double weight_of(const json_t *tenant)
{
	double weight = json_number_value(json_object_get(tenant, "weight"));
	return weight >= 1e-6 && weight <= 1e6 ? weight : 1;
}

const json_t *md_tenant_of_record(const struct md_view_node *node, const char *name)
{
	return node->record ? json_object_get(json_object_get(node->record->root, "tenants"), name) : NULL;
}

const json_t *md_tenant_of_state(const struct md_view_node *node, const char *name)
{
	return json_object_get(json_object_get(json_object_get(node->state, "quotas"), "tenants"), name);
}

json_t *md_tenants_of_nodes(const struct md_view *view, bool limited)
{
	uint32_t count;
	struct md_view_node *const *nodes = md_view_nodes(view, &count);
	json_t *names = json_object();
	for (uint32_t n = 0; n < count; n++) {
		json_t *tenants = nodes[n]->record ? json_object_get(nodes[n]->record->root, "tenants") : NULL, *tenant;
		const char *name;
		json_object_foreach(tenants, name, tenant) if (!limited ||
							       limit_of(tenant, MD_QUOTA_RUNNING) != MD_QUOTA_ANY ||
							       limit_of(tenant, MD_QUOTA_WAITING) != MD_QUOTA_ANY)
		    json_object_set_new(names, name, json_true());
	}
	return names;
}

static void add_terms(struct md_tenant_terms *terms, const char *node, const json_t *tenant)
{
	bool differs = false;
	for (unsigned r = 0; r < MD_QUOTAS; r++) {
		uint32_t limit = limit_of(tenant, r);
		differs |= terms->nodes && limit != terms->limits[r];
		terms->limits[r] = limit < terms->limits[r] ? limit : terms->limits[r];
	}
	double weight = weight_of(tenant);
	differs |= terms->nodes && (weight < terms->weight || weight > terms->weight);
	terms->weight = !terms->nodes || weight < terms->weight ? weight : terms->weight;
	if (!terms->nodes)
		snprintf(terms->one, sizeof(terms->one), "%s", node);
	else if (differs && !terms->differ)
		snprintf(terms->other, sizeof(terms->other), "%s", node);
	terms->differ |= differs;
	terms->nodes++;
}

struct md_tenant_terms md_tenant_terms_of(const struct md_view *view, const char *tenant)
{
	struct md_tenant_terms terms = {.limits = {MD_QUOTA_ANY, MD_QUOTA_ANY}, .weight = 1};
	uint32_t count;
	struct md_view_node *const *nodes = md_view_nodes(view, &count);
	for (uint32_t n = 0; n < count; n++) {
		const json_t *found = md_tenant_of_record(nodes[n], tenant);
		if (found)
			add_terms(&terms, nodes[n]->name, found);
	}
	return terms;
}

static int64_t session_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));
	uint64_t session = 0;
	return text && sscanf(text, "%" SCNx64, &session) == 1 ? (int64_t)session : 0;
}

/* A node whose record does not tell its tenants is of an earlier version, and takes no part. */
void md_tenant_said(const struct md_view_node *node, const char *tenant, struct md_quota_said *said)
{
	const json_t *quotas = json_object_get(node->state, "quotas"), *state = md_tenant_of_state(node, tenant);
	const json_t *own = md_tenant_of_record(node, tenant);
	json_int_t serial = json_integer_value(json_object_get(state, "serial"));
	double hold_s = json_number_value(json_object_get(quotas, "hold_s"));
	bool has = md_view_has_lease(node) && !node->left;
	*said = (struct md_quota_said){.there = has && (own || state),
				       .told = quotas != NULL,
				       .left = node->left,
				       .spare = own && !node->draining && node->wish != MD_WISH_DRAIN,
				       .session = session_of(quotas, "session"),
				       .serial = serial > 0 && serial <= MD_QUOTA_SERIAL_MOST ? (uint64_t)serial : 0,
				       .obeys = session_of(state, "obeys"),
				       .hold_s = hold_s >= MD_QUOTA_HOLD_LEAST_S && hold_s <= MD_QUOTA_HOLD_MOST_S
						     ? hold_s
						     : MD_QUOTA_HOLD_MOST_S};
	const char *identity = json_string_value(json_object_get(node->state, "identity"));
	snprintf(said->node, sizeof(said->node), "%s", node->name);
	snprintf(said->identity, sizeof(said->identity), "%s", identity ? identity : "");
	for (unsigned r = 0; r < MD_QUOTAS; r++) {
		bool obeys = limit_of(own, r) != MD_QUOTA_ANY || !own;
		said->most[r] = count_of(state, most_keys[r], state || !obeys ? MD_QUOTA_ANY : 0);
		said->wants[r] = count_of(state, wants_keys[r], 0);
	}
}
