/* SPDX-License-Identifier: Apache-2.0 */
/* A run in equal intervals of simulated time: levels are kept as exact sums, and intervals are merged in pairs when they become too many. */
#include <stdlib.h>
#include <string.h>

#include "simulator/run/run_state.h"

#define NS_PER_S UINT64_C(1000000000)
/* The trace alone fills at most so many intervals; the time after its end has the rest, and then they are merged. */
#define POINTS_OF_TRACE 400

/* 1, 2 or 5 times a power of ten: the shortest such interval of which the trace fills at most POINTS_OF_TRACE. */
static uint64_t choose_interval(uint64_t end_ns)
{
	static const unsigned steps[] = {1, 2, 5};
	uint64_t ten = NS_PER_S / 1000;
	for (;; ten *= 10)
		for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
			if (end_ns / POINTS_OF_TRACE < ten * steps[i] || ten > UINT64_MAX / 100)
				return ten * steps[i];
}

enum md_status md_sim_track_init(struct md_sim_track *track, uint64_t end_ns, uint32_t gpus, struct md_error *err)
{
	*track = (struct md_sim_track){.interval_ns = choose_interval(end_ns), .gpu_count = gpus, .count = 1};
	track->sums = calloc(MD_SIM_POINTS_MAX, sizeof(*track->sums));
	track->memory = calloc((size_t)MD_SIM_POINTS_MAX * gpus + 1, sizeof(*track->memory));
	track->held = calloc((size_t)gpus + 1, sizeof(*track->held));
	if (!track->sums || !track->memory || !track->held)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a time series of %u GPUs", gpus);
	return MD_OK;
}

void md_sim_track_finish(struct md_sim_track *track)
{
	free(track->sums);
	free(track->memory);
	free(track->held);
	*track = (struct md_sim_track){0};
}

struct md_sim_sums *md_sim_track_now(struct md_sim_track *track)
{
	return &track->sums[track->count - 1];
}

/* ---- longer intervals ---------------------------------------------------------------------------------------------- */

static void merge_sums(struct md_sim_sums *to, const struct md_sim_sums *from)
{
	to->arrived += from->arrived;
	to->served += from->served;
	to->met += from->met;
	to->rejected += from->rejected;
	to->swaps += from->swaps;
	to->covered_ns += from->covered_ns;
	to->waiting += from->waiting;
	to->running += from->running;
	if (from->waiting_most > to->waiting_most)
		to->waiting_most = from->waiting_most;
}

static void merge_memory(struct md_sim_memory_sums *to, const struct md_sim_memory_sums *from)
{
	to->artifacts += from->artifacts;
	to->kv += from->kv;
	to->residues += from->residues;
	to->free += from->free;
}

/* Pairs of intervals become one; a single one that is left at the end stays, and is filled further. */
static void merge_pairs(struct md_sim_track *track)
{
	size_t gpus = track->gpu_count, count = (track->count + 1) / 2;
	for (size_t i = 0; i < count; i++) {
		track->sums[i] = track->sums[2 * i];
		memmove(&track->memory[i * gpus], &track->memory[2 * i * gpus], gpus * sizeof(*track->memory));
		if (2 * i + 1 == track->count)
			continue;
		merge_sums(&track->sums[i], &track->sums[2 * i + 1]);
		for (size_t gpu = 0; gpu < gpus; gpu++)
			merge_memory(&track->memory[i * gpus + gpu], &track->memory[(2 * i + 1) * gpus + gpu]);
	}
	memset(&track->sums[count], 0, (MD_SIM_POINTS_MAX - count) * sizeof(*track->sums));
	memset(&track->memory[count * gpus], 0, (MD_SIM_POINTS_MAX - count) * gpus * sizeof(*track->memory));
	track->count = count;
	track->interval_ns *= 2;
}

/* ---- time passes ---------------------------------------------------------------------------------------------------- */

/* Most events change one GPU's memory or none, so the others are left for later. */
static void count_held(struct md_sim_track *track, uint32_t gpu)
{
	struct md_sim_held *held = &track->held[gpu];
	struct md_sim_memory_sums *sums = &track->memory[(track->count - 1) * track->gpu_count + gpu];
	uint64_t ns = track->at - held->since;
	sums->artifacts += (md_sim_sum)held->memory.artifacts * ns;
	sums->kv += (md_sim_sum)held->memory.kv * ns;
	sums->residues += (md_sim_sum)held->memory.residues * ns;
	sums->free += (md_sim_sum)held->memory.free * ns;
	held->since = track->at;
}

static void count_all_held(struct md_sim_track *track)
{
	for (uint32_t gpu = 0; gpu < track->gpu_count; gpu++)
		count_held(track, gpu);
}

static bool same_memory(const struct md_sim_memory *a, const struct md_sim_memory *b)
{
	return a->artifacts == b->artifacts && a->kv == b->kv && a->residues == b->residues && a->free == b->free;
}

static void hold(struct md_sim_track *track, const struct md_sim_memory *memory)
{
	for (uint32_t gpu = 0; gpu < track->gpu_count; gpu++) {
		if (same_memory(&track->held[gpu].memory, &memory[gpu]))
			continue;
		count_held(track, gpu);
		track->held[gpu].memory = memory[gpu];
	}
}

static void add_levels(struct md_sim_track *track, const struct md_sim_levels *levels, uint64_t ns)
{
	struct md_sim_sums *sums = md_sim_track_now(track);
	sums->covered_ns += ns;
	sums->waiting += (md_sim_sum)levels->waiting * ns;
	sums->running += (md_sim_sum)levels->running * ns;
	if (levels->waiting > sums->waiting_most)
		sums->waiting_most = levels->waiting;
}

/* What happens at the border of two intervals belongs to the first, so no interval is empty. */
void md_sim_track_pass(struct md_sim_track *track, uint64_t until, const struct md_sim_levels *levels)
{
	if (track->at < until)
		hold(track, levels->memory);
	while (track->at < until) {
		if (track->at == track->count * track->interval_ns) {
			count_all_held(track);
			if (track->count == MD_SIM_POINTS_MAX)
				merge_pairs(track);
			else
				track->count++;
			continue;
		}
		uint64_t border = track->count * track->interval_ns;
		uint64_t next = until < border ? until : border;
		add_levels(track, levels, next - track->at);
		track->at = next;
	}
}

/* ---- the result ------------------------------------------------------------------------------------------------------ */

static uint64_t mean_bytes(md_sim_sum sum, uint64_t ns)
{
	return ns ? (uint64_t)(sum / ns) : 0;
}

static double mean_count(md_sim_sum sum, uint64_t ns)
{
	return ns ? (double)sum / (double)ns : 0;
}

static void conclude_point(const struct md_sim_track *track, size_t index, struct md_sim_series *series)
{
	const struct md_sim_sums *sums = &track->sums[index];
	uint64_t ns = sums->covered_ns;
	series->points[index] = (struct md_sim_point){.arrived = sums->arrived,
						      .served = sums->served,
						      .met = sums->met,
						      .rejected = sums->rejected,
						      .swaps = sums->swaps,
						      .waiting_most = sums->waiting_most,
						      .waiting = mean_count(sums->waiting, ns),
						      .running = mean_count(sums->running, ns)};
	for (uint32_t gpu = 0; gpu < track->gpu_count; gpu++) {
		const struct md_sim_memory_sums *memory = &track->memory[index * track->gpu_count + gpu];
		series->memory[index * track->gpu_count + gpu] =
		    (struct md_sim_memory){.artifacts = mean_bytes(memory->artifacts, ns),
					   .kv = mean_bytes(memory->kv, ns),
					   .residues = mean_bytes(memory->residues, ns),
					   .free = mean_bytes(memory->free, ns)};
	}
}

enum md_status md_sim_track_conclude(struct md_sim_track *track, struct md_sim_series *series, struct md_error *err)
{
	count_all_held(track);
	*series = (struct md_sim_series){
	    .interval_ns = track->interval_ns, .count = track->count, .gpu_count = track->gpu_count};
	series->points = calloc(track->count, sizeof(*series->points));
	series->memory = calloc(track->count * track->gpu_count + 1, sizeof(*series->memory));
	if (!series->points || !series->memory) {
		md_sim_series_finish(series);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a time series of %zu intervals",
				    track->count);
	}
	for (size_t i = 0; i < track->count; i++)
		conclude_point(track, i, series);
	return MD_OK;
}

void md_sim_series_finish(struct md_sim_series *series)
{
	free(series->points);
	free(series->memory);
	*series = (struct md_sim_series){0};
}
