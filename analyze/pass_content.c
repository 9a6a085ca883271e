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

/*
 * Contents outside of every recorded allocation belong to no allocation: each graph that was proven to need contents is
 * refused.
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

/*
 * Contents of private memory, ascending by place. Where one place was saved twice, the last record counts. Bound memory
 * is left out, because the engine fills it.
 */
static enum md_status list_spots(struct md_analysis *analysis, unsigned capture, struct spot **out, uint32_t *count,
				 struct md_error *err)
{
	const struct md_trace *trace = analysis->traces[capture];
	struct md_view *view = &analysis->views[capture];
	MD_AUTO_FREE struct spot *list = calloc(trace->content_count + 1u, sizeof(*list));
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
	qsort(list, listed, sizeof(*list), compare_spots);
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

#define NAME_BYTES 192

/* "contents of allocation 3", "variable lut of a module" */
static const char *name_held(const struct md_analysis *analysis, const struct md_held *held, char text[NAME_BYTES])
{
	if (held->variable != MD_NONE)
		snprintf(text, NAME_BYTES, "variable %.128s of a module", analysis->variables[held->variable].name);
	else
		snprintf(text, NAME_BYTES, "contents of allocation %" PRIu32, held->alloc);
	return text;
}

/* Why a restore could not make the target anew; NULL: it can. Variables are judged once all of them are settled. */
static const char *foreign_of(const struct md_analysis *analysis, const struct md_target *target, bool settled)
{
	enum md_alloc_family family = analysis->views[0].allocs[target->alloc].family;
	if (target->binding != MD_NONE)
		return NULL;
	if (family != MD_ALLOC_GLOBAL)
		return settled ? NULL : md_alloc_foreign(family);
	return settled ? md_variable_foreign(analysis, target->alloc) : NULL;
}

static void say_foreign(const struct md_analysis *analysis, const struct md_held *held, uint32_t at,
			const char *foreign, char **why)
{
	char name[NAME_BYTES];
	say(why, "%s, byte %" PRIu64 ", point%s to %s", name_held(analysis, held, name), held->offset + at,
	    held->variable == MD_NONE ? "" : "s", foreign);
}

static bool keep_pointer(struct md_analysis *analysis, struct md_held *held, uint32_t at,
			 const struct md_target *target, char **why)
{
	const char *foreign = foreign_of(analysis, target, false);
	if (foreign)
		say_foreign(analysis, held, at, foreign, why);
	if (!md_findings_add(&held->findings, MD_NONE, at, target))
		return false;
	memcpy(&held->findings.items[held->findings.count - 1].value, held->data + at, 8);
	memset(held->data + at, 0, 8);
	return true;
}

/*
 * A word that only the first capture saved is judged by liveness, provided that the bytes that both captures saved are
 * equal. False when out of memory.
 */
static bool classify_word(struct md_analysis *analysis, struct md_held *held, uint32_t at, const uint8_t *one,
			  const struct md_counterpart *two, char **broken)
{
	bool both = !memchr(two->known + at, 0, 8);
	struct md_target target;
	char why[MD_WORD_WHY_BYTES] = "differs between the captures", name[NAME_BYTES];
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
		say(broken, "%s (%" PRIu64 " bytes), byte %" PRIu64 ": %s", name_held(analysis, held, name),
		    analysis->views[0].allocs[held->alloc].size, held->offset + at, why);
	return true;
}

bool md_content_classify(struct md_analysis *analysis, struct md_held *held, const uint8_t *one,
			 const struct md_counterpart *two, char **broken)
{
	uint32_t at = (uint32_t)(-(analysis->views[0].allocs[held->alloc].address + held->offset) & 7);
	uint32_t head = at < held->size ? at : (uint32_t)held->size;
	char name[NAME_BYTES];
	for (; held->size >= 8 && at <= held->size - 8; at += 8) {
		if (!classify_word(analysis, held, at, one, two, broken))
			return false;
	}
	if (memcmp(one, two->data, head) != 0 ||
	    (at < held->size && memcmp(one + at, two->data + at, held->size - at) != 0))
		say(broken, "%s: bytes outside of words differ", name_held(analysis, held, name));
	return true;
}

/* The first held word that leads to broken contents, and why these are broken. */
static bool find_broken(const struct md_analysis *analysis, const struct md_held *held, uint32_t *at,
			const char **broken, const char **foreign)
{
	for (uint32_t p = 0; p < held->findings.count; p++) {
		const struct md_target *target = &held->findings.items[p].target;
		*at = held->findings.items[p].at;
		*broken = target->binding == MD_NONE ? broken_by(analysis, target->alloc) : NULL;
		*foreign = *broken ? NULL : foreign_of(analysis, target, true);
		if (*broken || *foreign)
			return true;
	}
	return false;
}

/* Contents with a pointer to broken contents are broken themselves. */
static void spread_broken(struct md_analysis *analysis)
{
	bool changed = true;
	while (changed) {
		changed = false;
		for (uint32_t i = 0; i < analysis->held_count; i++) {
			const struct md_held *held = &analysis->held[i];
			const char *broken, *foreign;
			uint32_t at;
			if (broken_by(analysis, held->alloc) || !find_broken(analysis, held, &at, &broken, &foreign))
				continue;
			if (broken)
				md_content_break(analysis, held->alloc, broken);
			else
				say_foreign(analysis, held, at, foreign,
					    &analysis->broken[analysis->group[held->alloc]]);
			changed = true;
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
	*held = (struct md_held){
	    .variable = MD_NONE, .alloc = one->alloc, .offset = one->offset, .size = one->content->size};
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

/* One capture alone does not show whether each start writes the same value. */
static bool has_value(const struct md_analysis *analysis, const struct md_variable *variable)
{
	return analysis->captures == 2 && variable->alloc != MD_NONE && variable->value[0] && variable->value[1] &&
	       variable->value[0]->size == variable->value[1]->size &&
	       variable->value[0]->size == analysis->views[0].allocs[variable->alloc].size;
}

/* The value of a variable is treated as contents are: its words may be addresses. */
static enum md_status hold_value(struct md_analysis *analysis, uint32_t index, struct md_error *err)
{
	struct md_variable *variable = &analysis->variables[index];
	const struct md_trace_value *one = variable->value[0], *two = variable->value[1];
	MD_CLEANUP(md_counterpart_finish) struct md_counterpart other = {.found = true};
	MD_AUTO_FREE char *broken = NULL;
	struct md_held *held = &analysis->held[analysis->held_count];
	if (!has_value(analysis, variable))
		return MD_OK;
	variable->held = analysis->held_count++;
	*held = (struct md_held){.variable = index, .alloc = variable->alloc, .size = one->size, .compared = true};
	held->data = malloc(one->size);
	other.data = malloc(one->size);
	other.known = malloc(one->size);
	if (!held->data || !other.data || !other.known)
		return md_analysis_no_memory(err);
	memcpy(held->data, one->data, one->size);
	memcpy(other.data, two->data, one->size);
	memset(other.known, 1, one->size);
	MD_FORWARD(md_view_seek(&analysis->views[0], one->sequence, err));
	MD_FORWARD(md_view_seek(&analysis->views[1], two->sequence, err));
	if (!md_content_classify(analysis, held, one->data, &other, &broken))
		return md_analysis_no_memory(err);
	if (broken)
		md_content_break(analysis, held->alloc, broken);
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
	analysis->held = calloc((size_t)one_count + analysis->variable_count + 1, sizeof(*analysis->held));
	analysis->broken = calloc(analysis->views[0].alloc_count + 1u, sizeof(*analysis->broken));
	if (!analysis->held || !analysis->broken)
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < one_count; i++)
		MD_FORWARD(hold(analysis, &one[i], two, two_count, err));
	for (uint32_t i = 0; i < analysis->variable_count; i++)
		MD_FORWARD(hold_value(analysis, i, err));
	md_content_refuse_users(analysis);
	return MD_OK;
}
