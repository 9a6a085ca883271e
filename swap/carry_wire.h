/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between an engine whose memory comes in and the carrier, which copies a part of it over other GPUs' links, and
 * between each of both and lenders: engines on other GPUs that have the same blocks.
 */
#ifndef MD_SWAP_CARRY_WIRE_H
#define MD_SWAP_CARRY_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"
#include "swap/peer_counts.h"

#define MD_CARRY_LINKS 4u         /* neighbours at most */
#define MD_CARRY_CHUNK_BLOCKS 16u /* of a chunk at most: 32 MiB */
#define MD_CARRY_GPU_BYTES 48u    /* of a UUID as a text */
#define MD_CARRY_LENDERS 8u       /* at a time, at most */
#define MD_CARRY_TAKES_MOST 128u  /* chunks from lenders that an engine may ask for at a time */
#define MD_CARRY_ROOMS 32u        /* through which these come, at most */

/*
 * One message is one packet of a SOCK_SEQPACKET socket, of the size of the struct. The engine begins, and hands over parts
 * (physical memory) and chunks of them; the carrier says which links it has, and of each chunk when its copy has ended.
 */
enum md_carry_kind {
	/* from the engine */
	MD_CARRY_BEGIN = 1, /* gpus[0]: where the memory is */
	MD_CARRY_PART,      /* part, bytes; with a descriptor of the memory */
	MD_CARRY_CHUNK,     /* part, chunk, count of runs */
	MD_CARRY_END,       /* the carrier gives up all parts, and says so by the same kind, with times */
	/* from the carrier */
	MD_CARRY_READY,  /* count of links, gpus */
	MD_CARRY_DONE,   /* chunk, link, bytes */
	MD_CARRY_FAILED, /* text; nothing more comes */
	/* from a lender to the engine */
	MD_CARRY_OFFER, /* part: its process, bytes, gpus[0]; with a file of struct md_carry_offered */
	/* from the engine, to a lender that writes into rooms (MD_CARRY_ROOM), which says DONE or NOT, or to the carrier */
	MD_CARRY_TAKE, /* part, chunk, link, count of takes: as MD_CARRY_CHUNK, from memory of that lender */
	/*
	 * From the carrier, or a lender that has got a TAKE: chunk, which is not handed over. From a lender that was asked by
	 * the carrier: part. The carrier asks a lender for a part by MD_CARRY_PART, and gets the same kind with its memory, or
	 * this one. FAILED: the lender wants it all back, or has it back already if it writes into rooms.
	 */
	MD_CARRY_NOT,
	MD_CARRY_STALE, /* from the engine, passed on to the lender: link, count of takes: these blocks have other bytes */
	/*
	 * From the engine to a lender: part, bytes; with a descriptor of memory into which the lender is to write. The lender
	 * says the same kind, part, count: 1; or 0 and a text: why it cannot. END, from the engine: the lender gives all rooms
	 * up, and says so by the same kind, with times.
	 */
	MD_CARRY_ROOM,
	/* From medusa-swap run to the engine, and from the engine to the carrier: link, gpus[0]; with a lender's connection. */
	MD_CARRY_LENDER,
};

/* Blocks that follow each other in the pool and in the part. */
struct md_carry_run {
	uint64_t offset; /* bytes, in the part */
	uint32_t block;  /* of the pool */
	uint32_t count;
};

/* A block that a lender has; in the file that comes with an offer. */
struct md_carry_offered {
	struct md_hash hash;
	uint32_t part, block; /* of the lender; block: in the part */
};
#define MD_CARRY_OFFERED_MOST (1u << 20)

struct md_carry_take {
	uint64_t offset;      /* bytes, in the part of the engine */
	uint32_t part, block; /* of the lender */
};

struct md_carry_message {
	uint32_t magic, kind;
	uint32_t part, chunk;
	uint32_t count, link;
	uint64_t bytes;
	union {
		struct md_carry_run runs[MD_CARRY_CHUNK_BLOCKS];
		struct md_carry_take takes[MD_CARRY_CHUNK_BLOCKS];
		char gpus[MD_CARRY_LINKS][MD_CARRY_GPU_BYTES];
		char text[256];
		uint64_t times[MD_PEER_TIMES]; /* from MD_PEER_COPIER on */
	};
};

/* Both ends of a new connection. */
enum md_status md_carry_wire_pair(int ends[2], struct md_error *err);
/* Never waits. passed: a descriptor to send along, or -1. MD_ERR_BUSY: the peer does not read. */
enum md_status md_carry_wire_send(int fd, struct md_carry_message *message, int passed, struct md_error *err);
/*
 * Never waits; *there is false if no message has come. *passed is a descriptor that came along, or -1; the caller closes it.
 * Texts end. MD_ERR_TRUNCATED: the peer has closed; MD_ERR_CORRUPT: it has sent something else.
 */
enum md_status md_carry_wire_receive(int fd, struct md_carry_message *message, int *passed, bool *there,
				     struct md_error *err);

#endif
