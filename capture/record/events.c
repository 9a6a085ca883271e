/* SPDX-License-Identifier: Apache-2.0 */
/* Events that nodes of graphs record and wait for: their numbers in the trace, and whether the engine uses them too. */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/map.h"
#include "capture/capture.h"
#include "capture/record/events.h"
#include "driver/maker.h"

#define USED (UINT64_C(1) << 32) /* beside the number: the trace says that the engine uses the event */

static atomic_uint known;                        /* events in the map; nothing is looked up while there are none */
static struct md_map numbers MD_CAPTURE_GUARDED; /* CUevent -> number */
static uint32_t next_number MD_CAPTURE_GUARDED;
static atomic_uint named;                      /* events that have a name */
static struct md_map names MD_CAPTURE_GUARDED; /* CUevent -> struct event_name *, owned */

struct event_name {
	char text[MD_MAKER_NAME_BYTES];
};

static void put_name(CUevent event, uint32_t number) MD_CAPTURE_HELD
{
	uint64_t name;
	if (md_map_get(&names, (uintptr_t)event, &name) && md_capture.writer)
		md_trace_put_event_name(md_capture.writer, md_capture_next(), number,
					((const struct event_name *)(uintptr_t)name)->text);
}

bool md_capture_event_number(CUevent event, uint32_t *number)
{
	uint64_t value;
	if (!md_map_get(&numbers, (uintptr_t)event, &value)) {
		value = next_number;
		if (!md_map_put(&numbers, (uintptr_t)event, value))
			return false;
		next_number++;
		atomic_fetch_add(&known, 1);
		put_name(event, (uint32_t)value);
	}
	*number = (uint32_t)value;
	return true;
}

void md_capture_event_used(CUevent event, const char *call)
{
	uint64_t value;
	if (!atomic_load_explicit(&known, memory_order_relaxed))
		return;
	md_capture_lock();
	if (md_map_get(&numbers, (uintptr_t)event, &value) && !(value & USED) && md_capture.writer) {
		md_trace_put_event_use(md_capture.writer, md_capture_next(), (uint32_t)value, call);
		md_map_put(&numbers, (uintptr_t)event, value | USED); /* replaces: takes no memory */
	}
	md_capture_unlock();
}

/* Another event may get its handle. */
void md_capture_event_destroyed(CUevent event)
{
	uint64_t name;
	if (!atomic_load_explicit(&known, memory_order_relaxed) && !atomic_load_explicit(&named, memory_order_relaxed))
		return;
	md_capture_lock();
	if (md_map_remove(&names, (uintptr_t)event, &name)) {
		free((void *)(uintptr_t)name);
		atomic_fetch_sub(&named, 1);
	}
	if (md_map_remove(&numbers, (uintptr_t)event, NULL))
		atomic_fetch_sub(&known, 1);
	md_capture_unlock();
}

void md_capture_event_made(const void *caller, CUevent event)
{
	struct md_maker *maker = md_maker_find(caller);
	if (!maker || atomic_load(&md_capture.capturing))
		return;
	struct event_name *name = malloc(sizeof(*name));
	if (name)
		md_maker_name_event(maker, md_maker_next_event(maker), name->text);
	md_capture_lock();
	if (name && md_map_put(&names, (uintptr_t)event, (uintptr_t)name)) {
		atomic_fetch_add(&named, 1);
	} else {
		free(name);
		md_capture_trouble("out of memory for an event of %s", maker->soname);
	}
	md_capture_unlock();
}
