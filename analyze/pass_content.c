/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: words inside permanent contents of private memory; a graph that uses unprovable contents is refused. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"
#include "base/cleanup.h"

struct spot { /* where a recorded content lies in its capture */
	const struct md_trace_content *content;
	uint32_t alloc;
	uint64_t offset;
};

/* Contents in memory that nobody recorded cannot be attributed; graphs that were proven to need contents are refused.
 */
static void refuse_lost_content(struct md_analysis *analysis, uint64_t address)
{
	for (uint32_t i = 0; i < analysis->pair_count; i++) {
		struct md_pair *pair = &analysis->pairs[i];
		if (!pair->why && pair->graph[0]->probe == MD_PROBE_CONTENT_SAVED)
			md_pair_refuse(pair, "needs contents at %#" PRIx64 ", which lies in no recorded allocation",
				       address);
	}
}

static bool in_one_binding(const struct md_view *view, const struct spot *spot)
{
	const struct md_view_piece *first = md_view_piece_at(view, spot->alloc, spot->offset);

	return first && !first->replaced && spot->offset + spot->content->size <= first->end;
}

static int compare_spots(const void *left, const void *right)
{
	const struct spot *a = left, *b = right;

	if (a->alloc != b->alloc)
		return a->alloc < b->alloc ? -1 : 1;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	if (a->content->size != b->content->size)
		return a->content->size < b->content->size ? -1 : 1;
	return (a->content > b->content) - (a->content < b->content);
}

/* Contents of private memory, ascending by place; of one place saved twice the last stays. Bound memory is the
 * engine's. */
static enum md_status list_spots(struct md_analysis *analysis, unsigned capture, struct spot **out, uint32_t *count,
				 struct md_error *err)
{
	const struct md_trace *trace = analysis->traces[capture];
	struct md_view *view = &analysis->views[capture];
	MD_AUTO_FREE struct spot *list = calloc(trace->content_count + 1u, sizeof *list);
	uint32_t listed = 0, kept = 0;

	if (!list)
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < trace->content_count; i++) {
		const struct md_trace_content *content = &trace->contents[i];
		struct spot spot = {content, MD_NONE, 0};
		if (!content->size)
			continue;
		MD_FORWARD(md_view_seek(view, content->sequence, err));
		spot.alloc = md_view_find(view, content->address);
		if (spot.alloc == MD_NONE || content->size > view->allocs[spot.alloc].address +
								 view->allocs[spot.alloc].size - content->address) {
			if (capture == 0)
				refuse_lost_content(analysis, content->address);
			continue;
		}
		spot.offset = content->address - view->allocs[spot.alloc].address;
		if (!in_one_binding(view, &spot))
			list[listed++] = spot;
	}
	qsort(list, listed, sizeof *list, compare_spots);
	for (uint32_t i = 0; i < listed; i++) {
		bool again = i + 1 < listed && list[i].alloc == list[i + 1].alloc &&
			     list[i].offset == list[i + 1].offset && list[i].content->size == list[i + 1].content->size;
		if (!again)
			list[kept++] = list[i];
	}
	*out = md_steal_ptr(&list);
	*count = kept;
	return MD_OK;
}

void md_counterpart_finish(struct md_counterpart *counterpart)
{
	free(counterpart->data);
	free(counterpart->known);
}

static bool find_counterpart(const struct md_analysis *analysis, const struct spot *one, const struct spot *spots,
			     uint32_t count, struct md_counterpart *out)
{
	uint64_t end = one->offset + one->content->size;

	out->data = malloc(one->content->size);
	out->known = calloc(one->content->size, 1);
	if (!out->data || !out->known)
		return false;
	memcpy(out->data, one->content->data, one->content->size);
	for (uint32_t i = 0; i < count; i++) {
		uint64_t from = spots[i].offset > one->offset ? spots[i].offset : one->offset;
		uint64_t to =
		    spots[i].offset + spots[i].content->size < end ? spots[i].offset + spots[i].content->size : end;
		if (spots[i].alloc != analysis->partner[one->alloc] || from >= to)
			continue;
		memcpy(out->data + (from - one->offset), spots[i].content->data + (from - spots[i].offset), to - from);
		memset(out->known + (from - one->offset), 1, to - from);
		out->sequence = spots[i].content->sequence;
		out->found = true;
	}
	return true;
}

static const char *broken_by(const struct md_analysis *analysis, uint32_t alloc)
{
	return analysis->broken[analysis->group[alloc]];
}

/* The first reason stays. */
static void say(char **why, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(char **why, const char *format, ...)
{
	va_list arguments;

	if (*why)
		return;
	va_start(arguments, format);
	if (vasprintf(why, format, arguments) < 0)
		*why = strdup("contents unprovable");
	va_end(arguments);
}

void md_content_break(struct md_analysis *analysis, uint32_t alloc, const char *why)
{
	say(&analysis->broken[analysis->group[alloc]], "%s", why);
}

static bool keep_pointer(struct md_analysis *analysis, struct md_held *held, uint32_t at,
			 const struct md_target *target, char **why)
{
	const char *foreign = md_alloc_foreign(analysis->views[0].allocs[target->alloc].family);

	if (target->binding == MD_NONE && foreign)
		say(why, "contents of allocation %" PRIu32 ", byte %" PRIu64 ", point to %s", held->alloc,
		    held->offset + at, foreign);
	if (!md_findings_add(&held->findings, MD_NONE, at, target))
		return false;
	memcpy(&held->findings.items[held->findings.count - 1].value, held->data + at, 8);
	memset(held->data + at, 0, 8);
	return true;
}

/* What only the first capture saved is decided by liveness, if what both did is equal. False when out of memory. */
static bool classify_word(struct md_analysis *analysis, struct md_held *held, uint32_t at, const uint8_t *one,
			  const struct md_counterpart *two, char **broken)
{
	bool both = !memchr(two->known + at, 0, 8);
	struct md_target target;
	char why[MD_WORD_WHY_BYTES] = "differs between the captures";
	uint64_t first, second;
	enum md_word word;

	memcpy(&first, one + at, 8);
	memcpy(&second, two->data + at, 8);
	if (!both && first == second)
		word = md_word_guess(analysis, first, UINT64_MAX, &target, why);
	else
		word = md_word_resolve(analysis, first, second, UINT64_MAX, &target, why);
	if (word == MD_WORD_OPEN)
		word = md_word_origin(analysis, first, second, UINT64_MAX, NULL, &target, why);
	if (word == MD_WORD_POINTER)
		return keep_pointer(analysis, held, at, &target, broken);
	if (word != MD_WORD_CONSTANT)
		say(broken, "contents of allocation %" PRIu32 " (%" PRIu64 " bytes), byte %" PRIu64 ": %s", held->alloc,
		    analysis->views[0].allocs[held->alloc].size, held->offset + at, why);
	return true;
}

bool md_content_classify(struct md_analysis *analysis, struct md_held *held, const uint8_t *one,
			 const struct md_counterpart *two, char **broken)
{
	uint32_t at = (uint32_t)(-(analysis->views[0].allocs[held->alloc].address + held->offset) & 7);
	uint32_t head = at < held->size ? at : (uint32_t)held->size;

	for (; held->size >= 8 && at <= held->size - 8; at += 8) {
		if (!classify_word(analysis, held, at, one, two, broken))
			return false;
	}
	if (memcmp(one, two->data, head) != 0 ||
	    (at < held->size && memcmp(one + at, two->data + at, held->size - at) != 0))
		say(broken, "contents of allocation %" PRIu32 ": bytes outside of words differ", held->alloc);
	return true;
}

/* What points to something broken is broken itself. */
static void spread_broken(struct md_analysis *analysis)
{
	bool changed = true;

	while (changed) {
		changed = false;
		for (uint32_t i = 0; i < analysis->held_count; i++) {
			const struct md_held *held = &analysis->held[i];
			for (uint32_t p = 0; p < held->findings.count && !broken_by(analysis, held->alloc); p++) {
				const struct md_target *target = &held->findings.items[p].target;
				if (target->binding != MD_NONE || !broken_by(analysis, target->alloc))
					continue;
				md_content_break(analysis, held->alloc, broken_by(analysis, target->alloc));
				changed = true;
			}
		}
	}
}

static void refuse_users(struct md_analysis *analysis)
{
	for (uint32_t i = 0; i < analysis->pair_count; i++) {
		struct md_pair *pair = &analysis->pairs[i];
		for (uint32_t f = 0; f < pair->findings.count && !pair->why; f++) {
			const struct md_target *target = &pair->findings.items[f].target;
			if (target->binding == MD_NONE && broken_by(analysis, target->alloc))
				md_pair_refuse(pair, "unprovable: %s", broken_by(analysis, target->alloc));
		}
		for (uint32_t o = 0; !pair->why && o < pair->graph[0]->output_count; o++) {
			const struct md_target *target = &pair->outputs[o];
			if (target->alloc != MD_NONE && target->binding == MD_NONE &&
			    broken_by(analysis, target->alloc))
				md_pair_refuse(pair, "unprovable: %s", broken_by(analysis, target->alloc));
		}
	}
}

void md_content_refuse_users(struct md_analysis *analysis)
{
	spread_broken(analysis);
	refuse_users(analysis);
}

static enum md_status hold(struct md_analysis *analysis, const struct spot *one, const struct spot *spots,
			   uint32_t count, struct md_error *err)
{
	MD_CLEANUP(md_counterpart_finish) struct md_counterpart two = {0};
	MD_AUTO_FREE char *broken = NULL;
	struct md_held *held = &analysis->held[analysis->held_count++];

	*held = (struct md_held){.alloc = one->alloc, .offset = one->offset, .size = one->content->size};
	held->data = malloc(held->size);
	if (!held->data || !find_counterpart(analysis, one, spots, count, &two))
		return md_analysis_no_memory(err);
	memcpy(held->data, one->content->data, held->size);
	MD_FORWARD(md_view_seek(&analysis->views[0], one->content->sequence, err));
	if (two.found)
		MD_FORWARD(md_view_seek(&analysis->views[1], two.sequence, err));
	if (!md_content_classify(analysis, held, one->content->data, &two, &broken))
		return md_analysis_no_memory(err);
	if (broken)
		md_content_break(analysis, held->alloc, broken);
	held->compared = two.found && !memchr(two.known, 0, held->size);
	return MD_OK;
}

enum md_status md_pass_content(struct md_analysis *analysis, struct md_error *err)
{
	MD_AUTO_FREE struct spot *one = NULL;
	MD_AUTO_FREE struct spot *two = NULL;
	uint32_t one_count = 0, two_count = 0;

	MD_FORWARD(list_spots(analysis, 0, &one, &one_count, err));
	if (analysis->captures == 2)
		MD_FORWARD(list_spots(analysis, 1, &two, &two_count, err));
	analysis->held = calloc(one_count + 1u, sizeof *analysis->held);
	analysis->broken = calloc(analysis->views[0].alloc_count + 1u, sizeof *analysis->broken);
	if (!analysis->held || !analysis->broken)
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < one_count; i++)
		MD_FORWARD(hold(analysis, &one[i], two, two_count, err));
	md_content_refuse_users(analysis);
	return MD_OK;
}
