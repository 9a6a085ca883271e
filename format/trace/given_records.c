/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of a trace with addresses in private memory of graphs that kernels outside of graphs are given, and with
 * memory that only graphs use.
 */
#include <inttypes.h>

#include "format/trace/records.h"

#define FIELDS 3      /* fields that every record has */
#define FIELDS_FULL 5 /* fields of a record with the word's place and the statement that only graphs use the memory */

void md_trace_put_given(struct md_trace_writer *w, uint64_t sequence, const struct md_trace_given *given)
{
	bool full = given->offset != MD_NONE;
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_GIVEN, sequence, full ? FIELDS_FULL : FIELDS, &p))
		return;
	msgpack_pack_uint32(&p, given->kernel);
	msgpack_pack_uint64(&p, given->address);
	msgpack_pack_uint64(&p, given->size);
	if (full) {
		msgpack_pack_uint32(&p, given->offset);
		msgpack_pack_uint32(&p, given->scratch);
	}
	md_trace_record_end(w);
}

enum md_status md_trace_get_given(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				  struct md_error *err)
{
	struct md_trace *trace = build->trace;
	struct md_trace_given *given = md_trace_append(build, &trace->given, &trace->given_count, sizeof(*given));
	if (!given)
		return md_trace_no_room(build, err);
	given->sequence = sequence;
	given->kernel = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
	given->address = md_unpack_uint(in);
	given->size = md_unpack_uint(in);
	given->offset = MD_NONE;
	if (build->extra >= FIELDS_FULL - FIELDS) {
		given->offset = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
		given->scratch = md_unpack_uint_max(in, 1);
		build->extra -= FIELDS_FULL - FIELDS;
	}
	if (!in->failed && given->kernel >= trace->kernel_count && (given->kernel != MD_NONE || !given->size))
		return md_error_set(err, MD_ERR_CORRUPT, "kernel %" PRIu32 " of %" PRIu32, given->kernel,
				    trace->kernel_count);
	if (!in->failed && given->address + given->size < given->address)
		return md_error_set(err, MD_ERR_CORRUPT, "address 0x%" PRIx64 ", %" PRIu64 " bytes", given->address,
				    given->size);
	return MD_OK;
}

void md_trace_put_scratch(struct md_trace_writer *w, uint64_t sequence, uint64_t address, uint64_t size)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_SCRATCH, sequence, 2, &p))
		return;
	msgpack_pack_uint64(&p, address);
	msgpack_pack_uint64(&p, size);
	md_trace_record_end(w);
}

enum md_status md_trace_get_scratch(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				    struct md_error *err)
{
	struct md_trace *trace = build->trace;
	struct md_trace_scratch *scratch =
	    md_trace_append(build, &trace->scratch, &trace->scratch_count, sizeof(*scratch));
	if (!scratch)
		return md_trace_no_room(build, err);
	scratch->sequence = sequence;
	scratch->address = md_unpack_uint(in);
	scratch->size = md_unpack_uint(in);
	if (!in->failed && scratch->address + scratch->size < scratch->address)
		return md_error_set(err, MD_ERR_CORRUPT, "address 0x%" PRIx64 ", %" PRIu64 " bytes", scratch->address,
				    scratch->size);
	return MD_OK;
}
