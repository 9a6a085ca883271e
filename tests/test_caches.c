/* SPDX-License-Identifier: Apache-2.0 */
/* Files of caches in an artifact: written, read whole and alone, signed, printed; names and blocks that lie are refused. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "format/artifact/layout.h"
#include "tests/artifact_samples.h"

#define LARGE (9u << 20) /* bytes: three blocks */

static char path[64], other[64];

static void setup(void)
{
	snprintf(path, sizeof(path), "/tmp/medusa-caches-%d.medusa", (int)getpid());
	snprintf(other, sizeof(other), "/tmp/medusa-caches-%d-other.medusa", (int)getpid());
}

static void teardown(void)
{
	unlink(path);
	unlink(other);
}

TestSuite(caches, .init = setup, .fini = teardown);

static void write_sample(struct md_artifact_sizes *sizes)
{
	struct md_artifact artifact;
	struct md_error err = {0};
	sample_artifact(&artifact);
	sample_caches(&artifact, LARGE);
	cr_assert(md_artifact_write(&artifact, path, sizes, &err) == MD_OK, "write: %s", err.message);
	md_artifact_finish(&artifact);
}

static void assert_same_files(const struct md_caches *got, const struct md_caches *wanted)
{
	cr_assert_eq(got->folder_count, wanted->folder_count, "folders");
	for (uint32_t i = 0; i < wanted->folder_count; i++) {
		const struct md_cache_folder *a = &got->folders[i], *b = &wanted->folders[i];
		cr_assert(!strcmp(a->name, b->name) && a->variable == b->variable && !strcmp(a->inside, b->inside) &&
			      !strcmp(a->path, b->path) && a->file_count == b->file_count,
			  "folder %u", i);
		for (uint32_t k = 0; k < b->file_count; k++)
			cr_assert(
			    !strcmp(a->files[k].path, b->files[k].path) && a->files[k].size == b->files[k].size &&
				a->files[k].executable == b->files[k].executable &&
				md_hash_equal(&a->files[k].hash, &b->files[k].hash) &&
				(!b->files[k].size || !memcmp(a->files[k].data, b->files[k].data, b->files[k].size)),
			    "file %s", b->files[k].path);
	}
}

Test(caches, are_read_as_they_were_written)
{
	struct md_artifact wanted, got;
	struct md_artifact_sizes sizes;
	struct md_error err = {0};
	write_sample(&sizes);
	sample_artifact(&wanted);
	sample_caches(&wanted, LARGE);
	cr_assert(md_artifact_read(path, &got, NULL, &err) == MD_OK, "%s", err.message);
	assert_same_files(&got.caches, &wanted.caches);
	cr_assert_eq(got.caches.block_count, 6, "one block of c.py, three of d.so, one of b-c, one of k.cubin");
	cr_assert(md_artifact_write(&got, other, &sizes, &err) == MD_OK, "write again: %s", err.message);
	struct md_file_bytes a, b;
	cr_assert(md_file_read(path, UINT64_MAX, &a, &err) == MD_OK &&
		      md_file_read(other, UINT64_MAX, &b, &err) == MD_OK,
		  "%s", err.message);
	cr_assert(a.size == b.size && !memcmp(a.data, b.data, a.size), "the same files make the same bytes");
	md_file_release(&a);
	md_file_release(&b);
	md_artifact_finish(&wanted);
	md_artifact_finish(&got);
}

Test(caches, are_in_the_text)
{
	struct md_artifact artifact, again;
	struct md_error err = {0};
	char *text = NULL;
	size_t size;
	sample_artifact(&artifact);
	sample_caches(&artifact, 900);
	FILE *out = open_memstream(&text, &size);
	cr_assert(md_artifact_print_text(&artifact, out, &err) == MD_OK, "%s", err.message);
	fclose(out);
	FILE *in = fmemopen(text, size, "r");
	cr_assert(md_artifact_parse_text(in, &again, &err) == MD_OK, "%s", err.message);
	fclose(in);
	assert_same_files(&again.caches, &artifact.caches);
	free(text);
	md_artifact_finish(&artifact);
	md_artifact_finish(&again);
}

Test(caches, an_artifact_without_them_is_as_before)
{
	struct md_artifact artifact;
	struct md_artifact_reading in;
	struct md_cache_source *source = NULL;
	struct md_file_bytes file;
	struct md_error err = {0};
	sample_artifact(&artifact);
	cr_assert(md_artifact_write(&artifact, path, NULL, &err) == MD_OK, "%s", err.message);
	md_artifact_finish(&artifact);
	cr_assert(md_file_read(path, UINT64_MAX, &file, &err) == MD_OK, "%s", err.message);
	cr_assert(md_artifact_reading_begin(&(struct md_file_source){file.data, -1, file.size}, &in, &err) == MD_OK,
		  "%s", err.message);
	cr_assert(in.head.optional == 0 && in.head.count == 11, "no bit, and no section");
	md_artifact_reading_finish(&in);
	md_file_release(&file);
	cr_assert(md_cache_source_open(path, &source, &err) == MD_OK && !source, "%s", err.message);
}

/* ---- reading alone ---- */

static uint64_t place_of(const char *section, uint64_t *stored)
{
	struct md_artifact_reading in;
	struct md_file_bytes file;
	const struct md_artifact_row *row;
	struct md_error err = {0};
	cr_assert(md_file_read(path, UINT64_MAX, &file, &err) == MD_OK, "%s", err.message);
	cr_assert(md_artifact_reading_begin(&(struct md_file_source){file.data, -1, file.size}, &in, &err) == MD_OK &&
		      md_artifact_find_row(&in, section, &row, &err) == MD_OK && row,
		  "section %s: %s", section, err.message);
	uint64_t offset = row->offset;
	*stored = row->stored;
	md_artifact_reading_finish(&in);
	md_file_release(&file);
	return offset;
}

static void flip(uint64_t at)
{
	uint8_t byte;
	int fd = open(path, O_RDWR);
	cr_assert(fd >= 0 && pread(fd, &byte, 1, (off_t)at) == 1, "read at %llu", (unsigned long long)at);
	byte ^= 4;
	cr_assert(pwrite(fd, &byte, 1, (off_t)at) == 1, "write at %llu", (unsigned long long)at);
	close(fd);
}

static enum md_status read_blocks(struct md_error *err)
{
	struct md_cache_source *source = NULL;
	const struct md_caches *caches;
	MD_FORWARD(md_cache_source_open(path, &source, err));
	if (!source)
		return MD_ERR_NOT_FOUND;
	enum md_status status = md_cache_source_index(source, NULL, &caches, err);
	for (uint32_t i = 0; status == MD_OK && i < caches->block_count; i++) {
		uint8_t *stored = malloc(caches->blocks[i].stored), *raw = malloc(MD_CACHE_BLOCK_BYTES);
		status = md_cache_source_read(source, i, stored, raw, err);
		free(stored);
		free(raw);
	}
	md_cache_source_close(source);
	return status;
}

Test(caches, blocks_come_one_by_one)
{
	struct md_artifact wanted;
	struct md_cache_source *source = NULL;
	const struct md_caches *caches;
	struct md_error err = {0};
	uint8_t *stored = malloc(2 * MD_CACHE_BLOCK_BYTES), *raw = malloc(MD_CACHE_BLOCK_BYTES);
	write_sample(NULL);
	sample_artifact(&wanted);
	sample_caches(&wanted, LARGE);
	cr_assert(md_cache_source_open(path, &source, &err) == MD_OK &&
		      md_cache_source_index(source, NULL, &caches, &err) == MD_OK,
		  "%s", err.message);
	for (uint32_t i = 1; i < 4; i++) { /* those of d.so */
		cr_assert(md_cache_source_read(source, i, stored, raw, &err) == MD_OK, "%s", err.message);
		cr_assert(!memcmp(raw, wanted.caches.folders[0].files[2].data + (size_t)(i - 1) * MD_CACHE_BLOCK_BYTES,
				  caches->blocks[i].raw),
			  "block %u", i);
	}
	md_cache_source_close(source);
	md_artifact_finish(&wanted);
	free(stored);
	free(raw);
}

/* A cold start opens graphs whatever became of the caches; nothing of them is read for it. */
Test(caches, opening_for_graphs_reads_nothing_of_them)
{
	static const char *const sections[] = {"caches", "cache_data"};
	for (int i = 0; i < 2; i++) {
		struct md_artifact artifact;
		struct md_artifact_file *file;
		struct md_error err = {0};
		uint64_t stored, at;
		write_sample(NULL);
		at = place_of(sections[i], &stored);
		flip(at + stored / 2);
		cr_assert(md_artifact_open(path, &file, &artifact, &err) == MD_OK, "%s", err.message);
		cr_assert(md_artifact_read_graphs(file, &artifact, &err) == MD_OK, "%s", err.message);
		cr_assert(artifact.graph_count == 4 && artifact.caches.folder_count == 0, "graphs, and no caches");
		md_artifact_close(file);
		md_artifact_finish(&artifact);
		cr_assert_eq(read_blocks(&err), MD_ERR_CORRUPT, "%s: %s", sections[i], err.message);
		cr_assert(strstr(err.message, sections[i]), "\"%s\" names the section", err.message);
		cr_assert_eq(md_artifact_read(path, &artifact, NULL, &err), MD_ERR_CORRUPT,
			     "a whole reader looks at all");
	}
}

static enum md_status read_trusted(const struct md_trust *trust, struct md_error *err)
{
	struct md_cache_source *source = NULL;
	const struct md_caches *caches;
	cr_assert(md_cache_source_open(path, &source, err) == MD_OK && source, "%s", err->message);
	enum md_status status = md_cache_source_index(source, trust, &caches, err);
	md_cache_source_close(source);
	return status;
}

Test(caches, a_signature_covers_them)
{
	static const struct md_secret_key key = {"a seed that everybody may know"}, stranger = {"another one"};
	struct md_public_key keys[] = {md_secret_key_public(&key)}, strangers[] = {md_secret_key_public(&stranger)};
	struct md_trust trust = {"trusted", keys, 1}, mistrust = {"others", strangers, 1};
	struct md_error err = {0};
	uint64_t stored, at;
	write_sample(NULL);
	cr_assert_eq(read_trusted(&trust, &err), MD_ERR_MISMATCH, "%s", err.message);
	cr_assert(strstr(err.message, "not signed"), "%s", err.message);
	cr_assert(md_artifact_sign(path, path, &key, &err) == MD_OK, "%s", err.message);
	cr_assert_eq(read_trusted(&mistrust, &err), MD_ERR_MISMATCH, "%s", err.message);
	cr_assert(read_trusted(&trust, &err) == MD_OK, "%s", err.message);
	cr_assert(read_blocks(&err) == MD_OK, "%s", err.message);
	at = place_of("caches", &stored);
	flip(at + stored / 2);
	cr_assert_eq(read_blocks(&err), MD_ERR_CORRUPT, "%s", err.message);
}

/* ---- what must hold ---- */

static void assert_refused(struct md_caches *caches, const char *why)
{
	struct md_error err = {0};
	cr_assert_eq(md_caches_check(caches, &err), MD_ERR_CORRUPT, "not refused: %s", why);
	cr_assert(strstr(err.message, why), "\"%s\" lacks \"%s\"", err.message, why);
}

Test(caches, paths_stay_in_their_folder)
{
	static const char *const good[] = {"a", "a/b", ".a", "a/..b", "...", " ", "a\\..", "b-c"};
	static const char *const bad[] = {"",
					  "/a",
					  "a/",
					  "a//b",
					  ".",
					  "..",
					  "../a",
					  "a/../b",
					  "./a",
					  "a/.",
					  "a/..",
					  "/",
					  "//",
					  MD_CACHE_STAGING "x",
					  "a/" MD_CACHE_STAGING "x/b"};
	char lengthy[2 * MD_CACHE_PATH_MAX] = "";
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		cr_assert(md_cache_path_valid(good[i]), "\"%s\" is good", good[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		cr_assert(!md_cache_path_valid(bad[i]), "\"%s\" is bad", bad[i]);
	cr_assert(!md_cache_path_valid(NULL), "no path is bad");
	memset(lengthy, 'a', 255);
	cr_assert(md_cache_path_valid(lengthy), "a name of 255 bytes");
	lengthy[255] = 'a';
	cr_assert(!md_cache_path_valid(lengthy), "a name of 256 bytes");
	for (size_t i = 0; i < MD_CACHE_PATH_MAX + 2; i++)
		lengthy[i] = i % 2 ? '/' : 'a';
	lengthy[MD_CACHE_PATH_MAX] = 0;
	cr_assert(md_cache_path_valid(lengthy), "a path of the most bytes");
	lengthy[MD_CACHE_PATH_MAX] = 'a';
	lengthy[MD_CACHE_PATH_MAX - 1] = 'a';
	cr_assert(!md_cache_path_valid(lengthy), "a path of one byte more");
}

static void replace(char **text, const char *by)
{
	free(*text);
	*text = strdup(by);
}

Test(caches, files_and_folders_that_lie_are_refused)
{
	struct md_artifact artifact;
	sample_artifact(&artifact);
	sample_caches(&artifact, 900);
	struct md_cache_folder *folder = &artifact.caches.folders[0], *last = &artifact.caches.folders[1];
	struct md_error err = {0};
	cr_assert(md_caches_check(&artifact.caches, &err) == MD_OK, "%s", err.message);
	replace(&folder->files[1].path, "../c");
	assert_refused(&artifact.caches, "does not name a file inside");
	replace(&folder->files[1].path, "a");
	assert_refused(&artifact.caches, "file a appears twice or out of order");
	replace(&folder->files[1].path, "a/b");
	assert_refused(&artifact.caches, "a/b lies in a, which is a file");
	replace(&folder->files[1].path, "b/c.py");
	folder->files[1].data[3] ^= 1;
	assert_refused(&artifact.caches, "the hash of file b/c.py differs");
	folder->files[1].data[3] ^= 1;
	folder->files[0].hash.bytes[0] ^= 1;
	assert_refused(&artifact.caches, "the hash of file a differs");
	folder->files[0].hash.bytes[0] ^= 1;
	folder->files[4].size = MD_CACHE_BYTES_MAX;
	assert_refused(&artifact.caches, "bytes");
	folder->files[4].size = 0;
	for (int i = 0; i < 5; i++) {
		static const char *const names[] = {"", "a/b", "..", "a=b", ""};
		replace(&last->name, names[i]);
		assert_refused(&artifact.caches, "is none");
	}
	replace(&last->name, "LD PRELOAD");
	last->variable = true;
	assert_refused(&artifact.caches, "is none");
	replace(&last->name, "TRITON_CACHE_DIR");
	replace(&last->inside, "..");
	assert_refused(&artifact.caches, "is none");
	replace(&last->inside, "");
	replace(&last->path, "relative");
	assert_refused(&artifact.caches, "not absolute");
	replace(&last->path, "/c");
	replace(&last->name, folder->name);
	replace(&last->inside, folder->inside);
	assert_refused(&artifact.caches, "appears twice");
	md_artifact_finish(&artifact);
}

Test(caches, blocks_that_do_not_fit_are_refused)
{
	static const struct {
		uint64_t raw[4];
		uint32_t count;
	} cases[] = {{{1633}, 1},
		     {{700, 900, 33, 4999}, 4},
		     {{700, 933, 5000}, 3},
		     {{1600, 33, 5000, 1}, 4},
		     {{0, 1633, 5000}, 3}};
	struct md_artifact artifact;
	sample_artifact(&artifact);
	sample_caches(&artifact, 900);
	for (size_t i = 0; i <= sizeof(cases) / sizeof(*cases); i++) {
		bool good = i == sizeof(cases) / sizeof(*cases);
		struct md_cache_block blocks[4] = {{.raw = 700}, {.raw = 933}, {.raw = 5000}};
		struct md_caches caches = artifact.caches;
		struct md_cache_unit *units = NULL;
		struct md_error err = {0};
		uint32_t count;
		caches.blocks = blocks;
		caches.block_count = good ? 3 : cases[i].count;
		for (uint32_t k = 0; !good && k < 4; k++)
			blocks[k].raw = cases[i].raw[k];
		if (i == 2) /* fits: that it is refused with another split shows that it is looked at */
			blocks[1].raw = 932;
		enum md_status status = md_cache_units_make(&caches, &units, &count, &err);
		cr_assert_eq(status, good ? MD_OK : MD_ERR_CORRUPT, "case %zu: %s", i, err.message);
		free(units);
	}
	md_artifact_finish(&artifact);
}

Test(caches, bytes_that_a_reader_has_no_room_for_are_refused)
{
	struct md_error err = {0};
	cr_assert(md_caches_check_sizes(200u << 20, 1u << 20, &err) == MD_OK, "%s", err.message);
	cr_assert_eq(md_caches_check_sizes(200u << 20, 1u << 10, &err), MD_ERR_TOO_LARGE, "a thousand times");
	cr_assert_eq(md_caches_check_sizes(1u << 30, 64u << 20, &err), MD_ERR_TOO_LARGE, "beyond what is free");
	cr_assert(md_caches_check_sizes(1u << 30, 128u << 20, &err) == MD_OK, "%s", err.message);
	cr_assert_eq(md_caches_check_sizes(MD_CACHE_BYTES_MAX + 1, 1u << 30, &err), MD_ERR_TOO_LARGE,
		     "beyond the bound");
}

/* The header says whether there are caches: they cannot be left out unnoticed. */
Test(caches, the_header_says_whether_there_are_any)
{
	for (int what = 0; what < 3; what++) {
		struct md_artifact_layout layout;
		struct md_artifact_reading in;
		struct md_artifact artifact;
		struct md_file_bytes file;
		struct md_error err = {0};
		write_sample(NULL);
		cr_assert(md_file_read(path, UINT64_MAX, &file, &err) == MD_OK, "%s", err.message);
		cr_assert(md_artifact_reading_begin(&(struct md_file_source){file.data, -1, file.size}, &in, &err) ==
			      MD_OK,
			  "%s", err.message);
		layout = (struct md_artifact_layout){.head = in.head};
		layout.head.count = 0;
		md_buf_init(&layout.body);
		for (uint32_t i = 0; i < in.head.count; i++) {
			bool cache = !strcmp(in.rows[i].name, "caches"), data = !strcmp(in.rows[i].name, "cache_data");
			if ((what == 0 && (cache || data)) || (what == 1 && cache))
				continue;
			layout.rows[layout.head.count] = in.rows[i];
			layout.rows[layout.head.count++].offset = layout.body.size;
			md_buf_put(&layout.body, file.data + in.rows[i].offset, in.rows[i].stored);
		}
		if (what == 2)
			layout.head.optional = 0;
		cr_assert(md_artifact_layout_publish(&layout, path, false, &err) == MD_OK, "%s", err.message);
		cr_assert_eq(md_artifact_read(path, &artifact, NULL, &err), MD_ERR_CORRUPT, "case %d", what);
		cr_assert(strstr(err.message, "header at offset 24: the feature bits say"), "%s", err.message);
		/* without the bit, a start sees no caches: the header is signed, and nobody else can take it away */
		cr_assert_eq(read_blocks(&err), what == 2 ? MD_ERR_NOT_FOUND : MD_ERR_CORRUPT, "alone, case %d", what);
		md_buf_finish(&layout.body);
		md_artifact_reading_finish(&in);
		md_file_release(&file);
	}
}
