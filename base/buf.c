/* SPDX-License-Identifier: Apache-2.0 */
/* Byte buffer and bounded reader; both keep their first failure, so that callers check once at the end. */
#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define FIRST_CAPACITY 256u
#define VARINT_MAX_BYTES 10

void md_buf_init(struct md_buf *buf)
{
	*buf = (struct md_buf){0};
}

void md_buf_finish(struct md_buf *buf)
{
	free(buf->data);
	*buf = (struct md_buf){0};
}

void md_buf_clear(struct md_buf *buf)
{
	buf->size = 0;
	buf->failed = false;
}

static bool reserve(struct md_buf *buf, size_t bytes)
{
	if (buf->failed || bytes > SIZE_MAX - buf->size)
		return false;
	bytes += buf->size;
	return MD_ARRAY_RESERVE(buf->data, bytes && bytes < FIRST_CAPACITY ? FIRST_CAPACITY : bytes, buf->capacity);
}

void *md_buf_extend(struct md_buf *buf, size_t bytes)
{
	static uint8_t nothing[1];
	if (!reserve(buf, bytes)) {
		buf->failed = true;
		return NULL;
	}
	buf->size += bytes;
	return buf->data ? buf->data + (buf->size - bytes) : nothing;
}

void md_buf_put(struct md_buf *buf, const void *data, size_t bytes)
{
	void *room = md_buf_extend(buf, bytes);
	if (room && bytes)
		memcpy(room, data, bytes);
}

static void put_little_endian(struct md_buf *buf, uint64_t value, size_t bytes)
{
	uint8_t *room = md_buf_extend(buf, bytes);
	for (size_t i = 0; room && i < bytes; i++)
		room[i] = (uint8_t)(value >> (8 * i));
}

void md_buf_put_u8(struct md_buf *buf, uint8_t value)
{
	put_little_endian(buf, value, 1);
}

void md_buf_put_u16(struct md_buf *buf, uint16_t value)
{
	put_little_endian(buf, value, 2);
}

void md_buf_put_u32(struct md_buf *buf, uint32_t value)
{
	put_little_endian(buf, value, 4);
}

void md_buf_put_u64(struct md_buf *buf, uint64_t value)
{
	put_little_endian(buf, value, 8);
}

void md_buf_put_varint(struct md_buf *buf, uint64_t value)
{
	uint8_t bytes[VARINT_MAX_BYTES];
	size_t count = 0;
	while (value >= 0x80) {
		bytes[count++] = (uint8_t)(value | 0x80);
		value >>= 7;
	}
	bytes[count++] = (uint8_t)value;
	md_buf_put(buf, bytes, count);
}

void md_buf_put_zigzag(struct md_buf *buf, int64_t value)
{
	uint64_t sign = value < 0 ? UINT64_MAX : 0;
	md_buf_put_varint(buf, ((uint64_t)value << 1) ^ sign);
}

void md_reader_init(struct md_reader *reader, const void *data, size_t size)
{
	*reader = (struct md_reader){.data = data, .size = size};
}

static void fail(struct md_reader *reader, size_t at)
{
	if (reader->failed)
		return;
	reader->failed = true;
	reader->failed_at = at;
}

const void *md_reader_take(struct md_reader *reader, size_t bytes)
{
	static const uint8_t nothing[1];
	const uint8_t *at;
	if (reader->failed || bytes > reader->size - reader->offset) {
		fail(reader, reader->offset);
		return NULL;
	}
	at = reader->data ? reader->data + reader->offset : nothing;
	reader->offset += bytes;
	return at;
}

static uint64_t take_little_endian(struct md_reader *reader, size_t bytes)
{
	const uint8_t *at = md_reader_take(reader, bytes);
	uint64_t value = 0;
	for (size_t i = 0; at && i < bytes; i++)
		value |= (uint64_t)at[i] << (8 * i);
	return value;
}

uint8_t md_reader_u8(struct md_reader *reader)
{
	const uint8_t *at = md_reader_take(reader, 1);
	return at ? *at : 0;
}

uint16_t md_reader_u16(struct md_reader *reader)
{
	return (uint16_t)take_little_endian(reader, 2);
}

uint32_t md_reader_u32(struct md_reader *reader)
{
	return (uint32_t)take_little_endian(reader, 4);
}

uint64_t md_reader_u64(struct md_reader *reader)
{
	return take_little_endian(reader, 8);
}

uint64_t md_reader_varint(struct md_reader *reader)
{
	size_t start = reader->offset;
	uint64_t value = 0;
	for (unsigned i = 0; i < VARINT_MAX_BYTES; i++) {
		uint8_t byte = md_reader_u8(reader);
		if (reader->failed)
			return 0;
		/* The tenth byte holds one bit; more would not fit into 64 bits. */
		if (i == VARINT_MAX_BYTES - 1 && byte > 1)
			break;
		value |= (uint64_t)(byte & 0x7f) << (7 * i);
		if (!(byte & 0x80))
			return value;
	}
	fail(reader, start);
	return 0;
}

int64_t md_reader_zigzag(struct md_reader *reader)
{
	uint64_t value = md_reader_varint(reader);
	return (int64_t)((value >> 1) ^ (value & 1 ? UINT64_MAX : 0));
}

size_t md_reader_left(const struct md_reader *reader)
{
	return reader->failed ? 0 : reader->size - reader->offset;
}
