/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constant memory that several engines have once: it comes in from medusa-backbone, read-only, behind the addresses that
 * it had. Only whole allocations are merged, which are declared constant (constant.h) and have held the same each time
 * that they went out, at least twice. All others are this engine's own, and whatever is in doubt is.
 */
#ifndef MD_SWAP_MERGE_H
#define MD_SWAP_MERGE_H

#include <stdbool.h>

#include "base/hash.h"
#include "swap/swap_memory.h"

enum md_swap_merged {
	MD_SWAP_NOT_MERGED, /* not mapped */
	MD_SWAP_FILLS,      /* mapped; its bytes are to be copied there, and committed */
	MD_SWAP_READS,      /* mapped read-only, with its bytes */
};

/* The memory has gone out, and held this. Called each time. */
void md_swap_merge_note(const struct md_swap_range *range, const struct md_hash *held);
/* Maps it, if it may be merged and medusa-backbone has it or room for it. *hopeless: it need not be asked again soon. */
enum md_swap_merged md_swap_merge_map(const struct md_swap_range *range, bool *hopeless);
/* From now on others may have what was mapped to be filled. Does nothing for other memory. */
void md_swap_merge_commit(const struct md_swap_range *range);

#endif
