/* SPDX-License-Identifier: Apache-2.0 */
/* Copies memory back while the engine runs: a call of the engine waits for the bytes that it may touch. */
#ifndef MD_SWAP_ARRIVAL_H
#define MD_SWAP_ARRIVAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/guarded.h"
#include "swap/contents.h"
#include "swap/leads.h"
#include "swap/physical.h"

/*
 * Copies are made in chunks, one after the other, on one stream of each context, which is called the flow. The device
 * needs no help with a chunk that is submitted, so a stream of the engine can wait for the chunk on the device. Chunks are
 * submitted in the order of addresses, a few ahead of the copies. A call that needs other chunks submits these at once.
 */

/*
 * Not 0 while bytes are on their way. Set before the gate opens, so that every call that has passed the gate sees it.
 */
extern _Atomic(uint32_t) md_swap_arriving;

struct md_swap_arrival_counts {
	uint64_t launches_free, launches_some,
	    launches_all;  /* launches that waited for nothing, for some memory, for everything */
	uint64_t left;     /* bytes that have not come */
	uint64_t at_first; /* bytes that had come when the first launch was made; UINT64_MAX: none was made */
	uint64_t unknown;  /* bytes that have not been searched for addresses, and may hold any address */
	const char *why;   /* the last launch that waited for everything did so; NULL: none did */
};

/* ---- for exchange.c, whose thread calls them ---- */

/*
 * Begins to fill the empty parts of the contents; no copy is made yet. The contents, the links and the leads must stay
 * until md_swap_arrival_carry says that everything has come.
 */
enum md_status md_swap_arrival_begin(const struct md_swap_contents *contents, struct md_swap_links *links,
				     const struct md_swap_leads *leads, struct md_error *err);
/*
 * Submits the next chunks (hurry: all chunks), and notes which have come. *over: everything has come, and the arguments
 * of begin may be freed. An error: a copy could not be submitted; the next call tries again.
 */
enum md_status md_swap_arrival_carry(bool hurry, bool *over, struct md_error *err);
void md_swap_arrival_count(struct md_swap_arrival_counts *counts);

/* ---- for the layer ---- */

/* Waits until the bytes in the range have come. The caller may hold md_swap_memory_lock. */
CUresult md_swap_arrival_settle(uint64_t address, uint64_t bytes);
/* Waits until everything has come. */
CUresult md_swap_arrival_settle_all(void);
/* Waits until everything has come, and ends the arrival: called before a context ends. */
CUresult md_swap_arrival_finish(void);

/* ---- for arrival.c and reach.c ---- */

struct md_swap_arrival_part {
	uint64_t address, bytes;
	uint32_t flow;
	size_t first, next, end;  /* blocks; next: not yet submitted */
	uint64_t last;            /* number of its last chunk on the flow */
	uint64_t wanted, reached; /* the last wishes that had it; reached: with all that it leads to */
	bool alone;
	bool anywhere;                          /* what it holds may lead anywhere */
	uint32_t *leads, lead_count, lead_room; /* parts that addresses in it point into */
};

struct md_swap_arrival_flow {
	CUcontext context;
	struct md_swap_link link; /* with one stream, in all places */
	CUevent *events;          /* of each chunk; chunk n has n - 1 */
	uint64_t submitted, done, most;
};

#define MD_SWAP_FLOWS 16u

struct md_swap_arrival {
	const struct md_swap_contents *contents;
	struct md_swap_links *links;
	struct md_swap_arrival_part *parts; /* sorted by address; NULL: nothing is on its way */
	uint32_t part_count, turn;          /* turn: the part from which chunks are submitted next */
	struct md_swap_arrival_flow flows[MD_SWAP_FLOWS];
	uint32_t flow_count;
	uint64_t serial; /* physical memory that is younger was not out */
	unsigned users;  /* threads that wait for an event, so that it stays */
	bool unsteady;   /* host functions may write what the engine copies to the device later */
	bool
	    doubt; /* memory has come to which addresses lead that were found before: everything waits for everything */
	bool reads_host; /* a device reads memory of the C library's */
	const struct md_swap_leads *leads;
	struct md_swap_arrival_part variables; /* of modules: what they lead to, each kernel may touch */
	struct md_swap_arrival_counts counts;
	uint64_t total;
	/* the wish that is being put together */
	uint64_t wish;
	bool holds_memory; /* md_swap_memory_lock, until the wish ends */
	bool all;
	const char *why; /* it is for everything */
	uint64_t why_word;
	CUfunction function; /* that is launched; NULL: another call, or a graph */
	uint32_t *queue;     /* parts, each at most twice */
	uint32_t queued;
	struct md_map words; /* that are in no part: 1 where the driver knows memory there, else 0 */
};

extern pthread_mutex_t md_swap_arrival_lock; /* taken after md_swap_memory_lock */
extern struct md_swap_arrival md_swap_arrival MD_GUARDED_BY(md_swap_arrival_lock);

/*
 * The events that a call waits for. They are collected and held under the lock, and waited for without it. Held events
 * stay until they are released. The wait may last until a call of another thread lets the device go on.
 */
struct md_swap_wait {
	uint64_t chunk[MD_SWAP_FLOWS]; /* of each flow, up to this one; 0: none */
	const struct md_cuda *driver;
	CUevent events[MD_SWAP_FLOWS];
	unsigned count; /* of events */
};

/* Submits what is left of a part, and adds it. An error: the call must not be made. */
CUresult md_swap_arrival_need(struct md_swap_arrival_part *part, struct md_swap_wait *wait)
    MD_REQUIRES(md_swap_arrival_lock);
void md_swap_arrival_hold(struct md_swap_wait *wait) MD_REQUIRES(md_swap_arrival_lock);
void md_swap_arrival_let_go(const struct md_swap_wait *wait);
/* Finds the parts to which the words of each part lead. False: out of memory. */
bool md_swap_reach_prepare(struct md_swap_arrival *arrival, const struct md_swap_leads *leads)
    MD_REQUIRES(md_swap_memory_lock, md_swap_arrival_lock);

#endif
