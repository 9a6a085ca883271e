/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the device memory of this process away, into the pool, and gives it back. */
#ifndef MD_SWAP_EXCHANGE_H
#define MD_SWAP_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/cuda_driver.h"
#include "swap/carry.h"
#include "swap/merge.h"
#include "swap/swap_memory.h"
#include "swap/pool.h"

/* The memory of an engine, and its gate; gate.h and swap_memory.h say what each call means. */
struct md_swap_below {
	const struct md_cuda *driver; /* which no gate holds up */
	enum md_status (*close_gate)(uint64_t deadline_ns, struct md_error *err);
	void (*open_gate)(void);
	enum md_status (*list)(struct md_swap_range **ranges, size_t *count, struct md_error *err);
	enum md_status (*unmap)(const struct md_swap_range *range, struct md_error *err);
	enum md_status (*map)(const struct md_swap_range *range, struct md_error *err);
	bool (*discardable)(uint64_t address, uint64_t bytes); /* whether all of it may be lost */
	/* swap/merge.h; NULL: nothing is merged. */
	void (*note)(const struct md_swap_range *range, const struct md_hash *held);
	enum md_swap_merged (*merge)(const struct md_swap_range *range, const struct md_hash *holds, bool *hopeless);
	bool (*commit)(const struct md_swap_range *range);
	/* A descriptor by which another process can map the physical memory; the caller closes it. NULL: there is none. */
	enum md_status (*lend)(const struct md_swap_range *range, int *fd, struct md_error *err);
	/* The same by the serial number of the range, while the engine runs. NULL: there is none. */
	enum md_status (*lend_known)(uint64_t serial, int *fd, struct md_error *err);
	/* Maps it at an address that is reserved, as long as it is at it; it exists until it is unmapped there. NULL: there is none. */
	enum md_status (*map_known)(uint64_t serial, uint64_t address, uint64_t bytes, struct md_error *err);
	CUcontext (*context_on)(CUdevice device); /* NULL, or its answer is: there is none */
};

struct md_swap_settings {
	uint64_t deadline_ns; /* how long the engine's work may take to end */
	bool verify;          /* in: hash what came back, and compare */
	bool
	    overlap; /* in: the gate opens before the bytes are there; not with verify, nor with a carrier, nor where a block is spilled */
	bool merge; /* in: constant memory may be one that other engines have; not with overlap, nor with a carrier */
	struct md_swap_carrier *carrier; /* in: takes a part of the bytes, unless a block is spilled; NULL: none */
};

struct md_swap_report {
	uint64_t bytes;        /* of device memory that went or came */
	uint64_t copied;       /* of these, between device and host */
	uint64_t hashed_equal; /* the pool had them already; out only */
	uint64_t zero;         /* nothing but zeros: neither copied nor kept */
	uint64_t discarded;    /* not saved, since the engine does not need them: zero when the memory is in again */
	uint64_t resident;     /* stay on the device */
	uint64_t coming;       /* had not come when the gate opened; in with overlap only */
	uint64_t spilled;      /* bytes that were written to the pool's spill file, or read from it */
	uint64_t ns_quiesce, ns_hash, ns_copy, ns_lock, ns_unmap, ns_map, ns_total;
	uint64_t ns_spill; /* of writing and reading the file; within ns_copy */
	/* of `copied`, bytes that came over links of neighbours */
	uint32_t links;
	uint64_t by_link[MD_CARRY_LINKS];
	char gpus[MD_CARRY_LINKS][MD_CARRY_GPU_BYTES];
	char because[256];       /* why neighbours have carried nothing, or nothing more; "": no reason */
	uint64_t by_peers;       /* of `copied`, from memory of engines on other GPUs */
	uint64_t differed;       /* came from there as well, and had other bytes: it was copied again, from the pool */
	char peers_because[256]; /* why nothing has come from there; "": no reason */
	char carried_because[256]; /* why an engine there has not copied itself, but the carrier; "": no reason */
	uint64_t peer_times[MD_PEER_TIMES];
};

/* Belongs to one thread. */
struct md_swap_exchange;

struct md_swap_book;
/* What this process's memory held when it came in last. */
struct md_swap_book *md_swap_exchange_book(struct md_swap_exchange *exchange);

/* Neither below nor the pool is owned; both must outlive it. */
enum md_status md_swap_exchange_create(const struct md_swap_below *below, struct md_swap_pool *pool,
				       struct md_swap_exchange **exchange, struct md_error *err);
/* May be called when the memory is in and nothing is arriving. NULL is allowed. */
void md_swap_exchange_destroy(struct md_swap_exchange *exchange);
bool md_swap_exchange_is_out(const struct md_swap_exchange *exchange);
/* Whether bytes are on their way while the engine runs. */
bool md_swap_exchange_is_arriving(const struct md_swap_exchange *exchange);
/*
 * One step of filling the memory in the background; call it again soon while memory is arriving. An error: a copy could
 * not be made; calls of the engine that need it fail, and the next step tries again.
 */
enum md_status md_swap_exchange_carry(struct md_swap_exchange *exchange, struct md_error *err);
/* Waits until everything has come. MD_ERR_TIMEOUT says how much is missing after deadline_ns. */
enum md_status md_swap_exchange_settle(struct md_swap_exchange *exchange, uint64_t deadline_ns, struct md_error *err);
/*
 * One step of searching the memory that is out for addresses, which an overlapped in needs. False: everything was searched.
 */
bool md_swap_exchange_look(struct md_swap_exchange *exchange);
/*
 * Called in the background, while the engine runs: prepares in a context what the first swap would have to wait for, a
 * kernel and page-locked memory for this many bytes of the pool. False: nothing is left to prepare now. The context must
 * stay meanwhile.
 */
bool md_swap_exchange_prepare(struct md_swap_exchange *exchange, CUcontext context, uint64_t bytes);

/*
 * Takes away all memory that can go. After a failure nothing has changed and the engine runs on: MD_ERR_TIMEOUT (its work
 * did not end), MD_ERR_NO_MEMORY (the pool is too small; the message says by how much, or its spill file fails), MD_ERR_DRIVER. If bringing memory
 * back after a failure has failed, too, md_swap_exchange_is_out() is true, and md_swap_in() can be tried again.
 */
enum md_status md_swap_out(struct md_swap_exchange *exchange, const struct md_swap_settings *settings,
			   struct md_swap_report *report, struct md_error *err);
/*
 * While the memory is out: unlocks the pool's pages, so that the driver has nothing to do with them when it checkpoints the
 * process. They are locked again by md_swap_in. On failure the memory is out as before.
 */
enum md_status md_swap_exchange_detach(struct md_swap_exchange *exchange, struct md_error *err);
/*
 * Gives it back. On failure the memory is out as before: MD_ERR_DRIVER_MEMORY says how much is missing; MD_ERR_CORRUPT
 * when verification found a difference, or a block of the spill file has other bytes than it had or cannot be read.
 */
enum md_status md_swap_in(struct md_swap_exchange *exchange, const struct md_swap_settings *settings,
			  struct md_swap_report *report, struct md_error *err);

#endif
