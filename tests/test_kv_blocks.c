/* SPDX-License-Identifier: Apache-2.0 */
/* The reference engine's KV blocks: given out once, used by several, found again by their contents. */
#include <criterion/criterion.h>

#include "models/llama/serve/kv_blocks.c"

#define SIZE 4

static struct kv_blocks blocks;

static void open_blocks(void)
{
	cr_assert(kv_blocks_init(&blocks, 5, SIZE, 42));
}

static void close_blocks(void)
{
	kv_blocks_finish(&blocks);
}

TestSuite(kv_blocks, .init = open_blocks, .fini = close_blocks);

/* A block of tokens first, first + 1 ..., which has a name and is used once. */
static int named(int32_t first, uint64_t before, uint64_t *name)
{
	int32_t tokens[SIZE] = {first, first + 1, first + 2, first + 3};
	int block = kv_blocks_take(&blocks);
	*name = kv_blocks_name(&blocks, before, tokens);
	kv_blocks_give_name(&blocks, block, *name, before, tokens);
	return block;
}

static int find(int32_t first, uint64_t before)
{
	int32_t tokens[SIZE] = {first, first + 1, first + 2, first + 3};
	return kv_blocks_find(&blocks, kv_blocks_name(&blocks, before, tokens), before, tokens);
}

Test(kv_blocks, gives_each_block_once_and_never_the_scratch_block)
{
	bool seen[5] = {false};
	for (int i = 0; i < 4; i++) {
		int block = kv_blocks_take(&blocks);
		cr_assert(block > 0 && block < 5 && !seen[block], "block %d", block);
		seen[block] = true;
	}
	cr_assert_eq(kv_blocks_take(&blocks), -1, "there is a fifth block");
	cr_assert_eq(blocks.free_count, 0);
	kv_blocks_leave(&blocks, 3);
	cr_assert_eq(kv_blocks_take(&blocks), 3);
}

Test(kv_blocks, finds_contents_that_were_left_until_the_block_is_needed)
{
	uint64_t name;
	int block = named(10, 0, &name);
	cr_assert_eq(find(10, 0), block, "while it is used");
	kv_blocks_leave(&blocks, block);
	kv_blocks_leave(&blocks, block);
	cr_assert_eq(blocks.free_count, 4);
	cr_assert_eq(find(10, 0), block, "after it was left");
	cr_assert_eq(blocks.free_count, 3, "a block that was found is free");
	kv_blocks_leave(&blocks, block);
	for (int i = 0; i < 4; i++)
		kv_blocks_take(&blocks);
	cr_assert_eq(find(10, 0), -1, "its contents are gone");
}

Test(kv_blocks, takes_those_first_that_were_left_first)
{
	uint64_t name;
	int first = named(10, 0, &name), second = named(20, 0, &name);
	kv_blocks_leave(&blocks, first);
	kv_blocks_leave(&blocks, second);
	for (int i = 0; i < 3; i++) /* two without contents, then the one that was left first */
		kv_blocks_take(&blocks);
	cr_assert_eq(find(10, 0), -1);
	cr_assert_eq(find(20, 0), second);
}

Test(kv_blocks, same_tokens_behind_others_are_another_block)
{
	uint64_t one, two, name;
	named(10, 0, &one);
	named(20, 0, &two);
	int block = named(30, one, &name);
	cr_assert_eq(find(30, one), block);
	cr_assert_eq(find(30, two), -1);
	cr_assert_eq(find(30, 0), -1);
}

Test(kv_blocks, a_name_alone_is_not_believed)
{
	uint64_t name;
	int32_t other[SIZE] = {1, 1, 1, 1};
	named(10, 0, &name);
	cr_assert_eq(kv_blocks_find(&blocks, name, 0, other), -1);
}

Test(kv_blocks, equal_contents_have_one_name)
{
	uint64_t name;
	int first = named(10, 0, &name), second = named(10, 0, &name);
	cr_assert_neq(first, second);
	cr_assert_eq(find(10, 0), first);
	kv_blocks_leave(&blocks, second);
	cr_assert_eq(find(10, 0), first);
}

Test(kv_blocks, a_prefix_belongs_to_its_adapter)
{
	uint64_t base, first, second;
	int block = named(1, 0, &base), own = named(1, kv_blocks_root(&blocks, 1), &first);
	int32_t tokens[SIZE] = {1, 2, 3, 4};
	uint64_t other = kv_blocks_root(&blocks, 2);
	cr_assert_neq(base, first, "the same tokens, another adapter");
	second = kv_blocks_name(&blocks, other, tokens);
	cr_assert_neq(first, second, "the same name of an adapter, other weights");
	cr_assert_eq(kv_blocks_find(&blocks, base, 0, tokens), block);
	cr_assert_eq(kv_blocks_find(&blocks, first, kv_blocks_root(&blocks, 1), tokens), own);
	cr_assert_eq(kv_blocks_find(&blocks, second, other, tokens), -1);
	cr_assert_eq(kv_blocks_find(&blocks, first, other, tokens), -1);
}
