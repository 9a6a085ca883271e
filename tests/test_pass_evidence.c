/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that swapped places between two captures, told by what the graphs' words say; and what stays in doubt. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "analyze/analyze.h"
#include "tests/trace_builder.h"

#define BLOCKS 4
#define BLOCK 0x10000u

/* No two blocks move equally far, so that none is taken for another's virtual origin. */
static const uint64_t places[2][BLOCKS] = {
    {0x700000000000, 0x700100000000, 0x700200000000, 0x700300000000},
    {0x710000040000, 0x7101000c0000, 0x710200240000, 0x710300880000},
};

struct setup {
	struct builder b[2];
	struct md_artifact artifact;
};

/* BLOCKS allocations of one size, and a kernel of eight bytes. */
static void start(struct setup *s)
{
	for (unsigned c = 0; c < 2; c++) {
		builder_init(&s->b[c]);
		for (unsigned i = 0; i < BLOCKS; i++)
			builder_alloc(&s->b[c], MD_ALLOC_DEVICE, places[c][i], BLOCK);
		builder_kernel(&s->b[c], builder_image(&s->b[c], 1), "_Z1k6Struct", 8);
	}
}

static void begin_graph(struct setup *s, uint32_t batch)
{
	for (unsigned c = 0; c < 2; c++)
		builder_graph(&s->b[c], "decode", batch);
}

static void launch_words(struct setup *s, uint64_t one, uint64_t two)
{
	builder_launch(&s->b[0], 0, &one, 8);
	builder_launch(&s->b[1], 0, &two, 8);
}

/* The word points to offset at of block one in the first, and of block two in the second capture. */
static void launch(struct setup *s, unsigned one, unsigned two, uint64_t at)
{
	launch_words(s, places[0][one] + at, places[1][two] + at);
}

static void analyze(struct setup *s, bool keep_doubtful)
{
	struct md_analyze_options options = {.size = sizeof(options), .keep_doubtful = keep_doubtful};
	struct md_error err;
	cr_assert(md_analyze(&s->b[0].trace, &s->b[1].trace, &options, &s->artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(md_artifact_check(&s->artifact, &err) == MD_OK, "a valid artifact: %s", err.message);
}

static void finish(struct setup *s)
{
	md_artifact_finish(&s->artifact);
	builder_finish(&s->b[0]);
	builder_finish(&s->b[1]);
}

static const struct md_artifact_graph *graph_of(const struct setup *s, uint32_t batch)
{
	const struct md_artifact_graph *graph = find_graph(&s->artifact, "decode", batch);
	cr_assert(graph, "refused: %s", refusal_of(&s->artifact, "decode", batch));
	return graph;
}

/* Node `node` of the graph points to offset at of the first capture's block. */
static void assert_pointer(const struct setup *s, uint32_t batch, uint32_t node, uint32_t block, int64_t at)
{
	const struct md_artifact_graph *graph = graph_of(s, batch);
	for (uint32_t i = 0; i < graph->pointer_count; i++) {
		const struct md_pointer *pointer = &graph->pointers[i];
		if (pointer->node != node)
			continue;
		cr_assert(s->artifact.allocs[pointer->alloc].order == block && pointer->offset == at,
			  "node %u points to %lld of block %u, not %lld of %u", node, (long long)pointer->offset,
			  s->artifact.allocs[pointer->alloc].order, (long long)at, block);
		return;
	}
	cr_assert_fail("node %u of graph %u has no pointer", node, batch);
}

static void assert_refused(const struct setup *s, uint32_t batch, const char *message)
{
	cr_assert(strstr(refusal_of(&s->artifact, "decode", batch), message), "'%s' says '%s'",
		  refusal_of(&s->artifact, "decode", batch), message);
}

Test(pass_evidence, swapped_blocks_are_told_by_the_words)
{
	struct setup s;
	start(&s);
	begin_graph(&s, 1);
	launch(&s, 0, 1, 0);
	launch(&s, 1, 0, 64);
	launch(&s, 2, 2, 128);
	analyze(&s, false);
	assert_pointer(&s, 1, 0, 0, 0);
	assert_pointer(&s, 1, 1, 1, 64);
	assert_pointer(&s, 1, 2, 2, 128);
	cr_assert(graph_of(&s, 1)->noise_count == 0, "nothing is noise");
	finish(&s);
}

Test(pass_evidence, three_blocks_in_rotation)
{
	struct setup s;
	start(&s);
	for (uint32_t batch = 1; batch <= 2; batch++) {
		begin_graph(&s, batch);
		for (unsigned i = 0; i < 3; i++)
			launch(&s, i, (i + 1) % 3, 8 * batch);
	}
	analyze(&s, false);
	for (uint32_t batch = 1; batch <= 2; batch++) {
		for (uint32_t i = 0; i < 3; i++)
			assert_pointer(&s, batch, i, i, 8 * batch);
	}
	finish(&s);
}

/* Addresses that did not move: the two blocks swapped, and so the word is equal in both captures. */
Test(pass_evidence, swapped_blocks_at_the_same_two_addresses)
{
	struct setup s;
	start(&s);
	for (unsigned i = 0; i < BLOCKS; i++)
		s.b[1].trace.allocs[i].address = places[0][i ^ 1];
	begin_graph(&s, 1);
	launch_words(&s, places[0][0] + 8, places[0][0] + 8);
	launch_words(&s, places[0][1] + 8, places[0][1] + 8);
	analyze(&s, false);
	assert_pointer(&s, 1, 0, 0, 8);
	assert_pointer(&s, 1, 1, 1, 8);
	finish(&s);
}

/* Nobody speaks for block 1; what block 0 has left is its. Its contents say so: they point into block 2, in both. */
Test(pass_evidence, the_other_one_of_two_takes_what_is_left)
{
	struct setup s;
	uint64_t to[2] = {places[0][2] + 16, places[1][2] + 16};
	start(&s);
	begin_graph(&s, 1);
	launch(&s, 0, 1, 0);
	launch_words(&s, places[0][1] + BLOCK, places[1][0] + BLOCK); /* one past the end */
	builder_content(&s.b[0], places[0][1] + 32, &to[0], 8);
	builder_content(&s.b[1], places[1][0] + 32, &to[1], 8);
	analyze(&s, false);
	assert_pointer(&s, 1, 0, 0, 0);
	assert_pointer(&s, 1, 1, 1, BLOCK);
	cr_assert(s.artifact.content_count == 1 && s.artifact.contents[0].pointer_count == 1,
		  "a pointer in the contents");
	finish(&s);
}

/* One to one over all graphs: block 0 cannot be two blocks. What most say is believed. */
Test(pass_evidence, should_fail_words_that_contradict_most_others)
{
	struct setup s;
	start(&s);
	begin_graph(&s, 1);
	launch(&s, 0, 0, 0);
	launch(&s, 0, 0, 8);
	begin_graph(&s, 2);
	launch(&s, 1, 1, 0);
	launch(&s, 0, 1, 0x128);
	analyze(&s, false);
	assert_pointer(&s, 1, 1, 0, 8);
	assert_refused(
	    &s, 2,
	    "node 1 (_Z1k6Struct): parameter bytes 0..7 unprovable: points into allocation 0+296 bound to nothing in "
	    "the first capture and into allocation 1+296 bound to nothing in the second");
	finish(&s);
}

Test(pass_evidence, words_in_doubt_are_kept_for_replay)
{
	struct setup s;
	const struct md_artifact_graph *graph;
	char text[MD_DOUBTFUL_TEXT];
	uint64_t stored;
	start(&s);
	begin_graph(&s, 1);
	launch(&s, 0, 0, 0);
	launch(&s, 1, 1, 0);
	launch(&s, 0, 1, 0x128);
	launch(&s, 3, 2, 0x10);
	launch_words(&s, places[0][2] + 8, places[1][2] + 24); /* another offset of the same block */
	analyze(&s, true);
	graph = graph_of(&s, 1);
	cr_assert(graph->doubtful_count == 2 && graph->noise_count == 0, "%u doubtful words, %u noise",
		  graph->doubtful_count, graph->noise_count);
	cr_assert(graph->doubtful[0].node == 2 && graph->doubtful[0].at == 0, "node %u", graph->doubtful[0].node);
	cr_assert(s.artifact.allocs[graph->doubtful[0].alloc].order == 0 && graph->doubtful[0].offset == 0x128,
		  "by the first capture it points to block 0");
	cr_assert(graph->doubtful[1].node == 4 && graph->doubtful[1].alloc == MD_NONE,
		  "what nothing else refers to is not made for its sake");
	memcpy(&stored, graph->nodes[2].params, 8);
	cr_assert(stored == 0, "no address of the capture is stored");
	md_doubtful_describe(&graph->doubtful[0], text);
	cr_assert_str_eq(text,
			 "node 2, parameter bytes 0..7: points to byte 296 of allocation 0 in the first capture and "
			 "to byte 296 of allocation 1 in the second");
	cr_assert(md_artifact_doubtful(&s.artifact) == graph, "the artifact is not to be published");
	finish(&s);
}

Test(pass_evidence, what_is_proven_becomes_noise)
{
	struct setup s;
	struct md_artifact_graph *graph;
	struct md_error err;
	start(&s);
	begin_graph(&s, 1);
	launch_words(&s, 0x1111222233334444, 0x5555666677778888); /* noise */
	launch_words(&s, places[0][2] + 8, places[1][2] + 24);
	launch_words(&s, 0x1111222233334444, 0x5555666677778888);
	analyze(&s, true);
	graph = (struct md_artifact_graph *)graph_of(&s, 1);
	cr_assert(graph->doubtful_count == 1, "%u doubtful words", graph->doubtful_count);
	cr_assert(md_doubtful_settle(graph, 0, &err) == MD_OK, "%s", err.message);
	cr_assert(graph->doubtful_count == 0 && graph->noise_count == 3 && graph->noise[1].node == 1 &&
		      graph->noise[1].size == 8,
		  "all of its bytes are noise");
	cr_assert(!md_artifact_doubtful(&s.artifact), "nothing is in doubt any more");
	cr_assert(md_artifact_check(&s.artifact, &err) == MD_OK, "%s", err.message);
	finish(&s);
}

Test(pass_evidence, should_fail_more_doubt_than_replay_has_time_for)
{
	struct setup s;
	start(&s);
	begin_graph(&s, 1);
	for (unsigned i = 0; i <= MD_DOUBTFUL_MAX; i++)
		launch_words(&s, places[0][2] + 8, places[1][2] + 24);
	begin_graph(&s, 2);
	for (unsigned i = 0; i < MD_DOUBTFUL_MAX; i++)
		launch_words(&s, places[0][2] + 8, places[1][2] + 24);
	analyze(&s, true);
	assert_refused(&s, 1, "node 1024 (_Z1k6Struct): parameter bytes 0..7 unprovable: points into allocation 2+8");
	cr_assert(graph_of(&s, 2)->doubtful_count == MD_DOUBTFUL_MAX, "as many as there is time for");
	finish(&s);
}

/* The address of a set is a pointer by definition: it cannot turn out to be noise. */
Test(pass_evidence, should_fail_an_address_in_doubt)
{
	struct setup s;
	start(&s);
	begin_graph(&s, 1);
	launch(&s, 0, 0, 0);
	launch(&s, 1, 1, 0);
	for (unsigned c = 0; c < 2; c++)
		builder_node(&s.b[c], MD_NODE_MEMSET)->memset =
		    (struct md_memset){.dst = places[c][c], .width = 16, .height = 1, .element_size = 4};
	analyze(&s, true);
	assert_refused(&s, 1, "node 2: its set destination points into allocation 0+0 bound to nothing in the first");
	finish(&s);
}

/* A block of parameters that is packed to four bytes: each word has half of an address, and replay must tell what it
 * is.
 */
Test(pass_evidence, an_address_where_no_word_begins_is_in_doubt)
{
	struct setup s;
	for (int kept = 0; kept < 2; kept++) {
		start(&s);
		for (unsigned c = 0; c < 2; c++) {
			uint32_t params[4] = {7 + c, 0, 0, 9};
			memcpy(&params[1], &places[c][2], 8);
			builder_kernel(&s.b[c], 0, "packed", 16);
			builder_kernel(&s.b[c], 0, "tail", 12);
			builder_graph(&s.b[c], "decode", 1);
			builder_launch(&s.b[c], 1, params, 16);
			builder_graph(&s.b[c], "decode", 2);
			builder_launch(&s.b[c], 2, params, 12);
		}
		analyze(&s, kept);
		cr_assert_eq(s.artifact.graph_count, 2);
		for (uint32_t i = 0; i < s.artifact.graph_count; i++) {
			const struct md_artifact_graph *graph = &s.artifact.graphs[i];
			cr_assert_eq(graph->doubtful_count, kept ? 1 : 0, "without replays it is noise");
			if (!kept)
				continue;
			cr_assert_eq(graph->doubtful[0].at, 4);
			cr_assert_eq(graph->noise_count, 1, "the byte before it is noise");
			cr_assert_eq(graph->noise[0].at, 0);
			cr_assert_eq(graph->noise[0].size, 1);
		}
		finish(&s);
	}
}

/* Blocks of other sizes cannot have swapped places. */
Test(pass_evidence, only_equal_blocks_are_exchanged)
{
	struct setup s;
	start(&s);
	s.b[0].trace.allocs[1].size = s.b[1].trace.allocs[1].size = 2 * BLOCK;
	begin_graph(&s, 1);
	launch(&s, 0, 1, 8);
	launch(&s, 1, 0, 8);
	analyze(&s, false);
	assert_refused(&s, 1, "node 0 (_Z1k6Struct): parameter bytes 0..7 unprovable");
	finish(&s);
}
