/* SPDX-License-Identifier: Apache-2.0 */
/* Making room by evicting what is idle. */
#ifndef MD_SCHEDULER_CORE_EVICT_H
#define MD_SCHEDULER_CORE_EVICT_H

#include "scheduler/core/state.h"

/* True if the first of the GPU's claims, which there must be, has waited so long that nothing else starts there. */
bool md_claim_is_old(const struct medusa_sched *s, uint32_t gpu);
uint64_t md_claim_age(const struct medusa_sched *s, uint32_t gpu); /* ns, since then or since another one was served */
/* ns after which a claim is old, and after which a function that has to leave serves no further requests */
uint64_t md_patience(const struct medusa_sched *s);
/* True if a batch of the function could have memory on the GPU, now or after evictions; of a continuous one: another. */
bool md_fits(struct medusa_sched *s, uint32_t function, uint32_t gpu);
/* True if it could on an empty GPU. */
bool md_fits_empty(const struct medusa_sched *s, uint32_t function, uint32_t gpu, uint64_t kv_bytes);
/* True if it could on some empty GPU, be it lost now; with early binding, on its home. */
bool md_fits_somewhere(const struct medusa_sched *s, uint32_t function, uint64_t kv_bytes);
void md_empty(struct medusa_sched *s, uint32_t gpu);   /* evicts all that is idle, residues too */
void md_shrink(struct medusa_sched *s, uint32_t gpu);  /* other processes took memory: evicts what is idle */
void md_drained(struct medusa_sched *s, uint32_t gpu); /* evicts draining copies that have become idle */
void md_undrain(struct medusa_sched *s, uint32_t gpu);
/* Evicts what belongs only to this function, which is unregistered or not called. */
void md_sweep(struct medusa_sched *s, uint32_t function);
/* The same of a backbone, which nobody calls; gone: no function that is registered has it. */
void md_sweep_backbone(struct medusa_sched *s, uint32_t backbone, bool gone);
void md_sweep_gpu(struct medusa_sched *s, uint32_t function, uint32_t gpu); /* likewise, on this GPU alone */
/* Evicts what is idle there of its own weights and context; of the context the residue stays. */
void md_evict_function(struct medusa_sched *s, uint32_t function, uint32_t gpu);
void md_evict_backbone(struct medusa_sched *s, uint32_t backbone, uint32_t gpu); /* if it is idle there */
/* Evicts idle copies that `keeper` does not need until `bytes` are free. True: they are free now. */
bool md_make_room(struct medusa_sched *s, uint32_t gpu, uint64_t bytes, uint32_t keeper);
/* Evicts idle adapters until the function's has a place beside its backbone. True: it has one now. */
bool md_make_place(struct medusa_sched *s, uint32_t gpu, uint32_t function);
void md_drain_for(struct medusa_sched *s, uint32_t gpu, uint64_t bytes, uint32_t keeper);
/* Evicts idle artifacts, except keeper's, from host memory. True: `bytes` are free. */
bool md_host_room(struct medusa_sched *s, uint64_t bytes, uint32_t keeper);

#endif
