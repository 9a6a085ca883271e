/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the artifact's file (artifact.c), its sections, and its text twin. */
#ifndef MD_FORMAT_ARTIFACT_SECTIONS_H
#define MD_FORMAT_ARTIFACT_SECTIONS_H

#include "format/artifact/artifact.h"
#include "format/codec/archive.h"

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

/* State that sections share: pointers are coded relative to the graphs' nodes. */
struct md_section_state {
	uint32_t *bases; /* by graph: the base graph or MD_NO_BASE */
	uint32_t base_count;
	struct md_caches *caches;      /* whose blocks were made; writing only */
	struct md_image_frame *frames; /* by image; writing only */
	uint32_t image_at;             /* the image whose turn it is; writing only */
};

/*
 * image_frames.c: the bytes of stored images, a zstd frame each, so that a cold start expands them in parallel.
 * Writing appends the section's bytes to body; images of the same hash and size share a frame. raw is what they all
 * hold.
 */
#define MD_IMAGE_SECTION "image_data"
enum md_status md_image_frames_write(const struct md_artifact *artifact, struct md_image_frame *frames,
				     struct md_buf *body, uint64_t *raw, struct md_error *err);
/*
 * Checks that every frame lies inside the section's stored bytes, and that its size is allowed, before any is
 * decompressed.
 */
enum md_status md_image_frames_check(const struct md_artifact *artifact, uint64_t stored, struct md_error *err);
/* frame: the stored bytes, image->frame.stored of them. out has room for image->size. The error names the image. */
enum md_status md_image_frame_expand(const struct md_artifact *artifact, uint32_t image, const uint8_t *frame,
				     void *out, struct md_error *err);
/* Decompresses the frame into the image. */
enum md_status md_image_frame_read(struct md_artifact *artifact, uint32_t index, const uint8_t *frame,
				   struct md_budget *budget, struct md_error *err);
/* Fails when an image is stored but was not read: such an artifact cannot be written or printed. */
enum md_status md_image_frames_complete(const struct md_artifact *artifact, struct md_error *err);

/*
 * cache_sections.c: files of caches, in two sections that are there together or not at all. Writing appends the bytes of
 * cache_data to body and makes the blocks, which the caller finishes.
 */
#define MD_CACHE_SECTION "caches"
#define MD_CACHE_DATA_SECTION "cache_data"
extern const struct md_section_kind md_cache_section_kind;
enum md_status md_caches_write(const struct md_caches *caches, struct md_caches *made, struct md_buf *body,
			       struct md_error *err);

/* check_content.c: md_artifact_check in two parts: what is read first; then graphs and contents. */
enum md_status md_artifact_check_head(const struct md_artifact *artifact, struct md_error *err);
enum md_status md_artifact_check_graphs(const struct md_artifact *artifact, struct md_error *err);

/* features.c: the header's required bits; said: the bits in the file, all of which the reader knows. */
uint64_t md_artifact_features(const struct md_artifact *artifact);
enum md_status md_artifact_check_head_features(const struct md_artifact *artifact, uint64_t said, struct md_error *err);
enum md_status md_artifact_check_graph_features(const struct md_artifact *artifact, uint64_t said,
						struct md_error *err);

/* sequence.c: requests must refer to earlier ones, and bindings by sequence to requests. */
enum md_status md_sequence_check(const struct md_artifact *artifact, struct md_error *err);

/* doubtful.c: of one graph, whose nodes, pointers and noise have been checked */
/* Handed memory of one graph; and that it goes from one graph of its group to another. */
enum md_status md_artifact_check_handed(const struct md_artifact *artifact, const struct md_artifact_graph *graph,
					struct md_error *err);
enum md_status md_artifact_check_groups(const struct md_artifact *artifact, struct md_error *err);
enum md_status md_artifact_check_doubtful(const struct md_artifact *artifact, const struct md_artifact_graph *graph,
					  struct md_error *err);

/* check_numbers.c: numbers must be consistent. The check of a KV profile is used by whoever makes a profile, too. */
enum md_status md_artifact_check_said(const struct md_fingerprint *fingerprint, struct md_error *err);
enum md_status md_artifact_check_numbers(const struct md_artifact *artifact, struct md_error *err);
enum md_status md_artifact_check_graph_numbers(const struct md_artifact *artifact,
					       const struct md_artifact_graph *graph, struct md_error *err);

/* graph_sections.c: the binary forms of the two large sections */
void md_section_graphs(struct md_archive *a, struct md_artifact *artifact, struct md_section_state *state);
void md_section_pointers(struct md_archive *a, struct md_artifact *artifact, struct md_section_state *state);

/* Shared visitors. */
void md_visit_graph_head(struct md_archive *a, struct md_artifact_graph *graph); /* numbers, and */
void md_visit_graph_tail(struct md_archive *a, struct md_artifact_graph *graph); /* last, outputs and the note */
void md_visit_handed(struct md_archive *a, void *item, void *user);
void md_visit_doubtful(struct md_archive *a, void *item, void *user);
void md_visit_pointer(struct md_archive *a, void *item, void *user);

/* text_twin.c: graphs item by item */
void md_section_graphs_text(struct md_archive *a, struct md_artifact *artifact);

#endif
