/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a trace that says which addresses in private memory of graphs a kernel was given outside of graphs. */
#include <inttypes.h>

#include "format/trace_records.h"

void md_trace_put_given(struct md_trace_writer *w, uint64_t sequence, const struct md_trace_given *given)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_GIVEN, sequence, 3, &p))
		return;
	msgpack_pack_uint32(&p, given->kernel);
	msgpack_pack_uint64(&p, given->address);
	msgpack_pack_uint64(&p, given->size);
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
	if (!in->failed && given->kernel >= trace->kernel_count && (given->kernel != MD_NONE || !given->size))
		return md_error_set(err, MD_ERR_CORRUPT, "kernel %" PRIu32 " of %" PRIu32, given->kernel,
				    trace->kernel_count);
	if (!in->failed && given->address + given->size < given->address)
		return md_error_set(err, MD_ERR_CORRUPT, "address 0x%" PRIx64 ", %" PRIu64 " bytes", given->address,
				    given->size);
	return MD_OK;
}
