/* SPDX-License-Identifier: Apache-2.0 */
/* The file behind a pool: how it is made, which pools take it, what is given back, and what is refused. */
#include "tests/swap_spill_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>

TestSuite(swap_spill_file, .timeout = 60);

/* Four blocks in memory, of an owner that rests. */
static void fill_four_and_rest(struct md_swap_pool *pool)
{
	for (uint32_t i = 1; i <= 4; i++)
		fill(pool, i);
	md_swap_pool_rest(pool);
}

/* ---- the file ---- */

static uint64_t disk_of(int fd)
{
	struct stat info;
	cr_assert_eq(fstat(fd, &info), 0, "the file");
	return (uint64_t)info.st_blocks * 512;
}

Test(swap_spill_file, the_file_has_no_name_and_only_its_user_may_read_it)
{
	struct stat info;
	make_spilling(4, 8);
	cr_assert_eq(fstat(spill.kept.fd, &info), 0, "the file");
	cr_assert(info.st_nlink == 0 && (info.st_mode & 07777) == 0600, "mode %o", info.st_mode);
	cr_assert_eq((uint64_t)info.st_size, 8 * MD_SWAP_BLOCK, "%zu", (size_t)info.st_size);
}

Test(swap_spill_file, the_disk_gets_its_room_back_when_nobody_has_the_pool)
{
	int fd = make_spilling(4, 8);
	struct md_swap_pool *one = open_spilling(fd), *two = open_spilling(fd);
	fill_four_and_rest(one);
	make_room(two, 4);
	cr_assert_geq(disk_of(spill.kept.fd), 4 * MD_SWAP_BLOCK, "it is on the disk");
	cr_assert_not(md_swap_pool_empty(two), "another one has it");
	md_swap_pool_close(one);
	cr_assert(md_swap_pool_empty(two), "nobody else");
	cr_assert_lt(disk_of(spill.kept.fd), MD_SWAP_BLOCK, "%zu bytes", (size_t)disk_of(spill.kept.fd));
	assert_counts(two, 0, 0, 0, 0);
	fill_four_and_rest(two);
	md_swap_pool_close(two);
}

static ssize_t refuse_direct(int fd, const void *data, size_t size, off_t at)
{
	if (fcntl(fd, F_GETFL) & O_DIRECT) {
		errno = EINVAL;
		return -1;
	}
	return pwrite(fd, data, size, at);
}

Test(swap_spill_file, without_o_direct_blocks_go_through_the_page_cache)
{
	struct md_error err = {0};
	int fd;
	watch_calls();
	md_swap_spill_calls.write = refuse_direct;
	cr_assert_eq(md_swap_spill_create("/tmp", 8 * MD_SWAP_BLOCK, &spill, &err), MD_OK, "%s", err.message);
	cr_assert_not(spill.direct, "it is not used");
	cr_assert_eq(md_swap_pool_create_spilling(4 * MD_SWAP_BLOCK, &spill, &fd, &err), MD_OK, "%s", err.message);
	struct md_swap_pool *one = open_spilling(fd), *two = open_spilling(fd);
	fill_four_and_rest(one);
	cr_assert_eq(make_room(two, 4), 4, "written");
	fill_from(two, 50, 4);
	md_swap_pool_work(one);
	cr_assert_eq(count_in_file(one, 1, 4), 4, "read");
	md_swap_pool_close(one), md_swap_pool_close(two);
}

/* ---- refusals ---- */

static void assert_not_made(const char *folder, uint64_t bytes, enum md_status status, const char *why)
{
	struct md_swap_spill_file made;
	struct md_error err = {0};
	cr_assert_eq(md_swap_spill_create(folder, bytes, &made, &err), status, "%s", err.message);
	cr_assert(strstr(err.message, folder) && strstr(err.message, why), "%s", err.message);
}

Test(swap_spill_file, should_fail_to_make_a_file)
{
	assert_not_made("/nowhere", 0, MD_ERR_OUTPUT, "No such file or directory");
	assert_not_made("/dev/null", 0, MD_ERR_OUTPUT, "Not a directory");
	assert_not_made("/proc", 0, MD_ERR_OUTPUT, "making it");
	assert_not_made("/tmp", UINT64_MAX, MD_ERR_TOO_LARGE, "at most");
	watch_calls();
	call_fails = 0;
	fail_with = ENOSPC;
	assert_not_made("/tmp", 1, MD_ERR_OUTPUT, "No space left on device");
	call_fails = 2;
	assert_not_made("/tmp", 1, MD_ERR_OUTPUT, "No space left on device");
}

static void assert_not_opened(int fd, int spill_fd, const char *why)
{
	struct md_error err = {0};
	struct md_swap_pool *pool = NULL;
	cr_assert_eq(md_swap_pool_open_spilling(fd, spill_fd, &pool, &err), MD_ERR_INVALID, "%s", err.message);
	cr_assert(strstr(err.message, why), "%s", err.message);
}

Test(swap_spill_file, should_fail_to_open_without_its_own_file)
{
	struct md_error err = {0};
	struct stat info;
	bool is = true;
	int other = make_spilling(4, 8), others = spill.kept.fd, fd = make_spilling(4, 8), none = -1;
	char path[64];
	assert_not_opened(fd, -1, "its descriptor was not given (medusa-swap run --spill-fd)");
	assert_not_opened(fd, others, "not that of the pool's spill file");
	assert_not_opened(fd, 12345, "not that of the pool's spill file");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", spill.kept.fd);
	int reading = open(path, O_RDONLY | O_CLOEXEC);
	assert_not_opened(fd, reading, "not that of the pool's spill file");
	cr_assert_eq(md_swap_pool_create(MD_SWAP_BLOCK, &none, &err), MD_OK, "%s", err.message);
	assert_not_opened(none, others, "the pool has no spill file");
	cr_assert_eq(md_swap_pool_is_spill(fd, others, &is, &err), MD_OK, "%s", err.message);
	cr_assert_not(is, "another pool's");
	cr_assert_eq(md_swap_pool_is_spill(fd, spill.kept.fd, &is, &err), MD_OK, "%s", err.message);
	cr_assert(is, "its own");
	int writing = open(path, O_RDWR | O_CLOEXEC);
	struct md_swap_pool *pool = NULL;
	cr_assert_eq(md_swap_pool_open_spilling(fd, writing, &pool, &err), MD_OK, "%s", err.message);
	cr_assert(!spill.direct || fcntl(writing, F_GETFL) & O_DIRECT, "past the page cache from there, too");
	cr_assert_eq(fstat(writing, &info), 0, "the file");
	md_swap_pool_close(pool);
	close(other);
}
