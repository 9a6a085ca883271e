/* SPDX-License-Identifier: Apache-2.0 */
/* msgpack writing and bounded reading, memory budgets and zstd, for trace and artifact alike. */
#include "format/codec/pack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "format/artifact/artifact.h"

/* ---- writing ---- */

static int write_to_buf(void *data, const char *bytes, size_t size)
{
	struct md_buf *buf = data;
	md_buf_put(buf, bytes, size);
	return buf->failed ? -1 : 0;
}

void md_pack_init(msgpack_packer *packer, struct md_buf *buf)
{
	msgpack_packer_init(packer, buf, write_to_buf);
}

void md_pack_text(msgpack_packer *packer, const char *text)
{
	if (!text) {
		msgpack_pack_nil(packer);
		return;
	}
	size_t size = strlen(text);
	msgpack_pack_str(packer, size);
	msgpack_pack_str_body(packer, text, size);
}

void md_pack_bytes(msgpack_packer *packer, const void *data, size_t size)
{
	msgpack_pack_bin(packer, size);
	if (size)
		msgpack_pack_bin_body(packer, data, size);
}

/* ---- reading ---- */

void md_unpack_fail(struct md_reader *reader)
{
	if (reader->failed)
		return;
	reader->failed = true;
	reader->failed_at = reader->offset;
}

static uint64_t big_endian(struct md_reader *reader, size_t bytes)
{
	const uint8_t *data = md_reader_take(reader, bytes);
	uint64_t value = 0;
	for (size_t i = 0; data && i < bytes; i++)
		value = value << 8 | data[i];
	return value;
}

static uint64_t fail_zero(struct md_reader *reader)
{
	md_unpack_fail(reader);
	return 0;
}

uint64_t md_unpack_uint(struct md_reader *reader)
{
	uint8_t tag = md_reader_u8(reader);
	if (tag <= 0x7f)
		return tag;
	if (tag >= 0xcc && tag <= 0xcf)
		return big_endian(reader, (size_t)1 << (tag - 0xcc));
	return fail_zero(reader);
}

uint64_t md_unpack_uint_max(struct md_reader *reader, uint64_t max)
{
	uint64_t value = md_unpack_uint(reader);
	return value <= max ? value : fail_zero(reader);
}

int64_t md_unpack_int(struct md_reader *reader)
{
	uint8_t tag = md_reader_u8(reader);
	if (tag <= 0x7f || tag >= 0xe0)
		return (int8_t)tag;
	if (tag >= 0xcc && tag <= 0xcf) {
		uint64_t value = big_endian(reader, (size_t)1 << (tag - 0xcc));
		return value <= INT64_MAX ? (int64_t)value : (int64_t)fail_zero(reader);
	}
	switch (tag) {
	case 0xd0:
		return (int8_t)big_endian(reader, 1);
	case 0xd1:
		return (int16_t)big_endian(reader, 2);
	case 0xd2:
		return (int32_t)big_endian(reader, 4);
	case 0xd3:
		return (int64_t)big_endian(reader, 8);
	default:
		return (int64_t)fail_zero(reader);
	}
}

int32_t md_unpack_int32(struct md_reader *reader)
{
	int64_t value = md_unpack_int(reader);
	if (value < INT32_MIN || value > INT32_MAX)
		md_unpack_fail(reader);
	return reader->failed ? 0 : (int32_t)value;
}

static uint32_t container(struct md_reader *reader, uint8_t fix, uint8_t wide, size_t bytes_each)
{
	uint8_t tag = md_reader_u8(reader);
	uint64_t count = 0;
	if ((tag & 0xf0) == fix)
		count = tag & 0x0f;
	else if (tag == wide)
		count = big_endian(reader, 2);
	else if (tag == wide + 1)
		count = big_endian(reader, 4);
	else
		md_unpack_fail(reader);
	/* every item takes at least a byte, so a larger count is wrong */
	if (!reader->failed && count * bytes_each > md_reader_left(reader))
		md_unpack_fail(reader);
	return reader->failed ? 0 : (uint32_t)count;
}

uint32_t md_unpack_array(struct md_reader *reader)
{
	return container(reader, 0x90, 0xdc, 1);
}

uint32_t md_unpack_map(struct md_reader *reader)
{
	return container(reader, 0x80, 0xde, 2);
}

const char *md_unpack_string(struct md_reader *reader, size_t *size)
{
	uint8_t tag = md_reader_u8(reader);
	*size = 0;
	if (reader->failed || tag == 0xc0)
		return NULL;
	if ((tag & 0xe0) == 0xa0)
		*size = tag & 0x1f;
	else if (tag >= 0xd9 && tag <= 0xdb)
		*size = big_endian(reader, (size_t)1 << (tag - 0xd9));
	else
		md_unpack_fail(reader);
	const char *text = md_reader_take(reader, *size);
	if (!text)
		*size = 0;
	return text;
}

const void *md_unpack_bytes(struct md_reader *reader, size_t *size)
{
	uint8_t tag = md_reader_u8(reader);
	*size = 0;
	if (reader->failed || tag == 0xc0)
		return NULL;
	if (tag >= 0xc4 && tag <= 0xc6)
		*size = big_endian(reader, (size_t)1 << (tag - 0xc4));
	else
		md_unpack_fail(reader);
	const void *data = md_reader_take(reader, *size);
	if (!data)
		*size = 0;
	return data;
}

/* Bytes that follow a tag and have no items inside; -1 when the tag is a container or a string with a length field. */
static int scalar_bytes(uint8_t tag)
{
	static const int8_t by_tag[32] = {/* 0xc0 .. 0xdf */
					  0, -1, 0, 0, -1, -1, -1, -1, -1, -1, 4,  8,  1,  2,  4,  8,
					  1, 2,  4, 8, 2,  3,  5,  9,  17, -1, -1, -1, -1, -1, -1, -1};
	if (tag <= 0x7f || tag >= 0xe0)
		return 0;
	return tag >= 0xc0 ? by_tag[tag - 0xc0] : -1;
}

/* Skips one item's head and own bytes; returns how many items follow inside it. */
static uint64_t skip_head(struct md_reader *reader)
{
	uint8_t tag = md_reader_u8(reader);
	int bytes = scalar_bytes(tag);
	if (bytes >= 0) {
		md_reader_take(reader, (size_t)bytes);
		return 0;
	}
	if ((tag & 0xf0) == 0x80)
		return 2 * (tag & 0x0f);
	if ((tag & 0xf0) == 0x90)
		return tag & 0x0f;
	if ((tag & 0xe0) == 0xa0)
		md_reader_take(reader, tag & 0x1f);
	else if (tag >= 0xc4 && tag <= 0xc6)
		md_reader_take(reader, big_endian(reader, (size_t)1 << (tag - 0xc4)));
	else if (tag >= 0xc7 && tag <= 0xc9)
		md_reader_take(reader, 1 + big_endian(reader, (size_t)1 << (tag - 0xc7)));
	else if (tag >= 0xd9 && tag <= 0xdb)
		md_reader_take(reader, big_endian(reader, (size_t)1 << (tag - 0xd9)));
	else if (tag == 0xdc || tag == 0xdd)
		return big_endian(reader, tag == 0xdc ? 2 : 4);
	else if (tag == 0xde || tag == 0xdf)
		return 2 * big_endian(reader, tag == 0xde ? 2 : 4);
	else
		md_unpack_fail(reader);
	return 0;
}

void md_unpack_skip(struct md_reader *reader)
{
	/* counted, not recursive: nesting takes no stack */
	for (uint64_t items = 1; items > 0 && !reader->failed; items--)
		items += skip_head(reader);
}

/* ---- budgets ---- */

bool md_budget_take(struct md_budget *budget, uint64_t bytes)
{
	budget->exhausted = bytes > budget->left;
	if (!budget->exhausted)
		budget->left -= bytes;
	return !budget->exhausted;
}

void md_budget_give(struct md_budget *budget, uint64_t bytes)
{
	budget->left += bytes;
}

static uint64_t item_bytes(uint64_t count, size_t size)
{
	uint64_t bytes;
	return __builtin_mul_overflow(count, (uint64_t)size, &bytes) || bytes > SIZE_MAX / 2 ? UINT64_MAX : bytes;
}

/* The bytes that malloc takes for a block: a file of short strings needs several times its own size. */
static uint64_t block_bytes(uint64_t bytes)
{
	if (bytes == UINT64_MAX)
		return bytes;
	return bytes <= 24 ? 32 : (bytes + 8 + 15) & ~(uint64_t)15;
}

void *md_budget_alloc(struct md_budget *budget, uint64_t count, size_t size)
{
	if (!md_budget_take(budget, block_bytes(item_bytes(count, size))))
		return NULL;
	return calloc(count ? count : 1, size);
}

void *md_budget_arena(struct md_budget *budget, void **arena, uint64_t count, size_t size)
{
	uint64_t bytes = item_bytes(count, size);
	if (!md_budget_take(budget, bytes == UINT64_MAX ? bytes : md_arena_need(arena, bytes)))
		return NULL;
	return md_arena_alloc(arena, bytes);
}

char *md_unpack_text(struct md_reader *reader, struct md_budget *budget, size_t max)
{
	size_t size;
	const char *text = md_unpack_string(reader, &size);
	if (!text)
		return NULL;
	char *copy = size <= max && !memchr(text, 0, size) ? md_budget_alloc(budget, size + 1, 1) : NULL;
	if (!copy) {
		md_unpack_fail(reader);
		return NULL;
	}
	memcpy(copy, text, size);
	return copy;
}

void md_unpack_text_fixed(struct md_reader *reader, char *out, size_t capacity)
{
	size_t size;
	const char *text = md_unpack_string(reader, &size);
	if (text && (size >= capacity || memchr(text, 0, size)))
		md_unpack_fail(reader);
	memset(out, 0, capacity);
	if (text && !reader->failed)
		memcpy(out, text, size);
}

uint8_t *md_unpack_blob(struct md_reader *reader, struct md_budget *budget, uint64_t *size)
{
	size_t bytes;
	const void *data = md_unpack_bytes(reader, &bytes);
	*size = 0;
	if (!data)
		return NULL;
	uint8_t *copy = md_budget_alloc(budget, bytes, 1);
	if (!copy) {
		md_unpack_fail(reader);
		return NULL;
	}
	memcpy(copy, data, bytes);
	*size = bytes;
	return copy;
}

enum md_status md_budget_error(const struct md_budget *budget, struct md_error *err)
{
	if (budget->exhausted)
		return md_error_set(err, MD_ERR_TOO_LARGE,
				    "asks for more memory than the reader allows (%" PRIu64 " bytes left)",
				    budget->left);
	return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for what is read");
}

/* ---- zstd ---- */

static size_t compress_with(ZSTD_CCtx *context, struct md_buf *out, size_t at, const void *data, size_t size, int level,
			    bool long_range)
{
	ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, level);
	if (long_range) {
		ZSTD_CCtx_setParameter(context, ZSTD_c_enableLongDistanceMatching, 1);
		ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 27); /* what every decoder accepts by default */
	}
	return ZSTD_compress2(context, out->data + at, out->size - at, data, size);
}

enum md_status md_zip_append(struct md_buf *out, const void *data, size_t size, int level, bool long_range,
			     struct md_error *err)
{
	size_t at = out->size;
	ZSTD_CCtx *context = ZSTD_createCCtx();
	if (!context || !md_buf_extend(out, ZSTD_compressBound(size))) {
		ZSTD_freeCCtx(context);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for compressing %zu bytes", size);
	}
	size_t stored = compress_with(context, out, at, data, size, level, long_range);
	ZSTD_freeCCtx(context);
	if (ZSTD_isError(stored)) {
		out->size = at;
		return md_error_set(err, MD_ERR_INVALID, "zstd cannot compress %zu bytes: %s", size,
				    ZSTD_getErrorName(stored));
	}
	out->size = at + stored;
	return MD_OK;
}

enum md_status md_zip_expand(const void *stored, size_t stored_size, void *out, size_t raw, struct md_error *err)
{
	size_t got = ZSTD_decompress(out, raw, stored, stored_size);
	if (ZSTD_isError(got))
		return md_error_set(err, MD_ERR_CORRUPT, "zstd: %s", ZSTD_getErrorName(got));
	if (got != raw)
		return md_error_set(err, MD_ERR_CORRUPT, "%zu bytes came out where %zu were announced", got, raw);
	return MD_OK;
}
