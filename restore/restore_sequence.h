/* SPDX-License-Identifier: Apache-2.0 */
/* Binding by sequence. */
#ifndef MD_RESTORE_RESTORE_SEQUENCE_H
#define MD_RESTORE_RESTORE_SEQUENCE_H

#include "restore/restore.h"

/* Called by hooks: the engine allocates memory that kernels get by address; address ranges are freed. */
void md_restore_sequence_alloc(enum md_alloc_family family, uint64_t address, uint64_t size);
void md_restore_sequence_free(uint64_t address, uint64_t size);
/* +1, -1: around a profiling forward, which a restore mostly leaves out. */
void md_restore_sequence_pause(int change);
/* Called in a child: makes the lock anew. */
void md_restore_sequence_renew(void);
/* The engine asks for a graph: makes the bindings by sequence, or refuses everything. No lock held. */
void md_restore_sequence_bind(struct md_restore *r, uint64_t deadline_ns);

#endif
