/* SPDX-License-Identifier: Apache-2.0 */
/* Registers functions, backbones and GPUs, and reports wrong calls. */
#ifndef MD_SCHEDULER_CORE_REGISTRY_H
#define MD_SCHEDULER_CORE_REGISTRY_H

#include "scheduler/core/state.h"

#define MD_MOST_BYTES (1ull << 60) /* largest size that is accepted, so that sums cannot overflow */

int md_fail(struct medusa_sched *s, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Copies a struct of the caller, which may be an older, shorter one; the tail of a longer one must be zero. */
bool md_take_struct(const void *given, size_t known, void *out);
/* Fills as much as the caller's struct holds; fields that an older caller does not know are left out. */
int md_give_struct(void *out, const void *known, size_t bytes);
bool md_artifacts_reserve(struct medusa_sched *s, uint32_t more);
/* The caller has reserved it. */
uint32_t md_artifact_add(struct medusa_sched *s, enum medusa_sched_class kind, uint32_t owner, uint64_t bytes,
			 uint64_t cold_ns, bool in_host);
uint64_t md_cold_time(const struct medusa_sched *s, uint64_t bytes,
		      uint64_t ns); /* of so many bytes, and beyond them */
/* Copies, completes and checks a function of the caller, but for its place in host memory. */
int md_function_take(struct medusa_sched *s, const struct medusa_sched_function *given,
		     const struct medusa_sched_function *before, struct medusa_sched_function *spec);
bool md_function_heavy(const struct medusa_sched *s, const struct medusa_sched_function *spec);
void md_function_cold(struct medusa_sched *s, uint32_t function); /* computes the cold starts of its artifacts */
/* Unregisters the function: waiting requests are rejected, running ones end normally. */
void md_function_gone(struct medusa_sched *s, uint32_t function);

#endif
