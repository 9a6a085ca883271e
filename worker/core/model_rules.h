/* SPDX-License-Identifier: Apache-2.0 */
/* Groups and matrix of the configuration, as rules of the scheduler: with which other models each may be loaded. */
#ifndef MD_WORKER_CORE_MODEL_RULES_H
#define MD_WORKER_CORE_MODEL_RULES_H

#include <stdbool.h>

#include "base/status.h"

struct md_model;
struct md_model_rules; /* that are being told */
struct md_worker;
struct md_worker_config;

/*
 * Tells the scheduler the rules of a configuration, whose models are `models`, by their indexes there. Models of earlier ones
 * that are still there count as those of their ID.
 */
enum md_status md_model_rules_tell(struct md_worker *worker, const struct md_worker_config *config,
				   struct md_model **models, struct md_error *err);

/* The same in steps, of which each tells the rules of one model. */
enum md_status md_model_rules_begin(struct md_worker *worker, const struct md_worker_config *config,
				    struct md_model **models, struct md_model_rules **rules, struct md_error *err);
enum md_status md_model_rules_step(struct md_model_rules *rules, bool *more, struct md_error *err);
void md_model_rules_end(struct md_model_rules *rules); /* NULL is fine */

#endif
