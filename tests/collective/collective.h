/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A collective library in small, for two ranks on one host: with memory and an event of its own that its graphs and its
 * live calls both use, and with memory that the other rank writes to. Environment: COLLECTIVE_MAPPED (its memory is mapped),
 * COLLECTIVE_LARGE (the other rank's memory is larger), COLLECTIVE_EXTRA (one more allocation comes first).
 */
#ifndef TESTS_COLLECTIVE_COLLECTIVE_H
#define TESTS_COLLECTIVE_COLLECTIVE_H

#include <cuda.h>

struct collective;

/* Waits for the other rank, which is 0 or 1 as well. image: of collective_kernels. NULL: it failed, and says why. */
struct collective *collective_open(const char *socket_path, int rank, const void *image);
/* Adds what both ranks have, in place; n floats, at most COLLECTIVE_MOST. Both ranks make the same calls. */
CUresult collective_sum(struct collective *with, CUdeviceptr data, int n, CUstream stream);
/* Memory of the library that kernels of the engine may be handed, as those of symmetric memory are. */
CUdeviceptr collective_memory(const struct collective *with);
void collective_close(struct collective *with);

#endif
