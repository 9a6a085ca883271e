/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's trigger, which makes the driver load kernels, and the kernels that wait for it. */
#ifndef MD_RESTORE_TRIGGER_H
#define MD_RESTORE_TRIGGER_H

#include "restore/restore.h"

bool md_restore_has_step(const struct md_restore *r, enum md_step step);
/* Runs the engine's trigger, if there is one and it has not run. The lock is released while it runs. */
void md_restore_trigger_pull(struct md_restore *r) MD_REQUIRES(md_restore_lock);
/* The state of a kernel that was found to need the trigger, which may have ended since the kernel was looked at. */
enum md_kernel_state md_restore_trigger_state(const struct md_restore *r) MD_REQUIRES(md_restore_lock);

#endif
