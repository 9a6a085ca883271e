/* SPDX-License-Identifier: Apache-2.0 */
/* The fingerprint of device and driver: read through the driver, compared fact by fact. */
#include "format/fingerprint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "driver/cuda_driver.h"

static enum md_status attribute(CUdevice device, CUdevice_attribute which, int32_t *out, struct md_error *err)
{
	int value = 0;
	MD_FORWARD(md_cuda_call(err, cuDeviceGetAttribute, &value, which, device));
	*out = value;
	return MD_OK;
}

enum md_status md_fingerprint_read(struct md_fingerprint *out, struct md_error *err)
{
	struct md_fingerprint now = {0};
	CUdevice device;
	size_t memory = 0;
	int version = 0;
	MD_FORWARD(md_cuda_load(err));
	MD_FORWARD(md_cuda_call(err, cuCtxGetDevice, &device));
	MD_FORWARD(md_cuda_call(err, cuDeviceGetName, now.device_name, (int)sizeof(now.device_name) - 1, device));
	MD_FORWARD(attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &now.compute_major, err));
	MD_FORWARD(attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &now.compute_minor, err));
	MD_FORWARD(attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &now.multiprocessors, err));
	MD_FORWARD(md_cuda_call(err, cuDeviceTotalMem_v2, &memory, device));
	MD_FORWARD(md_cuda_call(err, cuDriverGetVersion, &version));
	now.device_memory = memory;
	now.driver_version = version;
	/* the driver may leave anything behind the NUL; the text twin and comparisons want zeros */
	size_t length = strnlen(now.device_name, sizeof(now.device_name));
	memset(now.device_name + length, 0, sizeof(now.device_name) - length);
	*out = now;
	return MD_OK;
}

static enum md_status differs(struct md_error *err, const char *what, int64_t stored, int64_t now)
{
	return md_error_set(err, MD_ERR_MISMATCH, "%s: artifact has %" PRId64 ", this machine %" PRId64, what, stored,
			    now);
}

enum md_status md_fingerprint_compare(const struct md_fingerprint *stored, const struct md_fingerprint *now,
				      struct md_error *err)
{
	if (strncmp(stored->device_name, now->device_name, sizeof(now->device_name)) != 0)
		return md_error_set(err, MD_ERR_MISMATCH, "device name: artifact has %.200s, this machine %.200s",
				    stored->device_name, now->device_name);
	const struct {
		const char *what;
		int64_t stored, now;
	} facts[] = {
	    {"compute capability (major)", stored->compute_major, now->compute_major},
	    {"compute capability (minor)", stored->compute_minor, now->compute_minor},
	    {"multiprocessors", stored->multiprocessors, now->multiprocessors},
	    {"device memory in bytes", (int64_t)stored->device_memory, (int64_t)now->device_memory},
	    {"driver version", stored->driver_version, now->driver_version},
	};
	for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++) {
		if (facts[i].stored != facts[i].now)
			return differs(err, facts[i].what, facts[i].stored, facts[i].now);
	}
	return MD_OK;
}

void md_fingerprint_finish(struct md_fingerprint *fingerprint)
{
	for (uint32_t i = 0; i < fingerprint->library_count; i++) {
		free(fingerprint->libraries[i].path);
		free(fingerprint->libraries[i].build_id);
	}
	free(fingerprint->libraries);
	*fingerprint = (struct md_fingerprint){0};
}
