/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prompt of a request as a chain of hashes, each of which stands for all of the prompt up to the end of its block: two requests have so
 * many hashes in common as their prompts have blocks. Nothing of the body is copied but a block at a time, and at most
 * MD_PREFIX_BYTES of it are looked at.
 */
#ifndef MD_WORKER_CLUSTER_PREFIX_TEXT_H
#define MD_WORKER_CLUSTER_PREFIX_TEXT_H

#include "worker/core/body_scan.h"

#define MD_PREFIX_BLOCKS 64u
#define MD_PREFIX_BLOCK 1024u /* bytes of the first 16 blocks; those of each 16 further ones are twice as long */
#define MD_PREFIX_BYTES (240u << 10)
#define MD_PREFIX_KEY_BYTES 16u

/* What caches that have nothing in common differ by. */
struct md_prefix_seed {
	const unsigned char *key; /* MD_PREFIX_KEY_BYTES, of this daemon alone */
	const char *model;        /* or the adapter */
	const char *client;       /* whose prompts are nobody else's; "": all clients are one */
};

struct md_prefix_chain {
	uint64_t blocks[MD_PREFIX_BLOCKS];
	uint32_t count;
	/* Of a conversation up to its first message of a user, as that stands in the body, or of the first block; the same on all nodes. */
	uint64_t first;
	uint64_t bytes; /* of the prompt, as the blocks count them; beyond those, as they stand in the body */
	uint64_t begun,
	    told; /* of them, up to the end of that message, and before the last one; told: 0: they are one */
};

/* Whether requests at this path have prompts whose prefixes engines keep. */
bool md_prefix_text_has_prompt(const char *path);
/*
 * path: one of those; text: a body that md_body_scan has taken. False: there is no block, or the request wants no cache, or its
 * prompt begins with what an engine has and the body does not say.
 */
bool md_prefix_text_read(const char *path, const char *text, const struct md_body_object *object,
			 const struct md_prefix_seed *seed, struct md_prefix_chain *chain);
/* Bytes up to the end of so many blocks. */
uint64_t md_prefix_text_bytes(uint32_t blocks);

#endif
