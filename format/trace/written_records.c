/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of a trace with unbound memory that a graph writes, and with the memory beside contents that graphs read.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "format/trace/records.h"

/* A range is stored as its distance from the range before, and its size: small numbers. */
void md_trace_put_written(struct md_trace_writer *w, uint64_t sequence, uint64_t graph,
			  const struct md_trace_range *ranges, uint32_t count)
{
	uint64_t end = 0;
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_WRITTEN, sequence, 2, &p))
		return;
	msgpack_pack_uint64(&p, graph);
	msgpack_pack_array(&p, (size_t)count * 2);
	for (uint32_t i = 0; i < count; i++) {
		msgpack_pack_uint64(&p, ranges[i].address - end);
		msgpack_pack_uint64(&p, ranges[i].size);
		end = ranges[i].address + ranges[i].size;
	}
	md_trace_record_end(w);
}

static enum md_status read_range(struct md_reader *in, uint64_t *end, struct md_trace_range *out, struct md_error *err)
{
	uint64_t gap = md_unpack_uint(in), size = md_unpack_uint(in);
	if (in->failed)
		return MD_OK;
	if (gap > UINT64_MAX - *end || !size || size > UINT64_MAX - *end - gap)
		return md_error_set(err, MD_ERR_CORRUPT, "%" PRIu64 " bytes, %" PRIu64 " behind 0x%" PRIx64, size, gap,
				    *end);
	*out = (struct md_trace_range){*end + gap, size};
	*end += gap + size;
	return MD_OK;
}

enum md_status md_trace_get_written(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				    struct md_error *err)
{
	uint64_t id = md_unpack_uint(in), index, end = 0;
	uint32_t count = md_unpack_array(in) / 2;
	(void)sequence;
	if (in->failed)
		return MD_OK;
	if (!md_map_get(&build->graphs, id, &index))
		return md_error_set(err, MD_ERR_CORRUPT, "no graph %" PRIu64 " comes before it", id);
	struct md_trace_graph *graph = &build->trace->graphs[index];
	struct md_trace_range *ranges = md_budget_alloc(&build->budget, count, sizeof(*ranges));
	if (!ranges)
		return md_trace_no_room(build, err);
	free(graph->written);
	graph->written = ranges;
	graph->written_count = count;
	graph->written_known = true;
	for (uint32_t i = 0; i < count; i++)
		MD_FORWARD(read_range(in, &end, &ranges[i], err));
	return MD_OK;
}

void md_trace_put_unread(struct md_trace_writer *w, uint64_t sequence, uint64_t address, uint64_t size,
			 const void *data, bool copied)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_UNREAD, sequence, 4, &p))
		return;
	msgpack_pack_uint64(&p, address);
	msgpack_pack_uint64(&p, size);
	if (data)
		md_pack_bytes(&p, data, size);
	else
		msgpack_pack_nil(&p);
	msgpack_pack_uint32(&p, copied);
	md_trace_record_end(w);
}

enum md_status md_trace_get_unread(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				   struct md_error *err)
{
	struct md_trace *trace = build->trace;
	struct md_trace_unread *unread = md_trace_append(build, &trace->unread, &trace->unread_count, sizeof(*unread));
	uint64_t stored = 0;
	if (!unread)
		return md_trace_no_room(build, err);
	unread->sequence = sequence;
	unread->address = md_unpack_uint(in);
	unread->size = md_unpack_uint(in);
	unread->data = md_unpack_blob(in, &build->budget, &stored);
	unread->copied = md_unpack_uint_max(in, 1);
	if (in->failed)
		return MD_OK;
	if (!unread->size || unread->size > MD_UNREAD_MAX || unread->size > UINT64_MAX - unread->address ||
	    (unread->data && stored != unread->size))
		return md_error_set(err, MD_ERR_CORRUPT, "%" PRIu64 " bytes at 0x%" PRIx64 ", %" PRIu64 " stored",
				    unread->size, unread->address, stored);
	return MD_OK;
}
