/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and sets of the engine in private memory of graphs. */
#ifndef MD_CAPTURE_RECORD_TOUCHED_H
#define MD_CAPTURE_RECORD_TOUCHED_H

#include "capture/capture.h"
#include "capture/record/graphs.h"

/* Called by hooks: one atomic load while no graph has unbound memory. call: static. Lock not held. */
void md_capture_touched(const char *call, uint64_t address, uint64_t size, bool writes);
void md_capture_touched_copy2d(const char *call, const CUDA_MEMCPY2D *copy);
void md_capture_touched_copy3d(const char *call, const CUDA_MEMCPY3D *copy);
void md_capture_touched_peer(const char *call, const CUDA_MEMCPY3D_PEER *copy);
void md_capture_touched_operation(const char *call, const CUDA_MEMCPY3D_BATCH_OP *op);
void md_capture_touched_watch(const uint64_t *candidates, size_t count) MD_CAPTURE_HELD;
void md_capture_touched_declared(struct md_capture_output output) MD_CAPTURE_HELD;
/* To the trace, what came after that moment: a graph may do there what no test has shown. */
void md_capture_touched_put(uint64_t from) MD_CAPTURE_HELD;

#endif
