/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the live graph writes memory that is compared. */
#ifndef MD_RESTORE_VERIFY_EFFECTS_H
#define MD_RESTORE_VERIFY_EFFECTS_H

#include "restore/restore.h"

struct md_verify_memory;

/* After the live replay was taken: whether it changed bound memory, or has outputs of its own, which are compared. */
bool md_verify_effects_seen(const struct md_verify_memory *memory, const struct md_restore *r,
			    const struct md_artifact_graph *stored);
/* Fills the output bindings before one more live replay, and finds whether the replay changed them. */
enum md_status md_verify_effects_fill(struct md_verify_memory *memory, uint8_t value, CUstream stream,
				      struct md_error *err);
enum md_status md_verify_effects_found(struct md_verify_memory *memory, uint8_t value, bool *seen,
				       struct md_error *err);

#endif
