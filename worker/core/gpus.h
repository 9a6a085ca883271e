/* SPDX-License-Identifier: Apache-2.0 */
/* The node's GPUs: their memory for the scheduler, and how an engine is told which one is its own. */
#ifndef MD_WORKER_CORE_GPUS_H
#define MD_WORKER_CORE_GPUS_H

#include <stdbool.h>

#include "base/status.h"
#include "medusa/scheduler.h"
#include "worker/config/config.h"

struct md_gpus;
struct md_worker;

/*
 * Those of medusa.gpus; without them, one of which nothing is known. One without a uuid is the next one that the daemon sees,
 * which its own CUDA_VISIBLE_DEVICES says. MD_ERR_INVALID: that does not name enough.
 */
enum md_status md_gpus_create(const struct md_config_node *config, struct md_gpus **gpus, struct md_error *err);
void md_gpus_destroy(struct md_gpus *gpus); /* NULL is fine */
/* The scheduler's GPUs: an array of *count, valid as long as gpus is. */
const struct medusa_sched_gpu *md_gpus_list(const struct md_gpus *gpus, uint32_t *count);
/* Memory of the largest one. */
uint64_t md_gpus_bytes(const struct md_gpus *gpus);
/* CUDA_VISIBLE_DEVICES of an engine on this GPU; NULL: it sees what the daemon sees. Of all GPUs or of none. */
const char *md_gpus_visible(const struct md_gpus *gpus, uint32_t gpu);

/* Nothing new starts on the GPU, what runs there ends, and engines leave it; md_gpus_resume ends that. */
void md_gpus_drain(struct md_worker *worker, uint32_t gpu);
void md_gpus_resume(struct md_worker *worker, uint32_t gpu);
/* Whether no engine has its process or anything else there. */
bool md_gpus_is_empty(const struct md_worker *worker, uint32_t gpu);
bool md_gpus_is_drained(const struct md_gpus *gpus, uint32_t gpu);
void md_gpus_look(struct md_worker *worker); /* time has passed */

#endif
