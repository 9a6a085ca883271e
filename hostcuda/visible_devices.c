/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA_VISIBLE_DEVICES: which of the machine's devices a process has, and in which order. */
#include "hostcuda/visible_devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "hostcuda/device.h"

/* "GPU-" and the device's UUID, as nvidia-smi prints them. */
static void print_uuid(int place, char text[64])
{
	CUuuid uuid = hc_device_uuid(place);
	const unsigned char *b = (const unsigned char *)uuid.bytes;
	snprintf(text, 64, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
		 b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* The device that a number, or the beginning of a UUID, names; -1: none. */
static int find(const char *name, size_t size, int devices)
{
	char text[64], *end;
	int found = -1;
	if (strncasecmp(name, "GPU-", 4) != 0) {
		long place = strtol(name, &end, 10);
		return end == name + size && size && place >= 0 && place < devices ? (int)place : -1;
	}
	for (int place = 0; place < devices; place++) {
		print_uuid(place, text);
		if (strncasecmp(text, name, size) != 0)
			continue;
		if (found >= 0)
			return -1; /* of several */
		found = place;
	}
	return found;
}

int hc_visible_devices(int devices, int places[HC_MAX_DEVICES])
{
	const char *names = secure_getenv("CUDA_VISIBLE_DEVICES");
	int count = 0;
	if (!names) {
		for (; count < devices; count++)
			places[count] = count;
		return count;
	}
	for (size_t size; count < HC_MAX_DEVICES; names += size + 1) {
		names += strspn(names, " ");
		size = strcspn(names, ",");
		int place = find(names, strcspn(names, ", "), devices);
		for (int i = 0; i < count; i++)
			if (places[i] == place)
				return 0; /* twice: the driver has none then */
		if (place < 0)
			break;
		places[count++] = place;
		if (!names[size])
			break;
	}
	return count;
}
