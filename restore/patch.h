/* SPDX-License-Identifier: Apache-2.0 */
/* Writes this process's addresses into parameter blocks. */
#ifndef MD_RESTORE_PATCH_H
#define MD_RESTORE_PATCH_H

#include "restore/restore.h"

/* Replaces the address in a tensor map, whose 128 bytes may lie anywhere. */
enum md_status md_restore_patch_tensor_map(uint8_t *at, uint64_t address, struct md_error *err);
enum md_status md_restore_patch(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err);
/* Fills the noise bytes with zero (seed 0) or with pseudo-random bytes. */
void md_restore_patch_noise(struct md_restore_graph *graph, uint64_t seed);

#endif
