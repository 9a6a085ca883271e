/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs and notes of graphs. */
#ifndef MD_RESTORE_RESTORE_OUTPUTS_H
#define MD_RESTORE_RESTORE_OUTPUTS_H

#include "restore/restore.h"

/* The first output that does not lie within its allocation. */
enum md_status md_restore_outputs_check(const struct md_artifact *artifact, const struct md_artifact_graph *graph,
					struct md_error *err);
/* The address of an output in this process, once its graph is built. */
uint64_t md_restore_output_address(const struct md_restore *r, const struct md_artifact_output *output);

#endif
