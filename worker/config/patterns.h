/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions of the configuration. */
#ifndef MD_WORKER_CONFIG_PATTERNS_H
#define MD_WORKER_CONFIG_PATTERNS_H

#include "worker/config/keys.h"

/* Compiles ignored_paths; list is where they were read, NULL for the defaults. */
enum md_status md_config_compile_patterns(struct md_config_build *build, const struct md_tree *list);
void md_config_free_patterns(struct md_config_inner *inner);

#endif
