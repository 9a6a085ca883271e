/* SPDX-License-Identifier: Apache-2.0 */
/* What each tenant has of the GPUs over time, and what was due to it while it contended with others. */
#include <stdlib.h>
#include <string.h>

#include "simulator/run/run_state.h"

enum md_status md_sim_tenants_init(struct md_sim_tenant_track *track, const struct md_sim_functions *functions,
				   struct md_sim_result *result, struct md_error *err)
{
	uint32_t count = functions->tenant_count;
	*track = (struct md_sim_tenant_track){.functions = functions, .result = result, .count = count};
	if (!count)
		return MD_OK;
	track->open = calloc(count, sizeof(*track->open));
	track->running = calloc(count, sizeof(*track->running));
	track->parts = calloc(count, sizeof(*track->parts));
	track->contends = calloc(count, sizeof(*track->contends));
	result->tenants = calloc(count, sizeof(*result->tenants));
	if (!track->open || !track->running || !track->parts || !track->contends || !result->tenants)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u tenants", count);
	result->tenant_count = count;
	return MD_OK;
}

void md_sim_tenants_finish(struct md_sim_tenant_track *track)
{
	free(track->open);
	free(track->running);
	free(track->parts);
	free(track->contends);
	*track = (struct md_sim_tenant_track){0};
}

static double weight_of(const struct md_sim_tenant_track *track, uint32_t tenant)
{
	return track->functions->tenants[tenant].spec.weight;
}

/* Whether requests of the tenant wait, and not because as many of them run as may. */
static bool contends(const struct md_sim_tenant_track *track, uint32_t tenant)
{
	uint32_t most = track->functions->tenants[tenant].spec.max_running;
	return track->open[tenant] > track->running[tenant] && (!most || track->running[tenant] < most);
}

struct contention {
	uint32_t tenants;
	double weights, parts;
};

static struct contention find_contention(struct md_sim_tenant_track *track)
{
	struct contention found = {0};
	for (uint32_t i = 0; i < track->count; i++) {
		track->contends[i] = contends(track, i);
		if (!track->contends[i])
			continue;
		found.tenants++;
		found.weights += weight_of(track, i);
		found.parts += track->parts[i];
	}
	return found;
}

void md_sim_tenants_pass(struct md_sim_tenant_track *track, struct md_sim_model *model, uint64_t ns)
{
	double s = (double)ns / 1e9;
	if (!track->count)
		return;
	memset(track->running, 0, track->count * sizeof(*track->running));
	memset(track->parts, 0, track->count * sizeof(*track->parts));
	md_sim_model_tenants(model, track->running, track->parts);
	struct contention all = find_contention(track);
	for (uint32_t i = 0; i < track->count; i++) {
		struct md_sim_tenant_result *tenant = &track->result->tenants[i];
		uint64_t waiting = track->open[i] > track->running[i] ? track->open[i] - track->running[i] : 0;
		tenant->gpu_s += track->parts[i] * s;
		if (waiting > tenant->waiting_most)
			tenant->waiting_most = waiting;
		if (!track->contends[i] || all.tenants < 2)
			continue;
		tenant->contended_s += s;
		tenant->contended_gpu_s += track->parts[i] * s;
		tenant->contended_all_s += all.parts * s;
		tenant->contended_due_s += all.parts * s * weight_of(track, i) / all.weights;
	}
}

void md_sim_tenants_arrived(struct md_sim_tenant_track *track, uint32_t tenant)
{
	if (!track->count)
		return;
	track->open[tenant]++;
	track->result->tenants[tenant].requests++;
}

void md_sim_tenants_ended(struct md_sim_tenant_track *track, uint32_t tenant)
{
	if (track->count)
		track->open[tenant]--;
}

void md_sim_tenants_refused(struct md_sim_tenant_track *track, uint32_t tenant, unsigned reason)
{
	if (track->count && reason < MD_SIM_REASONS)
		track->result->tenants[tenant].rejected[reason]++;
}

bool md_sim_tenants_served(struct md_sim_tenant_track *track, uint32_t tenant, const struct md_sim_served *served)
{
	if (!track->count)
		return true;
	struct md_sim_tenant_result *result = &track->result->tenants[tenant];
	result->served++;
	result->met += served->met;
	return md_sim_samples_add(&result->ttft_ms, served->ttft_ms) &&
	       md_sim_samples_add(&result->wait_ms, served->wait_ms);
}
