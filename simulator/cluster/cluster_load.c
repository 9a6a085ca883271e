/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of a cluster: a trace laid over itself as often as the cluster asks, with popularities that change. */
#include <inttypes.h>
#include <math.h> /* floor is exact */
#include <stdlib.h>

#include "base/cleanup.h"
#include "simulator/cluster/sim_cluster.h"
#include "simulator/random.h"
#include "simulator/workload/builder.h"

#define COPIES_STREAM 0x636f7079u
#define CHANGES_STREAM 0x6368616eu

/* A request of a copy; copies and their requests are in this order where times are equal. */
struct laid {
	struct md_sim_request request;
	uint64_t order;
};

static int compare_laid(const void *a, const void *b)
{
	const struct laid *one = a, *other = b;
	if (one->request.at != other->request.at)
		return one->request.at < other->request.at ? -1 : 1;
	return one->order < other->order ? -1 : one->order > other->order;
}

static uint64_t draw(struct md_sim_random *random, uint64_t below)
{
	return below ? md_sim_random_next(random) % below : 0;
}

/*
 * The first copy is the trace itself. Each other one begins elsewhere in it and goes on from its beginning when it has come to the
 * end; whose requests these are is taken from another place of the trace, so that copies do not ask for one function all at once.
 */
static size_t lay_copy(const struct md_sim_workload *trace, uint64_t copy, double part, uint64_t seed,
		       struct laid *laid)
{
	struct md_sim_random random = md_sim_random_of(seed ^ COPIES_STREAM, copy);
	uint64_t shift = copy ? draw(&random, trace->end) : 0, other = copy ? draw(&random, trace->count) : 0;
	size_t count = 0;
	for (size_t i = 0; i < trace->count; i++) {
		struct md_sim_request request = trace->requests[i];
		const struct md_sim_request *whose = &trace->requests[(i + other) % trace->count];
		if (part < 1 && md_sim_random_part(&random) >= part)
			continue;
		if (trace->end)
			request.at = (request.at + shift) % trace->end;
		request.function = whose->function;
		laid[count] = (struct laid){.request = request, .order = copy * trace->count + i};
		count++;
	}
	return count;
}

static enum md_status lay(const struct md_sim_cluster *cluster, uint64_t seed, struct md_sim_workload *workload,
			  struct md_error *err)
{
	double whole = floor(cluster->rate_factor), rest = cluster->rate_factor - whole;
	uint64_t copies = (uint64_t)whole + (rest > 0);
	size_t count = 0;
	if ((double)workload->count * (double)copies > MD_SIM_REQUESTS_MAX)
		return md_error_set(err, MD_ERR_TOO_LARGE,
				    "rate_factor %g: %zu requests so many times are more than %u; a shorter trace "
				    "(--duration), or fewer copies of it",
				    cluster->rate_factor, workload->count, MD_SIM_REQUESTS_MAX);
	MD_AUTO_FREE struct laid *laid = malloc((workload->count * copies + 1) * sizeof(*laid));
	struct md_sim_request *requests = malloc((workload->count * copies + 1) * sizeof(*requests));
	if (!laid || !requests) {
		free(requests);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the requests of a cluster");
	}
	for (uint64_t copy = 0; copy < copies; copy++)
		count += lay_copy(workload, copy, copy < (uint64_t)whole ? 1 : rest, seed, laid + count);
	qsort(laid, count, sizeof(*laid), compare_laid);
	for (size_t i = 0; i < count; i++)
		requests[i] = laid[i].request;
	free(workload->requests);
	workload->requests = requests;
	workload->count = count;
	return MD_OK;
}

/* As many functions as change get another one's popularity, in pairs. */
static void change(uint32_t *of, uint32_t count, double part, struct md_sim_random *random)
{
	uint64_t pairs = (uint64_t)(part * count / 2 + 0.5);
	for (uint64_t i = 0; i < pairs; i++) {
		uint64_t one = draw(random, count), other = draw(random, count);
		uint32_t moved = of[one];
		of[one] = of[other];
		of[other] = moved;
	}
}

static enum md_status change_popularity(const struct md_sim_cluster *cluster, const struct md_sim_functions *functions,
					uint64_t seed, struct md_sim_workload *workload, struct md_error *err)
{
	struct md_sim_random random = md_sim_random_of(seed, CHANGES_STREAM);
	MD_AUTO_FREE uint32_t *of = malloc(((size_t)functions->count + 1) * sizeof(*of));
	uint64_t next = cluster->change_ns;
	if (!of)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u functions", functions->count);
	for (uint32_t i = 0; i < functions->count; i++)
		of[i] = i;
	for (size_t i = 0; i < workload->count; i++) {
		for (; next <= workload->requests[i].at; next += cluster->change_ns)
			change(of, functions->count, cluster->change_part, &random);
		workload->requests[i].function = of[workload->requests[i].function];
	}
	return MD_OK;
}

enum md_status md_sim_cluster_load(const struct md_sim_cluster *cluster, const struct md_sim_functions *functions,
				   uint64_t seed, struct md_sim_workload *workload, struct md_error *err)
{
	if (cluster->rate_factor > 1 || cluster->rate_factor < 1)
		MD_FORWARD(lay(cluster, seed, workload, err));
	return cluster->change_ns ? change_popularity(cluster, functions, seed, workload, err) : MD_OK;
}
