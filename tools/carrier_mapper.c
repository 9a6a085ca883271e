/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps memory of lenders in a thread of its own, so that the thread which copies waits for the part that it needs, and for no
 * other one; and unmaps it there.
 *
 * There is one such thread, because the driver takes as long for the calls of two and four (bench/peer_times.c). Giving access
 * takes most of the time - 17 of 27 ms for 155 parts on two H200s, which copy for 50 -, so parts that wait at the same time
 * get one range of addresses, and access to it by one call. A lender's groups grow: one with a single part comes first, so
 * that copies begin early, and no group has more parts than were mapped before it and one, so that there is enough to copy
 * meanwhile. How far ahead parts are mapped is up to the engine: it asks for MEDUSA_SWAP_PEER_AHEAD chunks at a time, and
 * what nobody has asked for is neither handed over nor mapped.
 */
#include "tools/carrier_mapper.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/guarded.h"
#include "base/thread.h"
#include "swap/pool.h"

#define BYTES_MOST ((uint64_t)1 << 44) /* of a part: sums of them do not overflow */

struct job {
	struct job *next;
	bool gives_back;
	struct md_mapper_part part;
	CUmemGenericAllocationHandle handle;
	struct md_mapper_done done;
};

/* Parts whose addresses were reserved at once. */
struct group {
	struct group *next;
	CUdeviceptr base;
	uint64_t reserved, mapped; /* bytes */
	unsigned count;
	struct {
		CUmemGenericAllocationHandle handle;
		CUdeviceptr address;
		uint64_t bytes;
	} parts[MD_MAPPER_TOGETHER];
};

struct md_mapper {
	int bell;
	pthread_t thread;
	bool runs;
	/* Of the thread alone, or of the only one. */
	struct loan {
		struct group *groups; /* owned */
		unsigned parts;
	} loans[MD_CARRY_LENDERS];
	struct job returns[MD_CARRY_LENDERS]; /* giving back needs no memory */
	pthread_mutex_t lock;
	pthread_cond_t more, less; /* a job was put in, or the end has come; the thread is done with some */
	/* Under the lock: */
	struct job *waiting;
	struct job *finished;
	bool works;
	bool ends;
	uint64_t times[MD_PEER_TIMES];
	uint64_t copying_ns;    /* in which copies were under way */
	uint64_t copying_since; /* 0: none is */
	struct md_error failure;
};

/* ---- lists ---- */

static void append(struct job **list, struct job *jobs)
{
	while (*list)
		list = &(*list)->next;
	*list = jobs;
}

/* Cuts jobs of parts of this lender out of the list, from its beginning on. */
static struct job *cut_out(struct job **list, unsigned lender, unsigned most)
{
	struct job *found = NULL, **end = &found;
	while (*list && most) {
		struct job *job = *list;
		if (job->gives_back || job->part.lender != lender) {
			list = &job->next;
			continue;
		}
		*list = job->next;
		job->next = NULL;
		*end = job;
		end = &job->next;
		most--;
	}
	return found;
}

/* ---- times ---- */

static uint64_t copied_until(const struct md_mapper *mapper, uint64_t now) MD_REQUIRES(mapper->lock)
{
	return mapper->copying_ns + (mapper->copying_since ? now - mapper->copying_since : 0);
}

static uint64_t copied_by_now(struct md_mapper *mapper)
{
	pthread_mutex_lock(&mapper->lock);
	uint64_t copied = copied_until(mapper, md_clock_ns());
	pthread_mutex_unlock(&mapper->lock);
	return copied;
}

void md_mapper_note_copying(struct md_mapper *mapper, bool copying)
{
	pthread_mutex_lock(&mapper->lock);
	uint64_t now = md_clock_ns();
	mapper->copying_ns = copied_until(mapper, now);
	mapper->copying_since = copying ? now : 0;
	pthread_mutex_unlock(&mapper->lock);
}

void md_mapper_take_times(struct md_mapper *mapper, uint64_t times[MD_PEER_TIMES])
{
	pthread_mutex_lock(&mapper->lock);
	for (unsigned i = 0; i < MD_PEER_TIMES; i++)
		if (mapper->times[i])
			times[i] = mapper->times[i];
	memset(mapper->times, 0, sizeof(mapper->times));
	pthread_mutex_unlock(&mapper->lock);
}

static void note_time(uint64_t *time, uint64_t *began)
{
	uint64_t now = md_clock_ns();
	*time += now - *began;
	*began = now;
}

static void add_times(struct md_mapper *mapper, const uint64_t times[MD_PEER_TIMES])
{
	pthread_mutex_lock(&mapper->lock);
	for (unsigned i = 0; i < MD_PEER_TIMES; i++)
		mapper->times[i] += times[i];
	pthread_mutex_unlock(&mapper->lock);
}

/* ---- unmapping ---- */

static void note_failure(struct md_mapper *mapper, const struct md_error *why)
{
	pthread_mutex_lock(&mapper->lock);
	if (mapper->failure.status == MD_OK)
		mapper->failure = *why;
	pthread_mutex_unlock(&mapper->lock);
}

/* One mapping at a time: the driver does not promise that several go by one call, and no copy waits for it here. */
static enum md_status unmap(struct group *group, struct md_error *err)
{
	for (unsigned i = 0; i < group->count; i++)
		MD_FORWARD(md_cuda_call(err, cuMemUnmap, group->parts[i].address, group->parts[i].bytes));
	if (group->reserved)
		MD_FORWARD(md_cuda_call(err, cuMemAddressFree, group->base, group->reserved));
	for (unsigned i = 0; i < group->count; i++)
		MD_FORWARD(md_cuda_call(err, cuMemRelease, group->parts[i].handle));
	return MD_OK;
}

static enum md_status give_back(struct loan *loan, struct md_error *err)
{
	while (loan->groups) {
		struct group *group = loan->groups;
		MD_FORWARD(unmap(group, err));
		loan->groups = group->next;
		free(group);
	}
	loan->parts = 0;
	return MD_OK;
}

/* ---- mapping ---- */

/* Parts that cannot be imported are left out. Returns the bytes of the others. */
static uint64_t import(struct job *jobs)
{
	uint64_t bytes = 0;
	for (struct job *job = jobs; job; job = job->next) {
		job->done.there =
		    md_cuda.cuMemImportFromShareableHandle(&job->handle, (void *)(intptr_t)job->part.memory,
							   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS;
		bytes += job->done.there ? job->part.bytes : 0;
	}
	return bytes;
}

/* A handle that is not mapped. */
static enum md_status leave_out(struct job *job, struct md_error *err)
{
	job->done.there = false;
	return md_cuda_call(err, cuMemRelease, job->handle);
}

/* One behind the other, without gaps. */
static enum md_status map_each(struct group *group, struct job *jobs, struct md_error *err)
{
	for (struct job *job = jobs; job; job = job->next) {
		CUdeviceptr address = group->base + group->mapped;
		if (!job->done.there)
			continue;
		if (!group->reserved || md_cuda.cuMemMap(address, job->part.bytes, 0, job->handle, 0)) {
			MD_FORWARD(leave_out(job, err));
			continue;
		}
		group->parts[group->count].handle = job->handle;
		group->parts[group->count].address = job->done.address = address;
		group->parts[group->count++].bytes = job->part.bytes;
		group->mapped += job->part.bytes;
	}
	return MD_OK;
}

static bool give_access(const struct group *group, CUdevice device)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READ};
	return group->count && !md_cuda.cuMemSetAccess(group->base, group->mapped, &access, 1);
}

/*
 * All of one lender. What cannot be mapped is refused, as if the lender had done that; without access the whole group is,
 * since the engine asks a lender that has refused one part for nothing more.
 */
static enum md_status map(struct loan *loan, struct job *jobs, uint64_t times[MD_PEER_TIMES], struct md_error *err)
{
	struct group *group = calloc(1, sizeof(*group));
	uint64_t began = md_clock_ns();
	if (!group || md_cuda.cuCtxSetCurrent(jobs->part.context)) {
		free(group);
		return MD_OK;
	}
	uint64_t bytes = import(jobs);
	note_time(&times[MD_PEER_LENT_IMPORT], &began);
	if (bytes && !md_cuda.cuMemAddressReserve(&group->base, bytes, 0, 0, 0))
		group->reserved = bytes;
	enum md_status status = map_each(group, jobs, err);
	note_time(&times[MD_PEER_LENT_MAP], &began);
	bool may_read = status == MD_OK && give_access(group, jobs->part.device);
	note_time(&times[MD_PEER_LENT_ACCESS], &began);
	if (may_read) {
		group->next = loan->groups;
		loan->groups = group;
		loan->parts += group->count;
		times[MD_PEER_LENT_PARTS] += group->count;
		times[MD_PEER_LENT_GROUPS]++;
		return MD_OK;
	}
	for (struct job *job = jobs; job; job = job->next)
		job->done.there = false;
	if (status == MD_OK)
		status = unmap(group, err);
	free(group);
	return status;
}

static void map_jobs(struct md_mapper *mapper, struct job *jobs)
{
	struct md_error why = {0};
	uint64_t times[MD_PEER_TIMES] = {0}, copied = copied_by_now(mapper);
	if (map(&mapper->loans[jobs->part.lender], jobs, times, &why) != MD_OK)
		note_failure(mapper, &why);
	for (struct job *job = jobs; job; job = job->next)
		close(job->part.memory);
	times[MD_PEER_LENT_BESIDE] = copied_by_now(mapper) - copied;
	add_times(mapper, times);
}

/* ---- the thread ---- */

static void carry_out(struct md_mapper *mapper, struct job *jobs)
{
	struct md_error why = {0};
	if (!jobs->gives_back)
		map_jobs(mapper, jobs);
	else
		jobs->done.there = give_back(&mapper->loans[jobs->part.lender], &why) != MD_OK;
	if (jobs->gives_back && jobs->done.there)
		note_failure(mapper, &why);
}

static void ring(struct md_mapper *mapper)
{
	uint64_t one = 1;
	while (write(mapper->bell, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* Giving back, or parts of one lender; NULL: nothing waits. */
static struct job *take_jobs(struct md_mapper *mapper) MD_REQUIRES(mapper->lock)
{
	struct job *first = mapper->waiting;
	if (!first)
		return NULL;
	if (!first->gives_back) {
		unsigned most = 1 + mapper->loans[first->part.lender].parts;
		return cut_out(&mapper->waiting, first->part.lender,
			       most < MD_MAPPER_TOGETHER ? most : MD_MAPPER_TOGETHER);
	}
	mapper->waiting = first->next;
	first->next = NULL;
	return first;
}

static void *run(void *argument)
{
	struct md_mapper *mapper = argument;
	prctl(PR_SET_NAME, "swap-mapper");
	pthread_mutex_lock(&mapper->lock);
	while (!mapper->ends) {
		struct job *jobs = take_jobs(mapper);
		if (!jobs) {
			pthread_cond_wait(&mapper->more, &mapper->lock);
			continue;
		}
		mapper->works = true;
		pthread_mutex_unlock(&mapper->lock);
		carry_out(mapper, jobs);
		pthread_mutex_lock(&mapper->lock);
		mapper->works = false;
		append(&mapper->finished, jobs);
		ring(mapper);
		pthread_cond_broadcast(&mapper->less);
	}
	pthread_mutex_unlock(&mapper->lock);
	return NULL;
}

enum md_status md_mapper_create(struct md_mapper **mapper, struct md_error *err)
{
	struct md_mapper *made = calloc(1, sizeof(*made));
	int bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!made || bell < 0) {
		free(made);
		if (bell >= 0)
			close(bell);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for mapping lenders' memory");
	}
	made->bell = bell;
	pthread_mutex_init(&made->lock, NULL);
	pthread_cond_init(&made->more, NULL);
	pthread_cond_init(&made->less, NULL);
	made->runs = !md_thread_start(&made->thread, run, made);
	*mapper = made;
	return MD_OK;
}

static void free_jobs(const struct md_mapper *mapper, struct job *jobs, bool with_memory)
{
	while (jobs) {
		struct job *job = jobs;
		jobs = job->next;
		if (with_memory && !job->gives_back)
			close(job->part.memory);
		if (job < mapper->returns || job >= mapper->returns + MD_CARRY_LENDERS)
			free(job);
	}
}

static void forget(struct loan *loan)
{
	while (loan->groups) {
		struct group *group = loan->groups;
		loan->groups = group->next;
		free(group);
	}
}

void md_mapper_destroy(struct md_mapper *mapper)
{
	if (!mapper)
		return;
	pthread_mutex_lock(&mapper->lock);
	mapper->ends = true;
	pthread_cond_signal(&mapper->more);
	pthread_mutex_unlock(&mapper->lock);
	if (mapper->runs)
		pthread_join(mapper->thread, NULL);
	free_jobs(mapper, mapper->waiting, true);
	free_jobs(mapper, mapper->finished, false);
	for (unsigned i = 0; i < MD_CARRY_LENDERS; i++)
		forget(&mapper->loans[i]);
	pthread_mutex_destroy(&mapper->lock);
	pthread_cond_destroy(&mapper->more);
	pthread_cond_destroy(&mapper->less);
	close(mapper->bell);
	free(mapper);
}

/* ---- of the thread that copies ---- */

int md_mapper_fd(const struct md_mapper *mapper)
{
	return mapper->bell;
}

/* Without a thread. */
static void do_all(struct md_mapper *mapper) MD_REQUIRES(mapper->lock)
{
	struct job *jobs;
	while (!mapper->runs && (jobs = take_jobs(mapper)) != NULL) {
		pthread_mutex_unlock(&mapper->lock);
		carry_out(mapper, jobs);
		pthread_mutex_lock(&mapper->lock);
		append(&mapper->finished, jobs);
		ring(mapper);
	}
}

bool md_mapper_put(struct md_mapper *mapper, const struct md_mapper_part *part)
{
	bool good = part->bytes && part->bytes % MD_SWAP_BLOCK == 0 && part->bytes <= BYTES_MOST && part->memory >= 0;
	struct job *job = good ? calloc(1, sizeof(*job)) : NULL;
	if (!job)
		return false;
	job->part = *part;
	job->done = (struct md_mapper_done){.lender = part->lender, .part = part->part, .bytes = part->bytes};
	pthread_mutex_lock(&mapper->lock);
	append(&mapper->waiting, job);
	pthread_cond_signal(&mapper->more);
	do_all(mapper);
	pthread_mutex_unlock(&mapper->lock);
	return true;
}

void md_mapper_give_back(struct md_mapper *mapper, unsigned lender)
{
	struct job *job = &mapper->returns[lender];
	*job = (struct job){.gives_back = true, .part.lender = lender, .done = {.gave_back = true, .lender = lender}};
	pthread_mutex_lock(&mapper->lock);
	struct job *unwanted = cut_out(&mapper->waiting, lender, UINT32_MAX);
	for (struct job *one = unwanted; one; one = one->next)
		close(one->part.memory);
	append(&mapper->finished, unwanted);
	job->next = mapper->waiting;
	mapper->waiting = job;
	pthread_cond_signal(&mapper->more);
	do_all(mapper);
	pthread_mutex_unlock(&mapper->lock);
}

bool md_mapper_next(struct md_mapper *mapper, struct md_mapper_done *done)
{
	uint64_t rings;
	while (read(mapper->bell, &rings, sizeof(rings)) < 0 && errno == EINTR) /* before the look at the list */
		;
	pthread_mutex_lock(&mapper->lock);
	struct job *job = mapper->finished;
	if (job)
		mapper->finished = job->next;
	pthread_mutex_unlock(&mapper->lock);
	if (!job)
		return false;
	*done = job->done;
	job->next = NULL;
	free_jobs(mapper, job, false);
	return true;
}

void md_mapper_await(struct md_mapper *mapper)
{
	pthread_mutex_lock(&mapper->lock);
	while (mapper->waiting || mapper->works)
		pthread_cond_wait(&mapper->less, &mapper->lock);
	pthread_mutex_unlock(&mapper->lock);
}

enum md_status md_mapper_check(struct md_mapper *mapper, struct md_error *err)
{
	pthread_mutex_lock(&mapper->lock);
	struct md_error failure = mapper->failure;
	pthread_mutex_unlock(&mapper->lock);
	return failure.status == MD_OK ? MD_OK : md_error_set(err, failure.status, "%s", failure.message);
}
