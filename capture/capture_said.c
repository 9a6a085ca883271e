/* SPDX-License-Identifier: Apache-2.0 */
/* The public interface in a capture run, what the engine says of its graphs and itself: checked, then recorded. */
#include <string.h>

#include "capture/capture.h"
#include "format/artifact.h"
#include "medusa/medusa.h"

#define API __attribute__((visibility("default")))
#define WHY_MAX 1024 /* bytes */

static int not_found(const char *call, const void *exec)
{
	if (exec)
		return md_capture_fail(MEDUSA_ERR_NOT_FOUND, "%s: no graph was instantiated as %p", call, exec);
	return md_capture_fail(MEDUSA_ERR_NOT_FOUND, "%s: this thread has instantiated no graph, or destroyed it",
			       call);
}

API int medusa_graph_label(void *exec, const char *label, unsigned batch)
{
	struct md_capture_graph *graph;

	if (!label || !*label)
		return md_capture_fail(MEDUSA_ERR_INVALID, "medusa_graph_label: needs a label");
	if (!md_capture_enter())
		return md_capture_succeed();
	md_capture_lock();
	graph = md_capture_graph_meant((CUgraphExec)exec);
	if (graph && md_capture.writer)
		md_capture_graph_label(graph, label, batch);
	md_capture_unlock();
	md_capture_check_until(NULL);
	md_capture_leave();
	return graph ? md_capture_succeed() : not_found("medusa_graph_label", exec);
}

API int medusa_graph_output(void *exec, unsigned index, uint64_t address, size_t bytes)
{
	struct md_capture_graph *graph;
	bool probed = false;

	if (index >= MD_OUTPUTS_MAX)
		return md_capture_fail(MEDUSA_ERR_INVALID, "medusa_graph_output: index %u of at most %d", index,
				       MD_OUTPUTS_MAX);
	if (!address || !bytes || bytes > UINT64_MAX - address)
		return md_capture_fail(MEDUSA_ERR_INVALID, "medusa_graph_output: %zu bytes at 0x%llx", bytes,
				       (unsigned long long)address);
	if (!md_capture_enter())
		return md_capture_succeed();
	md_capture_lock();
	graph = md_capture_graph_meant((CUgraphExec)exec);
	probed = graph && graph->probed;
	if (graph && !probed && md_capture.writer &&
	    !md_capture_graph_output(graph, (struct md_capture_output){index, address, bytes}))
		md_capture_trouble("out of memory at output %u of a graph", index);
	md_capture_unlock();
	md_capture_leave();
	if (probed)
		return md_capture_fail(MEDUSA_ERR_INVALID,
				       "medusa_graph_output: the graph has been launched or tested already");
	return graph ? md_capture_succeed() : not_found("medusa_graph_output", exec);
}

API int medusa_graph_note(void *exec, const void *data, size_t bytes)
{
	struct md_capture_graph *graph;

	if (bytes > MD_NOTE_MAX || (bytes && !data))
		return md_capture_fail(MEDUSA_ERR_INVALID, "medusa_graph_note: %zu bytes of at most %u", bytes,
				       MD_NOTE_MAX);
	if (!md_capture_enter())
		return md_capture_succeed();
	md_capture_lock();
	graph = md_capture_graph_meant((CUgraphExec)exec);
	if (graph && md_capture.writer)
		md_capture_graph_note(graph, bytes ? data : "", bytes);
	md_capture_unlock();
	md_capture_leave();
	return graph ? md_capture_succeed() : not_found("medusa_graph_note", exec);
}

API int medusa_graph_refuse(void *exec, const char *why)
{
	struct md_capture_graph *graph;

	if (!why || !*why || strlen(why) > WHY_MAX)
		return md_capture_fail(MEDUSA_ERR_INVALID, "medusa_graph_refuse: needs a reason of at most %d bytes",
				       WHY_MAX);
	if (!md_capture_enter())
		return md_capture_succeed();
	md_capture_lock();
	graph = md_capture_graph_meant((CUgraphExec)exec);
	if (graph && md_capture.writer)
		md_capture_graph_refuse(graph, why);
	md_capture_unlock();
	md_capture_leave();
	return graph ? md_capture_succeed() : not_found("medusa_graph_refuse", exec);
}

API int medusa_fingerprint_add(const char *name, const char *value)
{
	if (!name || !*name || strlen(name) > MD_FACT_NAME_MAX)
		return md_capture_fail(MEDUSA_ERR_INVALID, "medusa_fingerprint_add: needs a name of at most %d bytes",
				       MD_FACT_NAME_MAX);
	if (!value || strlen(value) > MD_FACT_VALUE_MAX)
		return md_capture_fail(MEDUSA_ERR_INVALID,
				       "medusa_fingerprint_add(%s): needs a value of at most %d bytes", name,
				       MD_FACT_VALUE_MAX);
	if (md_capture_said_early(MD_EARLY_FACT, name, value, 0) || !md_capture_enter())
		return md_capture_succeed();
	md_capture_lock();
	if (md_capture.writer)
		md_trace_put_fact(md_capture.writer, md_capture_next(), name, value);
	md_capture_unlock();
	md_capture_leave();
	return md_capture_succeed();
}

/* ---- what only a restore knows ---- */

API int medusa_graph_output_get(const char *label, unsigned batch, unsigned index, uint64_t *address, size_t *bytes)
{
	if (!label || !address || !bytes)
		return md_capture_fail(MEDUSA_ERR_INVALID, "medusa_graph_output_get: needs a label and two places");
	return md_capture_fail(MEDUSA_ERR_NOT_FOUND,
			       "output %u of graph (%s, %u): this run captures, nothing is restored", index, label,
			       batch);
}

API int medusa_graph_note_get(const char *label, unsigned batch, const void **data, size_t *bytes)
{
	if (!label || !data || !bytes)
		return md_capture_fail(MEDUSA_ERR_INVALID, "medusa_graph_note_get: needs a label and two places");
	return md_capture_fail(MEDUSA_ERR_NOT_FOUND, "note of graph (%s, %u): this run captures, nothing is restored",
			       label, batch);
}
