/* SPDX-License-Identifier: Apache-2.0 */
/* Which differences of a restored graph more replays explain: values of both kinds, spans, and what a user accepts. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "driver/cuda_driver.h"
#include "restore/restore.h"
#include "restore/verify/buffers.h"
#include "restore/verify/doubt.h"

#define SIZE 8192u

static float first[SIZE / 4], now[SIZE / 4], restored[SIZE / 4]; /* device memory, as far as these tests go */
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
	CUdeviceptr output;
	struct md_verify_doubt doubt;
	struct md_error err;
};

static void look_init(struct look *look)
{
	*look = (struct look){.buffer = {.name = "values", .address = (uintptr_t)now, .size = SIZE},
			      .memory = {.count = 1, .session.device.now = staging},
			      .output = (uintptr_t)now,
			      .doubt.tolerance.type = MD_ELEMENT_F32};
	look->memory.buffers = &look->buffer;
	for (size_t i = 0; i < SIZE / 4; i++)
		first[i] = now[i] = restored[i] = 10;
	md_cuda.cuMemcpyDtoHAsync_v2 = copy;
	md_cuda.cuStreamSynchronize = synchronize;
	copies = 0;
}

static void add(struct look *look, uint32_t place)
{
	md_verify_doubt_add(&look->doubt, place, MD_ELEMENT_UNKNOWN, 0, (uint8_t *)first, (uint8_t *)restored, SIZE);
}

static void take(struct look *look, bool is_restored)
{
	cr_assert(md_verify_doubt_take(&look->doubt, &look->memory, &look->output, is_restored, NULL, &look->err) ==
		      MD_OK,
		  "%s", look->err.message);
}

/* One more live replay, after which the element holds this. */
static void live(struct look *look, size_t at, float value)
{
	now[at] = value;
	take(look, false);
}

static void again(struct look *look, size_t at, float value)
{
	now[at] = value;
	take(look, true);
}

static void assert_answer(struct look *look, enum md_doubt_answer expected, const char *why)
{
	cr_assert_eq(md_verify_doubt_ask(&look->doubt), expected, "%s", why);
}

Test(verify_doubt, a_value_that_a_live_replay_leaves)
{
	struct look look;
	look_init(&look);
	restored[100] = 1200;
	add(&look, 0);
	assert_answer(&look, MD_DOUBT_NONE, "one live replay says nothing");
	live(&look, 100, 10);
	assert_answer(&look, MD_DOUBT_NONE, "two that agree");
	live(&look, 100, 11);
	assert_answer(&look, MD_DOUBT_SOME, "they differ, but never left the restored value");
	live(&look, 100, 1200);
	assert_answer(&look, MD_DOUBT_ALL, "now one did");
	md_verify_doubt_say_all(&look.doubt, &look.memory, &look.err);
	cr_assert(strstr(look.err.message, "1 elements of buffer \"values\" differ between live replays, the first at "
					   "offset 400 (4 live replays); --nondeterministic"),
		  "%s", look.err.message);
	md_verify_doubt_finish(&look.doubt);
}

Test(verify_doubt, should_fail_a_value_that_none_leaves)
{
	struct look look;
	look_init(&look);
	restored[100] = 99;
	add(&look, 0);
	for (int run = 0; run < 40; run++)
		live(&look, 100, 10 + (float)(run % 3));
	for (int run = 0; run < 40; run++)
		again(&look, 100, 99);
	assert_answer(&look, MD_DOUBT_SOME, "three rows race, and the value is none of theirs, nor near");
	md_verify_doubt_say_some(&look.doubt, &look.memory, &look.err);
	cr_assert(
	    strstr(look.err.message, "buffer \"values\" differs at offset 400: restored 0000c642, which none of 41"),
	    "%s", look.err.message);
	md_verify_doubt_finish(&look.doubt);
}

Test(verify_doubt, should_fail_other_elements)
{
	struct look look;
	look_init(&look);
	restored[100] = 11;
	restored[SIZE / 4 - 1] = 11;
	add(&look, 0);
	for (int run = 0; run < 40; run++)
		live(&look, 100, 10 + (float)(run % 2));
	assert_answer(&look, MD_DOUBT_SOME, "the last element is always the same, on both sides");
	md_verify_doubt_say_some(&look.doubt, &look.memory, &look.err);
	cr_assert(strstr(look.err.message, "at offset 8188: "), "%s", look.err.message);
	md_verify_doubt_finish(&look.doubt);
}

Test(verify_doubt, sums_that_scatter)
{
	struct look look;
	look_init(&look);
	restored[100] = 10.5f;
	add(&look, MD_VERIFY_OUTPUT);
	live(&look, 100, 10.2f);
	assert_answer(&look, MD_DOUBT_SOME, "0.3 outside of a span of 0.2");
	live(&look, 100, 9.9f);
	assert_answer(&look, MD_DOUBT_SOME,
		      "0.3 outside of a span of 0.3, but the restored one may not be written at all");
	again(&look, 100, 10.25f);
	assert_answer(&look, MD_DOUBT_ALL, "both spans reach the other's");
	md_verify_doubt_say_all(&look.doubt, &look.memory, &look.err);
	cr_assert(strstr(look.err.message, "1 elements of output 0 differ"), "%s", look.err.message);
	md_verify_doubt_finish(&look.doubt);
}

/* The rare value came first on the restored side, by chance; another element shows that live replays differ. */
Test(verify_doubt, a_rare_value_that_no_live_replay_leaves)
{
	struct look look;
	look_init(&look);
	restored[100] = 5000;
	restored[200] = 11;
	add(&look, 0);
	for (int run = 0; run < 40; run++)
		live(&look, 200, 10 + (float)(run % 2));
	assert_answer(&look, MD_DOUBT_SOME, "none of 40 live replays brought it");
	again(&look, 100, 10);
	assert_answer(&look, MD_DOUBT_ALL, "another restored one leaves what live ones do");
	md_verify_doubt_finish(&look.doubt);
}

Test(verify_doubt, should_fail_a_graph_of_which_restored_replays_alone_differ)
{
	struct look look;
	look_init(&look);
	restored[100] = 11;
	add(&look, 0);
	for (int run = 0; run < 40; run++) {
		live(&look, 100, 10);
		again(&look, 100, 10 + (float)(run % 2));
	}
	assert_answer(&look, MD_DOUBT_NONE, "an edge may be missing there");
	md_verify_doubt_finish(&look.doubt);
}

Test(verify_doubt, a_tolerance_counts_alone)
{
	struct look look;
	look_init(&look);
	look.doubt.tolerance = (struct md_tolerance){true, 4, MD_ELEMENT_F32};
	restored[100] = 11;
	restored[200] = 10.000004f; /* 4 ULP */
	add(&look, 0);
	assert_answer(&look, MD_DOUBT_NONE, "live replays must differ somewhere");
	live(&look, 100, 12);
	assert_answer(&look, MD_DOUBT_SOME, "the restored one may not be written at all");
	again(&look, 100, 12);
	assert_answer(&look, MD_DOUBT_ALL, "one inside of a span, one near a point");
	md_verify_doubt_say_all(&look.doubt, &look.memory, &look.err);
	cr_assert(strstr(look.err.message,
			 "accepted within 4 ULP of f32 of what they span, the farthest restored one lies "
			 "4 ULP outside of it"),
		  "%s", look.err.message);
	look.doubt.tolerance.ulps = 3;
	assert_answer(&look, MD_DOUBT_SOME, "too far");
	again(&look, 200, 10);
	assert_answer(&look, MD_DOUBT_SOME, "that another one was right is no excuse");
	md_verify_doubt_say_some(&look.doubt, &look.memory, &look.err);
	cr_assert(strstr(look.err.message, "4 ULP (f32) outside of what they span, beyond 3 ULP of f32"), "%s",
		  look.err.message);
	md_verify_doubt_finish(&look.doubt);
	cr_assert(look.doubt.tolerance.given, "the tolerance stays");
}

Test(verify_doubt, should_fail_an_integer_that_no_live_replay_leaves)
{
	struct look look;
	look_init(&look);
	look.doubt.tolerance = (struct md_tolerance){true, 1000, MD_ELEMENT_F32};
	restored[100] = 11;
	md_verify_doubt_add(&look.doubt, 0, MD_ELEMENT_EXACT, 0, (uint8_t *)first, (uint8_t *)restored, SIZE);
	live(&look, 100, 12);
	assert_answer(&look, MD_DOUBT_SOME, "near is not right");
	live(&look, 100, 11);
	assert_answer(&look, MD_DOUBT_ALL, "one live replay left it");
	md_verify_doubt_finish(&look.doubt);
}

Test(verify_doubt, the_last_bytes_that_are_no_element)
{
	struct look look;
	look_init(&look);
	((uint8_t *)restored)[SIZE - 3] ^= 1;
	md_verify_doubt_add(&look.doubt, 0, MD_ELEMENT_F64, 0, (uint8_t *)first, (uint8_t *)restored, SIZE - 2);
	cr_assert_eq(look.doubt.count, 1);
	cr_assert(look.doubt.cells[0].size == 6 && look.doubt.cells[0].offset == SIZE - 8, "%u bytes at %llu",
		  look.doubt.cells[0].size, (unsigned long long)look.doubt.cells[0].offset);
	((uint8_t *)now)[SIZE - 3] ^= 1;
	take(&look, false);
	assert_answer(&look, MD_DOUBT_ALL, "compared byte by byte");
	md_verify_doubt_finish(&look.doubt);
}

Test(verify_doubt, far_elements_and_both_twins)
{
	struct look look;
	look_init(&look);
	restored[0] = restored[1500] = 11;
	add(&look, MD_VERIFY_OUTPUT);
	add(&look, 0);
	add(&look, 0);
	now[0] = 11;
	live(&look, 1500, 11);
	cr_assert_eq(copies, 4, "two places, two copies each: %u", copies);
	assert_answer(&look, MD_DOUBT_ALL, "each of them");
	md_verify_doubt_say_all(&look.doubt, &look.memory, &look.err);
	cr_assert(strstr(look.err.message, "2 elements of buffer \"values\" and 2 elsewhere differ"), "%s",
		  look.err.message);
	md_verify_doubt_finish(&look.doubt);
}

Test(verify_doubt, too_many_elements)
{
	struct look look;
	look_init(&look);
	for (size_t i = 0; i < SIZE / 4; i++)
		restored[i] = 11;
	for (int i = 0; i < 2000 && !look.doubt.beyond; i++)
		add(&look, 0);
	cr_assert(look.doubt.beyond, "an end is known");
	look.doubt.cells[0].live.varied = true;
	assert_answer(&look, MD_DOUBT_NONE, "nothing is excused");
	md_verify_doubt_finish(&look.doubt);
}

Test(verify_doubt, restored_replays_that_differ_among_themselves)
{
	struct look look;
	look_init(&look);
	restored[100] =
	    11; /* with other bytes in private memory: the later ones have none, and need not agree with it */
	restored[200] = 11;
	add(&look, 0);
	again(&look, 100, 10);
	cr_assert_eq(md_verify_doubt_unsteady(&look.doubt), 0, "one later replay says nothing");
	again(&look, 100, 10);
	cr_assert_eq(md_verify_doubt_unsteady(&look.doubt), 0, "two that agree");
	live(&look, 100, 12);
	again(&look, 100, 10);
	cr_assert_eq(md_verify_doubt_unsteady(&look.doubt), 0, "what a live one leaves does not count");
	again(&look, 100, 12);
	again(&look, 100, 10);
	cr_assert_eq(md_verify_doubt_unsteady(&look.doubt), 1, "one of two elements");
	md_verify_doubt_finish(&look.doubt);
}
