/* SPDX-License-Identifier: Apache-2.0 */
/* The placement of a second capture's allocations: addresses differ from the first capture's, but compare alike. */
#ifndef MD_FORMAT_TRACE_ORDER_H
#define MD_FORMAT_TRACE_ORDER_H

#include "format/trace/trace.h"

/*
 * A file that medusa-capture makes for the next run and removes after it; no format to keep. Little-endian: magic
 * "MDORDER\1", alignment, span, count, then for each request of the first capture family, size and offset. The n-th
 * request of a family and size is served at that offset in a range of `span` bytes of reserved addresses. Allocations
 * that overlapped in the first capture, at one time or another, move together. All others are kept apart by gaps of
 * different sizes, so that no two allocations move equally far, and the end of one is not the beginning of the next.
 */
#define MD_ORDER_NATURAL UINT64_MAX /* as offset: the driver chooses the address, because Medusa cannot */
#define MD_ORDER_RESERVATION 0x100u /* family: reserved addresses, by cuMemAddressReserve */
#define MD_ORDER_BLOCK (2ull << 20) /* bytes; the least that the driver maps */
#define MD_ORDER_SMALL (1ull << 20) /* smaller allocations share blocks, as they do with the driver */

struct md_order_item {
	uint64_t family, size, offset;
};

struct md_order {
	uint64_t alignment, span;
	struct md_order_item *items; /* ascending by family and size, then as they were requested; owned */
	size_t count;
};

/* Each seed gives other gaps. */
enum md_status md_order_make(const struct md_trace *trace, uint64_t seed, struct md_order *out, struct md_error *err);
void md_order_finish(struct md_order *order);

enum md_status md_order_write(const struct md_order *order, const char *path, struct md_error *err);
enum md_status md_order_read(const char *path, struct md_order *out, struct md_error *err);

#endif
