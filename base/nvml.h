/* SPDX-License-Identifier: Apache-2.0 */
/* NVML, the library that manages NVIDIA's GPUs, loaded if it is there. */
#ifndef MD_BASE_NVML_H
#define MD_BASE_NVML_H

/* As its header declares them; devices are handles of NVML, and all calls return 0 for success. */

struct md_nvml_memory {
	unsigned long long total, free, used; /* bytes; used includes what the driver has reserved */
};

#define MD_NVML_CAPS_NVLINK 2      /* NVML_P2P_CAPS_INDEX_NVLINK */
#define MD_NVML_TOPOLOGY_SWITCH 20 /* NVML_TOPOLOGY_MULTIPLE: several PCIe switches, and no host bridge, in between */

/* Calls that the library does not have are NULL. */
struct md_nvml {
	int (*count)(unsigned *devices);
	int (*by_index)(unsigned index, void **device);
	int (*by_uuid)(const char *uuid, void **device);
	int (*p2p_status)(void *one, void *other, int caps, int *status);
	int (*ancestor)(void *one, void *other, int *level);
	int (*memory)(void *device, struct md_nvml_memory *memory);
	int (*name)(void *device, char *name, unsigned size); /* of the product */
};

/* NULL: it is not there, or does not start. It stays loaded. */
const struct md_nvml *md_nvml(void);

#endif
