/* SPDX-License-Identifier: Apache-2.0 */
/* One description of a record for four uses: write and read msgpack, write and read text. */
#ifndef MD_FORMAT_CODEC_ARCHIVE_H
#define MD_FORMAT_CODEC_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "format/codec/pack.h"

struct md_archive;

/*
 * A visitor function calls these for every field of a record, numbers first, lists and blobs last. Writing only reads
 * the fields; reading fills them. The first failure is kept in archive->status, and later calls do nothing.
 */
struct md_archive_ops {
	bool reading;
	bool text;
	void (*u64)(struct md_archive *a, const char *name, uint64_t *value);
	void (*i64)(struct md_archive *a, const char *name, int64_t *value);
	void (*string)(struct md_archive *a, const char *name, char **value);              /* owned; NULL is allowed */
	void (*bytes)(struct md_archive *a, const char *name, uint8_t *data, size_t size); /* of known size */
	void (*blob)(struct md_archive *a, const char *name, uint8_t **data, uint64_t size); /* owned, large */
	void (*begin)(struct md_archive *a, const char *keyword);
	void (*end)(struct md_archive *a);
	/* Number of items. For a text it is UINT32_MAX, and `more` tells whether another item follows. */
	uint32_t (*list)(struct md_archive *a, const char *name, uint32_t count);
	bool (*more)(struct md_archive *a, const char *keyword);
	bool (*has)(struct md_archive *a, const char *name); /* reading: whether the record has such a field */
};

#define MD_ARCHIVE_DEPTH 8

#define MD_ARCHIVE_KEYS 64

struct md_archive_map {
	size_t start;   /* writing: offset of its head */
	uint32_t count; /* pairs */
	uint32_t at;    /* reading: the pair that is expected next */
	/* reading: how many pairs have known places; one more than there are pairs: the end is known, too */
	uint32_t known;
	size_t begins[MD_ARCHIVE_KEYS + 1];
};

struct md_archive {
	const struct md_archive_ops *ops;
	struct md_error *err;
	enum md_status status;
	struct md_budget *budget;
	/* msgpack */
	msgpack_packer packer;
	struct md_buf *out;
	struct md_reader in;
	struct md_archive_map maps[MD_ARCHIVE_DEPTH];
	int depth;
	/* text, see archive_text.c */
	struct md_text *lines;
};

void md_archive_open_pack(struct md_archive *a, struct md_buf *out, struct md_error *err);
void md_archive_open_unpack(struct md_archive *a, const void *data, size_t size, struct md_budget *budget,
			    struct md_error *err);

/* Keeps the first failure. */
void md_archive_fail(struct md_archive *a, enum md_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void md_archive_fail_memory(struct md_archive *a);

typedef void md_archive_visit(struct md_archive *a, void *item, void *user);

void md_archive_record(struct md_archive *a, const char *keyword, md_archive_visit *visit, void *item, void *user);
/* items is a T **; when reading it is allocated and *count set, item by item zeroed before its visit. */
void md_archive_list(struct md_archive *a, const char *name, const char *keyword, void *items, uint32_t *count,
		     size_t size, md_archive_visit *visit, void *user);

/*
 * Whether to visit a field that a later version of the format added. Older files do not have it, and it is not written
 * unless `there`. In a text this works only for fields on the record's own line; empty lists and blobs take no lines
 * anyway.
 */
bool md_archive_has(struct md_archive *a, const char *name, bool there);

void md_archive_u64(struct md_archive *a, const char *name, uint64_t *value);
void md_archive_u32(struct md_archive *a, const char *name, uint32_t *value);
void md_archive_u8(struct md_archive *a, const char *name, uint8_t *value);
void md_archive_bool(struct md_archive *a, const char *name, bool *value);
void md_archive_i64(struct md_archive *a, const char *name, int64_t *value);
void md_archive_i32(struct md_archive *a, const char *name, int32_t *value);
void md_archive_string(struct md_archive *a, const char *name, char **value);
void md_archive_fixed(struct md_archive *a, const char *name, char *value, size_t capacity);
void md_archive_bytes(struct md_archive *a, const char *name, uint8_t *data, size_t size);
void md_archive_blob(struct md_archive *a, const char *name, uint8_t **data, uint64_t size);

/* msgpack only: borrowed columns, see graph_sections.c. Returns whether the key is there (always, when writing). */
bool md_archive_key(struct md_archive *a, const char *name);
void md_archive_key_done(struct md_archive *a);

/* ---- text ---- */

#include <stdio.h>
enum md_status md_archive_open_print(struct md_archive *a, FILE *out, struct md_error *err);
enum md_status md_archive_open_parse(struct md_archive *a, FILE *in, struct md_budget *budget, struct md_error *err);
/* Ends the last line or finds that nothing more follows; frees. Returns the archive's status. */
enum md_status md_archive_close_text(struct md_archive *a);
/* Reading a text: whether the next line begins with this keyword. */
bool md_archive_text_next(struct md_archive *a, const char *keyword);

#endif
