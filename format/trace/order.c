/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a placement from a trace, whose addresses compare as those in the trace do, and reads and writes the
 * placement's file.
 */
#include "format/trace/order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/hash.h"

#define ALIGNMENT_MAX (1ull << 30)
#define SPAN_MAX (1ull << 46)
#define ITEMS_MAX (1u << 24)

static const char magic[8] = "MDORDER\1";

/* ---- places ---- */

struct piece { /* a range of addresses in the first capture */
	uint64_t start, end;
	size_t item;
	bool reserved; /* reserved addresses without memory */
	bool whole;    /* gets blocks of its own */
};

struct layout {
	uint64_t seed, count; /* seed of the random numbers, and how many were taken */
	uint64_t at;          /* the first offset that is free */
	uint64_t last_block;  /* the block of the first capture in which the last small piece ended */
	uint64_t alignment;
};

static uint64_t random_below(struct layout *layout, uint64_t limit)
{
	uint64_t in[2] = {layout->seed, layout->count++};
	return md_hash_checksum(in, sizeof(in)) % limit;
}

static uint64_t round_up(uint64_t value, uint64_t to)
{
	return (value + to - 1) / to * to;
}

static int by_start(const void *left, const void *right)
{
	const struct piece *a = left, *b = right;
	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return (a->item > b->item) - (a->item < b->item);
}

/* The alignment of the piece in the first capture, by which libraries choose kernels. */
static uint64_t alignment_of(uint64_t start, const struct piece *kind)
{
	uint64_t lowest = start & -start;
	uint64_t least = kind->whole ? MD_ORDER_BLOCK : 512;
	uint64_t most = kind->reserved ? ALIGNMENT_MAX : least;
	return lowest < least ? least : lowest > most ? most : lowest;
}

/*
 * Small pieces stay with the other pieces of their block, because a block cannot belong to two devices. All other
 * pieces begin a block of their own. Even pieces that touched each other are moved apart, so that the end of one cannot
 * be taken for the beginning of the next.
 */
static uint64_t place_atom(struct layout *layout, const struct piece *atom)
{
	uint64_t alignment = alignment_of(atom->start, atom), offset;
	if (atom->whole || layout->last_block != atom->start / MD_ORDER_BLOCK)
		layout->at = round_up(layout->at, MD_ORDER_BLOCK) + (1 + random_below(layout, 4)) * MD_ORDER_BLOCK;
	if (!atom->whole)
		layout->at += (1 + random_below(layout, 32)) * 512;
	offset = round_up(layout->at, alignment);
	layout->at = offset + (atom->end - atom->start);
	layout->last_block = atom->whole ? UINT64_MAX : (atom->end - 1) / MD_ORDER_BLOCK;
	if (alignment > layout->alignment)
		layout->alignment = alignment;
	return offset;
}

static void place_all(struct layout *layout, const struct piece *pieces, size_t count, struct md_order *order)
{
	for (size_t i = 0, j; i < count; i = j) {
		struct piece atom = pieces[i];
		for (j = i + 1; j < count && pieces[j].start < atom.end; j++) {
			if (pieces[j].end > atom.end)
				atom.end = pieces[j].end;
			atom.reserved |= pieces[j].reserved;
		}
		atom.whole = atom.reserved || atom.end - atom.start >= MD_ORDER_SMALL;
		uint64_t offset = place_atom(layout, &atom);
		for (size_t k = i; k < j; k++)
			order->items[pieces[k].item].offset = offset + (pieces[k].start - atom.start);
	}
	order->alignment = layout->alignment;
	order->span = round_up(layout->at, MD_ORDER_BLOCK) + MD_ORDER_BLOCK;
}

/* ---- requests ---- */

/* Memory that is exported cannot be made by mapping, and the driver itself places pools and managed memory. */
static bool can_be_placed(const struct md_trace_alloc *alloc)
{
	return alloc->size && (alloc->family == MD_ALLOC_DEVICE || alloc->family == MD_ALLOC_PITCH);
}

static size_t list_requests(const struct md_trace *trace, struct md_order *order, struct piece *pieces)
{
	size_t placed = 0;
	for (uint32_t i = 0; i < trace->alloc_count; i++) {
		const struct md_trace_alloc *alloc = &trace->allocs[i];
		if (can_be_placed(alloc))
			pieces[placed++] =
			    (struct piece){alloc->address, alloc->address + alloc->size, order->count, false, false};
		order->items[order->count++] = (struct md_order_item){alloc->asked, alloc->size, MD_ORDER_NATURAL};
	}
	for (uint32_t i = 0; i < trace->reservation_count; i++) {
		const struct md_trace_reservation *reservation = &trace->reservations[i];
		pieces[placed++] = (struct piece){reservation->address, reservation->address + reservation->size,
						  order->count, true, true};
		order->items[order->count++] =
		    (struct md_order_item){MD_ORDER_RESERVATION, reservation->size, MD_ORDER_NATURAL};
	}
	return placed;
}

struct ranked {
	struct md_order_item item;
	size_t rank;
};

static int by_request(const void *left, const void *right)
{
	const struct ranked *a = left, *b = right;
	if (a->item.family != b->item.family)
		return a->item.family < b->item.family ? -1 : 1;
	if (a->item.size != b->item.size)
		return a->item.size < b->item.size ? -1 : 1;
	return (a->rank > b->rank) - (a->rank < b->rank);
}

static bool sort_requests(struct md_order *order)
{
	MD_AUTO_FREE struct ranked *list = malloc((order->count + 1) * sizeof(*list));
	if (!list)
		return false;
	for (size_t i = 0; i < order->count; i++)
		list[i] = (struct ranked){order->items[i], i};
	qsort(list, order->count, sizeof(*list), by_request);
	for (size_t i = 0; i < order->count; i++)
		order->items[i] = list[i].item;
	return true;
}

enum md_status md_order_make(const struct md_trace *trace, uint64_t seed, struct md_order *out, struct md_error *err)
{
	size_t room = (size_t)trace->alloc_count + trace->reservation_count + 1;
	MD_AUTO_FREE struct piece *pieces = malloc(room * sizeof(*pieces));
	struct layout layout = {.seed = seed, .last_block = UINT64_MAX, .alignment = MD_ORDER_BLOCK};
	size_t placed;
	*out = (struct md_order){.items = malloc(room * sizeof(*out->items))};
	if (pieces && out->items) {
		placed = list_requests(trace, out, pieces);
		qsort(pieces, placed, sizeof(*pieces), by_start);
		place_all(&layout, pieces, placed, out);
		if (sort_requests(out))
			return MD_OK;
	}
	md_order_finish(out);
	return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the places of allocations");
}

void md_order_finish(struct md_order *order)
{
	free(order->items);
	*order = (struct md_order){0};
}

/* ---- file ---- */

struct head {
	char magic[8];
	uint64_t alignment, span, count;
};

enum md_status md_order_write(const struct md_order *order, const char *path, struct md_error *err)
{
	struct head head = {.alignment = order->alignment, .span = order->span, .count = order->count};
	MD_AUTO_FD int fd = -1;
	MD_FORWARD(md_file_create(path, 0600, &fd, err));
	memcpy(head.magic, magic, sizeof(magic));
	MD_FORWARD(md_file_write(fd, &head, sizeof(head), path, err));
	return md_file_write(fd, order->items, order->count * sizeof(*order->items), path, err);
}

static enum md_status check(const struct md_order *order, const char *path, struct md_error *err)
{
	if (order->span > SPAN_MAX || order->alignment < MD_ORDER_BLOCK || order->alignment > ALIGNMENT_MAX ||
	    (order->alignment & (order->alignment - 1)))
		return md_error_set(err, MD_ERR_CORRUPT, "%s: span %" PRIu64 ", alignment %" PRIu64, path, order->span,
				    order->alignment);
	for (size_t i = 0; i < order->count; i++) {
		const struct md_order_item *item = &order->items[i];
		if (item->offset != MD_ORDER_NATURAL &&
		    (item->offset > order->span || item->size > order->span - item->offset))
			return md_error_set(err, MD_ERR_CORRUPT, "%s: item %zu lies outside", path, i);
	}
	return MD_OK;
}

enum md_status md_order_read(const char *path, struct md_order *out, struct md_error *err)
{
	MD_AUTO_FD int fd = -1;
	struct head head;
	uint64_t size;
	enum md_status status;
	MD_FORWARD(md_file_open(path, sizeof(head) + ITEMS_MAX * sizeof(*out->items), &fd, &size, err));
	MD_FORWARD(md_file_read_at(fd, 0, &head, sizeof(head), err));
	if (memcmp(head.magic, magic, sizeof(magic)) != 0 || head.count > ITEMS_MAX ||
	    size != sizeof(head) + head.count * sizeof(*out->items))
		return md_error_set(err, MD_ERR_CORRUPT, "%s: not a list of places", path);
	*out = (struct md_order){head.alignment, head.span, malloc((head.count + 1) * sizeof(*out->items)), head.count};
	status = out->items ? md_file_read_at(fd, sizeof(head), out->items, head.count * sizeof(*out->items), err)
			    : md_error_set(err, MD_ERR_NO_MEMORY, "%s: out of memory for its places", path);
	if (status == MD_OK)
		status = check(out, path, err);
	if (status != MD_OK)
		md_order_finish(out);
	return status;
}
