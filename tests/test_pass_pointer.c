/* SPDX-License-Identifier: Apache-2.0 */
/* What each kind of parameter word becomes when two captures are compared, and when there is one alone. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "analyze/analyze.h"
#include "tests/trace_builder.h"

/* Allocations move by different distances, so that a pointer can be told to which one it belongs. */
#define A1 0x700000100000u
#define A2 0x710000180000u
#define A_SIZE 0x1000u
#define B1 0x700010000000u /* far from A: no virtual origin of both */
#define B2 0x710018000000u
#define B_SIZE 0x800u
#define C1 (B1 + B_SIZE) /* right behind B in the first capture alone */
#define C2 0x710028000000u
#define C_SIZE 0x800u
#define DEAD1 0x700040000000u /* freed before the launch */
#define DEAD2 0x710048000000u

enum kind { CONSTANT, POINTER, NOISE, DOUBTFUL };

static const struct word_case {
	const char *name;
	uint64_t one, two;
	enum kind kind;
	uint32_t order; /* of the allocation, for pointers */
	int64_t offset;
	uint32_t noise_at; /* first byte of noise */
} cases[] = {
    {"constant", 42, 42, CONSTANT, 0, 0, 0},
    {"zero", 0, 0, CONSTANT, 0, 0, 0},
    {"number that looks like an address of the first capture alone", A1 + 8, A1 + 8, CONSTANT, 0, 0, 0},
    {"pointer", A1, A2, POINTER, 0, 0, 0},
    {"interior pointer", A1 + 0x123, A2 + 0x123, POINTER, 0, 0x123, 0},
    {"second allocation", B1 + 16, B2 + 16, POINTER, 1, 16, 0},
    {"one past the end, nothing behind", A1 + A_SIZE, A2 + A_SIZE, POINTER, 0, A_SIZE, 0},
    {"one past the end, something else behind in one capture", B1 + B_SIZE, B2 + B_SIZE, POINTER, 1, B_SIZE, 0},
    {"start of what lies behind", C1, C2, POINTER, 2, 0, 0},
    {"virtual origin before", A1 - 0x4000, A2 - 0x4000, POINTER, 0, -0x4000, 0},
    {"virtual origin behind", A1 + 0x9000, A2 + 0x9000, POINTER, 0, 0x9000, 0},
    {"virtual origin too far", A1 - 0x5000000, A2 - 0x5000000, NOISE, 0, 0, 2},
    {"half noise", 0x1111111100000007, 0x2222222200000007, NOISE, 0, 0, 4},
    {"stale stack", 0x7ffe11111111, 0x7ffd22222222, NOISE, 0, 0, 0},
    {"stale pointer in one capture alone", A1 + 64, 7, NOISE, 0, 0, 0},
    {"another offset of the same allocation", A1 + 8, A2 + 16, DOUBTFUL, 0, 0, 0},
    {"freed before the launch", DEAD1, DEAD2, NOISE, 0, 0, 3},
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

static void build(struct builder *b, unsigned capture, const uint64_t *words, uint32_t count)
{
	uint32_t kernel, dead;
	uint64_t referenced = capture ? A2 : A1;
	builder_init(b);
	builder_alloc(b, MD_ALLOC_DEVICE, capture ? A2 : A1, A_SIZE);
	builder_alloc(b, MD_ALLOC_DEVICE, capture ? B2 : B1, B_SIZE);
	builder_alloc(b, MD_ALLOC_DEVICE, capture ? C2 : C1, C_SIZE);
	dead = builder_alloc(b, MD_ALLOC_DEVICE, capture ? DEAD2 : DEAD1, 0x1000);
	builder_free(b, dead);
	kernel = builder_kernel(b, builder_image(b, 1), "_Z1k6Struct", 8 * count);
	builder_graph(b, "decode", 1);
	builder_launch(b, kernel, words, 8 * count);
	builder_launch(b, kernel, words, 8 * count);
	memcpy(builder_last(b)->nodes[1].params, &referenced, 8);
}

static void assert_pointer(const struct md_artifact *artifact, const struct md_artifact_graph *graph,
			   const struct word_case *c)
{
	const struct md_pointer *pointer = graph->pointers;
	cr_assert(graph->pointer_count >= 1 && pointer->node == 0 && pointer->at == 0, "%s: a pointer at node 0",
		  c->name);
	cr_assert(artifact->allocs[pointer->alloc].order == c->order, "%s: of allocation %u, not %u", c->name, c->order,
		  artifact->allocs[pointer->alloc].order);
	cr_assert(pointer->offset == c->offset, "%s: offset %lld, not %lld", c->name, (long long)c->offset,
		  (long long)pointer->offset);
}

static void assert_word(const struct md_artifact *artifact, const struct word_case *c)
{
	const struct md_artifact_graph *graph = find_graph(artifact, "decode", 1);
	uint64_t expected = c->kind == CONSTANT ? c->one : 0, stored;
	bool is_pointer;
	cr_assert(graph, "%s: refused: %s", c->name, refusal_of(artifact, "decode", 1));
	cr_assert(graph->doubtful_count == (c->kind == DOUBTFUL), "%s: %u doubtful words", c->name,
		  graph->doubtful_count);
	is_pointer = graph->pointer_count && graph->pointers[0].node == 0;
	cr_assert(is_pointer == (c->kind == POINTER), "%s: is %sa pointer", c->name, is_pointer ? "" : "not ");
	if (c->kind == POINTER)
		assert_pointer(artifact, graph, c);
	if (c->kind == NOISE) {
		uint8_t bytes[8];
		cr_assert(graph->noise_count >= 1, "%s: has noise", c->name);
		cr_assert(graph->noise[0].at == c->noise_at, "%s: noise starts at %u, not %u", c->name, c->noise_at,
			  graph->noise[0].at);
		memcpy(bytes, &c->one, 8);
		for (uint32_t i = 0; i < graph->noise_count; i++) {
			if (graph->noise[i].node == 0)
				memset(bytes + graph->noise[i].at, 0, graph->noise[i].size);
		}
		memcpy(&expected, bytes, 8);
	}
	memcpy(&stored, graph->nodes[0].params, 8);
	cr_assert(stored == expected, "%s: stored as %#llx, not %#llx", c->name, (unsigned long long)stored,
		  (unsigned long long)expected);
}

Test(pass_pointer, classifies_every_kind_of_word)
{
	for (size_t i = 0; i < CASES; i++) {
		struct builder one, two;
		struct md_analyze_options options = {.size = sizeof(options), .keep_doubtful = true};
		struct md_artifact artifact;
		struct md_error err;
		build(&one, 0, &cases[i].one, 1);
		build(&two, 1, &cases[i].two, 1);
		cr_assert(md_analyze(&one.trace, &two.trace, &options, &artifact, &err) == MD_OK, "%s: %s",
			  cases[i].name, err.message);
		assert_word(&artifact, &cases[i]);
		cr_assert(md_artifact_check(&artifact, &err) == MD_OK, "%s: a valid artifact: %s", cases[i].name,
			  err.message);
		md_artifact_finish(&artifact);
		builder_finish(&one);
		builder_finish(&two);
	}
}

Test(pass_pointer, counts_words_and_keeps_good_halves)
{
	const uint64_t first[] = {1, A1, 0x1111111100000007, 5}, second[] = {1, A2, 0x2222222200000007, 5};
	struct builder one, two;
	struct md_artifact artifact;
	struct md_error err;
	const struct md_artifact_graph *graph;
	uint32_t half;
	build(&one, 0, first, 4);
	build(&two, 1, second, 4);
	cr_assert(md_analyze(&one.trace, &two.trace, NULL, &artifact, &err) == MD_OK, "%s", err.message);
	graph = find_graph(&artifact, "decode", 1);
	cr_assert(graph, "refused: %s", refusal_of(&artifact, "decode", 1));
	cr_assert(graph->constant_words == 3, "constants: %llu", (unsigned long long)graph->constant_words);
	cr_assert(graph->pointer_words == 3, "pointers: %llu", (unsigned long long)graph->pointer_words);
	cr_assert(graph->noise_words == 2, "noise: %llu", (unsigned long long)graph->noise_words);
	memcpy(&half, graph->nodes[0].params + 16, 4);
	cr_assert(half == 7, "the good half of a noisy word stays: %u", half);
	cr_assert(graph->proof == MD_PROOF_TWO, "settled by two captures");
	md_artifact_finish(&artifact);
	builder_finish(&one);
	builder_finish(&two);
}

/* Bytes behind the last whole word are compared one by one. */
Test(pass_pointer, trailing_bytes_are_compared)
{
	const uint8_t first[12] = {1, 0, 0, 0, 0, 0, 0, 0, 9, 8, 7, 6},
		      second[12] = {1, 0, 0, 0, 0, 0, 0, 0, 9, 1, 7, 6};
	struct builder b[2];
	struct md_artifact artifact;
	struct md_error err;
	for (int c = 0; c < 2; c++) {
		builder_init(&b[c]);
		uint32_t kernel = builder_kernel(&b[c], builder_image(&b[c], 1), "k", 12);
		builder_graph(&b[c], "decode", 1);
		builder_launch(&b[c], kernel, c ? second : first, 12);
	}
	cr_assert(md_analyze(&b[0].trace, &b[1].trace, NULL, &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(artifact.graph_count == 1, "refused: %s", refusal_of(&artifact, "decode", 1));
	cr_assert(artifact.graphs[0].noise_count == 1 && artifact.graphs[0].noise[0].at == 9 &&
		      artifact.graphs[0].noise[0].size == 1,
		  "byte 9 alone is noise");
	cr_assert(artifact.graphs[0].nodes[0].params[9] == 0 && artifact.graphs[0].nodes[0].params[10] == 7,
		  "noise is zeroed, the rest stays");
	md_artifact_finish(&artifact);
	builder_finish(&b[0]);
	builder_finish(&b[1]);
}

/* One address, two owners in turn (MEDUSA, figure 6): each launch refers to the one that lived then. */
Test(pass_pointer, freed_and_reused_address)
{
	struct builder b[2];
	struct md_artifact artifact;
	struct md_error err;
	const struct md_artifact_graph *graph;
	for (int c = 0; c < 2; c++) {
		uint64_t address = c ? A2 : A1;
		uint32_t kernel, old;
		builder_init(&b[c]);
		kernel = builder_kernel(&b[c], builder_image(&b[c], 1), "k", 8);
		old = builder_alloc(&b[c], MD_ALLOC_DEVICE, address, 0x1000);
		builder_graph(&b[c], "decode", 1);
		builder_launch(&b[c], kernel, &address, 8);
		builder_free(&b[c], old);
		builder_alloc(&b[c], MD_ALLOC_DEVICE, address, 0x2000);
		builder_launch(&b[c], kernel, &address, 8);
	}
	cr_assert(md_analyze(&b[0].trace, &b[1].trace, NULL, &artifact, &err) == MD_OK, "%s", err.message);
	graph = find_graph(&artifact, "decode", 1);
	cr_assert(graph && graph->pointer_count == 2, "two pointers: %s", refusal_of(&artifact, "decode", 1));
	cr_assert(artifact.allocs[graph->pointers[0].alloc].size == 0x1000, "the first launch saw the old allocation");
	cr_assert(artifact.allocs[graph->pointers[1].alloc].size == 0x2000, "the second launch saw the new allocation");
	md_artifact_finish(&artifact);
	builder_finish(&b[0]);
	builder_finish(&b[1]);
}

Test(pass_pointer, equal_distance_to_two_allocations_is_unprovable)
{
	struct builder b[2];
	struct md_artifact artifact;
	struct md_error err;
	for (int c = 0; c < 2; c++) {
		uint64_t base = c ? A2 : A1, word = base + 0x3000;
		uint32_t kernel;
		builder_init(&b[c]);
		builder_alloc(&b[c], MD_ALLOC_DEVICE, base, 0x2000);
		builder_alloc(&b[c], MD_ALLOC_DEVICE, base + 0x4000, 0x1000);
		kernel = builder_kernel(&b[c], builder_image(&b[c], 1), "k", 8);
		builder_graph(&b[c], "decode", 1);
		builder_launch(&b[c], kernel, &word, 8);
	}
	cr_assert(md_analyze(&b[0].trace, &b[1].trace, NULL, &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(strstr(refusal_of(&artifact, "decode", 1), "ambiguous"), "refused as ambiguous: '%s'",
		  refusal_of(&artifact, "decode", 1));
	cr_assert(strstr(refusal_of(&artifact, "decode", 1), "node 0 (k): parameter bytes 0..7"), "names the place");
	md_artifact_finish(&artifact);
	builder_finish(&b[0]);
	builder_finish(&b[1]);
}

/* An allocation that did not move: no capture can tell, and the word is taken as a pointer. */
Test(pass_pointer, unmoved_allocation_counts_as_pointer)
{
	struct builder b[2];
	struct md_artifact artifact;
	struct md_error err;
	for (int c = 0; c < 2; c++) {
		uint64_t word = A1 + 8;
		builder_init(&b[c]);
		builder_alloc(&b[c], MD_ALLOC_DEVICE, A1, 0x2000);
		uint32_t kernel = builder_kernel(&b[c], builder_image(&b[c], 1), "k", 8);
		builder_graph(&b[c], "decode", 1);
		builder_launch(&b[c], kernel, &word, 8);
	}
	cr_assert(md_analyze(&b[0].trace, &b[1].trace, NULL, &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(artifact.graph_count == 1 && artifact.graphs[0].pointer_count == 1, "one pointer");
	md_artifact_finish(&artifact);
	builder_finish(&b[0]);
	builder_finish(&b[1]);
}

Test(pass_pointer, single_goes_by_liveness)
{
	const uint64_t words[] = {A1 + 8, 42, DEAD1, 0x7ffe11111111};
	struct builder b;
	struct md_artifact artifact;
	struct md_error err;
	const struct md_artifact_graph *graph;
	build(&b, 0, words, 4);
	cr_assert(md_analyze(&b.trace, NULL, NULL, &artifact, &err) == MD_OK, "%s", err.message);
	graph = find_graph(&artifact, "decode", 1);
	cr_assert(graph, "refused: %s", refusal_of(&artifact, "decode", 1));
	cr_assert(graph->proof == MD_PROOF_NONE, "unproven");
	cr_assert(graph->noise_count == 0, "nothing is noise");
	cr_assert(graph->pointer_words == 2 && graph->constant_words == 6, "%llu pointers, %llu constants",
		  (unsigned long long)graph->pointer_words, (unsigned long long)graph->constant_words);
	cr_assert(artifact.provenance.capture_count == 1, "one capture");
	md_artifact_finish(&artifact);
	builder_finish(&b);
}

static void copy_and_set(struct builder *b, unsigned capture, uint64_t set_at)
{
	struct md_node *node;
	build(b, capture, &(uint64_t){0}, 1);
	node = builder_node(b, MD_NODE_MEMSET);
	node->memset = (struct md_memset){.dst = set_at, .width = 16, .height = 1, .element_size = 4};
	node = builder_node(b, MD_NODE_MEMCPY);
	node->memcpy = (struct md_memcpy){.src = capture ? B2 : B1,
					  .dst = (capture ? A2 : A1) + 64,
					  .src_type = 2,
					  .dst_type = 2,
					  .width = 32,
					  .height = 1,
					  .depth = 1};
}

Test(pass_pointer, copies_and_sets_hold_pointers)
{
	struct builder one, two;
	struct md_artifact artifact;
	struct md_error err;
	const struct md_artifact_graph *graph;
	copy_and_set(&one, 0, A1 + 32);
	copy_and_set(&two, 1, A2 + 32);
	cr_assert(md_analyze(&one.trace, &two.trace, NULL, &artifact, &err) == MD_OK, "%s", err.message);
	graph = find_graph(&artifact, "decode", 1);
	cr_assert(graph && graph->pointer_count == 4, "four pointers: %s", refusal_of(&artifact, "decode", 1));
	cr_assert(graph->pointers[1].node == 2 && graph->pointers[1].at == 0 && graph->pointers[1].offset == 32, "set");
	cr_assert(graph->pointers[2].node == 3 && graph->pointers[2].at == 0 &&
		      artifact.allocs[graph->pointers[2].alloc].order == 1,
		  "copy source");
	cr_assert(graph->pointers[3].at == 8 && graph->pointers[3].offset == 64, "copy destination");
	cr_assert(graph->nodes[2].memset.dst == 0 && graph->nodes[3].memcpy.src == 0, "addresses are zeroed");
	md_artifact_finish(&artifact);
	builder_finish(&one);
	builder_finish(&two);
}

Test(pass_pointer, set_of_unrecorded_memory_is_refused)
{
	struct builder one, two;
	struct md_artifact artifact;
	struct md_error err;
	copy_and_set(&one, 0, 0x600000000000);
	copy_and_set(&two, 1, 0x600000000000);
	cr_assert(md_analyze(&one.trace, &two.trace, NULL, &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(strstr(refusal_of(&artifact, "decode", 1), "node 2: its set destination"), "refused by name: '%s'",
		  refusal_of(&artifact, "decode", 1));
	md_artifact_finish(&artifact);
	builder_finish(&one);
	builder_finish(&two);
}

/* ---- pointers outside of parameters ---- */

static void analyze_windows(const uint64_t one[2], const uint64_t two[2], struct md_artifact *artifact)
{
	struct builder b[2];
	struct md_error err;
	for (unsigned c = 0; c < 2; c++) {
		build(&b[c], c, &(uint64_t){0}, 1);
		builder_attribute(&b[c], MD_ATTRIBUTE_WINDOW, c ? two : one, 16);
	}
	cr_assert(md_analyze(&b[0].trace, &b[1].trace, NULL, artifact, &err) == MD_OK, "%s", err.message);
	builder_finish(&b[0]);
	builder_finish(&b[1]);
}

Test(pass_pointer, access_policy_window_is_relocated)
{
	struct md_artifact artifact;
	const struct md_artifact_graph *graph;
	const struct md_pointer *pointer;
	uint64_t words[2];
	analyze_windows((uint64_t[]){B1 + 64, 512}, (uint64_t[]){B2 + 64, 512}, &artifact);
	graph = find_graph(&artifact, "decode", 1);
	cr_assert(graph, "refused: %s", refusal_of(&artifact, "decode", 1));
	pointer = &graph->pointers[graph->pointer_count - 1];
	cr_assert(pointer->node == 1 && pointer->at == MD_ATTRIBUTES_AT && pointer->offset == 64, "a pointer at %u+%u",
		  pointer->node, pointer->at);
	cr_assert_eq(artifact.allocs[pointer->alloc].order, 1, "into the second allocation");
	memcpy(words, graph->nodes[1].attributes[0].value, 16);
	cr_assert(words[0] == 0 && words[1] == 512, "the address is zeroed, the size stays");
	md_artifact_finish(&artifact);
}

Test(pass_pointer, should_fail_access_policy_window_of_unknown_memory)
{
	struct md_artifact artifact;
	analyze_windows((uint64_t[]){0x600000000000, 512}, (uint64_t[]){0x600000000000, 512}, &artifact);
	cr_assert(strstr(refusal_of(&artifact, "decode", 1), "node 1: its access policy window 0x600000000000"), "'%s'",
		  refusal_of(&artifact, "decode", 1));
	md_artifact_finish(&artifact);
	analyze_windows((uint64_t[]){0x600000000000, 0}, (uint64_t[]){0x610000000000, 0}, &artifact);
	cr_assert(find_graph(&artifact, "decode", 1), "of no bytes it is none: %s", refusal_of(&artifact, "decode", 1));
	md_artifact_finish(&artifact);
}

/* The origin of what the graph refers to lies in another allocation, which moved otherwise. */
Test(pass_pointer, virtual_origin_inside_another_allocation)
{
	struct builder b[2];
	struct md_artifact artifact;
	struct md_error err;
	const struct md_artifact_graph *graph;
	for (int c = 0; c < 2; c++) {
		uint64_t base = c ? A2 : A1, words[] = {base, base - 0x8000};
		builder_init(&b[c]);
		builder_alloc(&b[c], MD_ALLOC_DEVICE, base, 0x1000);
		builder_alloc(&b[c], MD_ALLOC_DEVICE, (c ? A2 - 0x9000 : A1 - 0xa000), 0x4000);
		builder_alloc(&b[c], MD_ALLOC_DEVICE, c ? B2 : B1, 0x1000);
		uint32_t kernel = builder_kernel(&b[c], builder_image(&b[c], 1), "k", 16);
		builder_graph(&b[c], "decode", 1);
		builder_launch(&b[c], kernel, words, 16);
	}
	cr_assert(md_analyze(&b[0].trace, &b[1].trace, NULL, &artifact, &err) == MD_OK, "%s", err.message);
	graph = find_graph(&artifact, "decode", 1);
	cr_assert(graph && graph->pointer_count == 2, "two pointers: %s", refusal_of(&artifact, "decode", 1));
	cr_assert(graph->pointers[1].offset == -0x8000 && graph->pointers[1].alloc == graph->pointers[0].alloc,
		  "of the same allocation, at %lld", (long long)graph->pointers[1].offset);
	md_artifact_finish(&artifact);
	builder_finish(&b[0]);
	builder_finish(&b[1]);
}

/* ---- host memory ---- */

enum host { BOUND, UNBOUND, NOT_LOCKED };

static void analyze_host_copy(enum host host, struct md_artifact *artifact)
{
	struct builder b[2];
	struct md_error err;
	for (unsigned c = 0; c < 2; c++) {
		uint64_t address = c ? 0x7f0000200000 : 0x7f0000100000;
		build(&b[c], c, &(uint64_t){0}, 1);
		if (host != NOT_LOCKED)
			builder_alloc(&b[c], MD_ALLOC_HOST, address, 0x1000);
		if (host == BOUND)
			builder_bind(&b[c], "staging", address, 0x1000, MD_BIND_INPUT);
		builder_node(&b[c], MD_NODE_MEMCPY)->memcpy = (struct md_memcpy){.src = address + 16,
										 .dst = c ? A2 : A1,
										 .src_type = 1,
										 .dst_type = 2,
										 .width = 32,
										 .height = 1,
										 .depth = 1};
	}
	cr_assert(md_analyze(&b[0].trace, &b[1].trace, NULL, artifact, &err) == MD_OK, "%s", err.message);
	builder_finish(&b[0]);
	builder_finish(&b[1]);
}

Test(pass_pointer, copy_from_bound_page_locked_memory)
{
	struct md_artifact artifact;
	const struct md_artifact_graph *graph;
	const struct md_pointer *pointer;
	analyze_host_copy(BOUND, &artifact);
	graph = find_graph(&artifact, "decode", 1);
	cr_assert(graph, "refused: %s", refusal_of(&artifact, "decode", 1));
	pointer = &graph->pointers[graph->pointer_count - 2];
	cr_assert(pointer->at == 0 && pointer->offset == 16, "the source");
	cr_assert(artifact.allocs[pointer->alloc].class == MD_CLASS_BOUND &&
		      artifact.allocs[pointer->alloc].family == MD_ALLOC_HOST,
		  "is bound host memory");
	md_artifact_finish(&artifact);
}

Test(pass_pointer, should_fail_copy_from_other_host_memory)
{
	struct md_artifact artifact;
	analyze_host_copy(UNBOUND, &artifact);
	cr_assert(strstr(refusal_of(&artifact, "decode", 1), "which a restore does not own: the engine must bind it"),
		  "'%s'", refusal_of(&artifact, "decode", 1));
	md_artifact_finish(&artifact);
	analyze_host_copy(NOT_LOCKED, &artifact);
	cr_assert(strstr(refusal_of(&artifact, "decode", 1), "node 2: copies from host memory that is not page-locked"),
		  "'%s'", refusal_of(&artifact, "decode", 1));
	md_artifact_finish(&artifact);
}
