/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the corpus's bombs: small files that say much, made by hand because no mutation would get there. */
#include "tests/fuzz/bombs.h"

#include <string.h>

#include "base/hash.h"
#include "format/codec/archive.h"
#include "format/codec/columns.h"
#include "format/codec/pack.h"
#include "format/trace/records.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mend.h"

#define MIB (1u << 20)

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size)
{
	(void)data, (void)max_size;
	return size;
}

static const char *root;

static void write_file(const char *name, const struct md_buf *buf)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s/%s", root, name);
	FILE *file = fopen(path, "w");
	if (!file || buf->failed || fwrite(buf->data, 1, buf->size, file) != buf->size || fclose(file) != 0) {
		perror(path);
		exit(1);
	}
}

/* ---- traces ---- */

static void put_head(struct md_buf *out)
{
	md_buf_init(out);
	md_buf_put(out, MD_TRACE_MAGIC, 8);
	md_buf_put_u32(out, MD_TRACE_VERSION);
	md_buf_put_u32(out, MD_TRACE_OLDEST_READER);
	md_buf_put_u64(out, 0);
	md_buf_put_u64(out, 0);
}

static void put_frame(struct md_buf *out, const struct md_buf *raw)
{
	struct md_buf stored;
	md_buf_init(&stored);
	md_zip_append(&stored, raw->data, raw->size, 19, false, NULL);
	md_buf_put_u32(out, (uint32_t)stored.size);
	md_buf_put_u32(out, (uint32_t)raw->size);
	md_buf_put_u64(out, md_hash_checksum(stored.data, stored.size));
	md_buf_put(out, stored.data, stored.size);
	md_buf_finish(&stored);
}

/* head once, then the item so often that it has so many bytes, in one frame. */
static void write_trace(const char *name, const struct md_buf *head, const void *item, size_t size, size_t bytes)
{
	struct md_buf out, raw;
	md_buf_init(&raw);
	md_buf_put(&raw, head->data, head->size);
	while (raw.size + size <= bytes && !raw.failed)
		md_buf_put(&raw, item, size);
	put_head(&out);
	put_frame(&out, &raw);
	write_file(name, &out);
	md_buf_finish(&raw);
	md_buf_finish(&out);
}

/* Each library takes two bytes here, and two blocks in memory. */
static void write_libraries(void)
{
	struct md_buf head;
	msgpack_packer p;
	md_buf_init(&head);
	md_pack_init(&p, &head);
	msgpack_pack_array(&p, 9);
	msgpack_pack_uint32(&p, MD_RECORD_FINGERPRINT);
	msgpack_pack_uint32(&p, 0);
	md_pack_text(&p, "device");
	for (int i = 0; i < 5; i++)
		msgpack_pack_uint32(&p, 1);
	msgpack_pack_array(&p, 2 * 32 * MIB);
	write_trace("bombs/trace/should-fail-libraries-without-number", &head, "\xa0\xa0", 2, head.size + 2 * 32 * MIB);
	md_buf_finish(&head);
}

/* Each graph has a node with a byte of parameters, and an arena for it. */
static void write_graphs(void)
{
	static const struct {
		const char *data;
		size_t size;
	} columns[MD_COLUMN_GRAPH_END] = {{"\0", 1},       {"\0", 1}, {"\2\2\2\2\2\2\0", 7},
					  {"\2\1\0\0", 4}, {"x", 1},  {"\0", 1},
					  {"", 0},         {"\2", 1}, {"\0", 1}};
	struct md_buf none, item;
	msgpack_packer p;
	md_buf_init(&none);
	md_buf_init(&item);
	md_pack_init(&p, &item);
	msgpack_pack_array(&p, 12);
	msgpack_pack_uint32(&p, MD_RECORD_GRAPH);
	for (int i = 0; i < 2; i++)
		msgpack_pack_uint32(&p, 1);
	msgpack_pack_nil(&p);
	for (int i = 0; i < 2; i++)
		msgpack_pack_uint32(&p, 0);
	msgpack_pack_nil(&p);
	msgpack_pack_uint32(&p, 0);
	msgpack_pack_nil(&p);
	msgpack_pack_uint32(&p, 1);
	msgpack_pack_uint32(&p, 0);
	msgpack_pack_array(&p, MD_COLUMN_GRAPH_END);
	for (int i = 0; i < MD_COLUMN_GRAPH_END; i++)
		md_pack_bytes(&p, columns[i].data, columns[i].size);
	write_trace("bombs/trace/should-fail-graphs-without-number", &none, item.data, item.size, 64 * MIB);
	md_buf_finish(&item);
}

static void write_allocations(void)
{
	const struct md_buf none = {0};
	write_trace("bombs/trace/should-fail-allocations-without-number", &none, "\x95\x03\0\1\1\1", 6, 64 * MIB);
}

/* Nothing that is kept, but a gigabyte and a quarter of it. */
static void write_frames(void)
{
	static const uint8_t head[] = {0x93, 99, 0, 0xc6, 0x0f, 0xff, 0xff, 0xf0};
	struct md_buf out, raw;
	md_buf_init(&raw);
	md_buf_put(&raw, head, sizeof(head));
	void *room = md_buf_extend(&raw, 0x0ffffff0);
	if (!room)
		exit(1);
	memset(room, 0, 0x0ffffff0);
	put_head(&out);
	for (int i = 0; i < 5; i++)
		put_frame(&out, &raw);
	write_file("bombs/trace/should-fail-frames-without-number", &out);
	md_buf_finish(&raw);
	md_buf_finish(&out);
}

/* ---- artifacts ---- */

static void open_sample(struct mend_file *file, const char *name)
{
	static uint8_t data[MIB];
	char path[4096];
	snprintf(path, sizeof(path), "%s/corpus/artifact/%s", root, name);
	FILE *in = fopen(path, "r");
	size_t size = in ? fread(data, 1, sizeof(data), in) : 0;
	memset(file, 0, sizeof(*file));
	if (!in || !mend_artifact.open(data, size, file)) {
		perror(path);
		exit(1);
	}
	fclose(in);
}

static void close_sample(struct mend_file *file, const char *name)
{
	struct md_buf out;
	md_buf_init(&out);
	mend_artifact.close(file, &out);
	write_file(name, &out);
	md_buf_finish(&out);
	for (uint32_t i = 0; i < file->count; i++)
		md_buf_finish(&file->parts[i].raw);
}

static struct md_buf *section(struct mend_file *file, const char *name)
{
	for (uint32_t i = 0; i < file->count; i++)
		if (!strncmp((const char *)file->parts[i].row, name, 16))
			return &file->parts[i].raw;
	exit(1);
}

/* The pairs of a map, last one first; then one whose value is a list of 60 million numbers: each search meets it. */
static struct md_buf turned_around(const struct md_buf *map)
{
	enum { NUMBERS = 60000000 };
	static const uint8_t pair[] = {0xa1,         'z', 0xdd, NUMBERS >> 24, NUMBERS >> 16 & 255, NUMBERS >> 8 & 255,
				       NUMBERS & 255};
	size_t begins[MD_ARCHIVE_KEYS + 1];
	struct md_reader in;
	struct md_buf out;
	md_reader_init(&in, map->data, map->size);
	uint32_t count = md_unpack_map(&in);
	const uint8_t head[] = {0xde, 0, (uint8_t)(count + 1)};
	for (uint32_t i = 0; i < count; i++) {
		begins[i] = in.offset;
		md_unpack_skip(&in);
		md_unpack_skip(&in);
	}
	begins[count] = in.offset;
	md_buf_init(&out);
	md_buf_put(&out, head, sizeof(head));
	for (uint32_t i = count; i-- > 0;)
		md_buf_put(&out, map->data + begins[i], begins[i + 1] - begins[i]);
	md_buf_put(&out, pair, sizeof(pair));
	void *numbers = md_buf_extend(&out, NUMBERS);
	if (!numbers)
		exit(1);
	memset(numbers, 0, NUMBERS);
	return out;
}

static void write_searches(void)
{
	struct mend_file file;
	open_sample(&file, "ok-empty");
	for (uint32_t i = 0; i < file.count; i++) {
		if (file.parts[i].raw.size < 100) /* few keys, few searches */
			continue;
		struct md_buf raw = turned_around(&file.parts[i].raw);
		md_buf_finish(&file.parts[i].raw);
		file.parts[i].raw = raw;
	}
	close_sample(&file, "bombs/artifact/ok-values-to-skip");
}

/* One parameter block of 64 KiB, and 60,000 nodes more that have the same. */
static void write_nodes(void)
{
	static const char *const keys[] = {"batch",          "proof",         "instantiate_flags",
					   "constant_words", "pointer_words", "noise_words"};
	struct mend_file file;
	msgpack_packer p;
	enum { NODES = 60000 };
	static uint8_t types[NODES], zeros[NODES];
	open_sample(&file, "ok-all");
	struct md_buf *raw = section(&file, "graphs");
	md_buf_clear(raw);
	md_pack_init(&p, raw);
	msgpack_pack_map(&p, 3);
	md_pack_text(&p, "refusals");
	msgpack_pack_array(&p, 0);
	md_pack_text(&p, "graphs");
	msgpack_pack_array(&p, 1);
	msgpack_pack_map(&p, 10);
	md_pack_text(&p, "label");
	md_pack_text(&p, "decode");
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		md_pack_text(&p, keys[i]);
		msgpack_pack_uint32(&p, 0);
	}
	md_pack_text(&p, "nodes");
	msgpack_pack_uint32(&p, NODES);
	md_pack_text(&p, "edges");
	msgpack_pack_uint32(&p, 0);
	md_pack_text(&p, "base");
	msgpack_pack_uint32(&p, UINT32_MAX);
	md_pack_text(&p, "columns");
	msgpack_pack_array(&p, 9);
	memset(types, 0xe0, sizeof(types));
	memset(zeros, 2, sizeof(zeros));
	types[0] = 0;
	md_pack_bytes(&p, types, NODES);
	md_pack_bytes(&p, zeros, NODES);
	md_pack_bytes(&p, "\2\2\2\2\2\2\0", 7);
	md_pack_bytes(&p, "\x80\x80\x08\0", 4); /* 65,536 bytes, none of them other than 0 */
	for (int i = 4; i < 9; i++)
		md_pack_bytes(&p, "\0", 1);
	close_sample(&file, "bombs/artifact/should-fail-parameters-of-4-gib");
}

void bombs_write(const char *directory)
{
	root = directory;
	write_libraries();
	write_graphs();
	write_allocations();
	write_frames();
	write_searches();
	write_nodes();
}
