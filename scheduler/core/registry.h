/* SPDX-License-Identifier: Apache-2.0 */
/* Registers functions, backbones and GPUs, and reports wrong calls. */
#ifndef MD_SCHEDULER_CORE_REGISTRY_H
#define MD_SCHEDULER_CORE_REGISTRY_H

#include "scheduler/core/state.h"

int md_fail(struct medusa_sched *s, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Copies a struct of the caller, which may be an older, shorter one; the tail of a longer one must be zero. */
bool md_take_struct(const void *given, size_t known, void *out);
/* Unregisters the function: waiting requests are rejected, running ones end normally. */
void md_function_gone(struct medusa_sched *s, uint32_t function);

#endif
