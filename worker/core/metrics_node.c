/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/metrics_node.h"

#include <inttypes.h>

#include "worker/accounting/ledger.h"
#include "worker/cluster/cluster_report.h"
#include "worker/cluster/cluster_contents.h"
#include "worker/core/gpu_memory.h"
#include "worker/core/loop_turn.h"
#include "worker/core/metrics_text.h"
#include "worker/core/node_broker.h"
#include "worker/core/worker.h"

static void begin(FILE *out, const char *name, const char *type, const char *help)
{
	md_metrics_text_begin(out, "medusa_worker_", name, type, help);
}

static void put_scheduler(FILE *out, const struct md_worker *worker)
{
	struct medusa_sched_stats stats = {.size = sizeof(stats)};
	if (medusa_sched_stats_get(worker->sched, &stats))
		return;
	begin(out, "scheduler_swaps_total", "counter", "Loads that the scheduler has decided for requests.");
	fprintf(out, "medusa_worker_scheduler_swaps_total %" PRIu64 "\n",
		stats.swaps_host + stats.swaps_peer + stats.swaps_cold);
	begin(out, "scheduler_joins_total", "counter", "Requests that an engine was given while it ran others.");
	fprintf(out, "medusa_worker_scheduler_joins_total %" PRIu64 "\n", stats.joins);
	begin(out, "scheduler_cancelled_total", "counter", "Requests whose clients went before the end.");
	fprintf(out, "medusa_worker_scheduler_cancelled_total %" PRIu64 "\n", stats.cancelled);
	begin(out, "scheduler_evictions_total", "counter", "Models that had to leave a GPU.");
	fprintf(out, "medusa_worker_scheduler_evictions_total %" PRIu64 "\n", stats.evictions + stats.offloads);
}

/* ---- tenants ---- */

static double waiting_of(const struct medusa_sched_tenant_state *state)
{
	return state->waiting;
}

static double running_of(const struct medusa_sched_tenant_state *state)
{
	return state->running;
}

static double gpu_seconds_of(const struct medusa_sched_tenant_state *state)
{
	return (double)state->gpu_ns * 1e-9;
}

static const struct {
	const char *name, *type, *help;
	double (*value)(const struct medusa_sched_tenant_state *state);
} tenant_counters[] = {
    {"tenant_requests_waiting", "gauge", "Requests of the tenant that wait (\"\": of none).", waiting_of},
    {"tenant_requests_running", "gauge", "Requests of the tenant that run.", running_of},
    {"tenant_gpu_seconds_total", "counter", "Time for which the tenant's requests have held a GPU, loading included.",
     gpu_seconds_of},
};

/* What they were asked for ends in one of these. */
static const struct tenant_requests {
	const char *name, *help;
	uint64_t (*value)(const struct md_metrics_requests *requests);
} tenant_requests[] = {
    {"tenant_requests_served_total", "Requests of the tenant whose answer has ended.", md_metrics_served},
    {"tenant_requests_refused_total", "Requests of the tenant that were refused, or were beyond a limit.",
     md_metrics_refused},
    {"tenant_requests_failed_total", "Requests of the tenant whose engine has failed.", md_metrics_failed},
    {"tenant_requests_cancelled_total", "Requests of the tenant whose client left before their answer had ended.",
     md_metrics_cancelled},
};

static void put_tenant_name(FILE *out, const char *name, const struct md_tenant_entry *entry)
{
	fprintf(out, "medusa_worker_%s{tenant=\"", name);
	md_metrics_text_label(out, entry ? entry->name : "");
	fputs("\"} ", out);
}

static void put_tenant_requests(FILE *out, const struct md_worker *worker)
{
	const struct md_tenant_entry *entry;
	struct medusa_sched_tenant_state state;
	for (size_t c = 0; c < sizeof(tenant_requests) / sizeof(*tenant_requests); c++) {
		if (worker->config->node.tenant_count)
			begin(out, tenant_requests[c].name, "counter", tenant_requests[c].help);
		for (uint32_t i = 0; md_tenants_get(worker, i, &entry, &state); i++) {
			put_tenant_name(out, tenant_requests[c].name, entry);
			fprintf(out, "%" PRIu64 "\n", tenant_requests[c].value(md_tenants_requests(worker, entry)));
		}
	}
}

static void put_tenants(FILE *out, const struct md_worker *worker)
{
	const struct md_tenant_entry *entry;
	struct medusa_sched_tenant_state state;
	for (size_t c = 0; c < sizeof(tenant_counters) / sizeof(*tenant_counters); c++) {
		if (worker->config->node.tenant_count)
			begin(out, tenant_counters[c].name, tenant_counters[c].type, tenant_counters[c].help);
		for (uint32_t i = 0; md_tenants_get(worker, i, &entry, &state); i++) {
			put_tenant_name(out, tenant_counters[c].name, entry);
			fprintf(out, "%.9g\n", tenant_counters[c].value(&state));
		}
	}
	put_tenant_requests(out, worker);
}

/* ---- GPUs ---- */

static uint64_t limit_of(const struct medusa_sched_gpu_state *state)
{
	return state->limit_bytes;
}

static uint64_t used_of(const struct medusa_sched_gpu_state *state)
{
	return state->artifact_bytes + state->residue_bytes + state->kv_bytes - state->shared_bytes;
}

static uint64_t shared_of(const struct medusa_sched_gpu_state *state)
{
	return state->shared_bytes;
}

static uint64_t foreign_of(const struct medusa_sched_gpu_state *state)
{
	return state->foreign_bytes;
}

static const struct {
	const char *name, *help;
	uint64_t (*value)(const struct medusa_sched_gpu_state *state);
} gpu_gauges[] = {
    {"gpu_limit_bytes", "Device memory that models may have together.", limit_of},
    {"gpu_used_bytes", "Of it, what models that are there have, as it is stated.", used_of},
    {"gpu_shared_bytes", "What several of them have, and that is counted once: so much less is in use.", shared_of},
    {"gpu_foreign_bytes", "Of it, what is in use beyond that, as NVML says.", foreign_of},
};

/* Where nobody has stated the GPU's memory, the scheduler is told one that means nothing, and models take parts of that. */
static bool is_known(const struct medusa_sched_gpu_state *state, size_t gauge)
{
	return state->limit_bytes != MD_WORKER_GPU_BYTES || gpu_gauges[gauge].value == foreign_of;
}

/* As llama-swap names what NVML says. */
static void put_measured(FILE *out, const struct md_worker *worker, uint32_t count, bool total)
{
	struct md_gpu_measured found;
	const char *name = total ? "total" : "used";
	fprintf(out, "# HELP llamaswap_gpu_memory_%s_bytes Device memory of the GPU%s.\n", name,
		total ? "" : " in use, by anybody");
	fprintf(out, "# TYPE llamaswap_gpu_memory_%s_bytes gauge\n", name);
	for (uint32_t i = 0; i < count; i++) {
		if (!md_gpu_memory_get(worker->gpu_memory, i, &found))
			continue;
		fprintf(out, "llamaswap_gpu_memory_%s_bytes{id=\"%u\",name=\"", name, i);
		md_metrics_text_label(out, found.product);
		fputs("\",uuid=\"", out);
		md_metrics_text_label(out, found.uuid);
		fprintf(out, "\"} %" PRIu64 "\n", total ? found.total : found.used);
	}
}

static void put_gpus(FILE *out, const struct md_worker *worker)
{
	uint32_t count;
	struct medusa_sched_gpu_state state = {.size = sizeof(state)};
	md_gpus_list(worker->gpus, &count);
	for (size_t g = 0; g < sizeof(gpu_gauges) / sizeof(*gpu_gauges); g++) {
		begin(out, gpu_gauges[g].name, "gauge", gpu_gauges[g].help);
		for (uint32_t i = 0; i < count; i++)
			if (!medusa_sched_gpu_get(worker->sched, i, &state) && is_known(&state, g))
				fprintf(out, "medusa_worker_%s{gpu=\"%u\"} %" PRIu64 "\n", gpu_gauges[g].name, i,
					gpu_gauges[g].value(&state));
	}
	put_measured(out, worker, count, false);
	put_measured(out, worker, count, true);
}

/* ---- what all models share ---- */

static void put_pool(FILE *out, const struct md_worker *worker)
{
	struct md_worker_pool_sizes sizes;
	if (!md_pool_sizes(worker, &sizes))
		return;
	const struct {
		const char *name, *help;
		uint64_t value;
	} all[] = {
	    {"pool_bytes", "Host memory for engines that are swapped out (medusa.pool_bytes).", sizes.bytes},
	    {"pool_held_bytes", "Of it, what engines that are out need.", sizes.held},
	    {"pool_cached_bytes", "Of it, what is kept for the next time.", sizes.cached},
	    {"pool_free_bytes", "Of it, what is free.", sizes.free},
	    {"spill_bytes", "The most that the file behind that memory takes (medusa.spill).", sizes.spill_bytes},
	    {"spill_held_bytes", "Of it, what engines that are out need.", sizes.spill_held},
	    {"spill_cached_bytes", "Of it, what is kept for the next time.", sizes.spill_cached},
	    {"spill_free_bytes", "Of it, what is free.", sizes.spill_free}};
	for (size_t i = 0; i < (sizes.spill_bytes ? 8u : 4u); i++) {
		begin(out, all[i].name, "gauge", all[i].help);
		fprintf(out, "medusa_worker_%s %" PRIu64 "\n", all[i].name, all[i].value);
	}
	begin(out, "pool_full_total", "counter",
	      "Engines that were stopped and not swapped, because the pool was full.");
	fprintf(out, "medusa_worker_pool_full_total %" PRIu64 "\n", worker->pool.full);
}

static void put_broker(FILE *out, const struct md_worker *worker)
{
	begin(out, "backbone_starts_total", "counter",
	      "How often medusa-backbone was started; more than 1: it has ended by itself.");
	fprintf(out, "medusa_worker_backbone_starts_total %u\n", md_node_broker_starts(worker));
}

static void put_refused(FILE *out, const struct md_worker *worker)
{
	begin(out, "http_refused_total", "counter", "Requests that were refused before their body was read.");
	fprintf(out, "medusa_worker_http_refused_total %" PRIu64 "\n", worker->refused);
}

static void put_lost(FILE *out, const struct md_worker *worker)
{
	if (!worker->ledger)
		return;
	begin(out, "accounting_lost_requests_total", "counter", "Requests that could not be written to medusa.state.");
	fprintf(out, "medusa_worker_accounting_lost_requests_total %" PRIu64 "\n", md_ledger_lost(worker->ledger));
}

static void put_loop(FILE *out)
{
	struct md_loop_turns turns = md_loop_turn_get();
	begin(out, "loop_longest_turn_seconds", "gauge",
	      "The longest time since the start for which the daemon's loop looked at no connection.");
	fprintf(out, "medusa_worker_loop_longest_turn_seconds %.9g\n", (double)turns.longest_ns * 1e-9);
	begin(out, "loop_longest_turn_cpu_seconds", "gauge",
	      "The most processor time since the start that one turn of the daemon's loop took.");
	fprintf(out, "medusa_worker_loop_longest_turn_cpu_seconds %.9g\n", (double)turns.longest_cpu_ns * 1e-9);
	begin(out, "loop_turns_total", "counter", "Turns of the daemon's loop.");
	fprintf(out, "medusa_worker_loop_turns_total %" PRIu64 "\n", turns.count);
	begin(out, "loop_late_turns_total", "counter", "Turns of the daemon's loop that took more than 10 ms.");
	fprintf(out, "medusa_worker_loop_late_turns_total %" PRIu64 "\n", turns.late);
}

/* ---- other nodes ---- */

static uint64_t open_of(const struct md_peer_counts *counts)
{
	return counts->taken - counts->served - counts->failed - counts->cancelled - counts->refused;
}

static uint64_t taken_of(const struct md_peer_counts *counts)
{
	return counts->taken;
}

static uint64_t served_of(const struct md_peer_counts *counts)
{
	return counts->served;
}

static uint64_t failed_of(const struct md_peer_counts *counts)
{
	return counts->failed;
}

static uint64_t cancelled_of(const struct md_peer_counts *counts)
{
	return counts->cancelled;
}

static uint64_t refused_of(const struct md_peer_counts *counts)
{
	return counts->refused;
}

static const struct {
	const char *name, *type, *help;
	uint64_t (*value)(const struct md_peer_counts *counts);
} peer_counters[] = {
    {"peer_requests_open", "gauge", "Requests that were passed on to the peer and have not ended.", open_of},
    {"peer_requests_total", "counter", "Requests for models of the peer.", taken_of},
    {"peer_requests_served_total", "counter", "Of them, those whose answer has ended.", served_of},
    {"peer_requests_failed_total", "counter", "Of them, those that the peer did not answer, or not to the end.",
     failed_of},
    {"peer_requests_cancelled_total", "counter", "Of them, those whose client left before.", cancelled_of},
    {"peer_requests_refused_total", "counter", "Of them, those that were not passed on.", refused_of},
};

static void put_peers(FILE *out, const struct md_worker *worker)
{
	const struct md_worker_config *config = worker->config;
	for (size_t c = 0; config->peer_count && c < sizeof(peer_counters) / sizeof(*peer_counters); c++) {
		begin(out, peer_counters[c].name, peer_counters[c].type, peer_counters[c].help);
		for (uint32_t i = 0; i < config->peer_count; i++) {
			struct md_peer_counts counts = md_peer_counts_of(worker->peers, i);
			fprintf(out, "medusa_worker_%s{peer=\"", peer_counters[c].name);
			md_metrics_text_label(out, config->peers[i].id);
			fprintf(out, "\"} %" PRIu64 "\n", peer_counters[c].value(&counts));
		}
	}
}

void md_metrics_node_print(struct md_worker *worker, FILE *out)
{
	put_refused(out, worker);
	put_tenants(out, worker);
	put_scheduler(out, worker);
	put_gpus(out, worker);
	put_pool(out, worker);
	put_broker(out, worker);
	put_lost(out, worker);
	put_peers(out, worker);
	md_cluster_print_metrics(worker->cluster, out);
	md_contents_print_metrics(worker->contents, out);
	put_loop(out);
}
