/* SPDX-License-Identifier: Apache-2.0 */
/* Readers and files of different versions: what may be ignored is, what must be known is refused by
 * name and version. */
#include <criterion/criterion.h>
#include <unistd.h>

#include "base/hash.h"
#include "format/artifact/layout.h"
#include "base/file.h"
#include "tests/artifact_samples.h"

static char path[64];

static void setup(void)
{
	snprintf(path, sizeof(path), "/tmp/medusa-versions-%d.medusa", (int)getpid());
}

static void teardown(void)
{
	unlink(path);
}

TestSuite(artifact_versions, .init = setup, .fini = teardown);

/* ---- editing: a file is taken apart into a layout and put together again ---- */

static void take_apart(struct md_artifact_layout *out)
{
	struct md_artifact artifact;
	struct md_artifact_reading in;
	struct md_file_bytes map;
	struct md_error err = {0};
	sample_artifact(&artifact);
	cr_assert(md_artifact_write(&artifact, path, NULL, &err) == MD_OK, "write: %s", err.message);
	md_artifact_finish(&artifact);
	cr_assert(md_file_read(path, UINT64_MAX, &map, &err) == MD_OK, "%s", err.message);
	cr_assert(md_artifact_reading_begin(&(struct md_file_source){map.data, -1, map.size}, &in, &err) == MD_OK, "%s",
		  err.message);
	*out = (struct md_artifact_layout){.head = in.head};
	md_buf_init(&out->body);
	for (uint32_t i = 0; i < in.head.count; i++) {
		out->rows[i] = in.rows[i];
		out->rows[i].offset = out->body.size;
		md_buf_put(&out->body, (const uint8_t *)map.data + in.rows[i].offset, in.rows[i].stored);
	}
	md_artifact_reading_finish(&in);
	md_file_release(&map);
}

static enum md_status put_together(struct md_artifact_layout *layout, struct md_artifact *out, struct md_error *err)
{
	struct md_error failed = {0};
	cr_assert(md_artifact_layout_publish(layout, path, false, &failed) == MD_OK, "%s", failed.message);
	md_buf_finish(&layout->body);
	return md_artifact_read(path, out, NULL, err);
}

static void assert_read(struct md_artifact_layout *layout)
{
	struct md_artifact artifact;
	struct md_error err = {0};
	cr_assert(put_together(layout, &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(artifact.graph_count == 4 && artifact.graphs[1].note_size == 256 && artifact.kernel_count == 2 &&
		      artifact.images[1].data,
		  "everything is there");
	md_artifact_finish(&artifact);
}

static void assert_refused(struct md_artifact_layout *layout, const char *const parts[3])
{
	struct md_artifact artifact;
	struct md_error err = {0};
	cr_assert_eq(put_together(layout, &artifact, &err), MD_ERR_VERSION, "%s", err.message);
	for (int i = 0; i < 3; i++)
		cr_assert(strstr(err.message, parts[i]), "\"%s\" lacks \"%s\"", err.message, parts[i]);
}

static void add_section(struct md_artifact_layout *layout, const char *name, uint32_t flags)
{
	struct md_artifact_row *row = &layout->rows[layout->head.count++];
	*row =
	    (struct md_artifact_row){.offset = layout->body.size, .stored = 9, .raw = 9, .codec = 77, .flags = flags};
	strncpy(row->name, name, MD_ROW_NAME_BYTES);
	md_buf_put(&layout->body, "of later", 9);
}

/* The raw bytes of a section, edited, with its checksum made right. */
static void edit_section(struct md_artifact_layout *layout, const char *name,
			 void (*edit)(const uint8_t *raw, size_t size, struct md_buf *out))
{
	struct md_artifact_layout edited = *layout;
	md_buf_init(&edited.body);
	for (uint32_t i = 0; i < layout->head.count; i++) {
		struct md_artifact_row *row = &edited.rows[i];
		const uint8_t *stored = layout->body.data + row->offset;
		row->offset = edited.body.size;
		if (strcmp(row->name, name) != 0) {
			md_buf_put(&edited.body, stored, row->stored);
			continue;
		}
		struct md_buf made;
		uint8_t *raw = malloc(row->raw);
		md_buf_init(&made);
		cr_assert(md_zip_expand(stored, row->stored, raw, row->raw, NULL) == MD_OK, "expand");
		edit(raw, row->raw, &made);
		cr_assert(md_zip_append(&edited.body, made.data, made.size, 1, false, NULL) == MD_OK, "compress");
		row->raw = made.size;
		row->stored = edited.body.size - row->offset;
		row->checksum = md_hash_checksum(edited.body.data + row->offset, row->stored);
		md_buf_finish(&made);
		free(raw);
	}
	md_buf_finish(&layout->body);
	*layout = edited;
}

/* The outermost map gets a pair more: msgpack's map of 32 bits, as this writer puts it, counts in its last byte. */
static void add_key(const uint8_t *raw, size_t size, struct md_buf *out)
{
	cr_assert_eq(raw[0], 0xdf, "a map of 32 bits");
	md_buf_put(out, raw, size);
	out->data[4]++;
	md_buf_put(out,
		   "\xa6"
		   "colour"
		   "\x93\x01\xc0\xa3red",
		   14);
}

/* The last column is followed by one that this reader does not know. */
static void add_column(const uint8_t *raw, size_t size, struct md_buf *out)
{
	const uint8_t *at = memmem(raw, size, "columns", 7);
	cr_assert(at && at[7] >= 0x90 && at[7] < 0x9f, "a short list behind columns");
	md_buf_put(out, raw, size);
	out->data[at + 7 - raw]++;
	md_buf_put(out,
		   "\xc4\x03"
		   "abc",
		   5); /* columns come last in both sections */
}

/* ---- this reader, newer files ---- */

Test(artifact_versions, a_newer_file_may_bring_what_can_be_ignored)
{
	struct md_artifact_layout layout;
	take_apart(&layout);
	layout.head.version = 9;
	layout.head.optional = 0xf0;
	add_section(&layout, "later", 0);
	add_section(&layout, "sixteen_bytes_xx", 0xfffffffe);
	assert_read(&layout);
}

Test(artifact_versions, unknown_keys_and_columns_are_skipped)
{
	static const char *const sections[] = {"fingerprint", "provenance", "kv",       "bindings", "allocations",
					       "kernels",     "graphs",     "pointers", "contents", "images"};
	for (size_t i = 0; i < sizeof(sections) / sizeof(*sections); i++) {
		struct md_artifact_layout layout;
		take_apart(&layout);
		edit_section(&layout, sections[i], add_key);
		assert_read(&layout);
	}
	for (size_t i = 6; i < 8; i++) {
		struct md_artifact_layout layout;
		take_apart(&layout);
		edit_section(&layout, sections[i], add_column);
		assert_read(&layout);
	}
}

Test(artifact_versions, should_fail_a_required_section_by_name)
{
	struct md_artifact_layout layout;
	take_apart(&layout);
	layout.head.version = 9;
	add_section(&layout, "spells", MD_ROW_REQUIRED);
	assert_refused(&layout, (const char *const[]){"section \"spells\" at offset", "required by a file of version 9",
						      "this reader, which is of version 2"});
}

/* What this reader knows may be required: it does know it. */
Test(artifact_versions, known_sections_may_be_required)
{
	struct md_artifact_layout layout;
	take_apart(&layout);
	for (uint32_t i = 0; i < layout.head.count; i++)
		layout.rows[i].flags = MD_ROW_REQUIRED;
	assert_read(&layout);
}

Test(artifact_versions, should_fail_a_file_for_newer_readers)
{
	struct md_artifact_layout layout;
	take_apart(&layout);
	layout.head.version = 9;
	layout.head.oldest_reader = 7;
	assert_refused(&layout,
		       (const char *const[]){path, "version 9 needs a reader of version 7 or newer", "this one is 2"});
}

Test(artifact_versions, should_fail_features_that_must_be_known)
{
	struct md_artifact_layout layout;
	take_apart(&layout);
	layout.head.version = 9;
	layout.head.required |= 0x30000;
	assert_refused(&layout, (const char *const[]){path, "version 9 needs features 0x30000", "of version 2"});
}

/* A list that is compared at a cold start must not go without the bit that says it is there, nor come without it. */
Test(artifact_versions, should_fail_features_that_are_not_those_of_the_sections)
{
	for (int bit = 0; bit < 9; bit++) {
		struct md_artifact_layout layout;
		struct md_artifact artifact = {0};
		struct md_artifact_file *file = NULL;
		struct md_error err = {0};
		take_apart(&layout);
		layout.head.required ^= 1ull << bit;
		cr_assert_eq(put_together(&layout, &artifact, &err), MD_ERR_CORRUPT, "bit %d: %s", bit, err.message);
		cr_assert(strstr(err.message, "header at offset 16: the feature bits are 0x"), "bit %d: %s", bit,
			  err.message);
		enum md_status status = md_artifact_open(path, &file, &artifact, &err);
		if (status == MD_OK)
			status = md_artifact_read_graphs(file, &artifact, &err);
		cr_assert_eq(status, MD_ERR_CORRUPT, "bit %d, in parts", bit);
		md_artifact_close(file);
		md_artifact_finish(&artifact);
	}
}

Test(artifact_versions, should_fail_a_known_section_of_another_codec)
{
	struct md_artifact_layout layout;
	take_apart(&layout);
	layout.rows[3].codec = 9;
	assert_refused(&layout, (const char *const[]){path, "section \"bindings\" at offset", "codec 9 is not known"});
}

/* ---- this reader, older files; and the other way round ---- */

Test(artifact_versions, files_of_version_1_are_read)
{
	struct md_artifact_layout layout;
	take_apart(&layout);
	layout.head.version = layout.head.oldest_reader = 1;
	assert_read(&layout);
}

/* A reader of version 1 reads all that is written here, a signature included, which it takes for a stranger. */
Test(artifact_versions, readers_of_version_1_are_served)
{
	static const struct md_secret_key key = {{1}};
	struct md_artifact_layout layout;
	struct md_file_bytes map;
	struct md_artifact_reading in;
	struct md_error err = {0};
	take_apart(&layout);
	md_buf_finish(&layout.body);
	cr_assert(md_artifact_sign(path, path, &key, &err) == MD_OK, "%s", err.message);
	cr_assert(md_file_read(path, UINT64_MAX, &map, &err) == MD_OK, "%s", err.message);
	cr_assert(md_artifact_reading_begin(&(struct md_file_source){map.data, -1, map.size}, &in, &err) == MD_OK, "%s",
		  err.message);
	cr_assert_eq(in.head.oldest_reader, 1, "version 1 will do");
	cr_assert_eq(in.head.required & ~3ull, 0, "no feature that came later");
	for (uint32_t i = 0; i < in.head.count; i++)
		cr_assert_eq(in.rows[i].flags, 0, "section %s", in.rows[i].name);
	md_artifact_reading_finish(&in);
	md_file_release(&map);
}

/* Signing keeps what a newer writer put there, and vouches for it. */
Test(artifact_versions, signing_keeps_what_is_not_known)
{
	static const struct md_secret_key key = {{1}};
	struct md_artifact_layout layout;
	struct md_artifact artifact;
	struct md_file_bytes map;
	struct md_artifact_reading in;
	struct md_error err = {0};
	take_apart(&layout);
	layout.head.version = 9;
	layout.head.optional = 4;
	add_section(&layout, "later", 6);
	cr_assert(put_together(&layout, &artifact, &err) == MD_OK, "%s", err.message);
	md_artifact_finish(&artifact);
	cr_assert(md_artifact_sign(path, path, &key, &err) == MD_OK, "%s", err.message);
	cr_assert(md_file_read(path, UINT64_MAX, &map, &err) == MD_OK, "%s", err.message);
	uint8_t *data = malloc(map.size);
	memcpy(data, map.data, map.size);
	cr_assert(md_artifact_reading_begin(&(struct md_file_source){data, -1, map.size}, &in, &err) == MD_OK, "%s",
		  err.message);
	cr_assert(in.head.version == 9 && in.head.optional == 4 && in.head.count == 13, "the header");
	const struct md_artifact_row *later = &in.rows[11];
	cr_assert(!strcmp(later->name, "later") && later->flags == 6 && later->codec == 77, "the section");
	cr_assert_str_eq((char *)data + later->offset, "of later", "its bytes");
	data[later->offset]++;
	cr_assert_eq(md_artifact_parse(data, map.size, &artifact, NULL, &err), MD_ERR_CORRUPT, "a changed stranger");
	cr_assert(strstr(err.message, "section \"later\" at offset"), "%s", err.message);
	md_artifact_reading_finish(&in);
	md_file_release(&map);
	free(data);
}
