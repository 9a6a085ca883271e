/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the driver for peer access, and NVML, which is loaded if it is there, for NVLink, PCIe switches and free memory. */
#include "driver/neighbours.h"

#include <stdio.h>
#include <string.h>

#include "base/nvml.h"
#include "driver/process_checkpoint.h"

/* ---- what the driver says of two devices ---- */

#define ACCESS CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
#define ATOMICS CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED /* over NVLink, and not over PCIe */

static bool has(CUdevice from, CUdevice to, CUdevice_P2PAttribute what)
{
	int may = 0;
	if (md_cuda.cuDeviceGetP2PAttribute)
		return !md_cuda.cuDeviceGetP2PAttribute(&may, what, from, to) && may;
	return what == ACCESS && md_cuda.cuDeviceCanAccessPeer && !md_cuda.cuDeviceCanAccessPeer(&may, from, to) && may;
}

/* ---- what NVML says of them: without it, what the driver says has to do ---- */

static void ask_nvml(const char *gpu, CUdevice self, uint64_t room, struct md_neighbour *neighbour)
{
	const struct md_nvml *nvml = md_nvml();
	struct md_nvml_memory memory;
	void *one, *other;
	int status = -1, level = 0;
	if (!nvml || !nvml->by_uuid || !nvml->p2p_status || nvml->by_uuid(neighbour->gpu, &one) ||
	    nvml->by_uuid(gpu, &other))
		return;
	if ((nvml->p2p_status(one, other, MD_NVML_CAPS_NVLINK, &status) || status != 0) &&
	    !has(neighbour->device, self, ATOMICS))
		neighbour->lacks = "has no NVLink to it";
	if (nvml->ancestor && !nvml->ancestor(one, other, &level))
		neighbour->beside = level <= MD_NVML_TOPOLOGY_SWITCH;
	if (!neighbour->lacks && nvml->memory && !nvml->memory(one, &memory) && memory.free < room)
		neighbour->lacks = "has too little free memory";
}

/* ---- all ---- */

static enum md_status name_of(CUdevice device, char text[48], struct md_error *err)
{
	CUuuid uuid;
	_Static_assert(MD_CHECKPOINT_UUID_BYTES == 48, "texts of UUIDs have one size");
	MD_FORWARD(md_cuda_call(err, cuDeviceGetUuid_v2, &uuid, device));
	md_checkpoint_uuid_text(&uuid, text);
	return MD_OK;
}

/* What is of use comes first, then what shares no switch. */
static int rank(const struct md_neighbour *neighbour)
{
	return (neighbour->lacks ? 2 : 0) + neighbour->beside;
}

static void insert(struct md_neighbour *list, size_t count, const struct md_neighbour *made)
{
	size_t at = count;
	for (; at && rank(&list[at - 1]) > rank(made); at--)
		list[at] = list[at - 1];
	list[at] = *made;
}

enum md_status md_neighbours_find(const char *gpu, uint64_t room, struct md_neighbour list[MD_NEIGHBOURS_MOST],
				  size_t *count, CUdevice *of, struct md_error *err)
{
	int devices = 0;
	size_t found = 0;
	char text[48];
	CUdevice self = -1;
	MD_FORWARD(md_cuda_call(err, cuDeviceGetCount, &devices));
	for (int i = 0; i < devices && self < 0; i++) {
		MD_FORWARD(name_of(i, text, err));
		self = strcmp(text, gpu) ? -1 : i;
	}
	if (self < 0)
		return md_error_set(err, MD_ERR_NOT_FOUND, "no GPU here is called \"%.60s\"", gpu);
	for (int i = 0; i < devices && found < MD_NEIGHBOURS_MOST; i++) {
		struct md_neighbour made = {.device = i};
		if (i == self)
			continue;
		MD_FORWARD(name_of(i, made.gpu, err));
		if (!has(i, self, ACCESS))
			made.lacks = "cannot access its memory";
		else
			ask_nvml(gpu, self, room, &made);
		insert(list, found++, &made);
	}
	*count = found;
	*of = self;
	return MD_OK;
}
