/* SPDX-License-Identifier: Apache-2.0 */
/* Which other GPUs of this machine reach a GPU's memory over a link of their own, as the driver and NVML say. */
#ifndef MD_DRIVER_NEIGHBOURS_H
#define MD_DRIVER_NEIGHBOURS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/cuda_driver.h"

#define MD_NEIGHBOURS_MOST 64u

struct md_neighbour {
	CUdevice device;
	char gpu[48];      /* its UUID, as nvidia-smi prints it */
	bool beside;       /* it shares a PCIe switch with the GPU, and so perhaps the link to the host */
	const char *lacks; /* why it is of no use; NULL: it is */
};

/*
 * Lists all other GPUs that this process sees: first those of use, and among them first those that share no PCIe switch
 * with the GPU. *of is the number of the GPU itself. A neighbour is of use if it may access the GPU's memory
 * (cuDeviceGetP2PAttribute), has NVLink to it, and `room` bytes are free on it; the last two where NVML (libnvidia-ml.so.1) is
 * there to say so. The driver must be initialized. MD_ERR_NOT_FOUND: this process does not see the GPU.
 */
enum md_status md_neighbours_find(const char *gpu, uint64_t room, struct md_neighbour list[MD_NEIGHBOURS_MOST],
				  size_t *count, CUdevice *of, struct md_error *err);

#endif
