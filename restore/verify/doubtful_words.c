/* SPDX-License-Identifier: Apache-2.0 */
/* Doubtful words in verify mode: replayed as zero and as a pointer to memory of no meaning, one at a time. */
#include <stdio.h>
#include <string.h>

#include "base/note.h"
#include "driver/device_session.h"
#include "restore/restore.h"
#include "restore/verify/doubtful_words.h"
#include "restore/verify/report_lines.h"

#define SCRATCH_BYTE 0xa5
#define SCRATCH_LEAST (1ull << 20)
#define SCRATCH_MOST (64ull << 20)

struct words {
	struct md_restore *r;
	struct md_restore_graph *graph;
	const struct md_verify_replays *replays;
	struct md_note_of of;
	CUdeviceptr scratch;
	uint64_t scratch_size;
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
	return most < SCRATCH_MOST ? most : SCRATCH_MOST;
}

static enum md_status take_scratch(struct words *w, struct md_error *err)
{
	w->scratch_size = reach(w);
	return md_cuda_call(err, cuMemAlloc_v2, &w->scratch, w->scratch_size);
}

static enum md_status fill_scratch(struct words *w, struct md_error *err)
{
	return md_cuda_call(err, cuMemsetD8Async, w->scratch, SCRATCH_BYTE, w->scratch_size, w->r->stream);
}

/* A kernel that writes through a word uses it, even if the written bytes are never read. */
static enum md_status check_scratch(struct words *w, struct md_error *err)
{
	struct md_device_session *device = w->replays->device;
	for (uint64_t at = 0, size; at < w->scratch_size; at += size) {
		size = w->scratch_size - at < MD_DEVICE_CHUNK ? w->scratch_size - at : MD_DEVICE_CHUNK;
		MD_FORWARD(md_device_session_read(device, device->now, w->scratch + at, size, err));
		for (uint64_t i = 0; i < size; i++)
			if (device->now[i] != SCRATCH_BYTE)
				return md_error_set(err, MD_ERR_MISMATCH, "the graph writes there");
	}
	return MD_OK;
}

/* Replays with one trial. The graph has no trial before and after. */
static enum md_status try(struct words *w, const struct md_trial *trial, const char *what, struct md_error *err)
{
	char text[MD_DOUBTFUL_TEXT + 64];
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
static enum md_status try_both(struct words *w, uint32_t index, bool all, const char *what, struct md_error *err)
{
	const struct md_trial scratch = {.set = true, .all = all, .index = index, .value = w->scratch};
	const struct md_trial zero = {.set = true, .all = all, .index = index};
	MD_FORWARD(try(w, &scratch, what, err));
	return try(w, &zero, what, err);
}

static enum md_status try_all(struct words *w, struct md_error *err)
{
	const struct md_artifact_graph *stored = w->graph->stored;
	char what[MD_DOUBTFUL_TEXT];
	for (uint32_t i = 0; i < stored->doubtful_count; i++) {
		md_doubtful_describe(&stored->doubtful[i], what);
		MD_FORWARD(try_both(w, i, false, what, err));
	}
	if (stored->doubtful_count < 2)
		return MD_OK;
	snprintf(what, sizeof(what), "all %u doubtful words at once", stored->doubtful_count);
	return try_both(w, 0, true, what, err);
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
