/* SPDX-License-Identifier: Apache-2.0 */
/* Memory by address: the table of everything that is allocated, imported or mapped. */
#ifndef HOSTCUDA_MEMORY_H
#define HOSTCUDA_MEMORY_H

#include "hostcuda/device_state.h"

CUresult hc_memory_add(struct hc_memory *memory);               /* takes ownership of memory on success */
struct hc_memory *hc_memory_at(uint64_t address) HC_STATE_HELD; /* NULL when no live memory holds it */
void hc_memory_forget(struct hc_memory *memory);                /* removes it from the table, and frees the entry */
/* The memory that an IPC handle was opened as in the context. */
struct hc_memory *hc_memory_opened(uint64_t inode, const struct hc_context *context) HC_STATE_HELD;
/*
 * The mapping of physical memory (NULL: of any) that follows another one in the table; after NULL: the first. NULL: none.
 */
struct hc_memory *hc_memory_mapping(const struct hc_physical *physical, const struct hc_memory *after) HC_STATE_HELD;
bool hc_memory_any(enum hc_memory_kind kind) HC_STATE_HELD;
void hc_memory_release(struct hc_memory *memory) HC_STATE_HELD; /* releases memory of any kind except mapped memory */
/* Device memory for an allocation node; it exists as long as the context. */
CUresult hc_memory_of_graph(struct hc_context *context, size_t size, uint64_t *address);
bool hc_memory_covers(uint64_t address, size_t bytes); /* live memory covers the whole range; takes the state lock */
bool hc_memory_is_pinned(uint64_t address);            /* host memory that the device may read later */
void hc_memory_drop_context(struct hc_context *context);

#endif
