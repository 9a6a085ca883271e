/* SPDX-License-Identifier: Apache-2.0 */
/* YAML as the worker's configuration reads it: types, anchors, merges, bounds; and files that are put together. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tests/worker_config_fixture.h"
#include "worker/config/tree.h"

static char *json_of(const char *text)
{
	struct md_forest forest = {0};
	struct md_error err = {0};
	struct md_tree *root;
	cr_assert_eq(md_tree_parse(&forest, "t.yaml", text, strlen(text), &root, &err), MD_OK, "%s", err.message);
	json_t *value = md_tree_json(root);
	char *dumped = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(6));
	json_decref(value);
	md_arena_finish(&forest.arena);
	cr_assert_not_null(dumped, "%s", text);
	return dumped;
}

static void assert_json(const char *text, const char *wanted)
{
	MD_AUTO_FREE char *dumped = json_of(text);
	cr_assert_str_eq(dumped, wanted);
}

static void assert_refused(const char *text, size_t bytes, const char *message)
{
	struct md_forest forest = {0};
	struct md_error err = {0};
	struct md_tree *root;
	cr_assert_neq(md_tree_parse(&forest, "t.yaml", text, bytes, &root, &err), MD_OK, "was read: %s", text);
	cr_assert(strstr(err.message, message), "'%s' is not in '%s'", message, err.message);
	md_arena_finish(&forest.arena);
}

/* ---- types ---- */

Test(worker_config_tree, scalars_have_types)
{
	assert_json("a: [1, -2, +3, 0x1f, 0o17, 0b11, 017, 1_000, 0]", "{\"a\":[1,-2,3,31,15,3,15,1000,0]}");
	assert_json("a: [1.5, -.5, 1e3, 2., 99999999999999999999]", "{\"a\":[1.5,-0.5,1000.0,2.0,1e20]}");
	assert_json("a: [true, False, TRUE, yes, on, y]", "{\"a\":[true,false,true,\"yes\",\"on\",\"y\"]}");
	assert_json("a: [~, null, Null, '']\nb:", "{\"a\":[null,null,null,\"\"],\"b\":null}");
	assert_json("a: ['1', \"true\", 1.2.3, 2024-01-02, -, 0x, e5, '~', 1-2, .]",
		    "{\"a\":[\"1\",\"true\",\"1.2.3\",\"2024-01-02\",\"-\",\"0x\",\"e5\",\"~\",\"1-2\",\".\"]}");
	assert_json("a: [!!str 1, !!int '2', !mine 3, !!bool 'true']", "{\"a\":[\"1\",2,\"3\",true]}");
	assert_json("1: x\ntrue: y\n", "{\"1\":\"x\",\"true\":\"y\"}");
	assert_json("", "{}");
	assert_json("---\n...\n", "{}");
	assert_json("a: |\n  x\n  y\nb: >\n  x\n  y\n", "{\"a\":\"x\\ny\\n\",\"b\":\"x y\\n\"}");
}

/* ---- anchors, aliases, merges ---- */

Test(worker_config_tree, aliases_and_merges)
{
	assert_json("a: &x {p: 1, q: [2]}\nb: *x\n", "{\"a\":{\"p\":1,\"q\":[2]},\"b\":{\"p\":1,\"q\":[2]}}");
	assert_json("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\n", "{\"a\":{\"p\":1,\"q\":2},\"b\":{\"q\":3,\"p\":1}}");
	assert_json("a: &x {p: 1}\nb: &y {p: 2, q: 2}\nc: {<<: [*x, *y], r: 3}\n",
		    "{\"a\":{\"p\":1},\"b\":{\"p\":2,\"q\":2},\"c\":{\"r\":3,\"p\":1,\"q\":2}}");
	assert_json("a: {<<: &x {p: 1}, q: 2}\nb: *x\n", "{\"a\":{\"q\":2,\"p\":1},\"b\":{\"p\":1}}");
	assert_json("a: &x 1\nb: &x 2\nc: *x\n", "{\"a\":1,\"b\":2,\"c\":2}");
	assert_json("&k key: 1\nb: *k\n", "{\"key\":1,\"b\":\"key\"}");
	assert_json("'<<': 1\n", "{\"<<\":1}");
	assert_json("a: &x {m: &y {n: 1}}\nb: {<<: *x}\nc: {<<: *y}\n",
		    "{\"a\":{\"m\":{\"n\":1}},\"b\":{\"m\":{\"n\":1}},\"c\":{\"n\":1}}");
}

Test(worker_config_tree, wrong_documents_are_refused)
{
	static const struct refusal refusals[] = {
	    {"a: 1\nb: *x\n", "t.yaml:2: *x: no value before this one has the anchor &x"},
	    {"a: &x [*x]\n", "t.yaml:1: *x: no value before this one"},
	    {"a: 1\nb: 2\na: 3\n", "t.yaml:3: the key \"a\" is there already, in line 1"},
	    {"a: {<<: 5}\n", "t.yaml:1: << takes a mapping or a list of mappings"},
	    {"a: {<<: {x: 1}, <<: {y: 1}}\n", "<< is there twice; give it a list"},
	    {"? [a]\n: 1\n", "t.yaml:1: a key that is not a single value"},
	    {"- a\n", "t.yaml:1: keys are wanted, \"name: value\""},
	    {"a: 1\n---\nb: 2\n", "t.yaml:2: a second document begins here"},
	    {"a: [1\n", "t.yaml:2: "},
	    {"a: \"\\0\"\n", "t.yaml:1: a text with a zero byte in it"},
	    {"a: \xff\n", "t.yaml: byte 3: "},
	    {"a: &x [&y [&z [z]]]\nb: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n",
	     "t.yaml:2: values nested more than 32 deep"},
	};
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
		assert_refused(refusals[i].text, strlen(refusals[i].text), refusals[i].message);
}

Test(worker_config_tree, bombs_are_refused)
{
	char text[4096] = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
	size_t used = strlen(text);
	for (int i = 1; i < 9; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used,
					 "a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i,
					 i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
	assert_refused(text, used, "more than 500000 values");
	used = (size_t)snprintf(text, sizeof(text), "a0: &a0 [x]\n");
	for (int i = 1; i < 50; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "a%d: &a%d [*a%d]\n", i, i, i - 1);
	assert_refused(text, used, "values nested more than 32 deep");
}

Test(worker_config_tree, large_files_are_refused)
{
	size_t bytes = (4u << 20) + 1;
	MD_AUTO_FREE char *text = malloc(bytes + 1);
	memset(text, '#', bytes);
	text[bytes] = '\0';
	assert_refused(text, bytes, "t.yaml: 4194305 bytes, over 4 MiB");
	memcpy(text, "a: ", 3);
	memset(text + 3, 'x', bytes - 3);
	assert_refused(text, bytes - 2, "a text of over 256 KiB");
}

/* ---- files ---- */

static char folder[] = "/tmp/worker-config-XXXXXX";

static void make_folder(void)
{
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void)
{
	char command[64];
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	cr_assert_eq(system(command), 0);
}

static void put(const char *name, const char *text)
{
	char path[128];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	FILE *file = fopen(path, "w");
	cr_assert_not_null(file);
	fputs(text, file);
	fclose(file);
}

static void assert_folder_refused(const char *message)
{
	struct md_error err = {0};
	cr_assert_null(md_worker_config_create(NULL, folder, &err));
	cr_assert(strstr(err.message, message), "'%s' is not in '%s'", message, err.message);
}

Test(worker_config_tree, files_of_a_folder_are_united, .init = make_folder, .fini = remove_folder)
{
	struct md_error err = {0};
	put("20.yaml", "apiKeys: [c]\nmodels: {b: {cmd: 'x ${PORT} ${m}'}}\nlogLevel: warn\n");
	put("10.yml", "apiKeys: [a, b]\nmacros: {m: 1}\nmodels: {a: {cmd: 'x ${PORT} ${m}'}}\nlogLevel: warn\n");
	put("30.txt", "not: [read");
	put(".yaml", "not: [read");
	const struct md_worker_config *config = md_worker_config_create(NULL, folder, &err);
	cr_assert_not_null(config, "%s", err.message);
	cr_assert(config->model_count == 2 && config->api_keys.count == 3 && config->log_level == MD_CONFIG_LOG_WARN);
	cr_assert_str_eq(config->api_keys.items[2], "c", "in the order of the files' names");
	assert_words(model_of(config, "b")->argv, "x|5801|1");
	md_worker_config_destroy(config);
}

Test(worker_config_tree, what_files_do_not_agree_on_is_refused, .init = make_folder, .fini = remove_folder)
{
	put("1.yaml", "startPort: 1\nmodels: {a: {cmd: 'x ${PORT}'}}\napiKeys: [a]\nperformance: {every: 6s}\n");
	put("2.yaml", "startPort: 2\n");
	assert_folder_refused("startPort: ");
	assert_folder_refused("/1.yaml:1 has it already, with another value");
	put("2.yaml", "models: {a: {ttl: 5}}\n");
	assert_folder_refused("2.yaml:1: models.a: ");
	assert_folder_refused("/1.yaml:2 has it already, and it may be there once");
	put("2.yaml", "apiKeys: a\n");
	assert_folder_refused("and it is of another kind there");
	put("2.yaml", "performance: {disabled: true, every: 6s}\nstartPort: 1\n");
	md_worker_config_destroy(md_worker_config_create(NULL, folder, NULL));
	put("2.yaml", "a: [\n");
	assert_folder_refused("2.yaml:2: ");
}

Test(worker_config_tree, files_that_are_not_there, .init = make_folder, .fini = remove_folder)
{
	struct md_error err = {0};
	assert_folder_refused("there is no *.yaml or *.yml in it");
	cr_assert_null(md_worker_config_create("/not/there.yaml", NULL, &err));
	cr_assert(err.status == MD_ERR_NOT_FOUND && strstr(err.message, "/not/there.yaml"), "%s", err.message);
	cr_assert_null(md_worker_config_create(NULL, "/not/there", &err));
	cr_assert(err.status == MD_ERR_NOT_FOUND && strstr(err.message, "/not/there"), "%s", err.message);
	cr_assert_null(md_worker_config_create(NULL, NULL, &err));
	cr_assert_eq(err.status, MD_ERR_INVALID);
	cr_assert_null(md_worker_config_create(folder, NULL, &err), "a folder is no file");
}
