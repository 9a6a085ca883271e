/* SPDX-License-Identifier: Apache-2.0 */
/* Binding by sequence. */
#ifndef MD_RESTORE_RESTORE_SEQUENCE_H
#define MD_RESTORE_RESTORE_SEQUENCE_H

#include "restore/restore.h"

/* From hooks: an allocation of the engine's that kernels are handed by address; address ranges that go. */
void md_restore_sequence_alloc(enum md_alloc_family family, uint64_t address, uint64_t size);
void md_restore_sequence_free(uint64_t address, uint64_t size);
/* +1, -1: around a profiling forward, which a restore mostly leaves out. */
void md_restore_sequence_pause(int change);
/* When the engine asks for a graph: binds what the artifact knows by sequence, or refuses everything. No lock held. */
void md_restore_sequence_bind(struct md_restore *r, uint64_t deadline_ns);

#endif
