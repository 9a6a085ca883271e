/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights that engines of several models have once in device memory (medusa.backbones): for the scheduler a backbone, which
 * no action of the daemon brings or takes away. The first engine that has it brings it, and it goes with the last one.
 */
#ifndef MD_WORKER_CORE_SHARED_BACKBONE_H
#define MD_WORKER_CORE_SHARED_BACKBONE_H

#include <stdbool.h>

#include "base/status.h"
#include "medusa/scheduler.h"
#include "worker/config/config.h"

struct md_model;
struct md_worker;

/* The scheduler's number of a backbone of this configuration, which is told of it if it is new. MD_ERR_INVALID: it does not fit. */
enum md_status md_shared_backbone_find(struct md_worker *worker, const struct md_worker_config *config, uint32_t index,
				       uint32_t *backbone, struct md_error *err);
/* Whether the model's weights are what that backbone of the configuration is. */
bool md_shared_backbone_is(const struct md_model *model, const struct md_worker_config *config, uint32_t index);
/* The name of the model's backbone, and its bytes; NULL: it has none. */
const char *md_shared_backbone_of(const struct md_model *model, uint64_t *bytes);
/* True: the action is about such a backbone, and is carried out. */
bool md_shared_backbone_move(struct md_worker *worker, const struct medusa_sched_action *action);
/* An engine is in another state: what waits for its end may be over. */
void md_shared_backbone_look(struct md_worker *worker);
void md_shared_backbone_end(struct md_worker *worker);

#endif
