/* SPDX-License-Identifier: Apache-2.0 */
/* Writing and bounded reading of msgpack; budgets for memory that a file asks for; zstd with checked sizes. */
#ifndef MD_FORMAT_CODEC_PACK_H
#define MD_FORMAT_CODEC_PACK_H

#include <msgpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

/* ---- writing: msgpack-c's packer over a buffer; a failed growth is kept in buf->failed ---- */

void md_pack_init(msgpack_packer *packer, struct md_buf *buf);
void md_pack_text(msgpack_packer *packer, const char *text); /* nil for NULL */
void md_pack_bytes(msgpack_packer *packer, const void *data, size_t size);

/*
 * ---- reading: a cursor over hostile bytes ----
 * No object is built, so a header that announces four thousand million items costs nothing. Wrong types and short data
 * set reader->failed, as every other bad read does.
 */

void md_unpack_fail(struct md_reader *reader);
uint64_t md_unpack_uint(struct md_reader *reader);
int64_t md_unpack_int(struct md_reader *reader);
uint64_t md_unpack_uint_max(struct md_reader *reader, uint64_t max); /* fails above max */
int32_t md_unpack_int32(struct md_reader *reader);
uint32_t md_unpack_array(struct md_reader *reader);
uint32_t md_unpack_map(struct md_reader *reader);
/* Borrowed and not terminated; NULL for nil, which is not a failure. */
const char *md_unpack_string(struct md_reader *reader, size_t *size);
const void *md_unpack_bytes(struct md_reader *reader, size_t *size);
void md_unpack_skip(struct md_reader *reader);

/* ---- memory that a file may ask for ---- */

struct md_budget {
	uint64_t left;  /* bytes */
	bool exhausted; /* the last request was refused for its size, not because memory ran out */
};

/* most bytes that an entry of a growing map takes; maps do not use a budget themselves */
#define MD_MAP_ENTRY_BYTES 96u

/* Zeroed and malloc'd, never NULL for count 0; NULL when refused. */
void *md_budget_alloc(struct md_budget *budget, uint64_t count, size_t size);
bool md_budget_take(struct md_budget *budget, uint64_t bytes);
/* Gives back bytes that were taken only for a while. */
void md_budget_give(struct md_budget *budget, uint64_t bytes);
/* Zeroed, from an arena (artifact/artifact.h). */
void *md_budget_arena(struct md_budget *budget, void **arena, uint64_t count, size_t size);
/* Owned copy of the string at the cursor; NULL for nil and for failure. Embedded NULs and more than max bytes fail. */
char *md_unpack_text(struct md_reader *reader, struct md_budget *budget, size_t max);
/* The same into a fixed array, which must hold it and the NUL. */
void md_unpack_text_fixed(struct md_reader *reader, char *out, size_t capacity);
/* Owned copy of the bin at the cursor; NULL for nil. */
uint8_t *md_unpack_blob(struct md_reader *reader, struct md_budget *budget, uint64_t *size);
/* "would take more than N bytes" or "out of memory", whichever the budget's last refusal was. */
enum md_status md_budget_error(const struct md_budget *budget, struct md_error *err);

/* ---- zstd ---- */

/* Appends one frame. long_range looks for matches far back: for kernel images and columns of many graphs. */
enum md_status md_zip_append(struct md_buf *out, const void *data, size_t size, int level, bool long_range,
			     struct md_error *err);
/* out has room for `raw` bytes; fails unless exactly so many come out. */
enum md_status md_zip_expand(const void *stored, size_t stored_size, void *out, size_t raw, struct md_error *err);

#endif
