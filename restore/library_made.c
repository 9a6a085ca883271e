/* SPDX-License-Identifier: Apache-2.0 */
/* Names memory and events of communication libraries in the order in which they are made, as capture/record/made.c does. */
#define MD_LOG_DOMAIN "restore"
#include "restore/library_made.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "driver/maker.h"
#include "ranks/rank.h"
#include "restore/background.h"
#include "restore/bindings.h"
#include "restore/restore_api.h"
#include "restore/shared_handles.h"

struct made_memory {
	uint64_t start, size;
	unsigned open; /* how often a handle to it is open, beyond the first time */
};

struct made_event {
	struct md_maker *maker;
	uint32_t place;
	CUevent event; /* NULL: destroyed */
};

static pthread_mutex_t made_lock = PTHREAD_MUTEX_INITIALIZER;
static struct made_memory *memory MD_GUARDED_BY(made_lock); /* that is there now */
static size_t memory_count MD_GUARDED_BY(made_lock), memory_room MD_GUARDED_BY(made_lock);
static struct made_event *events MD_GUARDED_BY(made_lock);
static size_t event_count MD_GUARDED_BY(made_lock), event_room MD_GUARDED_BY(made_lock);
static bool lost MD_GUARDED_BY(made_lock); /* out of memory: what is known of the order is not all of it */

void md_restore_made_renew(void)
{
	pthread_mutex_init(&made_lock, NULL);
	md_restore_handles_renew();
	md_maker_renew();
}

/* ---- memory ---- */

static struct made_memory *find(uint64_t address) MD_REQUIRES(made_lock)
{
	for (size_t i = 0; i < memory_count; i++)
		if (address >= memory[i].start && address - memory[i].start < memory[i].size)
			return &memory[i];
	return NULL;
}

/* False: the memory there has a name already. */
static bool add(uint64_t address, uint64_t size)
{
	pthread_mutex_lock(&made_lock);
	struct made_memory *there = find(address);
	if (there)
		there->open++;
	else if (MD_ARRAY_GROW(memory, memory_count, memory_room))
		memory[memory_count++] = (struct made_memory){.start = address, .size = size};
	else
		lost = true;
	pthread_mutex_unlock(&made_lock);
	return !there;
}

static void bind_made(const char *name, uint64_t address, uint64_t size)
{
	struct md_bound what = {.name = (char *)name, .address = address, .size = size, .role = MD_BIND_STATE};
	struct md_error err = {0};
	md_restore_init();
	if (atomic_load(&md_restore.off))
		return;
	pthread_mutex_lock(&md_restore_lock);
	if (md_restore_bind_new(&md_restore, &what, &err) != MD_OK)
		md_warn("%s", err.message);
	pthread_mutex_unlock(&md_restore_lock);
}

static void find_range(uint64_t *address, uint64_t *size)
{
	CUdeviceptr start = 0;
	size_t whole = 0;
	if (md_cuda.cuMemGetAddressRange_v2 &&
	    md_cuda.cuMemGetAddressRange_v2(&start, &whole, *address) == CUDA_SUCCESS && whole) {
		*address = start;
		*size = whole;
	}
}

/* What is made while a graph is captured has no place in the order: a start that restores the graph does not make it. */
void md_restore_made(const void *caller, uint64_t address, uint64_t size)
{
	struct md_maker *maker = md_maker_find(caller);
	char name[MD_MAKER_NAME_BYTES];
	if (!maker)
		return;
	if (!size)
		find_range(&address, &size);
	if (!add(address, size ? size : 1) || atomic_load(&md_restore.captures))
		return;
	md_maker_name_next(maker, name);
	bind_made(name, address, size);
}

static bool is_rank;

static void read_is_rank(void)
{
	uint32_t rank, ranks;
	is_rank = md_rank_said(&rank, &ranks, NULL) != MD_OK || ranks > 1;
}

/* As md_capture_made_shared does it. Memory that has a name keeps it. */
void md_restore_made_shared(const void *caller, uint64_t address, uint64_t size, bool own)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	char name[MD_MAKER_NAME_BYTES];
	pthread_once(&once, read_is_rank);
	if (!is_rank || md_maker_find(caller))
		return;
	if (!size)
		find_range(&address, &size);
	pthread_mutex_lock(&made_lock);
	struct made_memory *there = find(address);
	if (there && !own)
		there->open++;
	pthread_mutex_unlock(&made_lock);
	if (there || !add(address, size ? size : 1) || atomic_load(&md_restore.captures))
		return;
	md_maker_name_peers(own, name);
	bind_made(name, address, size);
}

void md_restore_made_seen(const void *caller, uint64_t host, uint64_t device)
{
	uint64_t start = 0, size = 0;
	if (host == device)
		return;
	pthread_mutex_lock(&made_lock);
	const struct made_memory *there = find(host);
	if (there && !find(device)) {
		start = device - (host - there->start);
		size = there->size;
	}
	pthread_mutex_unlock(&made_lock);
	if (size)
		md_restore_made(caller, start, size);
}

void md_restore_made_gone(uint64_t address, uint64_t size)
{
	bool any = false;
	pthread_mutex_lock(&made_lock);
	for (size_t i = 0; i < memory_count;) {
		if (memory[i].start >= address && memory[i].start - address < size) {
			memory[i] = memory[--memory_count];
			any = true;
		} else {
			i++;
		}
	}
	pthread_mutex_unlock(&made_lock);
	if (any)
		md_restore_bindings_freed(&md_restore, address, size);
}

void md_restore_made_closed(uint64_t address)
{
	uint64_t start = 0;
	pthread_mutex_lock(&made_lock);
	struct made_memory *there = find(address);
	if (there && there->open)
		there->open--;
	else if (there)
		start = there->start;
	pthread_mutex_unlock(&made_lock);
	if (start)
		md_restore_made_gone(start, 1);
}

/* ---- events ---- */

void md_restore_made_event(const void *caller, CUevent event)
{
	struct md_maker *maker = md_maker_find(caller);
	if (!maker || atomic_load(&md_restore.captures))
		return;
	uint32_t place = md_maker_next_event(maker);
	pthread_mutex_lock(&made_lock);
	if (MD_ARRAY_GROW(events, event_count, event_room))
		events[event_count++] = (struct made_event){maker, place, event};
	pthread_mutex_unlock(&made_lock);
}

void md_restore_made_event_gone(CUevent event)
{
	pthread_mutex_lock(&made_lock);
	for (size_t i = 0; i < event_count; i++)
		if (events[i].event == event)
			events[i].event = NULL;
	pthread_mutex_unlock(&made_lock);
}

/* ---- graphs that communicate ---- */

const char *md_restore_made_library(const struct md_restore *r, const struct md_restore_graph *graph)
{
	for (uint32_t i = 0; i < graph->binding_count; i++)
		if (md_maker_is_name(r->artifact.bindings[graph->bindings[i]].name))
			return r->artifact.bindings[graph->bindings[i]].name;
	return NULL;
}

/* One more than the last place of the library's memory in the artifact, or in this process. */
static uint64_t count_known(const struct md_restore *r, const char *library)
{
	uint64_t count = 0;
	for (uint32_t i = 0; i < r->artifact.binding_count; i++) {
		const char *name = r->artifact.bindings[i].name;
		if (md_maker_is_name(name) && md_maker_same_library(name, library) && md_maker_place_of(name) >= count)
			count = md_maker_place_of(name) + 1;
	}
	return count;
}

static uint64_t count_here(const struct md_restore *r, const char *library) MD_RESTORE_HELD
{
	uint64_t count = 0;
	for (uint32_t i = 0; i < r->bound_count; i++) {
		const char *name = r->bound[i].name;
		if (md_maker_is_name(name) && md_maker_same_library(name, library) && md_maker_place_of(name) >= count)
			count = md_maker_place_of(name) + 1;
	}
	return count;
}

/*
 * The memory of an additional communicator that is made before those of the capture has their names, and the communicator may join
 * other ranks. What the library makes after a graph has been found to fit has no name that a graph uses, so it may be more than in a capture.
 */
static enum md_status check_more(const struct md_restore *r, const char *library, struct md_error *err) MD_RESTORE_HELD
{
	static char fits[8][MD_MAKER_NAME_BYTES] MD_RESTORE_GUARDED; /* a name of each library that was found to fit */
	uint64_t known = count_known(r, library), here;
	bool peers = md_maker_is_peers(library);
	size_t i = 0;
	while (i < sizeof(fits) / sizeof(fits[0]) && *fits[i] && !md_maker_same_library(fits[i], library))
		i++;
	if (i < sizeof(fits) / sizeof(fits[0]) && *fits[i])
		return MD_OK;
	here = count_here(r, library);
	if (here > known)
		return md_error_set(
		    err, MD_ERR_MISMATCH,
		    "the %s of %s %s %" PRIu64
		    " pieces of memory before the first graph that communicates, and in both captures at "
		    "most %" PRIu64 ": make the same %s, in the same order, with the same settings",
		    peers ? "ranks" : "communication library", library, peers ? "share" : "has made", here, known,
		    peers ? "exports and imports" : "communicators");
	if (i < sizeof(fits) / sizeof(fits[0]))
		snprintf(fits[i], sizeof(fits[i]), "%s", library);
	return MD_OK;
}

/*
 * Sizes tell when the order is another one than in the capture, as with other settings of the library. So those of all that it
 * has made count, and not only of what the graph uses.
 */
enum md_status md_restore_made_check(const struct md_restore *r, const char *library, struct md_error *err)
{
	pthread_mutex_lock(&made_lock);
	bool all = !lost, peers = md_maker_is_peers(library);
	pthread_mutex_unlock(&made_lock);
	if (!all)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for memory of communication libraries");
	for (uint32_t i = 0; i < r->artifact.binding_count; i++) {
		const struct md_binding *binding = &r->artifact.bindings[i];
		if (!md_maker_is_name(binding->name) || !md_maker_same_library(binding->name, library))
			continue;
		if (r->binding_of[i] == MD_NONE)
			return md_error_set(err, MD_ERR_MISMATCH,
					    "%s %s (%llu bytes), as %s had in the capture: %s before asking for graphs",
					    peers ? "the ranks do not share" : "the communication library has not made",
					    binding->name, (unsigned long long)binding->size, peers ? "they" : "it",
					    peers ? "share the same memory, in the same order,"
						  : "make the communicator, and use it once,");
		if (r->bound[r->binding_of[i]].size != binding->size)
			return md_error_set(err, MD_ERR_MISMATCH,
					    "%s, memory %s, has %llu bytes, and had %llu in the "
					    "capture: its version or settings are others",
					    binding->name, peers ? "that ranks share" : "of a communication library",
					    (unsigned long long)r->bound[r->binding_of[i]].size,
					    (unsigned long long)binding->size);
	}
	return check_more(r, library, err);
}

enum md_status md_restore_made_event_of(const struct md_restore *r, const struct md_restore_graph *graph,
					const struct md_node *node, CUevent *out, struct md_error *err)
{
	const char *library = md_restore_made_library(r, graph);
	uint32_t place = node->event - graph->stored->node_count;
	char name[MD_MAKER_NAME_BYTES];
	*out = NULL;
	pthread_mutex_lock(&made_lock);
	for (size_t i = 0; library && i < event_count; i++) {
		md_maker_name_event(events[i].maker, events[i].place, name);
		if (events[i].place == place && md_maker_same_library(name, library))
			*out = events[i].event;
	}
	pthread_mutex_unlock(&made_lock);
	if (*out)
		return MD_OK;
	return md_error_set(err, MD_ERR_MISMATCH, "event %u of the communication library is not there in this process",
			    place);
}
