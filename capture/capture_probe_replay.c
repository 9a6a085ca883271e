/* SPDX-License-Identifier: Apache-2.0 */
/* Replays of the poison test on a private stream: poison, launch, compare, put every byte back. */
#include <string.h>

#include "base/clock.h"
#include "capture/capture_probe.h"

#define MAX_REPLAYS 4096

static enum md_status launch(struct md_capture_probe *probe, struct md_error *err)
{
	enum md_status status;

	/* Copies from pageable memory may still be on their way, and our stream waits for nobody. */
	MD_FORWARD(md_cuda_call(err, cuCtxSynchronize));
	status = md_cuda_call(err, cuGraphLaunch, probe->exec, probe->stream);
	if (status == MD_OK)
		status = md_cuda_call(err, cuStreamSynchronize, probe->stream);
	if (status != MD_OK)
		md_error_prefix(err, "replay %u", probe->replays);
	return status;
}

static enum md_status put_back(struct md_capture_probe *probe, struct md_error *err)
{
	for (uint32_t i = 0; i < probe->region_count; i++) {
		const struct md_probe_region *region = &probe->regions[i];
		if (region->kind == MD_PROBE_REGION_HOST)
			memcpy((void *)(uintptr_t)region->address, region->before, region->size);
		else
			MD_FORWARD(md_cuda_call(err, cuMemcpyHtoD_v2, region->address, region->before, region->size));
	}
	return md_cuda_call(err, cuCtxSynchronize);
}

static enum md_status compare(struct md_capture_probe *probe, bool *equal, struct md_error *err)
{
	*equal = true;
	for (uint32_t i = 0; i < probe->region_count && *equal; i++) {
		const struct md_probe_region *region = &probe->regions[i];
		if (region->kind != MD_PROBE_REGION_OUTPUT)
			continue;
		MD_FORWARD(md_cuda_call(err, cuMemcpyDtoH_v2, probe->now, region->address, region->size));
		*equal = !memcmp(probe->now, region->after, region->size);
	}
	return MD_OK;
}

static enum md_status keep_outputs(struct md_capture_probe *probe, struct md_error *err)
{
	for (uint32_t i = 0; i < probe->region_count; i++) {
		const struct md_probe_region *region = &probe->regions[i];
		if (region->kind == MD_PROBE_REGION_OUTPUT)
			MD_FORWARD(md_cuda_call(err, cuMemcpyDtoH_v2, region->after, region->address, region->size));
	}
	return MD_OK;
}

/* Units that follow each other in one region go in one copy. */
static enum md_status poison(struct md_capture_probe *probe, size_t from, size_t to, struct md_error *err)
{
	while (from < to) {
		const struct md_probe_unit *first = &probe->units[from];
		const struct md_probe_region *region = &probe->regions[first->region];
		uint64_t size = 0;
		if (first->keep) {
			from++;
			continue;
		}
		while (from < to && !probe->units[from].keep && probe->units[from].region == first->region)
			size += probe->units[from++].size;
		MD_FORWARD(md_cuda_call(err, cuMemcpyHtoD_v2, region->address + first->offset,
					region->after + first->offset, size));
	}
	return MD_OK;
}

/* Whatever went wrong, memory is put back; if that fails too, the context is lost. */
static enum md_status finish(struct md_capture_probe *probe, enum md_status status, struct md_error *err)
{
	struct md_error second = {0};

	if (put_back(probe, &second) == MD_OK)
		return status;
	probe->broken = true;
	if (status == MD_OK)
		*err = second;
	return err->status;
}

enum md_status md_capture_probe_first_replay(struct md_capture_probe *probe, struct md_error *err)
{
	enum md_status status;

	MD_FORWARD(md_cuda_call(err, cuStreamCreate, &probe->stream, CU_STREAM_NON_BLOCKING));
	status = launch(probe, err);
	if (status == MD_OK)
		status = keep_outputs(probe, err);
	return finish(probe, status, err);
}

enum md_status md_capture_probe_replay(struct md_capture_probe *probe, size_t from, size_t to, bool *equal,
				       struct md_error *err)
{
	enum md_status status;

	if (++probe->replays > MAX_REPLAYS || md_clock_ns() > probe->deadline_ns)
		return md_error_set(err, MD_ERR_TIMEOUT, "what matters is too scattered: given up after %u replays",
				    probe->replays - 1);
	status = poison(probe, from, to, err);
	if (status == MD_OK)
		status = launch(probe, err);
	if (status == MD_OK)
		status = compare(probe, equal, err);
	return finish(probe, status, err);
}
