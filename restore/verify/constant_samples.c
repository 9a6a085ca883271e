/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of constant buffers in verify mode, because no graph may write these. */
#include <stdlib.h>

#include "restore/restore.h"
#include "restore/verify/buffers.h"
#include "restore/verify/constant_samples.h"

#define CONSTANT_HEAD (1u << 20)
#define CONSTANT_PIECE 4096u
#define CONSTANT_PIECES 64u

/* The first MiB, and pieces at even distances over the rest. */
static enum md_status sample_constant(struct md_verify_memory *m, const struct md_verify_buffer *b, CUstream stream,
				      struct md_hash *out, struct md_error *err)
{
	size_t used = b->size < CONSTANT_HEAD ? (size_t)b->size : CONSTANT_HEAD;
	uint64_t rest = b->size - used;
	MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, m->device.now, b->address, used, stream));
	for (uint32_t i = 0; i < CONSTANT_PIECES && rest >= CONSTANT_PIECE; i++) {
		uint64_t at = CONSTANT_HEAD + (rest - CONSTANT_PIECE) / (CONSTANT_PIECES - 1) * i;
		MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, m->device.now + used, b->address + at,
					CONSTANT_PIECE, stream));
		used += CONSTANT_PIECE;
	}
	MD_FORWARD(md_cuda_call(err, cuStreamSynchronize, stream));
	*out = md_hash_bytes(m->device.now, used);
	return MD_OK;
}

enum md_status md_verify_constants_check(struct md_verify_memory *m, CUstream stream, struct md_error *err)
{
	bool first = !m->constant_hashes;
	if (first)
		m->constant_hashes = calloc(m->constant_count + 1u, sizeof(*m->constant_hashes));
	if (!m->constant_hashes)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the samples of %u buffers",
				    m->constant_count);
	for (uint32_t i = 0; i < m->constant_count; i++) {
		struct md_hash now;
		MD_FORWARD(sample_constant(m, &m->constants[i], stream, &now, err));
		if (first)
			m->constant_hashes[i] = now;
		else if (!md_hash_equal(&now, &m->constant_hashes[i]))
			return md_error_set(err, MD_ERR_MISMATCH, "constant buffer \"%s\" was written",
					    m->constants[i].name);
	}
	return MD_OK;
}
