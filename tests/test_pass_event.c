/* SPDX-License-Identifier: Apache-2.0 */
/* Which events a restore may make anew, and which belong to others too. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "analyze/analyze.h"
#include "tests/trace_builder.h"

enum step { WAIT = MD_NODE_EVENT_WAIT, RECORD = MD_NODE_EVENT_RECORD };

/* Nodes that follow one another: "r7" records event 7, "w7" waits for it. */
static void add_graph(struct builder *b, const char *label, const char *steps, uint32_t first_event)
{
	builder_graph(b, label, 1);
	for (uint32_t n = 0; steps[2 * n]; n++) {
		builder_node(b, steps[2 * n] == 'r' ? RECORD : WAIT)->event =
		    first_event + (uint32_t)(steps[2 * n + 1] - '0');
		if (n)
			builder_edge(b, n - 1, n);
	}
}

static void use(struct builder *b, uint32_t event)
{
	struct md_trace_event_use *use = builder_grow(&b->trace.event_uses, &b->trace.event_use_count, sizeof(*use));
	*use = (struct md_trace_event_use){event, builder_text("cuEventQuery")};
}

static const struct event_case {
	const char *name, *one, *two, *other; /* other: another graph of both captures */
	bool used;                            /* event 0, by the engine */
	const char *why;                      /* NULL: admitted */
} cases[] = {
    {"recorded, then waited for", "r0w0", "r0w0", NULL, false, NULL},
    {"recorded far before", "r0r1w1w0", "r0r1w1w0", "r0r2w2w0", false, NULL},
    {"only recorded", "r0", "r0", NULL, false, "node 0: records an event that the graph does not wait for"},
    {"waits for the replay before", "w0r0", "w0r0", NULL, false, NULL},
    {"never recorded", "w0", "w0", NULL, false, "node 0: waits for an event that the graph does not record"},
    {"two events", "r3r1w1w3", "r3r1w1w3", NULL, false, NULL},
    {"the engine's", "r0", "r0", NULL, true,
     "node 0: the engine also uses the node's event outside of graphs (cuEventQuery)"},
    {"another one is the engine's", "r1w1", "r1w1", NULL, true, NULL},
    {"shared, each records first", "r1w1", "r1w1", "r1w1", false, NULL},
    {"shared, the other waits for this one's", "r1", "r1", "w1", false,
     "node 0: graph other/1 also uses the node's event, and one of the two graphs waits for it before recording it"},
    {"shared, this one waits first", "w1r1", "w1r1", "r1", false,
     "node 0: graph other/1 also uses the node's event, and one of the two graphs waits for it before recording it"},
    {"another pattern", "r0r1w0w1", "r0r1w1w0", NULL, false,
     "node 2: its event is a different one in the second capture"},
};

static void assert_case(const struct event_case *c)
{
	struct builder b[2];
	struct md_artifact artifact;
	struct md_error err;
	const char *why;
	for (unsigned k = 0; k < 2; k++) {
		uint32_t first = k ? 40 : 5; /* numbers of a process mean nothing in another */
		builder_init(&b[k]);
		add_graph(&b[k], "decode", k ? c->two : c->one, first);
		if (c->other)
			add_graph(&b[k], "other", c->other, first);
		if (c->used)
			use(&b[k], first);
	}
	cr_assert(md_analyze(&b[0].trace, &b[1].trace, NULL, &artifact, &err) == MD_OK, "%s: %s", c->name, err.message);
	why = refusal_of(&artifact, "decode", 1);
	cr_assert(c->why ? !strcmp(why, c->why) : find_graph(&artifact, "decode", 1) != NULL, "%s: '%s'", c->name, why);
	if (!c->why)
		cr_assert_eq(find_graph(&artifact, "decode", 1)->nodes[0].event, 0, "%s: numbered from 0", c->name);
	md_artifact_finish(&artifact);
	builder_finish(&b[0]);
	builder_finish(&b[1]);
}

Test(pass_event, what_is_anyone_elses_is_refused)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_case(&cases[i]);
}

static void name_event(struct builder *b, uint32_t event, const char *name)
{
	struct md_trace_event_name *named =
	    builder_grow(&b->trace.event_names, &b->trace.event_name_count, sizeof(*named));
	*named = (struct md_trace_event_name){event, builder_text(name)};
}

/* A graph that all ranks have replayed together, with one of a library's events. */
Test(pass_event, a_librarys_event_goes_with_its_memory)
{
	static const struct {
		const char *steps, *why;
	} made[] = {
	    {"r0",
	     "node 0: records @nccl.event.3, an event of a communication library whose memory the graph does not use"},
	    {"w0", "node 0: waits for @nccl.event.3, an event of a communication library whose memory the graph does "
		   "not use"},
	};
	for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
		struct builder b[2];
		struct md_artifact artifact;
		struct md_error err;
		for (unsigned k = 0; k < 2; k++) {
			builder_init(&b[k]);
			add_graph(&b[k], "decode", made[i].steps, 5);
			b[k].trace.graphs[0].together = true;
			name_event(&b[k], 5, "@nccl.event.3");
		}
		cr_assert(md_analyze(&b[0].trace, &b[1].trace, NULL, &artifact, &err) == MD_OK, "%s", err.message);
		cr_assert_str_eq(refusal_of(&artifact, "decode", 1), made[i].why);
		md_artifact_finish(&artifact);
		builder_finish(&b[0]);
		builder_finish(&b[1]);
	}
}

/* ---- child graphs ---- */

static struct md_node child(uint32_t nodes)
{
	return (struct md_node){.type = MD_NODE_CHILD, .child_nodes = nodes};
}

Test(nodes, belong_to_the_innermost_child)
{
	const struct md_node nodes[] = {child(4), {.type = MD_NODE_EMPTY}, child(1), {.type = MD_NODE_EMPTY},
					child(0), {.type = MD_NODE_EMPTY}};
	const uint32_t expected[] = {MD_NONE, 0, 0, 2, 0, MD_NONE};
	uint32_t parents[6];
	cr_assert(md_nodes_parents(nodes, 6, parents));
	for (int i = 0; i < 6; i++)
		cr_assert_eq(parents[i], expected[i], "node %d: %u", i, parents[i]);
}

Test(nodes, should_fail_children_that_reach_too_far)
{
	struct md_node nodes[] = {child(2), child(2), {.type = MD_NODE_EMPTY}, {.type = MD_NODE_EMPTY}};
	struct md_node deep[MD_CHILD_DEPTH_MAX + 1];
	uint32_t parents[MD_CHILD_DEPTH_MAX + 1];
	cr_assert_not(md_nodes_parents(nodes, 4, parents), "past the child that it is in");
	nodes[1].child_nodes = 1;
	cr_assert(md_nodes_parents(nodes, 4, parents));
	nodes[0].child_nodes = 4;
	cr_assert_not(md_nodes_parents(nodes, 4, parents), "past the end");
	nodes[0].child_nodes = UINT32_MAX;
	cr_assert_not(md_nodes_parents(nodes, 4, parents), "far past the end");
	for (uint32_t i = 0; i <= MD_CHILD_DEPTH_MAX; i++)
		deep[i] = child(MD_CHILD_DEPTH_MAX - i);
	cr_assert_not(md_nodes_parents(deep, MD_CHILD_DEPTH_MAX + 1, parents), "too deep");
	cr_assert(md_nodes_parents(deep + 1, MD_CHILD_DEPTH_MAX, parents), "as deep as may be");
}
