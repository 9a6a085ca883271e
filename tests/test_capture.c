/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of libmedusa-capture.so: a subject runs under it on hostcuda, and the trace must say what the subject did. */
#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/capture_fixture.h"

/* ---- what was done is what the trace says ---- */

static void check_allocations(const struct run *run, const struct md_trace *trace)
{
	unsigned seen = 0;
	for (const char *line = run->output; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		char name[32];
		unsigned long long address;
		size_t size;
		int family;
		const struct md_trace_alloc *alloc;
		if (sscanf(line, "alloc %31s %llx %zu %d", name, &address, &size, &family) != 4)
			continue;
		alloc = find_alloc(trace, address);
		cr_assert_not_null(alloc, "allocation %s is not in the trace", name);
		cr_assert_eq(alloc->size, size, "%s: size", name);
		cr_assert_eq((int)alloc->family, family, "%s: family %d", name, (int)alloc->family);
		cr_assert_eq(alloc->died == UINT64_MAX, strcmp(name, "aux") != 0, "%s: freed or not", name);
		seen++;
	}
	cr_assert_eq(seen, 8);
	cr_assert_eq(trace->alloc_count, 8, "%u allocations recorded, nothing of the probe's among them",
		     trace->alloc_count);
}

static void check_binds(const struct run *run, const struct md_trace *trace)
{
	cr_assert_eq(trace->bind_count, 4);
	cr_assert_str_eq(trace->binds[0].name, "weights");
	cr_assert_eq(trace->binds[0].role, MD_BIND_CONSTANT);
	cr_assert_eq(trace->binds[0].address, address_of(run, "weights"));
	cr_assert_eq(trace->binds[3].role, MD_BIND_STATE);
	cr_assert_eq(trace->binds[3].size, 256);
}

static uint64_t launches_of(const struct md_trace *trace, const char *name)
{
	uint64_t count = 0;
	for (uint32_t i = 0; i < trace->kernel_count; i++) {
		if (!strcmp(trace->kernels[i].name, name))
			count += trace->launches[i];
	}
	return count;
}

static void check_kernels(const struct md_trace *trace)
{
	cr_assert_eq(trace->image_count, 1, "one content, loaded twice: %u images", trace->image_count);
	cr_assert_eq(trace->images[0].kind, MD_IMAGE_ELF);
	cr_assert_not_null(trace->images[0].data, "an image in anonymous memory is stored");
	cr_assert_eq(launches_of(trace, "capture_scale"), 5, "launches of scale outside of capture: %" PRIu64,
		     launches_of(trace, "capture_scale"));
	cr_assert_eq(launches_of(trace, "capture_count"), 1);
	for (uint32_t i = 0; i < trace->kernel_count; i++)
		cr_assert_eq(trace->kernels[i].image, 0, "%s: image %u", trace->kernels[i].name,
			     trace->kernels[i].image);
}

static void check_captured_graph(const struct run *run, const struct md_trace *trace)
{
	const struct md_trace_graph *graph = find_graph(trace, "decode");
	const struct md_node *scale = node_of(trace, graph, "capture_scale");
	const struct md_node *count = node_of(trace, graph, "capture_count");
	const struct md_node *finish = node_of(trace, graph, "capture_finish");
	bool programmatic = false, preferred_cluster = false;
	uint32_t step;
	cr_assert_null(graph->refused, "%s", graph->refused);
	cr_assert_eq(graph->batch, 1);
	cr_assert_eq(graph->node_count, 6);
	cr_assert_eq(count_types(graph, MD_NODE_MEMSET), 1);
	cr_assert_eq(count_types(graph, MD_NODE_MEMCPY), 1);
	cr_assert_not(scale->via_extra);
	cr_assert_eq(scale->params_size, 28);
	cr_assert_eq(word_at(scale, 0), address_of(run, "temp"));
	cr_assert_eq(word_at(scale, 8), address_of(run, "in"));
	cr_assert_eq(word_at(scale, 16), address_of(run, "weights"));
	cr_assert_eq(scale->block[0], 32);
	cr_assert(count->via_extra);
	cr_assert_eq(count->params_size, 16);
	cr_assert_eq(word_at(count, 0), address_of(run, "state"));
	memcpy(&step, count->params + 8, 4);
	cr_assert_eq(step, 3);
	cr_assert_eq(word_at(finish, 8), address_of(run, "temp") + 256, "an interior pointer keeps its offset");
	for (uint32_t i = 0; i < finish->attribute_count; i++)
		preferred_cluster |= finish->attributes[i].id == 11 && finish->attributes[i].value[0] == 1;
	cr_assert(preferred_cluster, "attribute 11 cannot be read back: it comes from the launch");
	for (uint32_t i = 0; i < graph->edge_count; i++)
		programmatic |= &graph->nodes[graph->edges[i].to] == finish && graph->edges[i].type == 1;
	cr_assert(programmatic, "the edge to the last kernel is programmatic");
	cr_assert_gt(finish->sequence, scale->sequence);
	cr_assert_lt(finish->sequence, graph->sequence);
}

static void check_built_graph(const struct run *run, const struct md_trace *trace)
{
	const struct md_trace_graph *graph = find_graph(trace, "explicit");
	cr_assert_eq(graph->node_count, 3);
	cr_assert_eq(graph->edge_count, 2);
	cr_assert_eq(count_types(graph, MD_NODE_EMPTY), 1);
	cr_assert_eq(count_types(graph, MD_NODE_MEMSET), 1);
	for (uint32_t i = 0; i < graph->node_count; i++) {
		if (graph->nodes[i].type != MD_NODE_MEMSET)
			continue;
		cr_assert_eq(graph->nodes[i].memset.dst, address_of(run, "out"));
		cr_assert_eq(graph->nodes[i].memset.width, 64);
		cr_assert_eq(graph->nodes[i].memset.value, 0x3f800000);
	}
	cr_assert_eq(graph->probe, MD_PROBE_CLEAN, "%s", graph->probe_why ? graph->probe_why : "");
}

static void check_contents(const struct run *run, const struct md_trace *trace)
{
	const struct md_trace_graph *graph = find_graph(trace, "decode");
	uint64_t aux = address_of(run, "aux"), saved = 0;
	cr_assert_eq(graph->probe, MD_PROBE_CONTENT_SAVED, "probe %d: %s", (int)graph->probe,
		     graph->probe_why ? graph->probe_why : "");
	cr_assert(is_saved(trace, address_of(run, "table") + 4 * 9000, 4, &(float){0.5f}), "the table's one value");
	cr_assert(is_saved(trace, address_of(run, "list"), 8, &aux), "the pointer in private memory");
	cr_assert(is_saved(trace, aux + 4, 4, &(float){1.0f}), "what that pointer points to");
	for (uint32_t i = 0; i < trace->content_count; i++)
		saved += trace->contents[i].size;
	cr_assert_leq(saved, 1024, "%" PRIu64 " bytes are saved where few matter", saved);
}

Test(capture, trace_says_what_was_done)
{
	static struct run plain, run;
	struct md_trace trace;
	run_subject(&plain, NULL, NULL, false, false);
	assert_succeeded(&plain);
	run_subject(&run, NULL, NULL, true, false);
	assert_succeeded(&run);
	assert_same_results(&plain, &run);
	read_trace(run.trace, &trace);
	cr_assert(trace.complete);
	cr_assert_neq(trace.fingerprint.device_name[0], '\0');
	cr_assert_eq(trace.stage_count, 1);
	cr_assert_eq(trace.stages[0].ns, 12345);
	cr_assert_eq(trace.transfers[MD_TRANSFER_TO_DEVICE].count, 5, "copies to the device: %llu",
		     (unsigned long long)trace.transfers[MD_TRANSFER_TO_DEVICE].count);
	cr_assert_gt(trace.transfers[MD_TRANSFER_SET].bytes, 0, "sets");
	cr_assert_eq(trace.transfers[MD_TRANSFER_WITHIN_DEVICE].count, 0, "the captured copy is a node, not counted");
	check_allocations(&run, &trace);
	check_binds(&run, &trace);
	check_kernels(&trace);
	check_captured_graph(&run, &trace);
	check_built_graph(&run, &trace);
	check_contents(&run, &trace);
	md_trace_finish(&trace);
	clean_up(&plain);
	clean_up(&run);
}

/* ---- refusals ---- */

Test(capture, host_node_is_refused_by_name)
{
	static struct run run;
	const struct md_trace_graph *graph;
	struct md_trace trace;
	run_subject(&run, (const char *[]){"host", NULL}, NULL, true, false);
	assert_succeeded(&run);
	read_trace(run.trace, &trace);
	graph = find_graph(&trace, "decode");
	cr_assert_not_null(graph->refused);
	cr_assert_not_null(strstr(graph->refused, "host node at index"), "%s", graph->refused);
	md_trace_finish(&trace);
	clean_up(&run);
}

Test(capture, update_to_what_it_is_already_is_none)
{
	static struct run run;
	const struct md_trace_graph *graph;
	struct md_trace trace;
	run_subject(&run, (const char *[]){"update", NULL}, NULL, true, false);
	assert_succeeded(&run);
	read_trace(run.trace, &trace);
	graph = find_graph(&trace, "updated");
	cr_assert(!graph->refused, "%s", graph->refused);
	cr_assert(graph->probe && graph->probe != MD_PROBE_FAILED, "tested as any other: %s", graph->probe_why);
	md_trace_finish(&trace);
	clean_up(&run);
}

#define ON_HOST "MEDUSA_PROBE_DEVICE_LIMIT=0" /* as on a device that is full */

Test(capture, probe_beyond_its_limit_fails_with_the_reason)
{
	static struct run run;
	const struct md_trace_graph *graph;
	struct md_trace trace;
	run_subject(&run, NULL, (const char *[]){"MEDUSA_PROBE_LIMIT=1000", ON_HOST, NULL}, true, false);
	assert_succeeded(&run);
	read_trace(run.trace, &trace);
	graph = find_graph(&trace, "decode");
	cr_assert_eq(graph->probe, MD_PROBE_FAILED);
	cr_assert_not_null(strstr(graph->probe_why, "MEDUSA_PROBE_LIMIT"), "%s", graph->probe_why);
	md_trace_finish(&trace);
	clean_up(&run);
}

/* ---- state that is too large to be saved ---- */

#define SMALL_LIMIT                                                                                                    \
	"MEDUSA_PROBE_LIMIT=3000000" /* private memory (2 MiB beside weights) fits, 1 MiB of state then does not */

Test(capture, large_state_is_sampled_and_contents_are_found)
{
	static struct run plain, run;
	const struct md_trace_graph *graph;
	struct md_trace trace;
	run_subject(&plain, (const char *[]){"large", NULL}, NULL, false, false);
	run_subject(&run, (const char *[]){"large", NULL}, (const char *[]){SMALL_LIMIT, ON_HOST, NULL}, true, false);
	assert_succeeded(&run);
	assert_same_results(&plain, &run);
	read_trace(run.trace, &trace);
	graph = find_graph(&trace, "decode");
	cr_assert_not_null(graph->probe_why, "it says what was sampled");
	cr_assert_str_eq(graph->probe_why, "kv: 1048576 bytes, sampled");
	check_contents(&run, &trace);
	md_trace_finish(&trace);
	clean_up(&plain);
	clean_up(&run);
}

Test(capture, state_within_the_limit_is_compared_whole)
{
	static struct run plain, run;
	struct md_trace trace;
	run_subject(&plain, (const char *[]){"growing", NULL}, NULL, false, false);
	run_subject(&run, (const char *[]){"growing", NULL}, NULL, true, false);
	assert_succeeded(&run);
	assert_same_results(&plain, &run);
	read_trace(run.trace, &trace);
	cr_assert_null(find_graph(&trace, "decode")->probe_why);
	check_contents(&run, &trace);
	md_trace_finish(&trace);
	clean_up(&plain);
	clean_up(&run);
}

Test(capture, should_fail_large_state_that_is_not_written_idempotently)
{
	static struct run run;
	const struct md_trace_graph *graph;
	struct md_trace trace;
	run_subject(&run, (const char *[]){"growing", NULL}, (const char *[]){SMALL_LIMIT, ON_HOST, NULL}, true, false);
	assert_succeeded(&run);
	read_trace(run.trace, &trace);
	graph = find_graph(&trace, "decode");
	cr_assert_eq(graph->probe, MD_PROBE_FAILED, "probe %d", (int)graph->probe);
	cr_assert_not_null(strstr(graph->probe_why, "the graph may not write it idempotently"), "%s", graph->probe_why);
	md_trace_finish(&trace);
	clean_up(&run);
}

/* The first replay writes what is there already, so nothing shows where; a poisoned index writes elsewhere. */
Test(capture, index_that_only_moves_a_write_is_found)
{
	static struct run plain, run;
	struct md_trace trace;
	run_subject(&plain, (const char *[]){"scatter", NULL}, NULL, false, false);
	run_subject(&run, (const char *[]){"scatter", NULL}, NULL, true, false);
	assert_succeeded(&run);
	assert_same_results(&plain, &run);
	read_trace(run.trace, &trace);
	check_contents(&run, &trace);
	cr_assert(is_saved(&trace, address_of(&run, "slot"), 4, &(uint32_t){7}), "the index");
	md_trace_finish(&trace);
	clean_up(&plain);
	clean_up(&run);
}

Test(capture, probe_can_be_turned_off)
{
	static struct run run;
	struct md_trace trace;
	run_subject(&run, NULL, (const char *[]){"MEDUSA_PROBE=0", NULL}, true, false);
	assert_succeeded(&run);
	read_trace(run.trace, &trace);
	cr_assert_eq(find_graph(&trace, "decode")->probe, 0);
	cr_assert_eq(trace.content_count, 0);
	md_trace_finish(&trace);
	clean_up(&run);
}

/* ---- ends ---- */

Test(capture, killed_process_leaves_a_readable_trace)
{
	static struct run run;
	struct md_trace trace;
	char part[160];
	run_subject(&run, (const char *[]){"kill", NULL}, NULL, true, false);
	cr_assert(WIFSIGNALED(run.status) && WTERMSIG(run.status) == SIGKILL, "status %x: %s", run.status, run.errors);
	cr_assert_neq(access(run.trace, F_OK), 0, "a trace under its final name is complete");
	snprintf(part, sizeof(part), "%s.part", run.trace);
	read_trace(part, &trace);
	cr_assert_not(trace.complete);
	cr_assert_eq(trace.alloc_count, 8);
	cr_assert_eq(find_graph(&trace, "decode")->node_count, 6);
	md_trace_finish(&trace);
	clean_up(&run);
}

Test(capture, full_disk_leaves_the_engine_untouched)
{
	static struct run plain, run;
	run_subject(&plain, NULL, NULL, false, false);
	run_subject(&run, (const char *[]){"full", NULL}, NULL, true, false);
	assert_succeeded(&run);
	assert_same_results(&plain, &run);
	cr_assert_not_null(strstr(run.errors, "File too large"), "it says why: %s", run.errors);
	cr_assert_neq(access(run.trace, F_OK), 0, "nothing half-written has the final name");
	clean_up(&plain);
	clean_up(&run);
}

Test(capture, trace_that_cannot_be_written_leaves_the_engine_untouched)
{
	static struct run plain, run;
	run_subject(&plain, NULL, NULL, false, false);
	run_subject(&run, NULL, NULL, true, true);
	assert_succeeded(&run);
	assert_same_results(&plain, &run);
	cr_assert_not_null(strstr(run.errors, "Is a directory"), "it says why: %s", run.errors);
	cr_assert_neq(access(run.trace, F_OK), 0, "nothing half-written has the final name");
	clean_up(&plain);
	clean_up(&run);
}

Test(capture, until_graphs_ends_the_recording)
{
	static struct run run;
	struct md_trace trace;
	run_subject(&run, NULL, (const char *[]){"MEDUSA_UNTIL=graphs=1", NULL}, true, false);
	assert_succeeded(&run);
	read_trace(run.trace, &trace);
	cr_assert(trace.complete);
	cr_assert_eq(trace.graph_count, 1);
	cr_assert_eq(trace.graphs[0].probe, MD_PROBE_CONTENT_SAVED, "its probe took place before the end");
	cr_assert_eq(find_alloc(&trace, address_of(&run, "aux"))->died, UINT64_MAX, "freed after the end");
	md_trace_finish(&trace);
	clean_up(&run);
}

Test(capture, shifted_run_records_the_same_things_elsewhere)
{
	static struct run first, second;
	struct md_trace a, b;
	run_subject(&first, NULL, NULL, true, false);
	run_subject(&second, NULL, (const char *[]){"MEDUSA_SHIFT=77", NULL}, true, false);
	assert_succeeded(&second);
	assert_same_results(&first, &second);
	read_trace(first.trace, &a);
	read_trace(second.trace, &b);
	cr_assert_eq(b.shift, 77);
	cr_assert_eq(a.alloc_count, b.alloc_count, "pads are not recorded");
	for (uint32_t i = 0; i < a.alloc_count; i++)
		cr_assert_eq(a.allocs[i].size, b.allocs[i].size, "allocation %u", i);
	cr_assert_eq(a.graph_count, b.graph_count);
	md_trace_finish(&a);
	md_trace_finish(&b);
	clean_up(&first);
	clean_up(&second);
}
