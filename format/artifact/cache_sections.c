/* SPDX-License-Identifier: Apache-2.0 */
/* The sections caches (which files) and cache_data (their bytes): written with the artifact, read with it or alone. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/thread.h"
#include "format/artifact/layout.h"
#include "format/artifact/sections.h"

#define LEVEL 9 /* of zstd */
#define THREADS_MAX 8
#define STORED_MAX (2u * MD_CACHE_BLOCK_BYTES) /* of a block: bytes that do not compress grow a little */

/* ---- the index ---- */

static void visit_file(struct md_archive *a, void *item, void *user)
{
	struct md_cache_file *file = item;
	(void)user;
	md_archive_string(a, "path", &file->path);
	md_archive_u64(a, "size", &file->size);
	if (md_archive_has(a, "executable", file->executable))
		md_archive_bool(a, "executable", &file->executable);
	md_archive_bytes(a, "hash", file->hash.bytes, sizeof(file->hash.bytes));
	if (a->status == MD_OK && file->size > MD_CACHE_BYTES_MAX)
		md_archive_fail(a, MD_ERR_CORRUPT, "a file of %" PRIu64 " bytes, at most %llu", file->size,
				MD_CACHE_BYTES_MAX);
	if (a->ops->text && file->size)
		md_archive_blob(a, "data", &file->data, file->size);
}

static void visit_folder(struct md_archive *a, void *item, void *user)
{
	struct md_cache_folder *folder = item;
	md_archive_string(a, "name", &folder->name);
	md_archive_bool(a, "variable", &folder->variable);
	md_archive_string(a, "inside", &folder->inside);
	md_archive_string(a, "path", &folder->path);
	md_archive_list(a, "files", "file", &folder->files, &folder->file_count, sizeof(*folder->files), visit_file,
			user);
}

static void visit_block(struct md_archive *a, void *item, void *user)
{
	struct md_cache_block *block = item;
	(void)user;
	md_archive_u64(a, "stored", &block->stored);
	md_archive_u64(a, "raw", &block->raw);
	md_archive_bytes(a, "digest", block->digest.bytes, sizeof(block->digest.bytes));
}

static void visit_caches(struct md_archive *a, void *item, void *user)
{
	struct md_caches *caches = &((struct md_artifact *)item)->caches;
	struct md_section_state *state = user; /* none in a text */
	struct md_caches *blocks = !a->ops->reading && state ? state->caches : caches;
	md_archive_list(a, "folders", "cache", &caches->folders, &caches->folder_count, sizeof(*caches->folders),
			visit_folder, user);
	if (!a->ops->text) /* places in the file are the writer's to make */
		md_archive_list(a, "blocks", "block", &blocks->blocks, &blocks->block_count, sizeof(*blocks->blocks),
				visit_block, user);
}

const struct md_section_kind md_cache_section_kind = {MD_CACHE_SECTION, 9, false, visit_caches, true};

/* ---- writing ---- */

static bool add_block(struct md_caches *made, uint64_t raw)
{
	if (!MD_ARRAY_EXTEND(made->blocks, made->block_count))
		return false;
	made->blocks[made->block_count++] = (struct md_cache_block){.raw = raw};
	return true;
}

/* Small files share a block, large ones have several: each block is expanded by itself, on any thread. */
static bool plan_folder(const struct md_cache_folder *folder, struct md_caches *made)
{
	uint64_t open = 0; /* bytes of the block that is not full yet */
	bool ok = true;
	for (uint32_t i = 0; i < folder->file_count && ok; i++) {
		uint64_t size = folder->files[i].size;
		if (open && open + size > MD_CACHE_BLOCK_BYTES) {
			ok = add_block(made, open);
			open = 0;
		}
		if (size <= MD_CACHE_BLOCK_BYTES) {
			open += size;
			continue;
		}
		for (; size && ok; size -= made->blocks[made->block_count - 1].raw)
			ok = add_block(made, size < MD_CACHE_BLOCK_BYTES ? size : MD_CACHE_BLOCK_BYTES);
	}
	return ok && (!open || add_block(made, open));
}

struct packing { /* shared by the threads; each takes the next unit */
	const struct md_caches *caches;
	struct md_cache_block *blocks;
	const struct md_cache_unit *units;
	struct md_buf *packed;   /* by block */
	struct md_error *errors; /* by unit */
	atomic_uint next;
	uint32_t count;
};

static enum md_status pack_block(struct packing *p, uint32_t block, const void *data, struct md_error *err)
{
	struct md_buf *out = &p->packed[block];
	MD_FORWARD(md_zip_append(out, data, p->blocks[block].raw, LEVEL, false, err));
	p->blocks[block].stored = out->size;
	p->blocks[block].digest = md_digest_bytes(out->data, out->size);
	return MD_OK;
}

static enum md_status pack_unit(struct packing *p, const struct md_cache_unit *unit, struct md_error *err)
{
	const struct md_cache_file *files = &p->caches->folders[unit->folder].files[unit->file];
	uint64_t at = 0;
	if (unit->blocks > 1 || unit->files == 1) {
		for (uint32_t i = 0; i < unit->blocks; at += p->blocks[unit->block + i++].raw)
			MD_FORWARD(pack_block(p, unit->block + i, files->data + at, err));
		return MD_OK;
	}
	if (!unit->blocks)
		return MD_OK;
	MD_AUTO_FREE uint8_t *raw = malloc(p->blocks[unit->block].raw);
	if (!raw)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a block of caches");
	for (uint32_t i = 0; i < unit->files; at += files[i++].size)
		if (files[i].size)
			memcpy(raw + at, files[i].data, files[i].size);
	return pack_block(p, unit->block, raw, err);
}

static void *pack_main(void *argument)
{
	struct packing *p = argument;
	for (unsigned i; (i = atomic_fetch_add(&p->next, 1)) < p->count;)
		pack_unit(p, &p->units[i], &p->errors[i]);
	return NULL;
}

static void pack_all(struct packing *p)
{
	pthread_t threads[THREADS_MAX];
	unsigned count = 0;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	while (count + 1 < THREADS_MAX && count + 1 < cpus && count + 1 < p->count &&
	       md_thread_start(&threads[count], pack_main, p) == 0)
		count++;
	pack_main(p);
	while (count > 0)
		pthread_join(threads[--count], NULL);
}

static enum md_status put_blocks(const struct packing *p, uint32_t block_count, struct md_buf *body,
				 struct md_error *err)
{
	for (uint32_t i = 0; i < p->count; i++)
		if (p->errors[i].status != MD_OK)
			return md_error_set(err, p->errors[i].status, "%s", p->errors[i].message);
	for (uint32_t i = 0; i < block_count; i++)
		md_buf_put(body, p->packed[i].data, p->packed[i].size);
	return body->failed ? md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for caches") : MD_OK;
}

static enum md_status pack(const struct md_caches *caches, struct md_caches *made, struct md_buf *body,
			   struct md_error *err)
{
	const struct md_caches planned = {caches->folders, caches->folder_count, made->blocks, made->block_count};
	MD_AUTO_FREE struct md_cache_unit *units = NULL;
	struct packing p = {.caches = caches, .blocks = made->blocks};
	MD_FORWARD(md_cache_units_make(&planned, &units, &p.count, err));
	MD_AUTO_FREE struct md_buf *packed = calloc((size_t)made->block_count + 1, sizeof(*packed));
	MD_AUTO_FREE struct md_error *errors = calloc((size_t)p.count + 1, sizeof(*errors));
	if (!packed || !errors)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u blocks of caches", made->block_count);
	p.units = units, p.packed = packed, p.errors = errors;
	for (uint32_t i = 0; i < made->block_count; i++)
		md_buf_init(&packed[i]);
	pack_all(&p);
	enum md_status status = put_blocks(&p, made->block_count, body, err);
	for (uint32_t i = 0; i < made->block_count; i++)
		md_buf_finish(&packed[i]);
	return status;
}

static enum md_status check_whole(const struct md_caches *caches, struct md_error *err)
{
	for (uint32_t i = 0; i < caches->folder_count; i++)
		for (uint32_t k = 0; k < caches->folders[i].file_count; k++)
			if (caches->folders[i].files[k].size && !caches->folders[i].files[k].data)
				return md_error_set(err, MD_ERR_INVALID,
						    "section \"caches\": the bytes of file %.300s were not read",
						    caches->folders[i].files[k].path);
	return MD_OK;
}

enum md_status md_caches_write(const struct md_caches *caches, struct md_caches *made, struct md_buf *body,
			       struct md_error *err)
{
	bool planned = true;
	MD_FORWARD(check_whole(caches, err));
	for (uint32_t i = 0; i < caches->folder_count && planned; i++)
		planned = plan_folder(&caches->folders[i], made);
	if (!planned)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the blocks of caches");
	MD_FORWARD(pack(caches, made, body, err));
	return md_caches_check_sizes(md_caches_bytes(caches), body->size, err);
}

/* ---- reading ---- */

static enum md_status check_blocks(struct md_caches *caches, const struct md_artifact_row *data, struct md_error *err)
{
	uint64_t stored = 0, raw = 0;
	for (uint32_t i = 0; i < caches->block_count; i++) {
		struct md_cache_block *block = &caches->blocks[i];
		if (!block->raw || block->raw > MD_CACHE_BLOCK_BYTES || block->stored > STORED_MAX)
			return md_error_set(err, MD_ERR_CORRUPT,
					    "section \"caches\": block %u has %" PRIu64 " bytes out of %" PRIu64
					    ", at most %u",
					    i, block->raw, block->stored, MD_CACHE_BLOCK_BYTES);
		block->offset = stored;
		stored += block->stored;
		raw += block->raw;
	}
	if (stored != data->stored || raw != data->raw || raw != md_caches_bytes(caches))
		return md_error_set(err, MD_ERR_CORRUPT,
				    "section \"caches\": blocks of %" PRIu64 " bytes out of %" PRIu64
				    ", but the section cache_data has %" PRIu64 " out of %" PRIu64
				    ", and the files have %" PRIu64,
				    raw, stored, data->raw, data->stored, md_caches_bytes(caches));
	return md_caches_check_sizes(raw, stored, err);
}

/* Both sections are there, or none, as the header says: none can be left out unnoticed. */
static enum md_status find_rows(const struct md_artifact_reading *in, const struct md_artifact_row **index,
				const struct md_artifact_row **data, struct md_error *err)
{
	bool said = in->head.optional & MD_OPTION_CACHES;
	MD_FORWARD(md_artifact_find_row(in, MD_CACHE_SECTION, index, err));
	MD_FORWARD(md_artifact_find_row(in, MD_CACHE_DATA_SECTION, data, err));
	if (said != (*index != NULL) || said != (*data != NULL))
		return md_error_set(err, MD_ERR_CORRUPT,
				    "header at offset 24: the feature bits say %s caches, the section table has %s; "
				    "capture again",
				    said ? "there are" : "there are no",
				    *index && *data     ? "both sections of them"
				    : !*index && !*data ? "none of their sections"
							: "one of their two sections");
	if (said && ((*index)->codec != MD_CODEC_ZSTD || (*data)->codec != MD_CODEC_FRAMES))
		return md_error_set(err, MD_ERR_VERSION, "section \"caches\": codec %u or %u is not known",
				    (*index)->codec, (*data)->codec);
	return MD_OK;
}

static enum md_status read_index(struct md_artifact_reading *in, struct md_artifact *artifact,
				 const struct md_artifact_row **data, struct md_error *err)
{
	const struct md_artifact_row *index;
	struct md_cache_unit *units = NULL;
	uint32_t count;
	MD_FORWARD(find_rows(in, &index, data, err));
	if (!index)
		return MD_OK;
	MD_FORWARD(md_artifact_read_section(in, index, &md_cache_section_kind, artifact, err));
	MD_FORWARD(md_caches_check(&artifact->caches, err));
	if (!artifact->caches.folder_count)
		return md_error_set(err, MD_ERR_CORRUPT, "section \"caches\": it has no folder");
	MD_FORWARD(check_blocks(&artifact->caches, *data, err));
	enum md_status status = md_cache_units_make(&artifact->caches, &units, &count, err);
	free(units);
	return status;
}

/* The bytes of one block; stored is read from the file only if the file is not in memory. */
static enum md_status expand(const struct md_caches *caches, uint32_t block, const void *stored, uint8_t *raw,
			     struct md_error *err)
{
	const struct md_cache_block *b = &caches->blocks[block];
	struct md_digest digest = md_digest_bytes(stored, b->stored);
	if (memcmp(digest.bytes, b->digest.bytes, sizeof(digest.bytes)) != 0)
		return md_error_set(err, MD_ERR_CORRUPT, "section \"cache_data\": the digest of block %u differs",
				    block);
	if (md_zip_expand(stored, b->stored, raw, b->raw, err) != MD_OK)
		return md_error_prefix(err, "section \"cache_data\": block %u", block);
	return MD_OK;
}

static enum md_status read_block(const struct md_artifact_reading *in, const struct md_artifact_row *data,
				 const struct md_caches *caches, uint32_t block, uint8_t *raw, struct md_error *err)
{
	const struct md_cache_block *b = &caches->blocks[block];
	const void *stored;
	MD_AUTO_FREE void *owned = NULL;
	MD_FORWARD(md_file_source_take(&in->source, data->offset + b->offset, b->stored, &stored, &owned, err));
	return expand(caches, block, stored, raw, err);
}

static enum md_status take_files(struct md_artifact_reading *in, struct md_cache_file *files, uint32_t count,
				 struct md_error *err)
{
	for (uint32_t i = 0; i < count; i++)
		if (files[i].size && !(files[i].data = md_budget_alloc(&in->budget, files[i].size, 1)))
			return md_budget_error(&in->budget, err);
	return MD_OK;
}

static enum md_status read_unit(struct md_artifact_reading *in, const struct md_artifact_row *data,
				struct md_caches *caches, const struct md_cache_unit *unit, uint8_t *raw,
				struct md_error *err)
{
	struct md_cache_file *files = &caches->folders[unit->folder].files[unit->file];
	uint64_t at = 0;
	MD_FORWARD(take_files(in, files, unit->files, err));
	if (unit->files == 1) {
		for (uint32_t i = 0; i < unit->blocks; at += caches->blocks[unit->block + i++].raw)
			MD_FORWARD(read_block(in, data, caches, unit->block + i, files->data + at, err));
		return MD_OK;
	}
	if (unit->blocks)
		MD_FORWARD(read_block(in, data, caches, unit->block, raw, err));
	for (uint32_t i = 0; i < unit->files; at += files[i++].size)
		if (files[i].size)
			memcpy(files[i].data, raw + at, files[i].size);
	return MD_OK;
}

enum md_status md_caches_read(struct md_artifact_reading *in, struct md_artifact *artifact, struct md_error *err)
{
	const struct md_artifact_row *data = NULL;
	MD_AUTO_FREE struct md_cache_unit *units = NULL;
	MD_AUTO_FREE uint8_t *raw = NULL;
	uint32_t count;
	MD_FORWARD(read_index(in, artifact, &data, err));
	if (!data)
		return MD_OK;
	MD_FORWARD(md_cache_units_make(&artifact->caches, &units, &count, err));
	if (!(raw = md_budget_alloc(&in->budget, MD_CACHE_BLOCK_BYTES, 1)))
		return md_budget_error(&in->budget, err);
	for (uint32_t i = 0; i < count; i++)
		MD_FORWARD(read_unit(in, data, &artifact->caches, &units[i], raw, err));
	return md_caches_check(&artifact->caches, err); /* now with the hashes of what was read */
}

/* ---- alone ---- */

struct md_cache_source {
	struct md_artifact_reading in;
	struct md_artifact artifact; /* caches, and nothing else */
	const struct md_artifact_row *data;
	int fd;
};

static enum md_status open_source(const char *path, struct md_cache_source *source, struct md_error *err)
{
	struct md_file_source file = {NULL, -1, 0};
	MD_FORWARD(md_file_open(path, UINT64_MAX, &source->fd, &file.size, err));
	file.fd = source->fd;
	return md_artifact_reading_begin(&file, &source->in, err);
}

/* What the header says decides: that a section of the caches is missing is an error of the index. */
enum md_status md_cache_source_open(const char *path, struct md_cache_source **out, struct md_error *err)
{
	struct md_cache_source *source = calloc(1, sizeof(*source));
	if (!source)
		return md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory for its caches", path);
	source->fd = -1;
	enum md_status status = open_source(path, source, err);
	if (status != MD_OK)
		md_error_prefix(err, "%s", path);
	if (status != MD_OK || !(source->in.head.optional & MD_OPTION_CACHES)) {
		md_cache_source_close(source);
		source = NULL;
	}
	if (status == MD_OK)
		*out = source;
	return status;
}

enum md_status md_cache_source_index(struct md_cache_source *source, const struct md_trust *trust,
				     const struct md_caches **out, struct md_error *err)
{
	MD_FORWARD(md_artifact_check_trust(&source->in.seal.signature, trust, err));
	MD_FORWARD(read_index(&source->in, &source->artifact, &source->data, err));
	*out = &source->artifact.caches;
	return MD_OK;
}

enum md_status md_cache_source_read(const struct md_cache_source *source, uint32_t block, uint8_t *stored, uint8_t *raw,
				    struct md_error *err)
{
	const struct md_cache_block *b = &source->artifact.caches.blocks[block];
	MD_FORWARD(md_file_read_at(source->fd, source->data->offset + b->offset, stored, b->stored, err));
	return expand(&source->artifact.caches, block, stored, raw, err);
}

void md_cache_source_close(struct md_cache_source *source)
{
	if (!source)
		return;
	md_artifact_reading_finish(&source->in);
	md_caches_finish(&source->artifact.caches);
	if (source->fd >= 0)
		close(source->fd);
	free(source);
}
