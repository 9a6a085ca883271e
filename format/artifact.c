/* SPDX-License-Identifier: Apache-2.0 */
/* The artifact's file: header, section table and sections, with every size and checksum looked at before use. */
#include "format/artifact.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "format/artifact_sections.h"
#include "format/file.h"

/*
 *	 0  magic            8      40  section table offset  u64
 *	 8  version          u32    48  file size             u64
 *	12  oldest reader    u32    56  checksum              u64: XXH3-64 of the bytes before, then of the table
 *	16  required bits    u64    64  section table
 *	24  optional bits    u64
 *	32  section count    u32
 *	36  flags            u32
 */
#define HEADER_BYTES 64u
#define CHECKSUM_AT 56u
#define ROW_BYTES                                                                                                      \
	64u /* name[16], offset, stored, raw, checksum: u64 each; codec, flags: u32 each; 8 bytes of zeros             \
	     */
#define NAME_BYTES 16u
#define CODEC_ZSTD 1u
#define CODEC_FRAMES 2u   /* a zstd frame for each image, named by the section images */
#define FEATURE_FRAMES 1u /* required by files that store images */
#define FEATURE_FACTS 2u  /* required by files with facts: they are compared, not skipped */
#define KNOWN_REQUIRED (FEATURE_FRAMES | FEATURE_FACTS) /* feature bits that this reader understands */

#define RAW_MAX (4ull << 30)    /* bytes of all sections, uncompressed */
#define BUDGET_MAX (4ull << 30) /* bytes of what is made of them */
#define RATIO_MAX 1000u         /* a section's raw size to its stored size, beyond 64 MiB */
#define RATIO_FREE (64u << 20)

struct row {
	char name[NAME_BYTES + 1];
	uint64_t offset, stored, raw, checksum;
	uint32_t codec;
	const struct md_section_kind *kind; /* NULL: not known, skipped */
};

/* Each section's checksum is in the table, so header and table are what is left to guard. */
static uint64_t head_checksum(const uint8_t *header, const uint8_t *table, size_t table_size, bool *failed)
{
	struct md_buf both;
	md_buf_init(&both);
	md_buf_put(&both, header, CHECKSUM_AT);
	md_buf_put(&both, table, table_size);
	*failed = both.failed;
	uint64_t checksum = both.failed ? 0 : md_hash_checksum(both.data, both.size);
	md_buf_finish(&both);
	return checksum;
}

/* ---- writing ---- */

static enum md_status encode_section(const struct md_section_kind *kind, const struct md_artifact *artifact,
				     struct md_section_state *state, struct md_buf *body, struct row *row,
				     struct md_error *err)
{
	struct md_archive a;
	struct md_buf raw;
	md_buf_init(&raw);
	md_archive_open_pack(&a, &raw, err);
	/* visitors fill when reading and only read when writing */
	md_archive_record(&a, kind->name, kind->visit, (void *)artifact, state);
	enum md_status status = a.status;
	if (status == MD_OK && raw.failed)
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory");
	size_t start = body->size;
	if (status == MD_OK)
		status =
		    md_zip_append(body, raw.data, raw.size, kind->level, kind->long_range && raw.size > 1u << 20, err);
	if (status == MD_OK) {
		*row =
		    (struct row){.offset = start, .stored = body->size - start, .raw = raw.size, .codec = CODEC_ZSTD};
		row->checksum = md_hash_checksum(body->data + start, row->stored);
		strncpy(row->name, kind->name, NAME_BYTES);
	} else {
		md_error_prefix(err, "section \"%s\"", kind->name);
	}
	md_buf_finish(&raw);
	return status;
}

static bool stores_images(const struct md_artifact *artifact)
{
	bool any = false;
	for (uint32_t i = 0; i < artifact->image_count; i++)
		any |= artifact->images[i].data != NULL;
	return any;
}

static uint64_t features_of(const struct md_artifact *artifact)
{
	return (stores_images(artifact) ? FEATURE_FRAMES : 0) | (artifact->fingerprint.fact_count ? FEATURE_FACTS : 0);
}

/* The last row of the table: its checksum is 0, each frame has one. */
static enum md_status encode_images(const struct md_artifact *artifact, struct md_image_frame *frames,
				    struct md_buf *body, struct row *row, struct md_error *err)
{
	*row = (struct row){.name = MD_IMAGE_SECTION, .offset = body->size, .codec = CODEC_FRAMES};
	enum md_status status = md_image_frames_write(artifact, frames, body, &row->raw, err);
	row->stored = body->size - row->offset;
	return status;
}

/* rows has room for MD_SECTION_COUNT + 1. */
static enum md_status encode_sections(const struct md_artifact *artifact, struct md_buf *body, struct row *rows,
				      uint32_t *row_count, struct md_error *err)
{
	MD_AUTO_FREE struct md_image_frame *frames = calloc((size_t)artifact->image_count + 1, sizeof(*frames));
	struct md_section_state state = {.frames = frames};
	struct md_buf images;
	md_buf_init(&images);
	enum md_status status = frames ? encode_images(artifact, frames, &images, &rows[MD_SECTION_COUNT], err)
				       : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory");
	for (int i = 0; i < MD_SECTION_COUNT && status == MD_OK; i++)
		status = encode_section(&md_section_kinds[i], artifact, &state, body, &rows[i], err);
	*row_count = MD_SECTION_COUNT + stores_images(artifact);
	rows[MD_SECTION_COUNT].offset += body->size;
	md_buf_put(body, images.data, images.size);
	md_buf_finish(&images);
	free(state.bases);
	return status;
}

static void put_row(struct md_buf *out, const struct row *row, uint64_t body_offset)
{
	md_buf_put(out, row->name, NAME_BYTES);
	md_buf_put_u64(out, body_offset + row->offset);
	md_buf_put_u64(out, row->stored);
	md_buf_put_u64(out, row->raw);
	md_buf_put_u64(out, row->checksum);
	md_buf_put_u32(out, row->codec);
	md_buf_put_u32(out, 0);
	md_buf_put_u64(out, 0);
}

static void put_header(struct md_buf *out, uint32_t sections, uint64_t required, uint64_t file_size)
{
	md_buf_put(out, MD_ARTIFACT_MAGIC, 8);
	md_buf_put_u32(out, MD_ARTIFACT_VERSION);
	md_buf_put_u32(out, MD_ARTIFACT_OLDEST_READER);
	md_buf_put_u64(out, required);
	md_buf_put_u64(out, 0);
	md_buf_put_u32(out, sections);
	md_buf_put_u32(out, 0);
	md_buf_put_u64(out, HEADER_BYTES);
	md_buf_put_u64(out, file_size);
}

static enum md_status encode_head(const struct row *rows, uint32_t count, uint64_t required, uint64_t body_size,
				  struct md_buf *head, struct md_error *err)
{
	const uint64_t body_offset = HEADER_BYTES + (uint64_t)count * ROW_BYTES;
	struct md_buf table;
	bool failed;
	md_buf_init(&table);
	for (uint32_t i = 0; i < count; i++)
		put_row(&table, &rows[i], body_offset);
	put_header(head, count, required, body_offset + body_size);
	failed = table.failed || head->failed;
	if (!failed)
		md_buf_put_u64(head, head_checksum(head->data, table.data, table.size, &failed));
	md_buf_put(head, table.data, table.size);
	md_buf_finish(&table);
	return failed || head->failed ? md_error_set(err, MD_ERR_NO_MEMORY, "out of memory") : MD_OK;
}

static enum md_status write_file(const char *path, const struct md_buf *head, const struct md_buf *body,
				 struct md_error *err)
{
	MD_AUTO_FREE char *temporary = NULL;
	if (asprintf(&temporary, "%s.tmp.%d", path, (int)getpid()) < 0) {
		temporary = NULL;
		return md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory", path);
	}
	MD_AUTO_FD int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0)
		return md_error_set(err, MD_ERR_IO, "%s: %s", temporary, strerror(errno));
	enum md_status status = md_file_write(fd, head->data, head->size, temporary, err);
	if (status == MD_OK)
		status = md_file_write(fd, body->data, body->size, temporary, err);
	if (status == MD_OK)
		status = md_file_publish(fd, temporary, path, err);
	if (status != MD_OK)
		unlink(temporary);
	return status;
}

static void fill_sizes(struct md_artifact_sizes *sizes, const struct row *rows, uint32_t count, uint64_t file)
{
	if (!sizes)
		return;
	*sizes = (struct md_artifact_sizes){.file = file};
	for (uint32_t i = 0; i < count && i < MD_ARTIFACT_SECTIONS_MAX; i++) {
		struct md_artifact_section_size *size = &sizes->sections[sizes->section_count++];
		memcpy(size->name, rows[i].name, sizeof(size->name));
		size->name[sizeof(size->name) - 1] = 0;
		size->stored = rows[i].stored;
		size->raw = rows[i].raw;
	}
}

enum md_status md_artifact_write(const struct md_artifact *artifact, const char *path, struct md_artifact_sizes *sizes,
				 struct md_error *err)
{
	struct row rows[MD_SECTION_COUNT + 1];
	uint32_t count = 0;
	struct md_buf head, body;
	MD_FORWARD(md_artifact_check(artifact, err));
	md_buf_init(&head);
	md_buf_init(&body);
	enum md_status status = encode_sections(artifact, &body, rows, &count, err);
	if (status == MD_OK)
		status = encode_head(rows, count, features_of(artifact), body.size, &head, err);
	if (status == MD_OK)
		status = write_file(path, &head, &body, err);
	if (status == MD_OK)
		fill_sizes(sizes, rows, count, head.size + body.size);
	md_buf_finish(&head);
	md_buf_finish(&body);
	return status;
}

/* ---- reading ---- */

static enum md_status check_versions(struct md_reader *in, struct md_error *err)
{
	const void *magic = md_reader_take(in, 8);
	if (!magic || memcmp(magic, MD_ARTIFACT_MAGIC, 8) != 0)
		return md_error_set(err, in->failed ? MD_ERR_TRUNCATED : MD_ERR_CORRUPT,
				    "header at offset 0: not an artifact of Medusa");
	uint32_t version = md_reader_u32(in), oldest = md_reader_u32(in);
	uint64_t required = md_reader_u64(in);
	md_reader_u64(in); /* optional features: whatever they are, they may be ignored */
	if (!in->failed && oldest > MD_ARTIFACT_VERSION)
		return md_error_set(err, MD_ERR_VERSION,
				    "header at offset 12: version %u needs a reader of version %u or newer, this one "
				    "is %d; use a newer Medusa or capture again",
				    version, oldest, MD_ARTIFACT_VERSION);
	if (!in->failed && required & ~(uint64_t)KNOWN_REQUIRED)
		return md_error_set(err, MD_ERR_VERSION,
				    "header at offset 16: needs features 0x%" PRIx64 " that this reader does not know",
				    required & ~(uint64_t)KNOWN_REQUIRED);
	return MD_OK;
}

struct head {
	uint32_t count;
	uint64_t table_offset;
};

static enum md_status check_header(const uint8_t *data, size_t size, struct head *head, struct md_error *err)
{
	struct md_reader in;
	bool failed;
	md_reader_init(&in, data, size);
	MD_FORWARD(check_versions(&in, err));
	head->count = md_reader_u32(&in);
	md_reader_u32(&in);
	head->table_offset = md_reader_u64(&in);
	uint64_t file_size = md_reader_u64(&in), checksum = md_reader_u64(&in);
	if (in.failed)
		return md_error_set(err, MD_ERR_TRUNCATED, "header at offset 0: %zu bytes of %u", size, HEADER_BYTES);
	if (head->count > MD_ARTIFACT_SECTIONS_MAX)
		return md_error_set(err, MD_ERR_TOO_LARGE, "header at offset 32: %u sections, at most %d", head->count,
				    MD_ARTIFACT_SECTIONS_MAX);
	if (file_size != size)
		return md_error_set(err, file_size > size ? MD_ERR_TRUNCATED : MD_ERR_CORRUPT,
				    "header at offset 48: the file has %zu bytes, not %" PRIu64, size, file_size);
	uint64_t table_size = (uint64_t)head->count * ROW_BYTES;
	if (head->table_offset < HEADER_BYTES || head->table_offset > size || table_size > size - head->table_offset)
		return md_error_set(err, MD_ERR_CORRUPT, "header at offset 40: section table at %" PRIu64 " of %zu",
				    head->table_offset, size);
	uint64_t found = head_checksum(data, data + head->table_offset, table_size, &failed);
	if (failed)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory");
	if (found != checksum)
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

static bool is_images(const struct row *row)
{
	return !strcmp(row->name, MD_IMAGE_SECTION);
}

static enum md_status check_row(const struct row *row, size_t file_size, uint64_t *raw_left, struct md_error *err)
{
	if (row->offset > file_size || row->stored > file_size - row->offset)
		return md_error_set(err, MD_ERR_CORRUPT, "%" PRIu64 " bytes in a file of %zu", row->stored, file_size);
	if (row->raw > *raw_left || (row->raw > RATIO_FREE && row->raw / RATIO_MAX > row->stored))
		return md_error_set(err, MD_ERR_TOO_LARGE, "announces %" PRIu64 " bytes out of %" PRIu64, row->raw,
				    row->stored);
	*raw_left -= row->raw;
	if (row->codec != (is_images(row) ? CODEC_FRAMES : CODEC_ZSTD) && (row->kind || is_images(row)))
		return md_error_set(err, MD_ERR_VERSION, "codec %u is not known", row->codec);
	return MD_OK;
}

static enum md_status locate(enum md_status status, const struct row *row, struct md_error *err)
{
	if (status != MD_OK)
		md_error_prefix(err, "section \"%s\" at offset %" PRIu64, row->name, row->offset);
	return status;
}

static enum md_status read_table(const uint8_t *data, size_t size, const struct head *head, struct row *rows,
				 struct md_error *err)
{
	struct md_reader in;
	uint64_t raw_left = RAW_MAX;
	md_reader_init(&in, data + head->table_offset, (size_t)head->count * ROW_BYTES);
	for (uint32_t i = 0; i < head->count; i++) {
		struct row *row = &rows[i];
		const void *name = md_reader_take(&in, NAME_BYTES);
		memcpy(row->name, name, NAME_BYTES);
		row->offset = md_reader_u64(&in);
		row->stored = md_reader_u64(&in);
		row->raw = md_reader_u64(&in);
		row->checksum = md_reader_u64(&in);
		row->codec = md_reader_u32(&in);
		md_reader_take(&in, ROW_BYTES - NAME_BYTES - 36);
		row->kind = kind_of(row->name);
		MD_FORWARD(locate(check_row(row, size, &raw_left, err), row, err));
	}
	return MD_OK;
}

static enum md_status read_section(const uint8_t *data, const struct row *row, struct md_artifact *artifact,
				   struct md_section_state *state, struct md_budget *budget, struct md_error *err)
{
	const uint8_t *stored = data + row->offset;
	if (md_hash_checksum(stored, row->stored) != row->checksum)
		return md_error_set(err, MD_ERR_CORRUPT, "checksum differs");
	MD_AUTO_FREE void *raw = malloc(row->raw ? row->raw : 1);
	if (!raw)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %" PRIu64 " bytes", row->raw);
	MD_FORWARD(md_zip_expand(stored, row->stored, raw, row->raw, err));
	struct md_archive a;
	md_archive_open_unpack(&a, raw, row->raw, budget, err);
	md_archive_record(&a, row->name, row->kind->visit, artifact, state);
	return a.status;
}

/* What is read in one go, and what a cold start reads while images load already. */
enum part { PART_HEAD = 1, PART_GRAPHS = 2 };

static enum part part_of(const struct md_section_kind *kind)
{
	static const char *const late[] = {"graphs", "pointers", "contents"};
	for (size_t i = 0; i < sizeof(late) / sizeof(*late); i++)
		if (!strcmp(kind->name, late[i]))
			return PART_GRAPHS;
	return PART_HEAD;
}

struct reading {
	const uint8_t *data; /* of the whole file */
	size_t size;
	struct row rows[MD_ARTIFACT_SECTIONS_MAX];
	uint32_t row_count;
	struct md_section_state state;
	struct md_budget budget;
};

static enum md_status begin_reading(const void *data, size_t size, struct reading *in, struct md_error *err)
{
	struct head head;
	*in = (struct reading){.data = data, .size = size, .budget.left = BUDGET_MAX};
	MD_FORWARD(check_header(data, size, &head, err));
	in->row_count = head.count;
	return read_table(data, size, &head, in->rows, err);
}

/* NULL and MD_OK when there is no such section. */
static enum md_status find_row(const struct reading *in, const char *name, const struct row **out, struct md_error *err)
{
	*out = NULL;
	for (uint32_t i = 0; i < in->row_count; i++) {
		if (strcmp(in->rows[i].name, name) != 0)
			continue;
		if (*out)
			return locate(md_error_set(err, MD_ERR_CORRUPT, "appears twice"), &in->rows[i], err);
		*out = &in->rows[i];
	}
	return MD_OK;
}

/* In the order of md_section_kinds, whatever the order in the file. */
static enum md_status read_sections(struct reading *in, int parts, struct md_artifact *artifact, struct md_error *err)
{
	for (int i = 0; i < MD_SECTION_COUNT; i++) {
		const struct md_section_kind *kind = &md_section_kinds[i];
		const struct row *found = NULL;
		if (!(part_of(kind) & parts))
			continue;
		MD_FORWARD(find_row(in, kind->name, &found, err));
		if (!found)
			return md_error_set(err, MD_ERR_CORRUPT,
					    "section \"%s\" is missing from the table at offset "
					    "%u",
					    kind->name, HEADER_BYTES);
		MD_FORWARD(locate(read_section(in->data, found, artifact, &in->state, &in->budget, err), found, err));
	}
	return MD_OK;
}

/* A failed check names its section; this adds where that lies. */
static enum md_status locate_check(enum md_status status, const struct reading *in, const struct md_error *why,
				   struct md_error *err)
{
	if (status == MD_OK)
		return MD_OK;
	for (uint32_t i = 0; i < in->row_count; i++) {
		char quoted[NAME_BYTES + 12];
		int length = snprintf(quoted, sizeof(quoted), "section \"%s\"", in->rows[i].name);
		if (!strncmp(why->message, quoted, (size_t)length))
			return md_error_set(err, status, "%s at offset %" PRIu64 "%s", quoted, in->rows[i].offset,
					    why->message + length);
	}
	return md_error_set(err, status, "%s", why->message);
}

/* Where the images' frames lie: row is NULL when none is stored. */
static enum md_status find_images(const struct reading *in, const struct md_artifact *artifact, const struct row **row,
				  struct md_error *err)
{
	struct md_error why = {0};
	MD_FORWARD(find_row(in, MD_IMAGE_SECTION, row, err));
	return locate_check(md_image_frames_check(artifact, *row ? (*row)->stored : 0, &why), in, &why, err);
}

static enum md_status read_head(struct reading *in, struct md_artifact *artifact, const struct row **images,
				struct md_error *err)
{
	struct md_error why = {0};
	MD_FORWARD(read_sections(in, PART_HEAD, artifact, err));
	MD_FORWARD(locate_check(md_artifact_check_head(artifact, &why), in, &why, err));
	return find_images(in, artifact, images, err);
}

static enum md_status read_graphs(struct reading *in, struct md_artifact *artifact, struct md_error *err)
{
	struct md_error why = {0};
	enum md_status status = read_sections(in, PART_GRAPHS, artifact, err);
	free(in->state.bases);
	in->state.bases = NULL;
	MD_FORWARD(status);
	return locate_check(md_artifact_check_graphs(artifact, &why), in, &why, err);
}

static enum md_status read_images(struct reading *in, const struct row *row, struct md_artifact *artifact,
				  struct md_error *err)
{
	struct md_error why = {0};
	if (!row)
		return MD_OK;
	return locate_check(md_image_frames_read(artifact, in->data + row->offset, &in->budget, &why), in, &why, err);
}

enum md_status md_artifact_parse(const void *data, size_t size, struct md_artifact *out,
				 struct md_artifact_sizes *sizes, struct md_error *err)
{
	struct reading in;
	struct md_artifact artifact = {0};
	const struct row *images = NULL;
	MD_FORWARD(begin_reading(data, size, &in, err));
	enum md_status status = read_head(&in, &artifact, &images, err);
	if (status == MD_OK)
		status = read_graphs(&in, &artifact, err);
	if (status == MD_OK)
		status = read_images(&in, images, &artifact, err);
	if (status != MD_OK) {
		md_artifact_finish(&artifact);
		return status;
	}
	fill_sizes(sizes, in.rows, in.row_count, size);
	*out = artifact;
	return MD_OK;
}

enum md_status md_artifact_read(const char *path, struct md_artifact *out, struct md_artifact_sizes *sizes,
				struct md_error *err)
{
	struct md_file_map map;
	MD_FORWARD(md_file_map(path, &map, err));
	enum md_status status = md_artifact_parse(map.data, map.size, out, sizes, err);
	md_file_unmap(&map);
	if (status != MD_OK)
		md_error_prefix(err, "%s", path);
	return status;
}

/* ---- reading in parts ---- */

/*
 * The mapping ends with the graphs; image bytes are read, not mapped: they may be wanted much later, and a file that
 * was cut off in the meantime must give an error, not a signal.
 */
struct md_artifact_file {
	int fd;
	char *path;
	struct md_file_map map;
	struct reading in;
	uint64_t images_offset;
};

enum md_status md_artifact_open(const char *path, struct md_artifact_file **out, struct md_artifact *artifact,
				struct md_error *err)
{
	struct md_artifact_file *file = calloc(1, sizeof(*file));
	const struct row *images = NULL;
	struct md_artifact head = {0};
	if (!file || !(file->path = strdup(path))) {
		free(file);
		return md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory", path);
	}
	file->fd = open(path, O_RDONLY | O_CLOEXEC);
	enum md_status status = md_file_map_fd(file->fd, path, &file->map, err);
	if (status == MD_OK) {
		status = begin_reading(file->map.data, file->map.size, &file->in, err);
		if (status == MD_OK)
			status = read_head(&file->in, &head, &images, err);
		if (status != MD_OK)
			md_error_prefix(err, "%s", path);
	}
	if (status != MD_OK) {
		md_artifact_finish(&head);
		md_artifact_close(file);
		return status;
	}
	file->images_offset = images ? images->offset : 0;
	*out = file;
	*artifact = head;
	return MD_OK;
}

enum md_status md_artifact_read_graphs(struct md_artifact_file *file, struct md_artifact *artifact,
				       struct md_error *err)
{
	enum md_status status = file->map.data ? read_graphs(&file->in, artifact, err)
					       : md_error_set(err, MD_ERR_INVALID, "the graphs were read before");
	md_file_unmap(&file->map);
	return status == MD_OK ? MD_OK : md_error_prefix(err, "%s", file->path);
}

enum md_status md_artifact_read_image(const struct md_artifact_file *file, const struct md_artifact *artifact,
				      uint32_t image, void *out, struct md_error *err)
{
	const struct md_image_frame *frame = &artifact->images[image].frame;
	MD_AUTO_FREE uint8_t *stored = malloc(frame->stored ? frame->stored : 1);
	enum md_status status =
	    stored ? md_file_read_at(file->fd, file->images_offset + frame->offset, stored, frame->stored, err)
		   : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for an image");
	if (status == MD_OK)
		status = md_image_frame_expand(artifact, image, stored, out, err);
	return status == MD_OK ? MD_OK : md_error_prefix(err, "%s", file->path);
}

void md_artifact_close(struct md_artifact_file *file)
{
	if (!file)
		return;
	md_file_unmap(&file->map);
	free(file->in.state.bases);
	if (file->fd >= 0)
		close(file->fd);
	free(file->path);
	free(file);
}
