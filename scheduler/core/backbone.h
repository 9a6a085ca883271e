/* SPDX-License-Identifier: Apache-2.0 */
/* What the functions of a backbone have together on a GPU: places for adapters, requests that run; and when it leaves. */
#ifndef MD_SCHEDULER_CORE_BACKBONE_H
#define MD_SCHEDULER_CORE_BACKBONE_H

#include "scheduler/core/state.h"

/* Whether the backbone (NONE: yes) may be on the GPU, beside others that have it. */
bool md_backbone_may(const struct medusa_sched *s, uint32_t backbone, uint32_t gpu);

/* Further requests of the function that its backbone lets run on the GPU; UINT32_MAX: no limit. */
uint32_t md_backbone_room(const struct medusa_sched *s, uint32_t function, uint32_t gpu);
void md_backbone_runs(struct medusa_sched *s, uint32_t function, uint32_t gpu, int64_t more); /* requests */

/* The artifact came to a GPU, or is gone from there, if it is an adapter; likewise on its way out, or no more. */
void md_adapter_counted(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, int by);
void md_adapter_leaves(struct medusa_sched *s, uint32_t artifact, uint32_t gpu, int by);
/* Whether the function's weights are on the GPU or on their way there, or have a place; `soon`: when all have left that do. */
bool md_adapter_has_place(const struct medusa_sched *s, uint32_t function, uint32_t gpu, bool soon);

/* Unless a function of it is registered or something of it runs: it leaves GPUs and host memory. */
void md_backbone_unused(struct medusa_sched *s, uint32_t backbone);
/* Nothing of it was called for its keep_alive_ns: it leaves GPUs. */
void md_backbone_let_go(struct medusa_sched *s, uint32_t backbone);

#endif
