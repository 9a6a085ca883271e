/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the manifest of a content, as another node sends it. A refusal says why; files of what is read are below the folder they go to, each behind the one
 * before, none within another; blocks cover them; and the manifest is printed and read again, the same.
 */
#include <string.h>

#include "json/tree_text.h"
#include "tests/fuzz/fuzz.h"
#include "worker/cluster/content_manifest.h"

bool fuzz_accepted;

/* A path as the operating system takes it: it never leaves its folder. */
static void check_name(const char *name)
{
	FUZZ_REQUIRE(*name && *name != '/' && name[strlen(name) - 1] != '/' && !strstr(name, "//"), "\"%s\"", name);
	FUZZ_REQUIRE(strncmp(name, "../", 3) != 0 && !strstr(name, "/../") && strcmp(name, "..") != 0, "\"%s\"", name);
	size_t size = strlen(name);
	FUZZ_REQUIRE(size < 3 || strcmp(name + size - 3, "/..") != 0, "\"%s\"", name);
}

static void check_files(const struct md_content_manifest *m)
{
	uint64_t bytes = 0;
	FUZZ_REQUIRE(m->file_count && m->file_count <= MD_CONTENT_FILES_MAX, "%u files", m->file_count);
	for (uint32_t i = 0; i < m->file_count; i++) {
		const struct md_content_file *file = &m->files[i];
		check_name(file->name);
		FUZZ_REQUIRE(!i || strcmp(file[-1].name, file->name) < 0, "file %u is out of order", i);
		FUZZ_REQUIRE(file->offset == bytes, "file %u is not behind the one before", i);
		bytes += file->size;
		FUZZ_REQUIRE(bytes <= MD_CONTENT_BYTES_MAX, "%llu bytes", (unsigned long long)bytes);
		size_t size = strlen(file->name);
		for (uint32_t k = i + 1; k < m->file_count && k < i + 200; k++)
			FUZZ_REQUIRE(strncmp(m->files[k].name, file->name, size) != 0 || m->files[k].name[size] != '/',
				     "\"%s\" is within file \"%s\"", m->files[k].name, file->name);
	}
	FUZZ_REQUIRE(bytes == m->bytes, "%llu bytes", (unsigned long long)m->bytes);
}

static void check_blocks(const struct md_content_manifest *m)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < m->block_count; i++) {
		uint32_t size = md_content_block_size(m, i);
		FUZZ_REQUIRE(size && size <= MD_CONTENT_BLOCK && md_content_block_offset(i) == bytes,
			     "block %u of %u bytes", i, size);
		bytes += size;
	}
	FUZZ_REQUIRE(bytes == m->bytes, "blocks have %llu bytes", (unsigned long long)bytes);
}

static void check_text(const struct md_content_manifest *m)
{
	struct md_buf text = {0};
	struct md_content_manifest again;
	struct md_error err = {0};
	FUZZ_REQUIRE(md_content_manifest_print(m->files, m->file_count, m->blocks, m->block_count, &text), "memory");
	FUZZ_REQUIRE(md_content_manifest_read((const char *)text.data, text.size, &again, &err) == MD_OK, "%s: %s",
		     (const char *)text.data, err.message);
	FUZZ_REQUIRE(again.file_count == m->file_count && again.block_count == m->block_count &&
			 again.bytes == m->bytes &&
			 (!m->block_count || !memcmp(again.blocks, m->blocks, m->block_count * sizeof(*m->blocks))),
		     "%s is another content", (const char *)text.data);
	for (uint32_t i = 0; i < m->file_count; i++)
		FUZZ_REQUIRE(!strcmp(again.files[i].name, m->files[i].name) && again.files[i].size == m->files[i].size,
			     "file %u is another one", i);
	md_content_manifest_finish(&again);
	md_buf_finish(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct md_content_manifest manifest;
	struct md_error err = {0};
	char *text = malloc(size ? size : 1); /* memory of its own, whose end the sanitizer watches */
	FUZZ_REQUIRE(text, "memory");
	if (size)
		memcpy(text, data, size);
	enum md_status status = md_content_manifest_read(text, size, &manifest, &err);
	free(text);
	fuzz_accepted = status == MD_OK;
	if (status == MD_OK) {
		check_files(&manifest);
		check_blocks(&manifest);
		check_text(&manifest);
	} else {
		json_t *told = md_jansson_text(err.message); /* a name in it may be cut within a character */
		FUZZ_REQUIRE(status == MD_ERR_CORRUPT || status == MD_ERR_VERSION, "refused with status %d", status);
		FUZZ_REQUIRE(told && *err.message, "the reason is no text: \"%s\"", err.message);
		FUZZ_REQUIRE(!manifest.root && !manifest.files && !manifest.blocks, "refused, and not empty");
		json_decref(told);
	}
	md_content_manifest_finish(&manifest);
	return 0;
}
