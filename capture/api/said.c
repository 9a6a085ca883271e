/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public interface in a capture run: statements of the
 * engine about its graphs and itself are checked, then recorded.
 */
#include <string.h>

#include "api/api.h"
#include "capture/api/early.h"
#include "capture/capture.h"
#include "capture/record/given.h"
#include "capture/record/constant_hashes.h"
#include "capture/record/graphs.h"

static int not_found(const char *call, const void *exec)
{
	if (exec)
		return md_api_refuse(MD_ERR_NOT_FOUND, "%s: no graph was instantiated as %p", call, exec);
	return md_api_refuse(MD_ERR_NOT_FOUND, "%s: this thread has instantiated no graph, or destroyed it", call);
}

MD_EXPORT int medusa_graph_label(void *exec, const char *label, unsigned batch)
{
	struct md_capture_graph *graph;
	struct md_error err = {0};
	if (md_api_check_label(label, &err) != MD_OK)
		return md_api_fail(&err);
	if (!md_capture_enter())
		return md_api_ok();
	md_capture_lock();
	graph = md_capture_graph_meant((CUgraphExec)exec);
	if (graph && md_capture.writer)
		md_capture_graph_label(graph, label, batch);
	md_capture_constants_labelled(graph ? graph->exec : NULL);
	md_capture_unlock();
	md_capture_check_until(NULL);
	md_capture_leave();
	return graph ? md_api_ok() : not_found("medusa_graph_label", exec);
}

MD_EXPORT int medusa_graph_output(void *exec, unsigned index, medusa_deviceptr address, size_t bytes)
{
	struct md_capture_graph *graph;
	struct md_error err = {0};
	bool probed = false;
	if (md_api_check_output(index, address, bytes, &err) != MD_OK)
		return md_api_fail(&err);
	if (!md_capture_enter())
		return md_api_ok();
	md_capture_lock();
	graph = md_capture_graph_meant((CUgraphExec)exec);
	probed = graph && graph->probed;
	if (graph && !probed && md_capture.writer &&
	    !md_capture_graph_output(graph, (struct md_capture_output){index, address, bytes}))
		md_capture_trouble("out of memory for output %u of a graph", index);
	md_capture_unlock();
	md_capture_leave();
	if (probed)
		return md_api_refuse(MD_ERR_INVALID,
				     "medusa_graph_output: the graph has been launched or tested already");
	return graph ? md_api_ok() : not_found("medusa_graph_output", exec);
}

MD_EXPORT int medusa_graph_note(void *exec, const void *data, size_t bytes)
{
	struct md_capture_graph *graph;
	struct md_error err = {0};
	if (md_api_check_note(data, bytes, &err) != MD_OK)
		return md_api_fail(&err);
	if (!md_capture_enter())
		return md_api_ok();
	md_capture_lock();
	graph = md_capture_graph_meant((CUgraphExec)exec);
	if (graph && md_capture.writer)
		md_capture_graph_note(graph, bytes ? data : "", bytes);
	md_capture_unlock();
	md_capture_leave();
	return graph ? md_api_ok() : not_found("medusa_graph_note", exec);
}

MD_EXPORT int medusa_graph_refuse(void *exec, const char *why)
{
	struct md_capture_graph *graph;
	struct md_error err = {0};
	if (md_api_check_refuse(why, &err) != MD_OK)
		return md_api_fail(&err);
	if (!md_capture_enter())
		return md_api_ok();
	md_capture_lock();
	graph = md_capture_graph_meant((CUgraphExec)exec);
	if (graph && md_capture.writer)
		md_capture_graph_refuse(graph, why);
	md_capture_unlock();
	md_capture_leave();
	return graph ? md_api_ok() : not_found("medusa_graph_refuse", exec);
}

MD_EXPORT int medusa_graph_scratch(medusa_deviceptr address, size_t bytes)
{
	struct md_error err = {0};
	if (md_api_check_memory("medusa_graph_scratch", address, bytes, &err) != MD_OK)
		return md_api_fail(&err);
	if (!md_capture_enter())
		return md_api_ok();
	md_capture_lock();
	if (md_capture.writer)
		md_capture_scratch(address, bytes);
	md_capture_unlock();
	md_capture_leave();
	return md_api_ok();
}

MD_EXPORT int medusa_fingerprint_add(const char *name, const char *value)
{
	struct md_error err = {0};
	if (md_api_check_fact(name, value, &err) != MD_OK)
		return md_api_fail(&err);
	if (md_capture_said_early(MD_EARLY_FACT, name, value, 0) || !md_capture_enter())
		return md_api_ok();
	md_capture_lock();
	if (md_capture.writer)
		md_trace_put_fact(md_capture.writer, md_capture_next(), name, value);
	md_capture_unlock();
	md_capture_leave();
	return md_api_ok();
}

/* ---- what only a restore knows ---- */

MD_EXPORT int medusa_graph_output_get(const char *label, unsigned batch, unsigned index, medusa_deviceptr *address,
				      size_t *bytes)
{
	struct md_error err = {0};
	if (md_api_check_output_get(label, address, bytes, &err) != MD_OK)
		return md_api_fail(&err);
	return md_api_refuse(MD_ERR_NOT_FOUND, "output %u of graph (%s, %u): this run captures, nothing is restored",
			     index, label, batch);
}

MD_EXPORT int medusa_graph_note_get(const char *label, unsigned batch, const void **data, size_t *bytes)
{
	struct md_error err = {0};
	if (md_api_check_note_get(label, data, bytes, &err) != MD_OK)
		return md_api_fail(&err);
	return md_api_refuse(MD_ERR_NOT_FOUND, "note of graph (%s, %u): this run captures, nothing is restored", label,
			     batch);
}
