/* SPDX-License-Identifier: Apache-2.0 */
/* Pass: from which constant bindings saved contents may have been made: the hash of each, and whether it differed. */
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"
#include "base/cleanup.h"
#include "driver/maker.h"

/* What one capture says of a binding. */
struct said {
	const struct md_trace_constant *first; /* NULL: nothing */
	bool late;                             /* it was written between asking for graphs and a label */
	const char *why;                       /* why there is no hash; NULL: first->hash is the hash */
};

static int compare_constants(const void *left, const void *right)
{
	const struct md_trace_constant *a = *(const struct md_trace_constant *const *)left;
	const struct md_trace_constant *b = *(const struct md_trace_constant *const *)right;
	int order = strcmp(a->name, b->name);
	return order ? order : (a->sequence > b->sequence) - (a->sequence < b->sequence);
}

/* A binding may be hashed more than once, for instance at the end of the recording, too. */
static void add_said(struct said *said, const struct md_trace_constant *constant)
{
	if (!constant->known) {
		said->why = constant->why ? constant->why : "could not be read";
		said->late |= said->first && said->first->known;
	} else if (said->first && !md_hash_equal(&said->first->hash, &constant->hash) && !said->why)
		said->why = "changed while it was recorded, so it is not constant";
	if (!said->first)
		said->first = constant;
}

/* One for each binding of the view, which are in the order of their names, too. NULL: out of memory. */
static struct said *list_said(const struct md_view *view)
{
	const struct md_trace *trace = view->trace;
	MD_AUTO_FREE const struct md_trace_constant **sorted = calloc(trace->constant_count + 1u, sizeof(*sorted));
	struct said *list = calloc(view->binding_count + 1u, sizeof(*list));
	uint32_t at = 0;
	for (uint32_t i = 0; sorted && i < trace->constant_count; i++)
		sorted[i] = &trace->constants[i];
	if (sorted && trace->constant_count)
		qsort(sorted, trace->constant_count, sizeof(*sorted), compare_constants);
	for (uint32_t i = 0; sorted && list && i < view->binding_count; i++) {
		const struct md_view_binding *binding = &view->bindings[i];
		while (at < trace->constant_count && strcmp(sorted[at]->name, binding->name) < 0)
			at++;
		for (; at < trace->constant_count && !strcmp(sorted[at]->name, binding->name); at++)
			if (sorted[at]->address == binding->address && sorted[at]->size == binding->size)
				add_said(&list[i], sorted[at]);
		if (!list[i].first)
			list[i].why = "has no hash in the trace";
	}
	if (!sorted) {
		free(list);
		return NULL;
	}
	return list;
}

/* An engine that binds nothing states no roles: weights may be among what is bound by sequence. */
static bool counts(const struct md_view_binding *binding)
{
	return binding->role == MD_BIND_CONSTANT ||
	       (*binding->name == '@' && !md_maker_is_name(binding->name) && !md_maker_is_captured(binding->name));
}

/* Contents that are equal in both captures do not depend on a binding that differed between the captures. */
static void settle(struct md_analysis *analysis, const struct said *one, const struct said *two)
{
	for (uint32_t i = 0; i < analysis->views[0].binding_count; i++) {
		uint32_t partner = analysis->binding_match ? analysis->binding_match[i] : MD_NONE;
		struct md_constant *constant = &analysis->constants[i];
		constant->counts = counts(&analysis->views[0].bindings[i]);
		constant->why = one[i].why;
		if (!constant->counts || constant->why)
			continue;
		constant->hash = one[i].first->hash;
		constant->varied = two && partner != MD_NONE && !two[partner].why &&
				   !md_hash_equal(&constant->hash, &two[partner].first->hash);
	}
}

/* ---- graphs that use contents ---- */

static bool reaches(const struct md_analysis *analysis, const uint8_t *saved, const struct md_target *target)
{
	return target->alloc != MD_NONE && target->binding == MD_NONE && saved[analysis->group[target->alloc]];
}

static bool writes_image(const struct md_trace *trace, uint32_t image)
{
	for (uint32_t i = 0; i < trace->variable_count; i++)
		if (trace->variables[i].image == image)
			return true;
	return false;
}

/* True if the graph's kernels may read a variable that the engine has written. */
static bool uses_values(const struct md_analysis *analysis, const struct md_pair *pair)
{
	const struct md_trace *trace = analysis->traces[0];
	bool uses = false;
	for (uint32_t n = 0; trace->variable_count && n < pair->graph[0]->node_count && !uses; n++) {
		const struct md_node *node = &pair->graph[0]->nodes[n];
		uses = node->type == MD_NODE_KERNEL && writes_image(trace, trace->kernels[node->kernel].image);
	}
	return uses;
}

static bool uses_contents(const struct md_analysis *analysis, const uint8_t *saved, const struct md_pair *pair)
{
	bool uses = false;
	for (uint32_t i = 0; i < pair->findings.count && !uses; i++)
		uses = reaches(analysis, saved, &pair->findings.items[i].target);
	for (uint32_t i = 0; i < pair->graph[0]->output_count && !uses; i++)
		uses = reaches(analysis, saved, &pair->outputs[i]);
	return uses;
}

static const struct md_constant *first_unknown(const struct md_analysis *analysis, const char **name)
{
	for (uint32_t i = 0; i < analysis->views[0].binding_count; i++) {
		*name = analysis->views[0].bindings[i].name;
		if (analysis->constants[i].counts && analysis->constants[i].why)
			return &analysis->constants[i];
	}
	return NULL;
}

/* Without the hash of a binding a restore cannot tell whether contents were made from the same bytes. */
static enum md_status refuse_users(struct md_analysis *analysis, struct md_error *err)
{
	MD_AUTO_FREE uint8_t *saved = calloc(analysis->views[0].alloc_count + 1u, 1);
	const char *name = "";
	const struct md_constant *unknown = first_unknown(analysis, &name);
	if (!saved)
		return md_analysis_no_memory(err);
	for (uint32_t i = 0; i < analysis->held_count; i++)
		saved[analysis->group[analysis->held[i].alloc]] = 1;
	for (uint32_t i = 0; unknown && i < analysis->pair_count; i++) {
		struct md_pair *pair = &analysis->pairs[i];
		if (!pair->why && (uses_contents(analysis, saved, pair) || uses_values(analysis, pair)))
			md_pair_refuse(
			    pair,
			    "contents of %s are saved with it, which may be made of binding \"%.128s\"; the binding %s",
			    uses_values(analysis, pair) ? "a module's variable" : "private memory", name, unknown->why);
	}
	return MD_OK;
}

static bool has_address_in(const struct md_pair *pair, uint32_t binding)
{
	bool has = false;
	for (uint32_t i = 0; i < pair->findings.count && !has; i++)
		has = pair->findings.items[i].target.binding == binding;
	return has;
}

/* A cold start, which gets its graphs instead of making them, does not write the binding as this engine did. */
static void refuse_late(struct md_analysis *analysis, const struct said *said)
{
	for (uint32_t b = 0; b < analysis->views[0].binding_count; b++)
		for (uint32_t i = 0; said[b].late && i < analysis->pair_count; i++)
			if (!analysis->pairs[i].why && has_address_in(&analysis->pairs[i], b))
				md_pair_refuse(&analysis->pairs[i],
					       "binding \"%.128s\" is constant and %s, which a cold start does not "
					       "repeat: write it before the first medusa_graph_get",
					       analysis->views[0].bindings[b].name, said[b].why);
}

enum md_status md_pass_constant(struct md_analysis *analysis, struct md_error *err)
{
	MD_AUTO_FREE struct said *one = list_said(&analysis->views[0]);
	MD_AUTO_FREE struct said *two = analysis->captures == 2 ? list_said(&analysis->views[1]) : NULL;
	analysis->constants = calloc(analysis->views[0].binding_count + 1u, sizeof(*analysis->constants));
	if (!one || (analysis->captures == 2 && !two) || !analysis->constants)
		return md_analysis_no_memory(err);
	settle(analysis, one, two);
	refuse_late(analysis, one);
	return refuse_users(analysis, err);
}
