/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that differ between two captures: bytes that nobody sets, addresses, and values of the process. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "analyze/analyze.h"
#include "tests/trace_builder.h"

#define A1 0x700000100000u
#define A2 0x710000180000u
#define A_SIZE 0x1000u
#define DEAD1 0x700040000000u /* freed before the launch */
#define DEAD2 0x710048000000u
#define TIME 1763790000000000000u

/* What becomes of 16 bytes of parameters. */
static const struct unset_case {
	const char *name, *kernel;
	struct md_param params[3];
	uint32_t param_count;
	uint64_t one[2], two[2];
	const char *refused;                          /* a part of the reason; NULL: it is not refused */
	uint32_t struct_bytes, other_bytes, doubtful; /* of the noise */
} cases[] = {
    {"4 bytes of a kernel in C",
     "k",
     {{0, 4}, {4, 4}},
     2,
     {1, 0},
     {2, 0},
     "parameter 0 (bytes 0..3) is 1 (0x1) in",
     0,
     0,
     0},
    {"the second half of a word",
     "k",
     {{0, 4}, {4, 4}},
     2,
     {7, 0},
     {7 | 3ul << 32, 0},
     "parameter 1 (bytes 4..7) is 0 (0x0) in the first capture and 3 (0x3) in the second",
     0,
     0,
     0},
    {"the last 4 of 12 bytes",
     "k",
     {{0, 8}, {8, 4}},
     2,
     {7, 5},
     {7, 6},
     "parameter 1 (bytes 8..11) is 5 (0x5)",
     0,
     0,
     0},
    {"2 bytes", "k", {{0, 2}}, 1, {1, 0}, {2, 0}, "parameter 0 (bytes 0..1)", 0, 0, 0},
    {"a flag", "k", {{8, 1}}, 1, {0, 0}, {0, 1}, "parameter 0 (bytes 8..8)", 0, 0, 0},
    {"a time", "k", {{0, 8}}, 1, {TIME, 0}, {TIME + 5, 0}, "parameter 0 (bytes 0..7) is 1763790000000000000", 0, 0, 0},
    {"a float of a kernel in C++",
     "_Z1kif",
     {{0, 4}, {4, 4}},
     2,
     {0, 0},
     {1ul << 62, 0},
     "parameter 1 (bytes 4..7)",
     0,
     0,
     0},
    {"a float4",
     "_Z1k6float4",
     {{0, 16}},
     1,
     {1, 2},
     {1, 3},
     "is 01000000000000000200000000000000 in the first capture and 01000000000000000300000000000000 in",
     0,
     0,
     0},
    {"a template's number", "_Z1kIifEvT_T0_", {{0, 4}, {4, 4}}, 2, {1, 0}, {2, 0}, "parameter 0 (bytes 0..3)", 0, 0, 0},
    {"a template's struct", "_Z1kI1SfEvT_T0_", {{0, 4}, {4, 4}}, 2, {1, 0}, {2, 0}, NULL, 1, 0, 0},
    {"a struct of 4 bytes", "_Z1k6Struct", {{0, 4}}, 1, {1, 0}, {2, 0}, NULL, 1, 0, 0},
    {"a struct of 1 byte", "_Z1k5Emptyi", {{0, 1}, {4, 4}}, 2, {0x12, 0}, {0x21, 0}, NULL, 1, 0, 0},
    {"a struct of 16 bytes in C", "k", {{0, 16}}, 1, {1, 1}, {2, 0x202}, NULL, 3, 0, 0},
    {"a name that says another size", "_Z1kd", {{0, 4}}, 1, {1, 0}, {2, 0}, NULL, 1, 0, 0},
    {"a name that says another number", "_Z1kii", {{0, 4}}, 1, {1, 0}, {2, 0}, NULL, 1, 0, 0},
    {"nothing known of the block", "k", {{0, 0}}, 0, {1, 0}, {0x102, 0}, NULL, 2, 0, 0},
    {"between parameters", "k", {{0, 1}, {4, 4}}, 2, {0x11223301, 0}, {0x11556601, 0}, NULL, 0, 2, 0},
    {"behind the last parameter", "k", {{0, 8}, {8, 4}}, 2, {0, 0}, {0, 1ul << 40}, NULL, 0, 1, 0},
    {"a pointer to nothing known", "_Z1kPf", {{0, 8}}, 1, {TIME, 0}, {TIME + 5, 0}, NULL, 0, 1, 0},
    {"an address of a stack, in C", "k", {{0, 8}}, 1, {0x7ffe11111111, 0}, {0x7ffd11111111, 0}, NULL, 0, 1, 0},
    {"the same as a number in C++",
     "_Z1km",
     {{0, 8}},
     1,
     {0x7ffe11111111, 0},
     {0x7ffd11111111, 0},
     "parameter 0",
     0,
     0,
     0},
    {"an address of a stack in one capture alone",
     "k",
     {{0, 8}},
     1,
     {0x7ffe11111111, 0},
     {7, 0},
     "parameter 0",
     0,
     0,
     0},
    {"memory that is gone", "k", {{0, 8}}, 1, {DEAD1, 0}, {DEAD2, 0}, NULL, 0, 2, 0},
    {"memory that is gone in one capture",
     "k",
     {{0, 8}},
     1,
     {DEAD1, 0},
     {TIME, 0},
     "parameter 0 (bytes 0..7)",
     0,
     0,
     0},
    {"live memory, at other places", "k", {{0, 8}}, 1, {A1 + 8, 0}, {A2 + 16, 0}, NULL, 0, 0, 1},
    {"the same, by chance of two numbers",
     "k",
     {{0, 4}, {4, 4}},
     2,
     {A1 + 8, 0},
     {A2 + 16, 0},
     "parameter 0 (bytes 0..3) is 1048584 (0x100008)",
     0,
     0,
     0},
    {"a struct of which a part is given", "nccl", {{0, 4096}}, 1, {A1, 7}, {A2, 8}, NULL, 1, 0, 0},
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

static void build(struct builder *b, unsigned capture, const struct unset_case *c)
{
	uint32_t kernel;
	builder_init(b);
	builder_alloc(b, MD_ALLOC_DEVICE, capture ? A2 : A1, A_SIZE);
	builder_free(b, builder_alloc(b, MD_ALLOC_DEVICE, capture ? DEAD2 : DEAD1, 0x1000));
	kernel = builder_kernel(b, builder_image(b, 1), c->kernel, 8);
	free(b->trace.kernels[kernel].params);
	b->trace.kernels[kernel].params = malloc(sizeof(c->params));
	cr_assert(b->trace.kernels[kernel].params, "memory for the test");
	memcpy(b->trace.kernels[kernel].params, c->params, sizeof(c->params));
	b->trace.kernels[kernel].param_count = c->param_count;
	builder_graph(b, "decode", 1);
	builder_launch(b, kernel, capture ? c->two : c->one, 16);
	b->trace.graphs[0].nodes[0].via_extra = c->params[0].size > 16; /* what is given ends within it */
}

static void analyze(const struct unset_case *c, const struct md_analyze_options *options, struct md_artifact *artifact)
{
	struct builder one, two;
	struct md_error err;
	build(&one, 0, c);
	build(&two, 1, c);
	cr_assert(md_analyze(&one.trace, &two.trace, options, artifact, &err) == MD_OK, "%s: %s", c->name, err.message);
	builder_finish(&one);
	builder_finish(&two);
}

static void assert_noise(const struct md_artifact *artifact, const struct unset_case *c)
{
	const struct md_artifact_graph *graph = find_graph(artifact, "decode", 1);
	struct md_unset unset;
	struct md_error err;
	cr_assert(graph, "%s: refused: %s", c->name, refusal_of(artifact, "decode", 1));
	cr_assert(md_artifact_unset(artifact, graph, &unset, &err) == MD_OK, "%s", err.message);
	cr_assert(unset.struct_bytes == c->struct_bytes && unset.other_bytes == c->other_bytes && !unset.scalars,
		  "%s: %llu bytes of structs, %llu others", c->name, (unsigned long long)unset.struct_bytes,
		  (unsigned long long)unset.other_bytes);
	cr_assert(graph->doubtful_count == c->doubtful, "%s: %u words in doubt", c->name, graph->doubtful_count);
}

Test(unset, what_differs_is_unset_or_refused)
{
	const struct md_analyze_options options = {.size = sizeof(options), .keep_doubtful = true};
	for (size_t i = 0; i < CASES; i++) {
		struct md_artifact artifact;
		analyze(&cases[i], &options, &artifact);
		if (cases[i].refused)
			cr_assert(strstr(refusal_of(&artifact, "decode", 1), cases[i].refused), "%s: '%s' in '%s'",
				  cases[i].name, cases[i].refused, refusal_of(&artifact, "decode", 1));
		else
			assert_noise(&artifact, &cases[i]);
		cr_assert_null(artifact.provenance.verification);
		md_artifact_finish(&artifact);
	}
}

Test(unset, accepted_values_are_noise_and_the_artifact_says_so)
{
	const struct md_analyze_options options = {
	    .size = sizeof(options), .keep_doubtful = true, .accept_process_values = true};
	for (size_t i = 0; i < CASES; i++) {
		struct md_artifact artifact;
		analyze(&cases[i], &options, &artifact);
		cr_assert(artifact.graph_count == 1, "%s: %s", cases[i].name, refusal_of(&artifact, "decode", 1));
		cr_assert(strstr(artifact.provenance.verification, MD_PROCESS_VALUES_ACCEPTED), "it says so");
		md_artifact_finish(&artifact);
	}
}

Test(unset, should_fail_structs_that_differ_if_the_user_knows_of_none)
{
	const struct md_analyze_options options = {
	    .size = sizeof(options), .keep_doubtful = true, .refuse_unset = true};
	for (size_t i = 0; i < CASES; i++) {
		struct md_artifact artifact;
		analyze(&cases[i], &options, &artifact);
		cr_assert(artifact.graph_count == !(cases[i].refused || cases[i].struct_bytes), "%s: '%s'",
			  cases[i].name, refusal_of(&artifact, "decode", 1));
		if (cases[i].struct_bytes)
			cr_assert(strstr(refusal_of(&artifact, "decode", 1), "--refuse-unset was given"), "%s: '%s'",
				  cases[i].name, refusal_of(&artifact, "decode", 1));
		md_artifact_finish(&artifact);
	}
}

/* A trace may come from anywhere: nothing beyond the block is read. */
Test(unset, should_fail_a_layout_that_does_not_fit)
{
	static const struct unset_case beyond = {.name = "beyond",
						 .kernel = "k",
						 .params = {{12, 8}},
						 .param_count = 1,
						 .one = {0, UINT64_C(1) << 32},
						 .two = {0, UINT64_C(2) << 32}};
	struct md_artifact artifact;
	analyze(&beyond, NULL, &artifact);
	cr_assert(strstr(refusal_of(&artifact, "decode", 1), "parameter 0 at 12 of 8 bytes, in a block of 16"), "'%s'",
		  refusal_of(&artifact, "decode", 1));
	md_artifact_finish(&artifact);
}
