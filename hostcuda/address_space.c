/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device's address space: one large reservation, at another address in every process. Addresses are given out first
 * fit or, with HOSTCUDA_SCATTER, in an order that depends on a seed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/array.h"
#include "base/splitmix.h"
#include "hostcuda/address_space.h"
#include "hostcuda/device_state.h"

/*
 * The reservation lies in this range, aligned to 2 MiB: far from the program, its heap and any sanitizer's shadow
 * memory.
 */
#ifdef __SANITIZE_THREAD__ /* the thread sanitizer supports only a few ranges */
#define SPACE_BYTES ((uint64_t)128 << 30)
#define SPACE_FROM ((uint64_t)64 << 30)
#define SPACE_TO ((uint64_t)256 << 30)
#define ANY_ADDRESS false /* it turns a wanted address that it does not support into 0, which root may map */
#else
#define SPACE_BYTES ((uint64_t)512 << 30)
#define SPACE_FROM ((uint64_t)32 << 40)
#define SPACE_TO ((uint64_t)96 << 40)
#define ANY_ADDRESS true
#endif
#define SPACE_LEAST ((uint64_t)16 << 30)

struct range {
	uint64_t start, end;
};

static struct range space HC_STATE_GUARDED;
static struct range *taken
    HC_STATE_GUARDED; /* sorted; also those outside the space that a reservation asked for by address */
static size_t taken_count HC_STATE_GUARDED, taken_capacity HC_STATE_GUARDED;

static uint64_t random_place(void)
{
	uint64_t random;
	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		random = (uint64_t)(uintptr_t)&random;
	return SPACE_FROM + random % (SPACE_TO - SPACE_FROM) / HC_GRANULARITY * HC_GRANULARITY;
}

static void *reserve_at(uint64_t address, uint64_t bytes)
{
	void *got = mmap((void *)address, bytes, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (got != MAP_FAILED && got != (void *)address) { /* an old kernel takes the address as a hint */
		munmap(got, bytes);
		return MAP_FAILED;
	}
	return got;
}

static CUresult space_open(void) HC_STATE_HELD
{
	for (uint64_t bytes = SPACE_BYTES; bytes >= SPACE_LEAST; bytes /= 2) {
		for (int attempt = 0; attempt < 16; attempt++) {
			uint64_t place = random_place();
			if (reserve_at(place, bytes) == MAP_FAILED)
				continue;
			madvise((void *)place, bytes, MADV_DONTDUMP);
			space = (struct range){place, place + bytes};
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static bool insert_at(size_t at, uint64_t start, uint64_t end) HC_STATE_HELD
{
	if (!MD_ARRAY_GROW(taken, taken_count, taken_capacity))
		return false;
	for (size_t i = taken_count++; i > at; i--)
		taken[i] = taken[i - 1];
	taken[at] = (struct range){start, end};
	return true;
}

/* Where to begin the search. HOSTCUDA_SCATTER is a seed, or "random"; unset or 0: at the lowest address. */
static uint64_t first_place(void) HC_STATE_HELD
{
	static uint64_t state;
	static bool known;
	const char *seed = secure_getenv("HOSTCUDA_SCATTER");
	if (!known && seed)
		state = strcmp(seed, "random") ? strtoull(seed, NULL, 0) * MD_RANDOM_STEP : random_place();
	known = true;
	if (!state)
		return space.start;
	state ^= state << 13; /* xorshift64 */
	state ^= state >> 7;
	state ^= state << 17;
	return space.start + (state >> 8) % (space.end - space.start) / HC_GRANULARITY * HC_GRANULARITY;
}

/* The first gap at or after `from` that fits; *at: its index in the table. */
static bool fit_from(uint64_t from, size_t size, size_t alignment, uint64_t *address, size_t *at) HC_STATE_HELD
{
	size_t i = 0;
	for (; i <= taken_count; i++) {
		uint64_t to = i < taken_count && taken[i].start < space.end ? taken[i].start : space.end;
		uint64_t start = (from + alignment - 1) / alignment * alignment;
		if (to > start && to - start >= size) {
			*address = start;
			*at = i;
			return true;
		}
		if (i < taken_count && taken[i].end > from)
			from = taken[i].end;
		if (from >= space.end)
			break;
	}
	return false;
}

static bool place_free(uint64_t start, uint64_t end, size_t *at) HC_STATE_HELD
{
	size_t i = 0;
	while (i < taken_count && taken[i].end <= start)
		i++;
	*at = i;
	return i == taken_count || taken[i].start >= end;
}

static bool inside_space(uint64_t start, uint64_t end) HC_STATE_HELD
{
	return start >= space.start && end <= space.end;
}

/* The wanted address is a hint: if it is not free, another one is used. */
static bool take_wanted(uint64_t wanted, size_t size, size_t alignment) HC_STATE_HELD
{
	size_t at;
	uint64_t end = wanted + size;
	if (!wanted || wanted % alignment || end < wanted || !place_free(wanted, end, &at))
		return false;
	if (!inside_space(wanted, end) && (!ANY_ADDRESS || reserve_at(wanted, size) == MAP_FAILED))
		return false;
	return insert_at(at, wanted, end);
}

CUresult hc_space_take(uint64_t *address, size_t size, size_t alignment, uint64_t wanted)
{
	HC_STATE_GUARD();
	if (!space.end)
		HC_TRY(space_open());
	if (take_wanted(wanted, size, alignment)) {
		*address = wanted;
		return CUDA_SUCCESS;
	}
	uint64_t start;
	size_t at;
	if (size > SPACE_BYTES ||
	    (!fit_from(first_place(), size, alignment, &start, &at) &&
	     !fit_from(space.start, size, alignment, &start, &at)) ||
	    !insert_at(at, start, start + size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*address = start;
	return CUDA_SUCCESS;
}

CUresult hc_space_blank(uint64_t address, size_t size)
{
	void *got =
	    mmap((void *)address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	return got == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

void hc_space_give(uint64_t address, size_t size)
{
	HC_STATE_GUARD();
	for (size_t i = 0; i < taken_count; i++) {
		if (taken[i].start != address)
			continue;
		if (inside_space(address, address + size))
			hc_space_blank(address, size);
		else
			munmap((void *)address, size);
		taken_count--;
		for (; i < taken_count; i++)
			taken[i] = taken[i + 1];
		return;
	}
}
