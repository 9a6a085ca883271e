/* SPDX-License-Identifier: Apache-2.0 */
/* A pool with a spill file, whose calls of the system can fail. */
#ifndef TESTS_SWAP_SPILL_FIXTURE_H
#define TESTS_SWAP_SPILL_FIXTURE_H

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "swap/pool_spill.h"

static struct md_swap_spill_file spill; /* of the pool that was made last */
static int call_fails = -1;             /* calls of the system until one fails with fail_with; -1: none does */
static int fail_with = EIO;
static void (*at_write)(void); /* called in the middle of each write; NULL: nothing */
static struct md_swap_spill_calls real_calls;

static inline bool fails_now(void)
{
	if (__atomic_load_n(&call_fails, __ATOMIC_SEQ_CST) < 0 ||
	    __atomic_fetch_sub(&call_fails, 1, __ATOMIC_SEQ_CST) != 0)
		return false;
	errno = fail_with;
	return true;
}

static inline ssize_t test_write(int fd, const void *data, size_t size, off_t at)
{
	if (at_write)
		at_write();
	return fails_now() ? -1 : real_calls.write(fd, data, size, at);
}

static inline ssize_t test_read(int fd, void *data, size_t size, off_t at)
{
	return fails_now() ? -1 : real_calls.read(fd, data, size, at);
}

static inline int test_allocate(int fd, int mode, off_t at, off_t size)
{
	return fails_now() ? -1 : real_calls.allocate(fd, mode, at, size);
}

static inline int test_sync(int fd)
{
	return fails_now() ? -1 : real_calls.sync(fd);
}

static inline void watch_calls(void)
{
	if (!real_calls.write)
		real_calls = md_swap_spill_calls;
	md_swap_spill_calls = (struct md_swap_spill_calls){
	    .write = test_write, .read = test_read, .allocate = test_allocate, .sync = test_sync};
}

/* In the folder where tests leave their files; blocks of memory and of the file. */
static inline int make_spilling(uint32_t blocks, uint32_t in_file)
{
	struct md_error err = {0};
	int fd = -1;
	watch_calls();
	const char *folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	cr_assert_eq(md_swap_spill_create(folder, in_file * MD_SWAP_BLOCK, &spill, &err), MD_OK, "%s", err.message);
	cr_assert_eq(md_swap_pool_create_spilling(blocks * MD_SWAP_BLOCK, &spill, &fd, &err), MD_OK, "%s", err.message);
	return fd;
}

static inline struct md_swap_pool *open_spilling(int fd)
{
	struct md_error err = {0};
	struct md_swap_pool *opened = NULL;
	cr_assert_eq(md_swap_pool_open_spilling(fd, spill.kept.fd, &opened, &err), MD_OK, "%s", err.message);
	return opened;
}

/* ---- blocks, all of whose words are a value ---- */

static inline struct md_hash hash_of(uint32_t value)
{
	return md_hash_bytes(&value, sizeof(value));
}

/* Holds the block of this value, all of whose words are the value, in memory. */
static inline uint32_t fill(struct md_swap_pool *p, uint32_t value)
{
	struct md_hash hash = hash_of(value);
	struct md_error err = {0};
	uint32_t block = 0;
	bool fresh = false;
	cr_assert_eq(md_swap_pool_take(p, &hash, &block, &fresh, &err), MD_OK, "block %u: %s", value, err.message);
	if (fresh) {
		uint32_t *words = md_swap_pool_bytes(p, block);
		for (size_t i = 0; i < MD_SWAP_BLOCK / 4; i++)
			words[i] = value;
		md_swap_pool_filled(p, block);
	}
	return block;
}

static inline void fill_from(struct md_swap_pool *p, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		fill(p, first + i);
}

static inline void assert_words(const uint32_t *words, uint32_t value)
{
	size_t right = 0;
	while (right < MD_SWAP_BLOCK / 4 && words[right] == value)
		right++;
	cr_assert_eq(right, MD_SWAP_BLOCK / 4, "word %zu of block %u", right, value);
}

/* Where a block is that this owner holds; its bytes are right. */
static inline uint32_t check(struct md_swap_pool *p, uint32_t value)
{
	static _Alignas(4096) uint32_t room[MD_SWAP_BLOCK / 4];
	struct md_hash hash = hash_of(value);
	uint32_t block = 0;
	cr_assert(md_swap_pool_locate(p, &hash, &block), "block %u is held", value);
	if (!md_swap_is_spilled(block)) {
		assert_words(md_swap_pool_bytes(p, block), value);
		return block;
	}
	cr_assert_eq(md_swap_spill_read(md_swap_pool_spill(p), block - MD_SWAP_SPILLED, room), 0, "it is read");
	assert_words(room, value);
	return block;
}

static inline uint32_t count_in_file(struct md_swap_pool *p, uint32_t first, uint32_t count)
{
	uint32_t in_file = 0;
	for (uint32_t i = 0; i < count; i++)
		in_file += md_swap_is_spilled(check(p, first + i));
	return in_file;
}

static inline uint64_t make_room(struct md_swap_pool *p, uint64_t wanted)
{
	struct md_error err = {0};
	uint64_t written = 77;
	cr_assert_eq(md_swap_pool_make_room(p, wanted, &written, &err), MD_OK, "%s", err.message);
	return written / MD_SWAP_BLOCK;
}

static inline void assert_counts(struct md_swap_pool *p, uint32_t held, uint32_t cached, uint32_t in_file,
				 uint32_t copies)
{
	struct md_swap_pool_counts c = md_swap_pool_count(p);
	cr_assert(c.held == held && c.cached == cached && c.spill.held == in_file && c.spill.cached == copies,
		  "memory: held %u, cached %u; file: held %u, cached %u; wanted %u, %u, %u, %u", c.held, c.cached,
		  c.spill.held, c.spill.cached, held, cached, in_file, copies);
	cr_assert(c.held + c.cached + c.free == c.blocks &&
		      c.spill.held + c.spill.cached + c.spill.free == c.spill.blocks,
		  "nothing is lost");
}

#endif
