/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of a trace about things that nodes refer to: events
 * that the engine uses, too, tensor maps, and constant bindings.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/trace/records.h"

void md_trace_put_event_use(struct md_trace_writer *w, uint64_t sequence, uint32_t event, const char *call)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_EVENT_USE, sequence, 2, &p))
		return;
	msgpack_pack_uint32(&p, event);
	md_pack_text(&p, call);
	md_trace_record_end(w);
}

enum md_status md_trace_get_event_use(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				      struct md_error *err)
{
	struct md_trace *trace = build->trace;
	struct md_trace_event_use *use =
	    md_trace_append(build, &trace->event_uses, &trace->event_use_count, sizeof(*use));
	(void)sequence;
	if (!use)
		return md_trace_no_room(build, err);
	use->event = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
	use->call = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	if (!use->call)
		md_unpack_fail(in);
	return MD_OK;
}

void md_trace_put_event_name(struct md_trace_writer *w, uint64_t sequence, uint32_t event, const char *name)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_EVENT_NAME, sequence, 2, &p))
		return;
	msgpack_pack_uint32(&p, event);
	md_pack_text(&p, name);
	md_trace_record_end(w);
}

enum md_status md_trace_get_event_name(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				       struct md_error *err)
{
	struct md_trace *trace = build->trace;
	struct md_trace_event_name *named =
	    md_trace_append(build, &trace->event_names, &trace->event_name_count, sizeof(*named));
	(void)sequence;
	if (!named)
		return md_trace_no_room(build, err);
	named->event = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
	named->name = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	if (!named->name)
		md_unpack_fail(in);
	return MD_OK;
}

void md_trace_put_tensor_map(struct md_trace_writer *w, uint64_t sequence, const void *map)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_TENSOR_MAP, sequence, 1, &p))
		return;
	md_pack_bytes(&p, map, MD_TENSOR_MAP_BYTES);
	md_trace_record_end(w);
}

enum md_status md_trace_get_tensor_map(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				       struct md_error *err)
{
	struct md_trace *trace = build->trace;
	struct md_trace_tensor_map *map =
	    md_trace_append(build, &trace->tensor_maps, &trace->tensor_map_count, sizeof(*map));
	size_t size = 0;
	(void)sequence;
	if (!map)
		return md_trace_no_room(build, err);
	const void *bytes = md_unpack_bytes(in, &size);
	if (bytes && size == sizeof(map->bytes))
		memcpy(map->bytes, bytes, size);
	else
		md_unpack_fail(in);
	return MD_OK;
}

void md_trace_put_constant(struct md_trace_writer *w, uint64_t sequence, const char *name, uint64_t address,
			   uint64_t size, const struct md_hash *hash, const char *why)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_CONSTANT, sequence, 5, &p))
		return;
	md_pack_text(&p, name);
	msgpack_pack_uint64(&p, address);
	msgpack_pack_uint64(&p, size);
	if (hash)
		md_pack_bytes(&p, hash->bytes, sizeof(hash->bytes));
	else
		msgpack_pack_nil(&p);
	md_pack_text(&p, why);
	md_trace_record_end(w);
}

enum md_status md_trace_get_constant(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				     struct md_error *err)
{
	struct md_trace *trace = build->trace;
	struct md_trace_constant *constant =
	    md_trace_append(build, &trace->constants, &trace->constant_count, sizeof(*constant));
	size_t size = 0;
	if (!constant)
		return md_trace_no_room(build, err);
	constant->sequence = sequence;
	constant->name = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	constant->address = md_unpack_uint(in);
	constant->size = md_unpack_uint(in);
	const void *hash = md_unpack_bytes(in, &size);
	constant->known = hash != NULL;
	if (hash && size == sizeof(constant->hash.bytes))
		memcpy(constant->hash.bytes, hash, size);
	else if (hash)
		md_unpack_fail(in);
	constant->why = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	if (!constant->name)
		md_unpack_fail(in);
	return MD_OK;
}
