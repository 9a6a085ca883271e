/* SPDX-License-Identifier: Apache-2.0 */
/* NUMA nodes: how many the machine has, on which one a device is, and where pages of a mapping are to lie. */
#ifndef MD_SWAP_NUMA_H
#define MD_SWAP_NUMA_H

#include <stdint.h>

#include "driver/cuda_driver.h"

#define MD_SWAP_NODES 64u /* that are told apart; machines with more are left alone */

/* sys: where /sys is; tests have one of their own. */

/* Nodes that are online; 1 where that is not known, and on machines with nodes that are not told apart. */
unsigned md_swap_numa_nodes(const char *sys);
/* The node of a PCI device; -1: the system does not know one. */
int md_swap_numa_node_of(const char *sys, unsigned domain, unsigned bus, unsigned device);
/* The node of a device of CUDA. */
int md_swap_numa_of_device(const char *sys, const struct md_cuda *driver, CUdevice device);
/*
 * Where pages of these bytes are to lie that get memory from now on: on the node, or on several in turn. 0, or the errno of
 * mbind(2).
 */
int md_swap_numa_bind(void *at, uint64_t bytes, uint64_t nodes);

#endif
