/* SPDX-License-Identifier: Apache-2.0 */
/* Handles of memory that processes share, and where it is mapped: it counts as shared once it is both (restore/library_made.h). */
#ifndef MD_RESTORE_SHARED_HANDLES_H
#define MD_RESTORE_SHARED_HANDLES_H

#include "restore/restore.h"

/* caller: the return address of the hook, as in restore/library_made.h. No lock of ours is held. */
void md_restore_handle_made(CUmemGenericAllocationHandle handle);
void md_restore_handle_shared(const void *caller, CUmemGenericAllocationHandle handle,
			      bool own); /* exported, or imported */
/* Of the mapping that the address lies in; it may be another one than that which was mapped. */
void md_restore_handle_retained(CUmemGenericAllocationHandle handle, uint64_t address);
void md_restore_handle_mapped(const void *caller, uint64_t address, uint64_t size, CUmemGenericAllocationHandle handle);
void md_restore_handle_unmapped(uint64_t address, uint64_t size);
void md_restore_handles_renew(void);

#endif
