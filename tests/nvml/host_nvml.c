/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML for hostcuda, as far as medusa-worker asks it: one GPU, whose memory is what HOSTCUDA_MEM (bytes) and the file of
 * HOSTCUDA_SHARED say. With NVML_WAITS=1 it answers never, as when a GPU is lost.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/export.h"
#include "base/nvml.h"

#define ROWS 128   /* of struct ledger in hostcuda/shared_devices.c */
#define DEVICES 16 /* the same */
#define FAILURE 999

MD_EXPORT int nvmlInit_v2(void);
MD_EXPORT int nvmlDeviceGetCount_v2(unsigned *devices);
MD_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
MD_EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
MD_EXPORT int nvmlDeviceGetName(void *device, char *name, unsigned size);
MD_EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct md_nvml_memory *memory);

static int the_gpu;

int nvmlInit_v2(void)
{
	return getenv("HOSTCUDA_SHARED") && getenv("HOSTCUDA_MEM") ? 0 : FAILURE;
}

int nvmlDeviceGetCount_v2(unsigned *devices)
{
	*devices = 1;
	return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
	*device = &the_gpu;
	return index ? FAILURE : 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
	*device = &the_gpu;
	return strcmp(uuid, "GPU-686f7374-6375-6461-0000-000000000000") ? FAILURE : 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned size)
{
	(void)device;
	snprintf(name, size, "hostcuda");
	return 0;
}

/* A process that has a row holds a lock of its byte. */
static int lives(int fd, int row)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = row + 1, .l_len = 1};
	return !fcntl(fd, F_GETLK, &lock) && lock.l_type != F_UNLCK;
}

int nvmlDeviceGetMemoryInfo(void *device, struct md_nvml_memory *memory)
{
	static uint64_t rows[ROWS][DEVICES];
	const char *waits = getenv("NVML_WAITS");
	(void)device;
	while (waits && !strcmp(waits, "1"))
		sleep(1000);
	memory->total = strtoull(getenv("HOSTCUDA_MEM"), NULL, 10);
	memory->used = 0;
	int fd = open(getenv("HOSTCUDA_SHARED"), O_RDWR | O_CLOEXEC);
	if (fd >= 0 && pread(fd, rows, sizeof(rows), 0) == (ssize_t)sizeof(rows))
		for (int row = 0; row < ROWS; row++)
			memory->used += rows[row][0] && lives(fd, row) ? rows[row][0] : 0;
	if (fd >= 0)
		close(fd);
	memory->free = memory->total - memory->used;
	return 0;
}
