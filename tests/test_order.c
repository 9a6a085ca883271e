/* SPDX-License-Identifier: Apache-2.0 */
/* Places of a second capture: they compare as in the first, with other gaps, aligned alike; and the file of them. */
#include "format/trace/order.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define COUNT 200

static struct md_trace trace;
static struct md_trace_alloc allocs[COUNT];
static struct md_trace_reservation reservations[4];
static struct md_order order;

static void teardown(void)
{
	md_order_finish(&order);
}

static void add(enum md_alloc_family family, uint64_t address, uint64_t size)
{
	allocs[trace.alloc_count++] = (struct md_trace_alloc){family, family, address, size, 1, UINT64_MAX};
	trace.allocs = allocs;
}

static void make(uint64_t seed)
{
	struct md_error err = {0};
	md_order_finish(&order);
	cr_assert(md_order_make(&trace, seed, &order, &err) == MD_OK, "%s", err.message);
	cr_assert_eq(order.count, trace.alloc_count + trace.reservation_count);
}

/* The n-th request of a family and size. */
static uint64_t place_of(uint64_t family, uint64_t size, unsigned n)
{
	for (size_t i = 0; i < order.count; i++)
		if (order.items[i].family == family && order.items[i].size == size && !n--)
			return order.items[i].offset;
	cr_assert(false, "no such request");
	return 0;
}

Test(order, compares_as_before_with_gaps_between, .fini = teardown)
{
	static unsigned numbers[COUNT];
	uint32_t random = 12345;
	for (unsigned i = 0; i < COUNT; i++) { /* sizes tell them apart; addresses go to and fro */
		uint64_t slot = (i * 77 + 13) % COUNT;
		random = random * 1664525 + 1013904223;
		numbers[slot] = i;
		add(i % 3 ? MD_ALLOC_DEVICE : MD_ALLOC_PITCH, 0x7f0000000000 + slot * 4 * MIB,
		    i % 2 ? 2 * MIB + 512ull * (random >> 20) : 512ull * (1 + i));
	}
	for (uint64_t seed = 1; seed < 20; seed++) {
		uint64_t last = 0, delta = 0;
		make(seed);
		for (unsigned slot = 0; slot < COUNT; slot++) {
			const struct md_trace_alloc *alloc = &allocs[numbers[slot]];
			unsigned before = 0;
			for (unsigned i = 0; i < numbers[slot]; i++)
				before += allocs[i].family == alloc->family && allocs[i].size == alloc->size;
			uint64_t at = place_of(alloc->family, alloc->size, before);
			cr_assert(at > last, "%u: behind the one before, and not touching it", slot);
			cr_assert(at % (alloc->size >= MIB ? 2 * MIB : 512) == 0, "%u: aligned", slot);
			cr_assert(at + alloc->size <= order.span, "%u: inside", slot);
			cr_assert(slot == 0 || alloc->address - at != delta || alloc->size < MIB, "%u: other gap",
				  slot);
			last = at + alloc->size;
			delta = alloc->address - at;
		}
	}
}

Test(order, what_overlapped_moves_together_and_what_touched_is_parted, .fini = teardown)
{
	add(MD_ALLOC_DEVICE, 0x7f0000000000, 4 * MIB);
	add(MD_ALLOC_DEVICE, 0x7f0000200000, 6 * MIB); /* later, over half of it */
	add(MD_ALLOC_DEVICE, 0x7f0000800000, 2 * MIB); /* behind */
	add(MD_ALLOC_DEVICE, 0x7f0000a00000, 512);
	add(MD_ALLOC_DEVICE, 0x7f0000a00200, 1024); /* in the same block */
	add(MD_ALLOC_DEVICE, 0x7f0000c00000, 2048); /* in another, perhaps another device's */
	make(3);
	uint64_t first = place_of(MD_ALLOC_DEVICE, 4 * MIB, 0), behind = place_of(MD_ALLOC_DEVICE, 2 * MIB, 0);
	uint64_t small = place_of(MD_ALLOC_DEVICE, 512, 0), next = place_of(MD_ALLOC_DEVICE, 1024, 0);
	cr_assert_eq(place_of(MD_ALLOC_DEVICE, 6 * MIB, 0), first + 2 * MIB);
	cr_assert(behind > first + 8 * MIB, "parted");
	cr_assert_eq(small / (2 * MIB), next / (2 * MIB), "in one block");
	cr_assert(next > small + 512, "parted");
	cr_assert_neq(place_of(MD_ALLOC_DEVICE, 2048, 0) / (2 * MIB), next / (2 * MIB), "not in that block");
}

Test(order, what_the_driver_places_and_reservations, .fini = teardown)
{
	add(MD_ALLOC_DEVICE, 0x7f0000000000, 512);
	add(MD_ALLOC_DEVICE, 0x7f0000400000, 512);
	allocs[0].family = MD_ALLOC_SHARED; /* was exported: still the first request of its size */
	add(MD_ALLOC_ASYNC, 0x7f0000600000, 512);
	add(MD_ALLOC_VMM, 0x7e0000000000, 2 * MIB); /* lies in a reservation, which moves */
	reservations[0] = (struct md_trace_reservation){0x7e0000000000, 64 * MIB};
	trace.reservations = reservations;
	trace.reservation_count = 1;
	make(1);
	cr_assert_eq(place_of(MD_ALLOC_DEVICE, 512, 0), MD_ORDER_NATURAL);
	cr_assert_neq(place_of(MD_ALLOC_DEVICE, 512, 1), MD_ORDER_NATURAL);
	cr_assert_eq(place_of(MD_ALLOC_ASYNC, 512, 0), MD_ORDER_NATURAL);
	cr_assert_eq(place_of(MD_ALLOC_VMM, 2 * MIB, 0), MD_ORDER_NATURAL);
	cr_assert(place_of(MD_ORDER_RESERVATION, 64 * MIB, 0) + 64 * MIB < place_of(MD_ALLOC_DEVICE, 512, 1));
	cr_assert_eq(order.alignment, 1ull << 30, "as well aligned as the reservation was, up to 1 GiB");
}

Test(order, file, .fini = teardown)
{
	char path[] = "/tmp/test_order.XXXXXX";
	struct md_order read;
	struct md_error err = {0};
	add(MD_ALLOC_DEVICE, 0x7f0000000000, 512);
	add(MD_ALLOC_ASYNC, 0x7f0000400000, 512);
	make(1);
	close(mkstemp(path));
	cr_assert_eq(md_order_write(&order, path, &err), MD_ERR_INVALID, "it is there: nobody's file is written over");
	unlink(path);
	cr_assert(md_order_write(&order, path, &err) == MD_OK, "%s", err.message);
	cr_assert(md_order_read(path, &read, &err) == MD_OK, "%s", err.message);
	cr_assert(read.count == 2 && read.span == order.span && read.alignment == order.alignment, "head");
	cr_assert(!memcmp(read.items, order.items, 2 * sizeof(*read.items)), "items");
	md_order_finish(&read);
	cr_assert_eq(truncate(path, 60), 0);
	cr_assert_neq(md_order_read(path, &read, &err), MD_OK, "cut off");
	unlink(path);
	order.items[0].offset = order.span;
	cr_assert(md_order_write(&order, path, &err) == MD_OK, "%s", err.message);
	cr_assert_eq(md_order_read(path, &read, &err), MD_ERR_CORRUPT, "outside");
	unlink(path);
}
