/* SPDX-License-Identifier: Apache-2.0 */
/* The list of chunks of memory that comes in over several links, and from other engines; for contents_share.c and contents_*.c beside it. */
#ifndef MD_SWAP_CONTENTS_SHARE_H
#define MD_SWAP_CONTENTS_SHARE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "swap/contents.h"
#include "swap/contents_stage.h"

#define MD_SHARE_NO_LENDER UINT8_MAX
#define MD_SHARE_TAKES 24u /* chunks that are on their way from lenders at a time (MEDUSA_SWAP_PEER_AHEAD) */

enum md_share_state {
	MD_SHARE_FREE,
	MD_SHARE_OWN,
	MD_SHARE_LENT,      /* the carrier or a lender copies it */
	MD_SHARE_STAGED,    /* it has come from a lender, and is being copied to its place */
	MD_SHARE_UNCHECKED, /* it has come from a lender, and was not compared yet */
	MD_SHARE_CHECKING,
	MD_SHARE_DONE,
};

struct md_share_chunk {
	size_t part, first, count; /* blocks of the contents */
	uint64_t bytes;            /* from the pool; the others are zeros */
	enum md_share_state state;
	unsigned by;    /* the link that has copied it, or has it: 0 for the own one, else 1 + that of the carrier */
	uint8_t lender; /* that has offered all its blocks */
	bool taken;     /* from that lender, not from the pool */
	bool pushed;    /* taken, and copied by the lender itself */
	bool staged;    /* taken, through a room */
	unsigned slot;  /* there */
	bool differs;   /* from what a lender has offered: it comes from the pool */
};

struct md_share_speed {
	uint64_t outstanding, done; /* bytes */
	uint64_t since;             /* ns; 0: nothing was asked for */
};

/* What lenders have offered. */
struct md_share_offers {
	struct md_map places; /* the first bytes of a hash: 1 + its index in the list */
	struct md_share_place {
		struct md_carry_offered block;
		uint8_t lender;
	} * list; /* owned */
	size_t count;
	unsigned lenders; /* that have offered something */
	bool in_time;     /* while chunks were free */
	bool refused;     /* a lender does not give a chunk */
	bool lost[MD_CARRY_LENDERS];
};

/* One look at what has come; all but `done` belongs to its thread until that is true. */
struct md_share_check {
	const struct md_cuda *driver;
	struct md_swap_link link;
	struct md_hash_range *hashes; /* owned; NULL: nothing is being checked */
	size_t count;
	pthread_t thread;
	bool runs; /* the thread */
	uint64_t began, ended;
	enum md_status status;
	struct md_error err;
	atomic_bool done;
};

struct md_swap_share {
	const struct md_swap_contents *contents;
	const struct md_swap_below *below;
	struct md_swap_links *links;
	struct md_swap_carry *carry;
	struct md_swap_report *report;
	struct md_share_chunk *chunks;   /* owned; by address, at first */
	size_t count, front, back, left; /* front, back: where to look for free chunks; left: not done */
	bool *lendable, *lent_part;      /* owned; of each part */
	struct {
		CUstream stream;
		size_t chunk;
		bool busy;
	} slots[MD_SWAP_STREAMS];
	uint64_t own_bytes, free_bytes;       /* own: done */
	uint64_t own_busy, began;             /* own_busy: submitted; ns */
	struct md_share_speed carries, takes; /* from the pool by the carrier, and from lenders */
	unsigned most_taken;                  /* chunks that may be on their way from lenders at a time */
	unsigned taken;                       /* chunks that are */
	unsigned lent, lent_takes;            /* chunks that the carrier has; of these, those from lenders */
	uint64_t unchecked;                   /* bytes */
	int device;
	size_t chunk_blocks; /* that a chunk has at most */
	struct md_share_stage stage;
	struct md_share_check check;
	struct md_share_offers offers;
	char gpu[MD_CARRY_GPU_BYTES];
	bool pushes; /* lenders may write into rooms (MEDUSA_SWAP_PEER_PUSH) */
	bool over;   /* no carrier any more */
	struct {     /* md_clock_ns(), 0: never; ns_check: of comparing hashes; ns_lend: of handles */
		uint64_t ready, offered, asked, came, came_last, own_last, ns_check, ns_lend;
	} times;
};

/* ---- contents_share.c ---- */

uint64_t md_swap_share_bytes(const struct md_swap_share *s, size_t first, size_t count);
/* Whether the block has bytes, and not zeros. */
static inline bool md_swap_share_is_copied(const struct md_swap_share *s, size_t block)
{
	return s->contents->blocks[block] < MD_SWAP_ZERO;
}
enum md_status md_swap_share_zero(struct md_swap_share *s, const struct md_share_chunk *chunk,
				  const struct md_swap_link *link, struct md_error *err);
/* Hands a part over to the carrier. False: the driver does not do that, and the own link copies it. *status: the carrier is lost. */
bool md_swap_share_lend_part(struct md_swap_share *s, size_t part, enum md_status *status, struct md_error *err);
/* The chunk is on its way, from the pool by the carrier, or from a lender (takes), which copies it itself (pushes). */
void md_swap_share_note_lent(struct md_swap_share *s, struct md_share_chunk *chunk, bool takes, bool pushes);
/* A chunk that was on its way has come, or (false) does not come. */
void md_swap_share_note_back(struct md_swap_share *s, struct md_share_chunk *chunk, bool came);
/* The carrier is given up, and what it may have spoiled is copied anew. why: NULL if carry->why says it already. */
enum md_status md_swap_share_give_up(struct md_swap_share *s, const char *why, bool liar, struct md_error *err);
/* Whoever had the chunk, it is to be copied anew. */
void md_swap_share_free(struct md_swap_share *s, struct md_share_chunk *chunk);
/* Bytes a nanosecond so far; 0: not known. */
double md_swap_share_own_speed(const struct md_swap_share *s);
double md_swap_share_speed(const struct md_share_speed *speed);

/* ---- contents_offers.c ---- */

/* An offer has come, with its file. Divides chunks that nobody has yet into those that the lender has and others. */
void md_swap_offers_add(struct md_swap_share *s, uint8_t lender, int file, uint64_t bytes);
/* Whether a lender that has the whole chunk is there. */
bool md_swap_offers_have(const struct md_swap_share *s, const struct md_share_chunk *chunk);
/* The next chunk that is to come from a lender: from this one (MD_SHARE_NO_LENDER: any that gives at once); s->count: none. */
size_t md_swap_offers_next(const struct md_swap_share *s, uint8_t lender);
/* One that the own link is done with before lenders are done with all of theirs, as far as that is known. */
size_t md_swap_offers_for_own(const struct md_swap_share *s);
/* offset: of the slot; blocks of a chunk that is staged lie there one behind the other. */
void md_swap_offers_fill(const struct md_swap_share *s, const struct md_share_chunk *chunk, uint64_t offset,
			 struct md_carry_message *take);
/* Where a lender that is there has the block; NULL: nowhere. */
const struct md_share_place *md_swap_offers_place(const struct md_swap_share *s, size_t block);
void md_swap_offers_report(const struct md_swap_share *s);
void md_swap_offers_finish(struct md_share_offers *offers);

/* ---- contents_lenders.c ---- */

/* Whether a chunk of the lender would be on its way at once: by itself or by the carrier. */
bool md_swap_share_gives(const struct md_swap_share *s, uint8_t lender);
/* Hears lenders, has those that have offered something write into rooms if they can, and gives up those that are silent. */
enum md_status md_swap_share_hear_lenders(struct md_swap_share *s, bool *moved, struct md_error *err);
/* Asks for chunks, as many as may be on their way. */
enum md_status md_swap_share_feed_takes(struct md_swap_share *s, struct md_error *err);
/* The lender gives nothing more. */
void md_swap_share_lose_lender(struct md_swap_share *s, uint8_t lender);
/* The same of all whose memory the carrier reads. */
void md_swap_share_lose_carried(struct md_swap_share *s);
void md_swap_share_note_stale(struct md_swap_share *s, struct md_carry_message *stale);
/* Waits for a message, at most so many microseconds. */
void md_swap_share_wait(const struct md_swap_share *s, unsigned us);

/* ---- contents_check.c ---- */

/* Compares what has come from lenders with the hashes, beside other work; what differs is to come from the pool. */
enum md_status md_swap_check_step(struct md_swap_share *s, bool *moved, struct md_error *err);
/* Whether memory is being read. */
bool md_swap_check_works(const struct md_swap_share *s);
/* Waits until no memory is being read; what was is compared. */
enum md_status md_swap_check_await(struct md_swap_share *s, struct md_error *err);

#endif
