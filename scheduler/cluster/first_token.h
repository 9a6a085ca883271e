/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a model stands on a node of a cluster, as nodes tell each other, and which node a request goes to: that whose first token is
 * expected first. The worker routes with it, and so does the simulator; the shared library has none of it.
 */
#ifndef MD_SCHEDULER_CLUSTER_FIRST_TOKEN_H
#define MD_SCHEDULER_CLUSTER_FIRST_TOKEN_H

#include <stdbool.h>
#include <stdint.h>

/* ---- how a model stands on a node ---- */

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
	/* Of prompts (prefix_choice.h): */
	double prefill_s; /* for a byte; 0: not known */
	double rest_s;    /* to the first token of a request without one, on a GPU; 0: not known */
	bool uncached;    /* its engine keeps no prefixes of them */
	uint32_t life; /* another number: another engine, which has none of those that were kept; 0: none was started */
	bool lacks;    /* its files are not there; the time to fetch them is in that from the disk */
};

/* Engines that start on a node: each makes the others slower, as far as they wait for the same disk. */
struct md_loads {
	uint32_t count;
	double slows; /* the part of its own time by which another one makes a start longer, from 0 to 1; learned */
};
#define MD_LOADS_SLOW 0.5 /* before anything was learned */

/* How often a model is asked for, and how many requests it has, on this node. All zero: it was never asked for. */
struct md_demand {
	uint64_t taken; /* requests so far, as they were counted last */
	double rate, busy;
	double told_rate, told_busy;
};
/* After `seconds` since the last time: `taken` requests have come in all, and `there` have not ended. */
void md_demand_note(struct md_demand *demand, uint64_t taken, uint32_t there, double seconds);

/*
 * What others are told of it: powers of two of requests, and steps of a quarter of seconds, so that a busy node has not much more
 * to say than an idle one.
 */
void md_standing_round(struct md_standing *standing);
bool md_standing_equal(const struct md_standing *a, const struct md_standing *b);

/* From now to the first token of one more request; MD_STANDING_NEVER: none is to be expected. */
#define MD_STANDING_NEVER 1e9
double md_standing_expected_s(const struct md_standing *standing, struct md_loads loads);

/* ---- which node ---- */

/* A node as another one knows it, which may pass a request on to it. */
struct md_offer {
	const struct md_standing *standing; /* of the model, there; NULL: the node does not have it */
	struct md_loads loads;              /* there */
	bool closed;                        /* it takes no requests */
	bool cordoned;                      /* it is asked if nobody else has the model */
	bool doubted;                       /* likewise: it was not reached some seconds ago */
	bool ended;                         /* its lease has ended: it is asked last of all */
	uint32_t open;                      /* requests there that the node which asks has passed on */
};

/* The best of those that were considered so far. All zero: none was. */
struct md_offer_best {
	bool found;
	uint32_t index; /* the caller's number of it */
	uint32_t open;
	double seconds;
};
/* Seconds to a first token there; below 0: it takes no request for the model. */
double md_offer_expected_s(const struct md_offer *offer);
/* Of equal ones, the one with the fewest requests from here is the best, and then the one that was considered first. */
void md_offer_consider(struct md_offer_best *best, uint32_t index, const struct md_offer *offer);

/* What a model that is nowhere here, or that this node does not take, is counted as. */
#define MD_OFFER_NOT_HERE (2 * MD_STANDING_NEVER)
/* Seconds to a first token on the node that asks; cordoned: by its own users. */
double md_offer_here_s(const struct md_standing *standing, struct md_loads loads, bool cordoned);
/* Whether the request is passed on: another node has to be clearly sooner than this one. */
bool md_offer_is_better(const struct md_offer_best *best, double here_s);

#endif
