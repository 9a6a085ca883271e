/* SPDX-License-Identifier: Apache-2.0 */
/* Modules, libraries and contexts of the process that are unloaded or destroyed. */
#ifndef MD_RESTORE_UNLOAD_H
#define MD_RESTORE_UNLOAD_H

#include "restore/restore.h"

/* Before a module or library of the process goes away. */
void md_restore_module_gone(void *handle);
void md_restore_context_gone(CUcontext context);
/* After a module was loaded: exit() is noticed before it is unloaded there. */
void md_restore_watch_exit(void);

#endif
