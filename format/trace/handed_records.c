/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a trace with unbound memory that one graph, or the engine, writes and another one reads. */
#include <inttypes.h>

#include "format/trace/records.h"

void md_trace_put_handed(struct md_trace_writer *w, uint64_t sequence, const struct md_trace_handed *handed)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_HANDED, sequence, 5, &p))
		return;
	msgpack_pack_uint64(&p, handed->reader);
	msgpack_pack_uint64(&p, handed->writer);
	msgpack_pack_uint64(&p, handed->address);
	msgpack_pack_uint64(&p, handed->size);
	md_pack_text(&p, handed->call);
	md_trace_record_end(w);
}

enum md_status md_trace_get_handed(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				   struct md_error *err)
{
	struct md_trace *trace = build->trace;
	struct md_trace_handed *handed = md_trace_append(build, &trace->handed, &trace->handed_count, sizeof(*handed));
	if (!handed)
		return md_trace_no_room(build, err);
	handed->reader = md_unpack_uint(in);
	handed->writer = md_unpack_uint(in);
	handed->address = md_unpack_uint(in);
	handed->size = md_unpack_uint(in);
	handed->call = md_unpack_text(in, &build->budget, MD_TRACE_TEXT_MAX);
	handed->sequence = sequence;
	if (!in->failed && (!handed->reader || !handed->writer) != (handed->call != NULL))
		return md_error_set(err, MD_ERR_CORRUPT, "from graph %" PRIu64 " to %" PRIu64 ", by %s", handed->writer,
				    handed->reader, handed->call ? "a call" : "no call");
	if (!in->failed && handed->address + handed->size < handed->address)
		return md_error_set(err, MD_ERR_CORRUPT, "address 0x%" PRIx64 ", %" PRIu64 " bytes", handed->address,
				    handed->size);
	return MD_OK;
}
