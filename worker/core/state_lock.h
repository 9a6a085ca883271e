/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of --state belongs to one daemon at a time, whose logs would be mixed with another's. */
#ifndef MD_WORKER_CORE_STATE_LOCK_H
#define MD_WORKER_CORE_STATE_LOCK_H

#include "base/status.h"

/* Until fd, which is the caller's, is closed, or the process ends; what it forks does not hold it. MD_ERR_BUSY names who has the folder. */
enum md_status md_state_lock(const char *folder, int *fd, struct md_error *err);
/* The same of another folder; option: how a user names it. */
enum md_status md_lock_folder(const char *folder, const char *option, int *fd, struct md_error *err);

#endif
