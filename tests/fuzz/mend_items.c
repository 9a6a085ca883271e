/* SPDX-License-Identifier: Apache-2.0 */
/* Mutation of msgpack by whole items: numbers, copies of items, lists, the insides of byte strings, what
 * is left out. */
#include <string.h>

#include "format/codec/pack.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mend.h"

#define ITEMS_MAX 4096

struct item {
	size_t at, head, size; /* size with all that is inside */
	uint8_t tag;
};

static bool is_container(uint8_t tag)
{
	return (tag & 0xe0) == 0x80 || (tag >= 0xdc && tag <= 0xdf);
}

static bool is_array(uint8_t tag)
{
	return (tag & 0xf0) == 0x90 || tag == 0xdc || tag == 0xdd;
}

static bool is_number(uint8_t tag)
{
	return tag <= 0x7f || tag >= 0xe0 || (tag >= 0xcc && tag <= 0xd3);
}

static size_t head_size(uint8_t tag)
{
	if (tag == 0xdc || tag == 0xde || tag == 0xc5 || tag == 0xda)
		return 3;
	if (tag == 0xdd || tag == 0xdf || tag == 0xc6 || tag == 0xdb)
		return 5;
	return tag == 0xc4 || tag == 0xd9 ? 2 : 1;
}

static size_t whole_size(const struct md_buf *buf, size_t at)
{
	struct md_reader in;
	md_reader_init(&in, buf->data + at, buf->size - at);
	md_unpack_skip(&in);
	return in.failed ? 0 : in.offset;
}

/* All items up to a bound, containers before what is in them. */
static uint32_t find_items(const struct md_buf *buf, struct item *items)
{
	uint32_t count = 0;
	for (size_t at = 0; at < buf->size && count < ITEMS_MAX;) {
		uint8_t tag = buf->data[at];
		size_t size = is_container(tag) ? head_size(tag) : whole_size(buf, at);
		if (!size)
			break;
		items[count++] = (struct item){at, head_size(tag), size, tag};
		at += size;
	}
	return count;
}

static void splice(struct md_buf *buf, size_t at, size_t old, const void *bytes, size_t size)
{
	struct md_buf out;
	md_buf_init(&out);
	md_buf_put(&out, buf->data, at);
	md_buf_put(&out, bytes, size);
	md_buf_put(&out, buf->data + at + old, buf->size - at - old);
	if (out.failed) {
		md_buf_finish(&out);
		return;
	}
	md_buf_finish(buf);
	*buf = out;
}

static void set_number(struct md_buf *buf, const struct item *item, uint32_t *random)
{
	static const uint64_t edges[] = {0,          1,          2,          3,          7,          8,
					 63,         64,         127,        255,        256,        4096,
					 65535,      65536,      1 << 20,    1 << 26,    0x7fffffff, 0x80000000,
					 0xfffffffe, 0xffffffff, 1ull << 32, 1ull << 47, INT64_MAX,  UINT64_MAX - 7,
					 UINT64_MAX};
	uint64_t value = edges[fuzz_random(random, sizeof(edges) / sizeof(*edges))];
	uint8_t bytes[9] = {0xcf};
	if (fuzz_random(random, 2)) /* a neighbour, or any small number */
		value = item->tag <= 0x7f && fuzz_random(random, 2) ? (uint64_t)item->tag + fuzz_random(random, 3) - 1
								    : fuzz_random(random, 32);
	if (value < 0x80) {
		bytes[0] = (uint8_t)value;
		splice(buf, item->at, item->size, bytes, 1);
		return;
	}
	for (int i = 0; i < 8; i++)
		bytes[1 + i] = (uint8_t)(value >> (56 - 8 * i));
	splice(buf, item->at, item->size, bytes, sizeof(bytes));
}

/* Strings stay strings, and byte strings, with columns in them, what they are. */
static void mutate_inside(struct md_buf *buf, const struct item *item)
{
	bool bin = item->tag >= 0xc4 && item->tag <= 0xc6;
	size_t size = item->size - item->head, room = size + size / 4 + 16;
	uint8_t *bytes = malloc(5 + room);
	if (!bytes)
		return;
	memcpy(bytes + 5, buf->data + item->at + item->head, size);
	size = LLVMFuzzerMutate(bytes + 5, size, room);
	bytes[0] = bin ? 0xc6 : 0xdb;
	for (int i = 0; i < 4; i++)
		bytes[1 + i] = (uint8_t)(size >> (24 - 8 * i));
	splice(buf, item->at, item->size, bytes, 5 + size);
	free(bytes);
}

static uint32_t array_count(const struct md_buf *buf, const struct item *item)
{
	struct md_reader in;
	md_reader_init(&in, buf->data + item->at, buf->size - item->at);
	return md_unpack_array(&in);
}

/* One item more, a copy of the first, or the first one less; its record may say how many there must be. */
static void resize_array(struct md_buf *buf, const struct item *item, uint32_t *random)
{
	uint32_t count = array_count(buf, item);
	size_t first = item->at + item->head, size = count ? whole_size(buf, first) : 0;
	struct md_buf out;
	md_buf_init(&out);
	if (!size)
		return;
	bool more = fuzz_random(random, 3);
	uint32_t times = more ? 2 + fuzz_random(random, 8) : 0, now = count - 1 + times;
	const uint8_t head[5] = {0xdd, (uint8_t)(now >> 24), (uint8_t)(now >> 16), (uint8_t)(now >> 8), (uint8_t)now};
	md_buf_put(&out, head, sizeof(head));
	for (uint32_t i = 0; i < times; i++)
		md_buf_put(&out, buf->data + first, size);
	if (!out.failed)
		splice(buf, item->at, item->head + size, out.data, out.size);
	md_buf_finish(&out);
}

static bool is_map(uint8_t tag)
{
	return (tag & 0xf0) == 0x80 || tag == 0xde || tag == 0xdf;
}

/* A field that is absent. */
static void drop_pair(struct md_buf *buf, const struct item *item, uint32_t *random)
{
	struct md_reader in;
	md_reader_init(&in, buf->data + item->at, buf->size - item->at);
	uint32_t count = md_unpack_map(&in);
	if (in.failed || !count)
		return;
	uint32_t which = fuzz_random(random, count), left = count - 1;
	size_t first = item->at + in.offset, from = first, size = 0;
	for (uint32_t i = 0; i <= which; i++) {
		from += size;
		size = whole_size(buf, from);
		size += size ? whole_size(buf, from + size) : 0;
		if (!size || from + size > buf->size)
			return;
	}
	const uint8_t head[5] = {0xdf, (uint8_t)(left >> 24), (uint8_t)(left >> 16), (uint8_t)(left >> 8),
				 (uint8_t)left};
	splice(buf, from, size, "", 0);
	splice(buf, item->at, first - item->at, head, sizeof(head));
}

/* One that is there and nil. */
static void make_nil(struct md_buf *buf, const struct item *item)
{
	size_t size = whole_size(buf, item->at);
	if (size)
		splice(buf, item->at, size, "\xc0", 1);
}

static bool leave_out(struct md_buf *buf, const struct item *items, uint32_t count, uint32_t *random)
{
	const struct item *item = &items[fuzz_random(random, count)];
	for (int i = 0; i < 16 && !is_map(item->tag); i++)
		item = &items[fuzz_random(random, count)];
	if (is_map(item->tag) && fuzz_random(random, 2))
		drop_pair(buf, item, random);
	else
		make_nil(buf, &items[fuzz_random(random, count)]);
	return true;
}

static void copy_item(struct md_buf *buf, const struct item *from, const struct item *to, bool insert)
{
	size_t size = whole_size(buf, from->at), old = insert ? 0 : whole_size(buf, to->at);
	uint8_t *bytes = size && (insert || old) ? malloc(size) : NULL;
	if (!bytes)
		return;
	memcpy(bytes, buf->data + from->at, size);
	splice(buf, to->at, old, bytes, size);
	free(bytes);
}

/* A record of a trace again, somewhere else: items on the outermost level need nobody's count. */
static void copy_record(struct md_buf *buf, uint32_t *random)
{
	struct item outer[256];
	uint32_t count = 0;
	for (size_t at = 0, size; count < 256 && at < buf->size && (size = whole_size(buf, at)); at += size)
		outer[count++] = (struct item){.at = at};
	if (count > 1)
		copy_item(buf, &outer[fuzz_random(random, count)], &outer[fuzz_random(random, count)],
			  fuzz_random(random, 3));
}

bool mend_items(struct md_buf *buf, uint32_t *random)
{
	static struct item items[ITEMS_MAX];
	uint32_t count = find_items(buf, items);
	if (!count)
		return false;
	if (!fuzz_random(random, 12)) {
		copy_record(buf, random);
		return true;
	}
	if (!fuzz_random(random, 10))
		return leave_out(buf, items, count, random);
	struct item *item = &items[fuzz_random(random, count)];
	/* of byte strings there are few, and most of what is read is in them */
	for (int i = 0; i < 6 && !(item->tag >= 0xc4 && item->tag <= 0xc6); i++)
		item = &items[fuzz_random(random, count)];
	if (!fuzz_random(random, 10))
		copy_item(buf, &items[fuzz_random(random, count)], item, false);
	else if (is_number(item->tag))
		set_number(buf, item, random);
	else if (is_array(item->tag))
		resize_array(buf, item, random);
	else if (!is_container(item->tag) && item->tag != 0xc0)
		mutate_inside(buf, item);
	else
		copy_item(buf, &items[fuzz_random(random, count)], item, false);
	return true;
}
