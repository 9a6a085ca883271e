/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests of contents: what is printed is read, and what can't be is refused by what is wrong. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "worker/cluster/content_manifest.h"

static struct md_digest hash_of(const char *text)
{
	return md_digest_bytes(text, strlen(text));
}

Test(worker_content_manifest, what_is_printed_is_read)
{
	const struct md_content_file files[] = {{.name = "a/b \"c\"", .size = 3},
						{.name = "a/b-", .size = 0},
						{.name = "\xc3\xa4", .size = MD_CONTENT_BLOCK}};
	const struct md_digest blocks[] = {hash_of("one"), hash_of("two")};
	struct md_buf text = {0}, again = {0};
	struct md_content_manifest m;
	struct md_error err = {0};
	cr_assert(md_content_manifest_print(files, 3, blocks, 2, &text));
	cr_assert_eq(text.data[text.size], '\0');
	cr_assert_eq(md_content_manifest_read((char *)text.data, text.size, &m, &err), MD_OK, "%s", err.message);
	cr_assert_eq(m.file_count, 3);
	cr_assert_eq(m.bytes, MD_CONTENT_BLOCK + 3);
	cr_assert_eq(m.files[2].offset, 3);
	cr_assert_eq(md_content_block_size(&m, 0), MD_CONTENT_BLOCK);
	cr_assert_eq(md_content_block_size(&m, 1), 3);
	cr_assert_arr_eq(m.blocks, blocks, sizeof(blocks));
	cr_assert(md_content_manifest_print(m.files, m.file_count, m.blocks, m.block_count, &again));
	cr_assert(again.size == text.size && !memcmp(again.data, text.data, text.size),
		  "the same text, and so the same hash");
	for (size_t size = 0; size < text.size; size++) { /* of a part, none */
		struct md_content_manifest part;
		cr_assert_neq(md_content_manifest_read((char *)text.data, size, &part, &err), MD_OK);
		cr_assert_null(part.root);
	}
	md_content_manifest_finish(&m);
	md_buf_finish(&text);
	md_buf_finish(&again);
}

Test(worker_content_manifest, names)
{
	static const char *const good[] = {"a", ".a", "..a", "a/.b", "a b/c", "...", "a..b/c"};
	static const char *const bad[] = {"",    "/",    "/a",   "a/",     "a//b", ".",     "..",   "./a",
					  "a/.", "../a", "a/..", "a/../b", "a\nb", "a\x7f", "a\\b", "\x01"};
	char name[1100];
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		cr_assert(md_content_is_name(good[i]), "%s", good[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		cr_assert_not(md_content_is_name(bad[i]), "%s", bad[i]);
	memset(name, 'a', sizeof(name));
	name[255] = '\0';
	cr_assert(md_content_is_name(name));
	name[255] = 'a';
	name[256] = '\0';
	cr_assert_not(md_content_is_name(name), "a part of 256 bytes");
	for (size_t i = 0; i < sizeof(name); i++)
		name[i] = i % 2 ? '/' : 'a';
	name[1001] = '\0';
	cr_assert_not(md_content_is_name(name), "1,001 bytes");
}

Test(worker_content_manifest, hashes)
{
	const struct md_digest hash = hash_of("");
	char text[MD_CONTENT_HASH_TEXT];
	md_content_hash_print(&hash, text);
	cr_assert_str_eq(text, "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8",
			 "BLAKE2b-256 of nothing");
	cr_assert(md_content_is_hash(text));
	text[5] = 'A';
	cr_assert_not(md_content_is_hash(text));
	cr_assert_not(md_content_is_hash("0e57"));
}

/* files: the value of "files"; blocks: of one block. */
static enum md_status read_files(const char *files, struct md_error *err)
{
	char text[1024];
	struct md_content_manifest m;
	int size = snprintf(text, sizeof(text),
			    "{\"format\":1,\"block_bytes\":4194304,\"files\":%s,\"blocks\":\"%064d\"}", files, 0);
	enum md_status status = md_content_manifest_read(text, (size_t)size, &m, err);
	md_content_manifest_finish(&m);
	return status;
}

Test(worker_content_manifest, what_leads_out_is_refused)
{
	static const char *const hostile[] = {"[{\"name\":\"../x\",\"size\":5}]",
					      "[{\"name\":\"/x\",\"size\":5}]",
					      "[{\"name\":\"a/../../x\",\"size\":5}]",
					      "[{\"name\":\"a\",\"size\":0},{\"name\":\"a/x\",\"size\":5}]",
					      "[{\"name\":\"x\",\"size\":2},{\"name\":\"x\",\"size\":3}]",
					      "[{\"name\":\"x\",\"size\":-1}]",
					      "[{\"name\":\"x\",\"size\":4194305}]",
					      "[{\"name\":\"x\",\"size\":9223372036854775807}]",
					      "[]",
					      "5"};
	struct md_error err = {0};
	cr_assert_eq(read_files("[{\"name\":\"a/x\",\"size\":5}]", &err), MD_OK, "%s", err.message);
	for (size_t i = 0; i < sizeof(hostile) / sizeof(*hostile); i++)
		cr_assert_eq(read_files(hostile[i], &err), MD_ERR_CORRUPT, "%s was read", hostile[i]);
}
