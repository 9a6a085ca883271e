/* SPDX-License-Identifier: Apache-2.0 */
/* The neighbours of a GPU in the carrier's process: contexts, staging buffers, and copies from the pool through them. */
#ifndef MD_TOOLS_CARRIER_LANES_H
#define MD_TOOLS_CARRIER_LANES_H

#include <stdbool.h>

#include "driver/cuda_driver.h"
#include "swap/carry_wire.h"
#include "swap/device_link.h"

#define MD_LANE_BUFFERS 3u /* so that a chunk goes over PCIe while another one goes over NVLink */
#define MD_LANE_BUFFER_BYTES (MD_CARRY_CHUNK_BLOCKS * MD_SWAP_BLOCK)
#define MD_LANE_TAKES 8u /* streams for what lenders have, at most (MEDUSA_SWAP_PEER_STREAMS) */
#define MD_LANE_TAKES_USUAL 2u
/* Free memory that a neighbour must have beside its context. */
#define MD_LANE_ROOM ((uint64_t)256 << 20)

struct md_carrier_buffer {
	CUdeviceptr address;
	CUstream stream;
	bool busy;
	uint32_t chunk;
	uint64_t bytes; /* of the chunk */
};

struct md_carrier_lane {
	CUdevice device;
	CUcontext context;
	char gpu[MD_CARRY_GPU_BYTES];
	struct md_carrier_buffer buffers[MD_LANE_BUFFERS];
	CUstream takes[MD_LANE_TAKES]; /* for copies from memory of other engines */
};

/* Physical memory of the engine. */
struct md_carrier_part {
	bool there;
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address; /* 0: not mapped */
	uint64_t bytes;
};

struct md_lanes {
	struct md_swap_pool *pool;
	uint32_t blocks;              /* of the pool */
	struct md_swap_links locks;   /* page-locked parts of it */
	char gpu[MD_CARRY_GPU_BYTES]; /* whose neighbours; "": of none */
	struct md_carrier_lane list[MD_CARRY_LINKS];
	unsigned count;
	unsigned take_streams;
	struct md_carrier_part *parts; /* owned; by number */
	uint32_t part_count;
	uint64_t times[MD_PEER_TIMES]; /* of the engine that is served */
	char why[256];                 /* why the last neighbour that was left out was */
};

enum md_status md_lanes_init(struct md_lanes *lanes, struct md_swap_pool *pool, struct md_error *err);
/*
 * Opens the neighbours of a GPU, unless they are open. MD_ERR_UNSUPPORTED: none is of use, and why. Another error: the
 * process should end.
 */
enum md_status md_lanes_open(struct md_lanes *lanes, const char *gpu, struct md_error *err);
/* One step of locking the pool's pages. False: nothing is left to lock now. */
bool md_lanes_prepare(struct md_lanes *lanes);
/* One more neighbour, because an engine on it lends memory; unless there are enough, or it is of no use. */
void md_lanes_add(struct md_lanes *lanes, const char *gpu);
/* Whether a chunk of this many bytes lies within the part of the engine. */
bool md_lanes_covers(const struct md_lanes *lanes, uint32_t part, uint64_t offset, uint64_t bytes);
/* Maps memory of the engine for all neighbours. */
enum md_status md_lanes_part(struct md_lanes *lanes, uint32_t part, uint64_t bytes, int memory, struct md_error *err);
/* MD_ERR_CORRUPT: the chunk is not within its part and the pool. */
enum md_status md_lanes_check(const struct md_lanes *lanes, const struct md_carry_message *chunk, struct md_error *err);
/* Begins to copy a chunk that was checked. *begun is false if no buffer is free. */
enum md_status md_lanes_copy(struct md_lanes *lanes, const struct md_carry_message *chunk, bool *begun,
			     struct md_error *err);
/* A chunk whose copy has ended: its DONE message. *there is false if there is none. */
enum md_status md_lanes_done(struct md_lanes *lanes, struct md_carry_message *done, bool *there, struct md_error *err);
/* Waits for all copies, and unmaps and releases all parts. */
enum md_status md_lanes_drop(struct md_lanes *lanes, struct md_error *err);

#endif
