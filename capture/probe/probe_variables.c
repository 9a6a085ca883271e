/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of modules in the poison test: which a graph can reach, put back for each replay, and which it writes. */
#include <string.h>

#include "capture/probe/copies.h"
#include "capture/probe/probe.h"
#include "capture/probe/probe_variables.h"
#include "driver/device_pieces.h"
#include "capture/record/graphs.h"
#include "capture/record/kernels.h"
#include "capture/record/module_variables.h"

bool md_capture_probe_reads_image(const struct md_capture_graph *graph, uint32_t image)
{
	const struct md_trace_graph *kept = &graph->kept;
	for (uint32_t i = 0; i < kept->node_count; i++) {
		const struct md_kernel *kernel =
		    kept->nodes[i].type == MD_NODE_KERNEL ? md_capture_kernel_get(kept->nodes[i].kernel) : NULL;
		if (kernel && kernel->image == image)
			return true;
	}
	return false;
}

enum md_status md_capture_probe_put_variables(struct md_capture_probe *probe, struct md_error *err)
{
	md_device_batch_begin(&probe->session->device);
	for (uint32_t i = 0; i < probe->region_count; i++) {
		const struct md_probe_region *region = &probe->regions[i];
		if (region->kind == MD_PROBE_REGION_VARIABLE)
			MD_FORWARD(md_capture_copy_put_back(probe->session, region->copy, 0, region->size, err));
	}
	return md_device_batch_launch(&probe->session->device, err);
}

/* Half of the session's staging holds what was there, the other half what is there now. */
static enum md_status find_change(struct md_capture_probe *probe, struct md_probe_region *region, struct md_error *err)
{
	struct md_probe_session *session = probe->session;
	uint64_t most = MD_PROBE_CHUNK_BYTES / 2;
	for (uint64_t at = 0, size; at < region->size && !region->changed; at += size) {
		uint8_t *before = session->device.now, *now = before + most;
		size = region->size - at < most ? region->size - at : most;
		MD_FORWARD(md_capture_copy_read(session, region->copy, at, size, before, err));
		MD_FORWARD(md_device_session_read(&session->device, now, region->address + at, size, err));
		region->changed = memcmp(before, now, size) != 0;
	}
	return MD_OK;
}

enum md_status md_capture_probe_find_written(struct md_capture_probe *probe, struct md_error *err)
{
	for (uint32_t i = 0; i < probe->region_count; i++)
		if (probe->regions[i].kind == MD_PROBE_REGION_VARIABLE)
			MD_FORWARD(find_change(probe, &probe->regions[i], err));
	return MD_OK;
}

void md_capture_probe_say_written(const struct md_capture_probe *probe, const struct md_capture_graph *graph)
{
	struct md_capture_variable variable;
	for (uint32_t i = 0; i < probe->region_count; i++)
		if (probe->regions[i].changed && md_capture_variable_find(probe->regions[i].address, &variable))
			md_trace_put_replayed(md_capture.writer, md_capture_next(), variable.image, variable.name,
					      graph->id);
}
