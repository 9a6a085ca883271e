/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between an engine whose memory comes in and the carrier, which copies a part of it over other GPUs' links. */
#ifndef MD_SWAP_CARRY_WIRE_H
#define MD_SWAP_CARRY_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define MD_CARRY_LINKS 4u         /* neighbours at most */
#define MD_CARRY_CHUNK_BLOCKS 16u /* of a chunk at most: 32 MiB */
#define MD_CARRY_GPU_BYTES 48u    /* of a UUID as a text */

/*
 * One message is one packet of a SOCK_SEQPACKET socket, of the size of the struct. The engine begins, and hands over parts
 * (physical memory) and chunks of them; the carrier says which links it has, and of each chunk when its copy has ended.
 */
enum md_carry_kind {
	/* from the engine */
	MD_CARRY_BEGIN = 1, /* gpus[0]: where the memory is */
	MD_CARRY_PART,      /* part, bytes; with a descriptor of the memory */
	MD_CARRY_CHUNK,     /* part, chunk, count of runs */
	MD_CARRY_END,       /* the carrier gives up all parts, and says so by the same kind */
	/* from the carrier */
	MD_CARRY_READY,  /* count of links, gpus */
	MD_CARRY_DONE,   /* chunk, link, bytes */
	MD_CARRY_FAILED, /* text; nothing more comes */
};

/* Blocks that follow each other in the pool and in the part. */
struct md_carry_run {
	uint64_t offset; /* bytes, in the part */
	uint32_t block;  /* of the pool */
	uint32_t count;
};

struct md_carry_message {
	uint32_t magic, kind;
	uint32_t part, chunk;
	uint32_t count, link;
	uint64_t bytes;
	union {
		struct md_carry_run runs[MD_CARRY_CHUNK_BLOCKS];
		char gpus[MD_CARRY_LINKS][MD_CARRY_GPU_BYTES];
		char text[256];
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
