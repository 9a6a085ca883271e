/* SPDX-License-Identifier: Apache-2.0 */
/* Events that nodes of graphs record and wait for: their numbers in the trace, and whether the engine uses them too. */
#include <stdatomic.h>

#include "base/map.h"
#include "capture/capture.h"
#include "capture/record/events.h"

#define USED (UINT64_C(1) << 32) /* beside the number: the trace says that the engine uses the event */

static atomic_uint known;                        /* events in the map; nothing is looked up while there are none */
static struct md_map numbers MD_CAPTURE_GUARDED; /* CUevent -> number */
static uint32_t next_number MD_CAPTURE_GUARDED;

bool md_capture_event_number(CUevent event, uint32_t *number)
{
	uint64_t value;
	if (!md_map_get(&numbers, (uintptr_t)event, &value)) {
		value = next_number;
		if (!md_map_put(&numbers, (uintptr_t)event, value))
			return false;
		next_number++;
		atomic_fetch_add(&known, 1);
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
	if (!atomic_load_explicit(&known, memory_order_relaxed))
		return;
	md_capture_lock();
	if (md_map_remove(&numbers, (uintptr_t)event, NULL))
		atomic_fetch_sub(&known, 1);
	md_capture_unlock();
}
