/* SPDX-License-Identifier: Apache-2.0 */
/* Opens traces and artifacts into uncompressed parts, has one of them mutated, and closes them with right checksums. */
#include "tests/fuzz/mend.h"

#include <string.h>

#include "base/hash.h"
#include "format/artifact/sections.h"
#include "format/codec/pack.h"
#include "tests/fuzz/fuzz.h"

#define TRACE_HEAD 32
#define ARTIFACT_HEAD 64
#define ROW 64

static void set_u64(uint8_t *at, uint64_t value)
{
	for (int i = 0; i < 8; i++)
		at[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get_u64(const uint8_t *at)
{
	uint64_t value = 0;
	for (int i = 8; i-- > 0;)
		value = value << 8 | at[i];
	return value;
}

/* ---- parts ---- */

static void take_part(struct mend_part *part, const uint8_t *stored, size_t size, uint64_t raw)
{
	md_buf_init(&part->raw);
	part->packed = raw <= MEND_RAW_MAX;
	uint8_t *room = part->packed ? md_buf_extend(&part->raw, raw) : NULL;
	if (part->packed && (!room || md_zip_expand(stored, size, room, raw, NULL) != MD_OK))
		part->packed = false;
	if (!part->packed) {
		md_buf_clear(&part->raw);
		md_buf_put(&part->raw, stored, size);
	}
}

/* The stored form; *raw is what to announce. */
static void put_part(const struct mend_part *part, struct md_buf *out, uint64_t *raw)
{
	*raw = part->raw.size + part->lie;
	if (part->packed)
		md_zip_append(out, part->raw.data, part->raw.size, 1, false, NULL);
	else
		md_buf_put(out, part->raw.data, part->raw.size);
}

static void finish(struct mend_file *file)
{
	for (uint32_t i = 0; i < file->count; i++)
		md_buf_finish(&file->parts[i].raw);
}

/* ---- traces ---- */

static bool open_trace(const uint8_t *data, size_t size, struct mend_file *file)
{
	struct md_reader in;
	md_reader_init(&in, data, size);
	const void *head = md_reader_take(&in, TRACE_HEAD);
	if (!head)
		return false;
	memcpy(file->head, head, TRACE_HEAD);
	while (file->count < MEND_PARTS_MAX && md_reader_left(&in) >= 16) {
		uint32_t stored = md_reader_u32(&in), raw = md_reader_u32(&in);
		md_reader_u64(&in);
		size_t left = md_reader_left(&in), bytes = stored < left ? stored : left;
		take_part(&file->parts[file->count++], md_reader_take(&in, bytes), bytes, raw);
	}
	return file->count > 0;
}

static void close_trace(struct mend_file *file, struct md_buf *out)
{
	md_buf_put(out, file->head, TRACE_HEAD);
	for (uint32_t i = 0; i < file->count; i++) {
		uint64_t raw;
		size_t at = out->size;
		md_buf_extend(out, 16);
		put_part(&file->parts[i], out, &raw);
		if (out->failed)
			return;
		size_t stored = out->size - at - 16;
		set_u64(out->data + at, (uint64_t)(uint32_t)raw << 32 | (uint32_t)stored);
		set_u64(out->data + at + 8, md_hash_checksum(out->data + at + 16, stored));
	}
}

/* ---- artifacts ---- */

static bool open_artifact(const uint8_t *data, size_t size, struct mend_file *file)
{
	if (size < ARTIFACT_HEAD)
		return false;
	memcpy(file->head, data, ARTIFACT_HEAD);
	uint64_t table = get_u64(data + 40);
	uint32_t count = data[32] < MEND_PARTS_MAX ? data[32] : MEND_PARTS_MAX;
	if (table > size || (size_t)count * ROW > size - table)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		struct mend_part *part = &file->parts[file->count];
		memcpy(part->row, data + table + (size_t)i * ROW, ROW);
		uint64_t at = get_u64(part->row + 16), stored = get_u64(part->row + 24);
		if (at <= size && stored <= size - at) {
			bool frames = part->row[48] != 1;
			take_part(part, data + at, stored, frames ? UINT64_MAX : get_u64(part->row + 32));
			file->count++;
		}
	}
	return file->count > 0;
}

/* Header and table have one checksum: over the header up to it, and the table. */
static void seal_artifact(struct mend_file *file, struct md_buf *out)
{
	struct md_buf both;
	md_buf_init(&both);
	file->head[32] = (uint8_t)file->count;
	set_u64(file->head + 40, ARTIFACT_HEAD);
	set_u64(file->head + 48, out->size);
	md_buf_put(&both, file->head, 56);
	for (uint32_t i = 0; i < file->count; i++)
		md_buf_put(&both, file->parts[i].row, ROW);
	if (!both.failed)
		set_u64(file->head + 56, md_hash_checksum(both.data, both.size));
	memcpy(out->data, file->head, ARTIFACT_HEAD);
	for (uint32_t i = 0; i < file->count; i++)
		memcpy(out->data + ARTIFACT_HEAD + (size_t)i * ROW, file->parts[i].row, ROW);
	md_buf_finish(&both);
}

static void close_artifact(struct mend_file *file, struct md_buf *out)
{
	md_buf_extend(out, ARTIFACT_HEAD + (size_t)file->count * ROW);
	for (uint32_t i = 0; i < file->count && !out->failed; i++) {
		struct mend_part *part = &file->parts[i];
		uint64_t raw;
		size_t at = out->size;
		put_part(part, out, &raw);
		set_u64(part->row + 16, at);
		set_u64(part->row + 24, out->size - at);
		if (part->packed)
			set_u64(part->row + 32, raw);
		if (part->row[48] == 1 && !out->failed)
			set_u64(part->row + 40, md_hash_checksum(out->data + at, out->size - at));
	}
	if (!out->failed)
		seal_artifact(file, out);
}

const struct mend_format mend_trace = {open_trace, close_trace, TRACE_HEAD};
const struct mend_format mend_artifact = {open_artifact, close_artifact, ARTIFACT_HEAD};

/* ---- blocks of caches: the index has a digest of each ---- */

static struct mend_part *find(struct mend_file *file, const char *section, bool packed)
{
	for (uint32_t i = 0; i < file->count; i++)
		if (!strncmp((const char *)file->parts[i].row, section, 16) && file->parts[i].packed == packed)
			return &file->parts[i];
	return NULL;
}

static void replace_digest(struct md_buf *index, const struct md_digest *by, const struct md_digest *old)
{
	uint8_t *at = memmem(index->data, index->size, old->bytes, sizeof(old->bytes));
	if (at)
		memcpy(at, by->bytes, sizeof(by->bytes));
}

void mend_blocks(struct mend_file *file)
{
	struct mend_part *index = find(file, MD_CACHE_SECTION, true), *data = find(file, MD_CACHE_DATA_SECTION, false);
	struct md_budget budget = {.left = 64u << 20};
	struct md_artifact artifact = {0};
	struct md_archive archive;
	uint64_t at = 0;
	if (!index || !data)
		return;
	md_archive_open_unpack(&archive, index->raw.data, index->raw.size, &budget, NULL);
	md_archive_record(&archive, MD_CACHE_SECTION, md_cache_section_kind.visit, &artifact, NULL);
	for (uint32_t i = 0; i < artifact.caches.block_count; i++) {
		const struct md_cache_block *block = &artifact.caches.blocks[i];
		if (block->stored > data->raw.size - at)
			break;
		struct md_digest digest = md_digest_bytes(data->raw.data + at, block->stored);
		replace_digest(&index->raw, &digest, &block->digest);
		at += block->stored;
	}
	md_artifact_finish(&artifact);
}

/* ---- mutation ---- */

static void mutate_bytes(struct md_buf *buf)
{
	size_t size = buf->size, room = size + size / 4 + 64;
	if (!md_buf_extend(buf, room - size))
		return;
	buf->size = LLVMFuzzerMutate(buf->data, size, room);
}

static void copy_part(struct mend_file *file, uint32_t from)
{
	if (file->count == MEND_PARTS_MAX)
		return;
	struct mend_part *copy = &file->parts[file->count++], *part = &file->parts[from];
	*copy = *part;
	md_buf_init(&copy->raw);
	md_buf_put(&copy->raw, part->raw.data, part->raw.size);
}

static void drop_part(struct mend_file *file, uint32_t which)
{
	md_buf_finish(&file->parts[which].raw);
	file->count--;
	memmove(&file->parts[which], &file->parts[which + 1], (file->count - which) * sizeof(file->parts[0]));
}

static void mutate_file(const struct mend_format *format, struct mend_file *file, uint32_t *random)
{
	uint32_t what = fuzz_random(random, 64), which = fuzz_random(random, file->count);
	struct mend_part *part = &file->parts[which];
	if (what == 0)
		LLVMFuzzerMutate(file->head, format->head_bytes, format->head_bytes);
	else if (what == 1)
		LLVMFuzzerMutate(part->row, sizeof(part->row), sizeof(part->row));
	else if (what == 2)
		part->lie = fuzz_random(random, 64);
	else if (what == 3)
		copy_part(file, which);
	else if (what == 4)
		drop_part(file, which);
	else if (what < 24 || !part->packed || !mend_items(&part->raw, random))
		mutate_bytes(&part->raw);
	if (fuzz_random(random, 2))
		mend_blocks(file);
}

size_t mend_mutate(const struct mend_format *format, uint8_t *data, size_t size, size_t max_size, uint32_t seed)
{
	struct mend_file file = {0};
	struct md_buf out;
	uint32_t random = seed | 1;
	size_t got = 0;
	md_buf_init(&out);
	fuzz_random(&random, 0);
	if (fuzz_random(&random, 20) && format->open(data, size, &file)) {
		for (uint32_t i = 1 + fuzz_random(&random, 3); i > 0 && file.count; i--)
			mutate_file(format, &file, &random);
		format->close(&file, &out);
		got = out.failed || out.size > max_size ? 0 : out.size;
	}
	if (got)
		memcpy(data, out.data, got);
	finish(&file);
	md_buf_finish(&out);
	return got ? got : LLVMFuzzerMutate(data, size, max_size);
}
