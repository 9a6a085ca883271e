/* SPDX-License-Identifier: Apache-2.0 */
/* Follows addresses: from the words of a call to parts, and from the words in these to further parts. */
#include "swap/reach.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MD_LOG_DOMAIN "swap"
#include "base/array.h"
#include "base/environment.h"
#include "base/setting.h"
#include "base/log.h"
#include "swap/arrival.h"
#include "swap/elsewhere.h"
#include "swap/gate.h"
#include "swap/layer.h"
#include "swap/memory_managed.h"
#include "swap/physical.h"
#include "swap/module_words.h"

#define LOOKED_AT_MOST ((size_t)64 << 20) /* bytes of a copy that are looked through */
#define WORDS_MOST ((size_t)1 << 20)      /* that are remembered */
#define PARTS_MOST 256u                   /* that one is known to lead to; with more, it may lead anywhere */
#define LEAST_ADDRESS ((uint64_t)1 << 16)
#define GRANULE ((uint64_t)1 << MD_SWAP_GRANULE_SHIFT)
#define MEMORY_LOCK_NS 20000000 /* that a call waits for the lock of memory */

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

/* The end of the engine's own mappings that follow each other without a gap. *several: one of them has a second address. */
static uint64_t end_of_chain(uint64_t from, bool *several) MD_REQUIRES(md_swap_memory_lock)
{
	const struct md_swap_mapping *at;
	for (; (at = md_swap_mapping_at(from)) != NULL && !md_swap_is_piece(at->physical);
	     from = at->address + at->bytes)
		*several = *several || at->physical->mappings->next;
	return from;
}

static uint64_t start_of_chain(uint64_t from) MD_REQUIRES(md_swap_memory_lock)
{
	const struct md_swap_mapping *at;
	while ((at = md_swap_mapping_at(from - 1)) != NULL && !md_swap_is_piece(at->physical))
		from = at->address;
	return from;
}

/*
 * A reservation of the engine's own may hold an allocation that consists of several pieces. Some pieces may have stayed,
 * or be on their way by another address.
 */
static bool join_neighbours(struct md_swap_arrival *a) MD_REQUIRES(md_swap_memory_lock)
{
	for (uint32_t i = 0, next; i < a->part_count; i = next) {
		bool several = false;
		uint64_t end = a->parts[i].alone ? 0 : end_of_chain(start_of_chain(a->parts[i].address), &several);
		for (next = i + 1; next < a->part_count && a->parts[next].address < end; next++)
			if (!add_lead(&a->parts[next - 1], next) || !add_lead(&a->parts[next], next - 1))
				return false;
		for (uint32_t in = i; several && in < next; in++)
			a->parts[in].anywhere = true;
	}
	return true;
}

struct follower {
	struct md_swap_arrival *arrival;
	const struct md_swap_leads *leads;
};

static bool follow_variable(void *user, const uint8_t *bytes, size_t size) MD_LOCKS_UNCHECKED
{
	const struct follower *f = user;
	for (size_t at = 0; at + 8 <= size; at += 4) {
		uint64_t word;
		memcpy(&word, bytes + at, sizeof(word));
		if (word >= LEAST_ADDRESS && md_swap_leads_has_region(f->leads, word) &&
		    !follow_granule(f->arrival, &f->arrival->variables, word >> MD_SWAP_GRANULE_SHIFT))
			return false;
	}
	return true;
}

/* Whether some device of this process reads host memory that was not allocated for the device. */
static bool reads_host_memory(void)
{
	int count = 0, reads = 0;
	if (md_swap_real.cuDeviceGetCount(&count) != CUDA_SUCCESS)
		return true;
	for (int i = 0; i < count; i++)
		if (md_swap_real.cuDeviceGetAttribute(&reads, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, i) !=
			CUDA_SUCCESS ||
		    reads)
			return true;
	return false;
}

bool md_swap_reach_prepare(struct md_swap_arrival *arrival, const struct md_swap_leads *leads)
{
	arrival->leads = leads;
	arrival->reads_host = reads_host_memory();
	if (!md_swap_variables_read(arrival->links->driver, follow_variable, &(struct follower){arrival, leads}))
		arrival->variables.anywhere = true;
	for (uint32_t i = 0; i < arrival->part_count; i++) {
		if (leads->beyond)
			arrival->parts[i].anywhere = true;
		if (!follow_part(arrival, leads, &arrival->parts[i]))
			return false;
	}
	return join_neighbours(arrival);
}

/* ---- a wish ---- */

/*
 * The thread that holds the lock of memory may be waiting for work that only this call lets go on. A wish for everything
 * does not need that lock.
 */
static bool lock_memory(void) MD_LOCKS_UNCHECKED
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += MEMORY_LOCK_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	return pthread_mutex_timedlock(&md_swap_memory_lock, &until) == 0;
}

/* From now on the wish is for everything. word: the address because of which; 0: none */
static void doubt(const char *why, uint64_t word) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	if (a->all)
		return;
	a->all = true;
	a->why = why;
	a->why_word = word;
}

void md_swap_wish_begin(void) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	bool memory = lock_memory();
	pthread_mutex_lock(&md_swap_arrival_lock);
	a->holds_memory = memory;
	a->wish++;
	a->queued = 0;
	a->function = NULL;
	a->all = false;
	if (!memory)
		doubt("another thread holds the lock of memory", 0);
	else if (a->doubt)
		doubt("memory has come to which addresses lead that were found before", 0);
	else if (atomic_load(&hidden))
		doubt("memory is read without a visible address, by a texture or surface", 0);
}

void md_swap_wish_function(CUfunction function) MD_LOCKS_UNCHECKED
{
	md_swap_arrival.function = function;
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

static void want_variables(void) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	if (a->variables.anywhere)
		doubt("a variable of a module holds an address of memory that was not searched", 0);
	for (uint32_t i = 0; a->parts && i < a->variables.lead_count; i++)
		want(a->variables.leads[i], true);
}

/* Parts are appended while the queue is walked. */
static void close_wish(void) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	for (uint32_t at = 0; at < a->queued && !a->all; at++) {
		const struct md_swap_arrival_part *part = &a->parts[a->queue[at]];
		if (part->reached != a->wish)
			continue;
		if (part->anywhere)
			doubt("memory that it may read holds addresses that may lead anywhere", part->address);
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

static bool is_mapped_here(uint64_t word)
{
	unsigned char ignored;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	return word >> 47 == 0 && mincore((void *)(uintptr_t)(word / page * page), page, &ignored) == 0;
}

static bool ask_driver(uint64_t word) MD_LOCKS_UNCHECKED
{
	unsigned type = 0;
	if (is_young(word))
		return false;
	if (is_managed(word) || md_swap_mapping_at(word))
		return true;
	if (!md_swap_real.cuPointerGetAttribute)
		return true;
	return md_swap_real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, word) == CUDA_SUCCESS &&
	       type;
}

/*
 * Memory from the C library comes and goes unseen, so answers about it are not kept. An address in our pool is none of
 * the engine's: the pool is locked and large, and a number beside 4 bytes of padding looks like an address in it.
 */
static void ask(uint64_t word) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	uint64_t known = 0;
	if (a->all || word < LEAST_ADDRESS || word >> 57 || md_swap_pool_is_at(a->links->pool, word))
		return;
	if (!md_map_get(&a->words, word, &known)) {
		known = ask_driver(word);
		if (a->words.used < WORDS_MOST)
			md_map_put(&a->words, word, known);
	}
	if (known)
		doubt("it is given an address of memory that stayed and was not searched", word);
	else if (a->reads_host && !is_young(word) && is_mapped_here(word))
		doubt("it is given an address of host memory, which kernels can read on this device", word);
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
	if (!inside && (aligned || md_swap_leads_has_region(a->leads, word)))
		ask(word);
}

/* Adds the words at multiples of 4 bytes, counted from the place where the bytes lie, or to which they are copied. */
static void wish_words(const uint8_t *bytes, size_t size, uint64_t place)
{
	for (size_t at = (4 - place % 4) % 4; at + 8 <= size; at += 4) {
		uint64_t word;
		memcpy(&word, bytes + at, sizeof(word));
		if (word >= LEAST_ADDRESS)
			md_swap_wish_word(word, (place + at) % 8 == 0);
	}
}

void md_swap_wish_bytes(const void *bytes, size_t size)
{
	wish_words(bytes, size, 0);
}

static void want_within(uint64_t address, uint64_t bytes, bool leads) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	for (uint32_t i = part_after(a, address); i < a->part_count && a->parts[i].address < address + bytes; i++)
		want(i, leads);
}

/* Memory that is mapped at several addresses is copied back by one of them. */
void md_swap_wish_range(uint64_t address, uint64_t bytes, bool leads) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	uint64_t end = address + bytes;
	if (a->all || !a->parts)
		return;
	want_within(address, bytes, leads);
	for (const struct md_swap_mapping *at = md_swap_mapping_next(address, end); at;
	     at = md_swap_mapping_next(at->address + at->bytes, end))
		for (const struct md_swap_mapping *one = at->physical->mappings; one; one = one->next)
			if (one != at)
				want_within(one->address, one->bytes, leads);
}

static bool is_on_device(uint64_t address)
{
	unsigned type = 0;
	return !md_swap_real.cuPointerGetAttribute ||
	       (md_swap_real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
		type != CU_MEMORYTYPE_HOST && type != 0);
}

static bool is_part(const struct md_swap_arrival *a, const struct md_swap_mapping *mapping)
{
	uint32_t at = part_after(a, mapping->address);
	return at < a->part_count && a->parts[at].address <= mapping->address;
}

/* Whether the memory of the mapping was wished for with the range, or is younger than the swap. */
static bool is_followed(const struct md_swap_arrival *a, const struct md_swap_mapping *mapping)
{
	if (mapping->physical->serial > a->serial)
		return true;
	for (const struct md_swap_mapping *one = mapping->physical->mappings; one; one = one->next)
		if (is_part(a, one))
			return true;
	return false;
}

static bool all_is_followed(uint64_t address, uint64_t end) MD_LOCKS_UNCHECKED
{
	const struct md_swap_mapping *at;
	while (address < end && (at = md_swap_mapping_at(address)) != NULL && is_followed(&md_swap_arrival, at))
		address = at->address + at->bytes;
	return address >= end;
}

void md_swap_wish_source(uint64_t address, uint64_t bytes, uint64_t to) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	uint64_t end = address + bytes;
	if (a->all || !a->parts || !bytes)
		return;
	md_swap_wish_range(address, bytes, true);
	if (md_swap_mapping_next(address, end)) {
		if (!all_is_followed(address, end))
			doubt("it copies from memory that stayed and was not searched", address);
		return;
	}
	uint32_t at = part_after(a, address);
	if (at < a->part_count && a->parts[at].address < end)
		return;
	if (a->unsteady || bytes > LOOKED_AT_MOST || is_managed(address) || is_on_device(address))
		doubt("it copies from memory that was not searched", address);
	else
		wish_words((const uint8_t *)(uintptr_t)address, bytes, to);
}

void md_swap_wish_all(const char *why)
{
	doubt(why, 0);
}

/* ---- the wait ---- */

static CUresult find_needs(struct md_swap_wait *wait) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	CUresult result = CUDA_SUCCESS;
	*wait = (struct md_swap_wait){0};
	if (!a->parts)
		return CUDA_SUCCESS;
	close_wish();
	uint32_t count = a->all ? a->part_count : a->queued;
	for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = md_swap_arrival_need(&a->parts[a->all ? i : a->queue[i]], wait);
	return result;
}

static void log_doubt(const struct md_swap_arrival *a) MD_LOCKS_UNCHECKED
{
	const char *name = "a graph";
	if (a->function && md_swap_real.cuFuncGetName(&name, a->function) != CUDA_SUCCESS &&
	    md_swap_real.cuKernelGetName(&name, (CUkernel)a->function) != CUDA_SUCCESS)
		name = "a kernel";
	md_debug("%.200s waits until everything has come: %s (0x%llx)", name, a->why, (unsigned long long)a->why_word);
}

static void count_launch(const struct md_swap_wait *wait) MD_LOCKS_UNCHECKED
{
	struct md_swap_arrival *a = &md_swap_arrival;
	struct md_swap_arrival_counts *counts = &a->counts;
	if (!a->parts)
		return;
	if (counts->at_first == UINT64_MAX)
		counts->at_first = a->total - counts->left;
	if (!wait->count)
		counts->launches_free++;
	else if (!a->all)
		counts->launches_some++;
	if (!wait->count || !a->all)
		return;
	counts->launches_all++;
	counts->why = a->why;
	if (md_log_enabled(MD_LOG_DEBUG))
		log_doubt(a);
}

static CUresult end_wish(bool launch, struct md_swap_wait *wait) MD_LOCKS_UNCHECKED
{
	bool memory = md_swap_arrival.holds_memory;
	if (launch)
		want_variables();
	CUresult result = find_needs(wait);
	if (result == CUDA_SUCCESS) {
		md_swap_arrival_hold(wait);
		if (launch)
			count_launch(wait);
	}
	pthread_mutex_unlock(&md_swap_arrival_lock);
	if (memory)
		pthread_mutex_unlock(&md_swap_memory_lock);
	return result;
}

CUresult md_swap_wish_await(CUstream stream, bool launch)
{
	struct md_swap_wait wait;
	CUresult result = end_wish(launch, &wait);
	for (unsigned i = 0; i < wait.count && result == CUDA_SUCCESS; i++)
		result = wait.driver->cuStreamWaitEvent(stream, wait.events[i], 0);
	md_swap_arrival_let_go(&wait);
	return result;
}

CUresult md_swap_wish_block(void)
{
	struct md_swap_wait wait;
	CUresult result = end_wish(false, &wait);
	for (unsigned i = 0; i < wait.count && result == CUDA_SUCCESS; i++)
		result = wait.driver->cuEventSynchronize(wait.events[i]);
	md_swap_arrival_let_go(&wait);
	return result;
}

/* ---- what changes the answers ---- */

void md_swap_reach_unsteady(void)
{
	pthread_mutex_lock(&md_swap_arrival_lock);
	md_swap_arrival.unsteady = true;
	pthread_mutex_unlock(&md_swap_arrival_lock);
}

void md_swap_reach_came(uint64_t address, uint64_t bytes)
{
	struct md_swap_arrival *a = &md_swap_arrival;
	if (!atomic_load(&md_swap_arriving))
		return;
	pthread_mutex_lock(&md_swap_arrival_lock);
	md_map_finish(&a->words);
	md_map_init(&a->words);
	if (a->leads)
		a->doubt = a->doubt || md_swap_leads_mention(a->leads, address, bytes);
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
	return md_environment_get("MEDUSA_SWAP_CONTROL") &&
	       md_setting_is_on("MEDUSA_SWAP_OVERLAP", true, false, "no addresses are searched for");
}
