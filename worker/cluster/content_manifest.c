/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/content_manifest.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "json/tree_text.h"

#define FORMAT 1
#define NAME_BYTES_MAX 1000u
#define PART_MAX 255u
#define PARTS_MAX 64u /* folders of a node are not nested as deeply */

/* ---- hashes and names ---- */

void md_content_hash_print(const struct md_digest *hash, char text[MD_CONTENT_HASH_TEXT])
{
	sodium_bin2hex(text, MD_CONTENT_HASH_TEXT, hash->bytes, sizeof(hash->bytes));
}

bool md_content_is_hash(const char *text)
{
	return strlen(text) == MD_CONTENT_HASH_TEXT - 1 && strspn(text, "0123456789abcdef") == MD_CONTENT_HASH_TEXT - 1;
}

bool md_content_is_name(const char *name)
{
	size_t size = strlen(name);
	if (!size || size > NAME_BYTES_MAX)
		return false;
	for (const char *at = name; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f || *at == '\\')
			return false;
	unsigned parts = 1;
	for (const char *part = name;; part++, parts++) {
		size_t length = strcspn(part, "/");
		bool dots = (length == 1 && *part == '.') || (length == 2 && !strncmp(part, "..", 2));
		if (!length || length > PART_MAX || parts > PARTS_MAX || dots)
			return false;
		part += length;
		if (!*part)
			return true;
	}
}

/* ---- printing ---- */

bool md_content_manifest_print(const struct md_content_file *files, uint32_t file_count, const struct md_digest *blocks,
			       uint32_t block_count, struct md_buf *text)
{
	json_t *list = json_array();
	char *hashes = malloc((size_t)block_count * sizeof(*blocks) * 2 + 1);
	for (uint32_t i = 0; i < file_count; i++)
		json_array_append_new(
		    list, json_pack("{s:s, s:I}", "name", files[i].name, "size", (json_int_t)files[i].size));
	for (uint32_t i = 0; hashes && i < block_count; i++)
		sodium_bin2hex(hashes + (size_t)i * sizeof(*blocks) * 2, sizeof(*blocks) * 2 + 1, blocks[i].bytes,
			       sizeof(blocks[i].bytes));
	if (hashes && !block_count)
		*hashes = '\0';
	json_t *root = hashes ? json_pack("{s:i, s:i, s:o, s:s}", "format", FORMAT, "block_bytes",
					  (int)MD_CONTENT_BLOCK, "files", list, "blocks", hashes)
			      : NULL;
	char *printed = root ? md_jansson_print(root, JSON_COMPACT) : NULL;
	if (printed)
		md_buf_put(text, printed, strlen(printed) + 1);
	if (printed && !text->failed)
		text->size--;
	if (!hashes)
		json_decref(list);
	json_decref(root);
	free(hashes);
	free(printed);
	return printed && !text->failed;
}

/* ---- reading ---- */

static int find_file(const void *name, const void *file)
{
	const struct md_buf *wanted = name;
	const char *there = ((const struct md_content_file *)file)->name;
	int order = strncmp((const char *)wanted->data, there, wanted->size);
	return order ? order : there[wanted->size] ? -1 : 0;
}

/* Whether a part of the name's path is a file itself. */
static bool is_below_file(const struct md_content_manifest *m, const char *name)
{
	for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
		const struct md_buf folder = {.data = (uint8_t *)name, .size = (size_t)(slash - name)};
		if (bsearch(&folder, m->files, m->file_count, sizeof(*m->files), find_file))
			return true;
	}
	return false;
}

static enum md_status read_file(struct md_content_manifest *m, const json_t *from, struct md_error *err)
{
	const json_t *size = json_object_get(from, "size"), *text = json_object_get(from, "name");
	const char *name = json_string_value(text);
	json_int_t bytes = json_integer_value(size);
	const struct md_content_file *last = m->file_count ? &m->files[m->file_count - 1] : NULL;
	if (!name || strlen(name) != json_string_length(text) || !md_content_is_name(name))
		return md_error_set(err, MD_ERR_CORRUPT,
				    "manifest: files[%u].name: \"%.200s\": a relative path is wanted, without \"..\" "
				    "and control characters",
				    m->file_count, name ? name : "");
	if (last && strcmp(last->name, name) >= 0)
		return md_error_set(err, MD_ERR_CORRUPT,
				    "manifest: files[%u].name: \"%.200s\" is not behind \"%.200s\"", m->file_count,
				    name, last->name);
	if (!json_is_integer(size) || bytes < 0 || (uint64_t)bytes > MD_CONTENT_BYTES_MAX - m->bytes)
		return md_error_set(err, MD_ERR_CORRUPT,
				    "manifest: files[%u].size: a number of bytes is wanted, of at most 4 TiB together",
				    m->file_count);
	m->files[m->file_count++] = (struct md_content_file){.name = name, .size = (uint64_t)bytes, .offset = m->bytes};
	m->bytes += (uint64_t)bytes;
	return MD_OK;
}

static enum md_status read_files(struct md_content_manifest *m, struct md_error *err)
{
	const json_t *list = json_object_get(m->root, "files"), *from;
	size_t i;
	if (!json_is_array(list) || !json_array_size(list) || json_array_size(list) > MD_CONTENT_FILES_MAX)
		return md_error_set(err, MD_ERR_CORRUPT, "manifest: files: a list of 1 to %u is wanted",
				    MD_CONTENT_FILES_MAX);
	m->files = calloc(json_array_size(list), sizeof(*m->files));
	if (!m->files)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the files of a manifest");
	json_array_foreach(list, i, from) MD_FORWARD(read_file(m, from, err));
	for (i = 0; i < m->file_count; i++)
		if (is_below_file(m, m->files[i].name))
			return md_error_set(err, MD_ERR_CORRUPT,
					    "manifest: files[%zu].name: \"%.200s\" is in a folder that is a file, too",
					    i, m->files[i].name);
	return MD_OK;
}

static enum md_status read_blocks(struct md_content_manifest *m, struct md_error *err)
{
	const json_t *text = json_object_get(m->root, "blocks");
	size_t digits = json_string_length(text), used = 0;
	m->block_count = (uint32_t)((m->bytes + MD_CONTENT_BLOCK - 1) / MD_CONTENT_BLOCK);
	if (!json_is_string(text) || digits != (size_t)m->block_count * sizeof(*m->blocks) * 2)
		return md_error_set(err, MD_ERR_CORRUPT, "manifest: blocks: hashes of %u blocks are wanted",
				    m->block_count);
	m->blocks = calloc((size_t)m->block_count + 1, sizeof(*m->blocks));
	if (!m->blocks)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the hashes of a manifest");
	if (sodium_hex2bin((unsigned char *)m->blocks, (size_t)m->block_count * sizeof(*m->blocks),
			   json_string_value(text), digits, NULL, &used, NULL) ||
	    used != (size_t)m->block_count * sizeof(*m->blocks))
		return md_error_set(err, MD_ERR_CORRUPT, "manifest: blocks: hexadecimal digits are wanted");
	return MD_OK;
}

enum md_status md_content_manifest_read(const char *text, size_t size, struct md_content_manifest *manifest,
					struct md_error *err)
{
	json_error_t error;
	*manifest = (struct md_content_manifest){.root = md_jansson_parse(text, size, JSON_REJECT_DUPLICATES, &error)};
	const json_t *root = manifest->root;
	enum md_status status = MD_OK;
	if (!root && json_error_code(&error) == json_error_out_of_memory)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a manifest");
	if (!json_is_object(root))
		status = md_error_set(err, MD_ERR_CORRUPT, "manifest: it is no JSON object: %.100s",
				      root ? "another value" : error.text);
	else if (json_integer_value(json_object_get(root, "format")) != FORMAT)
		status = md_error_set(err, MD_ERR_VERSION, "manifest: format: %lld, and this version reads %d",
				      (long long)json_integer_value(json_object_get(root, "format")), FORMAT);
	else if (json_integer_value(json_object_get(root, "block_bytes")) != MD_CONTENT_BLOCK)
		status = md_error_set(err, MD_ERR_CORRUPT, "manifest: block_bytes: %u is wanted", MD_CONTENT_BLOCK);
	if (status == MD_OK)
		status = read_files(manifest, err);
	if (status == MD_OK)
		status = read_blocks(manifest, err);
	if (status != MD_OK)
		md_content_manifest_finish(manifest);
	return status;
}

void md_content_manifest_finish(struct md_content_manifest *manifest)
{
	json_decref(manifest->root);
	free(manifest->files);
	free(manifest->blocks);
	*manifest = (struct md_content_manifest){0};
}

/* ---- blocks ---- */

uint64_t md_content_block_offset(uint32_t block)
{
	return (uint64_t)block * MD_CONTENT_BLOCK;
}

uint32_t md_content_block_size(const struct md_content_manifest *manifest, uint32_t block)
{
	uint64_t rest = manifest->bytes - md_content_block_offset(block);
	return rest < MD_CONTENT_BLOCK ? (uint32_t)rest : MD_CONTENT_BLOCK;
}
