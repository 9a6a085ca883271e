/* SPDX-License-Identifier: Apache-2.0 */
/* Functions, backbones and GPUs as the caller registers them, and what is said of wrong calls. */
#ifndef MD_SCHEDULER_CORE_REGISTRY_H
#define MD_SCHEDULER_CORE_REGISTRY_H

#include "scheduler/core/state.h"

int md_fail(struct medusa_sched *s, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Copies the struct that a caller gave, which may be an older, shorter one; a longer one must end in zeros. */
bool md_take_struct(const void *given, size_t known, void *out);
/* The function is unregistered: its waiting requests are rejected, running ones end as they would. */
void md_function_gone(struct medusa_sched *s, uint32_t function);

#endif
