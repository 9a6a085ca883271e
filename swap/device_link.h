/* SPDX-License-Identifier: Apache-2.0 */
/* A link between a device and the pool: streams of a context, the kernel that hashes, page-locked parts of the pool. */
#ifndef MD_SWAP_DEVICE_LINK_H
#define MD_SWAP_DEVICE_LINK_H

#include "driver/cuda_driver.h"
#include "driver/device_hash.h"
#include "swap/pool.h"

#define MD_SWAP_STREAMS 4u
#define MD_SWAP_CHUNK 64u /* blocks whose pages are locked at a time; no copy crosses the border of two chunks */

struct md_swap_link {
	CUcontext context;
	unsigned long long id; /* distinguishes the context from a later one with the same handle */
	CUstream streams[MD_SWAP_STREAMS];
	CUstream aside; /* for hashing while copies are under way on the others */
	struct md_device_hasher hasher;
};

struct md_swap_links {
	const struct md_cuda *driver;
	struct md_swap_pool *pool;
	struct md_swap_link *list; /* owned */
	size_t count;
	uint8_t *locked;               /* owned: of each chunk, whether its pages are locked */
	uint32_t chunks, locked_count; /* locked_count: chunks that are */
	CUcontext locked_in;           /* pages are unlocked when this context goes */
	unsigned long long locked_id;
	bool cannot_lock; /* since the swap began; the next one tries again */
	bool warned;
};

enum md_status md_swap_links_init(struct md_swap_links *links, const struct md_cuda *driver, struct md_swap_pool *pool,
				  struct md_error *err);
void md_swap_links_finish(struct md_swap_links *links);
/* The link of a context, made if it is new. The context is current then. Valid until the next call. */
enum md_status md_swap_links_get(struct md_swap_links *links, CUcontext context, struct md_swap_link **link,
				 struct md_error *err);
/*
 * Locks the pages of a block's chunk, which takes 36 ms a GB. The current context must be that of a link. If the pages
 * cannot be locked, copies are slow, and one warning says so.
 */
void md_swap_links_lock(struct md_swap_links *links, const struct md_swap_link *link, uint32_t block);
/* Unlocks all pages; they are locked again when they are needed. */
enum md_status md_swap_links_unlock(struct md_swap_links *links, struct md_error *err);

/* ---- copies, which run until md_swap_link_wait ---- */

enum md_swap_direction { MD_SWAP_TO_HOST, MD_SWAP_TO_DEVICE };

/* Blocks that follow each other in the pool and on the device, and within a chunk, are copied as one. */
struct md_swap_run {
	const struct md_swap_links *links;
	const struct md_swap_link *link;
	enum md_swap_direction direction;
	CUdeviceptr address;
	uint32_t block;
	uint64_t bytes; /* 0: no run has begun */
	unsigned turn;  /* the stream that is next */
};

enum md_status md_swap_run_add(struct md_swap_run *run, CUdeviceptr address, uint32_t block, uint64_t bytes,
			       struct md_error *err);
enum md_status md_swap_run_end(struct md_swap_run *run, struct md_error *err);
enum md_status md_swap_link_zero(const struct md_swap_links *links, const struct md_swap_link *link,
				 CUdeviceptr address, uint64_t bytes, struct md_error *err);
enum md_status md_swap_link_wait(const struct md_swap_links *links, const struct md_swap_link *link,
				 struct md_error *err);

#endif
