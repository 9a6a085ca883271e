/* SPDX-License-Identifier: Apache-2.0 */
/* Creation of a scheduler, and the functions that it knows. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/plain.h"
#include "scheduler/core/company.h"
#include "scheduler/core/claims.h"
#include "scheduler/core/dispatch.h"
#include "scheduler/core/keep.h"
#include "scheduler/core/lane.h"
#include "scheduler/core/registry.h"
#include "scheduler/core/shares.h"
#include "scheduler/core/request.h"
#include "scheduler/core/state.h"
#include "scheduler/core/tenant.h"
#include "scheduler/policy/policies.h"

#define DEFAULT_MAX_WAIT 600000000000ull
#define DEFAULT_PRELOAD_PERIOD 1000000000ull
#define DEFAULT_REPORT_LAG 1500000000ull
#define MOST_SLOTS 1000000u /* of a GPU, so that the sum of 1024 cannot overflow */
#define HEAVY 1.3 /* a copy from the host makes the first token take this many times as long (Torpor, table 4) */

static _Thread_local char create_error[256];

int md_fail(struct medusa_sched *s, int code, const char *format, ...)
{
	char said[sizeof(create_error)];
	va_list args;
	va_start(args, format);
	vsnprintf(said, sizeof(said), format, args);
	va_end(args);
	md_plain_copy(s ? s->error : create_error, sizeof(create_error), said);
	return code;
}

MD_EXPORT const char *medusa_sched_error(const struct medusa_sched *sched)
{
	return sched ? sched->error : create_error;
}

bool md_take_struct(const void *given, size_t known, void *out)
{
	size_t size;
	memcpy(&size, given, sizeof(size));
	if (size < sizeof(size))
		return false;
	for (size_t i = known; i < size; i++) {
		if (((const unsigned char *)given)[i])
			return false;
	}
	memset(out, 0, known);
	memcpy(out, given, size < known ? size : known);
	return true;
}

/* ---- growth ----------------------------------------------------------------------------------------------------- */

bool md_artifacts_reserve(struct medusa_sched *s, uint32_t more)
{
	uint32_t room = s->artifact_capacity;
	struct md_copy *copies;
	if (!MD_ARRAY_RESERVE(s->artifacts, (uint64_t)s->artifact_count + more, room))
		return false;
	if (room == s->artifact_capacity)
		return true;
	copies = md_array_resize(s->copies, (uint64_t)room * s->gpu_count, sizeof(*copies));
	if (!copies)
		return false;
	s->copies = copies;
	s->artifact_capacity = room;
	return true;
}

uint32_t md_artifact_add(struct medusa_sched *s, enum medusa_sched_class kind, uint32_t owner, uint64_t bytes,
			 uint64_t cold_ns, bool in_host)
{
	uint32_t index = s->artifact_count++;
	s->artifacts[index] = (struct md_sched_artifact){
	    .kind = kind,
	    .owner = owner,
	    .bytes = bytes,
	    .cold_ns = cold_ns,
	    .host = in_host ? MD_THERE : MD_ABSENT,
	    .host_fixed = in_host,
	    .host_older = NONE,
	    .host_newer = NONE,
	};
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++)
		*md_copy_at(s, index, gpu) = (struct md_copy){.older = NONE, .newer = NONE};
	if (in_host)
		s->host_used += bytes;
	return index;
}

/* Saturates, because a caller's values may overflow. */
static uint64_t add_up(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

uint64_t md_cold_time(const struct medusa_sched *s, uint64_t bytes, uint64_t ns)
{
	return add_up(ns, s->cold_bytes_per_s > 0 ? md_copy_ns(bytes, s->cold_bytes_per_s) : 0);
}

/* ---- a scheduler ------------------------------------------------------------------------------------------------- */

/* Bytes a second. NaN is none. */
static bool is_speed(double speed)
{
	return speed >= 1 && isfinite(speed);
}

static bool is_speed_or_none(double speed)
{
	return (speed >= 0 && speed <= 0) || is_speed(speed);
}

static int check_node(const struct medusa_sched_node *node)
{
	if (!node->gpu_count || node->gpu_count > 1024)
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID, "gpu_count is %u: 1 to 1024 GPUs", node->gpu_count);
	if (!node->gpus)
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID, "gpus is NULL: it must describe %u GPUs",
			       node->gpu_count);
	if (!is_speed(node->host_bytes_per_s))
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID,
			       "host_bytes_per_s is %g: give a finite number, 1 or more", node->host_bytes_per_s);
	if (!is_speed_or_none(node->cold_bytes_per_s))
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID,
			       "cold_bytes_per_s is %g: give 0, which does not count it, or a finite number, 1 or more",
			       node->cold_bytes_per_s);
	for (size_t i = 0; node->peer_bytes_per_s && i < (size_t)node->gpu_count * node->gpu_count; i++) {
		if (!is_speed_or_none(node->peer_bytes_per_s[i]))
			return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID,
				       "peer_bytes_per_s[%zu] is %g: give 0 for no link, or a finite number, 1 or more",
				       i, node->peer_bytes_per_s[i]);
	}
	return MEDUSA_SCHED_OK;
}

static int check_options(const struct medusa_sched_options *options)
{
	if (!(options->residency_per_switch >= 0 && isfinite(options->residency_per_switch)))
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID,
			       "residency_per_switch is %g: give 0 for the default, or a finite number above it",
			       options->residency_per_switch);
	return MEDUSA_SCHED_OK;
}

static int add_gpus(struct medusa_sched *s, const struct medusa_sched_node *node)
{
	const char *at = (const char *)node->gpus;
	for (uint32_t i = 0; i < node->gpu_count; i++) {
		struct medusa_sched_gpu gpu;
		if (!md_take_struct(at, sizeof(gpu), &gpu))
			return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID,
				       "gpus[%u].size is not that of a struct medusa_sched_gpu, or fields that this "
				       "library does not know are set",
				       i);
		if (!gpu.memory_bytes || gpu.memory_bytes > MD_MOST_BYTES)
			return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID, "gpus[%u]: memory_bytes is %llu: give 1 to 2^60",
				       i, (unsigned long long)gpu.memory_bytes);
		if (gpu.slots > MOST_SLOTS)
			return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID, "gpus[%u]: slots is %u: give at most %u", i,
				       gpu.slots, MOST_SLOTS);
		at += ((const struct medusa_sched_gpu *)(const void *)at)->size;
		s->gpus[i] = (struct md_gpu){
		    .limit = gpu.memory_bytes,
		    .pcie_switch = gpu.pcie_switch,
		    .slots = gpu.slots ? gpu.slots : 1,
		    .oldest = NONE,
		    .newest = NONE,
		    .first_batch = NONE,
		    .present = true,
		};
		s->free_slots += s->gpus[i].slots;
	}
	if (node->peer_bytes_per_s)
		memcpy(s->peers, node->peer_bytes_per_s, (size_t)node->gpu_count * node->gpu_count * sizeof(double));
	return MEDUSA_SCHED_OK;
}

MD_EXPORT int medusa_sched_create(const struct medusa_sched_node *given_node,
				  const struct medusa_sched_options *given_options, struct medusa_sched **sched)
{
	struct medusa_sched_node node;
	struct medusa_sched_options options = {0};
	if (!given_node || !sched)
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID, "%s is NULL", given_node ? "sched" : "node");
	if (!md_take_struct(given_node, sizeof(node), &node))
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID,
			       "node->size is not that of a struct medusa_sched_node, or fields that this library does "
			       "not know are set");
	if (given_options && !md_take_struct(given_options, sizeof(options), &options))
		return md_fail(NULL, MEDUSA_SCHED_ERR_INVALID,
			       "options->size is not that of a struct medusa_sched_options, or fields that this "
			       "library does not know are set");
	int code = check_node(&node);
	code = code ? code : check_options(&options);
	if (code)
		return code;
	struct medusa_sched *s = calloc(1, sizeof(*s));
	if (!s)
		return md_fail(NULL, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for a scheduler");
	s->gpu_count = node.gpu_count;
	s->gpus = calloc(node.gpu_count, sizeof(*s->gpus));
	s->peers = calloc((size_t)node.gpu_count * node.gpu_count, sizeof(*s->peers));
	md_map_init(&s->request_ids);
	md_map_init(&s->share_numbers);
	s->free_share = s->free_sharer = NONE;
	md_priority_init(&s->ready);
	md_priority_init(&s->joins);
	md_priority_init(&s->holding);
	md_priority_init(&s->idle);
	md_priority_init(&s->request_alarms);
	md_priority_init(&s->transfer_alarms);
	s->host_bytes_per_s = node.host_bytes_per_s;
	s->cold_bytes_per_s = node.cold_bytes_per_s;
	s->host_limit = node.host_bytes;
	s->host_oldest = s->host_newest = s->oldest_waiting = s->newest_waiting = NONE;
	s->free_request = s->free_batch = s->free_transfer = NONE;
	s->random = options.seed;
	code = s->gpus && s->peers ? add_gpus(s, &node)
				   : md_fail(NULL, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for GPUs");
	if (!code) {
		code = md_policies_choose(s, &options);
		memcpy(create_error, s->error, sizeof(create_error));
	}
	if (!code && !md_tenants_create(s))
		code = md_fail(NULL, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for tenants");
	if (!code && !md_latencies_reserve(s, 0))
		code = md_fail(NULL, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for histograms");
	if (code) {
		medusa_sched_destroy(s);
		return code;
	}
	options.queueing = options.placement = options.eviction = options.batching = options.preloading = NULL;
	options.max_wait_ns = options.max_wait_ns ? options.max_wait_ns : DEFAULT_MAX_WAIT;
	options.preload_period_ns = options.preload_period_ns ? options.preload_period_ns : DEFAULT_PRELOAD_PERIOD;
	options.report_lag_ns = options.report_lag_ns ? options.report_lag_ns : DEFAULT_REPORT_LAG;
	options.residency_per_switch = options.residency_per_switch > 0 ? options.residency_per_switch : 1;
	s->options = options;
	s->torpor.alpha = 1;
	s->first_class.limit = INFINITY;
	*sched = s;
	return MEDUSA_SCHED_OK;
}

MD_EXPORT void medusa_sched_destroy(struct medusa_sched *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; s->gpus && i < s->gpu_count; i++)
		free(s->gpus[i].claims);
	md_map_finish(&s->request_ids);
	md_shares_finish(s);
	md_priority_finish(&s->ready);
	md_priority_finish(&s->joins);
	md_priority_finish(&s->holding);
	md_priority_finish(&s->idle);
	md_priority_finish(&s->request_alarms);
	md_priority_finish(&s->transfer_alarms);
	free(s->gpus);
	free(s->peers);
	for (uint32_t i = 0; i < s->backbone_count; i++)
		free(s->backbones[i].gpus);
	free(s->backbones);
	for (uint32_t i = 0; i < s->keeper_count; i++)
		free(s->functions[s->keepers[i]].kept);
	free(s->keepers);
	md_company_destroy(s);
	md_lanes_destroy(s);
	free(s->functions);
	free(s->latencies);
	free(s->artifacts);
	free(s->copies);
	free(s->requests);
	free(s->tenants);
	free(s->batches);
	free(s->transfers);
	free(s->blocked);
	free(s->preload_memory);
	free(s->actions);
	free(s->action_list);
	free(s->run_requests);
	free(s->run_transfers);
	free(s);
}

/* ---- functions ------------------------------------------------------------------------------------- */

/* A change that takes no more memory than before holds also where others have taken memory since. */
static int check_gpus(struct medusa_sched *s, const struct medusa_sched_function *f,
		      const struct medusa_sched_function *before)
{
	if (before && f->kv_bytes <= before->kv_bytes)
		return MEDUSA_SCHED_OK;
	uint64_t most = 0, bytes = add_up(add_up(f->weight_bytes, f->context_bytes), f->kv_bytes);
	bytes = add_up(bytes, f->backbone == NONE ? 0 : s->artifacts[s->backbones[f->backbone].artifact].bytes);
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++)
		most = s->gpus[gpu].limit > most ? s->gpus[gpu].limit : most;
	if (bytes > most)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "the function takes %llu bytes on a GPU, and the largest GPU has %llu",
			       (unsigned long long)bytes, (unsigned long long)most);
	return MEDUSA_SCHED_OK;
}

static int check_function(struct medusa_sched *s, const struct medusa_sched_function *f,
			  const struct medusa_sched_function *before)
{
	if (f->backbone != NONE && f->backbone >= s->backbone_count)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "backbone is %u, but only %u backbones are registered",
			       f->backbone, s->backbone_count);
	if (!f->t0_ns)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "t0_ns is 0: give the time to the first token");
	if (f->residue_bytes > f->context_bytes)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "residue_bytes is more than context_bytes");
	if (!(f->slo_percentile >= 0 && f->slo_percentile <= 1))
		return md_fail(
		    s, MEDUSA_SCHED_ERR_INVALID,
		    "slo_percentile is %g, which is not from 0 to 1: give a part, such as 0.98 for 98 %% (0: 0.98)",
		    f->slo_percentile);
	if (f->slo_goal != MEDUSA_SCHED_GOAL_COMPLETION && f->slo_goal != MEDUSA_SCHED_GOAL_FIRST_TOKEN)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "slo_goal is %d, which is not in enum medusa_sched_goal",
			       (int)f->slo_goal);
	if (f->max_replicas && f->min_replicas > f->max_replicas)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "min_replicas is %u, more than max_replicas, %u",
			       f->min_replicas, f->max_replicas);
	if (f->backbone == NONE && !f->weight_bytes && !f->context_bytes)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "backbone, weight_bytes and context_bytes are all unset");
	if (add_up(f->library_bytes, f->weight_bytes) > MD_MOST_BYTES)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "library_bytes + weight_bytes is more than 2^60");
	return check_gpus(s, f, before);
}

static int check_host(struct medusa_sched *s, const struct medusa_sched_function *f)
{
	uint64_t host = add_up(f->library_bytes, f->weight_bytes);
	if (s->host_limit && host > s->host_limit)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "library and weights, %llu bytes, are more than host memory has, %llu bytes",
			       (unsigned long long)host, (unsigned long long)s->host_limit);
	if (s->host_limit && f->in_host && host > s->host_limit - s->host_used)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "in_host: library and weights need %llu bytes, and host memory has %llu left",
			       (unsigned long long)host, (unsigned long long)(s->host_limit - s->host_used));
	return MEDUSA_SCHED_OK;
}

static bool function_reserve(struct medusa_sched *s)
{
	uint32_t room = s->function_capacity, blocked = room;
	if (!md_artifacts_reserve(s, MD_FUNCTION_ARTIFACTS) || !MD_ARRAY_GROW(s->functions, s->function_count, room) ||
	    !MD_ARRAY_RESERVE(s->blocked, room, blocked) || !md_priority_reserve(&s->ready, room) ||
	    !md_latencies_reserve(s, room) || !md_priority_reserve(&s->holding, room) ||
	    !md_priority_reserve(&s->joins, room) || !md_priority_reserve(&s->idle, room) ||
	    (md_company_ruled(s) && !md_company_reserve(s, room)))
		return false;
	s->function_capacity = room;
	return true;
}

/*
 * Early binding: among GPUs with room, the one to which the least is bound so far; a backbone counts once. Where
 * functions are swapped, what is bound to a GPU need not fit there at the same time.
 */
static uint32_t choose_home(const struct medusa_sched *s, const struct medusa_sched_function *spec)
{
	uint32_t best = NONE;
	double most = 0;
	uint64_t bytes = spec->weight_bytes + spec->context_bytes + spec->kv_bytes;
	uint64_t shared = spec->backbone == NONE ? 0 : s->artifacts[s->backbones[spec->backbone].artifact].bytes;
	for (uint32_t gpu = 0; gpu < s->gpu_count; gpu++) {
		const struct md_gpu *g = &s->gpus[gpu];
		double left = (double)g->limit - (double)g->bound;
		bool room = s->eviction->rank || g->bound + bytes <= g->limit;
		if (room && shared + bytes <= g->limit && (best == NONE || left > most)) {
			most = left;
			best = gpu;
		}
	}
	return best;
}

bool md_function_heavy(const struct medusa_sched *s, const struct medusa_sched_function *f)
{
	double swap =
	    f->swap_ns ? (double)f->swap_ns : (double)f->t0_ns + (double)f->weight_bytes / s->host_bytes_per_s * 1e9;
	return swap > HEAVY * (double)f->t0_ns;
}

int md_function_take(struct medusa_sched *s, const struct medusa_sched_function *given,
		     const struct medusa_sched_function *before, struct medusa_sched_function *spec)
{
	if (!given)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "%s is NULL", before ? "changed" : "function");
	if (!md_take_struct(given, sizeof(*spec), spec))
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID,
			       "function->size is not that of a struct medusa_sched_function, or fields that this "
			       "library does not know are set");
	spec->max_batch = spec->max_batch ? spec->max_batch : spec->continuous ? UINT32_MAX : 1;
	spec->max_parallel = spec->max_parallel ? spec->max_parallel : 1;
	int code = check_function(s, spec, before);
	if (code)
		return code;
	spec->slo_percentile = spec->slo_percentile > 0 ? spec->slo_percentile : 0.98;
	return MEDUSA_SCHED_OK;
}

/* The first of library and weights that is loaded takes the cold start, which loads both. */
void md_function_cold(struct medusa_sched *s, uint32_t function)
{
	const struct md_function *f = &s->functions[function];
	const struct medusa_sched_function *spec = &f->spec;
	uint32_t library = f->artifacts[MEDUSA_SCHED_CLASS_LIBRARY], weights = f->artifacts[MEDUSA_SCHED_CLASS_WEIGHTS];
	uint64_t cold = md_cold_time(s, spec->weight_bytes + spec->library_bytes, spec->cold_ns);
	if (library != NONE)
		s->artifacts[library].cold_ns = cold;
	if (weights != NONE)
		s->artifacts[weights].cold_ns = library != NONE ? md_cold_time(s, spec->weight_bytes, 0) : cold;
}

MD_EXPORT int medusa_sched_add_function(struct medusa_sched *s, const struct medusa_sched_function *given,
					uint32_t *index)
{
	struct medusa_sched_function spec;
	if (!s || !index)
		return md_fail(s, MEDUSA_SCHED_ERR_INVALID, "%s is NULL", s ? "index" : "sched");
	int code = md_function_take(s, given, NULL, &spec);
	code = code ? code : check_host(s, &spec);
	if (code)
		return code;
	if (!function_reserve(s))
		return md_fail(s, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for a function");
	uint32_t home = choose_home(s, &spec);
	if (home != NONE)
		s->gpus[home].bound += spec.weight_bytes + spec.context_bytes + spec.kv_bytes;
	*index = s->function_count++;
	md_latencies_begin(s, *index);
	struct md_function *f = &s->functions[*index];
	*f = (struct md_function){
	    .spec = spec,
	    .next_user = NONE,
	    .waiting = {NONE, NONE, 0},
	    .late = {NONE, NONE, 0},
	    .first_batch = NONE,
	    .claim = NONE,
	    .home = home,
	    .heavy = md_function_heavy(s, &spec),
	    .high = true,
	};
	for (int i = 0; i < MD_FUNCTION_ARTIFACTS; i++)
		f->artifacts[i] = NONE;
	if (spec.backbone != NONE) {
		struct md_backbone *backbone = &s->backbones[spec.backbone];
		f->artifacts[MEDUSA_SCHED_CLASS_BACKBONE] = backbone->artifact;
		f->next_user = backbone->first_user;
		backbone->first_user = *index;
		backbone->users++;
	}
	if (spec.library_bytes)
		f->artifacts[MEDUSA_SCHED_CLASS_LIBRARY] =
		    md_artifact_add(s, MEDUSA_SCHED_CLASS_LIBRARY, *index, spec.library_bytes, 0, spec.in_host);
	if (spec.weight_bytes)
		f->artifacts[MEDUSA_SCHED_CLASS_WEIGHTS] =
		    md_artifact_add(s, MEDUSA_SCHED_CLASS_WEIGHTS, *index, spec.weight_bytes, 0, spec.in_host);
	if (spec.context_bytes)
		f->artifacts[MEDUSA_SCHED_CLASS_CONTEXT] =
		    md_artifact_add(s, MEDUSA_SCHED_CLASS_CONTEXT, *index, spec.context_bytes, 0, false);
	md_function_cold(s, *index);
	if (!md_keep_reserve(s, *index)) {
		md_function_gone(s, *index);
		return md_fail(s, MEDUSA_SCHED_ERR_NO_MEMORY, "out of memory for a function");
	}
	return MEDUSA_SCHED_OK;
}

void md_function_gone(struct medusa_sched *s, uint32_t function)
{
	struct md_function *f = &s->functions[function];
	if (f->gone)
		return;
	f->gone = true;
	if (f->home != NONE)
		s->gpus[f->home].bound -= f->spec.weight_bytes + f->spec.context_bytes + f->spec.kv_bytes;
	for (uint32_t r = md_first_waiting(s, function), last = NONE; r != NONE && r != last;
	     r = md_first_waiting(s, function)) {
		last = r;
		md_request_reject(s, r, MEDUSA_SCHED_REASON_UNREGISTERED);
	}
	for (uint32_t r = s->oldest_waiting, newer; s->held && r != NONE; r = newer) {
		newer = s->requests[r].newer;
		if (s->requests[r].function == function)
			md_request_reject(s, r, MEDUSA_SCHED_REASON_UNREGISTERED);
	}
	md_claim_drop(s, function);
	md_keep_changed(s, function);
	md_company_drop(s, function);
	md_function_changed(s, function);
}
