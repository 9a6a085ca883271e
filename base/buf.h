/* SPDX-License-Identifier: Apache-2.0 */
/* A growing byte buffer for writers and a bounded, sticky-error reader for hostile bytes. */
#ifndef MD_BASE_BUF_H
#define MD_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Writer: a failed growth sets failed and keeps it; check once at the end. data is owned, malloc'd. */
struct md_buf {
	uint8_t *data;
	size_t size;
	size_t capacity;
	bool failed;
};

void md_buf_init(struct md_buf *buf);
void md_buf_finish(struct md_buf *buf);
void md_buf_clear(struct md_buf *buf);                 /* keeps the memory */
void *md_buf_extend(struct md_buf *buf, size_t bytes); /* room for bytes, counted as written; NULL on failure */
void md_buf_put(struct md_buf *buf, const void *data, size_t bytes);
void md_buf_put_u8(struct md_buf *buf, uint8_t value);
void md_buf_put_u16(struct md_buf *buf, uint16_t value);    /* little-endian */
void md_buf_put_u32(struct md_buf *buf, uint32_t value);    /* little-endian */
void md_buf_put_u64(struct md_buf *buf, uint64_t value);    /* little-endian */
void md_buf_put_varint(struct md_buf *buf, uint64_t value); /* LEB128 */
void md_buf_put_zigzag(struct md_buf *buf, int64_t value);  /* LEB128 of the zig-zag form */

/* Reader over borrowed memory. After the first short or bad read every get returns 0 and failed stays set. */
struct md_reader {
	const uint8_t *data;
	size_t size;
	size_t offset;
	bool failed;
	size_t failed_at; /* offset of the first failure */
};

void md_reader_init(struct md_reader *reader, const void *data, size_t size);
const void *md_reader_take(struct md_reader *reader, size_t bytes); /* borrowed; NULL once failed */
uint8_t md_reader_u8(struct md_reader *reader);
uint16_t md_reader_u16(struct md_reader *reader);
uint32_t md_reader_u32(struct md_reader *reader);
uint64_t md_reader_u64(struct md_reader *reader);
uint64_t md_reader_varint(struct md_reader *reader);
int64_t md_reader_zigzag(struct md_reader *reader);
size_t md_reader_left(const struct md_reader *reader);

#endif
