/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices may reach allocations of other devices. The driver grants that for its allocations, and we for ours. */
#ifndef MD_SWAP_PEERS_H
#define MD_SWAP_PEERS_H

#include "swap/physical.h"

#define MD_SWAP_DEVICES_MOST 64

/* The rights to memory on a device that is mapped for an allocation; the number of them, at most the devices. */
size_t md_swap_peers_of(CUdevice device, CUmemAccessDesc access[MD_SWAP_DEVICES_MOST]) MD_REQUIRES(md_swap_memory_lock);
/* From now on device `from` may reach all allocations on device `to`, including existing ones. */
CUresult md_swap_peers_allow(CUdevice to, CUdevice from);

#endif
