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

/* The memory goes out, and holds this; NULL: that is not known. Called each time. */
void md_swap_merge_note(const struct md_swap_range *range, const struct md_hash *held);
/*
 * Maps it, if it may be merged and medusa-backbone has it or room for it. holds: what is to come in; it is not merged if
 * that is not what it went out with. *hopeless: medusa-backbone need not be asked again soon.
 */
enum md_swap_merged md_swap_merge_map(const struct md_swap_range *range, const struct md_hash *holds, bool *hopeless);
/* From now on others may have what was mapped to be filled. Nothing is done for other memory. False: the broker does not answer. */
bool md_swap_merge_commit(const struct md_swap_range *range);

/*
 * Called before something is copied or set there, in the call that does it. If part of it is such memory of others, it becomes
 * this engine's own first (unmerge.h); CUDA_ERROR_NOT_PERMITTED if that cannot be now, and then it is so from the next
 * in on. Takes the lock.
 */
CUresult md_swap_merge_store(uint64_t address, uint64_t bytes);
/* The engine has said that it writes there: such memory of others becomes its own, where that can be now. */
void md_swap_merge_bound(uint64_t address, uint64_t bytes);

#endif
