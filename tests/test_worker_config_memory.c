/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's configuration without memory, at each allocation in turn; and files that ask for much of it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "worker/config/config.h"

#define EXAMPLE "docs/worker-example.yaml"

/* ---- allocations that fail: the linker sends the library's calls here ---- */

static unsigned until_failure; /* 0: none fails */
static bool failed;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

static bool fails(void)
{
	if (!until_failure || --until_failure)
		return false;
	failed = true;
	return true;
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
	return fails() ? NULL : __real_realloc(old, size);
}

/* ---- tests ---- */

/* Whether the text can be read while the n-th allocation fails. */
static bool read_without(const char *text, size_t bytes, unsigned n)
{
	struct md_error err = {0};
	failed = false;
	until_failure = n;
	const struct md_worker_config *config = md_worker_config_parse("c.yaml", text, bytes, &err);
	until_failure = 0;
	if (config) {
		md_worker_config_destroy(config);
		return true;
	}
	cr_assert(failed && err.status == MD_ERR_NO_MEMORY, "allocation %u: %s", n, err.message);
	cr_assert(strstr(err.message, "out of memory for "), "%s", err.message);
	return false;
}

Test(worker_config_memory, each_allocation_may_fail)
{
	struct md_file_bytes file;
	struct md_error err = {0};
	unsigned n = 0;
	cr_assert_eq(md_file_read(EXAMPLE, 1 << 20, &file, &err), MD_OK, "%s", err.message);
	do
		cr_assert_lt(++n, 100000, "it is never read");
	while (!read_without((const char *)file.data, file.size, n) || failed);
	cr_assert_gt(n, 20, "only %u allocations", n);
	md_file_release(&file);
}

Test(worker_config_memory, folder_of_files)
{
	char folder[] = "/tmp/worker-config-XXXXXX", path[64], command[64];
	struct md_error err;
	unsigned n = 0;
	const struct md_worker_config *config;
	cr_assert_not_null(mkdtemp(folder));
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%d.yaml", folder, i);
		FILE *file = fopen(path, "w");
		cr_assert_not_null(file);
		fprintf(file, "models: {m%d: {cmd: '${PORT}'}}\nunknown: [%d]\n", i, i);
		fclose(file);
	}
	do {
		err = (struct md_error){0};
		failed = false;
		until_failure = ++n;
		config = md_worker_config_create(NULL, folder, &err);
		until_failure = 0;
		cr_assert(config || err.status == MD_ERR_NO_MEMORY, "allocation %u: %s", n, err.message);
		md_worker_config_destroy(config);
	} while (failed && n < 100000);
	cr_assert_not_null(config, "it is read when nothing fails");
	snprintf(command, sizeof(command), "rm -r %s", folder);
	cr_assert_eq(system(command), 0);
}

/* ---- much of everything: within seconds of processor time, whatever else the machine does ---- */

#define SECONDS_MAX 20

static void assert_quick(const char *what, char *text, size_t bytes)
{
	struct timespec before, after;
	struct md_error err = {0};
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	const struct md_worker_config *config = md_worker_config_parse("c.yaml", text, bytes, &err);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	cr_assert(config || *err.message, "%s: refused without saying why", what);
	md_worker_config_destroy(config);
	cr_assert_lt(after.tv_sec - before.tv_sec, SECONDS_MAX, "%s takes too long", what);
}

/* Fills a file with as many pieces as fit; %u is the piece's number, up to three times. */
static void assert_pieces_are_quick(const char *head, const char *piece, unsigned every, const char *tail)
{
	size_t room = 4u << 20, used;
	MD_AUTO_FREE char *text = malloc(room);
	used = (size_t)snprintf(text, room, "%s", head);
	for (unsigned i = 0; used + 400 + strlen(tail) < room; i++) {
		unsigned number = every ? i / every : i;
		int length = snprintf(text + used, 400, piece, number, number, number);
		used += (size_t)length;
	}
	used += (size_t)snprintf(text + used, room - used, "%s", tail);
	assert_quick(piece, text, used);
}

Test(worker_config_memory, large_files_take_no_long_time)
{
	assert_pieces_are_quick("", "k%u: 1\n", 0, "");
	assert_pieces_are_quick("a: [", "&a%u x, ", 0, "]\n");
	assert_pieces_are_quick("a: &a x\nb: [", "*a, ", 0, "]\n");
	assert_pieces_are_quick("a: {", "? [", 0, "");
	assert_pieces_are_quick("macros: {m: 'xxxxxxxxxxxxxxxx'}\nmodels:\n  m:\n    cmd: ${PORT}\n    metadata: [",
				"'${m}${m}',", 0, "]\n");
	assert_pieces_are_quick("models:\n  m:\n    cmd: ${PORT}\n    aliases: [", "a%u,", 0, "]\n");
	assert_pieces_are_quick("models:\n  m:\n    cmd: ${PORT}\n    filters: {setParamsByID: {", "a%u: {},", 0,
				"}}\n");
	assert_pieces_are_quick("models:\n", "  m%u: {cmd: '${PORT}', env: [A=1, B=2], metadata: {a: {b: [1]}}}\n", 0,
				"");
	assert_pieces_are_quick("models: {a: {cmd: '${PORT}'}}\nmatrix: {vars: {", "v%u: a,", 0, "}, sets: {s: a}}\n");
	assert_pieces_are_quick("models: {a: {cmd: '${PORT}'}}\nmatrix: {sets: {", "s%u: a,", 0, "}}\n");
	assert_pieces_are_quick("models: {a: {cmd: '${PORT}'}}\ngroups: {", "g%u: {members: []},", 0, "}\n");
	assert_pieces_are_quick("medusa: {tenants: [", "{name: t%u, keys: [k%u]},", 0, "]}\n");
	assert_pieces_are_quick("peers: {p: {proxy: 'http://p', models: [", "m%u,", 0, "]}}\n");
	assert_pieces_are_quick("peers: {", "p%u: {proxy: 'http://p', models: [m]},", 0, "}\n");
	assert_pieces_are_quick("models: {a: {cmd: '${PORT}'}}\nselectors: {", "s%u: {strategy: pin, targets: [a]},", 0,
				"}\n");
	assert_pieces_are_quick("models: {a: {cmd: '${PORT}'}}\nprofiles: {p: {pins: {", "s%u: a,", 0, "}}}\n");
	assert_pieces_are_quick("upstream: {ignorePaths: [", "x%u,", 0, "]}\n");
	assert_pieces_are_quick("apiKeys: [", "x%u,", 0, "]\n");
	assert_pieces_are_quick("macros: {", "m%u: x,", 0, "}\n");
	assert_pieces_are_quick("models: {a: {cmd: '${PORT}'}}\nhooks: {on_startup: {preload: [", "a,", 0, "]}}\n");
}
