/* SPDX-License-Identifier: Apache-2.0 */
/* A lender that writes into rooms of borrowers: right bytes, memory that is freed or wanted back, ends, lies, failures. */
#include "tests/lending_push_fixture.h"

TestSuite(lending_push, .init = set_up, .fini = tear_down, .timeout = 120);

/* ---- what is copied ---- */

Test(lending_push, rooms_are_filled)
{
	struct borrower *b = &borrowers[0];
	open_room(b);
	cr_assert_eq(b->rooms, TAKEN, "%s", b->why);
	cr_assert_eq(kept[MAP], 1, "nothing is mapped that nobody wants");
	take(b, 0, 0, BLOCKS, 0);
	take(b, 1, 2, 2, BLOCKS);
	take(b, 2, 0, 1, BLOCKS + 2);
	say(b,
	    (struct md_carry_message){.kind = MD_CARRY_TAKE,
				      .chunk = 3,
				      .count = 1,
				      .takes = {{.offset = 7 * MD_SWAP_BLOCK, .part = 2, .block = 3}}},
	    -1);
	until(b->answers[0] && b->answers[1] && b->answers[2] && b->answers[3]);
	cr_assert(b->answers[0] == DONE && b->answers[1] == DONE && b->answers[2] == DONE, "all have come");
	assert_right(b, 0, BLOCKS, 0);
	assert_right(b, 2, 2, BLOCKS);
	assert_right(b, 0, 1, BLOCKS + 2);
	assert_holds(b, what_of(2, 3), 7);
	cr_assert_eq(kept[MAP], 3, "a part is mapped once");
	say(b, (struct md_carry_message){.kind = MD_CARRY_END}, -1);
	until(!b->open);
	cr_assert_eq(b->ended.kind, MD_CARRY_END);
	cr_assert_eq(b->ended.times[MD_PEER_COPIES], 4);
	cr_assert_eq(b->ended.times[MD_PEER_LENT_PARTS], 2);
	cr_assert_eq(b->ended.times[MD_PEER_OWN_PARTS], 1);
	assert_nothing_kept();
}

Test(lending_push, several_borrowers_at_a_time)
{
	for (size_t i = 0; i < BORROWERS; i++)
		open_room(&borrowers[i]);
	for (uint32_t i = 0; i < BORROWERS; i++)
		take(&borrowers[i], i, i, BLOCKS, i);
	for (uint32_t i = 0; i < BORROWERS; i++) {
		until(borrowers[i].answers[i] == DONE);
		assert_right(&borrowers[i], i, BLOCKS, i);
	}
	close(borrowers[1].fd);
	borrowers[1].open = false;
	take(&borrowers[0], 9, 1, BLOCKS, 0);
	until(borrowers[0].answers[9] == DONE);
	say(&borrowers[2], (struct md_carry_message){.kind = MD_CARRY_END}, -1);
	until(!borrowers[2].open);
	cr_assert(kept[MAP] == 3 && borrowers[0].open, "%d mappings: those of the first one", kept[MAP]);
	close(borrowers[0].fd);
	borrowers[0].open = false;
	until(!kept[MAP]);
	assert_nothing_kept();
}

Test(lending_push, memory_that_the_engine_frees)
{
	struct borrower *b = &borrowers[0];
	open_room(b);
	free_part(0);
	take(b, 0, 0, 1, 0);
	take(b, 1, 1, 1, 1);
	until(b->answers[0] && b->answers[1]);
	cr_assert(b->answers[0] == REFUSED && b->answers[1] == DONE, "one of both is there");
	free_part(1);
	take(b, 2, 1, BLOCKS, 2);
	until(b->answers[2]);
	cr_assert_eq(b->answers[2], DONE, "what is mapped exists");
	assert_right(b, 1, BLOCKS, 2);
	locked = true;
	take(b, 3, 2, 1, 0);
	for (int i = 0; i < 5; i++)
		step();
	cr_assert_eq(b->answers[3], NO_ANSWER, "the lock is waited for, and not by waiting");
	locked = false;
	until(b->answers[3] == DONE);
	assert_right(b, 2, 1, 0);
}

Test(lending_push, a_borrower_that_does_not_read_holds_up_nobody)
{
	struct borrower *b = &borrowers[0];
	struct md_error none = {0};
	open_room(b);
	open_room(&borrowers[1]);
	int fd = lending.borrowers[0].connection.fd;
	while (md_carry_wire_send(fd, &(struct md_carry_message){.kind = MD_CARRY_ROOM, .count = 1}, -1, &none) ==
	       MD_OK)
		;
	cr_assert_eq(none.status, MD_ERR_BUSY, "its connection is full");
	take(b, 0, 0, 1, 0);
	b->open = false; /* so that it does not read */
	take(&borrowers[1], 1, 1, 2, 0);
	until(borrowers[1].answers[1] == DONE);
	b->open = true;
	until(b->answers[0] == DONE);
	assert_right(b, 0, 1, 0);
}

/* ---- the end ---- */

Test(lending_push, memory_is_wanted_back_while_it_is_copied)
{
	struct borrower *b = &borrowers[0];
	struct md_error err = {0};
	setenv("HOSTCUDA_NVLINK", "0.02", 1); /* 100 ms a block */
	open_room(b);
	for (uint32_t i = 0; i < 60; i++)
		take(b, i, i % PARTS, 1, i % ROOM_BLOCKS);
	until(kept[EVENT] >= 2);
	uint64_t began = md_clock_ns();
	never_ends = true;
	cr_assert_eq(md_swap_lending_recall(&lending, 0, &err), MD_ERR_BUSY, "copies that do not end");
	cr_assert(strstr(err.message, "copies to another GPU do not end"), "%s", err.message);
	cr_assert_gt(kept[MAP], 1, "and stay mapped");
	never_ends = false;
	cr_assert_lt(md_clock_ns() - began, 8000000000ull);
	cr_assert_eq(md_swap_lending_recall(&lending, 0, &err), MD_OK, "%s", err.message);
	assert_nothing_kept();
	while (b->open)
		hear(b);
	cr_assert(b->failed, "it is told");
	cr_assert(b->answers[0] == DONE && b->answers[1] == DONE, "what was under way has come");
	cr_assert_eq(b->answers[59], NO_ANSWER, "and what was not does not");
	open_room(b);
	cr_assert_eq(b->rooms, TAKEN, "if it does not go out after all");
}

static void *allocate(void *waited)
{
	*(bool *)waited = md_swap_lending_await();
	return NULL;
}

Test(lending_push, an_allocation_gets_what_is_mapped_here)
{
	struct borrower *b = &borrowers[0];
	pthread_t thread;
	bool waited = false;
	open_room(b);
	take(b, 0, 0, 1, 0);
	until(b->answers[0] == DONE);
	uint64_t began = md_clock_ns();
	cr_assert_eq(pthread_create(&thread, NULL, allocate, &waited), 0);
	until(!b->open);
	pthread_join(thread, NULL);
	cr_assert(waited && b->failed, "it was lent, and is not any more");
	cr_assert_lt(md_clock_ns() - began, 2000000000ull, "nobody is waited for");
	assert_nothing_kept();
	cr_assert_not(md_swap_lending_await(), "nothing is lent");
}

Test(lending_push, a_child_makes_no_calls)
{
	struct borrower *b = &borrowers[0];
	open_room(b);
	take(b, 0, 0, 1, 0);
	until(b->answers[0] == DONE);
	calls = 0;
	md_swap_lending_forget(&lending);
	cr_assert_eq(calls, 0);
	step();
	cr_assert_eq(calls, 0, "it has no borrowers");
	hear(b);
	cr_assert_not(b->open, "of its copy of the connection");
}

Test(lending_push, a_context_that_has_gone)
{
	struct borrower *b = &borrowers[0];
	ok(md_cuda.cuCtxCreate_v2(&contexts[1], 0, 1));
	open_room(b);
	take(b, 0, 0, 1, 0);
	until(b->answers[0] == DONE);
	ok(md_cuda.cuCtxDestroy_v2(contexts[1]));
	take(b, 1, 0, 1, 1);
	until(!b->open);
	cr_assert_eq(b->answers[1], NO_ANSWER);
	kept[STREAM] = kept[EVENT] = 0; /* destroyed with it */
	assert_nothing_kept();
}

/* ---- what cannot be, and what makes no sense ---- */

static void assert_room_refused(struct borrower *b, const char *why)
{
	cr_assert_eq(b->rooms, REFUSED_ROOM);
	cr_assert(strstr(b->why, why), "%s", b->why);
	assert_nothing_kept();
	cr_assert(b->open, "the carrier may ask for the memory");
	say(b, (struct md_carry_message){.kind = MD_CARRY_PART, .part = 0}, -1);
	close(b->fd);
	b->open = false;
}

Test(lending_push, should_fail_rooms_that_cannot_be_reached)
{
	struct borrower *b = &borrowers[0];
	setenv("HOSTCUDA_NVLINK", "none", 1);
	open_room(b);
	assert_room_refused(b, "cuMemSetAccess");
	unsetenv("HOSTCUDA_NVLINK");
	without_context = true;
	open_room(b);
	assert_room_refused(b, "no context");
	without_context = false;
	int fd = memfd_create("no memory", MFD_CLOEXEC);
	cr_assert_eq(ftruncate(fd, ROOM_BYTES), 0);
	begin(b);
	say(b, (struct md_carry_message){.kind = MD_CARRY_ROOM, .bytes = ROOM_BYTES}, fd);
	close(fd);
	until(b->rooms);
	assert_room_refused(b, "cuMemImportFromShareableHandle");
	open_room(b);
	cr_assert_eq(b->rooms, TAKEN, "%s", b->why);
}

static void assert_closed(struct borrower *b, const char *what)
{
	until(!b->open);
	cr_assert_eq(b->ended.kind, 0, "%s", what);
	close(b->fd);
	assert_nothing_kept();
}

static void try_room(uint32_t number, uint64_t bytes, bool with_memory, const char *what)
{
	struct borrower *b = &borrowers[0];
	int fd = -1;
	open_room(b);
	b->rooms = NOT_YET;
	ok(md_cuda.cuMemExportToShareableHandle(&fd, b->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	say(b, (struct md_carry_message){.kind = MD_CARRY_ROOM, .part = number, .bytes = bytes}, with_memory ? fd : -1);
	close(fd);
	assert_closed(b, what);
	cr_assert_eq(b->rooms, NOT_YET, "%s: it was not tried", what);
}

Test(lending_push, should_fail_rooms_that_make_no_sense)
{
	try_room(0, ROOM_BYTES, true, "it is there already");
	try_room(MD_CARRY_ROOMS, ROOM_BYTES, true, "a number too many");
	try_room(UINT32_MAX, ROOM_BYTES, true, "a number");
	try_room(1, 0, true, "nothing");
	try_room(1, MD_SWAP_BLOCK + 1, true, "odd");
	try_room(1, UINT64_MAX - MD_SWAP_BLOCK + 1, true, "more than there is");
	try_room(1, 1ull << 32, true, "more than all rooms may have, with the first one");
	try_room(1, ROOM_BYTES, false, "no descriptor");
	struct borrower *b = &borrowers[0];
	open_room(b);
	b->rooms = NOT_YET;
	int fd;
	ok(md_cuda.cuMemExportToShareableHandle(&fd, b->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	say(b, (struct md_carry_message){.kind = MD_CARRY_ROOM, .part = 1, .bytes = 2 * ROOM_BYTES}, fd);
	close(fd);
	until(b->rooms);
	cr_assert_eq(b->rooms, REFUSED_ROOM, "it has less memory than it says");
	for (uint32_t i = 2; i < 4; i++) {
		b->rooms = NOT_YET;
		give_room(b, i);
		until(b->rooms == TAKEN);
	}
	take(b, 0, 0, 1, 0);
	until(b->answers[0] == DONE);
}

static void try_take(struct md_carry_message message, unsigned times, const char *what)
{
	open_room(&borrowers[0]);
	message.kind = MD_CARRY_TAKE;
	locked = true;
	for (unsigned i = 0; i < times; i++)
		say(&borrowers[0], message, -1);
	assert_closed(&borrowers[0], what);
	locked = false;
}

Test(lending_push, should_fail_chunks_that_make_no_sense)
{
	struct borrower *b = &borrowers[0];
	try_take((struct md_carry_message){.count = 1, .part = 1}, 1, "no such room");
	try_take((struct md_carry_message){.count = 1, .part = UINT32_MAX}, 1, "no such room");
	try_take((struct md_carry_message){.count = 0}, 1, "no block");
	try_take((struct md_carry_message){.count = 1, .takes = {{.offset = 5}}}, 1, "no multiple");
	try_take((struct md_carry_message){.count = 1, .takes = {{.offset = ROOM_BYTES}}}, 1, "outside");
	try_take((struct md_carry_message){.count = 2, .takes = {{0}, {.offset = UINT64_MAX - MD_SWAP_BLOCK + 1}}}, 1,
		 "outside");
	try_take((struct md_carry_message){.count = 1}, MD_CARRY_TAKES_MOST + 1, "too many");
	begin(b);
	take(b, 0, 0, 1, 0);
	assert_closed(b, "without a room");
	open_room(b);
	take(b, 0, PARTS, 1, 0);
	take(b, 1, UINT32_MAX, 1, 0);
	say(b, (struct md_carry_message){.kind = MD_CARRY_TAKE, .chunk = 2, .count = 1, .takes = {{.block = BLOCKS}}},
	    -1);
	say(b,
	    (struct md_carry_message){.kind = MD_CARRY_TAKE, .chunk = 3, .count = 1, .takes = {{.block = UINT32_MAX}}},
	    -1);
	take(b, 4, 0, 1, 0);
	until(b->answers[4]);
	for (uint32_t i = 0; i < 4; i++)
		cr_assert_eq(b->answers[i], REFUSED, "chunk %u is not there", i);
	cr_assert_eq(b->answers[4], DONE);
	assert_right(b, 0, 1, 0);
}

/* ---- what fails ---- */

/* Whatever the driver says, a chunk comes right, or the borrower hears that it does not come. */
static void assert_survived(int n)
{
	struct borrower *b = &borrowers[0];
	fill(contexts[0], b->room, 0, ROOM_BYTES);
	open_room(b);
	if (b->rooms == TAKEN) {
		take(b, 0, 0, 2, 0);
		take(b, 1, 1, 2, 2);
		until((b->answers[0] && b->answers[1]) || !b->open);
	}
	for (uint32_t i = 0; i < 2; i++)
		if (b->answers[i] == DONE)
			assert_right(b, i, 2, 2 * i);
	cr_assert(failed || (b->answers[0] == DONE && b->answers[1] == DONE), "call %d of kind %u", n, fails);
	if (b->open)
		say(b, (struct md_carry_message){.kind = MD_CARRY_END}, -1);
	until(!b->open);
	close(b->fd);
	if (failed == UNMAP || failed == FREE || failed == RELEASE)
		memset(kept, 0, sizeof(kept)); /* nobody can help it */
	if (failed == CONTEXT)
		kept[STREAM] = kept[EVENT] = 0;
	assert_nothing_kept();
}

/* The order of calls depends on the machine, so each kind is counted by itself; the context is set before each look at copies. */
Test(lending_push, each_call_fails_once)
{
	for (fails = CONTEXT; fails < CALLS; fails++) {
		int n = 0, most = fails == CONTEXT ? 6 : 50;
		do {
			failed = NONE;
			fail_left = ++n;
			assert_survived(n);
		} while (failed && n < most);
		cr_assert(n > 1 && (n < most || fails == CONTEXT), "call %u: %d", fails, n);
	}
}
