/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static struct md_nvml nvml;
static bool there;

static void load(void *library, const char *name, void *slot)
{
	void *address = dlsym(library, name);
	memcpy(slot, &address, sizeof(address));
}

static void start(void)
{
	int (*init)(void) = NULL;
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return;
	load(library, "nvmlInit_v2", &init);
	load(library, "nvmlDeviceGetCount_v2", &nvml.count);
	load(library, "nvmlDeviceGetHandleByIndex_v2", &nvml.by_index);
	load(library, "nvmlDeviceGetHandleByUUID", &nvml.by_uuid);
	load(library, "nvmlDeviceGetP2PStatus", &nvml.p2p_status);
	load(library, "nvmlDeviceGetTopologyCommonAncestor", &nvml.ancestor);
	load(library, "nvmlDeviceGetMemoryInfo", &nvml.memory);
	load(library, "nvmlDeviceGetName", &nvml.name);
	there = init && init() == 0;
}

const struct md_nvml *md_nvml(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, start);
	return there ? &nvml : NULL;
}
