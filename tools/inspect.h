/* SPDX-License-Identifier: Apache-2.0 */
/* The views that medusa-inspect offers of an artifact or a trace. */
#ifndef MD_TOOLS_INSPECT_H
#define MD_TOOLS_INSPECT_H

#include <stdio.h>

#include "format/artifact/artifact.h"
#include "format/trace/trace.h"
#include "base/json.h"

void md_inspect_print(const char *path, const struct md_artifact *artifact, const struct md_artifact_sizes *sizes,
		      FILE *out);
void md_inspect_json(const char *path, const struct md_artifact *artifact, const struct md_artifact_sizes *sizes,
		     FILE *out);
/* The nodes of one graph, with kernels, geometry and pointers. */
void md_inspect_graph(const struct md_artifact *artifact, const struct md_artifact_graph *graph, FILE *out);
void md_inspect_graph_json(const struct md_artifact *artifact, const struct md_artifact_graph *graph, FILE *out);
void md_inspect_trace(const char *path, const struct md_trace *trace, FILE *out);
void md_inspect_trace_json(const char *path, const struct md_trace *trace, FILE *out);

/* The engine's facts: lines "fact NAME VALUE", and the key "facts". */
void md_inspect_print_facts(const struct md_fingerprint *machine, FILE *out);
void md_inspect_json_facts(struct md_json *json, const struct md_fingerprint *machine);

/* "LABEL/BATCH", split at the last slash; NULL when the artifact has no such graph. */
const struct md_artifact_graph *md_inspect_find(const struct md_artifact *artifact, const char *name);

/* Words for the numbers of the formats; "unknown" for numbers without a word. */
#define MD_PROOF_TEXT 96
/* For a nondeterministic graph, with the accepted tolerance. */
const char *md_inspect_proof(const struct md_artifact_graph *graph, char text[MD_PROOF_TEXT]);
const char *md_inspect_role(enum md_bind_role role);
const char *md_inspect_family(enum md_alloc_family family);
const char *md_inspect_node(uint8_t type);
/* The place where a restore finds an image: "stored", its file's path, or "triggering kernels". */
const char *md_inspect_image_source(const struct md_image *image);
uint64_t md_inspect_total_nodes(const struct md_artifact *artifact);
/* Bytes in the file that grow with nodes (sections graphs and pointers), divided by the nodes; 0 without nodes. */
double md_inspect_bytes_per_node(const struct md_artifact *artifact, const struct md_artifact_sizes *sizes);

#endif
