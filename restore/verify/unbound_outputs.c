/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs in unbound memory, in verify mode: the live graph's bytes against those of its restored twin. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "restore/restore.h"
#include "restore/restore_outputs.h"
#include "restore/verify/buffers.h"
#include "restore/verify/handed_copies.h"
#include "restore/verify/unbound_outputs.h"

static const char *binding_of(const struct md_restore *r, const struct md_artifact_output *output)
{
	const struct md_artifact_alloc *alloc = &r->artifact.allocs[output->alloc];
	return alloc->class == MD_CLASS_BOUND ? r->artifact.bindings[alloc->binding].name : NULL;
}

/* A bound output must be bound to the same bytes here, because both graphs write the engine's own memory. */
static enum md_status match_bound(struct md_restore *r, uint32_t index, const struct md_artifact_output *stored,
				  const struct md_live_output *live, struct md_error *err)
{
	uint32_t binding = r->artifact.allocs[stored->alloc].binding;
	pthread_mutex_lock(&md_restore_lock);
	uint64_t address = r->bound[r->binding_of[binding]].address;
	pthread_mutex_unlock(&md_restore_lock);
	if (address + stored->offset == live->address)
		return MD_OK;
	return md_error_set(err, MD_ERR_MISMATCH,
			    "output %u: artifact has it in binding \"%s\" at offset %llu, the live graph elsewhere",
			    index, r->artifact.bindings[binding].name, (unsigned long long)stored->offset);
}

enum md_status md_verify_outputs_match(struct md_restore *r, const struct md_artifact_graph *stored,
				       const struct md_live_output *live, uint32_t count, struct md_error *err)
{
	uint32_t most = stored->output_count > count ? stored->output_count : count;
	for (uint32_t i = 0; i < most; i++) {
		uint64_t there = i < stored->output_count ? stored->outputs[i].size : 0;
		uint64_t here = i < count ? live[i].size : 0;
		if (there && !here)
			return md_error_set(err, MD_ERR_MISMATCH,
					    "output %u: artifact has %llu bytes, the live graph has no such output", i,
					    (unsigned long long)there);
		if (here && !there)
			return md_error_set(err, MD_ERR_MISMATCH,
					    "output %u: artifact has none, the live graph has %llu bytes", i,
					    (unsigned long long)here);
		if (there != here)
			return md_error_set(err, MD_ERR_MISMATCH,
					    "output %u: artifact has %llu bytes, the live graph %llu", i,
					    (unsigned long long)there, (unsigned long long)here);
		if (here && binding_of(r, &stored->outputs[i]))
			MD_FORWARD(match_bound(r, i, &stored->outputs[i], &live[i], err));
	}
	return MD_OK;
}

enum md_status md_verify_outputs_init(struct md_verify_outputs *o, const struct md_live_output *live, uint32_t count,
				      const struct md_verify_handed *handed, struct md_error *err)
{
	o->live = calloc(count + handed->count + (size_t)1, sizeof(*o->live));
	if (!o->live)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a copy of %u outputs", count);
	if (count)
		memcpy(o->live, live, count * sizeof(*live));
	for (uint32_t i = 0; i < handed->count; i++)
		o->live[count + i] = (struct md_live_output){handed->parts[i].live, handed->parts[i].stored->size, 0};
	o->declared = count;
	o->count = count + handed->count;
	o->handed = handed;
	return MD_OK;
}

uint64_t md_verify_output_address(const struct md_verify_outputs *o, const struct md_restore *r,
				  const struct md_artifact_graph *stored, uint32_t index)
{
	return index < o->declared ? md_restore_output_address(r, &stored->outputs[index])
				   : md_verify_part_address(&o->handed->parts[index - o->declared], r);
}

static bool is_bound(const struct md_verify_outputs *o, const struct md_restore *r,
		     const struct md_artifact_graph *stored, uint32_t index)
{
	return index < o->declared && binding_of(r, &stored->outputs[index]);
}

/* ---- bytes ---- */

enum md_status md_verify_outputs_take(struct md_verify_outputs *o, CUstream stream, struct md_error *err)
{
	o->bytes = calloc(o->count + 1u, sizeof(*o->bytes));
	o->scratch = malloc(MD_VERIFY_CHUNK);
	bool room = o->bytes && o->scratch;
	for (uint32_t i = 0; room && i < o->count; i++) {
		if (!o->live[i].size)
			continue;
		room = (o->bytes[i] = malloc(o->live[i].size)) != NULL;
		if (room)
			MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, o->bytes[i], o->live[i].address,
						o->live[i].size, stream));
	}
	MD_FORWARD(md_cuda_call(err, cuStreamSynchronize, stream));
	return room ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a copy of %u outputs", o->count);
}

void md_verify_outputs_finish(struct md_verify_outputs *o)
{
	for (uint32_t i = 0; o->bytes && i < o->count; i++)
		free(o->bytes[i]);
	free(o->bytes);
	free(o->scratch);
	free(o->live);
	o->live = NULL;
	o->count = o->declared = 0;
	o->bytes = NULL;
	o->scratch = NULL;
}

static void differs(const struct md_verify_outputs *o, uint32_t index, uint64_t base, const uint8_t *live,
		    const uint8_t *now, size_t size, struct md_error *err)
{
	char here[9] = "", there[9] = "", what[64];
	size_t at = 0;
	while (live[at] == now[at])
		at++;
	at &= ~(size_t)3;
	for (size_t i = 0; i < 4 && at + i < size; i++) {
		snprintf(here + 2 * i, 3, "%02x", live[at + i]);
		snprintf(there + 2 * i, 3, "%02x", now[at + i]);
	}
	if (index < o->declared)
		snprintf(what, sizeof(what), "output %u", index);
	else
		snprintf(what, sizeof(what), "memory %u that is handed on", index - o->declared);
	md_error_set(err, MD_ERR_MISMATCH, "%s differs at offset %llu: live %s, restored %s", what,
		     (unsigned long long)(base + at), here, there);
}

static enum md_status compare_output(const struct md_verify_outputs *o, uint32_t index, CUdeviceptr restored,
				     CUstream stream, struct md_error *first, struct md_error *err)
{
	uint64_t size = o->live[index].size;
	for (uint64_t at = 0; at < size;) {
		size_t part = size - at < MD_VERIFY_CHUNK ? (size_t)(size - at) : MD_VERIFY_CHUNK;
		MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, o->scratch, restored + at, part, stream));
		MD_FORWARD(md_cuda_call(err, cuStreamSynchronize, stream));
		const uint8_t *live = o->bytes[index] + at;
		if (!first->status && memcmp(o->scratch, live, part))
			differs(o, index, at, live, o->scratch, part, first);
		if (o->doubt)
			md_verify_doubt_add(o->doubt, index | MD_VERIFY_OUTPUT, o->live[index].type, at, live,
					    o->scratch, part);
		at += part;
	}
	return MD_OK;
}

enum md_status md_verify_outputs_compare(const struct md_verify_outputs *o, const struct md_restore *r,
					 const struct md_artifact_graph *stored, CUstream stream, uint64_t *compared,
					 struct md_error *err)
{
	struct md_error first = {0};
	for (uint32_t i = 0; i < o->count; i++) {
		if (!o->live[i].size)
			continue;
		CUdeviceptr restored = md_verify_output_address(o, r, stored, i);
		MD_FORWARD(compare_output(o, i, restored, stream, &first, err));
		/* a bound output is counted with its buffer */
		*compared += is_bound(o, r, stored, i) ? 0 : o->live[i].size;
	}
	return first.status ? md_error_set(err, first.status, "%s", first.message) : MD_OK;
}
