/* SPDX-License-Identifier: Apache-2.0 */
/* Writes an artifact anew with one value changed, absent or nil, and right checksums: what a hostile writer can do. */
#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "format/codec/pack.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mend.h"

/*
 * craft list IN                                      every key of the sections, once: SECTION KEY number|text|other
 * craft IN OUT SECTION KEY NUMBER|nil|absent|text=TEXT [N|all] the N-th one of that key (from 0), or each of them
 */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size)
{
	(void)data, (void)max_size;
	return size;
}

struct spot { /* a pair in a map; places in the section's raw bytes */
	size_t map, key, value, end;
};

struct search {
	const struct md_buf *buf;
	const char *section, *wanted; /* wanted NULL: print all */
	uint32_t skip;
	bool found;
	struct spot spot;
};

static size_t size_at(const struct md_buf *buf, size_t at)
{
	struct md_reader in;
	md_reader_init(&in, buf->data + at, buf->size - at);
	md_unpack_skip(&in);
	return in.failed ? 0 : in.offset;
}

static bool is_map(uint8_t tag)
{
	return (tag & 0xf0) == 0x80 || tag == 0xde || tag == 0xdf;
}

static bool is_list(uint8_t tag)
{
	return (tag & 0xf0) == 0x90 || tag == 0xdc || tag == 0xdd;
}

static const char *kind_of(uint8_t tag)
{
	if (tag <= 0x7f || tag >= 0xe0 || (tag >= 0xcc && tag <= 0xd3))
		return "number";
	return (tag & 0xe0) == 0xa0 || (tag >= 0xd9 && tag <= 0xdb) || tag == 0xc0 ? "text" : "other";
}

static void visit_pair(struct search *search, const struct spot *spot)
{
	struct md_reader in;
	size_t size;
	md_reader_init(&in, search->buf->data + spot->key, search->buf->size - spot->key);
	const char *key = md_unpack_string(&in, &size);
	if (!key)
		return;
	if (!search->wanted)
		printf("%s %.*s %s\n", search->section, (int)size, key, kind_of(search->buf->data[spot->value]));
	else if (!search->found && size == strlen(search->wanted) && !memcmp(key, search->wanted, size) &&
		 search->skip-- == 0) {
		search->spot = *spot;
		search->found = true;
	}
}

/* Where the item at `at` ends; its pairs, and those of what is in it, are visited. */
static size_t walk(struct search *search, size_t at)
{
	uint8_t tag = search->buf->data[at];
	struct md_reader in;
	if (!is_map(tag) && !is_list(tag))
		return at + size_at(search->buf, at);
	md_reader_init(&in, search->buf->data + at, search->buf->size - at);
	uint32_t count = is_map(tag) ? md_unpack_map(&in) : md_unpack_array(&in);
	size_t next = at + in.offset;
	for (uint32_t i = 0; i < count && next < search->buf->size; i++) {
		struct spot spot = {.map = at, .key = next};
		if (is_map(tag))
			next += size_at(search->buf, next);
		spot.value = next;
		next = spot.end = walk(search, next);
		if (is_map(tag))
			visit_pair(search, &spot);
	}
	return next;
}

static void splice(struct md_buf *buf, size_t from, size_t to, const void *bytes, size_t size)
{
	struct md_buf out;
	md_buf_init(&out);
	md_buf_put(&out, buf->data, from);
	md_buf_put(&out, bytes, size);
	md_buf_put(&out, buf->data + to, buf->size - to);
	md_buf_finish(buf);
	*buf = out;
}

/* The writer gives every map the widest head, so that its count can be changed in place. */
static bool leave_out(struct md_buf *buf, const struct spot *spot)
{
	uint8_t *head = buf->data + spot->map;
	if (head[0] != 0xdf)
		return false;
	uint32_t count = ((uint32_t)head[1] << 24 | head[2] << 16 | head[3] << 8 | head[4]) - 1;
	for (int i = 0; i < 4; i++)
		head[1 + i] = (uint8_t)(count >> (24 - 8 * i));
	splice(buf, spot->key, spot->end, "", 0);
	return true;
}

static bool change(struct md_buf *buf, const struct spot *spot, const char *value)
{
	uint8_t bytes[9] = {0xcf};
	if (!strcmp(value, "absent"))
		return leave_out(buf, spot);
	if (!strcmp(value, "nil")) {
		splice(buf, spot->value, spot->end, "\xc0", 1);
		return true;
	}
	if (!strncmp(value, "text=", 5)) {
		size_t size = strlen(value + 5);
		uint8_t text[3 + 4096] = {0xda, (uint8_t)(size >> 8), (uint8_t)size};
		if (size > 4096)
			return false;
		memcpy(text + 3, value + 5, size);
		splice(buf, spot->value, spot->end, text, 3 + size);
		return true;
	}
	uint64_t number = *value == '-' ? (uint64_t)strtoll(value, NULL, 0) : strtoull(value, NULL, 0);
	if (*value == '-')
		bytes[0] = 0xd3;
	for (int i = 0; i < 8; i++)
		bytes[1 + i] = (uint8_t)(number >> (56 - 8 * i));
	splice(buf, spot->value, spot->end, bytes, sizeof(bytes));
	return true;
}

static struct mend_part *find_part(struct mend_file *file, const char *section)
{
	for (uint32_t i = 0; i < file->count; i++)
		if (!strncmp((const char *)file->parts[i].row, section, 16) && file->parts[i].packed)
			return &file->parts[i];
	return NULL;
}

static uint32_t change_all(struct mend_part *part, const char *key, const char *value, const char *which)
{
	uint32_t changed = 0, at = which ? (uint32_t)strtoul(which, NULL, 10) : 0;
	bool all = which && !strcmp(which, "all"), absent = !strcmp(value, "absent");
	do {
		struct search search = {.buf = &part->raw, .wanted = key, .skip = absent && all ? 0 : at};
		walk(&search, 0);
		if (!search.found || !change(&part->raw, &search.spot, value))
			break;
		changed++;
		at++;
	} while (all);
	return changed;
}

static int list(struct mend_file *file)
{
	for (uint32_t i = 0; i < file->count; i++) {
		struct search search = {.buf = &file->parts[i].raw, .section = (const char *)file->parts[i].row};
		if (file->parts[i].packed)
			walk(&search, 0);
	}
	return 0;
}

static int write_out(struct mend_file *file, const char *path)
{
	struct md_buf out;
	md_buf_init(&out);
	mend_artifact.close(file, &out);
	FILE *to = out.failed ? NULL : fopen(path, "w");
	bool failed = !to || fwrite(out.data, 1, out.size, to) != out.size;
	failed |= to && fclose(to);
	md_buf_finish(&out);
	return failed ? 1 : 0;
}

int main(int argc, char *argv[])
{
	bool lists = argc == 3 && !strcmp(argv[1], "list");
	static struct mend_file file;
	struct md_file_bytes in;
	if ((!lists && argc != 6 && argc != 7) || md_file_read(argv[lists ? 2 : 1], 1 << 30, &in, NULL) != MD_OK ||
	    !mend_artifact.open(in.data, in.size, &file)) {
		fprintf(stderr, "craft: no artifact, or a wrong call\n");
		return 2;
	}
	struct mend_part *part = lists ? NULL : find_part(&file, argv[3]);
	int result = 1;
	if (lists)
		result = list(&file);
	else if (part && change_all(part, argv[4], argv[5], argv[6]))
		result = write_out(&file, argv[2]);
	for (uint32_t i = 0; i < file.count; i++)
		md_buf_finish(&file.parts[i].raw);
	md_file_release(&in);
	return result;
}
