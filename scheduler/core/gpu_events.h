/* SPDX-License-Identifier: Apache-2.0 */
/* Events of GPUs and transfers. */
#ifndef MD_SCHEDULER_CORE_GPU_EVENTS_H
#define MD_SCHEDULER_CORE_GPU_EVENTS_H

#include "scheduler/core/state.h"

void md_transfer_arrives(struct medusa_sched *s, uint32_t transfer); /* or an eviction has ended */
void md_transfer_fails(struct medusa_sched *s, uint32_t transfer);
/* These return a result: MEDUSA_SCHED_ERR_NO_MEMORY, and then nothing has changed. */
int md_gpu_lost(struct medusa_sched *s, uint32_t gpu);
void md_gpu_drain(struct medusa_sched *s, uint32_t gpu);
void md_gpu_back(struct medusa_sched *s, uint32_t gpu);
int md_backbone_failed(struct medusa_sched *s, uint32_t gpu, uint32_t backbone);
int md_function_failed(struct medusa_sched *s, uint32_t gpu, uint32_t function);
void md_memory_report(struct medusa_sched *s, const struct medusa_sched_event *e);

#endif
