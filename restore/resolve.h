/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel resolution. */
#ifndef MD_RESTORE_RESOLVE_H
#define MD_RESTORE_RESOLVE_H

#include "restore/restore.h"

/* Moves one kernel on: to RESOLVED, REFUSED or TRIGGER. */
void md_restore_kernel_resolve(struct md_restore *r, uint32_t kernel) MD_REQUIRES(md_restore_work);
/* Finds the kernel in an image that the engine has loaded and that may be used. */
enum md_status md_restore_kernel_loaded(struct md_restore *r, uint32_t kernel, struct md_error *err)
    MD_REQUIRES(md_restore_work);

#endif
