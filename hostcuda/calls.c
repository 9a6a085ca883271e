/* SPDX-License-Identifier: Apache-2.0 */
/* HOSTCUDA_CALLS=FILE: when the process ends, writes how often each entry point was called, one line each. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "hostcuda/device_state.h"

static const char *path;
static unsigned long counts[HC_INDEX_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *const names[HC_INDEX_COUNT] = {
#define CU_ENTRY(symbol, base, version, need, hook, swap, params, args) #symbol,
#include "driver/cuda_api.def"
};

static void write_counts(void)
{
	int fd = md_file_open_append(path, false);
	FILE *file = fd >= 0 ? fdopen(fd, "a") : NULL;
	if (!file) {
		perror(path);
		return;
	}
	for (size_t i = 0; i < HC_INDEX_COUNT; i++)
		if (counts[i])
			fprintf(file, "%s %lu\n", names[i], counts[i]);
	fclose(file);
}

static void read_setting(void)
{
	path = secure_getenv("HOSTCUDA_CALLS");
	if (path && *path)
		atexit(write_counts);
	else
		path = NULL;
}

void hc_call_count(enum hc_index index)
{
	pthread_once(&once, read_setting);
	if (path)
		__atomic_add_fetch(&counts[index], 1, __ATOMIC_RELAXED);
}
