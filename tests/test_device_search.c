/* SPDX-License-Identifier: Apache-2.0 */
/* A search of device memory finds what a search on the host does, and a wrong kernel is not used. */
#include "driver/device_search.h"
#include "tests/device_session_fixture.h"

#define LARGE (3u << 20)
#define GRAINS (LARGE / MD_DEVICE_GRAIN)

static void open_right(void)
{
	open_with("probe");
	cr_assert(session.search, "the kernel passes its own test");
}

TestSuite(device_search, .init = open_right, .fini = finish, .timeout = 120);

/* About one word of 500 lies in the range that is looked for. */
static uint64_t *words(void)
{
	uint64_t *bytes = malloc(LARGE), state = 1;
	cr_assert(bytes, "memory for the test");
	for (size_t i = 0; i < LARGE / 8; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		bytes[i] = state >> 33;
	}
	return bytes;
}

/* From `from` on, so many bytes; flags from `flag` on. */
static void assert_found(const uint64_t *bytes, CUdeviceptr memory, size_t from, size_t size, uint64_t lowest,
			 uint64_t highest, size_t flag)
{
	size_t grains = (size + MD_DEVICE_GRAIN - 1) / MD_DEVICE_GRAIN, found = 0;
	done(md_device_differ_begin(&session, flag + grains, &err));
	done(md_device_search_launch(&session, memory + from, size, lowest, highest, flag, &err));
	done(md_device_differ_end(&session, flag + grains, &err));
	for (size_t i = 0; i < flag; i++)
		cr_assert_eq(session.flag_bytes[i], 0, "flag %zu, of no grain", i);
	for (size_t i = 0; i < grains; i++) {
		bool has = false;
		for (size_t at = i * MD_DEVICE_GRAIN; at < (i + 1) * MD_DEVICE_GRAIN && at + 8 <= size; at += 8)
			has |= bytes[(from + at) / 8] >= lowest && bytes[(from + at) / 8] < highest;
		cr_assert_eq(session.flag_bytes[flag + i], has, "grain %zu of %zu bytes from %zu on", i, size, from);
		found += has;
	}
	if (grains > 100 && highest - lowest == 1u << 22)
		cr_assert(found > grains / 10 && found < grains, "%zu of %zu grains", found, grains);
}

Test(device_search, the_grains_that_have_such_a_word_are_found)
{
	uint64_t *bytes = words();
	CUdeviceptr memory;
	ok(md_cuda.cuMemAlloc_v2(&memory, LARGE));
	ok(md_cuda.cuMemcpyHtoD_v2(memory, bytes, LARGE));
	assert_found(bytes, memory, 0, LARGE, 1u << 30, (1u << 30) + (1u << 22), 0);
	assert_found(bytes, memory, 8, LARGE - 8, 1u << 30, (1u << 30) + (1u << 22), 7);
	assert_found(bytes, memory, 4096, 12345, 0, UINT64_MAX, 1);
	assert_found(bytes, memory, 0, LARGE, 5, 5, 0);
	assert_found(bytes, memory, 0, LARGE, 9, 5, 0);
	assert_found(bytes, memory, 16, 7, 0, UINT64_MAX, 0);
	free(bytes);
}

/* ---- without the kernel ---- */

TestSuite(device_search_alone, .fini = finish, .timeout = 120);

Test(device_search_alone, a_kernel_that_leaves_the_last_word_is_not_used)
{
	open_with("wrong_pieces");
	cr_assert(!on_hostcuda() || session.differ, "the kernel that compares is right");
	cr_assert(!on_hostcuda() || !session.search, "the kernel that searches is not");
}

Test(device_search_alone, memory_that_begins_between_words_is_not_searched)
{
	open_with("probe");
	cr_assert(md_device_search_can(&session, 4096 + 8));
	cr_assert(!md_device_search_can(&session, 4096 + 4));
}

Test(device_search_alone, without_a_kernel_nothing_is_searched)
{
	device_open();
	setenv("MEDUSA_PROBE_KERNEL", "none", 1);
	cr_assert_eq(md_device_session_open(&session, UINT64_MAX, &err), MD_OK, "%s", err.message);
	cr_assert(!md_device_search_can(&session, 4096));
}
