/* SPDX-License-Identifier: Apache-2.0 */
/* Models that stay loaded (min_replicas, pin): what the scheduler is promised of them, and when it is not. */
#ifndef MD_WORKER_CORE_MODEL_KEEP_H
#define MD_WORKER_CORE_MODEL_KEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "medusa/scheduler.h"

struct md_config_own;
struct md_model;
struct md_worker;

struct md_model_keep {
	uint32_t failures;      /* of its engine, one after the other */
	uint64_t again_at;      /* ns: not loaded ahead before; 0: at once */
	uint64_t ready_at;      /* ns: when its engine became ready */
	bool answered;          /* it has begun an answer since then */
	uint32_t starts_failed; /* one after the other: it was not ready, or ended before it answered anything */
	uint64_t rests_until;   /* ns: no request starts it before; 0: one does at once */
};

/* Fills in min_replicas and pinned: what the configuration says, unless a user has unloaded it, or its engine has just failed. */
void md_model_keep_promise(const struct md_model *model, const struct md_config_own *own,
			   struct medusa_sched_function *function);
void md_model_keep_failed(struct md_model *model); /* its engine has failed by itself */
void md_model_keep_ready(struct md_model *model);
void md_model_keep_answered(struct md_model *model); /* its engine has begun an answer */
void md_model_keep_changed(struct md_model *model);  /* a user has unloaded it, or wants it again */
/* How long no request starts its engine, because starts of it have failed again and again; ns, 0: one may. Loads by users do. */
uint64_t md_model_keep_rest(const struct md_model *model);
void md_model_keep_look(struct md_worker *worker); /* time has passed */

#endif
