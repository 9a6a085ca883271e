/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A collective library in small, for up to eight ranks on one host: with memory and an event of its own that its graphs and
 * its live calls both use, and with memory that the other ranks write to. Environment: COLLECTIVE_MAPPED (its memory is mapped),
 * COLLECTIVE_PEERS
 * (ranks share memory as engines do it by themselves: signals and a buffer, two allocations, or, with COLLECTIVE_MAPPED, one mapping; a table has their addresses;
 * "swapped": the buffer is exported first; "backwards": the last rank's memory is
 * opened first),
 * COLLECTIVE_LARGE (the memory that others write to is larger), COLLECTIVE_EXTRA (one more allocation comes first),
 * COLLECTIVE_MULTICAST (its memory is bound to a multicast object).
 */
#ifndef TESTS_COLLECTIVE_COLLECTIVE_H
#define TESTS_COLLECTIVE_COLLECTIVE_H

#include <cuda.h>

struct collective;

/* Waits for the other ranks. image: of collective_kernels. NULL: it failed, and says why. */
struct collective *collective_open(const char *socket_path, int rank, int ranks, const void *image);
/* Adds what all ranks have, in place; n floats, at most COLLECTIVE_MOST. All ranks make the same calls. */
CUresult collective_sum(struct collective *with, CUdeviceptr data, int n, CUstream stream);
/* Memory of the library that kernels of the engine may be handed, as those of symmetric memory are. */
CUdeviceptr collective_memory(const struct collective *with);
size_t collective_memory_bytes(void);
/* What that rank's kernel reads, and others write. */
CUdeviceptr collective_inbox(const struct collective *with, int rank);
void collective_close(struct collective *with);

#endif
