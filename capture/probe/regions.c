/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists the memory that a graph can reach (bound memory, private memory
 * around it, host memory) and copies it before the first replay.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "capture/probe/held_addresses.h"
#include "capture/probe/copies.h"
#include "capture/probe/ranks_memory.h"
#include "capture/probe/probe.h"
#include "capture/probe/poison.h"
#include "capture/probe/probe_variables.h"
#include "capture/probe/regions.h"
#include "capture/probe/spans.h"
#include "capture/probe/windows.h"
#include "capture/probe/written.h"
#include "capture/record/given.h"
#include "capture/record/graphs.h"
#include "capture/record/made.h"
#include "capture/record/module_variables.h"
#include "capture/record/others.h"

static enum md_status add_region(struct md_capture_probe *probe, enum md_probe_region_kind kind, uint64_t address,
				 uint64_t size, struct md_error *err)
{
	if (!MD_ARRAY_EXTEND(probe->regions, probe->region_count))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a region of memory");
	probe->regions[probe->region_count++] =
	    (struct md_probe_region){.kind = kind, .address = address, .size = size};
	return MD_OK;
}

static bool has_region(const struct md_capture_probe *probe, uint64_t address)
{
	for (uint32_t i = 0; i < probe->region_count; i++) {
		if (address >= probe->regions[i].address &&
		    address - probe->regions[i].address < probe->regions[i].size)
			return true;
	}
	return false;
}

/* The parts of [start, end) that no binding covers are private. */
static enum md_status add_gaps(struct md_capture_probe *probe, uint64_t start, uint64_t end,
			       struct md_error *err) MD_CAPTURE_HELD
{
	uint64_t at = start;
	for (size_t i = 0; i < md_capture.binds.count; i++) {
		const struct md_interval *bind = &md_capture.binds.items[i];
		uint64_t bind_end = bind->start + bind->size;
		if (bind_end <= at || bind->start >= end)
			continue;
		if (bind->start > at)
			MD_FORWARD(add_region(probe, MD_PROBE_REGION_PRIVATE, at, bind->start - at, err));
		at = bind_end;
	}
	return at < end ? add_region(probe, MD_PROBE_REGION_PRIVATE, at, end - at, err) : MD_OK;
}

/* Whether others use the memory meanwhile, or it comes and goes with a graph. */
static bool is_untouchable(const struct md_interval *item) MD_CAPTURE_HELD
{
	unsigned family = item->value & MD_FAMILY_MASK;
	return md_capture_made_at(item->start) || family == MD_ALLOC_SHARED || family == MD_ALLOC_MANAGED ||
	       family == MD_ALLOC_GRAPH;
}

static bool has_part(const struct md_capture_probe *probe, const struct md_interval *item)
{
	for (uint32_t i = 0; i < probe->region_count; i++) {
		const struct md_probe_region *region = &probe->regions[i];
		if (region->kind == MD_PROBE_REGION_PRIVATE && region->address >= item->start &&
		    region->address - item->start < item->size)
			return true;
	}
	return false;
}

/*
 * The private parts of an allocation, and of mappings side by side with it, because a buffer may lie across them. A
 * mapping that is bound as a whole, or shared with others, ends the row.
 */
static enum md_status add_private(struct md_capture_probe *probe, const struct md_interval *item,
				  struct md_error *err) MD_CAPTURE_HELD
{
	const struct md_interval *first = md_capture.live.items, *end = first + md_capture.live.count;
	if (!has_part(probe, item))
		MD_FORWARD(add_gaps(probe, item->start, item->start + item->size, err));
	if (item->value != MD_ALLOC_VMM)
		return MD_OK;
	for (const struct md_interval *next = item + 1;
	     next < end && next->value == MD_ALLOC_VMM && next->start == next[-1].start + next[-1].size &&
	     !has_part(probe, next);
	     next++) {
		MD_FORWARD(add_gaps(probe, next->start, next->start + next->size, err));
		if (!has_part(probe, next))
			break;
	}
	for (const struct md_interval *before = item; before-- > first && before->value == MD_ALLOC_VMM &&
						      before->start + before->size == before[1].start &&
						      !has_part(probe, before);) {
		MD_FORWARD(add_gaps(probe, before->start, before->start + before->size, err));
		if (!has_part(probe, before))
			break;
	}
	return MD_OK;
}

/* Adds the allocation at an address unless it is there already, is bound there, or is gone. */
static enum md_status add_allocation(struct md_capture_probe *probe, uint64_t address,
				     struct md_error *err) MD_CAPTURE_HELD
{
	const struct md_interval *item = md_interval_find(&md_capture.live, address);
	if (!item || has_region(probe, address) || md_interval_find(&md_capture.binds, address) || is_untouchable(item))
		return MD_OK;
	if (item->value == MD_ALLOC_HOST)
		return add_region(probe, MD_PROBE_REGION_HOST, item->start, item->size, err);
	if (item->value == MD_ALLOC_GLOBAL)
		return add_region(probe, MD_PROBE_REGION_VARIABLE, item->start, item->size, err);
	return add_private(probe, item, err);
}

/* A kernel reaches the variables of its own module without a parameter. */
static enum md_status add_variables(struct md_capture_probe *probe, const struct md_capture_graph *graph,
				    struct md_error *err) MD_CAPTURE_HELD
{
	struct md_capture_variable variable;
	for (size_t i = 0; md_capture_variable_at(i, &variable); i++)
		if (variable.context == graph->context && md_capture_probe_reads_image(graph, variable.image))
			MD_FORWARD(add_allocation(probe, variable.address, err));
	return MD_OK;
}

static bool is_bound_somewhere(const struct md_interval *item) MD_CAPTURE_HELD
{
	for (size_t i = 0; i < md_capture.binds.count; i++) {
		const struct md_interval *bind = &md_capture.binds.items[i];
		if (bind->start < item->start + item->size && item->start < bind->start + bind->size)
			return true;
	}
	return false;
}

/* An allocation whose start is bound may still have private parts: a pool with tensors of both kinds in it. */
static enum md_status add_candidate(struct md_capture_probe *probe, uint64_t start,
				    struct md_error *err) MD_CAPTURE_HELD
{
	const struct md_interval *item = md_interval_find(&md_capture.live, start);
	if (!item || item->start != start)
		return MD_OK;
	if (is_untouchable(item)) {
		if (probe->communicates && md_capture_made_at(item->start)) /* it has a name, and stays as it is */
			return MD_OK;
		if (is_bound_somewhere(item)) /* a pointer beside the binding refuses the graph in the analysis */
			return MD_OK;
		return md_error_set(err, MD_ERR_UNPROVABLE, "%s (%llu bytes) cannot be changed for the poison test%s",
				    md_alloc_foreign((enum md_alloc_family)(item->value & MD_FAMILY_MASK)),
				    (unsigned long long)item->size,
				    (item->value & MD_FAMILY_MASK) == MD_ALLOC_GRAPH ? ""
										     : ": the engine must bind it");
	}
	if (item->value == MD_ALLOC_HOST)
		return has_region(probe, start) ? MD_OK
						: add_region(probe, MD_PROBE_REGION_HOST, start, item->size, err);
	if (item->value == MD_ALLOC_GLOBAL)
		return add_allocation(probe, start, err);
	return add_private(probe, item, err);
}

/* Bound addresses may have no memory yet, or none any more; but a test copies each region whole. */
static enum md_status check_mapped(const struct md_interval *bind, const char *name, struct md_error *err)
{
	const struct md_interval *item;
	for (uint64_t at = bind->start, end = at + bind->size; at < end; at = item->start + item->size) {
		item = md_interval_find(&md_capture.live, at);
		if (!item)
			return md_error_set(
			    err, MD_ERR_UNPROVABLE,
			    "binding \"%s\" (%llu bytes) has memory for its first %llu bytes alone: for "
			    "the capture and the verification, map all of it before a graph is labelled",
			    name, (unsigned long long)bind->size, (unsigned long long)(at - bind->start));
	}
	return MD_OK;
}

static enum md_status add_outputs(struct md_capture_probe *probe, struct md_error *err) MD_CAPTURE_HELD
{
	for (size_t i = 0; i < md_capture.binds.count; i++) {
		const struct md_interval *bind = &md_capture.binds.items[i];
		const struct md_capture_bind *bound = &md_capture.bound[bind->value];
		if (bound->role == MD_BIND_CONSTANT || !md_interval_find(&md_capture.live, bind->start))
			continue;
		if (md_capture_others_at(bind->start) != MD_OTHERS_NONE) /* no graph that reaches it is tested */
			continue;
		MD_FORWARD(check_mapped(bind, bound->name, err));
		MD_FORWARD(add_region(probe, MD_PROBE_REGION_OUTPUT, bind->start, bind->size, err));
		probe->regions[probe->region_count - 1].state = bound->role == MD_BIND_STATE;
		probe->regions[probe->region_count - 1].read = bound->role != MD_BIND_INPUT;
		probe->regions[probe->region_count - 1].name = bound->name;
	}
	return MD_OK;
}

/* An output that was freed can't be compared, and its addresses may belong to somebody else by now. */
static enum md_status check_outputs_live(const struct md_capture_probe *probe, struct md_error *err)
{
	for (size_t i = 0; i < probe->output_count; i++) {
		const struct md_capture_output *output = &probe->outputs[i];
		for (uint64_t at = output->address, end = at + output->size; at < end;) {
			const struct md_interval *item = md_interval_find(&md_capture.live, at);
			if (!item || item->value == MD_ALLOC_HOST)
				return md_error_set(
				    err, MD_ERR_UNPROVABLE,
				    "output %u does not lie in device memory that is live during the poison test",
				    output->index);
			at = item->start + item->size;
		}
	}
	return MD_OK;
}

/* The copy of an earlier graph's test serves again, because that test has put everything back. */
static enum md_status load(struct md_capture_probe *probe, struct md_probe_region *region, struct md_error *err)
{
	region->copy = md_capture_copy_find(probe->session, region->address, region->size);
	if (region->copy)
		return MD_OK;
	return md_capture_copy_make(probe->session, region->kind, region->address, region->size, &region->copy, err);
}

static bool is_followed(const struct md_probe_region *region)
{
	return region->kind == MD_PROBE_REGION_PRIVATE || region->kind == MD_PROBE_REGION_VARIABLE;
}

/* Finds the pointers in regions [from, to), as far as no earlier graph's test has. */
static enum md_status find_pointers(struct md_capture_probe *probe, uint32_t from, uint32_t to,
				    struct md_error *err) MD_CAPTURE_HELD
{
	MD_AUTO_FREE struct md_probe_copy **copies = calloc(to - from + 1, sizeof(struct md_probe_copy *));
	size_t count = 0;
	if (!copies)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u regions of memory", to - from);
	for (uint32_t i = from; i < to; i++)
		if (is_followed(&probe->regions[i]) && !probe->regions[i].copy->followed)
			copies[count++] = probe->regions[i].copy;
	return md_capture_addresses_find(probe->session, copies, count, err);
}

/* A kernel that waits at another address than the other ranks write to waits for ever, so no trial changes the word. */
static enum md_status keep_address(const struct md_probe_region *region, uint64_t offset,
				   struct md_error *err) MD_CAPTURE_HELD
{
	if (region->kind != MD_PROBE_REGION_PRIVATE)
		return md_error_set(err, MD_ERR_UNPROVABLE,
				    "a module's variable holds an address in memory that is shared with other ranks");
	return md_capture_probe_need(region->address + offset, 8, err);
}

/* Private memory and variables may hold pointers to more private memory, which must be put back, too. */
static enum md_status follow_pointers(struct md_capture_probe *probe, uint32_t index,
				      struct md_error *err) MD_CAPTURE_HELD
{
	const struct md_probe_copy *copy = probe->regions[index].copy;
	char text[MD_MADE_SAID];
	for (size_t i = 0; is_followed(&probe->regions[index]) && i < copy->pointer_count; i++) {
		if (copy->pointers[i].whole)
			continue;
		const struct md_capture_made *made = md_capture_made_at(copy->pointers[i].value);
		if (made && made->soname)
			return md_error_set(
			    err, MD_ERR_UNPROVABLE,
			    "its unbound memory holds an address in %s: a replay of one rank alone would "
			    "change what others rely on",
			    md_capture_made_said(made, text));
		MD_FORWARD(md_capture_ranks_memory_check_held(probe, copy->pointers[i].value, err));
		if (made)
			MD_FORWARD(keep_address(&probe->regions[index], copy->pointers[i].offset, err));
		MD_FORWARD(add_allocation(probe, copy->pointers[i].value, err));
		md_capture_given_watch_words((const uint8_t *)&copy->pointers[i].value, sizeof(uint64_t));
	}
	return MD_OK;
}

/* Copies the regions [from, to), and adds those that they point to. */
static enum md_status load_regions(struct md_capture_probe *probe, uint32_t from, uint32_t to,
				   struct md_error *err) MD_CAPTURE_HELD
{
	for (uint32_t i = from; i < to; i++)
		if (!probe->regions[i].state)
			MD_FORWARD(load(probe, &probe->regions[i], err));
	MD_FORWARD(find_pointers(probe, from, to, err));
	for (uint32_t i = from; i < to; i++)
		MD_FORWARD(follow_pointers(probe, i, err));
	return MD_OK;
}

/* ---- state ---- */

/* Regions that no graph of this session has copied or sampled yet are sampled from here on if they do not fit. */
static enum md_status choose_sampled(struct md_capture_probe *probe, bool *sampled, struct md_error *err)
{
	MD_AUTO_FREE uint64_t *sizes = calloc(probe->region_count + 1, sizeof(*sizes));
	const struct md_probe_session *session = probe->session;
	uint64_t room = session->device.differ && session->device.device_left > session->host_left
			    ? session->device.device_left
			    : session->host_left;
	if (!sizes)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the sizes of %u regions",
				    probe->region_count);
	for (uint32_t i = 0; i < probe->region_count; i++) {
		struct md_probe_region *region = &probe->regions[i];
		if (!region->state)
			continue;
		region->copy = md_capture_copy_find(session, region->address, region->size);
		sizes[i] = region->copy ? 0 : region->size;
	}
	md_sample_choose(sizes, probe->region_count, room, sampled);
	return MD_OK;
}

/* A region that was expected to fit may still not fit: it is sampled, too. */
static enum md_status load_or_sample(struct md_capture_probe *probe, struct md_probe_region *region, bool sampled,
				     struct md_error *err)
{
	struct md_error why = {0};
	enum md_status status = MD_OK;
	if (!sampled)
		status = load(probe, region, &why);
	if (sampled || status == MD_ERR_TOO_LARGE)
		status = md_capture_copy_sampled(probe->session, region->address, region->size, &region->copy, &why);
	if (status != MD_OK)
		return md_error_set(err, status, "%s", why.message);
	if (region->copy->sampled) {
		region->kind = MD_PROBE_REGION_SAMPLED;
		probe->sampled_count++;
	}
	return MD_OK;
}

static enum md_status load_state(struct md_capture_probe *probe, struct md_error *err)
{
	MD_AUTO_FREE bool *sampled = calloc(probe->region_count + 1, sizeof(*sampled));
	if (!sampled)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the state of %u regions",
				    probe->region_count);
	MD_FORWARD(choose_sampled(probe, sampled, err));
	for (uint32_t i = 0; i < probe->region_count; i++) {
		if (probe->regions[i].state)
			MD_FORWARD(load_or_sample(probe, &probe->regions[i], sampled[i], err));
	}
	return probe->no_windows ? MD_OK : md_capture_windows_keep(probe, err);
}

/* Memory that matters is mostly small: semaphores, tables. */
static int compare_sizes(const void *left, const void *right)
{
	const struct md_probe_region *a = left, *b = right;
	if (a->size != b->size)
		return a->size < b->size ? -1 : 1;
	return (a->address > b->address) - (a->address < b->address);
}

static bool has_output(const struct md_capture_probe *probe)
{
	if (probe->output_count)
		return true;
	for (uint32_t i = 0; i < probe->region_count; i++) {
		if (probe->regions[i].read)
			return true;
	}
	return false;
}

enum md_status md_capture_probe_collect(struct md_capture_probe *probe, const struct md_capture_graph *graph,
					struct md_error *err)
{
	MD_FORWARD(check_outputs_live(probe, err));
	MD_FORWARD(md_capture_ranks_memory_check(probe, graph, err));
	MD_FORWARD(add_outputs(probe, err));
	if (!probe->any_output && !has_output(probe))
		return md_error_set(err, MD_ERR_NOT_FOUND, "no output of the graph is known");
	for (size_t i = 0; i < graph->candidate_count; i++)
		MD_FORWARD(add_candidate(probe, graph->candidates[i], err));
	MD_FORWARD(add_variables(probe, graph, err));
	for (uint32_t from = 0, to; from < probe->region_count; from = to) {
		to = probe->region_count;
		MD_FORWARD(load_regions(probe, from, to, err));
	}
	MD_FORWARD(load_state(probe, err));
	if (probe->region_count)
		qsort(probe->regions, probe->region_count, sizeof(*probe->regions), compare_sizes);
	/* copies on the device must be whole before the first replay */
	return md_cuda_call(err, cuStreamSynchronize, probe->session->device.stream);
}

void md_capture_probe_release(struct md_capture_probe *probe)
{
	md_capture_windows_release(probe);
	md_capture_written_release(probe);
	md_capture_probe_drop_spans(probe);
	free(probe->spans);
	free(probe->regions);
	free(probe->units);
}
