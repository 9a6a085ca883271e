/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between devices that do not reach each other's memory (no cuCtxEnablePeerAccess). The driver makes them for memory
 * of cuMemAlloc, whichever context is current. Ours is mapped memory, for which it wants to be told the context of each end.
 */
#ifndef MD_SWAP_BETWEEN_H
#define MD_SWAP_BETWEEN_H

#include <stdatomic.h>

#include "driver/cuda_driver.h"

/* This process has had contexts on more than one device; until then no copy can be such a one. */
extern atomic_bool md_swap_several_devices;

/*
 * Before a node of a graph gets this copy: lets the device of the context (NULL: the current one) reach both ends, as their
 * mappings do from then on. CUDA_ERROR_NOT_SUPPORTED, with a warning: the devices do not reach each other.
 */
CUresult md_swap_between_node(const CUDA_MEMCPY3D *copy, CUcontext context);

/* The functions themselves are declared in layer.h: md_swap_between_SYMBOL makes the driver's call, or one in its place. */

#endif
