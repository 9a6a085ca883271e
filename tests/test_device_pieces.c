/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of copies, comparisons and fills: what one launch does is what single calls would, and a wrong kernel is not used. */
#include "driver/device_pieces.h"
#include "tests/device_session_fixture.h"

#define PARTS 300u
#define PART 3001u /* bytes; an odd number, so that most parts are not aligned */
#define LARGE (5u << 20)

static void open_right(void)
{
	open_with("probe");
	cr_assert(session.pieces, "the kernel passes its own test");
}

TestSuite(device_pieces, .init = open_right, .fini = finish, .timeout = 120);

static uint8_t *pattern(size_t size, uint32_t seed)
{
	uint8_t *bytes = malloc(size);
	cr_assert(bytes, "memory for the test");
	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)((i + seed) * 2654435761u >> 11);
	return bytes;
}

static CUdeviceptr upload(const uint8_t *bytes, size_t size)
{
	CUdeviceptr memory;
	ok(md_cuda.cuMemAlloc_v2(&memory, size));
	ok(md_cuda.cuMemcpyHtoD_v2(memory, bytes, size));
	ok(md_cuda.cuCtxSynchronize());
	return memory;
}

static void assert_holds(CUdeviceptr memory, const uint8_t *bytes, size_t size)
{
	uint8_t *now = malloc(size);
	cr_assert(now, "memory for the test");
	ok(md_cuda.cuMemcpyDtoH_v2(now, memory, size));
	cr_assert(!memcmp(now, bytes, size), "the bytes that single copies would leave");
	free(now);
}

/* Parts change places: the first one goes to where the last one was. */
Test(device_pieces, many_copies_of_any_alignment_are_one_launch)
{
	uint8_t *bytes = pattern(PARTS * PART, 1), *expected = calloc(PARTS, PART);
	CUdeviceptr from = upload(bytes, PARTS * PART), to = upload(expected, PARTS * PART);
	md_device_batch_begin(&session);
	for (uint32_t i = 0; i < PARTS; i++) {
		uint32_t other = (PARTS - 1 - i) * PART;
		done(md_device_batch_copy(&session, to + other, from + i * PART, PART, &err));
		memcpy(expected + other, bytes + i * PART, PART);
	}
	cr_assert_eq(session.pieces_launched, 0, "nothing is launched yet");
	done(md_device_batch_wait(&session, &err));
	assert_holds(to, expected, PARTS * PART);
	free(bytes);
	free(expected);
}

/* Each part differs in one byte, in another grain; parts of more than one piece, too. */
Test(device_pieces, the_grains_that_differ_are_found)
{
	uint8_t *bytes = pattern(LARGE, 2);
	const size_t grains = LARGE / MD_DEVICE_GRAIN;
	CUdeviceptr one = upload(bytes, LARGE);
	for (size_t at = 5; at < LARGE; at += 300007)
		bytes[at] ^= 0x10;
	CUdeviceptr two = upload(bytes, LARGE);
	md_device_batch_begin(&session);
	done(md_device_differ_begin(&session, grains, &err));
	done(md_device_batch_differ(&session, one, two, LARGE / 2, 0, &err));
	done(md_device_batch_differ(&session, one + LARGE / 2, two + LARGE / 2, LARGE / 2, grains / 2, &err));
	done(md_device_batch_launch(&session, &err));
	done(md_device_differ_end(&session, grains, &err));
	for (size_t i = 0; i < grains; i++) {
		size_t first = (i * MD_DEVICE_GRAIN + 300007 - 5 - 1) / 300007 * 300007 + 5;
		bool differs = i * MD_DEVICE_GRAIN <= 5 || first < (i + 1) * MD_DEVICE_GRAIN;
		cr_assert_eq(session.flag_bytes[i], differs, "grain %zu", i);
	}
	free(bytes);
}

Test(device_pieces, a_fill_repeats_its_word_from_the_first_byte_on)
{
	uint8_t *expected = pattern(PART, 3);
	CUdeviceptr memory = upload(expected, PART);
	md_device_batch_begin(&session);
	done(md_device_batch_fill(&session, memory + 1, 0x44332211u, 1001, &err));
	done(md_device_batch_fill(&session, memory + 1008, 0x88776655u, 1024, &err));
	done(md_device_batch_wait(&session, &err));
	for (uint32_t i = 0; i < 1001; i++)
		expected[1 + i] = (uint8_t)(0x11 * (i % 4 + 1));
	for (uint32_t i = 0; i < 1024; i++)
		expected[1008 + i] = (uint8_t)(0x55 + 0x11 * (i % 4));
	assert_holds(memory, expected, PART);
	free(expected);
}

Test(device_pieces, more_pieces_than_the_table_holds_are_several_launches)
{
	const uint32_t count = 20000;
	uint8_t *bytes = pattern(count * 16, 4), *zeros = calloc(count, 16);
	CUdeviceptr from = upload(bytes, count * 16), to = upload(zeros, count * 16);
	md_device_batch_begin(&session);
	for (uint32_t i = 0; i < count; i++)
		done(md_device_batch_copy(&session, to + i * 16, from + i * 16, 16, &err));
	done(md_device_batch_wait(&session, &err));
	assert_holds(to, bytes, count * 16);
	free(bytes);
	free(zeros);
}

Test(device_pieces, what_was_not_launched_is_forgotten)
{
	uint8_t *bytes = pattern(PART, 5), *zeros = calloc(1, PART);
	CUdeviceptr from = upload(bytes, PART), to = upload(zeros, PART);
	md_device_batch_begin(&session);
	done(md_device_batch_copy(&session, to, from, PART, &err));
	md_device_batch_begin(&session);
	done(md_device_batch_wait(&session, &err));
	assert_holds(to, zeros, PART);
	free(bytes);
	free(zeros);
}

/* ---- without the kernel ---- */

TestSuite(device_pieces_alone, .fini = finish, .timeout = 120);

static void assert_copies_alone(void)
{
	uint8_t *bytes = pattern(PART, 6), *zeros = calloc(1, PART);
	cr_assert(!session.pieces, "the kernel is not used");
	CUdeviceptr from = upload(bytes, PART), to = upload(zeros, PART);
	md_device_batch_begin(&session);
	done(md_device_batch_copy(&session, to, from, PART, &err));
	done(md_device_batch_wait(&session, &err));
	assert_holds(to, bytes, PART);
	free(bytes);
	free(zeros);
}

Test(device_pieces_alone, a_kernel_that_leaves_the_last_byte_is_not_used)
{
	open_with("wrong_pieces");
	cr_assert(!on_hostcuda() || session.differ, "the kernel that compares is right");
	if (on_hostcuda())
		assert_copies_alone();
}

Test(device_pieces_alone, without_a_kernel_copies_are_made_one_by_one)
{
	device_open();
	setenv("MEDUSA_PROBE_KERNEL", "none", 1);
	cr_assert_eq(md_device_session_open(&session, UINT64_MAX, &err), MD_OK, "%s", err.message);
	assert_copies_alone();
}
