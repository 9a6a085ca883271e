/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of constant buffers in verify mode, because no graph may write these. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "restore/restore.h"
#include "restore/verify/buffers.h"
#include "restore/verify/constant_samples.h"

#define CONSTANT_HEAD (1u << 20)
#define CONSTANT_PIECE 4096u
#define CONSTANT_PIECES 64u

/* ---- which bytes ---- */

struct sample {
	uint64_t at[CONSTANT_PIECES + 1], size[CONSTANT_PIECES + 1];
	uint32_t count;
};

/* The first MiB, and pieces at even distances over the rest. */
static void plan(const struct md_verify_buffer *b, struct sample *sample)
{
	uint64_t head = b->size < CONSTANT_HEAD ? b->size : CONSTANT_HEAD, rest = b->size - head;
	sample->at[0] = 0;
	sample->size[0] = head;
	sample->count = 1;
	for (uint32_t i = 0; i < CONSTANT_PIECES && rest >= CONSTANT_PIECE; i++) {
		sample->at[sample->count] = CONSTANT_HEAD + (rest - CONSTANT_PIECE) / (CONSTANT_PIECES - 1) * i;
		sample->size[sample->count++] = CONSTANT_PIECE;
	}
}

/* ---- on the host ---- */

static enum md_status hash_on_host(struct md_verify_memory *m, const struct md_verify_buffer *b, struct md_hash *out,
				   struct md_error *err)
{
	struct md_device_session *device = &m->session.device;
	struct sample sample;
	uint64_t used = 0;
	plan(b, &sample);
	for (uint32_t i = 0; i < sample.count; i++) {
		MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, device->now + used, b->address + sample.at[i],
					sample.size[i], device->stream));
		used += sample.size[i];
	}
	device->moved_bytes += used;
	MD_FORWARD(md_device_session_wait(device, err));
	*out = md_hash_bytes(device->now, used);
	return MD_OK;
}

/* ---- on the device: many buffers in one launch ---- */

struct launch {
	struct md_hash_piece *pieces;
	size_t count;
	struct md_hash_sums *sums; /* of the buffers from `first` on */
	uint32_t first;
};

static bool is_for_device(const struct md_verify_memory *m, const struct md_verify_buffer *b)
{
	return m->session.hasher.function && m->session.hasher.room.room && b->mapped;
}

static enum md_status run(struct md_verify_memory *m, struct launch *launch, uint32_t end, struct md_hash *out,
			  struct md_error *err)
{
	if (launch->count)
		MD_FORWARD(md_hash_kernel_run(&m->session.hasher, m->session.device.stream, &m->session.hasher.room,
					      launch->pieces, launch->count, launch->sums, end - launch->first, err));
	for (uint32_t i = launch->first; i < end; i++) {
		if (is_for_device(m, &m->constants[i]))
			out[i] = md_hash_end(&launch->sums[i - launch->first], m->constants[i].size);
		launch->sums[i - launch->first] = (struct md_hash_sums){0};
	}
	launch->count = 0;
	launch->first = end;
	return MD_OK;
}

static void add(const struct md_verify_buffer *b, uint64_t sum, struct launch *launch)
{
	struct sample sample;
	plan(b, &sample);
	for (uint32_t i = 0; i < sample.count; i++)
		launch->pieces[launch->count++] = (struct md_hash_piece){.address = b->address + sample.at[i],
									 .bytes = sample.size[i],
									 .lane = sample.at[i] / 16,
									 .sums = sum};
}

static enum md_status hash_on_device(struct md_verify_memory *m, struct md_hash *out, struct md_error *err)
{
	MD_AUTO_FREE struct md_hash_piece *pieces = calloc(MD_HASH_PIECES, sizeof(*pieces));
	MD_AUTO_FREE struct md_hash_sums *sums = calloc(MD_HASH_SUMS, sizeof(*sums));
	struct launch launch = {.pieces = pieces, .sums = sums};
	if (!pieces || !sums)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the pieces of a hash");
	for (uint32_t i = 0; i < m->constant_count; i++) {
		if (launch.count + CONSTANT_PIECES + 1 > MD_HASH_PIECES || i - launch.first == MD_HASH_SUMS)
			MD_FORWARD(run(m, &launch, i, out, err));
		if (is_for_device(m, &m->constants[i]))
			add(&m->constants[i], i - launch.first, &launch);
	}
	return run(m, &launch, m->constant_count, out, err);
}

/* ---- both ---- */

static enum md_status hash_all(struct md_verify_memory *m, struct md_hash *out, struct md_error *err)
{
	bool any = false;
	for (uint32_t i = 0; i < m->constant_count; i++) {
		bool on_device = is_for_device(m, &m->constants[i]);
		any |= on_device;
		if (!on_device)
			MD_FORWARD(hash_on_host(m, &m->constants[i], &out[i], err));
	}
	return any ? hash_on_device(m, out, err) : MD_OK;
}

enum md_status md_verify_constants_check(struct md_verify_memory *m, struct md_error *err)
{
	MD_AUTO_FREE struct md_hash *now = calloc(m->constant_count + 1u, sizeof(*now));
	if (!now)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the samples of %u buffers",
				    m->constant_count);
	MD_FORWARD(hash_all(m, now, err));
	for (uint32_t i = 0; m->constant_hashes && i < m->constant_count; i++)
		if (!md_hash_equal(&now[i], &m->constant_hashes[i]))
			return md_error_set(err, MD_ERR_MISMATCH, "constant buffer \"%s\" was written",
					    m->constants[i].name);
	if (!m->constant_hashes)
		m->constant_hashes = md_steal_ptr(&now);
	return MD_OK;
}
