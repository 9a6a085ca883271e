/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of one graph of an artifact. */
#ifndef MD_FORMAT_ARTIFACT_CHECK_GRAPH_H
#define MD_FORMAT_ARTIFACT_CHECK_GRAPH_H

#include "format/artifact/artifact.h"

/*
 * Fails with MD_ERR_CORRUPT at the first part that refers to nothing. Kernels and allocations must have been checked. What
 * the graph has in common with one that was checked before (NULL: none) is not checked again.
 */
enum md_status md_artifact_check_graph(const struct md_artifact *artifact, uint32_t index,
				       const struct md_artifact_graph *checked, struct md_error *err);

#endif
