/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of constant bindings: saved contents may have been made from them. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/map.h"
#include "capture/capture.h"
#include "capture/record/constant_hashes.h"
#include "capture/record/graphs.h"
#include "driver/device_hash.h"

static bool needed
    /* contents have been saved, so the trace must tell from which constants they may have been made */
    MD_CAPTURE_GUARDED;

void md_capture_constants_needed(void)
{
	needed = true;
}

/* ---- which ---- */

struct list {
	struct md_hash_range *ranges;
	size_t *bound; /* index in md_capture.bound of each */
	size_t count;
	enum md_capture_constants which;
};

static void list_finish(struct list *list)
{
	free(list->ranges);
	free(list->bound);
}

/* A name that was bound again stands for the last binding. */
static bool is_last(const struct md_map *last, size_t index) MD_CAPTURE_HELD
{
	const char *name = md_capture.bound[index].name;
	uint64_t at = index;
	md_map_get(last, md_hash_checksum(name, strlen(name)), &at);
	return at == index;
}

static bool note_last(struct md_map *last) MD_CAPTURE_HELD
{
	bool noted = true;
	md_map_init(last);
	for (size_t i = 0; i < md_capture.bind_count && noted; i++) {
		const char *name = md_capture.bound[i].name;
		noted = md_map_put(last, md_hash_checksum(name, strlen(name)), i);
	}
	return noted;
}

static bool is_constant(const struct md_capture_bind *bound)
{
	return bound->role == MD_BIND_CONSTANT || *bound->name == '@';
}

static bool is_look(enum md_capture_constants which)
{
	return which == MD_CONSTANTS_LABELLED || which == MD_CONSTANTS_LEFT;
}

static bool is_due(const struct md_capture_bind *bound, enum md_capture_constants which)
{
	bool again = which == MD_CONSTANTS_AGAIN || is_look(which);
	if (which == MD_CONSTANTS_SEQUENCE)
		return *bound->name == '@';
	return bound->role == MD_BIND_CONSTANT && bound->hashed == again;
}

/* A binding with a hash may be gone at the second look: an engine that ends frees its weights, or has put them away. */
static void put(enum md_capture_constants which, size_t index, const struct md_hash *hash,
		const char *why) MD_CAPTURE_HELD
{
	struct md_capture_bind *bound = &md_capture.bound[index];
	if (bound->hashed && !hash && which != MD_CONSTANTS_LABELLED)
		return;
	if (is_look(which)) { /* a cold start that gets its graphs does not do what has written it */
		if (!bound->read || (hash && md_hash_equal(hash, &bound->hash)))
			return;
		why = hash ? "was written after the engine had asked for graphs" : why;
		hash = NULL;
		bound->read = false;
	} else if (!bound->hashed && hash) {
		bound->hash = *hash;
		bound->read = true;
	}
	bound->hashed = true;
	md_trace_put_constant(md_capture.writer, md_capture_next(), bound->name, bound->address, bound->size, hash,
			      why);
}

/* Addresses may be bound that have no memory yet; a kernel that reads there breaks the context. */
static bool has_memory(const struct md_capture_bind *bound)
{
	const struct md_interval *item;
	for (uint64_t at = bound->address, end = at + bound->size; at < end; at = item->start + item->size)
		if (!(item = md_interval_find(&md_capture.live, at)))
			return false;
	return true;
}

/* Lists the bindings to hash. Bindings that were freed, or that we may not read, get a reason instead of a hash. */
static bool make_list(enum md_capture_constants which, struct list *list) MD_CAPTURE_HELD
{
	struct md_map last;
	bool made = note_last(&last);
	list->which = which;
	list->ranges = calloc(md_capture.bind_count + 1, sizeof(*list->ranges));
	list->bound = calloc(md_capture.bind_count + 1, sizeof(*list->bound));
	made = made && list->ranges && list->bound;
	for (size_t i = 0; made && i < md_capture.bind_count; i++) {
		const struct md_capture_bind *bound = &md_capture.bound[i];
		if (!is_constant(bound) || !is_due(bound, which) || !is_last(&last, i))
			continue;
		if (!md_interval_find(&md_capture.binds, bound->address)) {
			put(which, i, NULL, "was freed");
			continue;
		}
		if ((which == MD_CONSTANTS_ASKED || is_look(which)) && !has_memory(bound))
			continue;
		list->bound[list->count] = i;
		list->ranges[list->count++] = (struct md_hash_range){.address = bound->address, .size = bound->size};
	}
	md_map_finish(&last);
	return made;
}

/* ---- hashing ---- */

/* Hashes one binding after the other, so that each one that cannot be read gets its own reason. */
static void put_each(const struct md_device_hasher *hasher, CUstream stream, struct list *list) MD_CAPTURE_HELD
{
	for (size_t i = 0; i < list->count; i++) {
		struct md_error err = {0};
		size_t failed;
		if (md_device_hash(hasher, stream, &list->ranges[i], 1, &failed, &err) == MD_OK)
			put(list->which, list->bound[i], &list->ranges[i].hash, NULL);
		else
			put(list->which, list->bound[i], NULL, err.message);
	}
}

static void put_all(struct list *list) MD_CAPTURE_HELD
{
	struct md_device_hasher hasher;
	struct md_error err = {0};
	CUstream stream = NULL;
	size_t failed;
	if (md_cuda_call(&err, cuCtxSynchronize) != MD_OK ||
	    md_cuda_call(&err, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING) != MD_OK) {
		for (size_t i = 0; i < list->count; i++)
			put(list->which, list->bound[i], NULL, err.message);
		return;
	}
	md_device_hasher_open(&hasher, stream);
	if (md_device_hash(&hasher, stream, list->ranges, list->count, &failed, &err) != MD_OK)
		put_each(&hasher, stream, list);
	else
		for (size_t i = 0; i < list->count; i++)
			put(list->which, list->bound[i], &list->ranges[i].hash, NULL);
	md_device_hasher_close(&hasher);
	md_cuda.cuStreamDestroy_v2(stream);
}

void md_capture_constants_put(enum md_capture_constants which)
{
	MD_CLEANUP(list_finish) struct list list = {0};
	CUcontext home = md_capture_home(), popped;
	bool later = which == MD_CONSTANTS_NEW || which == MD_CONSTANTS_AGAIN;
	if (!md_capture.writer || atomic_load(&md_capture.capturing) || (later && !needed))
		return;
	if (!make_list(which, &list)) {
		md_capture_trouble("out of memory for the hashes of what is constant");
		return;
	}
	if (!list.count || !home || md_cuda.cuCtxPushCurrent_v2(home))
		return;
	put_all(&list);
	md_cuda.cuCtxPopCurrent_v2(&popped);
}

/* ---- when ---- */

#define LOOK_SHARE 20u /* looks take at most this part of the time since the first one */

static bool put_off MD_CAPTURE_GUARDED;
static CUgraphExec labelled_last MD_CAPTURE_GUARDED;
static uint64_t first_look_ns MD_CAPTURE_GUARDED, looked_ns MD_CAPTURE_GUARDED;

static void look(enum md_capture_constants which) MD_CAPTURE_HELD
{
	uint64_t now = md_clock_ns();
	if (!put_off || atomic_load(&md_capture.capturing))
		return;
	first_look_ns = first_look_ns ? first_look_ns : now;
	put_off = false;
	md_capture_constants_put(which);
	looked_ns += md_clock_ns() - now;
}

static bool is_cheap(void) MD_CAPTURE_HELD
{
	return !looked_ns || looked_ns * LOOK_SHARE <= md_clock_ns() - first_look_ns;
}

void md_capture_constants_labelled(CUgraphExec exec)
{
	put_off = true;
	labelled_last = exec;
	if (is_cheap())
		look(MD_CONSTANTS_LABELLED);
}

void md_capture_constants_launching(CUgraphExec exec)
{
	if (put_off && (exec != labelled_last || is_cheap()))
		look(MD_CONSTANTS_LABELLED);
}

void md_capture_constants_last_look(void)
{
	look(MD_CONSTANTS_LEFT);
}
