/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the public functions that the rest of the library uses. */
#ifndef MD_RESTORE_RESTORE_API_H
#define MD_RESTORE_RESTORE_API_H

#include "restore/restore.h"

/* Starts restoring in the current context, if nothing has started it. */
enum md_status md_restore_begin(struct md_error *err);
/* Binds a name that was not bound before. */
enum md_status md_restore_bind_new(struct md_restore *r, const struct md_bound *what, struct md_error *err)
    MD_REQUIRES(md_restore_lock);

#define MD_RESTORE_OFF "nothing is restored in a forked child"

#endif
