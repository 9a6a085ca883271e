/* SPDX-License-Identifier: Apache-2.0 */
/* Between the artifact's file (artifact.c), its sections, and its text twin. */
#ifndef MD_FORMAT_ARTIFACT_SECTIONS_H
#define MD_FORMAT_ARTIFACT_SECTIONS_H

#include "format/archive.h"
#include "format/artifact.h"

/* Sections in the order of the file; each is a record whose visitor fills or reads its part of the artifact. */
struct md_section_kind {
	const char *name;
	int level; /* of zstd */
	bool long_range;
	md_archive_visit *visit; /* item: struct md_artifact, user: struct md_section_state */
	bool text;               /* has a part of its own in the text twin */
};

#define MD_SECTION_COUNT 10
extern const struct md_section_kind md_section_kinds[MD_SECTION_COUNT];

/* What one section knows of another: pointers are coded over the graphs' nodes. */
struct md_section_state {
	uint32_t *bases; /* by graph: the base graph or MD_NO_BASE */
	uint32_t base_count;
};

/* artifact_graphs.c: the binary forms of the two large sections */
void md_section_graphs(struct md_archive *a, struct md_artifact *artifact, struct md_section_state *state);
void md_section_pointers(struct md_archive *a, struct md_artifact *artifact, struct md_section_state *state);

/* Shared visitors. */
void md_visit_graph_head(struct md_archive *a, struct md_artifact_graph *graph);
void md_visit_pointer(struct md_archive *a, void *item, void *user);

/* artifact_text.c: graphs item by item */
void md_section_graphs_text(struct md_archive *a, struct md_artifact *artifact);

#endif
