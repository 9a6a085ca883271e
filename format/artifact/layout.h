/* SPDX-License-Identifier: Apache-2.0 */
/* The artifact's file around its sections: header, section table, signature; shared by writer, reader and signer. */
#ifndef MD_FORMAT_ARTIFACT_LAYOUT_H
#define MD_FORMAT_ARTIFACT_LAYOUT_H

#include "base/buf.h"
#include "base/file.h"
#include "format/artifact/artifact.h"
#include "format/artifact/sections.h"

/*
 *	 0  magic            8      40  section table offset  u64
 *	 8  version          u32    48  file size             u64
 *	12  oldest reader    u32    56  checksum              u64: XXH3-64 of the bytes before, then of the table
 *	16  required bits    u64    64  section table
 *	24  optional bits    u64
 *	32  section count    u32
 *	36  flags            u32
 */
#define MD_HEADER_BYTES 64u
#define MD_HEADER_CHECKSUM_AT 56u
/* name[16], offset, stored, raw, checksum: u64 each; codec, flags: u32 each; 8 bytes of zeros */
#define MD_ROW_BYTES 64u
#define MD_ROW_NAME_BYTES 16u
#define MD_HEAD_MAX_BYTES (MD_HEADER_BYTES + MD_ARTIFACT_SECTIONS_MAX * MD_ROW_BYTES)

#define MD_CODEC_ZSTD 1u
#define MD_CODEC_FRAMES 2u /* a zstd frame for each image, named by the section images */
#define MD_CODEC_PLAIN 3u  /* as it is; the section has its own protection */

#define MD_ROW_REQUIRED 1u /* flag: a reader that does not know the section must refuse the file */

#define MD_FEATURE_FRAMES 1u       /* required by files that store images */
#define MD_FEATURE_FACTS 2u        /* required by files with facts: they are compared, not skipped */
#define MD_FEATURE_NODES 4u        /* required by files with child graphs, event nodes, or pointers in attributes */
#define MD_FEATURE_VARIABLES 8u    /* required by files with images that have a variable which the engine writes */
#define MD_FEATURE_ORDER 16u       /* required by files with requests: their order is compared, not skipped */
#define MD_FEATURE_DOUBTFUL 32u    /* required by files with doubtful words: their graphs are not to be restored */
#define MD_FEATURE_ARGUMENTS 64u   /* required by files with arguments and no facts: they are compared, not skipped */
#define MD_FEATURE_CONSTANTS 128u  /* required by files with hashes of bindings: they are compared, not skipped */
#define MD_FEATURE_VALUES 256u     /* required by files with values of variables: they are set, not skipped */
#define MD_FEATURE_NEIGHBOURS 512u /* required by files with bindings that adjoin: that is compared, not skipped */
#define MD_FEATURE_ADDRESSES                                                                                           \
	1024u                    /* required by files with pointers to variables, or in values: they are set as well */
#define MD_FEATURE_GROUPS 2048u  /* required by files with groups: their graphs are restored together, or not */
#define MD_FEATURE_LIMITS 4096u  /* required by files with limits of the context: they are compared, not skipped */
#define MD_FEATURE_PLACES 8192u  /* required by files with places of bindings: they are compared, not skipped */
#define MD_FEATURE_EVENTS 16384u /* required by files with events of communication libraries: none is made anew */
#define MD_FEATURES_KNOWN                                                                                              \
	(MD_FEATURE_FRAMES | MD_FEATURE_FACTS | MD_FEATURE_NODES | MD_FEATURE_VARIABLES | MD_FEATURE_ORDER |           \
	 MD_FEATURE_DOUBTFUL | MD_FEATURE_ARGUMENTS | MD_FEATURE_CONSTANTS | MD_FEATURE_VALUES |                       \
	 MD_FEATURE_NEIGHBOURS | MD_FEATURE_ADDRESSES | MD_FEATURE_GROUPS | MD_FEATURE_LIMITS | MD_FEATURE_PLACES |    \
	 MD_FEATURE_EVENTS) /* required bits that this reader knows */

#define MD_OPTION_CACHES 1u /* optional: the file has files of caches, which a reader may leave alone */

#define MD_SIGNATURE_SECTION "signature"

struct md_artifact_row {
	char name[MD_ROW_NAME_BYTES + 1];
	uint64_t offset, stored, raw, checksum;
	uint32_t codec, flags;
	const struct md_section_kind *kind; /* NULL: not known, skipped */
};

struct md_artifact_head {
	uint32_t version, oldest_reader;
	uint64_t required, optional;
	uint32_t count; /* of sections */
	uint64_t table_offset;
};

/* ---- writing ---- */

struct md_artifact_layout { /* a file about to be written */
	struct md_artifact_head head;
	struct md_artifact_row rows[MD_ARTIFACT_SECTIONS_MAX]; /* head.count; offsets are those in body */
	struct md_buf body;
};

/* XXH3-64 over header and table; head holds both, the table behind the header. */
uint64_t md_artifact_head_checksum(const uint8_t *head, uint32_t sections);
/* Header and table as they will be in the file, MD_HEADER_BYTES + count * MD_ROW_BYTES of them. */
void md_artifact_layout_head(const struct md_artifact_layout *layout, uint8_t head[MD_HEAD_MAX_BYTES]);
/* Written beside path and renamed. */
enum md_status md_artifact_layout_publish(const struct md_artifact_layout *layout, const char *path, bool alike,
					  struct md_error *err);
void md_artifact_fill_sizes(struct md_artifact_sizes *sizes, const struct md_artifact_row *rows, uint32_t count,
			    uint64_t file);

/* ---- the signature: its own section, over header, table and the digests of all that is in the file ---- */

struct md_artifact_seal { /* of a file that was read; all zero when it is not signed */
	struct md_artifact_signature signature;
	struct md_digest *digests; /* owned; of the sections in the table's order, then of the images' frames */
	uint32_t digest_count;
};

/*
 * Adds the section to a layout that is otherwise complete; frames are the images' places in image_data. The section is
 * signed by key, if there is one; otherwise `given` must fit (MD_ERR_INVALID).
 */
enum md_status md_artifact_layout_sign(struct md_artifact_layout *layout, const struct md_image_frame *frames,
				       uint32_t image_count, const struct md_secret_key *key,
				       const struct md_artifact_signature *given, struct md_error *err);

/*
 * Checks the bytes of the signature section against head (header and table); if it succeeds, the digests can be relied
 * on. MD_ERR_CORRUPT names the key.
 */
enum md_status md_artifact_seal_read(const uint8_t *head, uint32_t sections, const uint8_t *stored, uint64_t size,
				     struct md_artifact_seal *out, struct md_error *err);
/* MD_OK if there is no signature. index: a row of the table, or the number of rows + the index of an image. */
enum md_status md_artifact_seal_check(const struct md_artifact_seal *seal, uint32_t index, const void *data,
				      uint64_t size, struct md_error *err);
void md_artifact_seal_finish(struct md_artifact_seal *seal);

/* ---- reading, see artifact.c; artifact_file.c has what keeps the file open ---- */

struct md_artifact_reading {
	struct md_file_source source; /* the whole file */
	struct md_artifact_head head;
	struct md_artifact_row rows[MD_ARTIFACT_SECTIONS_MAX]; /* head.count */
	struct md_artifact_seal seal;
	struct md_section_state state;
	struct md_budget budget;
};

/* Reads header, table and signature. Call finish in any case, also after a failure. */
enum md_status md_artifact_reading_begin(const struct md_file_source *source, struct md_artifact_reading *in,
					 struct md_error *err);
/* Reads all sections except for graphs, pointers and contents; images is the row of their frames, or NULL. */
enum md_status md_artifact_reading_head(struct md_artifact_reading *in, struct md_artifact *artifact,
					const struct md_artifact_row **images, struct md_error *err);
/* After the head: graphs, pointers and contents. */
enum md_status md_artifact_reading_graphs(struct md_artifact_reading *in, struct md_artifact *artifact,
					  struct md_error *err);
/* Like md_artifact_seal_check, for the stored bytes of an image. */
enum md_status md_artifact_check_frame(const struct md_artifact_reading *in, uint32_t image, const uint8_t *stored,
				       uint64_t size, struct md_error *err);
void md_artifact_reading_finish(struct md_artifact_reading *in);
/* NULL and MD_OK when there is no such section. */
enum md_status md_artifact_find_row(const struct md_artifact_reading *in, const char *name,
				    const struct md_artifact_row **out, struct md_error *err);
/* Checks and reads one section; the error names it. */
enum md_status md_artifact_read_section(struct md_artifact_reading *in, const struct md_artifact_row *row,
					const struct md_section_kind *kind, struct md_artifact *artifact,
					struct md_error *err);
/* MD_ERR_MISMATCH if there is a list of trusted keys, and the file is not signed by one of them. */
enum md_status md_artifact_check_trust(const struct md_artifact_signature *signature, const struct md_trust *trust,
				       struct md_error *err);
/* cache_sections.c: files of caches, with their bytes. */
enum md_status md_caches_read(struct md_artifact_reading *in, struct md_artifact *artifact, struct md_error *err);

#endif
