/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas and pools: blocks are zero, aligned and apart, however large they are, and huge pages take few page faults. */
#include <criterion/criterion.h>
#include <string.h>
#include <sys/resource.h>

#include "base/file.h"
#include "format/artifact/artifact.h"

static void assert_blocks(void **arena)
{
	static const size_t sizes[] = {1, 16, 0, 17, 4096, 1 << 20, 3, 40 << 20, 8};
	uint8_t *blocks[sizeof(sizes) / sizeof(*sizes)];
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		blocks[i] = md_arena_alloc(arena, sizes[i]);
		cr_assert(blocks[i] && (uintptr_t)blocks[i] % 16 == 0, "block %zu: %p", i, (void *)blocks[i]);
		for (size_t at = 0; at < sizes[i]; at++)
			cr_assert(!blocks[i][at], "block %zu: byte %zu is not zero", i, at);
		memset(blocks[i], (int)i + 1, sizes[i]);
	}
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		cr_assert(!sizes[i] || (blocks[i][0] == i + 1 && blocks[i][sizes[i] - 1] == i + 1),
			  "block %zu is overwritten by another one", i);
	md_arena_free(arena);
	cr_assert_null(*arena);
}

Test(arena, ordinary)
{
	void *arena = NULL;
	assert_blocks(&arena);
}

Test(arena, pool)
{
	void *arena = NULL;
	md_arena_open_pool(&arena); /* none with sanitizers: an ordinary arena takes its place */
	assert_blocks(&arena);
}

Test(arena, pool_counts_bytes_that_are_used)
{
	void *arena = NULL;
	if (!md_arena_open_pool(&arena))
		cr_skip("no pool in this build");
	cr_assert_eq(md_arena_need(&arena, 100), 112, "a pool's addresses are not memory");
	cr_assert_eq(md_arena_need(&arena, 100 << 20), 100 << 20);
	cr_assert_eq(md_arena_need(&arena, SIZE_MAX), SIZE_MAX);
	md_arena_free(&arena);
}

static bool has_huge_pages(void)
{
	struct md_file_bytes file;
	struct md_error err;
	if (md_file_read_stream("/sys/kernel/mm/transparent_hugepage/enabled", 4096, &file, &err) != MD_OK)
		return false;
	bool has = file.size && !memmem(file.data, file.size, "[never]", 7);
	md_file_release(&file);
	return has;
}

Test(arena, pool_takes_few_page_faults)
{
	struct rusage before, after;
	void *arena = NULL;
#ifdef __SANITIZE_THREAD__
	cr_skip("the thread sanitizer has pages of its own for these");
#endif
	if (!has_huge_pages() || !md_arena_open_pool(&arena))
		cr_skip("no huge pages on this machine, or no pool in this build");
	getrusage(RUSAGE_SELF, &before);
	for (int i = 0; i < 16; i++)
		memset(md_arena_alloc(&arena, 1 << 20), 1, 1 << 20);
	getrusage(RUSAGE_SELF, &after);
	printf("%ld page faults for 16 MiB\n", after.ru_minflt - before.ru_minflt);
	cr_assert_lt(after.ru_minflt - before.ru_minflt, 2048, "%ld page faults for 16 MiB",
		     after.ru_minflt - before.ru_minflt);
	md_arena_free(&arena);
}
