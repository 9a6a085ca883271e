/* SPDX-License-Identifier: Apache-2.0 */
/* Replays of the poison test on a private stream: poison, launch, compare, put every byte back. */
#include <stdlib.h>
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

static const uint8_t *chunk_before(const struct md_capture_probe *probe, const struct md_probe_region *region, size_t i)
{
	return region->chunks_before[i] ? region->chunks_before[i] : probe->zeros;
}

static enum md_status put_back_output(const struct md_capture_probe *probe, const struct md_probe_region *region,
				      struct md_error *err)
{
	size_t count = region->chunks_before ? md_capture_probe_chunk_count(region) : 0;

	for (size_t i = 0; i < count; i++)
		MD_FORWARD(md_cuda_call(err, cuMemcpyHtoD_v2, region->address + i * MD_PROBE_CHUNK_BYTES,
					chunk_before(probe, region, i), md_capture_probe_chunk_size(region, i)));
	return MD_OK;
}

/* outputs: those too; a replay that went well has put them back while it compared them. */
static enum md_status put_back(const struct md_capture_probe *probe, bool outputs, struct md_error *err)
{
	for (uint32_t i = 0; i < probe->region_count; i++) {
		const struct md_probe_region *region = &probe->regions[i];
		if (region->kind == MD_PROBE_REGION_HOST)
			memcpy((void *)(uintptr_t)region->address, region->before, region->size);
		else if (region->kind == MD_PROBE_REGION_PRIVATE)
			MD_FORWARD(md_cuda_call(err, cuMemcpyHtoD_v2, region->address, region->before, region->size));
		else if (outputs)
			MD_FORWARD(put_back_output(probe, region, err));
	}
	return md_cuda_call(err, cuCtxSynchronize);
}

/* Each chunk is read once: compared with what is expected (or kept as that), and put back if the replay changed it. */
static enum md_status take_outputs(struct md_capture_probe *probe, const struct md_probe_region *region, bool first,
				   bool *equal, struct md_error *err)
{
	size_t count = md_capture_probe_chunk_count(region);

	for (size_t i = 0; i < count; i++) {
		uint64_t address = region->address + i * MD_PROBE_CHUNK_BYTES;
		size_t size = md_capture_probe_chunk_size(region, i);
		const uint8_t *before = chunk_before(probe, region, i);
		bool changed;
		MD_FORWARD(md_cuda_call(err, cuMemcpyDtoH_v2, probe->now, address, size));
		changed = memcmp(probe->now, before, size) != 0;
		if (first && changed) {
			region->chunks_after[i] = malloc(size);
			if (!region->chunks_after[i])
				return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory");
			memcpy(region->chunks_after[i], probe->now, size);
		}
		*equal =
		    *equal && (region->chunks_after[i] ? !memcmp(probe->now, region->chunks_after[i], size) : !changed);
		if (changed)
			MD_FORWARD(md_cuda_call(err, cuMemcpyHtoD_v2, address, before, size));
	}
	return MD_OK;
}

static enum md_status compare(struct md_capture_probe *probe, bool first, bool *equal, struct md_error *err)
{
	*equal = true;
	for (uint32_t i = 0; i < probe->region_count; i++) {
		if (probe->regions[i].kind == MD_PROBE_REGION_OUTPUT)
			MD_FORWARD(take_outputs(probe, &probe->regions[i], first, equal, err));
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
					region->poison + first->offset, size));
	}
	return MD_OK;
}

/* Whatever went wrong, memory is put back; if that fails too, the context is lost. */
static enum md_status finish(struct md_capture_probe *probe, enum md_status status, struct md_error *err)
{
	struct md_error second = {0};

	if (put_back(probe, status != MD_OK, &second) == MD_OK)
		return status;
	probe->broken = true;
	if (status == MD_OK)
		*err = second;
	return err->status;
}

enum md_status md_capture_probe_first_replay(struct md_capture_probe *probe, struct md_error *err)
{
	enum md_status status;
	bool equal;

	MD_FORWARD(md_cuda_call(err, cuStreamCreate, &probe->stream, CU_STREAM_NON_BLOCKING));
	status = launch(probe, err);
	if (status == MD_OK)
		status = compare(probe, true, &equal, err);
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
		status = compare(probe, false, equal, err);
	return finish(probe, status, err);
}
