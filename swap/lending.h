/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lends this process's memory, which is in, to other engines: it writes blocks that they have, too, into rooms on their GPU
 * (lending_push.h), or hands the memory over to their carrier, which reads it. The engine here goes on meanwhile, and may write
 * or free the memory: a borrower compares hashes of what has come. Physical memory that was handed over exists until the
 * borrower has closed its connection.
 */
#ifndef MD_SWAP_LENDING_H
#define MD_SWAP_LENDING_H

#include "base/descriptor.h"
#include "swap/book.h"
#include "swap/lending_push.h"
#include "swap/wire.h"

struct md_swap_borrower {
	struct md_descriptor connection;
	struct md_swap_push *push; /* owned; NULL: it has sent no room */
	bool handed;               /* its carrier has got memory, and has it until the connection ends */
	uint64_t heard_at;         /* ns */
};

struct md_swap_lending {
	const struct md_swap_below *below;
	struct md_swap_book *book; /* not owned; NULL: nothing is lent */
	struct md_swap_borrower borrowers[MD_CARRY_LENDERS];
	bool ends; /* nothing more is handed over */
};

void md_swap_lending_init(struct md_swap_lending *lending, const struct md_swap_below *below,
			  struct md_swap_book *book);
/* Takes a borrower's connection over, and offers what the book knows. */
void md_swap_lending_begin(struct md_swap_lending *lending, int fd);
/*
 * As md_swap_wire_wait; serves borrowers meanwhile, and waits anew after each (at most ten seconds in all): what the caller
 * does next may take long, and a borrower waits for its answer.
 */
bool md_swap_lending_wait(struct md_swap_lending *lending, const struct md_swap_wire *wire, int milliseconds);
/*
 * Wants all memory back, before it goes out: its room would not be free else. MD_ERR_BUSY: a borrower does not give it back
 * within this time; the message names who has connected it.
 */
enum md_status md_swap_lending_recall(struct md_swap_lending *lending, uint64_t deadline_ns, struct md_error *err);
/* Ends all connections. */
void md_swap_lending_finish(struct md_swap_lending *lending);
/* The same in the child of a fork, which has no driver. */
void md_swap_lending_forget(struct md_swap_lending *lending);
/*
 * For an allocation that has found no room: the engine may have freed memory that is lent. Waits until borrowers have given
 * everything back, and what is mapped here is unmapped, for three seconds at most. False: nothing was lent. From any thread.
 */
bool md_swap_lending_await(void);

#endif
