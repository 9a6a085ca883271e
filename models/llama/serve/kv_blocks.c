/* SPDX-License-Identifier: Apache-2.0 */
/* Free blocks are a list in the order in which they were left; named ones stay in the map while they are in it. */
#include "models/llama/serve/kv_blocks.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct kv_block {
	uint64_t name, before; /* name 0: none */
	uint32_t users;
	int older, newer; /* in the list of free ones, which begins and ends at block 0 */
};

static void put_last(struct kv_blocks *blocks, int block)
{
	struct kv_block *all = blocks->blocks;
	all[block].older = all[0].older;
	all[block].newer = 0;
	all[all[0].older].newer = block;
	all[0].older = block;
	blocks->free_count++;
}

static void take_out(struct kv_blocks *blocks, int block)
{
	struct kv_block *all = blocks->blocks;
	all[all[block].older].newer = all[block].newer;
	all[all[block].newer].older = all[block].older;
	blocks->free_count--;
}

bool kv_blocks_init(struct kv_blocks *blocks, int count, int size, uint64_t secret)
{
	*blocks = (struct kv_blocks){.count = count, .size = size, .secret = secret};
	md_map_init(&blocks->names);
	blocks->blocks = calloc((size_t)count, sizeof(*blocks->blocks));
	blocks->tokens = malloc((size_t)count * (size_t)size * sizeof(*blocks->tokens));
	if (!blocks->blocks || !blocks->tokens) {
		kv_blocks_finish(blocks);
		return false;
	}
	for (int block = 1; block < count; block++)
		put_last(blocks, block);
	return true;
}

void kv_blocks_finish(struct kv_blocks *blocks)
{
	free(blocks->blocks);
	free(blocks->tokens);
	md_map_finish(&blocks->names);
	memset(blocks, 0, sizeof(*blocks));
}

static void forget(struct kv_blocks *blocks, int block)
{
	if (blocks->blocks[block].name)
		md_map_remove(&blocks->names, blocks->blocks[block].name, NULL);
	blocks->blocks[block].name = 0;
}

int kv_blocks_take(struct kv_blocks *blocks)
{
	int block = blocks->blocks[0].newer;
	if (!block)
		return -1;
	take_out(blocks, block);
	forget(blocks, block);
	blocks->blocks[block].users = 1;
	return block;
}

void kv_blocks_leave(struct kv_blocks *blocks, int block)
{
	assert(block > 0 && blocks->blocks[block].users);
	if (!--blocks->blocks[block].users)
		put_last(blocks, block);
}

uint64_t kv_blocks_root(const struct kv_blocks *blocks, uint64_t version)
{
	uint64_t name = XXH3_64bits_withSeed(&version, sizeof(version), ~blocks->secret);
	return name ? name : 1;
}

uint64_t kv_blocks_name(const struct kv_blocks *blocks, uint64_t before, const int32_t *tokens)
{
	uint64_t name = XXH3_64bits_withSeed(tokens, (size_t)blocks->size * sizeof(*tokens),
					     blocks->secret ^ XXH3_64bits(&before, sizeof(before)));
	return name ? name : 1;
}

static int32_t *tokens_of(const struct kv_blocks *blocks, int block)
{
	return blocks->tokens + (size_t)block * (size_t)blocks->size;
}

void kv_blocks_give_name(struct kv_blocks *blocks, int block, uint64_t name, uint64_t before, const int32_t *tokens)
{
	struct kv_block *own = &blocks->blocks[block];
	/* the first one of several with the same contents has the name; without memory for it nothing is lost but a reuse */
	if (own->name || md_map_get(&blocks->names, name, NULL) || !md_map_put(&blocks->names, name, (uint64_t)block))
		return;
	own->name = name;
	own->before = before;
	memcpy(tokens_of(blocks, block), tokens, (size_t)blocks->size * sizeof(*tokens));
}

int kv_blocks_find(struct kv_blocks *blocks, uint64_t name, uint64_t before, const int32_t *tokens)
{
	uint64_t found;
	if (!md_map_get(&blocks->names, name, &found))
		return -1;
	struct kv_block *own = &blocks->blocks[found];
	if (own->before != before ||
	    memcmp(tokens_of(blocks, (int)found), tokens, (size_t)blocks->size * sizeof(*tokens)) != 0)
		return -1;
	if (!own->users++)
		take_out(blocks, (int)found);
	return (int)found;
}
