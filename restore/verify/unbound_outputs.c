/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs in unbound memory, in verify mode: the live graph's bytes against those of its restored twin. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "driver/device_hash.h"
#include "driver/device_pieces.h"
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

static size_t grains_of(uint64_t size)
{
	return (size_t)((size + MD_DEVICE_GRAIN - 1) / MD_DEVICE_GRAIN);
}

/* All copies on the device are compared in one launch, so there are at most so many grains of them. */
static void choose_copies(struct md_verify_outputs *o)
{
	uint64_t left = MD_DEVICE_GRAINS - o->handed->grains;
	for (uint32_t i = o->declared; i < o->count; i++)
		o->copies[i] = o->handed->parts[i - o->declared].after;
	for (uint32_t i = 0; o->device->pieces && i < o->declared; i++) {
		const struct md_live_output *output = &o->live[i];
		if (!output->size || output->size > left * MD_DEVICE_GRAIN ||
		    !md_device_is_mapped(output->address, output->size))
			continue;
		o->copies[i] = md_device_session_take(o->device, output->size);
		left -= o->copies[i] ? grains_of(output->size) : 0;
	}
}

static enum md_status take_on_host(struct md_verify_outputs *o, uint32_t index, struct md_error *err)
{
	const struct md_live_output *output = &o->live[index];
	o->bytes[index] = malloc(output->size);
	if (!o->bytes[index])
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a copy of output %u", index);
	return md_device_session_read(o->device, o->bytes[index], output->address, output->size, err);
}

enum md_status md_verify_outputs_take(struct md_verify_outputs *o, struct md_device_session *device,
				      struct md_error *err)
{
	o->bytes = calloc(o->count + 1u, sizeof(*o->bytes));
	o->copies = calloc(o->count + 1u, sizeof(*o->copies));
	o->scratch = malloc(MD_VERIFY_CHUNK);
	o->device = device;
	if (!o->bytes || !o->copies || !o->scratch)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a copy of %u outputs", o->count);
	choose_copies(o);
	md_device_batch_begin(device);
	for (uint32_t i = 0; i < o->count; i++) {
		const struct md_live_output *output = &o->live[i];
		if (o->copies[i])
			MD_FORWARD(md_device_batch_copy(device, o->copies[i], output->address, output->size, err));
		else if (output->size)
			MD_FORWARD(take_on_host(o, i, err));
	}
	return md_device_batch_launch(device, err);
}

void md_verify_outputs_finish(struct md_verify_outputs *o)
{
	for (uint32_t i = 0; o->bytes && i < o->count; i++)
		free(o->bytes[i]);
	free(o->bytes);
	free(o->copies);
	free(o->scratch);
	free(o->live);
	o->live = NULL;
	o->count = o->declared = 0;
	o->bytes = NULL;
	o->copies = NULL;
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

static void note(const struct md_verify_outputs *o, uint32_t index, uint64_t offset, const uint8_t *live,
		 const uint8_t *now, size_t size, struct md_error *first)
{
	if (!first->status && memcmp(now, live, size))
		differs(o, index, offset, live, now, size, first);
	if (o->doubt)
		md_verify_doubt_add(o->doubt, index | MD_VERIFY_OUTPUT, o->live[index].type, offset, live, now, size);
}

static enum md_status compare_on_host(const struct md_verify_outputs *o, uint32_t index, CUdeviceptr restored,
				      struct md_error *first, struct md_error *err)
{
	uint64_t size = o->live[index].size;
	for (uint64_t at = 0, part; at < size; at += part) {
		part = size - at < MD_VERIFY_CHUNK ? size - at : MD_VERIFY_CHUNK;
		MD_FORWARD(md_device_session_read(o->device, o->scratch, restored + at, part, err));
		note(o, index, at, o->bytes[index] + at, o->scratch, (size_t)part, first);
	}
	return MD_OK;
}

/* Bytes that differ are examined in parts of half the staging memory. */
static enum md_status explain(const struct md_verify_outputs *o, uint32_t index, CUdeviceptr restored,
			      const uint8_t *flags, struct md_error *first, struct md_error *err)
{
	const uint64_t size = o->live[index].size, most = MD_DEVICE_CHUNK / 2;
	uint8_t *now = o->device->now, *live = now + most;
	for (uint64_t at = 0, part; at < size; at += part) {
		part = size - at < most ? size - at : most;
		if (!memchr(flags + at / MD_DEVICE_GRAIN, 1, grains_of(part)))
			continue;
		MD_FORWARD(md_device_session_read(o->device, now, restored + at, part, err));
		MD_FORWARD(md_device_session_read(o->device, live, o->copies[index] + at, part, err));
		note(o, index, at, live, now, (size_t)part, first);
	}
	return MD_OK;
}

static enum md_status begin_compare(const struct md_verify_outputs *o, const CUdeviceptr *restored, size_t *flags,
				    struct md_error *err)
{
	*flags = 0;
	md_device_batch_begin(o->device);
	for (uint32_t i = 0; i < o->count; i++)
		*flags += o->copies[i] ? grains_of(o->live[i].size) : 0;
	if (*flags)
		MD_FORWARD(md_device_differ_begin(o->device, *flags, err));
	for (uint32_t i = 0, flag = 0; i < o->count; i++) {
		if (!o->copies[i])
			continue;
		MD_FORWARD(md_device_batch_differ(o->device, restored[i], o->copies[i], o->live[i].size, flag, err));
		flag += (uint32_t)grains_of(o->live[i].size);
	}
	return md_device_batch_launch(o->device, err);
}

static enum md_status compare_all(const struct md_verify_outputs *o, const CUdeviceptr *restored,
				  struct md_error *first, struct md_error *err)
{
	size_t flags = 0, flag = 0;
	MD_FORWARD(begin_compare(o, restored, &flags, err));
	if (flags)
		MD_FORWARD(md_device_differ_end(o->device, flags, err));
	for (uint32_t i = 0; i < o->count; i++) {
		size_t grains = o->copies[i] ? grains_of(o->live[i].size) : 0;
		const uint8_t *own = o->device->flag_bytes + flag;
		flag += grains;
		if (grains && memchr(own, 1, grains))
			MD_FORWARD(explain(o, i, restored[i], own, first, err));
		else if (!grains && o->live[i].size)
			MD_FORWARD(compare_on_host(o, i, restored[i], first, err));
	}
	return MD_OK;
}

enum md_status md_verify_outputs_compare(const struct md_verify_outputs *o, const struct md_restore *r,
					 const struct md_artifact_graph *stored, uint64_t *compared,
					 struct md_error *err)
{
	MD_AUTO_FREE CUdeviceptr *restored = calloc(o->count + 1u, sizeof(*restored));
	struct md_error first = {0};
	if (!restored)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the addresses of %u outputs", o->count);
	for (uint32_t i = 0; i < o->count; i++)
		restored[i] = o->live[i].size ? md_verify_output_address(o, r, stored, i) : 0;
	MD_FORWARD(compare_all(o, restored, &first, err));
	for (uint32_t i = 0; i < o->count; i++) /* a bound output is counted with its buffer */
		*compared += o->live[i].size && !is_bound(o, r, stored, i) ? o->live[i].size : 0;
	return first.status ? md_error_set(err, first.status, "%s", first.message) : MD_OK;
}
