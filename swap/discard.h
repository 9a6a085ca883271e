/* SPDX-License-Identifier: Apache-2.0 */
/* Memory whose contents an engine does not need until it writes there again. */
#ifndef MD_SWAP_DISCARD_H
#define MD_SWAP_DISCARD_H

#include "swap/physical.h"

/*
 * The contents may be lost until the engine says otherwise, or allocates this memory anew. MD_ERR_NO_MEMORY: nothing has
 * changed.
 */
enum md_status md_swap_discard_say(uint64_t address, uint64_t bytes, bool discardable, struct md_error *err);
/* Forgets statements about memory that has just been allocated. */
void md_swap_discard_forget(uint64_t address, uint64_t bytes) MD_REQUIRES(md_swap_memory_lock);
/* Whether all of these bytes may be lost. Bytes behind the end of an allocation may. Takes the lock. */
bool md_swap_discard_covers(uint64_t address, uint64_t bytes);

#endif
