/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the device can read and that stays when the rest goes: it has not been searched for addresses. */
#ifndef MD_SWAP_ELSEWHERE_H
#define MD_SWAP_ELSEWHERE_H

#include <stdbool.h>
#include <stdint.h>

#include "swap/leads.h"
#include "swap/physical.h"

/* Page-locked host memory, managed memory, and device memory that stays. */
bool md_swap_elsewhere(uint64_t start, uint64_t end) MD_REQUIRES(md_swap_memory_lock);
void md_swap_elsewhere_regions(struct md_swap_leads *leads) MD_REQUIRES(md_swap_memory_lock);

#endif
