/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine says, in a trace: outputs, notes, refusals and facts come back, and malformed ones are named. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hash.h"
#include "format/artifact/artifact.h"
#include "format/codec/pack.h"
#include "format/trace/trace.h"

static char path[64];

static void teardown(void)
{
	unlink(path);
}

static struct md_trace_writer *writer_with_graphs(uint64_t count)
{
	struct md_trace_writer *w = NULL;
	struct md_error err;
	snprintf(path, sizeof(path), "/tmp/medusa-said-%d.mtrace", (int)getpid());
	cr_assert(md_trace_writer_create(path, &w, &err) == MD_OK, "create: %s", err.message);
	for (uint64_t id = 1; id <= count; id++)
		md_trace_put_graph(w, id, &(struct md_trace_graph){.id = id});
	return w;
}

static enum md_status finish(struct md_trace_writer *w, struct md_trace *trace, struct md_error *err)
{
	cr_assert(md_trace_writer_close(w, err) == MD_OK, "close: %s", err->message);
	return md_trace_read(path, trace, err);
}

Test(said_records, outputs_and_notes_come_back, .fini = teardown)
{
	struct md_trace_writer *w = writer_with_graphs(2);
	struct md_trace trace;
	struct md_error err = {0};
	md_trace_put_output(w, 10, 2, 3, 0x5000, 64);
	md_trace_put_output(w, 11, 2, 0, 0x6000, 1);
	md_trace_put_output(w, 12, 2, 3, 0x7000, 128);
	md_trace_put_note(w, 13, 2, "old", 3);
	md_trace_put_note(w, 14, 2, "new\0er", 6);
	md_trace_put_note(w, 15, 1, "taken back", 10);
	md_trace_put_note(w, 16, 1, "", 0);
	cr_assert(finish(w, &trace, &err) == MD_OK, "%s", err.message);
	const struct md_trace_graph *graph = &trace.graphs[1];
	cr_assert_eq(graph->output_count, 4, "up to the highest index: %u", graph->output_count);
	cr_assert(graph->outputs[0].address == 0x6000 && graph->outputs[0].size == 1, "output 0");
	cr_assert(!graph->outputs[1].size && !graph->outputs[2].size, "outputs that nobody gave");
	cr_assert(graph->outputs[3].address == 0x7000 && graph->outputs[3].size == 128, "the later output holds");
	cr_assert(graph->note_size == 6 && !memcmp(graph->note, "new\0er", 6), "the later note holds");
	cr_assert(!trace.graphs[0].output_count && !trace.graphs[0].note && !trace.graphs[0].note_size, "graph 1");
	cr_assert(!trace.graphs[1].refused, "nothing is refused");
	md_trace_finish(&trace);
}

Test(said_records, a_refusal_is_the_engines_and_the_first_reason_stays, .fini = teardown)
{
	struct md_trace_writer *w = writer_with_graphs(1);
	struct md_trace trace;
	struct md_error err = {0};
	md_trace_put_graph(w, 2, &(struct md_trace_graph){.id = 2, .refused = (char *)"host node at index 4"});
	md_trace_put_refusal(w, 3, 1, "random numbers");
	md_trace_put_refusal(w, 4, 1, "more of them");
	md_trace_put_refusal(w, 5, 2, "random numbers");
	cr_assert(finish(w, &trace, &err) == MD_OK, "%s", err.message);
	cr_assert_str_eq(trace.graphs[0].refused, "refused by the engine: random numbers", "graph 1");
	cr_assert_str_eq(trace.graphs[1].refused, "host node at index 4", "graph 2");
	md_trace_finish(&trace);
}

Test(said_records, tolerances_come_back, .fini = teardown)
{
	struct md_trace_writer *w = writer_with_graphs(2);
	struct md_trace trace;
	struct md_error err = {0};
	md_trace_put_tolerance(w, 10, 2, &(struct md_tolerance){true, 64, MD_ELEMENT_BF16});
	cr_assert(finish(w, &trace, &err) == MD_OK, "%s", err.message);
	cr_assert(!trace.graphs[0].tolerance.given, "graph 1 is deterministic");
	cr_assert(trace.graphs[1].tolerance.given && trace.graphs[1].tolerance.ulps == 64 &&
		      trace.graphs[1].tolerance.type == MD_ELEMENT_BF16,
		  "graph 2");
	md_trace_finish(&trace);
}

Test(said_records, should_fail_tolerances_of_no_type, .fini = teardown)
{
	const struct md_tolerance wrong[] = {{true, 64, MD_ELEMENT_UNKNOWN},
					     {true, 64, (enum md_element_type)MD_ELEMENT_TYPES},
					     {true, MD_TOLERANCE_ULPS_MAX + 1, MD_ELEMENT_F32}};
	for (size_t i = 0; i < 3; i++) {
		struct md_trace_writer *w = writer_with_graphs(1);
		struct md_trace trace;
		struct md_error err = {0};
		md_trace_put_tolerance(w, 10, 1, &wrong[i]);
		cr_assert_eq(finish(w, &trace, &err), MD_ERR_CORRUPT, "%zu", i);
		cr_assert(strstr(err.message, "tolerance record"), "%s", err.message);
	}
}

Test(said_records, what_graphs_write_comes_back, .fini = teardown)
{
	const struct md_trace_range ranges[] = {{0x5000, 16}, {0x5011, 1}, {UINT64_MAX - 1, 1}};
	struct md_trace_writer *w = writer_with_graphs(3);
	struct md_trace trace;
	struct md_error err = {0};
	md_trace_put_written(w, 10, 1, ranges, 3);
	md_trace_put_written(w, 11, 2, ranges, 0);
	md_trace_put_written(w, 12, 3, ranges, 3);
	md_trace_put_graph(w, 13, &(struct md_trace_graph){.id = 3});
	cr_assert(finish(w, &trace, &err) == MD_OK, "%s", err.message);
	cr_assert(trace.graphs[0].written_known && trace.graphs[0].written_count == 3, "graph 1");
	cr_assert(!memcmp(trace.graphs[0].written, ranges, sizeof(ranges)), "the ranges of graph 1");
	cr_assert(trace.graphs[1].written_known && !trace.graphs[1].written_count, "graph 2 writes nothing");
	cr_assert(!trace.graphs[2].written_known && !trace.graphs[2].written_count, "graph 3 was changed since");
	md_trace_finish(&trace);
}

Test(said_records, should_fail_written_ranges_that_are_none, .fini = teardown)
{
	static const struct md_trace_range wrong[] = {{0x5000, 0}, {UINT64_MAX, 2}, {0x5000, UINT64_MAX}};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		struct md_trace_writer *w = writer_with_graphs(1);
		struct md_trace trace;
		struct md_error err = {0};
		md_trace_put_written(w, 10, 1, &wrong[i], 1);
		cr_assert_eq(finish(w, &trace, &err), MD_ERR_CORRUPT, "%zu", i);
		cr_assert(strstr(err.message, "written record"), "%s", err.message);
	}
	struct md_trace_writer *w = writer_with_graphs(1);
	struct md_trace trace;
	struct md_error err = {0};
	md_trace_put_written(w, 10, 2, wrong, 0);
	cr_assert_eq(finish(w, &trace, &err), MD_ERR_CORRUPT, "there is no graph 2");
}

Test(said_records, what_lies_beside_contents_comes_back, .fini = teardown)
{
	struct md_trace_writer *w = writer_with_graphs(0);
	struct md_trace trace;
	struct md_error err = {0};
	md_trace_put_unread(w, 10, 0x5000, 5, "table", true);
	md_trace_put_unread(w, 11, 0x5005, 1 << 20, NULL, false);
	cr_assert(finish(w, &trace, &err) == MD_OK, "%s", err.message);
	cr_assert_eq(trace.unread_count, 2, "%u", trace.unread_count);
	cr_assert(trace.unread[0].address == 0x5000 && trace.unread[0].size == 5 && trace.unread[0].sequence == 10 &&
		      trace.unread[0].copied && !memcmp(trace.unread[0].data, "table", 5),
		  "bytes");
	cr_assert(trace.unread[1].address == 0x5005 && trace.unread[1].size == 1 << 20 && !trace.unread[1].data &&
		      !trace.unread[1].copied,
		  "zeros");
	md_trace_finish(&trace);
	w = writer_with_graphs(0);
	md_trace_put_unread(w, 10, UINT64_MAX, 2, NULL, false);
	cr_assert_eq(finish(w, &trace, &err), MD_ERR_CORRUPT, "behind the last address");
	w = writer_with_graphs(0);
	md_trace_put_unread(w, 10, 0x5000, (1 << 20) + 1, NULL, false);
	cr_assert_eq(finish(w, &trace, &err), MD_ERR_CORRUPT, "more than a record says");
}

Test(said_records, facts_come_back_by_name, .fini = teardown)
{
	struct md_trace_writer *w = writer_with_graphs(0);
	struct md_trace trace;
	struct md_error err = {0};
	md_trace_put_fact(w, 1, "torch", "2.10");
	md_trace_put_fact(w, 2, "model", "");
	md_trace_put_fingerprint(w, &(struct md_fingerprint){.device_name = "Device"});
	md_trace_put_fact(w, 3, "torch", "2.11");
	cr_assert(finish(w, &trace, &err) == MD_OK, "%s", err.message);
	const struct md_fingerprint *fingerprint = &trace.fingerprint;
	cr_assert_str_eq(fingerprint->device_name, "Device", "beside the device");
	cr_assert_eq(fingerprint->fact_count, 2, "facts: %u", fingerprint->fact_count);
	cr_assert_str_eq(fingerprint->facts[0].name, "model", "ascending");
	cr_assert_str_eq(fingerprint->facts[0].value, "", "an empty value is one");
	cr_assert_str_eq(fingerprint->facts[1].value, "2.11", "the later value holds");
	md_trace_finish(&trace);
}

Test(said_records, arguments_come_back_in_order, .fini = teardown)
{
	struct md_text texts[] = {{(char *)"engine"}, {(char *)""}, {(char *)"--a=\"b\"\n"}};
	struct md_trace_writer *w = writer_with_graphs(0);
	struct md_trace trace;
	struct md_error err = {0};
	md_trace_put_arguments(w, &(struct md_argument_list){texts, 3});
	cr_assert(finish(w, &trace, &err) == MD_OK, "%s", err.message);
	cr_assert_eq(trace.fingerprint.arguments.count, 3, "arguments");
	for (int i = 0; i < 3; i++)
		cr_assert_str_eq(trace.fingerprint.arguments.items[i].text, texts[i].text, "argument %d", i);
	md_trace_finish(&trace);
}

Test(said_records, secrets_of_an_earlier_version_are_not_shown, .fini = teardown)
{
	struct md_text texts[] = {
	    {(char *)"engine"}, {(char *)"--api-key"}, {(char *)"sk-1"}, {(char *)"HF_TOKEN=a b"}};
	static const char *const shown[] = {"engine", "--api-key", "REDACTED", "HF_TOKEN=REDACTED"};
	struct md_trace_writer *w = writer_with_graphs(0);
	struct md_trace trace;
	struct md_error err = {0};
	md_trace_put_meta(w, &(struct md_trace_meta){.command = "engine --api-key sk-1 -v", .tool_version = "0.1.0"});
	md_trace_put_arguments(w, &(struct md_argument_list){texts, 4});
	cr_assert(finish(w, &trace, &err) == MD_OK, "%s", err.message);
	cr_assert_str_eq(trace.command, "engine --api-key REDACTED -v", "command");
	cr_assert_eq(trace.fingerprint.arguments.count, 4, "arguments");
	for (int i = 0; i < 4; i++)
		cr_assert_str_eq(trace.fingerprint.arguments.items[i].text, shown[i], "argument %d", i);
	md_trace_finish(&trace);
}

/* ---- what must be refused ---- */

static void assert_refused(struct md_trace_writer *w, const char *message)
{
	struct md_trace trace;
	struct md_error err = {0};
	enum md_status status = finish(w, &trace, &err);
	cr_assert_eq(status, MD_ERR_CORRUPT, "\"%s\" passes", message);
	cr_assert(strstr(err.message, message), "\"%s\" lacks \"%s\"", err.message, message);
	unlink(path);
}

Test(said_records, should_fail_records_are_named, .fini = teardown)
{
	static const uint8_t large[MD_NOTE_MAX + 1];
	char name[MD_FACT_NAME_MAX + 2];
	struct md_trace_writer *w = writer_with_graphs(1);
	md_trace_put_output(w, 2, 9, 0, 0x1000, 4);
	assert_refused(w, "output record: no graph 9 comes before it");
	w = writer_with_graphs(1);
	md_trace_put_output(w, 2, 1, MD_OUTPUTS_MAX, 0x1000, 4);
	assert_refused(w, "output record: index 4096 of at most 4096");
	w = writer_with_graphs(1);
	md_trace_put_output(w, 2, 1, 0, 0x1000, 0);
	assert_refused(w, "output record: 0 bytes at 0x1000");
	w = writer_with_graphs(1);
	md_trace_put_output(w, 2, 1, 0, UINT64_MAX, 2);
	assert_refused(w, "output record: 2 bytes at 0xffffffffffffffff");
	w = writer_with_graphs(1);
	md_trace_put_note(w, 2, 1, large, sizeof(large));
	assert_refused(w, "note record: 65537 bytes of at most 65536");
	w = writer_with_graphs(1);
	md_trace_put_note(w, 2, 3, "x", 1);
	assert_refused(w, "note record: no graph 3");
	w = writer_with_graphs(1);
	md_trace_put_refusal(w, 2, 3, "why");
	assert_refused(w, "refusal record: no graph 3");
	w = writer_with_graphs(1);
	md_trace_put_refusal(w, 2, 1, NULL);
	assert_refused(w, "refusal record: bad field");
	w = writer_with_graphs(0);
	md_trace_put_fact(w, 1, "", "x");
	assert_refused(w, "fact record: no name");
	w = writer_with_graphs(0);
	md_trace_put_fact(w, 1, "x", NULL);
	assert_refused(w, "fact record: bad field");
	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = 0;
	w = writer_with_graphs(0);
	md_trace_put_fact(w, 1, name, "x");
	assert_refused(w, "fact record: bad field");
	w = writer_with_graphs(0);
	for (int i = 0; i <= MD_FACTS_MAX; i++) {
		snprintf(name, sizeof(name), "fact %d", i);
		md_trace_put_fact(w, 1, name, "x");
	}
	assert_refused(w, "fact record: more than 1024 facts");
	struct md_text text = {(char *)"x"};
	w = writer_with_graphs(0);
	md_trace_put_arguments(w, &(struct md_argument_list){&text, 1});
	md_trace_put_arguments(w, &(struct md_argument_list){&text, 1});
	assert_refused(w, "arguments record: appears twice");
}

/* ---- what nodes refer to ---- */

Test(said_records, child_graphs_events_and_tensor_maps_come_back, .fini = teardown)
{
	struct md_node nodes[] = {{.type = MD_NODE_CHILD, .kernel = MD_NONE, .child_nodes = 2},
				  {.type = MD_NODE_EVENT_RECORD, .kernel = MD_NONE, .event = 7},
				  {.type = MD_NODE_EVENT_WAIT, .kernel = MD_NONE, .event = 300},
				  {.type = MD_NODE_EMPTY, .kernel = MD_NONE}};
	struct md_edge edges[] = {{1, 2, 0, 0, 0, 0}, {0, 3, 0, 0, 0, 0}};
	struct md_trace_writer *w = writer_with_graphs(0);
	uint8_t map[MD_TENSOR_MAP_BYTES];
	struct md_trace trace;
	struct md_error err = {0};
	memset(map, 0x5a, sizeof(map));
	md_trace_put_graph(
	    w, 5, &(struct md_trace_graph){.id = 1, .nodes = nodes, .node_count = 4, .edges = edges, .edge_count = 2});
	md_trace_put_event_use(w, 6, 300, "cuEventQuery");
	md_trace_put_tensor_map(w, 7, map);
	md_trace_put_image(w, 8, &(struct md_image){.kind = MD_IMAGE_PTX, .size = 4});
	md_trace_put_variable(w, 9, 0, "bias");
	md_trace_put_value(w, 9, 0, "bias", "1234", 4);
	md_trace_put_global(w, 9, 0, "bias", 0x3000, 4);
	md_trace_put_replayed(w, 9, 0, "bias", 1);
	struct md_hash hash = md_hash_bytes("w", 1);
	md_trace_put_constant(w, 10, "weights", 0x1000, 64, &hash, NULL);
	md_trace_put_constant(w, 11, "bias", 0x2000, 32, NULL, "was freed");
	cr_assert(finish(w, &trace, &err) == MD_OK, "%s", err.message);
	cr_assert(trace.graphs[0].nodes[0].type == MD_NODE_CHILD && trace.graphs[0].nodes[0].child_nodes == 2, "child");
	cr_assert(trace.graphs[0].nodes[1].event == 7 && trace.graphs[0].nodes[2].event == 300, "events");
	cr_assert(trace.event_use_count == 1 && trace.event_uses[0].event == 300, "a use");
	cr_assert_str_eq(trace.event_uses[0].call, "cuEventQuery");
	cr_assert(trace.tensor_map_count == 1 && !memcmp(trace.tensor_maps[0].bytes, map, sizeof(map)), "a map");
	cr_assert(trace.variable_count == 1 && trace.variables[0].image == 0, "a variable");
	cr_assert_str_eq(trace.variables[0].name, "bias");
	cr_assert(trace.value_count == 1 && trace.values[0].size == 4 && !memcmp(trace.values[0].data, "1234", 4),
		  "a value");
	cr_assert_str_eq(trace.values[0].name, "bias");
	cr_assert(trace.global_count == 1 && trace.globals[0].address == 0x3000 && trace.globals[0].size == 4 &&
		      trace.globals[0].sequence == 9,
		  "where it lies");
	cr_assert_str_eq(trace.globals[0].name, "bias");
	cr_assert(trace.replayed_count == 1 && trace.replayed[0].graph == 1, "who writes it");
	cr_assert_str_eq(trace.replayed[0].name, "bias");
	cr_assert(trace.constant_count == 2 && trace.constants[0].known && !trace.constants[1].known, "constants");
	cr_assert(md_hash_equal(&trace.constants[0].hash, &hash) && !trace.constants[0].why, "a hash");
	cr_assert_str_eq(trace.constants[1].why, "was freed");
	cr_assert(trace.constants[1].address == 0x2000 && trace.constants[1].size == 32, "of that memory");
	md_trace_finish(&trace);
}

/* The executable was changed: the last record describes it, and the engine's statements about it stay. */
Test(said_records, graph_that_is_recorded_again, .fini = teardown)
{
	struct md_node first[] = {{.type = MD_NODE_EMPTY, .kernel = MD_NONE},
				  {.type = MD_NODE_EMPTY, .kernel = MD_NONE}};
	struct md_edge edge = {0, 1, 0, 0, 0, 0};
	struct md_node then = {.type = MD_NODE_MEMSET, .kernel = MD_NONE, .memset = {.dst = 64, .value = 9}};
	struct md_trace_writer *w = writer_with_graphs(0);
	struct md_trace trace;
	struct md_error err = {0};
	md_trace_put_graph(
	    w, 5, &(struct md_trace_graph){.id = 1, .nodes = first, .node_count = 2, .edges = &edge, .edge_count = 1});
	md_trace_put_label(w, 6, 1, "decode", 4);
	md_trace_put_output(w, 7, 1, 0, 0x1000, 16);
	md_trace_put_probe(w, 8, 1, MD_PROBE_FAILED, "of what it was");
	md_trace_put_graph(w, 9, &(struct md_trace_graph){.id = 1, .nodes = &then, .node_count = 1});
	cr_assert(finish(w, &trace, &err) == MD_OK, "%s", err.message);
	cr_assert_eq(trace.graph_count, 1);
	const struct md_trace_graph *graph = &trace.graphs[0];
	cr_assert(graph->node_count == 1 && graph->nodes[0].memset.value == 9 && !graph->edge_count, "what it is");
	cr_assert_eq(graph->sequence, 9);
	cr_assert_str_eq(graph->label, "decode");
	cr_assert(graph->batch == 4 && graph->output_count == 1, "what was said");
	cr_assert(!graph->probe && !graph->probe_why && !graph->probe_sequence, "what was found of another graph");
	md_trace_finish(&trace);
}

Test(said_records, requests, .fini = teardown)
{
	struct md_sequence_request first = {MD_ALLOC_DEVICE, MD_SEQUENCE_NONE, 2, 64},
				   second = {MD_ALLOC_VMM, 0, MD_SEQUENCE_NONE, 4096};
	struct md_trace_writer *w = writer_with_graphs(0);
	struct md_trace trace;
	struct md_error err = {0};
	md_trace_put_request(w, 5, &first);
	md_trace_put_request(w, 6, &second);
	cr_assert(finish(w, &trace, &err) == MD_OK, "%s", err.message);
	cr_assert_eq(trace.request_count, 2);
	cr_assert(trace.requests[0].family == MD_ALLOC_DEVICE && trace.requests[0].below == MD_SEQUENCE_NONE &&
		      trace.requests[0].freed == 2 && trace.requests[0].size == 64,
		  "the first");
	cr_assert(trace.requests[1].below == 0 && trace.requests[1].freed == MD_SEQUENCE_NONE, "the second");
	md_trace_finish(&trace);
	w = writer_with_graphs(0);
	md_trace_put_request(w, 5, &second);
	cr_assert_eq(finish(w, &trace, &err), MD_ERR_CORRUPT, "above one that is not there");
	cr_assert(strstr(err.message, "request 0: lies above request 0, which is no earlier one"), "%s", err.message);
}

Test(said_records, should_fail_edges_between_graphs_and_children_too_large, .fini = teardown)
{
	struct md_node nodes[] = {{.type = MD_NODE_CHILD, .kernel = MD_NONE, .child_nodes = 1},
				  {.type = MD_NODE_EMPTY, .kernel = MD_NONE},
				  {.type = MD_NODE_EMPTY, .kernel = MD_NONE}};
	struct md_edge across = {1, 2, 0, 0, 0, 0};
	struct md_trace trace;
	struct md_error err = {0};
	for (int large = 0; large < 2; large++) {
		struct md_trace_writer *w = writer_with_graphs(0);
		nodes[0].child_nodes = large ? 3 : 1;
		md_trace_put_graph(
		    w, 5,
		    &(struct md_trace_graph){
			.id = 1, .nodes = nodes, .node_count = 3, .edges = &across, .edge_count = large ? 0 : 1});
		cr_assert_eq(finish(w, &trace, &err), MD_ERR_CORRUPT);
		cr_assert(
		    strstr(err.message, large ? "child graphs reach too far" : "edge 0: 1 to 2, in another graph"),
		    "%s", err.message);
	}
}

Test(said_records, what_kernels_are_given, .fini = teardown)
{
	static const struct md_trace_given wrong[] = {
	    {.kernel = 0, .address = 0x5000, .offset = MD_NONE},
	    {.kernel = MD_NONE, .address = 0x5000, .offset = MD_NONE},
	    {.kernel = MD_NONE, .address = UINT64_MAX, .size = 2, .offset = MD_NONE}};
	struct md_trace trace;
	struct md_error err = {0};
	struct md_trace_writer *w = writer_with_graphs(1);
	md_trace_put_given(
	    w, 10, &(struct md_trace_given){.kernel = MD_NONE, .address = 0x5000, .size = 64, .offset = MD_NONE});
	cr_assert(finish(w, &trace, &err) == MD_OK, "%s", err.message);
	cr_assert(trace.given[0].offset == MD_NONE && !trace.given[0].scratch, "as in older traces, which do not tell");
	cr_assert(trace.given_count == 1 && trace.given[0].kernel == MD_NONE && trace.given[0].address == 0x5000 &&
		      trace.given[0].size == 64 && trace.given[0].sequence == 10,
		  "any address of an allocation");
	md_trace_finish(&trace);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		w = writer_with_graphs(1);
		md_trace_put_given(w, 10, &wrong[i]);
		cr_assert_eq(finish(w, &trace, &err), MD_ERR_CORRUPT, "%zu", i);
		cr_assert(strstr(err.message, "given record"), "%s", err.message);
	}
}

Test(said_records, which_memory_only_graphs_use, .fini = teardown)
{
	const struct md_kernel kernel = {.image = MD_NONE, .name = (char *)"own"};
	struct md_trace trace;
	struct md_error err = {0};
	struct md_trace_writer *w = writer_with_graphs(1);
	md_trace_put_kernel(w, 9, &kernel);
	md_trace_put_scratch(w, 10, 0x5000, 64);
	md_trace_put_given(w, 11, &(struct md_trace_given){0, 0x5008, 0, 0, 24, true});
	md_trace_put_given(w, 12, &(struct md_trace_given){0, 0x6008, 0, 0, 32, false});
	md_trace_put_scratch(w, 13, 0, 0);
	cr_assert(finish(w, &trace, &err) == MD_OK, "%s", err.message);
	cr_assert(trace.scratch_count == 2 && trace.scratch[0].address == 0x5000 && trace.scratch[0].size == 64 &&
		      trace.scratch[0].sequence == 10,
		  "the memory");
	cr_assert(!trace.scratch[1].size && trace.scratch[1].sequence == 13, "the end of it");
	cr_assert(trace.given[0].offset == 24 && trace.given[0].scratch, "a word in it");
	cr_assert(trace.given[1].offset == 32 && !trace.given[1].scratch, "a word that is not");
	md_trace_finish(&trace);
	w = writer_with_graphs(1);
	md_trace_put_scratch(w, 10, UINT64_MAX, 2);
	cr_assert_eq(finish(w, &trace, &err), MD_ERR_CORRUPT);
	cr_assert(strstr(err.message, "scratch record"), "%s", err.message);
}

Test(said_records, what_ranks_have_replayed_together, .fini = teardown)
{
	struct md_trace_writer *w = writer_with_graphs(0);
	struct md_trace trace;
	struct md_error err = {0};
	for (uint64_t id = 1; id <= 4; id++)
		md_trace_put_graph(w, id, &(struct md_trace_graph){.id = id, .refused = "it communicates"});
	md_trace_put_together(w, 10, 1, NULL);
	md_trace_put_together(w, 11, 2, "rank 1 is gone");
	md_trace_put_together(w, 12, 9, NULL); /* of no graph */
	md_trace_put_together(w, 13, 4, NULL);
	md_trace_put_graph(w, 14, &(struct md_trace_graph){.id = 4, .refused = "changed"});
	md_trace_put_event_name(w, 15, 300, "@nccl.event.2");
	cr_assert(finish(w, &trace, &err) == MD_OK, "%s", err.message);
	cr_assert(trace.graphs[0].together && !trace.graphs[0].refused, "all have replayed it");
	cr_assert(!trace.graphs[1].together, "they have not");
	cr_assert_str_eq(trace.graphs[1].refused, "rank 1 is gone");
	cr_assert(!trace.graphs[2].together, "nothing is said");
	cr_assert_str_eq(trace.graphs[2].refused, "it communicates");
	cr_assert(!trace.graphs[3].together, "not as it is now");
	cr_assert_str_eq(trace.graphs[3].refused, "changed");
	cr_assert(trace.event_name_count == 1 && trace.event_names[0].event == 300, "an event");
	cr_assert_str_eq(trace.event_names[0].name, "@nccl.event.2");
	md_trace_finish(&trace);
}

Test(said_records, should_fail_an_event_without_a_name, .fini = teardown)
{
	struct md_trace_writer *w = writer_with_graphs(0);
	struct md_trace trace;
	struct md_error err = {0};
	md_trace_put_event_name(w, 15, 300, NULL);
	cr_assert(finish(w, &trace, &err) == MD_ERR_CORRUPT, "%s", err.message);
	cr_assert(strstr(err.message, "event name"), "%s", err.message);
}
