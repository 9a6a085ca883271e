/* SPDX-License-Identifier: Apache-2.0 */
/* Which differences of a restored graph live replays explain: values that they leave too, and sums that scatter. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "driver/cuda_driver.h"
#include "restore/restore.h"

#define SIZE 8192u

static uint8_t first[SIZE], now[SIZE], restored[SIZE]; /* device memory, as far as these tests go */
static uint8_t staging[MD_VERIFY_CHUNK];
static unsigned copies;

static CUresult CUDAAPI copy(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
	(void)stream;
	copies++;
	memcpy(to, (const void *)(uintptr_t)from, size);
	return CUDA_SUCCESS;
}

static CUresult CUDAAPI synchronize(CUstream stream)
{
	(void)stream;
	return CUDA_SUCCESS;
}

struct look {
	struct md_verify_buffer buffer;
	struct md_verify_memory memory;
	struct md_live_output output;
	struct md_verify_outputs outputs;
	struct md_verify_doubt doubt;
	struct md_error err;
};

static void look_init(struct look *look)
{
	*look = (struct look){.buffer = {.name = "values", .address = (uintptr_t)now, .size = SIZE},
			      .memory = {.count = 1, .device.now = staging},
			      .output = {(uintptr_t)now, SIZE},
			      .outputs = {.count = 1}};
	look->memory.buffers = &look->buffer;
	look->outputs.live = &look->output;
	memset(first, 10, SIZE);
	memset(now, 10, SIZE);
	memset(restored, 10, SIZE);
	md_cuda.cuMemcpyDtoHAsync_v2 = copy;
	md_cuda.cuStreamSynchronize = synchronize;
	copies = 0;
}

static void add(struct look *look, uint32_t place)
{
	md_verify_doubt_add(&look->doubt, place, 0, first, restored, SIZE);
}

/* One more live replay, after which the byte holds this. */
static void replay(struct look *look, size_t at, uint8_t value)
{
	now[at] = value;
	cr_assert(md_verify_doubt_take(&look->doubt, &look->memory, &look->outputs, NULL, &look->err) == MD_OK, "%s",
		  look->err.message);
}

static void assert_answer(struct look *look, enum md_doubt_answer expected, const char *why)
{
	cr_assert_eq(md_verify_doubt_ask(&look->doubt), expected, "%s", why);
}

Test(verify_doubt, a_value_that_a_live_replay_leaves)
{
	struct look look;
	look_init(&look);
	restored[100] = 12;
	add(&look, 0);
	assert_answer(&look, MD_DOUBT_NONE, "one live replay says nothing");
	replay(&look, 100, 10);
	assert_answer(&look, MD_DOUBT_NONE, "two that agree");
	replay(&look, 100, 11);
	assert_answer(&look, MD_DOUBT_SOME, "they differ, but never left the restored value");
	replay(&look, 100, 12);
	assert_answer(&look, MD_DOUBT_ALL, "now one did");
	md_verify_doubt_say_all(&look.doubt, &look.memory, &look.err);
	cr_assert_str_eq(look.err.message, "1 bytes of buffer \"values\" differ between two live replays, the first at "
					   "offset 100 (4 live replays)");
	md_verify_doubt_finish(&look.doubt);
}

Test(verify_doubt, should_fail_a_value_that_none_leaves)
{
	struct look look;
	look_init(&look);
	restored[100] = 99;
	add(&look, 0);
	for (uint8_t run = 0; run < 40; run++)
		replay(&look, 100, 10 + run % 3);
	assert_answer(&look, MD_DOUBT_SOME, "three rows race, and the value is none of theirs");
	md_verify_doubt_say_some(&look.doubt, &look.memory, &look.err);
	cr_assert(strstr(look.err.message, "buffer \"values\" differs at offset 100: restored 63, which none of 41"),
		  "%s", look.err.message);
	md_verify_doubt_finish(&look.doubt);
}

Test(verify_doubt, should_fail_other_bytes)
{
	struct look look;
	look_init(&look);
	restored[100] = 11;
	restored[SIZE - 1] = 11;
	add(&look, 0);
	for (uint8_t run = 0; run < 40; run++)
		replay(&look, 100, 10 + run % 2);
	assert_answer(&look, MD_DOUBT_SOME, "the last byte is always the same");
	md_verify_doubt_say_some(&look.doubt, &look.memory, &look.err);
	cr_assert(strstr(look.err.message, "at offset 8191: "), "%s", look.err.message);
	md_verify_doubt_finish(&look.doubt);
}

Test(verify_doubt, sums_that_scatter)
{
	struct look look;
	look_init(&look);
	restored[100] = 250;
	add(&look, MD_VERIFY_OUTPUT);
	for (uint8_t run = 0; run < 6; run++)
		replay(&look, 100, 20 + run);
	assert_answer(&look, MD_DOUBT_SOME, "too few to say so");
	replay(&look, 100, 30);
	assert_answer(&look, MD_DOUBT_ALL, "each replay brings a value of its own");
	md_verify_doubt_say_all(&look.doubt, &look.memory, &look.err);
	cr_assert(strstr(look.err.message, "1 bytes of output 0 differ"), "%s", look.err.message);
	md_verify_doubt_finish(&look.doubt);
}

Test(verify_doubt, far_bytes_and_both_twins)
{
	struct look look;
	look_init(&look);
	restored[0] = restored[5000] = 11;
	add(&look, MD_VERIFY_OUTPUT);
	add(&look, 0);
	add(&look, 0);
	now[0] = 11;
	replay(&look, 5000, 11);
	cr_assert_eq(copies, 4, "two places, two copies each: %u", copies);
	assert_answer(&look, MD_DOUBT_ALL, "each of them");
	md_verify_doubt_say_all(&look.doubt, &look.memory, &look.err);
	cr_assert(strstr(look.err.message, "2 bytes of buffer \"values\" and 2 elsewhere differ"), "%s",
		  look.err.message);
	md_verify_doubt_finish(&look.doubt);
}

Test(verify_doubt, too_many_bytes)
{
	struct look look;
	look_init(&look);
	memset(restored, 11, SIZE);
	for (int i = 0; i < 1000 && !look.doubt.beyond; i++)
		add(&look, 0);
	cr_assert(look.doubt.beyond, "an end is known");
	look.doubt.runs = 2;
	assert_answer(&look, MD_DOUBT_NONE, "nothing is excused");
	md_verify_doubt_finish(&look.doubt);
}
