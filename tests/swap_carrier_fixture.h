/* SPDX-License-Identifier: Apache-2.0 */
/* What tests that play the carrier have in common: the engine's memory mapped in it, and an engine that lends it. */
#ifndef MD_TESTS_SWAP_CARRIER_FIXTURE_H
#define MD_TESTS_SWAP_CARRIER_FIXTURE_H

#include <stdatomic.h>
#include <sys/mman.h>

#include "swap/carry_wire.h"
#include "tests/swap_exchange_fixture.h"

/* ---- of the carrier, in this process ---- */

enum { CARRIED_MOST = MOST + 32 }; /* the engine's allocations, and rooms through which chunks come */
static struct {
	uint8_t *bytes; /* NULL: not mapped */
	uint64_t size;
} parts[CARRIED_MOST];

static void take_part(const struct md_carry_message *message, int passed)
{
	cr_assert(passed >= 0 && message->part < CARRIED_MOST, "part %u comes with its memory", message->part);
	parts[message->part].size = message->bytes;
	parts[message->part].bytes = mmap(NULL, message->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, passed, 0);
	cr_assert_neq(parts[message->part].bytes, MAP_FAILED);
}

static void unmap_parts(void)
{
	for (size_t i = 0; i < CARRIED_MOST; i++) {
		if (parts[i].bytes)
			munmap(parts[i].bytes, parts[i].size);
		parts[i].bytes = NULL;
	}
}

/* ---- of the engine ---- */

static atomic_bool held; /* the own link copies nothing meanwhile, so that the carrier gets its chunks */
static struct md_swap_below lending;

static CUresult query(CUstream stream)
{
	return atomic_load(&held)          ? CUDA_ERROR_NOT_READY
	       : is_due_asking(&call_left) ? CUDA_ERROR_UNKNOWN
					   : md_cuda.cuStreamQuery(stream);
}

static enum md_status lend(const struct md_swap_range *range, int *fd, struct md_error *err)
{
	const struct memory *m = range->owner;
	return md_cuda_call(err, cuMemExportToShareableHandle, fd, m->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
			    0);
}

static void kill_carrier(void *user)
{
	atomic_store((atomic_bool *)user, true);
}

/* An engine with so many allocations, which it lends to a carrier. */
static void set_up_lending_of(size_t count)
{
	struct md_error err = {0};
	call_left = -1;
	lending = below;
	lending.lend = lend;
	set_up_pool(64);
	md_swap_exchange_destroy(exchange);
	cr_assert_eq(md_swap_exchange_create(&lending, pool, &exchange, &err), MD_OK, "%s", err.message);
	table.cuStreamQuery = query;
	for (size_t i = 0; i < count; i++)
		add(0);
	write_all();
}

static inline void set_up_lending(void)
{
	set_up_lending_of(MOST);
}

/* ---- every call of the driver fails once ---- */

#ifdef __SANITIZE_THREAD__ /* a call takes a second there */
#define FAILING_EVERY 11
#else
#define FAILING_EVERY 1
#endif
#define CALLS_MOST 1000
/* Allocations of an engine whose calls fail: each round copies all of them, and more of them only make the same calls more often. */
#define FEW 3

/* in_with of the test, with the n-th carrier that it wants; what its late copies do; that all is as it was. */
struct carrier_calls {
	enum md_status (*come)(int n, struct md_swap_report *report, struct md_error *err);
	void (*write_late)(void);
	void (*assert_right)(void);
};

static bool survives(const struct carrier_calls *calls, int n)
{
	struct md_swap_report report = {0};
	struct md_error err = {0};
	out();
	call_left = n;
	if (calls->come(n, &report, &err) != MD_OK) {
		call_left = -1;
		cr_assert(closed && md_swap_exchange_is_out(exchange), "call %d: %s", n, err.message);
		calls->write_late();
		in();
	}
	calls->assert_right();
	bool failed = call_left < 0;
	call_left = -1;
	return failed;
}

static void let_each_call_fail(const struct carrier_calls *calls)
{
	int n = 0;
	call_left = -1;
	let_calls_fail();
	table.cuStreamQuery = query;
	while (n < CALLS_MOST && survives(calls, n))
		n += FAILING_EVERY;
	cr_assert(n > 10 && n < CALLS_MOST, "%d calls", n);
}

#endif
