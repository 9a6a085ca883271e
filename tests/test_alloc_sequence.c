/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences of allocations: neighbours as they are noted, and the words for where two sequences part. */
#include "driver/alloc_sequence.h"

#include <criterion/criterion.h>
#include <string.h>

#define NONE MD_SEQUENCE_NONE
enum { DEVICE = 1, PITCH = 2, VMM = 6 };

static struct md_alloc_sequence sequence;

static void teardown(void)
{
	md_sequence_finish(&sequence);
}

static void assert_item(size_t index, uint32_t below, uint32_t freed)
{
	cr_assert(index < sequence.count, "%zu of %zu", index, sequence.count);
	cr_assert_eq(sequence.items[index].below, below, "below %zu: %u", index, sequence.items[index].below);
	cr_assert_eq(sequence.items[index].freed, freed, "freed %zu: %u", index, sequence.items[index].freed);
}

Test(alloc_sequence, notes_the_neighbour_below_among_what_is_live, .fini = teardown)
{
	md_sequence_add(&sequence, DEVICE, 0x5000, 0x100);
	md_sequence_add(&sequence, PITCH, 0x3000, 0x100);
	md_sequence_add(&sequence, DEVICE, 0x4000, 0x100);
	md_sequence_remove(&sequence, 0x4000, 1);
	md_sequence_add(&sequence, DEVICE, 0x4800, 0x100); /* what lay between is gone */
	md_sequence_add(&sequence, VMM, 0x4900, 0x100);    /* of another kind: compared with its own alone */
	md_sequence_add(&sequence, DEVICE, 0x6000, 0x100);
	assert_item(0, NONE, NONE);
	assert_item(1, NONE, NONE);
	assert_item(2, 1, 3);
	assert_item(3, 1, NONE);
	assert_item(4, NONE, NONE);
	assert_item(5, 0, NONE);
}

Test(alloc_sequence, an_address_that_comes_again_was_freed, .fini = teardown)
{
	md_sequence_add(&sequence, DEVICE, 0x1000, 0x100);
	md_sequence_add(&sequence, DEVICE, 0x2000, 0x100);
	md_sequence_add(&sequence, VMM, 0x1000, 0x1100);
	assert_item(0, NONE, 2);
	assert_item(1, 0, 2);
	assert_item(2, NONE, NONE);
	sequence.closed = true;
	md_sequence_remove(&sequence, 0x1000, 0x2000);
	md_sequence_add(&sequence, DEVICE, 0x9000, 0x100);
	assert_item(2, NONE, NONE);
	cr_assert_eq(sequence.count, 3, "closed");
}

Test(alloc_sequence, ranges_are_unmapped_and_pauses_do_not_count, .fini = teardown)
{
	for (uint64_t i = 0; i < 4; i++)
		md_sequence_add(&sequence, VMM, 0x1000 + i * 0x100, 0x100);
	sequence.paused = 1;
	md_sequence_add(&sequence, VMM, 0x9000, 0x100);
	sequence.paused = 0;
	md_sequence_remove(&sequence, 0x1100, 0x200);
	md_sequence_add(&sequence, VMM, 0x9000, 0x100);
	assert_item(0, NONE, NONE);
	assert_item(1, 0, 4);
	assert_item(2, 1, 4);
	assert_item(3, 2, NONE);
	assert_item(4, 3, NONE);
}

/* ---- comparing ---- */

static void assert_parts(const struct md_sequence_request *then, size_t then_count,
			 const struct md_sequence_request *now, size_t now_count, const char *message)
{
	struct md_sequence_side one = {then, then_count, "artifact", "in the artifact"};
	struct md_sequence_side two = {now, now_count, "this process", "here"};
	struct md_error err = {0};
	cr_assert_eq(md_sequence_compare(&one, &two, &err), message ? MD_ERR_MISMATCH : MD_OK);
	if (message)
		cr_assert_str_eq(err.message, message);
}

Test(alloc_sequence, says_which_two_lie_otherwise)
{
	/* 0 < 1 < 2 and then 3: above 2, between 1 and 2, between 0 and 1, below all */
	struct md_sequence_request line[4] = {
	    {DEVICE, NONE, NONE, 64}, {DEVICE, 0, NONE, 64}, {DEVICE, 1, NONE, 64}, {DEVICE, 2, NONE, 64}};
	struct md_sequence_request other[4];
	memcpy(other, line, sizeof(other));
	assert_parts(line, 4, other, 4, NULL);
	other[3].below = 0;
	assert_parts(line, 4, other, 4, "allocation 3 lies above allocation 2 in the artifact, below it here");
	assert_parts(other, 4, line, 4, "allocation 3 lies below allocation 2 in the artifact, above it here");
	other[3].below = NONE;
	assert_parts(line, 4, other, 4, "allocation 3 lies above allocation 2 in the artifact, below it here");
	assert_parts(other, 4, line, 4, "allocation 3 lies below allocation 2 in the artifact, above it here");
}

/* The line is 2 < 0 < 1: the numbers say nothing about who is lower. */
Test(alloc_sequence, order_is_that_of_addresses_and_not_of_numbers)
{
	struct md_sequence_request then[4] = {
	    {DEVICE, NONE, NONE, 64}, {DEVICE, 0, NONE, 64}, {DEVICE, NONE, NONE, 64}, {DEVICE, 2, NONE, 64}};
	struct md_sequence_request now[4];
	memcpy(now, then, sizeof(now));
	now[3].below = 0;
	assert_parts(then, 4, now, 4, "allocation 3 lies below allocation 0 in the artifact, above it here");
	assert_parts(now, 4, then, 4, "allocation 3 lies above allocation 0 in the artifact, below it here");
}

Test(alloc_sequence, says_what_else_differs)
{
	struct md_sequence_request then[2] = {{DEVICE, NONE, NONE, 64}, {DEVICE, 0, NONE, 64}};
	struct md_sequence_request now[2];
	memcpy(now, then, sizeof(now));
	now[1].size = 65;
	assert_parts(
	    then, 2, now, 2,
	    "allocation 1: artifact has 64 bytes, this process 65: the allocation sequences differ from here on");
	now[1] = then[1];
	now[1].family = VMM;
	assert_parts(then, 2, now, 2,
		     "allocation 1: artifact has memory of family 1, this process of 6: the allocation sequences "
		     "differ from here on");
	now[1] = then[1];
	now[0].freed = 2;
	assert_parts(then, 2, now, 2,
		     "allocation 0 (64 bytes) was freed before the engine asked for a graph here, and not in the "
		     "artifact");
	assert_parts(now, 2, then, 2,
		     "allocation 0 (64 bytes) was freed before the engine asked for a graph in the artifact, and not "
		     "here");
	then[0].freed = 1;
	assert_parts(then, 2, now, 2,
		     "allocation 0 (64 bytes) was freed after 1 allocations in the artifact, and after 2 here");
	then[0].freed = 2;
	assert_parts(then, 2, now, 1,
		     "artifact has 2 allocations before the engine asks for a graph, this process 1: the "
		     "allocation sequences differ from here on");
}
