/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows of sampled state before and after the first replay. They are gathered and compared on the device; windows that
 * are no whole grains, and those for which the device has no room, are copied to the host.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "capture/probe/probe.h"
#include "capture/probe/spans.h"
#include "capture/probe/windows.h"
#include "driver/device_pieces.h"

static uint64_t bytes_of(const struct md_sample *sample)
{
	return (uint64_t)sample->windows * sample->bytes;
}

static bool is_sampled(const struct md_probe_region *region)
{
	return region->kind == MD_PROBE_REGION_SAMPLED;
}

/* ---- on the device ---- */

/* All windows except the last one lie at equal distances, so one copy brings them together. */
static enum md_status gather(struct md_capture_probe *probe, const struct md_probe_region *region, CUdeviceptr to,
			     struct md_error *err)
{
	const struct md_sample *sample = &region->sample;
	CUstream stream = probe->session->device.stream;
	uint64_t distance = md_sample_offset(sample, 1), last = sample->windows - 1;
	for (uint32_t i = 0; probe->session->device.pieces && i < sample->windows; i++)
		MD_FORWARD(md_device_batch_copy(&probe->session->device, to + (uint64_t)i * sample->bytes,
						region->address + md_sample_offset(sample, i), sample->bytes, err));
	if (probe->session->device.pieces)
		return MD_OK;
	CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			      .srcDevice = region->address,
			      .srcPitch = distance,
			      .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			      .dstDevice = to,
			      .dstPitch = sample->bytes,
			      .WidthInBytes = sample->bytes,
			      .Height = last};
	if (md_cuda.cuMemcpy2DAsync_v2 && distance <= INT_MAX)
		MD_FORWARD(md_cuda_call(err, cuMemcpy2DAsync_v2, &rows, stream));
	else
		for (uint32_t i = 0; i < last; i++)
			MD_FORWARD(md_cuda_call(err, cuMemcpyDtoDAsync_v2, to + (uint64_t)i * sample->bytes,
						region->address + md_sample_offset(sample, i), sample->bytes, stream));
	return md_cuda_call(err, cuMemcpyDtoDAsync_v2, to + last * sample->bytes,
			    region->address + md_sample_offset(sample, (uint32_t)last), sample->bytes, stream);
}

/* Allocates room for all windows twice, before and after the replay. It serves all tests of the session. */
static CUdeviceptr make_room(struct md_probe_session *session, uint64_t bytes)
{
	if (bytes <= session->windows_room)
		return session->windows;
	session->windows = md_device_session_take(&session->device, 2 * bytes);
	session->windows_room = session->windows ? bytes : 0;
	return session->windows;
}

static bool is_for_device(const struct md_capture_probe *probe, const struct md_probe_region *region)
{
	return region->sample.bytes % MD_DEVICE_GRAIN == 0 &&
	       md_device_differ_can(&probe->session->device, region->address, region->sample.bytes);
}

/* Gives the regions their places in the room, one behind the other. */
static uint64_t place(struct md_capture_probe *probe)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < probe->region_count; i++) {
		struct md_probe_region *region = &probe->regions[i];
		uint64_t more = is_sampled(region) ? bytes_of(&region->sample) : 0;
		region->gathered = more && is_for_device(probe, region) &&
				   bytes + more <= (uint64_t)MD_DEVICE_GRAINS * MD_DEVICE_GRAIN;
		region->windows_at = bytes;
		bytes += region->gathered ? more : 0;
	}
	return bytes;
}

/* room: before the replay, or after. */
static enum md_status gather_all(struct md_capture_probe *probe, CUdeviceptr room, struct md_error *err)
{
	md_device_batch_begin(&probe->session->device);
	for (uint32_t i = 0; i < probe->region_count; i++)
		if (probe->regions[i].gathered)
			MD_FORWARD(gather(probe, &probe->regions[i], room + probe->regions[i].windows_at, err));
	return md_device_batch_launch(&probe->session->device, err);
}

static enum md_status compare_on_device(struct md_capture_probe *probe, struct md_error *err)
{
	struct md_probe_session *session = probe->session;
	CUdeviceptr before = session->windows, after = before + session->windows_room;
	size_t grains = (size_t)(probe->gathered_bytes / MD_DEVICE_GRAIN);
	MD_FORWARD(gather_all(probe, after, err));
	MD_FORWARD(md_device_differ_begin(&session->device, grains, err));
	MD_FORWARD(md_device_differ_launch(&session->device, before, after, probe->gathered_bytes, 0, err));
	return md_device_differ_end(&session->device, grains, err);
}

/* ---- on the host ---- */

static enum md_status read_windows(struct md_capture_probe *probe, const struct md_probe_region *region, uint32_t from,
				   uint32_t to, uint8_t *bytes, struct md_error *err)
{
	struct md_probe_session *session = probe->session;
	const struct md_sample *sample = &region->sample;
	session->device.moved_bytes += (uint64_t)(to - from) * sample->bytes;
	for (uint32_t i = from; i < to; i++)
		MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, bytes + (size_t)(i - from) * sample->bytes,
					region->address + md_sample_offset(sample, i), sample->bytes,
					session->device.stream));
	return md_cuda_call(err, cuStreamSynchronize, session->device.stream);
}

static enum md_status keep_on_host(struct md_capture_probe *probe, struct md_probe_region *region, struct md_error *err)
{
	uint64_t bytes = bytes_of(&region->sample);
	region->windows = malloc((size_t)bytes);
	if (!region->windows)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %llu bytes of samples",
				    (unsigned long long)bytes);
	return read_windows(probe, region, 0, region->sample.windows, region->windows, err);
}

/* ---- both ---- */

enum md_status md_capture_windows_keep(struct md_capture_probe *probe, struct md_error *err)
{
	for (uint32_t i = 0; i < probe->region_count; i++)
		if (is_sampled(&probe->regions[i]))
			probe->regions[i].sample = md_sample_plan(probe->regions[i].size, probe->sampled_count);
	probe->gathered_bytes = place(probe);
	if (probe->gathered_bytes && make_room(probe->session, probe->gathered_bytes))
		MD_FORWARD(gather_all(probe, probe->session->windows, err));
	else
		probe->gathered_bytes = 0;
	for (uint32_t i = 0; i < probe->region_count; i++) {
		struct md_probe_region *region = &probe->regions[i];
		region->gathered &= probe->gathered_bytes != 0;
		if (is_sampled(region) && !region->gathered)
			MD_FORWARD(keep_on_host(probe, region, err));
	}
	return MD_OK;
}

/* now: what the window holds; NULL: that is on the device, from device_now on. */
static enum md_status watch(struct md_capture_probe *probe, const struct md_probe_region *region, uint32_t window,
			    bool changed, const uint8_t *now, CUdeviceptr device_now, struct md_error *err)
{
	const struct md_sample *sample = &region->sample;
	struct md_probe_span span = {.address = region->address + md_sample_offset(sample, window),
				     .size = sample->bytes,
				     .device_after = probe->spread ? 0 : device_now};
	probe->changed |= changed;
	if (!changed && !md_sample_stays(sample, window, probe->sampled_count))
		return MD_OK;
	return md_capture_probe_add_span(probe, span, now, err);
}

static enum md_status watch_gathered(struct md_capture_probe *probe, const struct md_probe_region *region,
				     struct md_error *err)
{
	size_t each = region->sample.bytes / MD_DEVICE_GRAIN;
	const uint8_t *flags = probe->session->device.flag_bytes + region->windows_at / MD_DEVICE_GRAIN;
	CUdeviceptr after = probe->session->windows + probe->session->windows_room + region->windows_at;
	for (uint32_t i = 0; i < region->sample.windows; i++)
		MD_FORWARD(watch(probe, region, i, memchr(flags + i * each, 1, each) != NULL, NULL,
				 after + (uint64_t)i * region->sample.bytes, err));
	return MD_OK;
}

static enum md_status watch_on_host(struct md_capture_probe *probe, const struct md_probe_region *region,
				    struct md_error *err)
{
	const struct md_sample *sample = &region->sample;
	uint8_t *staging = probe->session->device.now;
	uint32_t batch = MD_PROBE_CHUNK_BYTES / sample->bytes;
	for (uint32_t from = 0; from < sample->windows; from += batch) {
		uint32_t to = sample->windows - from < batch ? sample->windows : from + batch;
		MD_FORWARD(read_windows(probe, region, from, to, staging, err));
		for (uint32_t i = from; i < to; i++) {
			const uint8_t *now = staging + (size_t)(i - from) * sample->bytes;
			const uint8_t *before = region->windows + (size_t)i * sample->bytes;
			MD_FORWARD(watch(probe, region, i, memcmp(now, before, sample->bytes) != 0, now, 0, err));
		}
	}
	return MD_OK;
}

enum md_status md_capture_windows_watch(struct md_capture_probe *probe, struct md_error *err)
{
	if (probe->gathered_bytes)
		MD_FORWARD(compare_on_device(probe, err));
	for (uint32_t i = 0; i < probe->region_count; i++) {
		const struct md_probe_region *region = &probe->regions[i];
		if (is_sampled(region))
			MD_FORWARD(region->gathered ? watch_gathered(probe, region, err)
						    : watch_on_host(probe, region, err));
	}
	return MD_OK;
}

void md_capture_windows_release(struct md_capture_probe *probe)
{
	for (uint32_t i = 0; i < probe->region_count; i++)
		free(probe->regions[i].windows);
}
