/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences of allocations: their records in a trace, and the checks of those in an artifact. */
#include <inttypes.h>

#include "format/artifact/sections.h"
#include "format/trace/records.h"

void md_trace_put_request(struct md_trace_writer *w, uint64_t sequence, const struct md_sequence_request *request)
{
	msgpack_packer p;
	if (!md_trace_record_begin(w, MD_RECORD_REQUEST, sequence, 4, &p))
		return;
	msgpack_pack_uint32(&p, request->family);
	msgpack_pack_uint64(&p, request->size);
	msgpack_pack_uint32(&p, request->below);
	msgpack_pack_uint32(&p, request->freed);
	md_trace_record_end(w);
}

/* Rules for each request: it refers to an earlier one, and is freed after it was made. */
static enum md_status check_request(const struct md_sequence_request *request, uint32_t index, struct md_error *err)
{
	if (index >= MD_SEQUENCE_MAX)
		return md_error_set(err, MD_ERR_CORRUPT, "more than %u requests", MD_SEQUENCE_MAX);
	if (request->family < MD_ALLOC_DEVICE || request->family >= MD_SEQUENCE_FAMILIES || !request->size)
		return md_error_set(err, MD_ERR_CORRUPT, "request %u: %" PRIu64 " bytes of family %u", index,
				    request->size, request->family);
	if (request->below != MD_SEQUENCE_NONE && request->below >= index)
		return md_error_set(err, MD_ERR_CORRUPT, "request %u: lies above request %u, which is no earlier one",
				    index, request->below);
	if (request->freed <= index)
		return md_error_set(err, MD_ERR_CORRUPT, "request %u: freed when %u had been made", index,
				    request->freed);
	return MD_OK;
}

enum md_status md_trace_get_request(struct md_trace_build *build, uint64_t sequence, struct md_reader *in,
				    struct md_error *err)
{
	struct md_trace *trace = build->trace;
	struct md_sequence_request *request =
	    md_trace_append(build, &trace->requests, &trace->request_count, sizeof(*request));
	(void)sequence;
	if (!request)
		return md_trace_no_room(build, err);
	request->family = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
	request->size = md_unpack_uint(in);
	request->below = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
	request->freed = (uint32_t)md_unpack_uint_max(in, UINT32_MAX);
	if (in->failed)
		return MD_OK;
	return check_request(request, trace->request_count - 1, err);
}

/* A binding by sequence names a request of the same size that was live when the engine asked for a graph. */
static enum md_status check_named(const struct md_artifact *artifact, const struct md_binding *binding,
				  struct md_error *err)
{
	size_t index;
	if (!artifact->request_count || !md_sequence_index(binding->name, &index))
		return MD_OK;
	if (index < artifact->request_count && artifact->requests[index].size == binding->size &&
	    artifact->requests[index].freed == MD_SEQUENCE_NONE)
		return MD_OK;
	return md_error_set(err, MD_ERR_CORRUPT, "binding %.64s: no request of %" PRIu64 " bytes that was kept",
			    binding->name, binding->size);
}

enum md_status md_sequence_check(const struct md_artifact *artifact, struct md_error *err)
{
	for (uint32_t i = 0; i < artifact->request_count; i++) {
		MD_FORWARD(check_request(&artifact->requests[i], i, err));
		if (artifact->requests[i].freed != MD_SEQUENCE_NONE &&
		    artifact->requests[i].freed > artifact->request_count)
			return md_error_set(err, MD_ERR_CORRUPT, "request %u: freed when %u of %u had been made", i,
					    artifact->requests[i].freed, artifact->request_count);
	}
	for (uint32_t i = 0; i < artifact->binding_count; i++)
		MD_FORWARD(check_named(artifact, &artifact->bindings[i], err));
	return MD_OK;
}
