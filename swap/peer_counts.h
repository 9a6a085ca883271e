/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of an `in` from engines on other GPUs goes: what the engine, lenders and the carrier have counted of it. */
#ifndef MD_SWAP_PEER_COUNTS_H
#define MD_SWAP_PEER_COUNTS_H

enum md_swap_peer_time {
	/* ns since the copying began; 0: never */
	MD_PEER_READY, /* the carrier was */
	MD_PEER_OFFERED,
	MD_PEER_ASKED, /* for the first chunk */
	MD_PEER_CAME,  /* it came */
	MD_PEER_CAME_LAST,
	MD_PEER_OWN_LAST, /* the last chunk by the own link */
	/* ns that the engine spent */
	MD_PEER_CHECK,  /* on comparing hashes; beside the other work */
	MD_PEER_LEND,   /* on handles of its memory for lenders and the carrier */
	MD_PEER_PUSHED, /* bytes that lenders have copied themselves; the carrier has copied the others */
	/* from here on of who copies, lenders and the carrier together: numbers of parts, and ns */
	MD_PEER_COPIER,
	MD_PEER_OWN_PARTS = MD_PEER_COPIER, /* of the engine that comes in */
	MD_PEER_OWN_IMPORT,
	MD_PEER_OWN_MAP,
	MD_PEER_OWN_ACCESS,
	MD_PEER_LENT_PARTS,  /* of lenders */
	MD_PEER_LENT_IMPORT, /* by the carrier; a lender has its memory already */
	MD_PEER_LENT_MAP,
	MD_PEER_LENT_ACCESS,
	MD_PEER_LENT_GROUPS, /* number: parts get access in groups */
	MD_PEER_LENT_BESIDE, /* of importing, mapping and access: copies were under way meanwhile */
	MD_PEER_ANSWER,      /* of lenders, from the question on; several at a time */
	MD_PEER_COPIES,      /* number */
	MD_PEER_ISSUE,       /* calls that begin copies */
	MD_PEER_IDLE,        /* chunks were asked for, and none was being copied */
	MD_PEER_UNMAPPED,    /* of that: one of them waited for mapping, and for nothing else */
	MD_PEER_BACK,        /* giving the memory back, after the copying */
	MD_PEER_TIMES
};

/* Names of these in answers. */
extern const char *const md_swap_peer_time_names[MD_PEER_TIMES];

#endif
