/* SPDX-License-Identifier: Apache-2.0 */
/* Records by visitor: what all four uses share, and the two msgpack uses. */
#include "format/codec/archive.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define STRING_MAX (1u << 20)

void md_archive_fail(struct md_archive *a, enum md_status status, const char *format, ...)
{
	char message[MD_ERROR_MESSAGE_BYTES];
	va_list arguments;
	if (a->status != MD_OK)
		return;
	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	a->status = md_error_set(a->err, status, "%s", message);
}

void md_archive_fail_memory(struct md_archive *a)
{
	struct md_error why = {0};
	if (a->budget)
		md_budget_error(a->budget, &why);
	else
		md_error_set(&why, MD_ERR_NO_MEMORY, "out of memory for what is read");
	md_archive_fail(a, why.status, "%s", why.message);
}

/* ---- records and lists ---- */

void md_archive_record(struct md_archive *a, const char *keyword, md_archive_visit *visit, void *item, void *user)
{
	if (a->status != MD_OK)
		return;
	a->ops->begin(a, keyword);
	if (a->status == MD_OK)
		visit(a, item, user);
	if (a->status == MD_OK)
		a->ops->end(a);
}

static void list_write(struct md_archive *a, const char *keyword, char *items, uint32_t count, size_t size,
		       md_archive_visit *visit, void *user)
{
	for (uint32_t i = 0; i < count; i++)
		md_archive_record(a, keyword, visit, items + i * size, user);
}

/* Room for item number `have`; doubles, within the budget. */
static bool list_grow(struct md_archive *a, char **items, uint32_t have, uint64_t *capacity, size_t size)
{
	if (have < *capacity)
		return true;
	uint64_t wanted = *capacity ? *capacity * 2 : 4;
	if (wanted > UINT32_MAX || !md_budget_take(a->budget, (wanted - *capacity) * size))
		return false;
	char *grown = md_array_resize(*items, wanted, size);
	if (!grown)
		return false;
	memset(grown + have * size, 0, (wanted - have) * size);
	*items = grown;
	*capacity = wanted;
	return true;
}

static void list_read(struct md_archive *a, const char *keyword, void *slot, uint32_t announced, uint32_t *count,
		      size_t size, md_archive_visit *visit, void *user)
{
	char *items = NULL;
	uint64_t capacity = announced == UINT32_MAX ? 0 : announced;
	*count = 0;
	if (announced != UINT32_MAX) {
		items = md_budget_alloc(a->budget, announced, size);
		if (!items)
			md_archive_fail_memory(a);
	}
	while (a->status == MD_OK && (announced == UINT32_MAX ? a->ops->more(a, keyword) : *count < announced)) {
		if (!list_grow(a, &items, *count, &capacity, size)) {
			md_archive_fail_memory(a);
			break;
		}
		/* a failed visit may leave memory: the item owns it, and is counted already */
		md_archive_record(a, keyword, visit, items + (size_t)(*count)++ * size, user);
	}
	memcpy(slot, &items, sizeof(items));
}

void md_archive_list(struct md_archive *a, const char *name, const char *keyword, void *slot, uint32_t *count,
		     size_t size, md_archive_visit *visit, void *user)
{
	if (a->status != MD_OK)
		return;
	uint32_t announced = a->ops->list(a, name, a->ops->reading ? 0 : *count);
	if (a->status != MD_OK)
		return;
	if (a->ops->reading) {
		list_read(a, keyword, slot, announced, count, size, visit, user);
	} else {
		char *items;
		memcpy(&items, slot, sizeof(items));
		list_write(a, keyword, items, *count, size, visit, user);
	}
	if (!a->ops->text && a->status == MD_OK)
		md_archive_key_done(a);
}

/* ---- fields ---- */

bool md_archive_has(struct md_archive *a, const char *name, bool there)
{
	if (a->status != MD_OK)
		return false;
	return a->ops->reading ? a->ops->has(a, name) : there;
}

void md_archive_u64(struct md_archive *a, const char *name, uint64_t *value)
{
	if (a->status == MD_OK)
		a->ops->u64(a, name, value);
}

static uint64_t bounded(struct md_archive *a, const char *name, uint64_t value, uint64_t max)
{
	md_archive_u64(a, name, &value);
	if (value > max)
		md_archive_fail(a, MD_ERR_CORRUPT, "%s is %" PRIu64 ", at most %" PRIu64, name, value, max);
	return a->status == MD_OK ? value : 0;
}

void md_archive_u32(struct md_archive *a, const char *name, uint32_t *value)
{
	uint32_t got = (uint32_t)bounded(a, name, *value, UINT32_MAX);
	if (a->ops->reading)
		*value = got;
}

void md_archive_u8(struct md_archive *a, const char *name, uint8_t *value)
{
	uint8_t got = (uint8_t)bounded(a, name, *value, UINT8_MAX);
	if (a->ops->reading)
		*value = got;
}

void md_archive_bool(struct md_archive *a, const char *name, bool *value)
{
	bool got = bounded(a, name, *value, 1) != 0;
	if (a->ops->reading)
		*value = got;
}

void md_archive_i64(struct md_archive *a, const char *name, int64_t *value)
{
	if (a->status == MD_OK)
		a->ops->i64(a, name, value);
}

void md_archive_i32(struct md_archive *a, const char *name, int32_t *value)
{
	int64_t wide = *value;
	md_archive_i64(a, name, &wide);
	if (wide < INT32_MIN || wide > INT32_MAX)
		md_archive_fail(a, MD_ERR_CORRUPT, "%s is %" PRId64 ", not a number of 32 bits", name, wide);
	else if (a->ops->reading)
		*value = (int32_t)wide;
}

void md_archive_string(struct md_archive *a, const char *name, char **value)
{
	if (a->status == MD_OK)
		a->ops->string(a, name, value);
}

void md_archive_fixed(struct md_archive *a, const char *name, char *value, size_t capacity)
{
	char *text = value;
	if (a->status != MD_OK)
		return;
	if (!a->ops->reading) {
		a->ops->string(a, name, &text);
		return;
	}
	text = NULL;
	a->ops->string(a, name, &text);
	size_t length = text ? strlen(text) : 0;
	if (a->status == MD_OK && length >= capacity)
		md_archive_fail(a, MD_ERR_CORRUPT, "%s has %zu bytes, at most %zu", name, length, capacity - 1);
	memset(value, 0, capacity);
	if (a->status == MD_OK && text)
		memcpy(value, text, length);
	free(text);
}

void md_archive_bytes(struct md_archive *a, const char *name, uint8_t *data, size_t size)
{
	if (a->status == MD_OK)
		a->ops->bytes(a, name, data, size);
}

void md_archive_blob(struct md_archive *a, const char *name, uint8_t **data, uint64_t size)
{
	if (a->status == MD_OK)
		a->ops->blob(a, name, data, size);
}

/* ---- msgpack out ---- */

static void pack_begin(struct md_archive *a, const char *keyword)
{
	(void)keyword;
	if (a->depth == MD_ARCHIVE_DEPTH) {
		md_archive_fail(a, MD_ERR_INVALID, "records nest too deep");
		return;
	}
	/* the number of pairs is known only at the end, so the widest map head is written, and patched then */
	struct md_archive_map *map = &a->maps[a->depth++];
	map->start = a->out->size;
	map->count = 0;
	const uint8_t head[5] = {0xdf};
	md_buf_put(a->out, head, sizeof(head));
}

static void pack_end(struct md_archive *a)
{
	const struct md_archive_map *map = &a->maps[--a->depth];
	if (a->out->failed) {
		md_archive_fail_memory(a);
		return;
	}
	for (int i = 0; i < 4; i++)
		a->out->data[map->start + 1 + (size_t)i] = (uint8_t)(map->count >> (24 - 8 * i));
}

static void pack_key(struct md_archive *a, const char *name)
{
	a->maps[a->depth - 1].count++;
	md_pack_text(&a->packer, name);
}

static void pack_u64(struct md_archive *a, const char *name, uint64_t *value)
{
	pack_key(a, name);
	msgpack_pack_uint64(&a->packer, *value);
}

static void pack_i64(struct md_archive *a, const char *name, int64_t *value)
{
	pack_key(a, name);
	msgpack_pack_int64(&a->packer, *value);
}

static void pack_string(struct md_archive *a, const char *name, char **value)
{
	pack_key(a, name);
	md_pack_text(&a->packer, *value);
}

static void pack_bytes(struct md_archive *a, const char *name, uint8_t *data, size_t size)
{
	pack_key(a, name);
	md_pack_bytes(&a->packer, data, size);
}

static void pack_blob(struct md_archive *a, const char *name, uint8_t **data, uint64_t size)
{
	if (size > UINT32_MAX)
		md_archive_fail(a, MD_ERR_TOO_LARGE, "%s has %" PRIu64 " bytes, at most 4 GiB", name, size);
	else
		pack_bytes(a, name, *data, size);
}

static uint32_t pack_list(struct md_archive *a, const char *name, uint32_t count)
{
	pack_key(a, name);
	msgpack_pack_array(&a->packer, count);
	return count;
}

static const struct md_archive_ops pack_ops = {
    .u64 = pack_u64,
    .i64 = pack_i64,
    .string = pack_string,
    .bytes = pack_bytes,
    .blob = pack_blob,
    .begin = pack_begin,
    .end = pack_end,
    .list = pack_list,
};

void md_archive_open_pack(struct md_archive *a, struct md_buf *out, struct md_error *err)
{
	*a = (struct md_archive){.ops = &pack_ops, .err = err, .out = out};
	md_pack_init(&a->packer, out);
}

/* ---- msgpack in ---- */

static void fail_at(struct md_archive *a, const char *name)
{
	if (a->in.failed && a->budget->exhausted)
		md_archive_fail_memory(a);
	else if (a->in.failed)
		md_archive_fail(a, MD_ERR_CORRUPT, "%s: bad or missing value at byte %zu", name, a->in.failed_at);
}

static void unpack_begin(struct md_archive *a, const char *keyword)
{
	uint32_t count = md_unpack_map(&a->in);
	if (count > MD_ARCHIVE_KEYS || a->depth == MD_ARCHIVE_DEPTH)
		md_unpack_fail(&a->in);
	fail_at(a, keyword);
	if (a->status != MD_OK)
		return;
	struct md_archive_map *map = &a->maps[a->depth++];
	map->count = count;
	map->at = 0;
	map->known = 1;
	map->begins[0] = a->in.offset;
}

/* Each value is skipped once, however often its map is searched, because it may be most of a large file. */
static bool go_to_pair(struct md_archive *a, struct md_archive_map *map, uint32_t pair)
{
	for (; map->known <= pair && !a->in.failed; map->known++) {
		a->in.offset = map->begins[map->known - 1];
		md_unpack_skip(&a->in);
		md_unpack_skip(&a->in);
		map->begins[map->known] = a->in.offset;
	}
	a->in.offset = map->begins[pair];
	return !a->in.failed;
}

/* Compares short keys (all keys are short) in place, because each graph is searched for keys that few graphs have. */
static bool key_is(struct md_archive *a, const char *name)
{
	struct md_reader *in = &a->in;
	size_t size, left = md_reader_left(in);
	if (left && (in->data[in->offset] & 0xe0) == 0xa0 && left > (in->data[in->offset] & 0x1fu)) {
		const char *at = (const char *)in->data + in->offset + 1;
		size = in->data[in->offset] & 0x1f;
		in->offset += 1 + size;
		return size && *at == *name && strnlen(name, size + 1) == size && !memcmp(at, name, size);
	}
	const char *key = md_unpack_string(&a->in, &size);
	return key && size == strlen(name) && !memcmp(key, name, size);
}

/* Leaves the cursor at the value of a key. Keys mostly come in the order they are asked for. */
static bool unpack_key(struct md_archive *a, const char *name)
{
	struct md_archive_map *map = &a->maps[a->depth - 1];
	for (uint32_t tried = 0; tried < map->count && !a->in.failed; tried++) {
		uint32_t pair = map->at == map->count ? 0 : map->at;
		map->at = pair + 1;
		if (go_to_pair(a, map, pair) && key_is(a, name))
			return true;
	}
	if (a->in.failed)
		fail_at(a, name);
	else
		md_archive_fail(a, MD_ERR_CORRUPT, "%s is missing", name);
	return false;
}

static bool unpack_has(struct md_archive *a, const char *name)
{
	struct md_archive_map *map = &a->maps[a->depth - 1];
	bool found = false;
	for (uint32_t i = 0; i < map->count && !found && go_to_pair(a, map, i); i++)
		found = key_is(a, name);
	fail_at(a, name);
	return found;
}

/* Called with the cursor behind the value, where the next pair begins. */
static void unpack_key_done(struct md_archive *a, const char *name)
{
	struct md_archive_map *map = &a->maps[a->depth - 1];
	fail_at(a, name);
	if (a->status == MD_OK && map->known == map->at)
		map->begins[map->known++] = a->in.offset;
}

static void unpack_end(struct md_archive *a)
{
	struct md_archive_map *map = &a->maps[a->depth - 1];
	go_to_pair(a, map, map->count);
	fail_at(a, "end of a record");
	a->depth--;
}

static void unpack_u64(struct md_archive *a, const char *name, uint64_t *value)
{
	if (!unpack_key(a, name))
		return;
	*value = md_unpack_uint(&a->in);
	unpack_key_done(a, name);
}

static void unpack_i64(struct md_archive *a, const char *name, int64_t *value)
{
	if (!unpack_key(a, name))
		return;
	*value = md_unpack_int(&a->in);
	unpack_key_done(a, name);
}

static void unpack_string(struct md_archive *a, const char *name, char **value)
{
	if (!unpack_key(a, name))
		return;
	free(*value);
	*value = md_unpack_text(&a->in, a->budget, STRING_MAX);
	unpack_key_done(a, name);
}

static void unpack_bytes(struct md_archive *a, const char *name, uint8_t *data, size_t size)
{
	size_t got;
	if (!unpack_key(a, name))
		return;
	const void *bytes = md_unpack_bytes(&a->in, &got);
	unpack_key_done(a, name);
	if (a->status == MD_OK && got != size)
		md_archive_fail(a, MD_ERR_CORRUPT, "%s has %zu bytes, not %zu", name, got, size);
	else if (bytes && a->status == MD_OK)
		memcpy(data, bytes, size);
}

static void unpack_blob(struct md_archive *a, const char *name, uint8_t **data, uint64_t size)
{
	uint64_t got;
	if (!unpack_key(a, name))
		return;
	free(*data);
	*data = md_unpack_blob(&a->in, a->budget, &got);
	unpack_key_done(a, name);
	if (a->status == MD_OK && (got != size || !*data))
		md_archive_fail(a, MD_ERR_CORRUPT, "%s has %" PRIu64 " bytes, not %" PRIu64, name, got, size);
}

static uint32_t unpack_list(struct md_archive *a, const char *name, uint32_t count)
{
	(void)count;
	if (!unpack_key(a, name))
		return 0;
	uint32_t announced = md_unpack_array(&a->in);
	fail_at(a, name);
	return announced;
}

static const struct md_archive_ops unpack_ops = {
    .reading = true,
    .u64 = unpack_u64,
    .i64 = unpack_i64,
    .string = unpack_string,
    .bytes = unpack_bytes,
    .blob = unpack_blob,
    .begin = unpack_begin,
    .end = unpack_end,
    .list = unpack_list,
    .has = unpack_has,
};

void md_archive_open_unpack(struct md_archive *a, const void *data, size_t size, struct md_budget *budget,
			    struct md_error *err)
{
	*a = (struct md_archive){.ops = &unpack_ops, .err = err, .budget = budget};
	md_reader_init(&a->in, data, size);
}

bool md_archive_key(struct md_archive *a, const char *name)
{
	if (a->status != MD_OK)
		return false;
	if (a->ops->reading)
		return unpack_key(a, name);
	pack_key(a, name);
	return true;
}

void md_archive_key_done(struct md_archive *a)
{
	if (a->ops->reading)
		unpack_key_done(a, "value");
}
