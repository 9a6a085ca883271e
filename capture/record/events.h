/* SPDX-License-Identifier: Apache-2.0 */
/* Events that nodes of graphs record and wait for. */
#ifndef MD_CAPTURE_RECORD_EVENTS_H
#define MD_CAPTURE_RECORD_EVENTS_H

#include "capture/capture.h"

/* The event's number in the trace; lock held. False: out of memory. */
bool md_capture_event_number(CUevent event, uint32_t *number) MD_CAPTURE_HELD;
/* The engine uses the event outside of stream captures; one atomic load while no graph has events. Lock not held. */
void md_capture_event_used(CUevent event, const char *call);
void md_capture_event_destroyed(CUevent event);
/* A new event; caller: the hook's return address. One that a communication library makes outside of stream captures has a name. */
void md_capture_event_made(const void *caller, CUevent event);

#endif
