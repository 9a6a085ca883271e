/* SPDX-License-Identifier: Apache-2.0 */
/* A view of one capture: in which allocation and binding an address lay at a moment of the capture. */
#ifndef MD_ANALYZE_VIEW_H
#define MD_ANALYZE_VIEW_H

#include "base/interval.h"
#include "base/status.h"
#include "format/trace/trace.h"

/* The trace's allocations in their order, then one made up for each binding that lies in none of them. */
struct md_view_alloc {
	enum md_alloc_family family;
	bool made_up;
	uint64_t address, size, born, died;
};

struct md_view_binding {
	const char *name; /* borrowed from the trace */
	uint64_t address, size;
	enum md_bind_role role;
	uint32_t alloc; /* in which its first recorded byte lies */
};

/* Part [start, end) of an allocation that belongs to one bind record; the narrowest record wins. */
struct md_view_piece {
	uint64_t start, end;     /* offsets in the allocation */
	uint64_t binding_offset; /* of start, in the binding */
	uint32_t binding;
	uint64_t replaced; /* 0, or the sequence at which the name was bound elsewhere */
};

struct md_view_event {
	uint64_t sequence;
	uint32_t alloc;
	bool birth;
};

struct md_view {
	const struct md_trace *trace;
	struct md_view_alloc *allocs;
	uint32_t alloc_count;
	struct md_view_binding *bindings; /* ascending by name */
	uint32_t binding_count;
	struct md_view_piece *pieces;
	uint32_t *first_piece; /* alloc_count + 1 entries */
	struct md_view_event *events;
	uint32_t event_count, next_event;
	uint64_t now;
	struct md_interval_index live;
	uint64_t lowest, highest; /* all addresses of allocations lie in [lowest, highest) */
};

/* Where an address lies: in a binding if there is one, else in an allocation. */
struct md_place {
	uint32_t alloc;   /* index into the view's allocs; MD_NONE: nowhere */
	uint32_t binding; /* index into the view's bindings, or MD_NONE */
	int64_t offset;   /* in the binding, else in the allocation */
	uint64_t alloc_offset;
	uint64_t replaced; /* as in md_view_piece */
	bool last;         /* it is the last byte of its binding or allocation */
};

enum md_status md_view_init(struct md_view *view, const struct md_trace *trace, struct md_error *err);
void md_view_finish(struct md_view *view);

/* Moves to a sequence: allocations with born <= sequence < died are live. Going forward is cheap. */
enum md_status md_view_seek(struct md_view *view, uint64_t sequence, struct md_error *err);
/* The live allocation that holds address, or MD_NONE. */
uint32_t md_view_find(const struct md_view *view, uint64_t address);
/* Fills place; false (and alloc MD_NONE) when address lies in no live allocation. */
bool md_view_locate(const struct md_view *view, uint64_t address, struct md_place *place);
/* The piece of an allocation's byte, or NULL when it is not bound. */
const struct md_view_piece *md_view_piece_at(const struct md_view *view, uint32_t alloc, uint64_t offset);
/* Whether every byte of the allocation is bound. */
bool md_view_fully_bound(const struct md_view *view, uint32_t alloc);

#endif
