/* SPDX-License-Identifier: Apache-2.0 */
/* How a model stands on a node: where it is, how long a first token takes from there, and who waits for it. */
#ifndef MD_WORKER_CLUSTER_STANDING_H
#define MD_WORKER_CLUSTER_STANDING_H

#include <stdbool.h>
#include <stdint.h>

struct md_model;

enum md_place {
	MD_PLACE_GPU,     /* its engine serves */
	MD_PLACE_HOST,    /* in host memory; of an adapter: its model serves */
	MD_PLACE_LOADING, /* on its way from the disk */
	MD_PLACE_DISK,
	MD_PLACE_NOWHERE, /* its engine fails, and no request starts it now */
};
#define MD_PLACES 5u

const char *md_place_name(enum md_place place);             /* "gpu" ... */
bool md_place_find(const char *name, enum md_place *place); /* false: nothing is called so */

/* Seconds to the first token of a request from these three places. */
enum md_start { MD_START_GPU, MD_START_HOST, MD_START_DISK, MD_STARTS };

struct md_standing {
	enum md_place place;
	double first_s[MD_STARTS];
	uint32_t waiting, running; /* requests */
	double rate;               /* requests a second, over some minutes; told as a power of two (md_demand_note) */
	double busy;               /* requests that are there, in the mean; likewise */
};

/* How often a model is asked for, and how many requests it has, on this node. All zero: it was never asked for. */
struct md_demand {
	uint64_t taken; /* requests so far, as they were counted last */
	double rate, busy;
	double told_rate, told_busy;
};
/* After `seconds` since the last time: `taken` requests have come in all, and `there` have not ended. */
void md_demand_note(struct md_demand *demand, uint64_t taken, uint32_t there, double seconds);

/* As the model is, on this node. */
void md_standing_of(const struct md_model *model, struct md_standing *standing);
/* As a model is of which nothing has been measured, and which nobody has asked for. */
void md_standing_unused(const struct md_model *model, struct md_standing *standing);
/*
 * What others are told of it: powers of two of requests, and steps of a quarter of seconds, so that a busy node has not much more
 * to say than an idle one.
 */
void md_standing_round(struct md_standing *standing);
bool md_standing_equal(const struct md_standing *a, const struct md_standing *b);

/* From now to the first token of one more request; MD_STANDING_NEVER: none is to be expected. */
#define MD_STANDING_NEVER 1e9
double md_standing_expected_s(const struct md_standing *standing);

#endif
