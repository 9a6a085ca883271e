/* SPDX-License-Identifier: Apache-2.0 */
/* How long a model's engine takes to start, to come back, to leave and to answer: measured, and told to the scheduler. */
#ifndef MD_WORKER_CORE_LEARNED_H
#define MD_WORKER_CORE_LEARNED_H

#include <stdbool.h>
#include <stdint.h>

#include "medusa/scheduler.h"

struct md_config_own;
struct md_model;
struct md_worker;

enum md_learned_kind {
	MD_LEARNED_START,       /* from the command to the first healthy answer */
	MD_LEARNED_SWAP_IN,     /* from host memory to ready */
	MD_LEARNED_LEAVE,       /* from ready to swapped, or to stopped if it cannot be swapped */
	MD_LEARNED_FIRST_TOKEN, /* of a streamed answer, since the engine was given the request */
	MD_LEARNED_KINDS,
};

/*
 * The first measurement counts as it is, and each further one with a quarter: of an engine whose times have changed, the
 * estimate has come halfway after 3 measurements, and to nine tenths after 8.
 */
struct md_learned {
	uint64_t ns[MD_LEARNED_KINDS]; /* 0: not measured yet */
};

const char *md_learned_name(enum md_learned_kind kind); /* "start" ... */
void md_learned_count(struct md_learned *learned, enum md_learned_kind kind, uint64_t ns);
/*
 * The times of a function: measured ones, else those of the configuration, else guesses. resting: the engine's process is
 * there, or will be when its memory has left, so the next load is a swap-in; else it is a start.
 */
void md_learned_times(const struct md_learned *learned, const struct md_config_own *own, bool resting,
		      struct medusa_sched_function *function);

/*
 * After it: an engine that takes adapters has its times in its backbone (NULL: it is none), and an adapter has others; both leave
 * nothing behind that takes time.
 */
void md_learned_split(const struct md_learned *learned, bool adapter, struct medusa_sched_function *function,
		      struct medusa_sched_backbone *backbone);

/* Counts, and has the scheduler told before the next event. */
void md_learned_note(struct md_model *model, enum md_learned_kind kind, uint64_t ns);
/* The model's engine is in another state, so the next load is perhaps of another kind. */
void md_learned_changed(struct md_model *model);
/* Tells the scheduler the times of all models that have changed by more than a sixteenth. */
void md_learned_tell(struct md_worker *worker);

#endif
