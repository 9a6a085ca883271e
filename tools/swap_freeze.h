/* SPDX-License-Identifier: Apache-2.0 */
/* Freezes processes by a cgroup of their own (cgroup v2), below the one that they are in, and thaws them. */
#ifndef MD_TOOLS_SWAP_FREEZE_H
#define MD_TOOLS_SWAP_FREEZE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/status.h"

/* Makes the cgroup, empty. MD_ERR_UNSUPPORTED: there is no cgroup here that can be written to; it says which, and why. */
enum md_status md_swap_freeze_prepare(pid_t pid, struct md_error *err);
/* Moves the processes there, of which the first is that of prepare, and freezes them. After a failure none is frozen. */
enum md_status md_swap_freeze(const pid_t *pids, size_t count, struct md_error *err);
bool md_swap_freeze_is_frozen(pid_t pid);
/* Thaws a process and all in its cgroup, moves them back, and removes the cgroup. Nothing to do is no error. */
enum md_status md_swap_freeze_end(pid_t pid, struct md_error *err);

#endif
