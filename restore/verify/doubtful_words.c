/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Doubtful words in verify mode: replayed as zero and as a pointer to memory of no meaning. Those that are the same bytes
 * of the same kernel's parameters (in a model: one for each layer) are tried together, and one at a time if that fails.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/note.h"
#include "driver/device_pieces.h"
#include "driver/device_session.h"
#include "restore/restore.h"
#include "restore/verify/doubtful_words.h"
#include "restore/verify/report_lines.h"

#define SCRATCH_BYTE 0xa5
#define SCRATCH_LEAST (1ull << 20) /* a multiple of MD_DEVICE_GRAIN */
#define SCRATCH_MOST (64ull << 20)

struct words {
	struct md_restore *r;
	struct md_restore_graph *graph;
	const struct md_verify_replays *replays;
	struct md_note_of of;
	CUdeviceptr scratch;
	uint64_t scratch_size; /* a multiple of SCRATCH_LEAST, so many of which follow that no word points to */
};

/*
 * The size of the memory that the words point to instead: as much as lies behind any of them, so that a kernel that
 * reads all of it reads no foreign memory.
 */
static uint64_t reach(const struct words *w)
{
	const struct md_artifact_graph *stored = w->graph->stored;
	uint64_t most = SCRATCH_LEAST;
	for (uint32_t i = 0; i < stored->doubtful_count; i++) {
		uint32_t alloc = stored->doubtful[i].alloc;
		uint64_t size = alloc == MD_NONE ? 0 : w->r->artifact.allocs[alloc].size;
		most = size > most ? size : most;
	}
	most = most < SCRATCH_MOST ? most : SCRATCH_MOST;
	return (most + SCRATCH_LEAST - 1) / SCRATCH_LEAST * SCRATCH_LEAST;
}

static enum md_status take_scratch(struct words *w, struct md_error *err)
{
	w->scratch_size = reach(w);
	return md_cuda_call(err, cuMemAlloc_v2, &w->scratch, w->scratch_size + SCRATCH_LEAST);
}

static enum md_status fill_scratch(struct words *w, struct md_error *err)
{
	return md_cuda_call(err, cuMemsetD8Async, w->scratch, SCRATCH_BYTE, w->scratch_size + SCRATCH_LEAST,
			    w->r->stream);
}

static enum md_status find_written_on_host(const struct words *w, bool *written, struct md_error *err)
{
	struct md_device_session *device = w->replays->device;
	for (uint64_t at = 0, size; !*written && at < w->scratch_size; at += size) {
		size = w->scratch_size - at < MD_DEVICE_CHUNK ? w->scratch_size - at : MD_DEVICE_CHUNK;
		MD_FORWARD(md_device_session_read(device, device->now, w->scratch + at, size, err));
		*written = device->now[0] != SCRATCH_BYTE || memcmp(device->now, device->now + 1, size - 1);
	}
	return MD_OK;
}

/* Compares each part with the part behind all of them. */
static enum md_status find_written_on_device(const struct words *w, bool *written, struct md_error *err)
{
	struct md_device_session *device = w->replays->device;
	size_t grains = w->scratch_size / MD_DEVICE_GRAIN;
	md_device_batch_begin(device);
	MD_FORWARD(md_device_differ_begin(device, grains, err));
	for (uint64_t at = 0; at < w->scratch_size; at += SCRATCH_LEAST)
		MD_FORWARD(md_device_batch_differ(device, w->scratch + at, w->scratch + w->scratch_size, SCRATCH_LEAST,
						  at / MD_DEVICE_GRAIN, err));
	MD_FORWARD(md_device_batch_launch(device, err));
	MD_FORWARD(md_device_differ_end(device, grains, err));
	*written = memchr(device->flag_bytes, 1, grains) != NULL;
	return MD_OK;
}

/* A kernel that writes through a word uses it, even if the written bytes are never read. */
static enum md_status check_scratch(const struct words *w, struct md_error *err)
{
	bool written = false;
	if (w->replays->device->pieces)
		MD_FORWARD(find_written_on_device(w, &written, err));
	else
		MD_FORWARD(find_written_on_host(w, &written, err));
	return written ? md_error_set(err, MD_ERR_MISMATCH, "the graph writes there") : MD_OK;
}

/* Replays with one trial. The graph has no trial before and after. */
static enum md_status try(struct words *w, const struct md_trial *trial, const char *what, struct md_error *err)
{
	char text[MD_DOUBTFUL_TEXT + 128];
	enum md_status status = trial->value ? fill_scratch(w, err) : MD_OK;
	snprintf(text, sizeof(text), "%s; replayed with %s instead", what, trial->value ? "other memory" : "zero");
	md_note_begin(&w->of, text);
	w->graph->trial = *trial;
	if (status == MD_OK)
		status = w->replays->compare(w->replays->user, w->graph, trial->value != 0, err);
	w->graph->trial = (struct md_trial){0};
	if (status == MD_OK && trial->value)
		status = check_scratch(w, err);
	if (status == MD_OK)
		return MD_OK;
	struct md_error why = *err;
	return md_error_set(err, MD_ERR_UNPROVABLE, "not proven to be noise: %s: %s", text, why.message);
}

/* Scratch memory comes first: reading through a zero pointer would fault, which no context survives. */
static enum md_status try_both(struct words *w, enum md_trial_of of, uint32_t index, const char *what,
			       struct md_error *err)
{
	const struct md_trial scratch = {.set = true, .of = of, .index = index, .value = w->scratch};
	const struct md_trial zero = {.set = true, .of = of, .index = index};
	MD_FORWARD(try(w, &scratch, what, err));
	return try(w, &zero, what, err);
}

static enum md_status try_one(struct words *w, uint32_t index, struct md_error *err)
{
	char what[MD_DOUBTFUL_TEXT];
	md_doubtful_describe(&w->graph->stored->doubtful[index], what);
	return try_both(w, MD_TRIAL_ONE, index, what, err);
}

/* Of the words that are like this one. *first: none comes before it. */
static uint32_t count_alike(const struct md_artifact_graph *stored, uint32_t index, bool *first)
{
	uint32_t count = 0;
	*first = true;
	for (uint32_t i = 0; i < stored->doubtful_count; i++) {
		if (!md_doubtful_alike(stored, &stored->doubtful[index], &stored->doubtful[i]))
			continue;
		*first &= i >= index;
		count++;
	}
	return count;
}

/* The words that are like this one, the first of them. If they matter, the one that does is named. */
static enum md_status try_alike(struct words *w, uint32_t index, uint32_t count, struct md_error *err)
{
	const struct md_artifact_graph *stored = w->graph->stored;
	char text[MD_DOUBTFUL_TEXT], what[MD_DOUBTFUL_TEXT + 64];
	struct md_error together = {0};
	if (count == 1)
		return try_one(w, index, err);
	md_doubtful_describe(&stored->doubtful[index], text);
	snprintf(what, sizeof(what), "%" PRIu32 " words of one kernel at once, the first: %s", count, text);
	if (try_both(w, MD_TRIAL_ALIKE, index, what, &together) == MD_OK)
		return MD_OK;
	for (uint32_t i = index; i < stored->doubtful_count; i++)
		if (md_doubtful_alike(stored, &stored->doubtful[index], &stored->doubtful[i]))
			MD_FORWARD(try_one(w, i, err));
	return md_error_set(err, together.status, "%s", together.message);
}

static enum md_status try_all(struct words *w, struct md_error *err)
{
	const struct md_artifact_graph *stored = w->graph->stored;
	char what[MD_DOUBTFUL_TEXT];
	uint32_t count = 0;
	bool first;
	for (uint32_t i = 0; i < stored->doubtful_count; i++) {
		count = count_alike(stored, i, &first);
		if (first)
			MD_FORWARD(try_alike(w, i, count, err));
	}
	if (count == stored->doubtful_count) /* they were tried together */
		return MD_OK;
	snprintf(what, sizeof(what), "all %u doubtful words at once", stored->doubtful_count);
	return try_both(w, MD_TRIAL_ALL, 0, what, err);
}

enum md_status md_verify_words_prove(struct md_restore *r, struct md_restore_graph *graph,
				     const struct md_verify_replays *replays, struct md_error *err)
{
	const struct md_artifact_graph *stored = graph->stored;
	struct words w = {
	    .r = r, .graph = graph, .replays = replays, .of = {MD_NOTE_PROOF, stored->label, stored->batch, 0}};
	enum md_status status;
	if (!stored->doubtful_count)
		return MD_OK;
	status = take_scratch(&w, err);
	if (status == MD_OK)
		status = try_all(&w, err);
	if (w.scratch)
		md_cuda.cuMemFree_v2(w.scratch);
	md_note_begin(&w.of, "");
	if (status != MD_OK)
		return md_error_set(err, MD_ERR_UNPROVABLE, "%s", err->message);
	for (uint32_t i = 0; i < stored->doubtful_count; i++) {
		char what[MD_DOUBTFUL_TEXT];
		md_doubtful_describe(&stored->doubtful[i], what);
		md_verify_report(stored->label, stored->batch, MD_VERDICT_NOISE, i, what);
	}
	return MD_OK;
}
