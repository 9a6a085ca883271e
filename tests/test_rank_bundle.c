/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest of a bundle: what is written is read again, and nothing else is taken for it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ranks/rank_bundle.h"

static char folder[] = "/tmp/medusa-manifest-XXXXXX", manifest[64];

static void setup(void)
{
	cr_assert_not_null(mkdtemp(folder), "a folder");
	snprintf(manifest, sizeof(manifest), "%s/" MD_BUNDLE_MANIFEST, folder);
}

static void teardown(void)
{
	unlink(manifest);
	rmdir(folder);
}

static struct md_bundle bundle_of(uint32_t ranks)
{
	struct md_bundle bundle = {.ranks = ranks};
	for (uint32_t i = 0; i < ranks; i++)
		bundle.artifacts[i] = md_hash_bytes(&i, sizeof(i));
	return bundle;
}

static size_t read_text(char *text, size_t room)
{
	FILE *in = fopen(manifest, "re");
	size_t size = fread(text, 1, room, in);
	fclose(in);
	return size;
}

static void put_text(const char *text, size_t size)
{
	FILE *out = fopen(manifest, "we");
	fwrite(text, 1, size, out);
	fclose(out);
}

static bool is_same(const struct md_bundle *a, const struct md_bundle *b)
{
	return a->ranks == b->ranks && !memcmp(a->artifacts, b->artifacts, sizeof(a->artifacts));
}

Test(rank_bundle, what_is_written_is_read, .init = setup, .fini = teardown)
{
	static const uint32_t counts[] = {2, 3, 8, MD_RANKS_MOST};
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		struct md_bundle made = bundle_of(counts[i]), found;
		struct md_error err = {0};
		unlink(manifest);
		cr_assert(!md_bundle_is(folder), "a folder without a manifest");
		cr_assert_eq(md_bundle_write(&made, folder, &err), MD_OK, "%s", err.message);
		cr_assert(md_bundle_is(folder), "a folder with one");
		cr_assert_eq(md_bundle_read(folder, &found, &err), MD_OK, "%u ranks: %s", counts[i], err.message);
		cr_assert(is_same(&made, &found), "%u ranks", counts[i]);
	}
}

Test(rank_bundle, an_older_manifest_is_not_written_over, .init = setup, .fini = teardown)
{
	struct md_bundle made = bundle_of(2), found;
	struct md_error err = {0};
	cr_assert_eq(md_bundle_write(&made, folder, &err), MD_OK, "%s", err.message);
	struct md_bundle other = bundle_of(3);
	cr_assert_neq(md_bundle_write(&other, folder, &err), MD_OK, "the name is taken");
	cr_assert_eq(md_bundle_read(folder, &found, &err), MD_OK, "%s", err.message);
	cr_assert(is_same(&made, &found), "the older one");
}

Test(rank_bundle, every_cut_is_refused, .init = setup, .fini = teardown)
{
	struct md_bundle made = bundle_of(3), found;
	struct md_error err = {0};
	char text[512];
	md_bundle_write(&made, folder, &err);
	size_t size = read_text(text, sizeof(text));
	for (size_t i = 0; i < size; i++) {
		put_text(text, i);
		cr_assert_neq(md_bundle_read(folder, &found, &err), MD_OK, "%zu of %zu bytes", i, size);
		cr_assert_eq(strncmp(err.message, manifest, strlen(manifest)), 0, "the file's name: %s", err.message);
	}
}

/* There is one text for each bundle: another text is refused, or is another bundle. */
Test(rank_bundle, every_byte_matters, .init = setup, .fini = teardown)
{
	struct md_bundle made = bundle_of(3), found;
	struct md_error err = {0};
	char text[512];
	unsigned others = 0;
	md_bundle_write(&made, folder, &err);
	size_t size = read_text(text, sizeof(text));
	for (size_t i = 0; i < size; i++)
		for (unsigned bit = 0; bit < 8; bit++) {
			text[i] ^= (char)(1u << bit);
			put_text(text, size);
			bool read = md_bundle_read(folder, &found, &err) == MD_OK;
			cr_assert(!read || !is_same(&made, &found), "byte %zu, bit %u", i, bit);
			others += read;
			text[i] ^= (char)(1u << bit);
		}
	cr_assert_gt(others, 0, "digits of a hash can be others");
}

Test(rank_bundle, there_are_no_artifacts_beyond_a_path)
{
	char path[PATH_MAX], *longest = calloc(1, PATH_MAX + 1);
	memset(longest, 'a', PATH_MAX - 10);
	cr_assert(!md_bundle_artifact(longest, 0, path), "too long");
	cr_assert(md_bundle_artifact("/b", 255, path), "short enough");
	cr_assert_str_eq(path, "/b/rank-255.medusa");
	free(longest);
}
