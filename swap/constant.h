/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the engine has declared constant (MEDUSA_BIND_CONSTANT). What is in doubt is not constant. */
#ifndef MD_SWAP_CONSTANT_H
#define MD_SWAP_CONSTANT_H

#include "swap/physical.h"

/*
 * medusa_bind: the memory of this name is constant, or is written. Where the name was bound before, it
 * is not constant by this name any more.
 * A byte that one name has as constant and another one as written is not constant. Takes the lock.
 */
void md_swap_constant_bind(const char *name, uint64_t address, uint64_t bytes, bool constant);
/* Nothing is known of this memory any more: it was freed, unmapped, or allocated anew. */
void md_swap_constant_forget(uint64_t address, uint64_t bytes) MD_REQUIRES(md_swap_memory_lock);
/*
 * Whether each byte is constant at each address that the memory has; behind the end of an allocation there is nothing that
 * could be written. Memory that holds small allocations of several owners never is, nor is memory that must stay or that no
 * other process can be given.
 */
bool md_swap_constant_is(const struct md_swap_physical *physical) MD_REQUIRES(md_swap_memory_lock);

#endif
