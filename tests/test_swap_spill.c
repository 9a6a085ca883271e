/* SPDX-License-Identifier: Apache-2.0 */
/* The spill file of a pool: whose blocks are moved there, found again, and what failures, deaths and full disks leave. */
#include "tests/swap_spill_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "swap/pool_layout.h"

TestSuite(swap_spill, .timeout = 180);

static void give_all(struct md_swap_pool *pool, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct md_hash hash = hash_of(first + i);
		md_swap_pool_give_hash(pool, &hash);
	}
}

/* ---- whose blocks are moved ---- */

Test(swap_spill, blocks_of_who_rests_for_longest_are_moved)
{
	int fd = make_spilling(8, 8);
	struct md_swap_pool *one = open_spilling(fd), *two = open_spilling(fd), *three = open_spilling(fd);
	fill_from(two, 10, 3);
	md_swap_pool_rest(two);
	fill_from(one, 20, 3);
	md_swap_pool_rest(one);
	cr_assert_eq(make_room(three, 2), 0, "there is room");
	cr_assert_eq(make_room(three, 4), 2, "two are written");
	assert_counts(three, 4, 2, 2, 0);
	cr_assert_eq(md_swap_pool_spilled(two), 2 * MD_SWAP_BLOCK, "it is told");
	cr_assert_eq(md_swap_pool_spilled(one), 0, "nothing of this one");
	cr_assert_eq(make_room(three, 6), 2, "two more");
	cr_assert_eq(make_room(three, 8), 2, "all");
	cr_assert_eq(make_room(three, 9), 0, "there are no more");
	fill_from(three, 100, 8);
	md_swap_pool_work(one);
	md_swap_pool_work(two);
	cr_assert_eq(count_in_file(two, 10, 3), 3, "all of it");
	cr_assert_eq(count_in_file(one, 20, 3), 3, "all of it");
	give_all(one, 20, 3);
	assert_counts(three, 8, 0, 3, 3);
	md_swap_pool_close(one), md_swap_pool_close(two), md_swap_pool_close(three);
}

Test(swap_spill, who_works_keeps_its_blocks)
{
	int fd = make_spilling(4, 8);
	struct md_swap_pool *one = open_spilling(fd), *two = open_spilling(fd);
	fill_from(one, 1, 4);
	cr_assert_eq(make_room(two, 1), 0, "it works");
	md_swap_pool_rest(one);
	fill(two, 2);
	cr_assert_eq(make_room(two, 4), 3, "all but that which the other one works with");
	fill_from(two, 50, 3);
	cr_assert_eq(count_in_file(one, 1, 4), 3, "they are in the file");
	cr_assert_not(md_swap_is_spilled(check(two, 2)), "is where it was");
	md_swap_pool_close(one), md_swap_pool_close(two);
}

/* The one that was out first waits for the one that holds it, too, and went out last. */
Test(swap_spill, a_block_is_as_young_as_its_youngest_holder)
{
	int fd = make_spilling(4, 8);
	struct md_swap_pool *one = open_spilling(fd), *two = open_spilling(fd), *three = open_spilling(fd);
	fill_from(one, 1, 2);
	md_swap_pool_rest(one);
	fill(two, 1);
	fill_from(two, 3, 2);
	md_swap_pool_rest(two);
	make_room(three, 1);
	fill(three, 50);
	md_swap_pool_work(one);
	cr_assert(md_swap_is_spilled(check(one, 2)), "its own");
	cr_assert_not(md_swap_is_spilled(check(one, 1)), "that of both, which is looked at first");
	md_swap_pool_rest(one);
	make_room(three, 3);
	fill_from(three, 51, 3);
	md_swap_pool_work(one);
	md_swap_pool_work(two);
	uint32_t block = check(one, 1);
	cr_assert(md_swap_is_spilled(block) && check(two, 1) == block, "both hold it in one place");
	md_swap_pool_close(one), md_swap_pool_close(two), md_swap_pool_close(three);
}

Test(swap_spill, a_block_of_the_file_is_found_held_and_not_written_again)
{
	int fd = make_spilling(4, 8);
	struct md_swap_pool *one = open_spilling(fd), *two = open_spilling(fd);
	struct md_hash hash = hash_of(3);
	uint32_t block, spare;
	fill_from(one, 1, 4);
	md_swap_pool_rest(one);
	make_room(two, 4);
	fill_from(two, 50, 4);
	cr_assert(md_swap_pool_find(two, &hash, &block) && md_swap_is_spilled(block), "another engine finds it");
	md_swap_pool_give(two, block);
	cr_assert_not(md_swap_pool_take_spare(two, &hash, &spare), "memory is full");
	give_all(two, 50, 4);
	md_swap_pool_work(one);
	for (uint32_t i = 1; i <= 4; i++) { /* it comes in: its blocks are in memory again, and in the file */
		hash = hash_of(i);
		cr_assert(md_swap_pool_take_spare(one, &hash, &spare), "room in memory");
		memcpy(md_swap_pool_bytes(one, spare), &(uint32_t){i}, 4); /* only its first word */
		md_swap_pool_filled(one, spare);
		md_swap_pool_give(one, spare);
	}
	assert_counts(one, 0, 4, 4, 0);
	give_all(one, 1, 4);
	assert_counts(one, 0, 4, 0, 4);
	fill_from(one, 1, 4); /* ... and out again */
	assert_counts(one, 4, 0, 0, 4);
	md_swap_pool_rest(one);
	cr_assert_eq(make_room(two, 4), 0, "the file has them");
	assert_counts(one, 0, 4, 4, 0);
	md_swap_pool_work(one);
	md_swap_pool_close(one), md_swap_pool_close(two);
}

Test(swap_spill, what_is_left_in_memory_is_preferred)
{
	int fd = make_spilling(4, 8);
	struct md_swap_pool *one = open_spilling(fd), *two = open_spilling(fd);
	fill_from(one, 1, 4);
	md_swap_pool_rest(one);
	cr_assert_eq(make_room(two, 4), 4, "all are written");
	fill(two, 50);
	md_swap_pool_work(one);
	cr_assert_eq(count_in_file(one, 1, 4), 1, "the memory of one was taken");
	assert_counts(one, 4, 0, 1, 3);
	md_swap_pool_close(one), md_swap_pool_close(two);
}

Test(swap_spill, a_file_that_is_full_moves_what_fits)
{
	int fd = make_spilling(6, 3);
	struct md_swap_pool *one = open_spilling(fd), *two = open_spilling(fd);
	struct md_hash hash = hash_of(99);
	uint32_t block;
	bool fresh;
	fill_from(one, 1, 6);
	md_swap_pool_rest(one);
	cr_assert_eq(md_swap_pool_room(two, 3), 3, "in the file");
	cr_assert_eq(make_room(two, 6), 3, "as many as fit");
	cr_assert_not(md_swap_pool_take_spilled(two, &hash, &block, &fresh), "the file is full");
	fill_from(two, 50, 3);
	cr_assert_eq(md_swap_pool_room(two, 1), 0, "so is memory");
	md_swap_pool_work(one);
	cr_assert_eq(count_in_file(one, 1, 6), 3, "the rest is in memory");
	give_all(one, 1, 6);
	cr_assert(md_swap_pool_take_spilled(two, &hash, &block, &fresh) && fresh && md_swap_is_spilled(block),
		  "a copy makes room");
	cr_assert(md_swap_pool_take_spilled(two, &hash, &block, &fresh) && !fresh, "the same again");
	md_swap_pool_give(two, block), md_swap_pool_give(two, block);
	cr_assert_eq(md_swap_pool_count(two).spill.free, 1, "it was not filled");
	md_swap_pool_close(one), md_swap_pool_close(two);
}

Test(swap_spill, bytes_that_are_looked_at_are_those_of_the_block)
{
	int fd = make_spilling(2, 4);
	struct md_swap_pool *one = open_spilling(fd), *two = open_spilling(fd);
	struct md_hash hash = hash_of(1);
	uint8_t *room = malloc(MD_SWAP_BLOCK);
	uint32_t block = fill(one, 1);
	fill(one, 2);
	md_swap_pool_rest(one);
	assert_words(md_swap_pool_peek(one, &hash, block, room), 1);
	make_room(two, 2);
	cr_assert_null(md_swap_pool_peek(one, &hash, block, room), "it was moved");
	fill_from(two, 5, 2);
	cr_assert_null(md_swap_pool_peek(one, &hash, block, room), "others are there");
	free(room);
	md_swap_pool_close(one), md_swap_pool_close(two);
}

static atomic_bool over;

/* Takes all memory for blocks of its own, and gives it back, over and over. */
static void *press(void *argument)
{
	struct md_swap_pool *other = argument;
	for (uint32_t turn = 0; !over; turn = (turn + 1) % 50) {
		struct md_hash hash = hash_of(1000 + turn);
		struct md_error err = {0};
		uint64_t written;
		uint32_t block;
		bool fresh;
		md_swap_pool_make_room(other, 2, &written, &err);
		if (md_swap_pool_take(other, &hash, &block, &fresh, &err) != MD_OK)
			continue;
		memset(md_swap_pool_bytes(other, block), 0xee, MD_SWAP_BLOCK);
		md_swap_pool_filled(other, block);
		md_swap_pool_give(other, block);
	}
	return NULL;
}

Test(swap_spill, bytes_that_are_looked_at_do_not_change)
{
	int fd = make_spilling(2, 80);
	struct md_swap_pool *one = open_spilling(fd), *two = open_spilling(fd);
	uint8_t *room = malloc(MD_SWAP_BLOCK);
	pthread_t thread;
	over = false;
	cr_assert_eq(pthread_create(&thread, NULL, press, two), 0, "a thread");
	for (uint32_t turn = 0; turn < 300; turn++) {
		struct md_hash hash = hash_of(turn + 1);
		const void *bytes;
		uint32_t block = fill(one, turn + 1);
		md_swap_pool_rest(one);
		while (!md_swap_is_spilled(block) && (bytes = md_swap_pool_peek(one, &hash, block, room)) != NULL)
			assert_words(bytes, turn + 1);
		md_swap_pool_work(one);
		md_swap_pool_give_hash(one, &hash);
	}
	over = true;
	pthread_join(thread, NULL);
	free(room);
	md_swap_pool_close(one), md_swap_pool_close(two);
}

/* ---- while a block is written ---- */

static struct md_swap_pool *owner;

static void wake(void)
{
	md_swap_pool_work(owner);
}

Test(swap_spill, an_owner_that_begins_to_work_keeps_its_blocks)
{
	int fd = make_spilling(4, 8);
	struct md_swap_pool *two = open_spilling(fd);
	owner = open_spilling(fd);
	fill_from(owner, 1, 4);
	md_swap_pool_rest(owner);
	at_write = wake;
	cr_assert_eq(make_room(two, 2), 2, "they were written");
	assert_counts(two, 4, 0, 0, 2);
	cr_assert_eq(count_in_file(owner, 1, 4), 0, "all are in memory");
	assert_counts(two, 4, 0, 0, 2);
	at_write = NULL;
	md_swap_pool_rest(owner);
	cr_assert_eq(make_room(two, 2), 0, "the copies serve now");
	md_swap_pool_work(owner);
	count_in_file(owner, 1, 4);
	md_swap_pool_close(owner), md_swap_pool_close(two);
}

static void give_up(void)
{
	md_swap_pool_work(owner);
	give_all(owner, 1, 4);
}

Test(swap_spill, an_owner_that_gives_its_blocks_back_meanwhile)
{
	int fd = make_spilling(4, 8);
	struct md_swap_pool *two = open_spilling(fd);
	owner = open_spilling(fd);
	fill_from(owner, 1, 4);
	md_swap_pool_rest(owner);
	at_write = give_up;
	make_room(two, 1);
	cr_assert_eq(md_swap_pool_count(two).held, 0, "nobody holds anything");
	cr_assert_eq(md_swap_pool_count(two).spill.held, 0, "nobody holds anything");
	md_swap_pool_close(owner), md_swap_pool_close(two);
}

/* ---- failures ---- */

static void assert_fails(struct md_swap_pool *pool, const char *why)
{
	struct md_error err = {0};
	uint64_t written;
	cr_assert_eq(md_swap_pool_make_room(pool, 4, &written, &err), MD_ERR_NO_MEMORY, "%s", err.message);
	cr_assert(strstr(err.message, "the spill file in ") && strstr(err.message, why), "%s", err.message);
}

Test(swap_spill, should_fail_each_call_in_turn_and_nothing_is_lost)
{
	static const int failures[] = {EIO, ENOSPC, EDQUOT};
	for (size_t f = 0; f < 3; f++) {
		int fd = make_spilling(4, 8);
		struct md_swap_pool *one = open_spilling(fd), *two = open_spilling(fd);
		fill_from(one, 1, 4);
		int n = 0;
		for (;; n++) {
			struct md_error err = {0};
			uint64_t written;
			md_swap_pool_rest(one);
			fail_with = failures[f];
			call_fails = n;
			enum md_status status = md_swap_pool_make_room(two, 4, &written, &err);
			bool failed = call_fails < 0;
			call_fails = -1;
			md_swap_pool_work(one);
			for (uint32_t i = 1; i <= 4; i++)
				check(one, i);
			cr_assert_eq(status, failed ? MD_ERR_NO_MEMORY : MD_OK, "call %d: %s", n, err.message);
			if (!failed)
				break;
			cr_assert(strstr(err.message, "writing 2 MiB at offset "), "%s", err.message);
			md_swap_pool_close(one), md_swap_pool_close(two);
			close(fd);
			fd = make_spilling(4, 8);
			one = open_spilling(fd), two = open_spilling(fd);
			fill_from(one, 1, 4);
		}
		cr_assert_geq(n, 8, "%d calls", n);
		md_swap_pool_close(one), md_swap_pool_close(two);
	}
}

Test(swap_spill, should_fail_a_disk_that_is_full)
{
	int fd = make_spilling(4, 8);
	struct md_swap_pool *one = open_spilling(fd), *two = open_spilling(fd);
	fill_from(one, 1, 4);
	md_swap_pool_rest(one);
	call_fails = 2;
	fail_with = ENOSPC;
	assert_fails(two, "No space left on device");
	md_swap_pool_close(one), md_swap_pool_close(two);
}

Test(swap_spill, should_fail_a_descriptor_that_was_closed)
{
	int fd = make_spilling(4, 8);
	struct md_swap_pool *one = open_spilling(fd), *two = open_spilling(fd);
	struct md_error err = {0};
	int number = md_swap_pool_spill(two)->kept.fd;
	fill_from(one, 1, 4);
	md_swap_pool_rest(one);
	close(number);
	assert_fails(two, "the engine has closed its descriptor");
	int other = open("/dev/null", O_WRONLY);
	cr_assert_eq(dup2(other, number), number, "it has another file there");
	assert_fails(two, "the engine has closed its descriptor");
	cr_assert_eq(md_swap_pool_renew_spill(two, spill.kept.fd, &err), MD_OK, "%s", err.message);
	cr_assert_eq(make_room(two, 4), 4, "a new one serves");
	md_swap_pool_close(one), md_swap_pool_close(two);
	cr_assert_eq(fcntl(number, F_GETFD), 0, "the engine's file stays open");
}

/* ---- deaths ---- */

static void in_child(int fd, void (*act)(struct md_swap_pool *pool))
{
	int status = 0;
	pid_t child = fork();
	if (!child) {
		act(open_spilling(fd));
		raise(SIGKILL);
	}
	cr_assert_eq(waitpid(child, &status, 0), child, "the child ended");
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", status);
}

static void fill_four_and_rest(struct md_swap_pool *pool)
{
	fill_from(pool, 1, 4);
	md_swap_pool_rest(pool);
}

Test(swap_spill, what_the_dead_hold_is_not_written)
{
	int fd = make_spilling(4, 8);
	struct md_swap_pool *pool = open_spilling(fd);
	in_child(fd, fill_four_and_rest);
	cr_assert_eq(make_room(pool, 4), 0, "they are swept");
	assert_counts(pool, 0, 4, 0, 0);
	md_swap_pool_close(pool);
}

static void die(void)
{
	kill(getpid(), SIGKILL);
}

static void die_in_the_middle(struct md_swap_pool *pool)
{
	at_write = die;
	make_room(pool, 4);
}

Test(swap_spill, who_dies_in_the_middle_of_a_write_leaves_the_block)
{
	int fd = make_spilling(4, 8);
	struct md_swap_pool *pool = open_spilling(fd), *two = open_spilling(fd);
	fill_four_and_rest(pool);
	in_child(fd, die_in_the_middle);
	md_swap_pool_sweep(pool);
	md_swap_pool_work(pool);
	cr_assert_eq(count_in_file(pool, 1, 4), 0, "all are in memory");
	assert_counts(pool, 4, 0, 0, 0);
	md_swap_pool_rest(pool);
	cr_assert_eq(make_room(two, 4), 4, "another one writes them");
	md_swap_pool_close(pool), md_swap_pool_close(two);
}

/* Dies with the lock, after the references of the first of two owners were moved. */
static uint32_t moves_from, moves_to, done_for;

static void die_with_the_lock(struct md_swap_pool *pool)
{
	md_swap_pool_lock(pool);
	uint32_t to;
	struct md_hash hash = pool->blocks[moves_from].hash;
	cr_assert(md_swap_pool_take_fresh(pool, MD_SWAP_TIER_FILE, &hash, &to), "room");
	moves_to = to;
	md_swap_pool_set_state(&pool->blocks[to], MD_SWAP_BLOCK_FILLED);
	md_swap_pool_let_go(pool, to, 1);
	pool->head->moves_to = to + 1;
	pool->head->moves_from = moves_from + 1;
	for (uint32_t i = 0; i < 2; i++) {
		if (i < done_for || done_for == 3)
			md_swap_pool_refs(pool, i)[to] = 1;
		if (i < done_for)
			md_swap_pool_refs(pool, i)[moves_from] = 0;
	}
}

Test(swap_spill, a_move_that_was_half_done_is_ended_by_the_next_one)
{
	for (done_for = 0; done_for < 4; done_for++) {
		int fd = make_spilling(4, 8);
		struct md_swap_pool *one = open_spilling(fd), *two = open_spilling(fd);
		moves_from = fill(one, 1);
		fill(two, 1);
		md_swap_pool_rest(one), md_swap_pool_rest(two);
		in_child(fd, die_with_the_lock);
		md_swap_pool_sweep(one);
		assert_counts(one, 0, 1, 1, 0);
		md_swap_pool_close(one);
		assert_counts(two, 0, 1, 1, 0);
		md_swap_pool_close(two);
	}
}

/* Owners 0 to 4 values each from a few that all use, so that blocks are shared, moved, found and given. */
static void churn(struct md_swap_pool *pool, uint32_t seed)
{
	for (uint32_t turn = seed;; turn++) {
		struct md_error err = {0};
		uint32_t held[5], count = 1 + turn % 5, got = 0;
		uint64_t written;
		md_swap_pool_make_room(pool, count, &written, &err);
		for (uint32_t i = 0; i < count; i++) {
			struct md_hash hash = hash_of((turn * 3 + i) % 24);
			uint32_t block;
			bool fresh, spilled = false;
			if (md_swap_pool_take(pool, &hash, &block, &fresh, &err) != MD_OK) {
				if (!md_swap_pool_take_spilled(pool, &hash, &block, &fresh))
					break;
				spilled = md_swap_is_spilled(block);
			}
			held[got++] = (turn * 3 + i) % 24;
			if (!fresh)
				continue;
			static _Alignas(4096) uint32_t room[MD_SWAP_BLOCK / 4];
			uint32_t *words = spilled ? room : md_swap_pool_bytes(pool, block);
			for (size_t w = 0; w < MD_SWAP_BLOCK / 4; w++)
				words[w] = held[got - 1];
			if (spilled)
				md_swap_spill_write(md_swap_pool_spill(pool), block - MD_SWAP_SPILLED, room);
			md_swap_pool_filled(pool, block);
		}
		md_swap_pool_rest(pool);
		usleep(turn % 700);
		md_swap_pool_work(pool);
		for (uint32_t i = 0; i < got; i++) {
			struct md_hash hash = hash_of(held[i]);
			check(pool, held[i]);
			if (turn % 11)
				md_swap_pool_give_hash(pool, &hash);
		}
		if (turn % 11 == 0)
			for (uint32_t i = 0; i < got; i++) {
				struct md_hash hash = hash_of(held[i]);
				md_swap_pool_give_hash(pool, &hash);
			}
	}
}

Test(swap_spill, processes_killed_at_any_moment_leave_it_whole)
{
	int fd = make_spilling(10, 12);
	struct md_swap_pool *pool = open_spilling(fd), *other = open_spilling(fd);
	fill_from(pool, 100, 3);
	md_swap_pool_rest(pool);
	for (uint32_t round = 0; round < 60; round++) {
		pid_t children[3];
		for (uint32_t i = 0; i < 3; i++) {
			children[i] = fork();
			if (!children[i])
				churn(open_spilling(fd), 1000 * round + 100 * i);
		}
		usleep(3000 + 311 * round);
		int status;
		for (uint32_t i = 0; i < 3; i++) {
			cr_assert_eq(waitpid(children[i], &status, WNOHANG), 0, "round %u: child %u found no fault",
				     round, i);
			kill(children[i], SIGKILL);
			waitpid(children[i], NULL, 0);
		}
		md_swap_pool_sweep(pool);
		md_swap_pool_work(pool);
		for (uint32_t i = 0; i < 3; i++)
			check(pool, 100 + i);
		struct md_swap_pool_counts c = md_swap_pool_count(pool);
		cr_assert_eq(c.held + c.spill.held, 3, "round %u: %u and %u are held", round, c.held, c.spill.held);
		cr_assert(c.held + c.cached + c.free == 10 && c.spill.held + c.spill.cached + c.spill.free == 12,
			  "round %u", round);
		for (uint32_t i = 0; i < 24; i++) {
			struct md_hash hash = hash_of(i);
			uint32_t block;
			if (!md_swap_pool_find(other, &hash, &block))
				continue;
			check(other, i);
			md_swap_pool_give_hash(other, &hash);
		}
		md_swap_pool_rest(pool);
	}
	md_swap_pool_close(pool), md_swap_pool_close(other);
}
