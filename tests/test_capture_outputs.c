/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs, notes, refusals and facts in a capture run: recorded, checked, and outputs compared by the poison test. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <string.h>

#include "tests/capture_fixture.h"

static void assert_said(const struct run *run, const char *call, int code, const char *reason)
{
	char key[64];
	const char *line;
	snprintf(key, sizeof(key), "said %s %d ", call, code);
	line = strstr(run->output, key);
	cr_assert_not_null(line, "no \"%s\" in: %s", key, run->output);
	cr_assert(!strncmp(line + strlen(key), reason, strlen(reason)), "%.*s lacks \"%s\"", (int)strcspn(line, "\n"),
		  line, reason);
}

static void assert_recorded(const struct run *run, const struct md_trace *trace)
{
	const struct md_trace_graph *graph = find_graph(trace, "decode");
	cr_assert_eq(graph->output_count, 2, "%u outputs", graph->output_count);
	cr_assert_eq(graph->outputs[0].address, address_of(run, "out"), "output 0");
	cr_assert_eq(graph->outputs[1].address, address_of(run, "temp"), "output 1");
	cr_assert_eq(graph->outputs[1].size, 256, "bytes of output 1");
	cr_assert(graph->note_size == 6 && !memcmp(graph->note, "a note", 6), "note");
	cr_assert_eq(find_graph(trace, "explicit")->output_count, 0, "the other graph has none");
	cr_assert_eq(trace->fingerprint.fact_count, 2, "%u facts", trace->fingerprint.fact_count);
	cr_assert_str_eq(trace->fingerprint.facts[0].name, "batches", "ascending");
	cr_assert_str_eq(trace->fingerprint.facts[1].value, "subject", "the later value");
	cr_assert_neq(trace->fingerprint.device_name[0], 0, "beside the device");
}

static void assert_contents_found(const struct run *run, const struct md_trace *trace)
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
	cr_assert_leq(saved, 2048, "%" PRIu64 " bytes are saved where few matter", saved);
}

Test(capture_outputs, private_outputs_are_compared)
{
	static struct run plain, run;
	struct md_trace trace;
	run_subject(&plain, (const char *[]){"outputs", NULL}, NULL, false, false);
	run_subject(&run, (const char *[]){"outputs", NULL}, NULL, true, false);
	assert_succeeded(&run);
	assert_same_results(&plain, &run);
	read_trace(run.trace, &trace);
	assert_recorded(&run, &trace);
	assert_contents_found(&run, &trace);
	/* Overwritten whole by the graph before anybody reads it. */
	cr_assert_not(is_saved(&trace, address_of(&run, "temp"), 4, &(float){0}), "outputs are no contents");
	cr_assert_eq(find_graph(&trace, "explicit")->probe, 0, "without an output nothing can be said");
	md_trace_finish(&trace);
	clean_up(&plain);
	clean_up(&run);
}

Test(capture_outputs, nothing_needs_to_be_bound)
{
	static struct run plain, run;
	struct md_trace trace;
	run_subject(&plain, (const char *[]){"unbound", NULL}, NULL, false, false);
	run_subject(&run, (const char *[]){"unbound", NULL}, NULL, true, false);
	assert_succeeded(&run);
	assert_same_results(&plain, &run);
	read_trace(run.trace, &trace);
	cr_assert_eq(trace.bind_count, 0);
	assert_contents_found(&run, &trace);
	cr_assert(is_saved(&trace, address_of(&run, "in") + 12, 4, &(float){3}), "the input, which nobody bound");
	md_trace_finish(&trace);
	clean_up(&plain);
	clean_up(&run);
}

Test(capture_outputs, should_fail_output_that_is_freed_before_the_test)
{
	static struct run run;
	const struct md_trace_graph *graph;
	struct md_trace trace;
	run_subject(&run, (const char *[]){"gone", NULL}, NULL, true, false);
	assert_succeeded(&run);
	read_trace(run.trace, &trace);
	graph = find_graph(&trace, "decode");
	cr_assert_eq(graph->probe, MD_PROBE_FAILED, "probe %d", (int)graph->probe);
	cr_assert_str_eq(graph->probe_why,
			 "output 2 does not lie in device memory that is live during the poison test");
	md_trace_finish(&trace);
	clean_up(&run);
}

Test(capture_outputs, should_fail_wrong_arguments)
{
	static struct run run;
	struct md_trace trace;
	run_subject(&run, (const char *[]){"wrong", NULL}, NULL, true, false);
	assert_succeeded(&run);
	assert_said(&run, "launched", 1, "medusa_graph_output: the graph has been launched or tested already");
	assert_said(&run, "index", 1, "medusa_graph_output: index is 4096; it must be below 4096");
	assert_said(&run, "size", 1, "medusa_graph_output: there is no memory of 0 bytes");
	assert_said(&run, "end", 1, "medusa_graph_output: there is no memory of 2 bytes at 0xffffffffffffffff");
	assert_said(&run, "exec", 4, "medusa_graph_output: no graph was instantiated as");
	assert_said(&run, "note", 1, "medusa_graph_note: 65537 bytes; at most 65536 are taken");
	assert_said(&run, "note exec", 4, "medusa_graph_note: no graph was instantiated as");
	assert_said(&run, "refuse", 1, "medusa_graph_refuse: why is ");
	assert_said(&run, "refuse exec", 4, "medusa_graph_refuse: no graph was instantiated as");
	assert_said(&run, "label exec", 4, "medusa_graph_label: no graph was instantiated as");
	assert_said(&run, "value", 1, "medusa_fingerprint_add(fact): value has 4097 bytes; at most 4096 are taken");
	assert_said(&run, "name", 1, "medusa_fingerprint_add: name ");
	assert_said(&run, "no value", 1, "medusa_fingerprint_add(fact): value is NULL");
	assert_said(&run, "output_get", 4, "output 0 of graph (decode, 1): this run captures, nothing is restored");
	assert_said(&run, "note_get", 4, "note of graph (decode, 1): this run captures, nothing is restored");
	assert_said(&run, "refuse last", 0, "");
	assert_said(&run, "label last", 0, "");
	assert_said(&run, "label forgotten", 4,
		    "medusa_graph_label: this thread has instantiated no graph, or destroyed it");
	read_trace(run.trace, &trace);
	cr_assert_str_eq(find_graph(&trace, "refused")->refused, "refused by the engine: random numbers");
	cr_assert_eq(find_graph(&trace, "refused")->batch, 7);
	cr_assert_eq(find_graph(&trace, "refused")->probe, 0, "what is refused is not tested");
	cr_assert_eq(trace.fingerprint.fact_count, 0, "no wrong fact is recorded");
	md_trace_finish(&trace);
	clean_up(&run);
}
