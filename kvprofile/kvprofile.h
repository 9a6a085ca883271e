/* SPDX-License-Identifier: Apache-2.0 */
/* KV capacity: measured once, offline, and answered from the artifact from then on. */
#ifndef MD_KVPROFILE_KVPROFILE_H
#define MD_KVPROFILE_KVPROFILE_H

#include <stdint.h>

#include "base/status.h"
#include "format/model.h"
#include "medusa/medusa.h"

/*
 * Device memory that the process holds, in bytes, as the allocation hooks see it. It shows the peak of an allocator that
 * gives memory back before the profiling forward ends. Lock-free, for hooks. Without hooks nothing is noted, and the
 * profile is computed only from free memory before and after.
 */
void md_kvprofile_note_alloc(uint64_t bytes);
void md_kvprofile_note_free(uint64_t bytes);

/* Both structs of a medusa_kv_capacity call: sizes known, unknown tails zero, values in range.
 * MD_ERR_INVALID if not. */
enum md_status md_kvprofile_check(const struct medusa_kv_request *request, const struct medusa_kv *out,
				  struct md_error *err);

/*
 * Runs request->profile once on the current context. The answer is
 *	total * utilization - (total - free before) - peak of the profiling forward, in whole blocks,
 * and no more than request->most says once the forward has run.
 * graph_bytes stays 0: graphs are captured later. MD_ERR_DRIVER_MEMORY, with the numbers, when not one block is left.
 */
enum md_status md_kvprofile_measure(const struct medusa_kv_request *request, struct md_kv *out, struct md_error *err);

/*
 * The stored answer, if it still holds: MD_ERR_MISMATCH with both values when key, block size or utilization differ,
 * when cache, peak and graphs together no longer fit, or when much less memory is free now than was then.
 * MD_ERR_NOT_FOUND when nothing is stored. (MEDUSA, section 6.)
 *
 * A shortfall of up to half of what the capture left over is no reason to measure. The answer itself stays as it is: an
 * engine that measured now could get another number of blocks, and then no graph would fit. Assumptions: the engine
 * takes no more beside cache and peak than in the capture, and its own limit does not depend on what others hold. With
 * MD_OK, err->message then has both numbers; it is empty if nothing is short.
 */
enum md_status md_kvprofile_answer(const struct md_kv *stored, const struct medusa_kv_request *request,
				   struct md_kv *out, struct md_error *err);

/* Fills what the caller's version of the struct has; ns is the time taken. */
void md_kvprofile_to_public(const struct md_kv *kv, int from_profile, uint64_t ns, struct medusa_kv *out);

#endif
