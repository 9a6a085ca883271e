/* SPDX-License-Identifier: Apache-2.0 */
/* Writes an artifact's file (sections, header and table), and publishes it as a whole. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "format/artifact/layout.h"
#include "base/file.h"

/* ---- header and table ---- */

/* The table holds the checksums of the sections; this one protects header and table. */
uint64_t md_artifact_head_checksum(const uint8_t *head, uint32_t sections)
{
	uint8_t both[MD_HEAD_MAX_BYTES];
	size_t table = (size_t)sections * MD_ROW_BYTES;
	memcpy(both, head, MD_HEADER_CHECKSUM_AT);
	memcpy(both + MD_HEADER_CHECKSUM_AT, head + MD_HEADER_BYTES, table);
	return md_hash_checksum(both, MD_HEADER_CHECKSUM_AT + table);
}

struct cursor {
	uint8_t *at;
};

static void put_number(struct cursor *out, uint64_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		*out->at++ = (uint8_t)(value >> 8 * i);
}

static void put_bytes(struct cursor *out, const void *data, size_t size)
{
	memcpy(out->at, data, size);
	out->at += size;
}

static void put_row(struct cursor *out, const struct md_artifact_row *row, uint64_t body_offset)
{
	put_bytes(out, row->name, MD_ROW_NAME_BYTES);
	put_number(out, body_offset + row->offset, 8);
	put_number(out, row->stored, 8);
	put_number(out, row->raw, 8);
	put_number(out, row->checksum, 8);
	put_number(out, row->codec, 4);
	put_number(out, row->flags, 4);
	put_number(out, 0, 8);
}

static uint64_t body_offset(const struct md_artifact_layout *layout)
{
	return MD_HEADER_BYTES + (uint64_t)layout->head.count * MD_ROW_BYTES;
}

void md_artifact_layout_head(const struct md_artifact_layout *layout, uint8_t head[MD_HEAD_MAX_BYTES])
{
	const struct md_artifact_head *h = &layout->head;
	struct cursor out = {head};
	put_bytes(&out, MD_ARTIFACT_MAGIC, 8);
	put_number(&out, h->version, 4);
	put_number(&out, h->oldest_reader, 4);
	put_number(&out, h->required, 8);
	put_number(&out, h->optional, 8);
	put_number(&out, h->count, 4);
	put_number(&out, 0, 4);
	put_number(&out, MD_HEADER_BYTES, 8);
	put_number(&out, body_offset(layout) + layout->body.size, 8);
	struct cursor checksum = out;
	put_number(&out, 0, 8);
	for (uint32_t i = 0; i < h->count; i++)
		put_row(&out, &layout->rows[i], body_offset(layout));
	put_number(&checksum, md_artifact_head_checksum(head, h->count), 8);
}

enum md_status md_artifact_layout_publish(const struct md_artifact_layout *layout, const char *path, bool alike,
					  struct md_error *err)
{
	uint8_t head[MD_HEAD_MAX_BYTES];
	MD_AUTO_FREE char *temporary = NULL;
	MD_AUTO_FD int fd = -1;
	md_artifact_layout_head(layout, head);
	MD_FORWARD(md_file_check_output(path, err));
	MD_FORWARD(md_file_create_beside(path, &temporary, &fd, err));
	enum md_status status = alike ? md_file_make_alike(fd, path, err) : MD_OK;
	if (status == MD_OK)
		status = md_file_write(fd, head, body_offset(layout), temporary, err);
	if (status == MD_OK)
		status = md_file_write(fd, layout->body.data, layout->body.size, temporary, err);
	if (status == MD_OK)
		status = md_file_publish(fd, temporary, path, err);
	if (status != MD_OK)
		unlink(temporary);
	return status;
}

void md_artifact_fill_sizes(struct md_artifact_sizes *sizes, const struct md_artifact_row *rows, uint32_t count,
			    uint64_t file)
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

/* ---- sections ---- */

static enum md_status encode_section(const struct md_section_kind *kind, const struct md_artifact *artifact,
				     struct md_section_state *state, struct md_artifact_layout *out,
				     struct md_error *err)
{
	struct md_archive a;
	struct md_buf raw, *body = &out->body;
	md_buf_init(&raw);
	md_archive_open_pack(&a, &raw, err);
	/* visitors fill when reading and only read when writing */
	md_archive_record(&a, kind->name, kind->visit, (void *)artifact, state);
	enum md_status status = a.status;
	if (status == MD_OK && raw.failed)
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for section \"%s\"", kind->name);
	size_t start = body->size;
	if (status == MD_OK)
		status =
		    md_zip_append(body, raw.data, raw.size, kind->level, kind->long_range && raw.size > 1u << 20, err);
	if (status == MD_OK) {
		struct md_artifact_row *row = &out->rows[out->head.count++];
		*row = (struct md_artifact_row){
		    .offset = start, .stored = body->size - start, .raw = raw.size, .codec = MD_CODEC_ZSTD};
		row->checksum = md_hash_checksum(body->data + start, row->stored);
		strncpy(row->name, kind->name, MD_ROW_NAME_BYTES);
	} else {
		md_error_prefix(err, "section \"%s\"", kind->name);
	}
	md_buf_finish(&raw);
	return status;
}

/*
 * Appends the frames behind the sections that say where they lie. The row has no checksum, because each frame has one.
 */
static void append_frames(const char *name, const struct md_buf *frames, uint64_t raw, struct md_artifact_layout *out)
{
	struct md_artifact_row *row = &out->rows[out->head.count++];
	*row = (struct md_artifact_row){
	    .offset = out->body.size, .stored = frames->size, .raw = raw, .codec = MD_CODEC_FRAMES};
	strncpy(row->name, name, MD_ROW_NAME_BYTES);
	md_buf_put(&out->body, frames->data, frames->size);
}

static enum md_status encode_caches(const struct md_artifact *artifact, struct md_artifact_layout *out,
				    struct md_error *err)
{
	struct md_caches made = {0};
	struct md_section_state state = {.caches = &made};
	struct md_buf blocks;
	if (!artifact->caches.folder_count)
		return MD_OK;
	md_buf_init(&blocks);
	enum md_status status = md_caches_write(&artifact->caches, &made, &blocks, err);
	if (status == MD_OK)
		status = encode_section(&md_cache_section_kind, artifact, &state, out, err);
	if (status == MD_OK)
		append_frames(MD_CACHE_DATA_SECTION, &blocks, md_caches_bytes(&artifact->caches), out);
	md_buf_finish(&blocks);
	md_caches_finish(&made);
	return status;
}

static enum md_status encode_sections(const struct md_artifact *artifact, struct md_image_frame *frames,
				      struct md_artifact_layout *out, struct md_error *err)
{
	struct md_section_state state = {.frames = frames};
	struct md_buf images;
	uint64_t raw = 0;
	md_buf_init(&images);
	enum md_status status = md_image_frames_write(artifact, frames, &images, &raw, err);
	for (int i = 0; i < MD_SECTION_COUNT && status == MD_OK; i++)
		status = encode_section(&md_section_kinds[i], artifact, &state, out, err);
	if (status == MD_OK && md_artifact_features(artifact) & MD_FEATURE_FRAMES)
		append_frames(MD_IMAGE_SECTION, &images, raw, out);
	if (status == MD_OK)
		status = encode_caches(artifact, out, err);
	if (status == MD_OK && out->body.failed)
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the sections");
	md_buf_finish(&images);
	free(state.bases);
	return status;
}

enum md_status md_artifact_write(const struct md_artifact *artifact, const char *path, struct md_artifact_sizes *sizes,
				 struct md_error *err)
{
	struct md_artifact_layout layout = {.head = {.version = MD_ARTIFACT_VERSION,
						     .oldest_reader = MD_ARTIFACT_OLDEST_READER,
						     .required = md_artifact_features(artifact),
						     .optional = artifact->caches.folder_count ? MD_OPTION_CACHES : 0}};
	MD_FORWARD(md_artifact_check(artifact, err));
	MD_AUTO_FREE struct md_image_frame *frames = calloc((size_t)artifact->image_count + 1, sizeof(*frames));
	if (!frames)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u images", artifact->image_count);
	md_buf_init(&layout.body);
	enum md_status status = encode_sections(artifact, frames, &layout, err);
	if (status == MD_OK && artifact->signature.present)
		status =
		    md_artifact_layout_sign(&layout, frames, artifact->image_count, NULL, &artifact->signature, err);
	if (status == MD_OK)
		status = md_artifact_layout_publish(&layout, path, false, err);
	if (status == MD_OK)
		md_artifact_fill_sizes(sizes, layout.rows, layout.head.count, body_offset(&layout) + layout.body.size);
	md_buf_finish(&layout.body);
	return status;
}
