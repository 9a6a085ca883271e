/* SPDX-License-Identifier: Apache-2.0 */
/* The records of a trace about variables of modules: their places and values, and those that engine or replays write. */
#include <inttypes.h>
#include <stdlib.h>

#include "format/trace/records.h"

void md_trace_put_global(struct md_trace_writer *w, uint64_t sequence, uint32_t image, const char *name,
			 uint64_t address, uint64_t size)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_GLOBAL, sequence, 4, &p))
		return;
	msgpack_pack_uint32(&p, image);
	md_pack_text(&p, name);
	msgpack_pack_uint64(&p, address);
	msgpack_pack_uint64(&p, size);
	md_trace_record_end(w);
}

enum md_status md_trace_get_global(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				   struct md_error *err)
{
	struct md_trace *trace = build->trace;
	struct md_trace_global *global = md_trace_append(build, &trace->globals, &trace->global_count, sizeof(*global));
	if (!global)
		return md_trace_no_room(build, err);
	global->sequence = sequence;
	global->image = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
	global->name = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	global->address = md_unpack_uint(in);
	global->size = md_unpack_uint(in);
	if (!global->name || global->image >= trace->image_count)
		md_unpack_fail(in);
	if (!in->failed && (!global->size || global->address + global->size < global->address))
		return md_error_set(err, MD_ERR_CORRUPT, "%" PRIu64 " bytes at 0x%" PRIx64, global->size,
				    global->address);
	return MD_OK;
}

void md_trace_put_replayed(struct md_trace_writer *w, uint64_t sequence, uint32_t image, const char *name,
			   uint64_t graph)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_REPLAYED, sequence, 3, &p))
		return;
	msgpack_pack_uint32(&p, image);
	md_pack_text(&p, name);
	msgpack_pack_uint64(&p, graph);
	md_trace_record_end(w);
}

enum md_status md_trace_get_replayed(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				     struct md_error *err)
{
	struct md_trace *trace = build->trace;
	struct md_trace_replayed *replayed =
	    md_trace_append(build, &trace->replayed, &trace->replayed_count, sizeof(*replayed));
	(void)sequence;
	if (!replayed)
		return md_trace_no_room(build, err);
	replayed->image = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
	replayed->name = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	replayed->graph = md_unpack_uint(in);
	if (!replayed->name || replayed->image >= trace->image_count)
		md_unpack_fail(in);
	return MD_OK;
}

void md_trace_put_variable(struct md_trace_writer *w, uint64_t sequence, uint32_t image, const char *name)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_VARIABLE, sequence, 2, &p))
		return;
	msgpack_pack_uint32(&p, image);
	md_pack_text(&p, name);
	md_trace_record_end(w);
}

enum md_status md_trace_get_variable(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				     struct md_error *err)
{
	struct md_trace *trace = build->trace;
	struct md_trace_variable *variable =
	    md_trace_append(build, &trace->variables, &trace->variable_count, sizeof(*variable));
	(void)sequence;
	if (!variable)
		return md_trace_no_room(build, err);
	variable->image = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
	variable->name = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	if (!variable->name || variable->image >= trace->image_count)
		md_unpack_fail(in);
	return MD_OK;
}

void md_trace_put_value(struct md_trace_writer *w, uint64_t sequence, uint32_t image, const char *name,
			const void *data, uint64_t size)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_VALUE, sequence, 3, &p))
		return;
	msgpack_pack_uint32(&p, image);
	md_pack_text(&p, name);
	md_pack_bytes(&p, data, size);
	md_trace_record_end(w);
}

enum md_status md_trace_get_value(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				  struct md_error *err)
{
	struct md_trace *trace = build->trace;
	struct md_trace_value *value = md_trace_append(build, &trace->values, &trace->value_count, sizeof(*value));
	if (!value)
		return md_trace_no_room(build, err);
	value->sequence = sequence;
	value->image = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
	value->name = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	value->data = md_unpack_blob(in, &build->budget, &value->size);
	if (!value->name || !value->data || value->image >= trace->image_count)
		md_unpack_fail(in);
	return MD_OK;
}

void md_trace_finish_globals(struct md_trace *trace)
{
	for (uint32_t i = 0; i < trace->global_count; i++)
		free(trace->globals[i].name);
	for (uint32_t i = 0; i < trace->replayed_count; i++)
		free(trace->replayed[i].name);
	free(trace->globals);
	free(trace->replayed);
}
