/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the measured time of an undisturbed swap into bytes, head and tail, so that the model reproduces that time. */
#include <math.h>

#include "simulator/model/model_state.h"

struct path {
	double speed; /* bytes per ns, undisturbed; 0: unlimited */
	uint64_t swap;
};

/* Bytes and head for a known tail (0..1). */
static void fit(const struct path *path, double work, double tail, double bytes, double *copied, uint64_t *head)
{
	double end = round(tail * work);
	double copies = path->speed > 0 ? round(bytes / path->speed) : 0;
	double swap = fmax((double)path->swap, work);
	*copied = bytes;
	*head = 0;
	if (!path->swap)
		return;
	if (copies + end > swap)
		*copied = (swap - end) * path->speed;
	else
		*head = (uint64_t)(swap - work);
}

/* For a heavy model without a stated tail, the tail is everything that the copies do not cover. */
static double tail_of(const struct path *path, double work, double bytes)
{
	double copies = path->speed > 0 ? bytes / path->speed : 0;
	if (!path->swap || copies < work || work <= 0)
		return 0;
	return fmin(fmax(((double)path->swap - copies) / work, 0), 1);
}

static double slowest(double a, double b)
{
	if (a <= 0 || b <= 0)
		return fmax(a, b);
	return fmin(a, b);
}

static double fastest_peer(const struct md_sim_node *node)
{
	double speed = 0;
	for (size_t i = 0; node->peer_bytes_per_s && i < (size_t)node->gpu_count * node->gpu_count; i++)
		speed = fmax(speed, node->peer_bytes_per_s[i]);
	return speed;
}

static void time_function(const struct md_sim_node *node, const struct md_sim_function *function, struct timing *timing)
{
	const struct medusa_sched_function *spec = &function->spec;
	struct path host = {slowest(node->host_bytes_per_s, node->switch_bytes_per_s) / 1e9, spec->swap_ns};
	struct path peer = {fastest_peer(node) / 1e9, spec->swap_peer_ns};
	double bytes = (double)(function->transfer_bytes ? function->transfer_bytes : spec->weight_bytes);
	double work = (double)spec->t0_ns;
	bool heavy = false;
	timing->tail = function->tail;
	if (function->tail <= 0) {
		timing->tail = tail_of(&host, work, bytes);
		heavy = timing->tail > 0;
	}
	fit(&host, work, timing->tail, bytes, &timing->host_bytes, &timing->host_head);
	/*
	 * the tail cannot be more than all of T: the rest is explained by a slower copy, such as from pageable memory
	 */
	if (heavy && timing->host_head) {
		timing->host_bytes = ((double)spec->swap_ns - round(timing->tail * work)) * host.speed;
		timing->host_head = 0;
	}
	fit(&peer, work, timing->tail, bytes, &timing->peer_bytes, &timing->peer_head);
}

void md_sim_model_time(struct md_sim_model *model, uint32_t from)
{
	for (uint32_t i = from; i < model->functions->count; i++)
		time_function(model->node, &model->functions->functions[i], &model->timings[i]);
}
