/* SPDX-License-Identifier: Apache-2.0 */
/* Reads /sys, and asks the kernel by mbind(2), without a library: both are small. */
#include "swap/numa.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"

#define TEXT_MOST 4096u

/* False: there is no such file. The text ends with a NUL. */
static bool read_text(const char *path, struct md_file_bytes *text)
{
	struct md_error none = {0};
	return md_file_read_stream(path, TEXT_MOST, text, &none) == MD_OK;
}

/* Of a list such as "0-3,8"; 0: it is none, or has nodes that are not told apart. */
static unsigned count_list(const char *text)
{
	unsigned count = 0;
	for (const char *at = text; *at && *at != '\n';) {
		char *end;
		unsigned long first = strtoul(at, &end, 10), last = first;
		if (end == at)
			return 0;
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		if (last < first || last >= MD_SWAP_NODES)
			return 0;
		count += (unsigned)(last - first + 1);
		at = *end == ',' ? end + 1 : end;
		if (*end && *end != ',' && *end != '\n')
			return 0;
	}
	return count;
}

unsigned md_swap_numa_nodes(const char *sys)
{
	char path[256];
	struct md_file_bytes text = {0};
	snprintf(path, sizeof(path), "%s/devices/system/node/online", sys);
	if (!read_text(path, &text))
		return 1;
	unsigned count = count_list((const char *)text.data);
	md_file_release(&text);
	return count ? count : 1;
}

int md_swap_numa_node_of(const char *sys, unsigned domain, unsigned bus, unsigned device)
{
	char path[256];
	struct md_file_bytes text = {0};
	snprintf(path, sizeof(path), "%s/bus/pci/devices/%04x:%02x:%02x.0/numa_node", sys, domain, bus, device);
	if (!read_text(path, &text))
		return -1;
	char *end;
	long node = strtol((const char *)text.data, &end, 10);
	bool good = end != (const char *)text.data && node >= 0 && node < (long)MD_SWAP_NODES;
	md_file_release(&text);
	return good ? (int)node : -1;
}

int md_swap_numa_of_device(const char *sys, const struct md_cuda *driver, CUdevice device)
{
	int domain = 0, bus = 0, slot = 0;
	if (driver->cuDeviceGetAttribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, device) ||
	    driver->cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device) ||
	    driver->cuDeviceGetAttribute(&slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, device))
		return -1;
	return md_swap_numa_node_of(sys, (unsigned)domain, (unsigned)bus, (unsigned)slot);
}

int md_swap_numa_bind(void *at, uint64_t bytes, uint64_t nodes)
{
	unsigned long mask = nodes;
	int mode = nodes & (nodes - 1) ? MPOL_INTERLEAVE : MPOL_PREFERRED;
	/* the kernel takes one bit less than it is told */
	return syscall(SYS_mbind, at, bytes, mode, &mask, MD_SWAP_NODES + 1, 0) ? errno : 0;
}
