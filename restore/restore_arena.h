/* SPDX-License-Identifier: Apache-2.0 */
/* Private memory of the graphs, and the permanent contents in it. */
#ifndef MD_RESTORE_RESTORE_ARENA_H
#define MD_RESTORE_RESTORE_ARENA_H

#include "restore/restore.h"

enum md_status md_restore_arena_reserve(struct md_restore *r, struct md_error *err);
void md_restore_arena_free(struct md_restore *r);
enum md_status md_restore_contents_place(struct md_restore *r, struct md_restore_graph *graph, bool again,
					 struct md_error *err);

/* Relocates in place: the bytes are Medusa's copy, and relocating again gives the right words again. */
enum md_status md_restore_relocate(struct md_restore *r, uint8_t *data, const struct md_pointer *pointers,
				   uint32_t count, struct md_error *err);

#endif
