/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of blocks: found by hash, shared by processes, evicted, and freed of what the dead have held. */
#include "swap/pool.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(swap_pool, .timeout = 120);

static int make(uint32_t blocks)
{
	struct md_error err = {0};
	int fd = -1;
	cr_assert_eq(md_swap_pool_create(blocks * MD_SWAP_BLOCK, &fd, &err), MD_OK, "%s", err.message);
	return fd;
}

static struct md_swap_pool *open_pool(int fd)
{
	struct md_error err = {0};
	struct md_swap_pool *pool = NULL;
	cr_assert_eq(md_swap_pool_open(fd, &pool, &err), MD_OK, "%s", err.message);
	return pool;
}

static struct md_hash hash_of(uint32_t value)
{
	return md_hash_bytes(&value, sizeof(value));
}

static bool take(struct md_swap_pool *pool, uint32_t value, uint32_t *block)
{
	struct md_hash hash = hash_of(value);
	struct md_error err = {0};
	bool fresh = false;
	cr_assert_eq(md_swap_pool_take(pool, &hash, block, &fresh, &err), MD_OK, "block %u: %s", value, err.message);
	return fresh;
}

/* Holds the block of this value, whose bytes begin with it. */
static uint32_t fill(struct md_swap_pool *pool, uint32_t value)
{
	uint32_t block;
	if (take(pool, value, &block)) {
		memcpy(md_swap_pool_bytes(pool, block), &value, sizeof(value));
		md_swap_pool_filled(pool, block);
	}
	return block;
}

static void assert_holds(const struct md_swap_pool *pool, uint32_t block, uint32_t value)
{
	cr_assert_eq(memcmp(md_swap_pool_bytes(pool, block), &value, sizeof(value)), 0, "block %u has the bytes of %u",
		     block, value);
}

static void assert_counts(struct md_swap_pool *pool, uint32_t held, uint32_t cached, uint32_t free_blocks)
{
	struct md_swap_pool_counts counts = md_swap_pool_count(pool);
	cr_assert(counts.held == held && counts.cached == cached && counts.free == free_blocks,
		  "held %u, cached %u, free %u; wanted %u, %u, %u", counts.held, counts.cached, counts.free, held,
		  cached, free_blocks);
}

static void assert_full(struct md_swap_pool *pool, uint32_t value)
{
	struct md_hash hash = hash_of(value);
	struct md_error err = {0};
	uint32_t block;
	bool fresh;
	cr_assert_eq(md_swap_pool_take(pool, &hash, &block, &fresh, &err), MD_ERR_NO_MEMORY, "nothing is left");
	cr_assert(strstr(err.message, "is full"), "%s", err.message);
}

/* ---- one process ---- */

Test(swap_pool, equal_blocks_are_held_once)
{
	struct md_swap_pool *pool = open_pool(make(4));
	uint32_t one = fill(pool, 1), two = fill(pool, 2);
	cr_assert_neq(one, two, "different bytes lie in different blocks");
	cr_assert_eq(fill(pool, 1), one, "the same bytes in the same block");
	assert_counts(pool, 2, 0, 2);
	assert_holds(pool, one, 1);
	assert_holds(pool, two, 2);
	md_swap_pool_give(pool, one);
	assert_counts(pool, 2, 0, 2);
	md_swap_pool_give(pool, one);
	assert_counts(pool, 1, 1, 2);
	md_swap_pool_close(pool);
}

Test(swap_pool, fresh_blocks_lie_side_by_side)
{
	struct md_swap_pool *pool = open_pool(make(40));
	uint32_t before, block;
	before = fill(pool, 100);
	for (uint32_t i = 0; i < 39; i++, before = block) {
		block = fill(pool, i);
		cr_assert_eq(block, before + 1, "block %u follows %u", block, before);
	}
	md_swap_pool_close(pool);
}

Test(swap_pool, what_nobody_holds_is_found_until_its_room_is_needed)
{
	struct md_swap_pool *pool = open_pool(make(4));
	struct md_hash hash = hash_of(0);
	uint32_t block, blocks[4];
	for (uint32_t i = 0; i < 4; i++)
		blocks[i] = fill(pool, i);
	assert_full(pool, 9);
	for (uint32_t i = 0; i < 4; i++)
		md_swap_pool_give(pool, blocks[i]);
	assert_counts(pool, 0, 4, 0);
	cr_assert(md_swap_pool_find(pool, &hash, &block), "it is still there");
	assert_holds(pool, block, 0);
	for (uint32_t i = 10; i < 13; i++)
		fill(pool, i);
	assert_full(pool, 13);
	assert_holds(pool, block, 0);
	hash = hash_of(1);
	cr_assert_not(md_swap_pool_find(pool, &hash, &block), "evicted");
	md_swap_pool_close(pool);
}

Test(swap_pool, a_block_that_was_never_filled_is_not_found)
{
	struct md_swap_pool *pool = open_pool(make(2));
	struct md_hash hash = hash_of(1);
	uint32_t block, other;
	cr_assert(take(pool, 1, &block), "fresh");
	cr_assert_not(take(pool, 1, &other), "its filler may share it");
	cr_assert_eq(block, other, "the same block");
	md_swap_pool_give(pool, block);
	md_swap_pool_give(pool, block);
	assert_counts(pool, 0, 0, 2);
	cr_assert_not(md_swap_pool_find(pool, &hash, &block), "it is gone");
	md_swap_pool_give(pool, block); /* once too often */
	assert_counts(pool, 0, 0, 2);
	md_swap_pool_close(pool);
}

Test(swap_pool, pages_are_there_before_they_are_used)
{
	struct md_swap_pool *pool = open_pool(make(16));
	atomic_bool stop = true;
	md_swap_pool_populate(pool, 10, 1, &stop);
	cr_assert_eq(md_swap_pool_populated(pool), 0, "stopped");
	stop = false;
	md_swap_pool_populate(pool, 10, 3, &stop);
	uint32_t populated = md_swap_pool_populated(pool);
	cr_assert(populated == 10 || populated == 0 /* an old kernel */, "%u", populated);
	md_swap_pool_populate(pool, 100, 40, &stop);
	cr_assert_leq(md_swap_pool_populated(pool), 16, "no more than there are");
	md_swap_pool_close(pool);
}

/* ---- several processes ---- */

/* Runs act in a child that opens the pool by itself, and then dies without closing it. */
static void in_child(int fd, void (*act)(struct md_swap_pool *pool))
{
	int status = 0;
	pid_t child = fork();
	if (!child) {
		act(open_pool(fd));
		raise(SIGKILL);
	}
	cr_assert_eq(waitpid(child, &status, 0), child, "the child ended");
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", status);
}

static void fill_three(struct md_swap_pool *pool)
{
	uint32_t block;
	for (uint32_t i = 0; i < 3; i++)
		fill(pool, i);
	take(pool, 3, &block);
}

Test(swap_pool, what_a_dead_owner_held_is_freed)
{
	int fd = make(8);
	struct md_swap_pool *pool = open_pool(fd);
	uint32_t block = fill(pool, 0);
	in_child(fd, fill_three);
	assert_counts(pool, 4, 0, 4);
	md_swap_pool_sweep(pool);
	assert_counts(pool, 1, 2, 5);
	assert_holds(pool, block, 0);
	assert_holds(pool, fill(pool, 2), 2);
	md_swap_pool_close(pool);
}

static void take_one(struct md_swap_pool *pool)
{
	uint32_t block;
	take(pool, 1, &block);
}

Test(swap_pool, a_block_that_another_fills_is_not_shared)
{
	int fd = make(8);
	struct md_swap_pool *pool = open_pool(fd);
	uint32_t block;
	in_child(fd, take_one);
	cr_assert(take(pool, 1, &block), "a block of its own");
	assert_counts(pool, 2, 0, 6);
	md_swap_pool_sweep(pool);
	assert_counts(pool, 1, 0, 7);
	md_swap_pool_close(pool);
}

Test(swap_pool, a_full_pool_is_freed_of_what_the_dead_hold)
{
	int fd = make(5);
	struct md_swap_pool *pool = open_pool(fd);
	fill(pool, 10);
	in_child(fd, fill_three);
	assert_counts(pool, 5, 0, 0);
	assert_holds(pool, fill(pool, 11), 11);
	for (uint32_t i = 12; i < 15; i++)
		fill(pool, i);
	assert_full(pool, 15);
	md_swap_pool_close(pool);
}

/* Dies while it has memory for the pool under way, perhaps. */
static void populate_for_ever(struct md_swap_pool *pool)
{
	static atomic_bool stop;
	for (;;) {
		md_swap_pool_populate(pool, 256, 1, &stop);
		md_swap_pool_empty(pool);
	}
}

Test(swap_pool, owners_say_how_much_memory_they_want_and_any_may_see_to_it)
{
	int fd = make(300);
	struct md_swap_pool *pool = open_pool(fd), *other = open_pool(fd);
	atomic_bool stop = false;
	md_swap_pool_want(pool, 100);
	md_swap_pool_want(other, 150);
	cr_assert_eq(md_swap_pool_wanted(pool), 250, "%u", md_swap_pool_wanted(pool));
	md_swap_pool_want(other, UINT32_MAX);
	cr_assert_eq(md_swap_pool_wanted(pool), 300, "what there is");
	md_swap_pool_close(other);
	cr_assert_eq(md_swap_pool_wanted(pool), 100, "who has left wants nothing");
	md_swap_pool_close(pool);
	for (uint32_t round = 0; round < 5; round++) {
		pid_t child = fork();
		if (!child)
			populate_for_ever(open_pool(fd));
		usleep(20000 + 7000 * round);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	pool = open_pool(fd);
	cr_assert_eq(md_swap_pool_wanted(pool), 0, "nor does who has died");
	md_swap_pool_populate(pool, 300, 2, &stop);
	uint32_t populated = md_swap_pool_populated(pool);
	cr_assert(populated == 300 || populated == 0 /* an old kernel */, "%u", populated);
	md_swap_pool_close(pool);
}

Test(swap_pool, whoever_has_the_descriptor_sees_how_full_it_is)
{
	int fd = make(8);
	struct md_swap_pool *pool = open_pool(fd);
	struct md_swap_pool_counts counts;
	struct md_error err = {0};
	fill(pool, 1);
	md_swap_pool_give(pool, fill(pool, 2));
	cr_assert_eq(md_swap_pool_look(fd, &counts, &err), MD_OK, "%s", err.message);
	cr_assert(counts.blocks == 8 && counts.held == 1 && counts.cached == 1 && counts.free == 6, "held %u cached %u",
		  counts.held, counts.cached);
	cr_assert_eq(md_swap_pool_count(pool).owners, 1, "looking makes no owner");
	md_swap_pool_close(pool);
	cr_assert_eq(md_swap_pool_look(-1, &counts, &err), MD_ERR_CORRUPT, "no pool");
}

static void fill_all(struct md_swap_pool *pool)
{
	for (uint32_t i = 0; i < 8; i++)
		fill(pool, i);
}

Test(swap_pool, owners_that_have_died_leave_their_places)
{
	int fd = make(8);
	for (uint32_t i = 0; i < 2 * MD_SWAP_POOL_OWNERS; i++)
		in_child(fd, fill_all);
	struct md_swap_pool *pool = open_pool(fd);
	cr_assert_eq(md_swap_pool_count(pool).owners, 1, "only this one");
	assert_counts(pool, 0, 8, 0);
	md_swap_pool_close(pool);
}

Test(swap_pool, should_fail_too_many_owners)
{
	struct md_error err = {0};
	struct md_swap_pool *pools[MD_SWAP_POOL_OWNERS], *more = NULL;
	int fd = make(1);
	for (uint32_t i = 0; i < MD_SWAP_POOL_OWNERS; i++)
		pools[i] = open_pool(fd);
	cr_assert_eq(md_swap_pool_open(fd, &more, &err), MD_ERR_BUSY, "one too many");
	cr_assert(strstr(err.message, "256 processes use the pool"), "%s", err.message);
	for (uint32_t i = 0; i < MD_SWAP_POOL_OWNERS; i++)
		md_swap_pool_close(pools[i]);
}

/* Killed at any moment, with the lock held too. */
static void churn(struct md_swap_pool *pool)
{
	for (uint32_t i = 0;; i++) {
		uint32_t block = fill(pool, i % 50);
		if (i % 3)
			md_swap_pool_give(pool, block);
		if (i % 8 == 7)
			for (uint32_t b = 0; b < 16; b++)
				md_swap_pool_give(pool, b);
	}
}

Test(swap_pool, a_process_killed_at_any_moment_leaves_it_whole)
{
	int fd = make(16);
	struct md_swap_pool *pool = open_pool(fd);
	for (uint32_t round = 0; round < 60; round++) {
		pid_t child = fork();
		if (!child)
			churn(open_pool(fd));
		usleep(1000 + 137 * round);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		md_swap_pool_sweep(pool);
		struct md_swap_pool_counts counts = md_swap_pool_count(pool);
		cr_assert_eq(counts.held, 0, "round %u: %u are held", round, counts.held);
		for (uint32_t i = 0; i < 50; i++) {
			uint32_t block = fill(pool, i);
			assert_holds(pool, block, i);
			md_swap_pool_give(pool, block);
		}
		counts = md_swap_pool_count(pool);
		cr_assert(counts.cached + counts.free == 16 && !counts.held, "round %u", round);
	}
	md_swap_pool_close(pool);
}

/* ---- what is no pool ---- */

static void assert_refused(int fd, enum md_status status, const char *why)
{
	struct md_error err = {0};
	struct md_swap_pool *pool = NULL;
	cr_assert_eq(md_swap_pool_open(fd, &pool, &err), status, "%s", err.message);
	cr_assert(strstr(err.message, why), "%s", err.message);
}

Test(swap_pool, should_fail_what_is_no_pool)
{
	struct md_error err = {0};
	int fd, ends[2];
	cr_assert_eq(md_swap_pool_create(1ull << 60, &fd, &err), MD_ERR_TOO_LARGE, "too large");
	cr_assert(strstr(err.message, "it may have"), "%s", err.message);
	cr_assert_eq(pipe(ends), 0, "a pipe");
	assert_refused(ends[0], MD_ERR_CORRUPT, "not a pool");
	assert_refused(-1, MD_ERR_CORRUPT, "not a pool");
	fd = make(1);
	cr_assert_eq(pwrite(fd, "\x07", 1, 8), 1, "its version");
	assert_refused(fd, MD_ERR_VERSION, "version 7");
	fd = make(1);
	cr_assert_eq(pwrite(fd, "\x07", 1, 12), 1, "its blocks");
	assert_refused(fd, MD_ERR_CORRUPT, "7 blocks");
	cr_assert_neq(ftruncate(fd, 0), 0, "nobody can make it smaller");
}
