/* SPDX-License-Identifier: Apache-2.0 */
/* Files that the environment names, opened at once. */
#ifndef MD_RESTORE_RESTORE_EARLY_H
#define MD_RESTORE_RESTORE_EARLY_H

#include "restore/restore.h"

/* The file that a variable names, by a path that leads there now; malloc'd, NULL: none, or no memory. */
char *md_restore_path(const char *variable);
/* Checks that the process may open enough files for itself and for us. */
enum md_status md_restore_files_check(struct md_error *err);

#endif
