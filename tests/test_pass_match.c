/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs that differ between the captures in more than parameters are refused, with the first difference. */
#include <criterion/criterion.h>

#include "analyze/analyze.h"
#include "tests/trace_builder.h"

static uint64_t build_bare(struct builder *b, unsigned capture)
{
	const uint64_t base = capture ? 0x710000000000 : 0x700000000000;
	builder_init(b);
	builder_alloc(b, MD_ALLOC_DEVICE, base, 0x1000);
	builder_alloc(b, MD_ALLOC_DEVICE, base + 0x10000, 0x1000);
	builder_kernel(b, builder_image(b, 1), "norm", 8);
	builder_kernel(b, builder_image(b, 2), "norm", 8);
	return base;
}

static void build(struct builder *b, unsigned capture)
{
	const uint64_t base = build_bare(b, capture);
	const uint32_t kernel = 0, other = 1;
	builder_graph(b, "decode", 4);
	builder_launch(b, kernel, &base, 8);
	builder_launch(b, other, &base, 8);
	builder_edge(b, 0, 1);
}

/* ---- changes of the second capture ---- */
static void change_grid(struct builder *b)
{
	builder_last(b)->nodes[1].grid[0] = 5;
}
static void change_block(struct builder *b)
{
	builder_last(b)->nodes[0].block[2] = 2;
}
static void change_shared(struct builder *b)
{
	builder_last(b)->nodes[0].shared_bytes = 1024;
}
static void change_image(struct builder *b)
{
	builder_last(b)->nodes[0].kernel = 1;
}
static void change_kernel(struct builder *b)
{
	builder_last(b)->nodes[0].kernel = builder_kernel(b, 0, "other", 8);
}
static void change_layout(struct builder *b)
{
	b->trace.kernels[0].params[0].size = 4;
}
static void change_edge(struct builder *b)
{
	builder_last(b)->edges[0].type = 1;
}
static void add_edge(struct builder *b)
{
	builder_edge(b, 0, 1);
}
static void add_node(struct builder *b)
{
	builder_node(b, MD_NODE_EMPTY);
}
static void change_type(struct builder *b)
{
	builder_last(b)->nodes[1].type = MD_NODE_EMPTY;
}
static void change_params(struct builder *b)
{
	builder_last(b)->nodes[1].params_size = 4;
}
static void change_flags(struct builder *b)
{
	builder_last(b)->instantiate_flags = 8;
}
static void add_attribute(struct builder *b)
{
	builder_attribute(b, 2, "\1", 1);
}
static void change_label(struct builder *b)
{
	builder_last(b)->batch = 8;
}
static void refuse(struct builder *b)
{
	builder_last(b)->refused = builder_text("host node at index 12");
}
static void fail_probe(struct builder *b)
{
	builder_last(b)->probe = MD_PROBE_FAILED;
	builder_last(b)->probe_why = builder_text("outputs differ");
}
static void insert_alloc(struct builder *b)
{
	/* an allocation between the two others, right where the graph's pointer of the other capture would fall */
	struct md_trace_alloc *allocs;
	builder_alloc(b, MD_ALLOC_DEVICE, 0x710000020000, 0x4000);
	allocs = b->trace.allocs;
	allocs[2].born = allocs[0].born;
	allocs[2].size = 0x2000;
	allocs[0].size = 0x4000;
}

static const struct change_case {
	const char *name;
	void (*change)(struct builder *b);
	const char *message;
} cases[] = {
    {"grid", change_grid, "node 1: grid 4,1,1 and 5,1,1"},
    {"block", change_block, "node 0: block 128,1,1 and 128,1,2"},
    {"shared memory", change_shared, "node 0: dynamic shared bytes 0 and 1024"},
    {"one name, another image", change_image, "node 0: kernel norm comes from different images"},
    {"kernel", change_kernel, "node 0: kernel norm and other"},
    {"parameter layout", change_layout, "another parameter layout"},
    {"edge data", change_edge, "edge 0: 0->1 (ports 0,0 type 0) and 0->1 (ports 0,0 type 1)"},
    {"edge count", add_edge, "1 and 2 edges"},
    {"node count", add_node, "2 and 3 nodes"},
    {"node type", change_type, "node 1: type 0 and 5"},
    {"parameter size", change_params, "node 1: parameter bytes 8 and 4"},
    {"flags", change_flags, "instantiated with flags 0 and 0x8"},
    {"attribute", add_attribute, "node 1: attribute count 0 and 1"},
    {"absent", change_label, "the second capture has no such graph"},
    {"refused at capture", refuse, "host node at index 12"},
    {"failed replay", fail_probe, "outputs differ"},
    {"allocation sequence", insert_alloc,
     "the captures' allocation sequences part at number 0 (device, 4096 bytes; device, 16384 bytes)"},
};

Test(pass_match, names_the_first_difference)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct builder one, two;
		struct md_artifact artifact;
		struct md_error err;
		build(&one, 0);
		build(&two, 1);
		cases[i].change(&two);
		cr_assert(md_analyze(&one.trace, &two.trace, NULL, &artifact, &err) == MD_OK, "%s: %s", cases[i].name,
			  err.message);
		cr_assert(artifact.graph_count == 0, "%s: refused", cases[i].name);
		cr_assert(strstr(refusal_of(&artifact, "decode", 4), cases[i].message), "%s: '%s' says '%s'",
			  cases[i].name, refusal_of(&artifact, "decode", 4), cases[i].message);
		md_artifact_finish(&artifact);
		builder_finish(&one);
		builder_finish(&two);
	}
}

Test(pass_match, equal_graphs_pass)
{
	struct builder one, two;
	struct md_artifact artifact;
	struct md_error err;
	build(&one, 0);
	build(&two, 1);
	cr_assert(md_analyze(&one.trace, &two.trace, NULL, &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(artifact.graph_count == 1 && artifact.refusal_count == 0, "'%s'", refusal_of(&artifact, "decode", 4));
	cr_assert(artifact.graphs[0].edge_count == 1 && artifact.graphs[0].node_count == 2, "edges and nodes");
	cr_assert(artifact.kernel_count == 2 && artifact.image_count == 2, "two kernels of one name stay two");
	cr_assert(artifact.graphs[0].nodes[0].kernel != artifact.graphs[0].nodes[1].kernel,
		  "and each node has its own");
	cr_assert(artifact.kernels[0].image != artifact.kernels[1].image, "and each its image");
	md_artifact_finish(&artifact);
	builder_finish(&one);
	builder_finish(&two);
}

Test(pass_match, divergence_elsewhere_does_not_matter)
{
	struct builder one, two;
	struct md_artifact artifact;
	struct md_error err;
	build(&one, 0);
	build(&two, 1);
	builder_alloc(&two, MD_ALLOC_DEVICE, 0x720000000000, 0x100);
	cr_assert(md_analyze(&one.trace, &two.trace, NULL, &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(artifact.graph_count == 1, "a later allocation that no graph refers to: '%s'",
		  refusal_of(&artifact, "decode", 4));
	md_artifact_finish(&artifact);
	builder_finish(&one);
	builder_finish(&two);
}

Test(pass_match, last_capture_of_a_label_wins)
{
	struct builder b[2];
	struct md_artifact artifact;
	struct md_error err;
	for (unsigned c = 0; c < 2; c++) {
		uint64_t word = 77;
		build(&b[c], c);
		builder_graph(&b[c], "decode", 4);
		builder_launch(&b[c], 0, &word, 8);
	}
	cr_assert(md_analyze(&b[0].trace, &b[1].trace, NULL, &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(artifact.graph_count == 1, "one graph: %u", artifact.graph_count);
	cr_assert(find_graph(&artifact, "decode", 4) && find_graph(&artifact, "decode", 4)->node_count == 1,
		  "the last one");
	md_artifact_finish(&artifact);
	builder_finish(&b[0]);
	builder_finish(&b[1]);
}

Test(pass_match, unlabelled_graphs_are_named_by_their_order)
{
	struct builder b[2];
	struct md_artifact artifact;
	struct md_error err;
	for (unsigned c = 0; c < 2; c++) {
		uint64_t word = 77;
		build_bare(&b[c], c);
		builder_graph(&b[c], NULL, 0);
		builder_launch(&b[c], 0, &word, 8);
		builder_graph(&b[c], NULL, 0);
		builder_launch(&b[c], 0, &word, 8);
	}
	cr_assert(md_analyze(&b[0].trace, &b[1].trace, NULL, &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(artifact.graph_count == 2, "two graphs: %u", artifact.graph_count);
	cr_assert(find_graph(&artifact, "graph/1", 0), "named by its order");
	md_artifact_finish(&artifact);
	builder_finish(&b[0]);
	builder_finish(&b[1]);
}

/* One capture may have made a helper more, and a helper may be what no graph can be materialized of. */
Test(pass_match, unlabelled_graphs_beside_labelled_ones_are_left_out)
{
	struct builder b[2];
	struct md_artifact artifact;
	struct md_error err;
	for (unsigned c = 0; c < 2; c++) {
		uint64_t word = 77;
		build(&b[c], c);
		for (unsigned helper = 0; helper <= c; helper++) {
			builder_graph(&b[c], NULL, 0);
			builder_launch(&b[c], 0, &word, 8);
		}
	}
	cr_assert(md_analyze(&b[0].trace, &b[1].trace, NULL, &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(artifact.graph_count == 1 && artifact.refusal_count == 0, "%u graphs, %u refused",
		  artifact.graph_count, artifact.refusal_count);
	cr_assert(find_graph(&artifact, "decode", 4), "the labelled one");
	md_artifact_finish(&artifact);
	builder_finish(&b[0]);
	builder_finish(&b[1]);
}

Test(pass_match, other_devices_do_not_belong_together)
{
	struct builder one, two;
	struct md_artifact artifact;
	struct md_error err;
	build(&one, 0);
	build(&two, 1);
	two.trace.fingerprint.driver_version = 12040;
	cr_assert(md_analyze(&one.trace, &two.trace, NULL, &artifact, &err) == MD_ERR_MISMATCH, "a mismatch");
	cr_assert(strstr(err.message, "driver version: first capture has 13000, second 12040"), "%s", err.message);
	builder_finish(&one);
	builder_finish(&two);
}
