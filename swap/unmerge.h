/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that an engine has in common with others becomes its own again, at its addresses, while the engine runs. */
#ifndef MD_SWAP_UNMERGE_H
#define MD_SWAP_UNMERGE_H

#include <stdint.h>

#include "base/status.h"

/*
 * Asks for room for memory of the engine's own in the place of all that is read-only and touches these addresses, and waits for it:
 * where it was given away, others have to go first. Any error: there is none for some of it now.
 */
enum md_status md_swap_unmerge_ask(uint64_t address, uint64_t bytes, struct md_error *err);
/*
 * All memory that is read-only and touches these addresses (merge.h): the gate is closed, so that nothing reads it, and each
 * allocation gets memory of its own with what it holds, once there is room for it (md_swap_unmerge_ask). It is never merged again. MD_ERR_BUSY, MD_ERR_TIMEOUT: not now (see
 * md_swap_gate_close_briefly); MD_ERR_DRIVER_MEMORY: the device has no room. What could not be done stays as it was.
 */
enum md_status md_swap_unmerge(uint64_t address, uint64_t bytes, struct md_error *err);

#endif
