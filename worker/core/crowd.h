/* SPDX-License-Identifier: Apache-2.0 */
/* Engines that start at the same time, and how much slower that makes each of them: they may wait for one disk. */
#ifndef MD_WORKER_CORE_CROWD_H
#define MD_WORKER_CORE_CROWD_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/cluster/first_token.h"

struct md_model;
struct md_worker;

struct md_crowd {
	uint32_t starting; /* engines, since then */
	uint64_t since;    /* md_clock_ns(); 0: nobody has looked yet */
	double sum;        /* of their number, over all ns before */
	double slows;      /* as of struct md_loads */
	bool learned;
};

/* Counts the engines that start; in proportion to the number of models. A node of a cluster does that several times a second. */
void md_crowd_look(struct md_worker *worker);
/* The engines that start, as they were counted last, and what is known of how they slow each other. */
struct md_loads md_crowd_now(const struct md_worker *worker);
/* One more has begun to start: what md_crowd_alone_ns wants in load_crowd when that has ended. */
double md_crowd_begin(struct md_worker *worker);
/*
 * Of a start that took so long: how long it would have taken alone. Learns from it what others cost, if it is known how long
 * starts of the model take.
 */
uint64_t md_crowd_alone_ns(struct md_model *model, uint64_t took);

#endif
