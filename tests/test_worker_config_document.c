/* SPDX-License-Identifier: Apache-2.0 */
/* docs/worker-config.md names every key that the code knows, with its default, and no other; its examples are read. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "worker/config/keys.h"

#define DOCUMENT "docs/worker-config.md"
#define EXAMPLE "docs/worker-example.yaml"

static char *document;
static struct md_forest forest;

static void read_document(void)
{
	struct md_file_bytes file;
	struct md_error err = {0};
	cr_assert_eq(md_file_read(DOCUMENT, 1 << 20, &file, &err), MD_OK, "%s", err.message);
	document = (char *)file.data;
}

static void free_document(void)
{
	free(document);
	md_arena_finish(&forest.arena);
}

/* The row of a key: what follows "| `KEY` | "; NULL: there is none. */
static const char *find_row(const char *path, const char *name)
{
	char start[160];
	snprintf(start, sizeof(start), "\n| `%s%s` | ", path, name);
	const char *row = strstr(document, start);
	return row ? row + strlen(start) : NULL;
}

static bool code_has(const char *key)
{
	for (const struct md_config_keys *const *table = md_config_tables; *table; table++)
		for (size_t i = 0; i < (*table)->count; i++) {
			size_t prefix = strlen((*table)->path);
			if (!strncmp((*table)->path, key, prefix) && !strcmp((*table)->keys[i].name, key + prefix))
				return true;
		}
	return false;
}

Test(worker_config_document, keys_of_the_code_are_documented, .init = read_document, .fini = free_document)
{
	for (const struct md_config_keys *const *table = md_config_tables; *table; table++)
		for (size_t i = 0; i < (*table)->count; i++) {
			const struct md_config_key *key = &(*table)->keys[i];
			const char *row = find_row((*table)->path, key->name);
			char wanted[96];
			cr_assert_not_null(row, DOCUMENT " has no row for %s%s", (*table)->path, key->name);
			snprintf(wanted, sizeof(wanted), key->standard ? "`%s` | " : "- | ", key->standard);
			cr_assert(strncmp(row, wanted, strlen(wanted)) == 0, DOCUMENT ": the default of %s%s is %s",
				  (*table)->path, key->name, wanted);
			if (key->note)
				cr_assert(memmem(row, strcspn(row, "\n"), "no effect", 9),
					  DOCUMENT ": %s%s has no effect, and its row does not say so", (*table)->path,
					  key->name);
		}
}

Test(worker_config_document, documented_keys_are_known, .init = read_document, .fini = free_document)
{
	size_t rows = 0;
	for (const char *at = document; (at = strstr(at, "\n| `")); rows++) {
		char key[160];
		at += 4;
		snprintf(key, sizeof(key), "%.*s", (int)strcspn(at, "`"), at);
		cr_assert(code_has(key), DOCUMENT " names %s, which the code does not know", key);
	}
	cr_assert_gt(rows, 100);
}

/* ---- examples ---- */

/* The nodes below `node` that a pattern such as "models.*.ttl" or "medusa.gpus[].uuid" means: is there one? */
static bool has_pattern(const struct md_tree *node, const char *pattern)
{
	size_t length = strcspn(pattern, ".");
	bool items = length > 2 && !strncmp(pattern + length - 2, "[]", 2), any = *pattern == '*';
	const char *rest = pattern + length + (pattern[length] == '.');
	if (!*pattern)
		return true;
	for (const struct md_tree *at = node->first; at; at = at->next) {
		size_t name = items ? length - 2 : length;
		if (!any && (!at->key || strlen(at->key) != name || strncmp(at->key, pattern, name)))
			continue;
		if (!items && has_pattern(at, rest))
			return true;
		for (const struct md_tree *item = items ? at->first : NULL; item; item = item->next)
			if (has_pattern(item, rest))
				return true;
	}
	return false;
}

static struct md_tree *read_example(const char *name, const char *text, size_t bytes)
{
	struct md_error err = {0};
	struct md_tree *root;
	const struct md_worker_config *config = md_worker_config_parse(name, text, bytes, &err);
	cr_assert_not_null(config, "%s", err.message);
	for (uint32_t i = 0; i < config->note_count; i++)
		cr_assert(!strstr(config->notes[i].text, "not known") || !strncmp(config->notes[i].path, "x-", 2),
			  "%s: %s", config->notes[i].path, config->notes[i].text);
	md_worker_config_destroy(config);
	cr_assert_eq(md_tree_parse(&forest, name, text, bytes, &root, &err), MD_OK);
	return root;
}

Test(worker_config_document, examples_are_read_and_have_all_keys, .init = read_document, .fini = free_document)
{
	struct md_tree *roots[16];
	size_t count = 0;
	struct md_file_bytes file;
	struct md_error err = {0};
	cr_assert_eq(md_file_read(EXAMPLE, 1 << 20, &file, &err), MD_OK, "%s", err.message);
	roots[count++] = read_example(EXAMPLE, (const char *)file.data, file.size);
	md_file_release(&file);
	for (const char *at = document; (at = strstr(at, "```yaml\n")) && count < 16;) {
		const char *end = strstr(at += 8, "```");
		cr_assert_not_null(end);
		roots[count++] = read_example(DOCUMENT, at, (size_t)(end - at));
	}
	for (const struct md_config_keys *const *table = md_config_tables; *table; table++)
		for (size_t i = 0; i < (*table)->count; i++) {
			char pattern[160];
			bool found = false;
			snprintf(pattern, sizeof(pattern), "%s%s", (*table)->path, (*table)->keys[i].name);
			for (size_t root = 0; root < count; root++)
				found |= has_pattern(roots[root], pattern);
			cr_assert(found, "no example has %s", pattern);
		}
}
