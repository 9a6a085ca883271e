/* SPDX-License-Identifier: Apache-2.0 */
/* Judges bytes of parameters that differ between the captures and are no pointer: unset, or a value of the process. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/analysis.h"

/*
 * Bytes between parameters and in the padding of structs are set by nobody. All bytes of a number are set: where they
 * differ, it is a number of that process (its number, a time, a counter), and a cold start would have zero for it.
 * Replays would only show that it does not matter for the inputs that were seen. An address that lies in no live memory
 * in both captures is stale, and its target cannot matter.
 */

#define VALUE_TEXT 80
/* Where Linux puts programs, heaps, stacks and mappings of a process on x86-64 and, but for the first, on AArch64. */
#define PROGRAMS UINT64_C(0x550000000000)
#define PROGRAMS_END UINT64_C(0x570000000000)
#define MAPPINGS UINT64_C(0x7e0000000000)
#define MAPPINGS_END UINT64_C(0x800000000000)

struct range { /* of a parameter block */
	uint32_t from, to;
};

/* NULL when out of memory. */
static const uint8_t *kinds_of(struct md_analysis *analysis, uint32_t index)
{
	const struct md_trace *trace = analysis->traces[0];
	const struct md_kernel *kernel = &trace->kernels[index];
	if (!analysis->param_kinds)
		analysis->param_kinds = calloc(trace->kernel_count + (size_t)1, sizeof(*analysis->param_kinds));
	if (analysis->param_kinds && !analysis->param_kinds[index]) {
		analysis->param_kinds[index] = malloc(kernel->param_count + (size_t)1);
		if (analysis->param_kinds[index])
			md_kernel_param_kinds(kernel, analysis->param_kinds[index]);
	}
	return analysis->param_kinds ? analysis->param_kinds[index] : NULL;
}

/* ---- addresses ---- */

/* Whether the value lies in recorded memory, live or not. */
static bool was_allocated(const struct md_view *view, uint64_t value)
{
	for (uint32_t i = 0; i < view->alloc_count; i++)
		if (value >= view->allocs[i].address && value - view->allocs[i].address <= view->allocs[i].size)
			return true;
	return false;
}

static bool is_of_process(uint64_t value)
{
	return (value >= PROGRAMS && value < PROGRAMS_END) || (value >= MAPPINGS && value < MAPPINGS_END);
}

static bool is_address(const struct md_analysis *analysis, const uint8_t *const bytes[2], const struct md_param *param,
		       uint8_t kind)
{
	for (unsigned c = 0; c < 2; c++) {
		uint64_t value;
		if (param->size != sizeof(value))
			return false;
		memcpy(&value, bytes[c] + param->offset, sizeof(value));
		if (!was_allocated(&analysis->views[c], value) && (kind != MD_PARAM_WORD || !is_of_process(value)))
			return false;
	}
	return true;
}

/* ---- what is said of it ---- */

static const char *print_value(const uint8_t *bytes, const struct md_param *param, char text[VALUE_TEXT])
{
	uint64_t value = 0;
	if (param->size <= sizeof(value)) {
		memcpy(&value, bytes + param->offset, param->size);
		snprintf(text, VALUE_TEXT, "%" PRIu64 " (0x%" PRIx64 ")", value, value);
		return text;
	}
	for (uint32_t i = 0; i < param->size && 2 * i + 3 < VALUE_TEXT; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[param->offset + i]);
	return text;
}

static void refuse_value(const struct md_analysis *analysis, struct md_pair *pair, uint32_t node, uint32_t index,
			 const uint8_t *const bytes[2])
{
	const struct md_kernel *kernel = &analysis->traces[0]->kernels[pair->graph[0]->nodes[node].kernel];
	const struct md_param *param = &kernel->params[index];
	char one[VALUE_TEXT], two[VALUE_TEXT];
	md_pair_refuse(pair,
		       "node %" PRIu32 " (%s): parameter %" PRIu32 " (bytes %" PRIu32 "..%" PRIu32
		       ") is %s in the first capture and %s in the second: a value of the process, which would be zero "
		       "at a cold start; make it the same in every start, pass it in bound memory, or accept it with "
		       "--accept-process-values",
		       node, kernel->name, index, param->offset, param->offset + param->size - 1,
		       print_value(bytes[0], param, one), print_value(bytes[1], param, two));
}

static void refuse_struct(const struct md_analysis *analysis, struct md_pair *pair, uint32_t node, struct range range)
{
	md_pair_refuse(pair,
		       "node %" PRIu32 " (%s): parameter bytes %" PRIu32 "..%" PRIu32
		       ", of a struct, differ between the captures, and --refuse-unset was given",
		       node, analysis->traces[0]->kernels[pair->graph[0]->nodes[node].kernel].name, range.from,
		       range.to - 1);
}

/* ---- judging ---- */

/*
 * The part of [at, at + size) that lies in the parameter and differs; false: there is none. A layout may be longer than
 * the block, which ends within a struct then.
 */
static bool differing_part(const struct md_param *param, uint32_t params_size, uint32_t at, uint32_t size,
			   const uint8_t *const bytes[2], struct range *part)
{
	bool cut = param->offset >= params_size || param->size > params_size - param->offset;
	if (cut && (param->offset >= params_size || param->size <= sizeof(uint64_t)))
		return false;
	uint32_t end = cut ? params_size : param->offset + param->size;
	part->from = at > param->offset ? at : param->offset;
	part->to = at + size < end ? at + size : end;
	return part->from < part->to &&
	       memcmp(bytes[0] + part->from, bytes[1] + part->from, part->to - part->from) != 0;
}

static void judge_param(const struct md_analysis *analysis, struct md_pair *pair, uint32_t node, uint32_t index,
			uint8_t kind, struct range part, const uint8_t *const bytes[2])
{
	const struct md_kernel *kernel = &analysis->traces[0]->kernels[pair->graph[0]->nodes[node].kernel];
	bool is_value = kind == MD_PARAM_SCALAR || kind == MD_PARAM_WORD;
	if (kind == MD_PARAM_STRUCT && analysis->options.refuse_unset)
		refuse_struct(analysis, pair, node, part);
	if (is_value && !analysis->options.accept_process_values &&
	    !is_address(analysis, bytes, &kernel->params[index], kind))
		refuse_value(analysis, pair, node, index, bytes);
}

bool md_unset_judge(struct md_analysis *analysis, struct md_pair *pair, uint32_t node, uint32_t at, uint32_t size,
		    bool in_doubt)
{
	const struct md_node *nodes[2] = {&pair->graph[0]->nodes[node], &pair->graph[1]->nodes[node]};
	const uint8_t *const bytes[2] = {nodes[0]->params, nodes[1]->params};
	const struct md_kernel *kernel = &analysis->traces[0]->kernels[nodes[0]->kernel];
	const uint8_t *kinds = kinds_of(analysis, nodes[0]->kernel);
	for (uint32_t i = 0; kinds && i < kernel->param_count && !pair->why; i++) {
		struct range part;
		if (differing_part(&kernel->params[i], nodes[0]->params_size, at, size, bytes, &part) &&
		    (!in_doubt || (kinds[i] == MD_PARAM_SCALAR && kernel->params[i].size < 8)))
			judge_param(analysis, pair, node, i, kinds[i], part, bytes);
	}
	if (!kernel->param_count && analysis->options.refuse_unset)
		refuse_struct(analysis, pair, node, (struct range){at, at + size});
	return kinds != NULL;
}
