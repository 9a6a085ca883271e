/* SPDX-License-Identifier: Apache-2.0 */
/* A workload while it is read or drawn: what the readers of traces and the laws of arrivals share. */
#ifndef MD_SIMULATOR_WORKLOAD_BUILDER_H
#define MD_SIMULATOR_WORKLOAD_BUILDER_H

#include "simulator/random.h"
#include "simulator/simulator.h"

#define MD_SIM_REQUESTS_MAX 20000000u
#define MD_SIM_TRACE_BYTES_MAX (256u << 20)

struct md_sim_builder {
	const char *name; /* of the file or law, for messages */
	const struct md_sim_functions *functions;
	const struct md_sim_workload_options *options;
	struct md_error *err;
	struct md_sim_workload out;
	size_t capacity;
	double *cumulated; /* cumulative weights of functions; NULL: round-robin */
	uint32_t *by_name; /* functions, sorted */
	struct md_sim_random random;
	uint64_t mapped; /* number of requests that named no function */
	bool sorted;     /* the requests were added by time */
};

enum md_status md_sim_builder_memory(const struct md_sim_builder *builder); /* fails with "out of memory" */
enum md_status md_sim_builder_add(struct md_sim_builder *builder, const struct md_sim_request *request);
void md_sim_builder_sort(struct md_sim_builder *builder);
/* Draws an index of cumulated, in proportion to the weights. */
uint32_t md_sim_builder_draw(struct md_sim_builder *builder);

/* ---- trace_file.c ---- */
enum md_status md_sim_trace_parse(struct md_sim_builder *builder, const char *text, size_t bytes);

/* ---- offered.c: load, in GPU seconds of computing for each GPU second ---- */
/* GPU seconds of a request of this function, in the mean over the tokens that a law draws. */
double md_sim_offered_mean_s(const struct md_sim_node *node, const struct md_sim_function *function);
/* Of all requests, until the workload's end; 0: the node is not known. */
double md_sim_offered_load(const struct md_sim_builder *builder);

#endif
