/* SPDX-License-Identifier: Apache-2.0 */
/* Which blocks of the paged KV cache are used by how many sequences, and which whole blocks can be used again. */
#ifndef LLAMA_SERVE_KV_BLOCKS_H
#define LLAMA_SERVE_KV_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"

struct kv_block;

/*
 * Block 0 is scratch and is never given out. A block that nobody uses any more keeps its contents, and its name if it
 * has one, until no other block is free: those that were left first are taken first.
 */
struct kv_blocks {
	struct kv_block *blocks;
	int32_t *tokens; /* [count][size]: of blocks with a name */
	int count, size; /* size: positions of a block */
	int free_count;
	struct md_map names; /* name -> block */
	uint64_t secret;     /* names can't be chosen by who writes prompts */
};

bool kv_blocks_init(struct kv_blocks *blocks, int count, int size, uint64_t secret); /* false: out of memory */
void kv_blocks_finish(struct kv_blocks *blocks);                                     /* also on a zeroed one */

int kv_blocks_take(struct kv_blocks *blocks); /* a block without contents, used once; -1: none is free */
void kv_blocks_leave(struct kv_blocks *blocks, int block);

/* What stands before the first block of sequences whose keys and values depend on a version of an adapter. */
uint64_t kv_blocks_root(const struct kv_blocks *blocks, uint64_t version);
/*
 * The name of a block that holds these `size` tokens behind the block of the name `before` (0 or kv_blocks_root: at the
 * beginning).
 */
uint64_t kv_blocks_name(const struct kv_blocks *blocks, uint64_t before, const int32_t *tokens);
/* All positions of the block are computed: others may use it. */
void kv_blocks_give_name(struct kv_blocks *blocks, int block, uint64_t name, uint64_t before, const int32_t *tokens);
/* The block of this name with these very tokens, used once more; -1: there is none. */
int kv_blocks_find(struct kv_blocks *blocks, uint64_t name, uint64_t before, const int32_t *tokens);

#endif
