/* SPDX-License-Identifier: Apache-2.0 */
/* The fingerprint of device and driver: read through the driver, compared fact by fact. */
#include "format/fingerprint.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
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
	/* the driver may leave anything behind the NUL; text twin and comparisons need zeros */
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

/* ---- what the engine says ---- */

/* The index of the fact with this name, or the index where it would be inserted. */
static uint32_t fact_place(const struct md_fingerprint *fingerprint, const char *name)
{
	uint32_t low = 0, high = fingerprint->fact_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (strcmp(fingerprint->facts[middle].name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool insert_fact(struct md_fingerprint *fingerprint, uint32_t at, char *name, char *value)
{
	if (!MD_ARRAY_EXTEND(fingerprint->facts, fingerprint->fact_count))
		return false;
	struct md_fingerprint_fact *fact = &fingerprint->facts[at];
	memmove(fact + 1, fact, (fingerprint->fact_count++ - at) * sizeof(*fact));
	*fact = (struct md_fingerprint_fact){name, value};
	return true;
}

enum md_status md_fingerprint_set_fact(struct md_fingerprint *fingerprint, const char *name, const char *value,
				       struct md_error *err)
{
	uint32_t at = fact_place(fingerprint, name);
	bool known = at < fingerprint->fact_count && !strcmp(fingerprint->facts[at].name, name);
	MD_AUTO_FREE char *new_value = strdup(value);
	MD_AUTO_FREE char *new_name = strdup(name);
	if (!new_value || !new_name || (!known && !insert_fact(fingerprint, at, new_name, new_value)))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for fact \"%.200s\"", name);
	if (known) {
		free(fingerprint->facts[at].value);
		fingerprint->facts[at].value = new_value;
	} else {
		new_name = NULL;
	}
	new_value = NULL;
	return MD_OK;
}

/* Both values must fit into a message. */
#define SHOWN "%.150s"

enum md_status md_fingerprint_compare_facts(const struct md_fingerprint *stored, const struct md_fingerprint *now,
					    struct md_error *err)
{
	for (uint32_t i = 0; i < stored->fact_count || i < now->fact_count; i++) {
		const struct md_fingerprint_fact *was = i < stored->fact_count ? &stored->facts[i] : NULL;
		const struct md_fingerprint_fact *is = i < now->fact_count ? &now->facts[i] : NULL;
		int order = !was ? 1 : !is ? -1 : strcmp(was->name, is->name);
		if (order < 0)
			return md_error_set(err, MD_ERR_MISMATCH,
					    "fact \"%.100s\": artifact has " SHOWN ", this engine does not state it",
					    was->name, was->value);
		if (order > 0)
			return md_error_set(err, MD_ERR_MISMATCH,
					    "fact \"%.100s\": the artifact does not have it, this engine states " SHOWN,
					    is->name, is->value);
		if (strcmp(was->value, is->value) != 0)
			return md_error_set(err, MD_ERR_MISMATCH,
					    "fact \"%.100s\": artifact has " SHOWN ", this engine " SHOWN, was->name,
					    was->value, is->value);
	}
	return MD_OK;
}

enum md_status md_fingerprint_compare_arguments(const struct md_fingerprint *stored, const struct md_argument_list *now,
						struct md_error *err)
{
	if (stored->fact_count)
		return MD_OK;
	if (!stored->arguments.count)
		return md_error_set(err, MD_ERR_MISMATCH,
				    "the artifact does not say with which arguments it was captured; capture again");
	return md_arguments_compare(&stored->arguments, now, &stored->vary, "the artifact was captured with", err);
}

void md_fingerprint_finish(struct md_fingerprint *fingerprint)
{
	md_arguments_finish(&fingerprint->arguments);
	md_arguments_finish(&fingerprint->vary);
	for (uint32_t i = 0; i < fingerprint->library_count; i++) {
		free(fingerprint->libraries[i].path);
		free(fingerprint->libraries[i].build_id);
	}
	for (uint32_t i = 0; i < fingerprint->fact_count; i++) {
		free(fingerprint->facts[i].name);
		free(fingerprint->facts[i].value);
	}
	free(fingerprint->libraries);
	free(fingerprint->facts);
	*fingerprint = (struct md_fingerprint){0};
}
