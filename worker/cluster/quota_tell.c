/* SPDX-License-Identifier: Apache-2.0 */
/* What this node says of tenants: in its record what its configuration says, and in its state what they have, want and obey. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "worker/cluster/quota_parts.h"
#include "worker/core/worker.h"

#define MEAN_S 10.0     /* of what is used of GPUs */
#define USED_STEP 0.125 /* what is told of it is off by so much at most */

json_t *md_quotas_describe(const struct md_worker *worker)
{
	const struct md_config_node *node = &worker->config->node;
	json_t *tenants = json_object();
	for (uint32_t i = 0; i < node->tenant_count; i++) {
		const struct md_config_tenant *tenant = &node->tenants[i];
		json_t *made = json_pack("{s:f}", "weight", tenant->weight);
		if (tenant->cluster_max_running)
			json_object_set_new(made, "max_running", json_integer(tenant->cluster_max_running));
		if (tenant->cluster_max_waiting)
			json_object_set_new(made, "max_waiting", json_integer(tenant->cluster_max_waiting));
		json_object_set_new(tenants, tenant->name, made);
	}
	return tenants;
}

/* 1, 2, 3, 4, 6, 8, 12, 16 ...: the last one that is not more, or (up) the first one that is not less. */
static uint32_t round_count(uint32_t count, bool up)
{
	uint32_t step = 1;
	while (count / step >= 4)
		step *= 2;
	return count / step * step + (up && count % step ? step : 0);
}

/* More than runs can be made use of by what the tenant's limit holds back; what waits for a GPU runs not sooner by a greater share. */
static uint32_t want_running(const struct medusa_sched_tenant_state *state, uint32_t own_most)
{
	uint32_t more = state->running / 4 ? state->running / 4 : 1, wants = state->running;
	if (state->held)
		wants += state->waiting;
	else
		wants += state->waiting < more ? state->waiting : more;
	return own_most && wants > own_most ? own_most : wants;
}

static uint32_t peak_of(const struct md_quota_share *share, enum md_quota r)
{
	uint32_t most = 0;
	for (unsigned i = 0; i < MD_QUOTA_PEAK; i++)
		most = share->peaks[i][r] > most ? share->peaks[i][r] : most;
	return most;
}

static bool has_more(const struct md_quota_share *share)
{
	bool more = false;
	for (unsigned i = 0; i < MD_QUOTA_PEAK; i++)
		more |= share->more[i];
	return more;
}

static void sample(struct md_quotas *quotas, struct md_quota_share *share,
		   const struct medusa_sched_tenant_state *state, uint32_t own_most, double seconds)
{
	uint64_t refused = state->rejected - share->rejected;
	double used = (double)(state->gpu_ns - share->gpu_ns) * 1e-9;
	share->peaks[quotas->peak][MD_QUOTA_RUNNING] = want_running(state, own_most);
	share->peaks[quotas->peak][MD_QUOTA_WAITING] =
	    state->waiting + 1 + (refused < UINT16_MAX ? (uint32_t)refused : UINT16_MAX);
	share->more[quotas->peak] = state->waiting > state->held;
	if (seconds > 0)
		share->used += (used / seconds - share->used) * (1 - exp(-seconds / MEAN_S));
	share->rejected = state->rejected;
	share->gpu_ns = state->gpu_ns;
	if (fabs(share->used - share->told_used) > USED_STEP * share->told_used)
		share->told_used = share->used < 1e-3 ? 0 : share->used;
}

static void put(json_t *object, const char *key, uint32_t count)
{
	if (count)
		json_object_set_new(object, key, json_integer(count));
}

static void put_bounds(const struct md_quota_share *share, const struct medusa_sched_tenant_state *state, json_t *made)
{
	static const char *const most[MD_QUOTAS] = {"most_running", "most_waiting"};
	const uint32_t has[MD_QUOTAS] = {state->running, state->waiting};
	char session[20];
	snprintf(session, sizeof(session), "%" PRIx64, (uint64_t)share->session);
	for (unsigned r = 0; r < MD_QUOTAS; r++)
		if (share->now[r] != MD_QUOTA_ANY)
			json_object_set_new(made, most[r],
					    json_integer(share->now[r] > has[r] ? share->now[r] : has[r]));
	if (share->serial) {
		json_object_set_new(made, "serial", json_integer((json_int_t)share->serial));
		json_object_set_new(made, "obeys", json_string(session));
	}
	put(made, "wants_running", round_count(peak_of(share, MD_QUOTA_RUNNING), true));
	put(made, "wants_waiting", round_count(peak_of(share, MD_QUOTA_WAITING), true));
}

static json_t *describe(struct md_quotas *quotas, struct md_quota_share *share, double seconds)
{
	struct md_worker *worker = quotas->cluster->worker;
	struct medusa_sched_tenant_state state = {.size = sizeof(state)};
	const struct md_tenant_entry *entry = *share->tenant ? md_tenants_named(worker, share->tenant) : NULL;
	if ((*share->tenant && !entry) || medusa_sched_tenant_get(worker->sched, entry ? entry->index : 0, &state))
		return NULL;
	if (!share->configured && !state.running && !state.waiting)
		return NULL;
	sample(quotas, share, &state, entry ? entry->stated.max_running : 0, seconds);
	json_t *made = json_object();
	put(made, "running", round_count(state.running, false));
	put(made, "waiting", round_count(state.waiting, false));
	put(made, "held", round_count(state.held, false));
	if (share->told_used > 0)
		json_object_set_new(made, "used", json_real(share->told_used));
	if (has_more(share))
		json_object_set_new(made, "more", json_true());
	if (md_quota_is_limited(share))
		put_bounds(share, &state, made);
	return made;
}

json_t *md_quotas_tell(struct md_quotas *quotas, int64_t lease)
{
	uint64_t now = md_quotas_clock_ns();
	double seconds = quotas->told_at ? (double)(now - quotas->told_at) * 1e-9 : 0;
	json_t *tenants = json_object();
	char session[20];
	snprintf(session, sizeof(session), "%" PRIx64, (uint64_t)lease);
	md_quotas_apply(quotas);
	for (uint32_t i = 0; i < quotas->count; i++) {
		json_t *made = describe(quotas, &quotas->shares[i], seconds);
		if (json_object_size(made))
			json_object_set(tenants, quotas->shares[i].tenant, made);
		json_decref(made);
	}
	quotas->peak = (quotas->peak + 1) % MD_QUOTA_PEAK;
	quotas->told_at = now;
	if (quotas->count)
		return json_pack("{s:s, s:f, s:o}", "session", session, "hold_s",
				 (double)quotas->cluster->settings.quota_hold_ns * 1e-9, "tenants", tenants);
	json_decref(tenants);
	return NULL;
}
