/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words that are the end of one binding and the beginning of the next one, in verify mode. The words of one parameter of
 * a kernel get the address of a copy that lies elsewhere: if they are beginnings, the graph leaves the same bytes. That
 * shows something only if the graph reads the copy through these words: then it leaves other bytes when the copy holds
 * others.
 */
#define MD_LOG_DOMAIN "verify"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/note.h"
#include "restore/verify/border_words.h"
#include "restore/verify/report_lines.h"

#define COPIES_MOST (UINT64_C(1) << 30) /* bytes of all copies of a trial */
#define GUARD (UINT64_C(64) << 10)      /* bytes in front of each copy, and behind the last one */
#define GUARD_BYTE 0xa5
#define ALIGNMENT 512u
#define BROKEN_MOST 4u /* trials that may break the engine; then there are no more */
#define TRIES_MOST 4u  /* of a graph, of which some words stay undecided */

#define ONES_MOST (UINT64_C(64) << 20) /* bytes at the begin of a copy that OTHER_ONES fills */

#define SAMPLE_MOST (256u << 10)        /* bytes of a copy that are looked at */
#define INTEGER_END (UINT32_C(1) << 24) /* as a float, anything below is nearly nothing */

/*
 * Other bytes for a copy, which are tried in turn until they make a difference. A constant index must remain an index, or
 * the replay faults: first zero everywhere, then 1 in each 64 bits (for copies that are zero), then 0.7 or 1.8 as floats,
 * unless the copy holds integers.
 */
enum other { OTHER_ZERO, OTHER_ONES, OTHER_FLOATS, OTHER_COUNT };

struct word {
	uint32_t pointer;        /* of the graph's */
	uint32_t kernel, at;     /* the parameter: an artifact's kernel, a byte of its block */
	uint32_t behind, before; /* bindings */
	bool demanded, shown;    /* demanded: the artifact takes it for either */
};

struct copy {
	uint32_t binding;
	uint64_t from, size;
	CUdeviceptr address; /* in the trial's memory */
	bool read;           /* through the words of this trial */
};

struct trial {
	struct md_restore *r;
	struct md_restore_graph *graph;
	const struct md_verify_replays *replays;
	struct word *words; /* of the graph; owned */
	uint32_t count, room;
	const struct word *of; /* the first word of the parameter that is tried */
	struct md_note_of note;
	struct copy *copies; /* of the bindings that the parameter's words begin; owned */
	uint32_t copy_count;
	CUdeviceptr memory;
	uint64_t memory_size;
	struct md_moved *moved; /* owned */
	uint32_t moved_count;
};

/* Parameters and bindings for which a graph was seen to read the copy, in this process. Guarded by md_restore_work. */
static struct word *seen;
static uint32_t seen_count, seen_room;

/* ---- which words ---- */

static const struct md_bound *bound_of(const struct md_restore *r, uint32_t alloc, uint32_t *binding) MD_RESTORE_HELD
{
	const struct md_artifact_alloc *a = &r->artifact.allocs[alloc];
	*binding = a->class == MD_CLASS_BOUND ? a->binding : MD_NONE;
	return *binding == MD_NONE || r->binding_of[*binding] == MD_NONE ? NULL : &r->bound[r->binding_of[*binding]];
}

static bool add_word(struct trial *t, uint32_t pointer, uint32_t behind, uint32_t before)
{
	const struct md_pointer *p = &t->graph->stored->pointers[pointer];
	const struct md_binding *binding = &t->r->artifact.bindings[behind];
	if (!MD_ARRAY_GROW(t->words, t->count, t->room))
		return false;
	t->words[t->count++] = (struct word){.pointer = pointer,
					     .kernel = t->graph->stored->nodes[p->node].kernel,
					     .at = p->at,
					     .behind = behind,
					     .before = before,
					     .demanded = binding->adjoins && binding->before == before};
	return true;
}

/* The word begins one binding, and another word of the launch lies in one that ends there, in this process. */
static bool look_at_pointer(struct trial *t, uint32_t pointer, uint32_t first, uint32_t end) MD_RESTORE_HELD
{
	const struct md_pointer *pointers = t->graph->stored->pointers;
	uint32_t behind, before;
	const struct md_bound *second = bound_of(t->r, pointers[pointer].alloc, &behind), *one;
	if (!second || pointers[pointer].offset || pointers[pointer].at >= MD_ATTRIBUTES_AT)
		return true;
	for (uint32_t i = first; i < end; i++) {
		one = bound_of(t->r, pointers[i].alloc, &before);
		if (one && one != second && one->address + one->size == second->address)
			return add_word(t, pointer, behind, before);
	}
	return true;
}

static enum md_status find_words(struct trial *t, struct md_error *err)
{
	const struct md_artifact_graph *stored = t->graph->stored;
	bool room = true;
	pthread_mutex_lock(&md_restore_lock);
	for (uint32_t first = 0, end; first < stored->pointer_count; first = end) {
		for (end = first + 1;
		     end < stored->pointer_count && stored->pointers[end].node == stored->pointers[first].node;)
			end++;
		bool kernel = stored->nodes[stored->pointers[first].node].type == MD_NODE_KERNEL;
		for (uint32_t i = first; kernel && room && i < end; i++)
			room = look_at_pointer(t, i, first, end);
	}
	pthread_mutex_unlock(&md_restore_lock);
	return room ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for addresses between bindings");
}

static bool same_parameter(const struct word *a, const struct word *b)
{
	return a->kernel == b->kernel && a->at == b->at;
}

/* ---- copies ---- */

static struct copy *copy_of(const struct trial *t, uint32_t binding)
{
	for (uint32_t i = 0; i < t->copy_count; i++)
		if (t->copies[i].binding == binding)
			return &t->copies[i];
	return NULL;
}

static bool was_seen(const struct trial *t, uint32_t binding)
{
	for (uint32_t i = 0; i < seen_count; i++)
		if (same_parameter(&seen[i], t->of) && seen[i].behind == binding)
			return true;
	return false;
}

/* Moves only constants: other memory may be written by a replay or the engine. Bindings without room stay. */
static bool add_copy(struct trial *t, uint32_t binding) MD_RESTORE_HELD
{
	const struct md_bound *bound = &t->r->bound[t->r->binding_of[binding]];
	if (bound->role != MD_BIND_CONSTANT || copy_of(t, binding) ||
	    bound->size > COPIES_MOST - GUARD - ALIGNMENT - t->memory_size)
		return true;
	if (!MD_ARRAY_EXTEND(t->copies, t->copy_count))
		return false;
	t->copies[t->copy_count++] = (struct copy){.binding = binding,
						   .from = bound->address,
						   .size = bound->size,
						   .address = t->memory_size + GUARD,
						   .read = was_seen(t, binding)};
	t->memory_size += GUARD + (bound->size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	return true;
}

/* False: there is no room, and nothing is shown. */
static bool take_memory(struct trial *t)
{
	struct md_error none = {0};
	uint64_t bytes = t->memory_size + GUARD;
	if (!t->copy_count || md_cuda_call(&none, cuMemAlloc_v2, &t->memory, bytes) != MD_OK ||
	    md_cuda_call(&none, cuMemsetD8Async, t->memory, GUARD_BYTE, bytes, t->r->stream) != MD_OK)
		return false;
	for (uint32_t i = 0; i < t->copy_count; i++)
		t->copies[i].address += t->memory;
	return true;
}

static enum md_status fill(const struct trial *t, const struct copy *copy, struct md_error *err)
{
	MD_FORWARD(md_cuda_call(err, cuMemcpyDtoDAsync_v2, copy->address, copy->from, copy->size, t->r->stream));
	return md_cuda_call(err, cuStreamSynchronize, t->r->stream);
}

static bool list_copies(struct trial *t)
{
	bool room = true;
	t->memory_size = 0;
	pthread_mutex_lock(&md_restore_lock);
	for (uint32_t i = 0; room && i < t->count; i++)
		room = !same_parameter(&t->words[i], t->of) || add_copy(t, t->words[i].behind);
	pthread_mutex_unlock(&md_restore_lock);
	return room;
}

static bool move_words(struct trial *t)
{
	t->moved = calloc(t->count, sizeof(*t->moved));
	for (uint32_t i = 0; t->moved && i < t->count; i++) {
		const struct copy *copy = copy_of(t, t->words[i].behind);
		if (copy && same_parameter(&t->words[i], t->of))
			t->moved[t->moved_count++] = (struct md_moved){t->words[i].pointer, copy->address};
	}
	return t->moved != NULL;
}

static void give_back(struct trial *t)
{
	if (t->memory)
		md_cuda.cuMemFree_v2(t->memory);
	free(t->copies);
	free(t->moved);
	t->copies = NULL;
	t->moved = NULL;
	t->copy_count = t->moved_count = 0;
	t->memory = 0;
}

/* ---- replays ---- */

static enum md_status replay(struct trial *t, const char *what, unsigned step, struct md_error *err)
{
	char text[320];
	t->note.batch = step;
	snprintf(text, sizeof(text), "graph %.128s/%u, %s", t->graph->stored->label, t->graph->stored->batch, what);
	md_note_begin(&t->note, text);
	t->graph->moved = t->moved;
	t->graph->moved_count = t->moved_count;
	enum md_status status = t->replays->compare(t->replays->user, t->graph, false, err);
	t->graph->moved = NULL;
	t->graph->moved_count = 0;
	return status;
}

enum { STEP_COPIES = 0, STEP_OTHER_BYTES = 1 };

static enum md_status fill_other(const struct trial *t, const struct copy *copy, enum other other, struct md_error *err)
{
	uint64_t words = (copy->size < ONES_MOST ? copy->size : ONES_MOST) / 8;
	MD_FORWARD(md_cuda_call(err, cuMemsetD8Async, copy->address, other == OTHER_FLOATS ? 0x3f : 0x00, copy->size,
				t->r->stream));
	if (other != OTHER_ONES || !words)
		return MD_OK;
	return md_cuda_call(err, cuMemsetD2D32Async, copy->address, 8, 1, 1, words, t->r->stream);
}

static enum md_status find_integers(const struct trial *t, const struct copy *copy, bool *integers,
				    struct md_error *err)
{
	size_t count = (copy->size < SAMPLE_MOST ? copy->size : SAMPLE_MOST) / 4, zeros = 0;
	MD_AUTO_FREE uint32_t *words = calloc(count + 1, sizeof(*words));
	if (!words)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a constant");
	MD_FORWARD(md_cuda_call(err, cuMemcpyDtoHAsync_v2, words, copy->from, 4 * count, t->r->stream));
	MD_FORWARD(md_cuda_call(err, cuStreamSynchronize, t->r->stream));
	*integers = true;
	for (size_t i = 0; i < count; i++) {
		zeros += !words[i];
		*integers &= words[i] < INTEGER_END;
	}
	*integers &= zeros < count;
	return MD_OK;
}

/* Replays with other bytes in one copy. MD_OK: *read says whether the graph leaves other bytes, too. */
static enum md_status replay_other_bytes(struct trial *t, struct copy *copy, struct md_error *err)
{
	bool integers = false;
	MD_FORWARD(find_integers(t, copy, &integers, err));
	for (enum other other = OTHER_ZERO; other < OTHER_COUNT && !copy->read; other++) {
		struct md_error now = {0};
		if (other == OTHER_FLOATS && integers)
			break;
		MD_FORWARD(fill_other(t, copy, other, err));
		enum md_status status = replay(t, "a copy with other bytes", STEP_OTHER_BYTES, &now);
		if (status != MD_OK && status != MD_ERR_MISMATCH)
			return md_error_set(err, status, "%s", now.message);
		copy->read = status == MD_ERR_MISMATCH;
	}
	return fill(t, copy, err);
}

/*
 * MD_ERR_UNPROVABLE: the graph leaves other bytes. A kernel that writes up to an end that lies elsewhere may have written
 * anywhere, so the process can no longer be used.
 */
static enum md_status replay_copies(struct trial *t, struct md_error *err)
{
	enum md_status status = replay(t, "copies at other places", STEP_COPIES, err);
	if (status != MD_ERR_MISMATCH)
		return status;
	if (md_note_is_read())
		md_note_break(MD_NOTE_BROKE, err->message);
	err->status = MD_ERR_UNPROVABLE;
	return err->status;
}

/* Finds which copies are read. Afterwards the graph must leave the same bytes again, or the difference was chance. */
static enum md_status find_read(struct trial *t, struct md_error *err)
{
	bool replayed = false;
	t->note.batch = STEP_OTHER_BYTES;
	if (md_note_left_out(&t->note))
		return MD_OK;
	for (uint32_t i = 0; i < t->copy_count; i++) {
		if (t->copies[i].read)
			continue;
		MD_FORWARD(replay_other_bytes(t, &t->copies[i], err));
		replayed = true;
	}
	return replayed ? replay(t, "copies at other places again", STEP_OTHER_BYTES, err) : MD_OK;
}

/* ---- what was shown ---- */

static void note_shown(struct trial *t)
{
	for (uint32_t i = 0; i < t->count; i++) {
		struct word *word = &t->words[i];
		const struct copy *copy = same_parameter(word, t->of) ? copy_of(t, word->behind) : NULL;
		word->shown |= copy && copy->read;
		if (!copy || !copy->read || was_seen(t, word->behind) || !MD_ARRAY_GROW(seen, seen_count, seen_room))
			continue;
		seen[seen_count++] = *word;
	}
}

/* Reports a parameter whose trial has broken the engine in an earlier run, or has shown that it would. */
static enum md_status take_refuted(const struct trial *t, const char *why, struct md_error *err)
{
	for (uint32_t i = 0; i < t->count; i++) {
		const struct word *word = &t->words[i];
		if (!same_parameter(word, t->of) || word->demanded)
			continue;
		return md_error_set(err, MD_ERR_UNPROVABLE,
				    "%s: other launches show that this is a beginning, but here it is not that of "
				    "binding \"%s\" behind \"%s\": %s",
				    t->note.label, t->r->artifact.bindings[word->behind].name,
				    t->r->artifact.bindings[word->before].name, why);
	}
	return MD_OK;
}

static enum md_status try_parameter(struct trial *t, struct md_error *err)
{
	char label[288];
	struct md_error why = {0};
	snprintf(label, sizeof(label), "kernel %.200s, parameter byte %u", t->r->artifact.kernels[t->of->kernel].name,
		 t->of->at);
	t->note = (struct md_note_of){MD_NOTE_BORDER, label, STEP_COPIES, 0};
	const char *left_out = md_note_left_out(&t->note);
	if (left_out)
		return take_refuted(t, left_out, err);
	if (md_note_left_out_count(MD_NOTE_BORDER) >= BROKEN_MOST)
		return MD_OK;
	enum md_status status = list_copies(t) && take_memory(t) && move_words(t) ? MD_OK : MD_ERR_NO_MEMORY;
	for (uint32_t i = 0; status == MD_OK && i < t->copy_count; i++)
		status = fill(t, &t->copies[i], &why);
	if (status == MD_OK)
		status = replay_copies(t, &why);
	if (status == MD_OK)
		status = find_read(t, &why);
	if (status == MD_OK)
		note_shown(t);
	give_back(t);
	return status == MD_ERR_UNPROVABLE ? take_refuted(t, why.message, err) : MD_OK;
}

static enum md_status try_all(struct trial *t, struct md_error *err)
{
	for (uint32_t i = 0; i < t->count; i++) {
		bool first = true;
		for (uint32_t k = 0; k < i; k++)
			first &= !same_parameter(&t->words[k], &t->words[i]);
		t->of = &t->words[i];
		if (first)
			MD_FORWARD(try_parameter(t, err));
	}
	return MD_OK;
}

/* False: not all of the graph's words are shown. */
static bool report_shown(const struct trial *t)
{
	const struct md_artifact_graph *stored = t->graph->stored;
	bool all = true;
	for (uint32_t i = 0; i < t->count; i++) {
		bool first = true, shown = true;
		for (uint32_t k = 0; k < t->count; k++) {
			if (t->words[k].behind != t->words[i].behind)
				continue;
			first &= k >= i;
			shown &= t->words[k].shown;
		}
		all &= shown;
		if (first && shown && t->words[i].demanded)
			md_verify_report(stored->label, stored->batch, MD_VERDICT_BEGINS, t->words[i].behind,
					 t->r->artifact.bindings[t->words[i].behind].name);
	}
	return all;
}

enum md_status md_verify_borders_prove(struct md_restore *r, struct md_restore_graph *graph,
				       const struct md_verify_replays *replays, struct md_error *err)
{
	const struct md_note_of of = {MD_NOTE_PROOF, graph->stored->label, graph->stored->batch, 0};
	struct trial t = {.r = r, .graph = graph, .replays = replays};
	if (graph->border_tries >= TRIES_MOST)
		return MD_OK;
	graph->border_tries++;
	enum md_status status = find_words(&t, err);
	if (status == MD_OK && t.count)
		status = try_all(&t, err);
	if (t.count)
		md_note_begin(&of, "");
	if (status == MD_OK && report_shown(&t))
		graph->border_tries = TRIES_MOST;
	free(t.words);
	return status;
}
