/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how fast the spill file of a pool is written and read, against a file that as many threads write and read with
 * nothing around it, in turn: spill_times FOLDER [MIB [ROUNDS]]
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/splitmix.h"
#include "swap/pool_spill.h"
#include "swap/spill_queue.h"

#define WINDOW (2 * MD_SWAP_SPILL_AT_ONCE)

static const char *folder;
static uint32_t blocks = 256;

static void need(bool good, const char *what, const char *why)
{
	if (good)
		return;
	fprintf(stderr, "spill_times: %s: %s\n", what, why);
	exit(1);
}

static void need_ok(enum md_status status, const struct md_error *err)
{
	need(status == MD_OK, "the pool", err->message);
}

/* In MB/s. */
static double rate(uint64_t began)
{
	return (double)(blocks * MD_SWAP_BLOCK) * 1e3 / (double)(md_clock_ns() - began);
}

static void *take_memory(uint64_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	need(at != MAP_FAILED, "memory", strerror(errno));
	return at;
}

static void fill(void *block, uint64_t seed)
{
	uint64_t *words = block;
	for (size_t i = 0; i < MD_SWAP_BLOCK / sizeof(*words); i++)
		words[i] = md_random_next(&seed);
}

/* ---- a file with nothing around it ---- */

static struct {
	int fd;
	uint8_t *memory;
	atomic_uint next;
	bool write;
} raw;

static void *move_raw(void *unused)
{
	for (uint32_t i; (i = atomic_fetch_add(&raw.next, 1)) < blocks;) {
		uint8_t *at = raw.memory + i * MD_SWAP_BLOCK;
		off_t offset = (off_t)(i * MD_SWAP_BLOCK);
		ssize_t moved =
		    raw.write ? pwrite(raw.fd, at, MD_SWAP_BLOCK, offset) : pread(raw.fd, at, MD_SWAP_BLOCK, offset);
		need(moved == (ssize_t)MD_SWAP_BLOCK, "a file without a pool", strerror(errno));
	}
	return unused;
}

static double raw_rate(bool write)
{
	pthread_t threads[MD_SWAP_SPILL_AT_ONCE];
	uint64_t began = md_clock_ns();
	raw.write = write;
	raw.next = 0;
	for (unsigned i = 0; i < MD_SWAP_SPILL_AT_ONCE; i++)
		need(!pthread_create(&threads[i], NULL, move_raw, NULL), "a thread", "none");
	for (unsigned i = 0; i < MD_SWAP_SPILL_AT_ONCE; i++)
		pthread_join(threads[i], NULL);
	return rate(began);
}

static void open_raw(bool direct)
{
	raw.fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | (direct ? O_DIRECT : 0), 0600);
	need(raw.fd >= 0 && !ftruncate(raw.fd, (off_t)(blocks * MD_SWAP_BLOCK)), folder, strerror(errno));
	raw.memory = take_memory(blocks * MD_SWAP_BLOCK);
	for (uint32_t i = 0; i < blocks; i++)
		fill(raw.memory + i * MD_SWAP_BLOCK, i);
}

static void close_raw(void)
{
	close(raw.fd);
	munmap(raw.memory, blocks * MD_SWAP_BLOCK);
}

/* ---- a pool's spill file ---- */

static struct md_swap_spill_file spill;
static struct md_swap_pool *holder, *other;

static void open_pool(void)
{
	struct md_error err = {0};
	int fd = -1;
	need_ok(md_swap_spill_create(folder, blocks * MD_SWAP_BLOCK, &spill, &err), &err);
	need_ok(md_swap_pool_create_spilling(blocks * MD_SWAP_BLOCK, &spill, &fd, &err), &err);
	need_ok(md_swap_pool_open_spilling(fd, spill.kept.fd, &holder, &err), &err);
	need_ok(md_swap_pool_open_spilling(fd, spill.kept.fd, &other, &err), &err);
	close(fd);
	for (uint64_t i = 0; i < blocks; i++) {
		struct md_hash hash = md_hash_bytes(&i, sizeof(i));
		uint32_t block;
		bool fresh;
		need_ok(md_swap_pool_take(holder, &hash, &block, &fresh, &err), &err);
		fill(md_swap_pool_bytes(holder, block), i);
		md_swap_pool_filled(holder, block);
	}
	md_swap_pool_rest(holder);
}

static double pool_write_rate(void)
{
	struct md_error err = {0};
	uint64_t written, began = md_clock_ns();
	need_ok(md_swap_pool_make_room(other, blocks, &written, &err), &err);
	need(written == blocks * MD_SWAP_BLOCK, "the pool", "not all was written");
	return rate(began);
}

/* As in does, but for the copies to the device. */
static double pool_read_rate(void)
{
	static struct md_swap_spill_job jobs[WINDOW];
	struct md_swap_spill_queue *queue;
	struct md_error err = {0};
	uint8_t *memory = take_memory(WINDOW * MD_SWAP_BLOCK);
	uint64_t began = md_clock_ns();
	need_ok(md_swap_spill_queue_begin(&spill, &queue, &err), &err);
	for (uint32_t i = 0; i < blocks + WINDOW; i++) {
		struct md_swap_spill_job *job = &jobs[i % WINDOW];
		if (i >= WINDOW)
			need(!md_swap_spill_await(queue, job), "the spill file", strerror(job->failure));
		*job = (struct md_swap_spill_job){.block = i, .data = memory + i % WINDOW * MD_SWAP_BLOCK};
		if (i < blocks)
			md_swap_spill_put(queue, job);
	}
	md_swap_spill_queue_end(queue);
	double result = rate(began);
	munmap(memory, WINDOW * MD_SWAP_BLOCK);
	return result;
}

static void close_pool(void)
{
	md_swap_pool_close(holder);
	md_swap_pool_close(other);
	md_swap_spill_close(&spill);
}

int main(int argc, char *argv[])
{
	need(argc > 1, "usage", "spill_times FOLDER [MIB [ROUNDS]]");
	folder = argv[1];
	blocks = argc > 2 ? (uint32_t)(strtoul(argv[2], NULL, 10) / 2) : blocks;
	int rounds = argc > 3 ? atoi(argv[3]) : 5;
	need(blocks > 0, "MIB", "at least 2");
	printf("%u MiB in blocks of 2 MiB, %u at once. Rates in MB/s; each row is one round, in which the four follow "
	       "each "
	       "other.\n\n",
	       2 * blocks, MD_SWAP_SPILL_AT_ONCE);
	printf(
	    "| file: write | spill: write | ratio | file: read | spill: read | ratio |\n|---|---|---|---|---|---|\n");
	for (int round = 0; round < rounds; round++) {
		open_pool();
		open_raw(spill.direct);
		double file_write = raw_rate(true), write = pool_write_rate();
		double file_read = raw_rate(false), read = pool_read_rate();
		printf("| %.0f | %.0f | %.2f | %.0f | %.0f | %.2f |\n", file_write, write, write / file_write,
		       file_read, read, read / file_read);
		fflush(stdout);
		close_raw();
		close_pool();
	}
	return 0;
}
