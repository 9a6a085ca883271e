/* SPDX-License-Identifier: Apache-2.0 */
/* Reads an artifact's sections, one by one or all of them; every size, checksum and signature is checked before use. */
#include "format/artifact/artifact.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptor.h"
#include "base/hash.h"
#include "format/artifact/layout.h"
#include "format/artifact/sections.h"
#include "base/file.h"

#define RAW_MAX (4ull << 30)    /* bytes of all sections, uncompressed */
#define BUDGET_MAX (4ull << 30) /* bytes of everything that is made from them, and of the section that is being read */
#define BUDGET_FREE (768ull << 20)
#define BUDGET_RATIO 8u /* the budget is BUDGET_FREE and so many times the size of the file */
#define RATIO_MAX 1000u /* raw bytes of a section for each stored byte, beyond RATIO_FREE */
#define RATIO_FREE (64u << 20)

/* ---- header and table ---- */

static enum md_status check_versions(struct md_reader *in, struct md_artifact_head *head, struct md_error *err)
{
	const void *magic = md_reader_take(in, 8);
	if (!magic || memcmp(magic, MD_ARTIFACT_MAGIC, 8) != 0)
		return md_error_set(err, in->failed ? MD_ERR_TRUNCATED : MD_ERR_CORRUPT,
				    "header at offset 0: not an artifact of Medusa");
	head->version = md_reader_u32(in);
	head->oldest_reader = md_reader_u32(in);
	head->required = md_reader_u64(in);
	head->optional = md_reader_u64(in); /* a reader may ignore all of them */
	if (!in->failed && head->oldest_reader > MD_ARTIFACT_VERSION)
		return md_error_set(err, MD_ERR_VERSION,
				    "header at offset 12: version %u needs a reader of version %u or newer, this one "
				    "is %d; use a newer Medusa or capture again",
				    head->version, head->oldest_reader, MD_ARTIFACT_VERSION);
	uint64_t unknown = head->required & ~(uint64_t)MD_FEATURES_KNOWN;
	if (!in->failed && unknown)
		return md_error_set(err, MD_ERR_VERSION,
				    "header at offset 16: version %u needs features 0x%" PRIx64
				    " that this reader, of version %d, does not know; use a newer Medusa",
				    head->version, unknown, MD_ARTIFACT_VERSION);
	return MD_OK;
}

static enum md_status copy_bytes(const struct md_file_source *source, uint64_t offset, size_t size, uint8_t *out,
				 struct md_error *err)
{
	const void *bytes = NULL;
	MD_AUTO_FREE void *owned = NULL;
	MD_FORWARD(md_file_source_take(source, offset, size, &bytes, &owned, err));
	if (size)
		memcpy(out, bytes, size);
	return MD_OK;
}

/*
 * The checked bytes must be the bytes that are used, even if the file changes meanwhile: `copy` gets header and table.
 */
static enum md_status check_header(const struct md_file_source *source, struct md_artifact_head *head,
				   uint8_t copy[MD_HEAD_MAX_BYTES], struct md_error *err)
{
	struct md_reader in;
	size_t size = source->size, there = size < MD_HEADER_BYTES ? size : MD_HEADER_BYTES;
	MD_FORWARD(copy_bytes(source, 0, there, copy, err));
	md_reader_init(&in, copy, there);
	MD_FORWARD(check_versions(&in, head, err));
	head->count = md_reader_u32(&in);
	md_reader_u32(&in);
	head->table_offset = md_reader_u64(&in);
	uint64_t file_size = md_reader_u64(&in), checksum = md_reader_u64(&in);
	if (in.failed)
		return md_error_set(err, MD_ERR_TRUNCATED, "header at offset 0: %zu bytes of %u", size,
				    MD_HEADER_BYTES);
	if (head->count > MD_ARTIFACT_SECTIONS_MAX)
		return md_error_set(err, MD_ERR_TOO_LARGE, "header at offset 32: %u sections, at most %d", head->count,
				    MD_ARTIFACT_SECTIONS_MAX);
	if (file_size != size)
		return md_error_set(err, file_size > size ? MD_ERR_TRUNCATED : MD_ERR_CORRUPT,
				    "header at offset 48: the file has %zu bytes, not %" PRIu64, size, file_size);
	uint64_t table_size = (uint64_t)head->count * MD_ROW_BYTES;
	if (head->table_offset < MD_HEADER_BYTES || head->table_offset > size || table_size > size - head->table_offset)
		return md_error_set(err, MD_ERR_CORRUPT, "header at offset 40: section table at %" PRIu64 " of %zu",
				    head->table_offset, size);
	MD_FORWARD(copy_bytes(source, head->table_offset, table_size, copy + MD_HEADER_BYTES, err));
	if (md_artifact_head_checksum(copy, head->count) != checksum)
		return md_error_set(err, MD_ERR_CORRUPT, "header at offset 56: checksum differs");
	return MD_OK;
}

static const struct md_section_kind *kind_of(const char *name)
{
	for (int i = 0; i < MD_SECTION_COUNT; i++) {
		if (!strcmp(md_section_kinds[i].name, name))
			return &md_section_kinds[i];
	}
	return NULL;
}

static bool is_images(const struct md_artifact_row *row)
{
	return !strcmp(row->name, MD_IMAGE_SECTION);
}

static bool is_signature(const struct md_artifact_row *row)
{
	return !strcmp(row->name, MD_SIGNATURE_SECTION);
}

/* An unknown section may hold anything, unless its row says that a reader must know the section. */
static enum md_status check_kind(const struct md_artifact_row *row, uint32_t version, struct md_error *err)
{
	uint32_t codec = is_images(row) ? MD_CODEC_FRAMES : is_signature(row) ? MD_CODEC_PLAIN : MD_CODEC_ZSTD;
	bool known = row->kind || is_images(row) || is_signature(row);
	if (!known && row->flags & MD_ROW_REQUIRED)
		return md_error_set(err, MD_ERR_VERSION,
				    "required by a file of version %u, and not known to this reader, which is of "
				    "version %d; use a newer Medusa",
				    version, MD_ARTIFACT_VERSION);
	if (known && row->codec != codec)
		return md_error_set(err, MD_ERR_VERSION, "codec %u is not known", row->codec);
	return MD_OK;
}

static enum md_status check_row(const struct md_artifact_row *row, size_t file_size, uint64_t *raw_left,
				struct md_error *err)
{
	if (row->offset > file_size || row->stored > file_size - row->offset)
		return md_error_set(err, MD_ERR_CORRUPT, "%" PRIu64 " bytes in a file of %zu", row->stored, file_size);
	if (row->raw > *raw_left || (row->raw > RATIO_FREE && row->raw / RATIO_MAX > row->stored))
		return md_error_set(err, MD_ERR_TOO_LARGE, "announces %" PRIu64 " bytes out of %" PRIu64, row->raw,
				    row->stored);
	*raw_left -= row->raw;
	return MD_OK;
}

static enum md_status locate(enum md_status status, const struct md_artifact_row *row, struct md_error *err)
{
	if (status != MD_OK)
		md_error_prefix(err, "section \"%s\" at offset %" PRIu64, row->name, row->offset);
	return status;
}

static enum md_status read_table(const uint8_t *table, size_t size, const struct md_artifact_head *head,
				 struct md_artifact_row *rows, struct md_error *err)
{
	struct md_reader in;
	uint64_t raw_left = RAW_MAX;
	md_reader_init(&in, table, (size_t)head->count * MD_ROW_BYTES);
	for (uint32_t i = 0; i < head->count; i++) {
		struct md_artifact_row *row = &rows[i];
		const void *name = md_reader_take(&in, MD_ROW_NAME_BYTES);
		memcpy(row->name, name, MD_ROW_NAME_BYTES);
		row->offset = md_reader_u64(&in);
		row->stored = md_reader_u64(&in);
		row->raw = md_reader_u64(&in);
		row->checksum = md_reader_u64(&in);
		row->codec = md_reader_u32(&in);
		row->flags = md_reader_u32(&in);
		md_reader_take(&in, 8);
		row->kind = kind_of(row->name);
		MD_FORWARD(locate(check_row(row, size, &raw_left, err), row, err));
		MD_FORWARD(locate(check_kind(row, head->version, err), row, err));
	}
	return MD_OK;
}

/* Stored bytes, each read once: the checked bytes are used, even if the file changes meanwhile. */
struct stored {
	const void *bytes;
	void *owned;
	uint64_t taken; /* bytes taken from the budget */
};

static enum md_status take_stored(struct md_artifact_reading *in, uint64_t offset, uint64_t size, struct stored *out,
				  struct md_error *err)
{
	*out = (struct stored){.taken = in->source.data ? 0 : size};
	if (!md_budget_take(&in->budget, out->taken)) {
		out->taken = 0;
		return md_budget_error(&in->budget, err);
	}
	return md_file_source_take(&in->source, offset, size, &out->bytes, &out->owned, err);
}

static void give_stored(struct md_artifact_reading *in, struct stored *stored)
{
	free(stored->owned);
	md_budget_give(&in->budget, stored->taken);
	*stored = (struct stored){0};
}

static enum md_status check_stored(const struct md_artifact_reading *in, const struct md_artifact_row *row,
				   const void *bytes, struct md_error *err)
{
	if (md_hash_checksum(bytes, row->stored) != row->checksum)
		return md_error_set(err, MD_ERR_CORRUPT, "checksum differs");
	return md_artifact_seal_check(&in->seal, (uint32_t)(row - in->rows), bytes, row->stored, err);
}

static enum md_status expand_section(struct md_artifact_reading *in, const struct md_artifact_row *row,
				     const struct md_section_kind *kind, const void *stored,
				     struct md_artifact *artifact, struct md_error *err)
{
	MD_AUTO_FREE void *raw = md_budget_alloc(&in->budget, row->raw, 1);
	if (!raw)
		return md_budget_error(&in->budget, err);
	MD_FORWARD(md_zip_expand(stored, row->stored, raw, row->raw, err));
	struct md_archive a;
	md_archive_open_unpack(&a, raw, row->raw, &in->budget, err);
	md_archive_record(&a, row->name, kind->visit, artifact, &in->state);
	md_budget_give(&in->budget, row->raw);
	return a.status;
}

enum md_status md_artifact_read_section(struct md_artifact_reading *in, const struct md_artifact_row *row,
					const struct md_section_kind *kind, struct md_artifact *artifact,
					struct md_error *err)
{
	struct stored stored;
	enum md_status status = take_stored(in, row->offset, row->stored, &stored, err);
	if (status == MD_OK)
		status = check_stored(in, row, stored.bytes, err);
	if (status == MD_OK)
		status = expand_section(in, row, kind, stored.bytes, artifact, err);
	give_stored(in, &stored);
	return locate(status, row, err);
}

/* The parts of a file: a cold start reads the graphs while images are being loaded. */
enum part { PART_HEAD = 1, PART_GRAPHS = 2 };

static enum part part_of(const struct md_section_kind *kind)
{
	static const char *const late[] = {"graphs", "pointers", "contents"};
	for (size_t i = 0; i < sizeof(late) / sizeof(*late); i++)
		if (!strcmp(kind->name, late[i]))
			return PART_GRAPHS;
	return PART_HEAD;
}

enum md_status md_artifact_find_row(const struct md_artifact_reading *in, const char *name,
				    const struct md_artifact_row **out, struct md_error *err)
{
	*out = NULL;
	for (uint32_t i = 0; i < in->head.count; i++) {
		if (strcmp(in->rows[i].name, name) != 0)
			continue;
		if (*out)
			return locate(md_error_set(err, MD_ERR_CORRUPT, "appears twice"), &in->rows[i], err);
		*out = &in->rows[i];
	}
	return MD_OK;
}

static enum md_status read_seal(struct md_artifact_reading *in, const uint8_t *head, struct md_error *err)
{
	const struct md_artifact_row *row;
	MD_FORWARD(md_artifact_find_row(in, MD_SIGNATURE_SECTION, &row, err));
	if (!row)
		return MD_OK;
	struct stored stored;
	enum md_status status = take_stored(in, row->offset, row->stored, &stored, err);
	if (status == MD_OK)
		status = md_artifact_seal_read(head, in->head.count, stored.bytes, row->stored, &in->seal, err);
	give_stored(in, &stored);
	return locate(status, row, err);
}

/* The size of the file limits the memory, whatever sizes the file states. */
static uint64_t budget_of(uint64_t size)
{
	return size < (BUDGET_MAX - BUDGET_FREE) / BUDGET_RATIO ? BUDGET_FREE + BUDGET_RATIO * (uint64_t)size
								: BUDGET_MAX;
}

enum md_status md_artifact_reading_begin(const struct md_file_source *source, struct md_artifact_reading *in,
					 struct md_error *err)
{
	uint8_t head[MD_HEAD_MAX_BYTES];
	*in = (struct md_artifact_reading){.source = *source, .budget.left = budget_of(source->size)};
	MD_FORWARD(check_header(source, &in->head, head, err));
	MD_FORWARD(read_table(head + MD_HEADER_BYTES, source->size, &in->head, in->rows, err));
	return read_seal(in, head, err);
}

void md_artifact_reading_finish(struct md_artifact_reading *in)
{
	free(in->state.bases);
	in->state.bases = NULL;
	md_artifact_seal_finish(&in->seal);
}

/* Reads the sections in the order of md_section_kinds, which need not be their order in the file. */
static enum md_status read_sections(struct md_artifact_reading *in, int parts, struct md_artifact *artifact,
				    struct md_error *err)
{
	for (int i = 0; i < MD_SECTION_COUNT; i++) {
		const struct md_section_kind *kind = &md_section_kinds[i];
		const struct md_artifact_row *found = NULL;
		if (!(part_of(kind) & parts))
			continue;
		MD_FORWARD(md_artifact_find_row(in, kind->name, &found, err));
		if (!found)
			return md_error_set(err, MD_ERR_CORRUPT,
					    "section \"%s\" is missing from the table at offset %" PRIu64, kind->name,
					    in->head.table_offset);
		MD_FORWARD(md_artifact_read_section(in, found, kind, artifact, err));
	}
	return MD_OK;
}

/* A failed check names its section; this adds where the section lies in the file. */
static enum md_status locate_check(enum md_status status, const struct md_artifact_reading *in,
				   const struct md_error *why, struct md_error *err)
{
	if (status == MD_OK)
		return MD_OK;
	for (uint32_t i = 0; i < in->head.count; i++) {
		char quoted[MD_ROW_NAME_BYTES + 12];
		int length = snprintf(quoted, sizeof(quoted), "section \"%s\"", in->rows[i].name);
		if (!strncmp(why->message, quoted, (size_t)length))
			return md_error_set(err, status, "%s at offset %" PRIu64 "%s", quoted, in->rows[i].offset,
					    why->message + length);
	}
	return md_error_set(err, status, "%s", why->message);
}

/* Finds the frames of the images; row is NULL when no image is stored. */
static enum md_status find_images(const struct md_artifact_reading *in, const struct md_artifact *artifact,
				  const struct md_artifact_row **row, struct md_error *err)
{
	struct md_error why = {0};
	MD_FORWARD(md_artifact_find_row(in, MD_IMAGE_SECTION, row, err));
	return locate_check(md_image_frames_check(artifact, *row ? (*row)->stored : 0, &why), in, &why, err);
}

enum md_status md_artifact_reading_head(struct md_artifact_reading *in, struct md_artifact *artifact,
					const struct md_artifact_row **images, struct md_error *err)
{
	struct md_error why = {0};
	MD_FORWARD(read_sections(in, PART_HEAD, artifact, err));
	MD_FORWARD(locate_check(md_artifact_check_head(artifact, &why), in, &why, err));
	MD_FORWARD(md_artifact_check_head_features(artifact, in->head.required, err));
	artifact->signature = in->seal.signature;
	if (in->seal.signature.present && in->seal.digest_count != in->head.count + artifact->image_count)
		return locate_check(md_error_set(&why, MD_ERR_CORRUPT,
						 "section \"" MD_SIGNATURE_SECTION
						 "\": %u digests, of %u sections and %u images",
						 in->seal.digest_count, in->head.count, artifact->image_count),
				    in, &why, err);
	return find_images(in, artifact, images, err);
}

enum md_status md_artifact_reading_graphs(struct md_artifact_reading *in, struct md_artifact *artifact,
					  struct md_error *err)
{
	struct md_error why = {0};
	enum md_status status = read_sections(in, PART_GRAPHS, artifact, err);
	free(in->state.bases);
	in->state.bases = NULL;
	MD_FORWARD(status);
	MD_FORWARD(locate_check(md_artifact_check_graphs(artifact, &why), in, &why, err));
	return md_artifact_check_graph_features(artifact, in->head.required, err);
}

/* The digests of the frames follow those of the sections. */
enum md_status md_artifact_check_frame(const struct md_artifact_reading *in, uint32_t image, const uint8_t *stored,
				       uint64_t size, struct md_error *err)
{
	enum md_status status = md_artifact_seal_check(&in->seal, in->head.count + image, stored, size, err);
	if (status != MD_OK)
		md_error_prefix(err, "section \"" MD_IMAGE_SECTION "\": image %u", image);
	return status;
}

static enum md_status read_image(struct md_artifact_reading *in, const struct md_artifact_row *row, uint32_t image,
				 struct md_artifact *artifact, struct md_error *err)
{
	const struct md_image_frame *frame = &artifact->images[image].frame;
	struct stored stored;
	enum md_status status = take_stored(in, row->offset + frame->offset, frame->stored, &stored, err);
	if (status == MD_OK)
		status = md_artifact_check_frame(in, image, stored.bytes, frame->stored, err);
	if (status == MD_OK)
		status = md_image_frame_read(artifact, image, stored.bytes, &in->budget, err);
	give_stored(in, &stored);
	return status;
}

static enum md_status read_images(struct md_artifact_reading *in, const struct md_artifact_row *row,
				  struct md_artifact *artifact, struct md_error *err)
{
	struct md_error why = {0};
	enum md_status status = MD_OK;
	for (uint32_t i = 0; row && i < artifact->image_count && status == MD_OK; i++)
		if (artifact->images[i].frame.stored)
			status = read_image(in, row, i, artifact, &why);
	return locate_check(status, in, &why, err);
}

/*
 * Checks sections that this reader does not know: a signature covers them, and reading a whole file checks all of it.
 */
static enum md_status check_strangers(struct md_artifact_reading *in, struct md_error *err)
{
	for (uint32_t i = 0; in->seal.signature.present && i < in->head.count; i++) {
		const struct md_artifact_row *row = &in->rows[i];
		struct stored stored;
		if (row->kind || is_images(row) || is_signature(row))
			continue;
		enum md_status status = take_stored(in, row->offset, row->stored, &stored, err);
		if (status == MD_OK)
			status = md_artifact_seal_check(&in->seal, i, stored.bytes, row->stored, err);
		give_stored(in, &stored);
		MD_FORWARD(locate(status, row, err));
	}
	return MD_OK;
}

static enum md_status read_all(struct md_artifact_reading *in, const struct md_file_source *source,
			       struct md_artifact *artifact, struct md_error *err)
{
	const struct md_artifact_row *images = NULL;
	MD_FORWARD(md_artifact_reading_begin(source, in, err));
	MD_FORWARD(check_strangers(in, err));
	MD_FORWARD(md_artifact_reading_head(in, artifact, &images, err));
	MD_FORWARD(md_artifact_reading_graphs(in, artifact, err));
	MD_FORWARD(read_images(in, images, artifact, err));
	return md_caches_read(in, artifact, err);
}

static enum md_status read_source(const struct md_file_source *source, struct md_artifact *out,
				  struct md_artifact_sizes *sizes, struct md_error *err)
{
	struct md_artifact_reading in;
	struct md_artifact artifact = {0};
	enum md_status status = read_all(&in, source, &artifact, err);
	md_artifact_reading_finish(&in);
	if (status != MD_OK) {
		md_artifact_finish(&artifact);
		return status;
	}
	md_artifact_fill_sizes(sizes, in.rows, in.head.count, source->size);
	*out = artifact;
	return MD_OK;
}

enum md_status md_artifact_parse(const void *data, size_t size, struct md_artifact *out,
				 struct md_artifact_sizes *sizes, struct md_error *err)
{
	return read_source(&(struct md_file_source){size ? data : "", -1, size}, out, sizes, err);
}

enum md_status md_artifact_read(const char *path, struct md_artifact *out, struct md_artifact_sizes *sizes,
				struct md_error *err)
{
	MD_AUTO_FD int fd = -1;
	struct md_file_source source = {NULL, -1, 0};
	MD_FORWARD(md_file_open(path, UINT64_MAX, &fd, &source.size, err));
	source.fd = fd;
	enum md_status status = read_source(&source, out, sizes, err);
	if (status != MD_OK)
		md_error_prefix(err, "%s", path);
	return status;
}
