/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lender's copies for one borrower: from this process's memory, mapped a second time, into rooms on the borrower's GPU. The
 * engine here goes on, and may write the memory or free it, which then exists until it is unmapped here.
 */
#ifndef MD_SWAP_LENDING_PUSH_H
#define MD_SWAP_LENDING_PUSH_H

#include "swap/book.h"
#include "swap/carry_wire.h"

struct md_swap_push;

/* For memory of the book on this device. MD_ERR_UNSUPPORTED: this process has no context there, or cannot map its memory twice. */
enum md_status md_swap_push_create(const struct md_swap_below *below, const struct md_swap_book *book, int device,
				   struct md_swap_push **push, struct md_error *err);
/*
 * Takes memory of the borrower over, into which the device is to write. MD_ERR_CORRUPT: the number or the size makes no sense;
 * another error: the device cannot reach it, or it is no device memory. The caller closes the descriptor.
 */
enum md_status md_swap_push_room(struct md_swap_push *push, uint32_t number, uint64_t bytes, int memory,
				 struct md_error *err);
/* A chunk that the borrower wants. MD_ERR_CORRUPT: it lies outside of its room, or too many are wanted at a time. */
enum md_status md_swap_push_take(struct md_swap_push *push, const struct md_carry_message *take, struct md_error *err);
/*
 * Begins copies, and tells the borrower of those that have ended and of chunks that do not come. Never waits for the device.
 * An error: it can do no more.
 */
enum md_status md_swap_push_step(struct md_swap_push *push, int borrower, struct md_error *err);
/* Whether chunks are wanted or under way. */
bool md_swap_push_works(const struct md_swap_push *push);
/*
 * Nothing more begins. Waits for what is under way, and tells the borrower of it (-1: it has gone). MD_ERR_BUSY: it has not ended
 * at that time (md_clock_ns).
 */
enum md_status md_swap_push_settle(struct md_swap_push *push, int borrower, uint64_t until, struct md_error *err);
/* Once it is settled: the borrower has its memory to itself. Called again, does nothing. */
void md_swap_push_give_rooms_up(struct md_swap_push *push);
/* Counts from MD_PEER_COPIER on. */
const uint64_t *md_swap_push_times(const struct md_swap_push *push);
/* Once it is settled: unmaps everything. NULL is allowed. */
void md_swap_push_destroy(struct md_swap_push *push);

#endif
