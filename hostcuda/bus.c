/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speeds of links: HOSTCUDA_H2D_GBPS (host and device; a number, or one for each device of the machine) and HOSTCUDA_NVLINK
 * (between devices; "none": they cannot reach each other). A link carries one copy after the other, of all processes that
 * share the devices.
 */
#include "hostcuda/bus.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "hostcuda/device.h"
#include "hostcuda/memory.h"
#include "hostcuda/shared_devices.h"

/* The number for a place in a list; the last one is for all others. 0: unlimited. */
static double speed_in(const char *list, int place)
{
	char *end;
	double speed = 0;
	for (int i = 0; list && *list; i++) {
		double next = strtod(list, &end);
		if (end == list)
			break;
		speed = next > 0 ? next : 0;
		if (i == place || *end != ',')
			break;
		list = end + 1;
	}
	return speed;
}

static double speed_of(unsigned bus, int place)
{
	return speed_in(secure_getenv(bus == HC_BUS_PEER ? "HOSTCUDA_NVLINK" : "HOSTCUDA_H2D_GBPS"), place);
}

bool hc_bus_has_peers(void)
{
	const char *setting = secure_getenv("HOSTCUDA_NVLINK");
	return !setting || strcmp(setting, "none") != 0;
}

/* The place of the device whose memory it is; -1: of none. */
static int place_of(uint64_t address)
{
	HC_STATE_GUARD();
	const struct hc_memory *memory = hc_memory_at(address);
	return memory && memory->device ? memory->device->place : -1;
}

void hc_bus_choose(struct hc_copy *copy, bool to_host, bool from_host)
{
	int to = to_host ? -1 : place_of(copy->to), from = from_host ? -1 : place_of(copy->from);
	copy->bus = HC_BUS_NONE;
	if (to_host && from_host)
		return;
	if (!to_host && !from_host && (to == from || to < 0 || from < 0))
		return;
	copy->bus = to_host ? HC_BUS_TO_HOST : from_host ? HC_BUS_TO_DEVICE : HC_BUS_PEER;
	copy->place = to_host ? from : to;
	if (copy->place < 0)
		copy->place = 0;
}

/* The time at which the copy ends, if it begins when the link is free. */
static uint64_t turn_on(uint64_t *free_at, uint64_t took)
{
	uint64_t now = md_clock_ns(), was = __atomic_load_n(free_at, __ATOMIC_RELAXED), due;
	do
		due = (was > now ? was : now) + took;
	while (!__atomic_compare_exchange_n(free_at, &was, due, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return due;
}

void hc_bus_take(const struct hc_copy *copy)
{
	if (copy->bus == HC_BUS_NONE)
		return;
	struct hc_bus_state *buses = hc_shared_buses();
	uint64_t bytes = (uint64_t)copy->width * copy->height * copy->depth;
	double speed = speed_of(copy->bus, copy->place);
	__atomic_fetch_add(&buses->bytes[copy->bus][copy->place], bytes, __ATOMIC_RELAXED);
	if (speed == 0)
		return;
	uint64_t due = turn_on(&buses->free_at[copy->bus][copy->place], (uint64_t)((double)bytes / speed));
	struct timespec until = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
		;
}

/* ---- what the driver says of it ---- */

CUresult hc_cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
	if (!canAccessPeer)
		return CUDA_ERROR_INVALID_VALUE;
	if (!hc_device_at(dev) || !hc_device_at(peerDev))
		return CUDA_ERROR_INVALID_DEVICE;
	*canAccessPeer = dev != peerDev && hc_bus_has_peers();
	return CUDA_SUCCESS;
}

CUresult hc_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice, CUdevice dstDevice)
{
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (!hc_device_at(srcDevice) || !hc_device_at(dstDevice) || srcDevice == dstDevice)
		return CUDA_ERROR_INVALID_DEVICE;
	*value = attrib == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED && hc_bus_has_peers();
	return CUDA_SUCCESS;
}
