/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of a trace with statements of the engine: outputs, notes and refusals of graphs, and facts; also the
 * arguments with which it was started.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/secret.h"
#include "format/artifact/artifact.h"
#include "format/trace/records.h"

/* These records come behind their graph, because the engine can only speak of a graph that it has made. */
static struct md_trace_graph *graph_of(struct md_trace_build *build, uint64_t id, struct md_error *err)
{
	uint64_t index;
	if (md_map_get(&build->graphs, id, &index))
		return &build->trace->graphs[index];
	md_error_set(err, MD_ERR_CORRUPT, "no graph %" PRIu64 " comes before it", id);
	return NULL;
}

/* ---- outputs ---- */

void md_trace_put_output(struct md_trace_writer *w, uint64_t sequence, uint64_t graph, uint32_t index, uint64_t address,
			 uint64_t size)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_OUTPUT, sequence, 4, &p))
		return;
	msgpack_pack_uint64(&p, graph);
	msgpack_pack_uint32(&p, index);
	msgpack_pack_uint64(&p, address);
	msgpack_pack_uint64(&p, size);
	md_trace_record_end(w);
}

static enum md_status set_output(struct md_trace_build *build, struct md_trace_graph *graph, uint32_t index,
				 struct md_trace_output output, struct md_error *err)
{
	while (graph->output_count <= index)
		if (!md_trace_append(build, &graph->outputs, &graph->output_count, sizeof(*graph->outputs)))
			return md_trace_no_room(build, err);
	graph->outputs[index] = output;
	return MD_OK;
}

enum md_status md_trace_get_output(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				   struct md_error *err)
{
	uint64_t id = md_unpack_uint(in), index = md_unpack_uint(in);
	struct md_trace_output output = {.address = md_unpack_uint(in)};
	(void)sequence;
	output.size = md_unpack_uint(in);
	if (in->failed)
		return MD_OK;
	struct md_trace_graph *graph = graph_of(build, id, err);
	if (!graph)
		return err->status;
	if (index >= MD_OUTPUTS_MAX)
		return md_error_set(err, MD_ERR_CORRUPT, "index %" PRIu64 " of at most %d", index, MD_OUTPUTS_MAX);
	if (!output.size || output.address + output.size < output.address)
		return md_error_set(err, MD_ERR_CORRUPT, "%" PRIu64 " bytes at 0x%" PRIx64, output.size,
				    output.address);
	return set_output(build, graph, (uint32_t)index, output, err);
}

/* ---- notes ---- */

void md_trace_put_note(struct md_trace_writer *w, uint64_t sequence, uint64_t graph, const void *data, uint64_t size)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_NOTE, sequence, 2, &p))
		return;
	msgpack_pack_uint64(&p, graph);
	md_pack_bytes(&p, data, size);
	md_trace_record_end(w);
}

enum md_status md_trace_get_note(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				 struct md_error *err)
{
	uint64_t id = md_unpack_uint(in), size = 0;
	MD_AUTO_FREE uint8_t *data = md_unpack_blob(in, &build->budget, &size);
	(void)sequence;
	if (!data)
		md_unpack_fail(in);
	if (in->failed)
		return MD_OK;
	struct md_trace_graph *graph = graph_of(build, id, err);
	if (!graph)
		return err->status;
	if (size > MD_NOTE_MAX)
		return md_error_set(err, MD_ERR_CORRUPT, "%" PRIu64 " bytes of at most %u", size, MD_NOTE_MAX);
	free(graph->note);
	graph->note = size ? md_steal_ptr(&data) : NULL;
	graph->note_size = size;
	return MD_OK;
}

/* ---- refusals ---- */

void md_trace_put_refusal(struct md_trace_writer *w, uint64_t sequence, uint64_t graph, const char *why)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_REFUSAL, sequence, 2, &p))
		return;
	msgpack_pack_uint64(&p, graph);
	md_pack_text(&p, why);
	md_trace_record_end(w);
}

/* The first reason stays. */
enum md_status md_trace_get_refusal(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				    struct md_error *err)
{
	static const char by[] = "refused by the engine: ";
	uint64_t id = md_unpack_uint(in);
	MD_AUTO_FREE char *why = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	(void)sequence;
	if (!why)
		md_unpack_fail(in);
	if (in->failed)
		return MD_OK;
	struct md_trace_graph *graph = graph_of(build, id, err);
	if (!graph)
		return err->status;
	if (graph->refused)
		return MD_OK;
	size_t room = sizeof(by) + strlen(why);
	graph->refused = md_budget_alloc(&build->budget, room, 1);
	if (!graph->refused)
		return md_trace_no_room(build, err);
	snprintf(graph->refused, room, "%s%s", by, why);
	return MD_OK;
}

/* ---- tolerances ---- */

void md_trace_put_tolerance(struct md_trace_writer *w, uint64_t sequence, uint64_t graph,
			    const struct md_tolerance *tolerance)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_TOLERANCE, sequence, 3, &p))
		return;
	msgpack_pack_uint64(&p, graph);
	msgpack_pack_uint64(&p, tolerance->ulps);
	msgpack_pack_uint32(&p, tolerance->type);
	md_trace_record_end(w);
}

enum md_status md_trace_get_tolerance(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				      struct md_error *err)
{
	uint64_t id = md_unpack_uint(in), ulps = md_unpack_uint(in), type = md_unpack_uint(in);
	(void)sequence;
	if (in->failed)
		return MD_OK;
	struct md_trace_graph *graph = graph_of(build, id, err);
	if (!graph)
		return err->status;
	if (ulps > MD_TOLERANCE_ULPS_MAX || type < MD_ELEMENT_F32 || type >= MD_ELEMENT_TYPES)
		return md_error_set(err, MD_ERR_CORRUPT, "%" PRIu64 " ULP of type %" PRIu64, ulps, type);
	graph->tolerance = (struct md_tolerance){true, ulps, (enum md_element_type)type};
	return MD_OK;
}

/* ---- facts ---- */

void md_trace_put_fact(struct md_trace_writer *w, uint64_t sequence, const char *name, const char *value)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_FACT, sequence, 2, &p))
		return;
	md_pack_text(&p, name);
	md_pack_text(&p, value);
	md_trace_record_end(w);
}

enum md_status md_trace_get_fact(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				 struct md_error *err)
{
	MD_AUTO_FREE char *name = md_unpack_text(in, &build->budget, MD_FACT_NAME_MAX);
	MD_AUTO_FREE char *value = md_unpack_text(in, &build->budget, MD_FACT_VALUE_MAX);
	(void)sequence;
	if (!name || !value)
		md_unpack_fail(in);
	if (in->failed)
		return MD_OK;
	if (!*name)
		return md_error_set(err, MD_ERR_CORRUPT, "no name");
	if (build->trace->fingerprint.fact_count >= MD_FACTS_MAX)
		return md_error_set(err, MD_ERR_CORRUPT, "more than %d facts", MD_FACTS_MAX);
	return md_fingerprint_set_fact(&build->trace->fingerprint, name, value, err);
}

/* ---- arguments ---- */

void md_trace_put_arguments(struct md_trace_writer *w, const struct md_argument_list *arguments)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_ARGUMENTS, 0, 1, &p))
		return;
	msgpack_pack_array(&p, arguments->count);
	for (uint32_t i = 0; i < arguments->count; i++)
		md_pack_text(&p, arguments->items[i].text);
	md_trace_record_end(w);
}

enum md_status md_trace_get_arguments(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				      struct md_error *err)
{
	struct md_argument_list *arguments = &build->trace->fingerprint.arguments;
	uint32_t count = md_unpack_array(in);
	(void)sequence;
	if (arguments->count)
		return md_error_set(err, MD_ERR_CORRUPT, "appears twice");
	if (count > MD_ARGUMENTS_MAX)
		return md_error_set(err, MD_ERR_CORRUPT, "%u arguments, at most %d", count, MD_ARGUMENTS_MAX);
	for (uint32_t i = 0; i < count && !in->failed; i++) {
		MD_AUTO_FREE char *text = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
		if (!text)
			md_unpack_fail(in);
		else if (!md_arguments_add(arguments, text))
			return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for an argument");
	}
	if (!md_secret_hide_arguments(arguments)) /* an earlier version has written them as they were */
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for arguments");
	return MD_OK;
}
