/* SPDX-License-Identifier: Apache-2.0 */
/* Follows addresses: from the words of a call to parts, and from the words in these to further parts. */
#include "swap/reach.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/array.h"
#include "swap/arrival.h"
#include "swap/elsewhere.h"
#include "swap/gate.h"
#include "swap/layer.h"
#include "swap/memory_managed.h"
#include "swap/physical.h"

#define LOOKED_AT_MOST ((size_t)64 << 20) /* bytes of a copy that are looked through */
#define WORDS_MOST ((size_t)1 << 20)      /* that are remembered */
#define PARTS_MOST 256u                   /* that one is known to lead to; with more, it may lead anywhere */
#define LEAST_ADDRESS ((uint64_t)1 << 16)
#define GRANULE ((uint64_t)1 << MD_SWAP_GRANULE_SHIFT)

static atomic_bool hidden;

/* ---- what parts lead to ---- */

/* The first part that ends after the address. */
static uint32_t part_after(const struct md_swap_arrival *a, uint64_t address)
{
	uint32_t from = 0, to = a->part_count;
	while (from < to) {
		uint32_t middle = from + (to - from) / 2;
		if (a->parts[middle].address + a->parts[middle].bytes <= address)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static bool add_lead(struct md_swap_arrival_part *part, uint32_t to)
{
	for (uint32_t i = 0; i < part->lead_count; i++)
		if (part->leads[i] == to)
			return true;
	if (part->lead_count == PARTS_MOST) {
		part->anywhere = true;
		return true;
	}
	if (!MD_ARRAY_GROW(part->leads, part->lead_count, part->lead_room))
		return false;
	part->leads[part->lead_count++] = to;
	return true;
}

/* An address just outside of an allocation may lead into it together with an offset. */
static bool follow_granule(const struct md_swap_arrival *a, struct md_swap_arrival_part *part, uint64_t granule)
    MD_REQUIRES(md_swap_memory_lock)
{
	uint64_t start = (granule << MD_SWAP_GRANULE_SHIFT) - GRANULE, end = start + 3 * GRANULE;
	uint32_t i = part_after(a, start);
	if (i == a->part_count || a->parts[i].address >= end)
		part->anywhere = part->anywhere || md_swap_elsewhere(start, end);
	for (; i < a->part_count && a->parts[i].address < end; i++)
		if (&a->parts[i] != part && !add_lead(part, i))
			return false;
	return true;
}

/* An address whose first half lies at the end of a block, and whose second half begins the next block. */
static bool follow_border(const struct md_swap_arrival *a, struct md_swap_arrival_part *part, uint32_t low,
			  uint32_t high) MD_REQUIRES(md_swap_memory_lock)
{
	uint64_t word = (uint64_t)high << 32 | low;
	return !high || follow_granule(a, part, word >> MD_SWAP_GRANULE_SHIFT);
}

static bool follow_lead(const struct md_swap_arrival *a, const struct md_swap_leads *leads,
			const struct md_swap_lead *lead, struct md_swap_arrival_part *part)
    MD_REQUIRES(md_swap_memory_lock)
{
	if (lead->count == MD_SWAP_LEADS_ANYWHERE) {
		part->anywhere = true;
		return true;
	}
	for (uint32_t i = 0; i < lead->count; i++)
		if (!follow_granule(a, part, leads->granules[lead->at + i]))
			return false;
	return true;
}

static bool follow_part(struct md_swap_arrival *a, const struct md_swap_leads *leads, struct md_swap_arrival_part *part)
    MD_REQUIRES(md_swap_memory_lock, md_swap_arrival_lock)
{
	uint32_t before = 0;
	for (size_t i = part->first; i < part->end; i++) {
		const struct md_swap_lead *lead = NULL;
		if (a->contents->blocks[i] != MD_SWAP_ZERO) {
			lead = md_swap_leads_find(leads, &a->contents->hashes[i].hash);
			if (!lead) {
				part->anywhere = true;
				a->counts.unknown += a->contents->hashes[i].size;
				continue;
			}
			if (!follow_lead(a, leads, lead, part))
				return false;
		}
		if (i > part->first && !follow_border(a, part, before, lead ? lead->first : 0))
			return false;
		before = lead ? lead->last : 0;
	}
	return true;
}

/* A reservation of the engine's own may hold an allocation that consists of several pieces. */
static bool join_neighbours(struct md_swap_arrival *a)
{
	for (uint32_t i = 1; i < a->part_count; i++) {
		struct md_swap_arrival_part *one = &a->parts[i - 1], *two = &a->parts[i];
		if (one->alone || two->alone || one->address + one->bytes != two->address)
			continue;
		if (!add_lead(one, i) || !add_lead(two, i - 1))
			return false;
	}
	return true;
}

bool md_swap_reach_prepare(struct md_swap_arrival *arrival, const struct md_swap_leads *leads)
{
	for (uint32_t i = 0; i < arrival->part_count; i++) {
		if (leads->beyond)
			arrival->parts[i].anywhere = true;
		if (!follow_part(arrival, leads, &arrival->parts[i]))
			return false;
	}
	return join_neighbours(arrival);
}

/* ---- a wish ---- */

void md_swap_wish_begin(void) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	pthread_mutex_lock(&md_swap_memory_lock);
	pthread_mutex_lock(&md_swap_arrival_lock);
	a->wish++;
	a->queued = 0;
	a->all = atomic_load(&hidden);
}

static void want(uint32_t index, bool leads) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	struct md_swap_arrival_part *part = &a->parts[index];
	if (leads ? part->reached == a->wish : part->wanted == a->wish)
		return;
	part->wanted = a->wish;
	if (leads)
		part->reached = a->wish;
	a->queue[a->queued++] = index;
}

/* Parts are appended while the queue is walked. */
static void close_wish(void) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	for (uint32_t at = 0; at < a->queued && !a->all; at++) {
		const struct md_swap_arrival_part *part = &a->parts[a->queue[at]];
		if (part->reached != a->wish)
			continue;
		a->all = a->all || part->anywhere;
		for (uint32_t i = 0; i < part->lead_count; i++)
			want(part->leads[i], true);
	}
}

/* Other memory. Memory that is younger than the swap was written only by calls that had waited. */
static bool is_young(uint64_t word) MD_LOCKS_UNCHECKED
{
	const struct md_swap_mapping *mapping = md_swap_mapping_at(word);
	return mapping && mapping->physical->serial > md_swap_arrival.serial;
}

static bool is_managed(uint64_t word) MD_LOCKS_UNCHECKED
{
	for (const struct md_swap_managed *at = md_swap_all_managed; at; at = at->next)
		if (word - at->address < at->bytes)
			return true;
	return false;
}

static bool reads_host_memory(void)
{
	int reads = 0;
	CUdevice device;
	return md_swap_real.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
	       (md_swap_real.cuDeviceGetAttribute(&reads, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, device) ==
		    CUDA_SUCCESS &&
		reads);
}

static bool is_mapped_here(uint64_t word)
{
	unsigned char ignored;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	return word >> 47 == 0 && mincore((void *)(uintptr_t)(word / page * page), page, &ignored) == 0;
}

static bool ask_driver(uint64_t word)
{
	unsigned type = 0;
	if (is_young(word))
		return false;
	if (is_managed(word) || md_swap_mapping_at(word))
		return true;
	if (!md_swap_real.cuPointerGetAttribute)
		return true;
	if (md_swap_real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, word) == CUDA_SUCCESS && type)
		return true;
	return reads_host_memory() && is_mapped_here(word);
}

static void ask(uint64_t word) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	uint64_t known = 0;
	if (a->all || word < LEAST_ADDRESS || word >> 57)
		return;
	if (!md_map_get(&a->words, word, &known)) {
		known = ask_driver(word);
		if (a->words.used < WORDS_MOST)
			md_map_put(&a->words, word, known);
	}
	a->all = known;
}

void md_swap_wish_word(uint64_t word, bool aligned) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	uint64_t start = word > GRANULE ? word - GRANULE : 0;
	bool inside = false;
	if (a->all || !a->parts)
		return;
	for (uint32_t i = part_after(a, start); i < a->part_count && a->parts[i].address <= word + GRANULE; i++) {
		want(i, true);
		inside = inside || word - a->parts[i].address < a->parts[i].bytes;
	}
	if (!inside && aligned)
		ask(word);
}

void md_swap_wish_bytes(const void *bytes, size_t size)
{
	const uint8_t *from = bytes;
	for (size_t at = 0; at + 8 <= size; at += 4) {
		uint64_t word;
		memcpy(&word, from + at, sizeof(word));
		if (word >= LEAST_ADDRESS)
			md_swap_wish_word(word, at % 8 == 0);
	}
}

void md_swap_wish_range(uint64_t address, uint64_t bytes, bool leads) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	for (uint32_t i = part_after(a, address); i < a->part_count && a->parts[i].address < address + bytes; i++)
		want(i, leads);
}

static bool is_on_device(uint64_t address)
{
	unsigned type = 0;
	return !md_swap_real.cuPointerGetAttribute ||
	       (md_swap_real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
		type != CU_MEMORYTYPE_HOST && type != 0);
}

void md_swap_wish_source(uint64_t address, uint64_t bytes) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	uint32_t at = part_after(a, address);
	if (!a->parts || is_young(address))
		return;
	if (at < a->part_count && a->parts[at].address < address + bytes)
		md_swap_wish_range(address, bytes, true);
	else if (a->unsteady || bytes > LOOKED_AT_MOST || is_managed(address) || is_on_device(address))
		a->all = true;
	else
		md_swap_wish_bytes((const void *)(uintptr_t)address, bytes);
}

void md_swap_wish_all(void) MD_LOCKS_UNCHECKED
{
	md_swap_arrival.all = true;
}

/* ---- the wait ---- */

struct needs {
	uint64_t chunk[MD_SWAP_FLOWS]; /* of each flow, up to this one; 0: none */
	bool any;
};

static CUresult need(struct md_swap_arrival_part *part, struct needs *needs) MD_LOCKS_UNCHECKED
{
	const struct md_swap_arrival_flow *flow = &md_swap_arrival.flows[part->flow];
	if (part->next == part->end && part->last <= flow->done)
		return CUDA_SUCCESS;
	CUresult result = md_swap_arrival_submit(part);
	if (result != CUDA_SUCCESS)
		return result;
	if (part->last > needs->chunk[part->flow])
		needs->chunk[part->flow] = part->last;
	needs->any = true;
	return CUDA_SUCCESS;
}

static CUresult find_needs(struct needs *needs) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	uint32_t count;
	*needs = (struct needs){0};
	if (!a->parts)
		return CUDA_SUCCESS;
	close_wish();
	count = a->all ? a->part_count : a->queued;
	for (uint32_t i = 0; i < count; i++) {
		CUresult result = need(&a->parts[a->all ? i : a->queue[i]], needs);
		if (result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

static void count_launch(const struct needs *needs) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	struct md_swap_arrival_counts *counts = &a->counts;
	if (!a->parts)
		return;
	if (counts->at_first == UINT64_MAX)
		counts->at_first = a->total - counts->left;
	if (!needs->any)
		counts->launches_free++;
	else if (a->all)
		counts->launches_all++;
	else
		counts->launches_some++;
}

static void unlock(void) MD_LOCKS_UNCHECKED
{
	pthread_mutex_unlock(&md_swap_arrival_lock);
	pthread_mutex_unlock(&md_swap_memory_lock);
}

CUresult md_swap_wish_await(CUstream stream, bool launch) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	struct needs needs;
	CUresult result = find_needs(&needs);
	for (uint32_t i = 0; i < a->flow_count && result == CUDA_SUCCESS; i++)
		if (needs.chunk[i])
			result = a->links->driver->cuStreamWaitEvent(stream, a->flows[i].events[needs.chunk[i] - 1], 0);
	if (launch)
		count_launch(&needs);
	unlock();
	return result;
}

CUresult md_swap_wish_block(void) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	CUevent events[MD_SWAP_FLOWS];
	unsigned count = 0;
	struct needs needs;
	CUresult result = find_needs(&needs);
	for (uint32_t i = 0; i < a->flow_count && result == CUDA_SUCCESS; i++)
		if (needs.chunk[i])
			events[count++] = a->flows[i].events[needs.chunk[i] - 1];
	const struct md_cuda *driver = count ? a->links->driver : NULL;
	a->users += count != 0;
	unlock();
	for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = driver->cuEventSynchronize(events[i]);
	if (!count)
		return result;
	pthread_mutex_lock(&md_swap_arrival_lock);
	a->users--;
	pthread_mutex_unlock(&md_swap_arrival_lock);
	return result;
}

/* ---- what changes the answers ---- */

void md_swap_reach_unsteady(void)
{
	pthread_mutex_lock(&md_swap_arrival_lock);
	md_swap_arrival.unsteady = true;
	pthread_mutex_unlock(&md_swap_arrival_lock);
}

void md_swap_reach_renew(void)
{
	if (!atomic_load(&md_swap_arriving))
		return;
	pthread_mutex_lock(&md_swap_arrival_lock);
	md_map_finish(&md_swap_arrival.words);
	md_map_init(&md_swap_arrival.words);
	pthread_mutex_unlock(&md_swap_arrival_lock);
}

bool md_swap_reach_shows(const void *bytes, size_t size, uint64_t address)
{
	for (size_t at = 0; at + 8 <= size; at += 4) {
		uint64_t word;
		memcpy(&word, (const uint8_t *)bytes + at, sizeof(word));
		if (word - address + GRANULE <= 2 * GRANULE)
			return true;
	}
	return false;
}

void md_swap_reach_hide(void)
{
	atomic_store(&hidden, true);
}

bool md_swap_prepares_overlap(void)
{
	return md_environment_get("MEDUSA_SWAP_CONTROL") && md_environment_is_on("MEDUSA_SWAP_OVERLAP");
}
