/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a pool: makes and maps the memfd, gives it pages, and lists the processes that map it. */
#define MD_LOG_DOMAIN "swap"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/thread.h"
#include "swap/numa.h"
#include "swap/pool.h"
#include "swap/pool_layout.h"

#define PAGE 4096ull
#define NAME "medusa-swap-pool"
#define POPULATE_STEP 16u /* blocks of a thread, after which a wish to stop is noticed */
#define POPULATE_THREADS 16u
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static uint64_t align_up(uint64_t value, uint64_t step)
{
	return (value + step - 1) / step * step;
}

static struct md_swap_pool_layout layout_of(uint32_t blocks, uint32_t spill)
{
	struct md_swap_pool_layout l = {.blocks = blocks, .all = blocks + spill, .buckets = 64};
	while (l.buckets < l.all)
		l.buckets *= 2;
	l.blocks_at = align_up(sizeof(struct md_swap_pool_head), PAGE);
	l.buckets_at = align_up(l.blocks_at + l.all * sizeof(struct md_swap_pool_block), PAGE);
	l.refs_at = align_up(l.buckets_at + l.buckets * sizeof(uint32_t), PAGE);
	l.bytes_at = align_up(l.refs_at + (uint64_t)MD_SWAP_POOL_OWNERS * l.all * sizeof(uint32_t), MD_SWAP_BLOCK);
	l.size = l.bytes_at + blocks * MD_SWAP_BLOCK;
	return l;
}

/* ---- mapping ---- */

/* At a multiple of 2 MiB, where huge pages fit. */
static void *map_aligned(int fd, uint64_t size)
{
	uint64_t room = size + MD_SWAP_BLOCK;
	uint8_t *whole = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (whole == MAP_FAILED)
		return MAP_FAILED;
	uint8_t *at = (uint8_t *)align_up((uint64_t)whole, MD_SWAP_BLOCK);
	void *base = mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0);
	if (base == MAP_FAILED) {
		munmap(whole, room);
		return MAP_FAILED;
	}
	if (at > whole)
		munmap(whole, (size_t)(at - whole));
	munmap(at + size, (size_t)(whole + room - at - size));
	return base;
}

/* Keeps the pool out of children of the engine and of core files. */
static enum md_status map_pool(int fd, struct md_swap_pool *pool, struct md_error *err)
{
	uint8_t *base = map_aligned(fd, pool->layout.size);
	if (base == MAP_FAILED)
		return md_error_set(err, MD_ERR_NO_MEMORY, "mapping a pool of %u blocks of 2 MiB: %s",
				    pool->layout.blocks, strerror(errno));
	madvise(base, pool->layout.size, MADV_DONTFORK);
	madvise(base, pool->layout.size, MADV_DONTDUMP);
	madvise(base + pool->layout.bytes_at, pool->layout.size - pool->layout.bytes_at, MADV_HUGEPAGE);
	pool->head = (void *)base;
	pool->blocks = (void *)(base + pool->layout.blocks_at);
	pool->buckets = (void *)(base + pool->layout.buckets_at);
	pool->refs = (void *)(base + pool->layout.refs_at);
	pool->bytes = base + pool->layout.bytes_at;
	return MD_OK;
}

static void unmap_pool(struct md_swap_pool *pool)
{
	if (pool->head)
		munmap(pool->head, pool->layout.size);
}

/* ---- making ---- */

static void init_spill(struct md_swap_pool_head *head, const struct md_swap_spill_file *spill)
{
	head->spill.blocks = head->tiers[MD_SWAP_TIER_FILE].free = spill->blocks;
	head->spill.direct = spill->direct;
	head->spill.device = spill->kept.device;
	head->spill.inode = spill->kept.inode;
	memcpy(head->spill.path, spill->path, sizeof(spill->path));
}

static void init_head(struct md_swap_pool_head *head, uint32_t blocks)
{
	pthread_mutexattr_t kind;
	pthread_mutexattr_init(&kind);
	pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&head->lock, &kind);
	pthread_mutex_init(&head->populating, &kind);
	pthread_mutexattr_destroy(&kind);
	head->blocks = head->tiers[MD_SWAP_TIER_MEMORY].free = blocks;
	head->version = MD_SWAP_POOL_VERSION;
	head->magic = MD_SWAP_POOL_MAGIC;
}

enum md_status md_swap_pool_create(uint64_t bytes, int *fd, struct md_error *err)
{
	return md_swap_pool_create_spilling(bytes, NULL, fd, err);
}

enum md_status md_swap_pool_create_spilling(uint64_t bytes, const struct md_swap_spill_file *spill, int *fd,
					    struct md_error *err)
{
	uint64_t blocks = bytes / MD_SWAP_BLOCK + (bytes < MD_SWAP_BLOCK);
	if (blocks > MD_SWAP_POOL_BLOCKS)
		return md_error_set(err, MD_ERR_TOO_LARGE,
				    "a pool of %" PRIu64 " bytes: it may have %" PRIu64 " at most", bytes,
				    MD_SWAP_POOL_BLOCKS * (uint64_t)MD_SWAP_BLOCK);
	struct md_swap_pool pool = {.layout = layout_of((uint32_t)blocks, spill ? spill->blocks : 0)};
	MD_AUTO_FD int file = memfd_create(NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (file < 0 || ftruncate(file, (off_t)pool.layout.size) || fcntl(file, F_ADD_SEALS, SEALS))
		return md_error_set(err, MD_ERR_NO_MEMORY, "a pool of %" PRIu64 " bytes: %s", bytes, strerror(errno));
	MD_FORWARD(map_pool(file, &pool, err));
	init_head(pool.head, (uint32_t)blocks);
	if (spill)
		init_spill(pool.head, spill);
	unmap_pool(&pool);
	*fd = md_steal_fd(&file);
	return MD_OK;
}

/* ---- processes ---- */

/* From /proc/PID/stat, behind the name, which may hold anything. */
static bool read_process(pid_t pid, char *state, long *threads, uint64_t *started)
{
	char path[64], line[1024];
	MD_AUTO_FILE FILE *file = NULL;
	const char *end;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (!file || !fgets(line, sizeof(line), file))
		return false;
	end = strrchr(line, ')');
	return end &&
	       sscanf(end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %" SCNu64,
		      state, threads, started) == 3;
}

static bool owner_here(struct md_swap_pool_owner *owner)
{
	char state;
	long threads;
	owner->pid = getpid();
	return read_process(owner->pid, &state, &threads, &owner->started);
}

/* False also if that cannot be read, as of a process that is ending. */
static bool has_left(const struct md_swap_pool *pool, pid_t pid)
{
	char path[64], *line = NULL;
	size_t room = 0;
	bool any = false, maps = false;
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	MD_AUTO_FILE FILE *file = fopen(path, "re");
	while (file && !maps && getline(&line, &room, file) > 0) {
		unsigned long long inode = 0;
		any = true;
		maps = strstr(line, NAME) && sscanf(line, "%*s %*s %*s %*s %llu", &inode) == 1 && inode == pool->inode;
	}
	free(line);
	return any && !maps;
}

/* In doubt, the owner counts as alive. A zombie whose other threads have ended has no memory any more. */
bool md_swap_pool_owner_lives(const struct md_swap_pool *pool, const struct md_swap_pool_owner *owner)
{
	uint64_t started = 0;
	long threads = 0;
	char state = 'R';
	if (kill(owner->pid, 0) && errno == ESRCH)
		return false;
	if (!read_process(owner->pid, &state, &threads, &started))
		return true;
	return started == owner->started && (state != 'Z' || threads > 1) && !has_left(pool, owner->pid);
}

/* ---- opening ---- */

static enum md_status read_layout(int fd, struct md_swap_pool *pool, struct md_error *err)
{
	struct md_swap_pool_head head;
	struct stat info;
	if (fstat(fd, &info) || pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
	    head.magic != MD_SWAP_POOL_MAGIC)
		return md_error_set(err, MD_ERR_CORRUPT, "the file is not a pool of medusa-swap");
	if (head.version != MD_SWAP_POOL_VERSION)
		return md_error_set(err, MD_ERR_VERSION, "the pool has version %u, this Medusa knows version %u",
				    head.version, MD_SWAP_POOL_VERSION);
	if (!head.blocks || head.blocks > MD_SWAP_POOL_BLOCKS || head.spill.blocks > MD_SWAP_SPILL_BLOCKS ||
	    (uint64_t)info.st_size != layout_of(head.blocks, head.spill.blocks).size)
		return md_error_set(err, MD_ERR_CORRUPT,
				    "the pool's header says %u blocks, but its file has %" PRIu64 " bytes", head.blocks,
				    (uint64_t)info.st_size);
	int seals = fcntl(fd, F_GET_SEALS); /* -1, which has all bits, of a file that cannot be sealed */
	if (seals < 0 || (seals & SEALS) != SEALS)
		return md_error_set(err, MD_ERR_INVALID, "the pool's file is not sealed against being made smaller");
	pool->layout = layout_of(head.blocks, head.spill.blocks);
	pool->inode = info.st_ino;
	return MD_OK;
}

static void take_place(struct md_swap_pool_owner *place, const struct md_swap_pool_owner *here)
{
	place->pid = here->pid;
	place->started = here->started;
	place->rests_since = 0;
	place->wants = 0;
	place->used = true;
}

static enum md_status become_owner(struct md_swap_pool *pool, struct md_error *err)
{
	struct md_swap_pool_owner here = {0};
	enum md_status status = MD_ERR_BUSY;
	if (!owner_here(&here))
		return md_error_set(err, MD_ERR_IO, "/proc/self/stat cannot be read");
	md_swap_pool_sweep(pool);
	md_swap_pool_lock(pool);
	for (uint32_t i = 0; i < MD_SWAP_POOL_OWNERS && status != MD_OK; i++)
		if (!pool->head->owners[i].used) {
			take_place(&pool->head->owners[i], &here);
			pool->owner = i;
			status = MD_OK;
		}
	md_swap_pool_unlock(pool);
	if (status == MD_OK)
		return MD_OK;
	return md_error_set(err, status, "%u processes use the pool, and no more can", MD_SWAP_POOL_OWNERS);
}

enum md_status md_swap_pool_open(int fd, struct md_swap_pool **pool, struct md_error *err)
{
	return md_swap_pool_open_spilling(fd, -1, pool, err);
}

enum md_status md_swap_pool_open_spilling(int fd, int spill_fd, struct md_swap_pool **pool, struct md_error *err)
{
	struct md_swap_pool *made = calloc(1, sizeof(*made));
	if (!made)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the handle of a pool");
	made->spill = MD_SWAP_NO_SPILL;
	enum md_status status = read_layout(fd, made, err);
	if (status == MD_OK)
		status = map_pool(fd, made, err);
	if (status == MD_OK)
		status = md_swap_pool_keep_spill(made, spill_fd, err);
	if (status == MD_OK)
		status = become_owner(made, err);
	if (status != MD_OK) {
		md_swap_spill_close(&made->spill);
		unmap_pool(made);
		free(made);
		return status;
	}
	*pool = made;
	return MD_OK;
}

enum md_status md_swap_pool_look(int fd, struct md_swap_pool_counts *counts, struct md_error *err)
{
	struct md_swap_pool pool = {0};
	struct md_swap_pool_head head;
	MD_FORWARD(read_layout(fd, &pool, err));
	if (pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head))
		return md_error_set(err, MD_ERR_IO, "the pool's header: %s", strerror(errno));
	*counts = (struct md_swap_pool_counts){0};
	md_swap_pool_count_tiers(&head, &pool.layout, counts);
	return MD_OK;
}

void md_swap_pool_close(struct md_swap_pool *pool)
{
	if (!pool)
		return;
	md_swap_pool_lock(pool);
	md_swap_pool_drop_all(pool);
	pool->head->owners[pool->owner].used = false;
	md_swap_pool_unlock(pool);
	md_swap_spill_close(&pool->spill);
	unmap_pool(pool);
	free(pool);
}

/* ---- pages ---- */

struct slice {
	uint8_t *at;
	uint64_t bytes;
	pthread_t thread;
	bool started, failed;
};

static void *populate_slice(void *argument)
{
	struct slice *slice = argument;
	slice->failed = slice->bytes && madvise(slice->at, slice->bytes, MADV_POPULATE_WRITE);
	return NULL;
}

/* False: an old kernel (before 5.14), or no memory; pages come when they are used. */
static bool populate_step(uint8_t *at, uint32_t blocks, unsigned threads)
{
	struct slice slices[POPULATE_THREADS] = {{0}};
	uint32_t each = (blocks + threads - 1) / threads, given = 0;
	bool done = true;
	for (unsigned i = 0; i < threads; i++) {
		uint32_t mine = blocks - given < each ? blocks - given : each;
		slices[i] = (struct slice){.at = at + given * MD_SWAP_BLOCK, .bytes = mine * MD_SWAP_BLOCK};
		given += mine;
		slices[i].started = !md_thread_start(&slices[i].thread, populate_slice, &slices[i]);
		if (!slices[i].started)
			populate_slice(&slices[i]);
	}
	for (unsigned i = 0; i < threads; i++) {
		if (slices[i].started)
			pthread_join(slices[i].thread, NULL);
		done = done && !slices[i].failed;
	}
	return done;
}

/* The kernel keeps the policy with the file, so it counts for all processes that map the pool. */
bool md_swap_pool_prefer(struct md_swap_pool *pool, unsigned node)
{
	int failure = 0;
	md_swap_pool_lock(pool);
	uint64_t before = pool->head->nodes, nodes = before | (uint64_t)1 << node;
	if (nodes != before)
		failure = md_swap_numa_bind(pool->bytes, pool->layout.blocks * MD_SWAP_BLOCK, nodes);
	pool->head->nodes = failure ? before : nodes;
	md_swap_pool_unlock(pool);
	if (failure)
		md_warn("pages of the pool cannot be put on NUMA node %u, where the GPU is: mbind: %s", node,
			strerror(failure));
	return !failure;
}

void md_swap_pool_want(struct md_swap_pool *pool, uint32_t blocks)
{
	atomic_store(&pool->head->owners[pool->owner].wants, blocks);
}

uint32_t md_swap_pool_wanted(const struct md_swap_pool *pool)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < MD_SWAP_POOL_OWNERS; i++)
		if (pool->head->owners[i].used)
			sum += atomic_load(&pool->head->owners[i].wants);
	return sum < pool->layout.blocks ? (uint32_t)sum : pool->layout.blocks;
}

/* False: another thread or process gives blocks memory. One that has died has left no half of a change. */
static bool may_populate(struct md_swap_pool *pool)
{
	int failure = pthread_mutex_trylock(&pool->head->populating);
	if (failure == EOWNERDEAD)
		failure = pthread_mutex_consistent(&pool->head->populating);
	return !failure;
}

void md_swap_pool_populate(struct md_swap_pool *pool, uint32_t blocks, unsigned threads, const atomic_bool *stop)
{
	uint32_t most = blocks < pool->layout.blocks ? blocks : pool->layout.blocks;
	unsigned count = threads < 1 ? 1 : threads > POPULATE_THREADS ? POPULATE_THREADS : threads;
	if (atomic_load(&pool->head->populated) >= most || !may_populate(pool))
		return;
	for (uint32_t at = atomic_load(&pool->head->populated); at < most && !atomic_load(stop);) {
		uint32_t step = most - at < POPULATE_STEP * count ? most - at : POPULATE_STEP * count;
		if (!populate_step(pool->bytes + at * MD_SWAP_BLOCK, step, count))
			break;
		at += step;
		atomic_store(&pool->head->populated, at);
	}
	pthread_mutex_unlock(&pool->head->populating);
}

bool md_swap_pool_empty(struct md_swap_pool *pool)
{
	md_swap_pool_sweep(pool);
	md_swap_pool_lock(pool);
	bool alone = md_swap_pool_forget(pool);
	if (alone) {
		atomic_store(&pool->head->populated, 0);
		madvise(pool->bytes, pool->layout.blocks * MD_SWAP_BLOCK, MADV_REMOVE);
	}
	md_swap_pool_unlock(pool);
	if (alone)
		md_swap_pool_punch(pool);
	return alone;
}

uint32_t md_swap_pool_populated(const struct md_swap_pool *pool)
{
	return atomic_load(&pool->head->populated);
}
