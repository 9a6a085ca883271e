/* SPDX-License-Identifier: Apache-2.0 */
/* Error messages of the checks of an artifact: each names the section and, for a graph, the node. */
#ifndef MD_FORMAT_ARTIFACT_BAD_H
#define MD_FORMAT_ARTIFACT_BAD_H

#include "format/artifact/artifact.h"

struct md_graph_check { /* the checks of one graph; each message starts with the graph's name */
	const struct md_artifact *artifact;
	const struct md_artifact_graph *graph;
	struct md_error *err;
};

enum md_status md_bad_memory(struct md_error *err, const char *section); /* MD_ERR_NO_MEMORY */

/* These two functions return MD_ERR_CORRUPT. */
enum md_status md_bad_section(struct md_error *err, const char *section, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
enum md_status md_bad_node(const struct md_graph_check *c, uint32_t node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
