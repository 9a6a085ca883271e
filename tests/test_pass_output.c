/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs, notes and facts in the analysis: the same in both captures, or refused by name. */
#include "analyze/analyze.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/trace_builder.h"

enum { POOL = 0x10000, BOUND = 0x1000 };

/* Two captures of one engine: a pool with the graph's memory, a bound buffer, a graph that writes into the pool. */
struct engine {
	struct builder b;
	uint64_t pool, bound;
};

static void say(struct engine *e, uint64_t address, uint64_t size)
{
	struct md_trace_graph *graph = builder_last(&e->b);
	struct md_trace_output *output = builder_grow(&graph->outputs, &graph->output_count, sizeof(*output));
	*output = (struct md_trace_output){address, size};
}

static void note(struct engine *e, const char *text)
{
	struct md_trace_graph *graph = builder_last(&e->b);
	graph->note = (uint8_t *)builder_text(text);
	graph->note_size = strlen(text);
}

static void fact(struct engine *e, const char *name, const char *value)
{
	cr_assert(md_fingerprint_set_fact(&e->b.trace.fingerprint, name, value, NULL) == MD_OK, "a fact");
}

static void start(struct engine *e, uint64_t base)
{
	builder_init(&e->b);
	e->b.trace.process_id = (uint32_t)(base >> 24);
	e->bound = base;
	e->pool = base + 0x10000000;
	builder_alloc(&e->b, MD_ALLOC_DEVICE, e->bound, BOUND);
	builder_alloc(&e->b, MD_ALLOC_DEVICE, e->pool, POOL);
	builder_alloc(&e->b, MD_ALLOC_DEVICE, base + 0x20000000, 512); /* nobody points there */
	builder_bind(&e->b, "logits", e->bound, BOUND, MD_BIND_OUTPUT);
	builder_image(&e->b, 1);
	builder_kernel(&e->b, 0, "k", 16);
	builder_graph(&e->b, "decode", 1);
	builder_launch(&e->b, 0, (uint64_t[]){e->pool, e->bound}, 16);
}

static enum md_status analyze(struct engine *one, struct engine *two, struct md_artifact *out, struct md_error *err)
{
	enum md_status status = md_analyze(&one->b.trace, two ? &two->b.trace : NULL, NULL, out, err);
	if (status == MD_OK)
		cr_assert(md_artifact_check(out, err) == MD_OK, "a valid artifact: %s", err->message);
	builder_finish(&one->b);
	if (two)
		builder_finish(&two->b);
	return status;
}

static void start_both(struct engine *one, struct engine *two)
{
	start(one, 0x700000000000);
	start(two, 0x710000200000);
}

Test(pass_output, outputs_notes_and_facts_come_into_the_artifact)
{
	for (int captures = 1; captures <= 2; captures++) {
		struct engine engines[2];
		struct md_artifact artifact;
		struct md_error err = {0};
		start_both(&engines[0], &engines[1]);
		for (int i = 0; i < 2; i++) {
			say(&engines[i], engines[i].pool + 512, 1024);
			say(&engines[i], 0, 0);
			say(&engines[i], engines[i].bound + 8, 16);
			note(&engines[i], "shapes");
			fact(&engines[i], "torch", "2.11");
			fact(&engines[i], "model", "x");
		}
		cr_assert(analyze(&engines[0], captures == 2 ? &engines[1] : NULL, &artifact, &err) == MD_OK, "%s",
			  err.message);
		if (captures == 1)
			builder_finish(&engines[1].b);
		const struct md_artifact_graph *graph = find_graph(&artifact, "decode", 1);
		cr_assert(graph, "refused: %s", refusal_of(&artifact, "decode", 1));
		cr_assert_eq(graph->output_count, 3, "outputs");
		const struct md_artifact_alloc *pool = &artifact.allocs[graph->outputs[0].alloc];
		cr_assert(pool->class == MD_CLASS_PRIVATE && pool->size == POOL, "output 0 is private");
		cr_assert(graph->outputs[0].offset == 512 && graph->outputs[0].size == 1024, "output 0");
		cr_assert(graph->outputs[1].alloc == MD_NONE && !graph->outputs[1].size, "output 1 was not given");
		cr_assert_eq(artifact.allocs[graph->outputs[2].alloc].class, MD_CLASS_BOUND, "output 2 is bound");
		cr_assert(graph->outputs[2].offset == 8 && graph->outputs[2].size == 16, "output 2");
		cr_assert(graph->note_size == 6 && !memcmp(graph->note, "shapes", 6), "note");
		cr_assert_eq(artifact.fingerprint.fact_count, 2, "facts");
		cr_assert_str_eq(artifact.fingerprint.facts[0].name, "model", "ascending");
		md_artifact_finish(&artifact);
	}
}

/* What is only an output still has its place in a restore. */
Test(pass_output, memory_that_no_parameter_points_to_is_kept)
{
	struct engine engines[2];
	struct md_artifact artifact;
	struct md_error err = {0};
	start_both(&engines[0], &engines[1]);
	for (int i = 0; i < 2; i++)
		say(&engines[i], engines[i].bound + 0x20000000, 512);
	cr_assert(analyze(&engines[0], &engines[1], &artifact, &err) == MD_OK, "%s", err.message);
	const struct md_artifact_graph *graph = find_graph(&artifact, "decode", 1);
	cr_assert(graph, "refused: %s", refusal_of(&artifact, "decode", 1));
	cr_assert_eq(artifact.allocs[graph->outputs[0].alloc].size, 512, "its allocation");
	md_artifact_finish(&artifact);
}

/* Memory that is mapped piece by piece: a tensor may lie across two of them. */
Test(pass_output, an_output_may_lie_across_mappings)
{
	struct engine engines[2];
	struct md_artifact artifact;
	struct md_error err = {0};
	start_both(&engines[0], &engines[1]);
	for (int i = 0; i < 2; i++) {
		uint64_t range = engines[i].bound + 0x30000000;
		builder_alloc(&engines[i].b, MD_ALLOC_VMM, range, 4096);
		builder_alloc(&engines[i].b, MD_ALLOC_VMM, range + 4096, 4096);
		builder_graph(&engines[i].b, "decode", 2);
		builder_launch(&engines[i].b, 0, (uint64_t[]){range, engines[i].bound}, 16);
		say(&engines[i], range + 2048, 4096);
	}
	cr_assert(analyze(&engines[0], &engines[1], &artifact, &err) == MD_OK, "%s", err.message);
	const struct md_artifact_graph *graph = find_graph(&artifact, "decode", 2);
	cr_assert(graph, "refused: %s", refusal_of(&artifact, "decode", 2));
	cr_assert_eq(artifact.allocs[graph->outputs[0].alloc].size, 8192, "both mappings are one allocation");
	cr_assert_eq(graph->outputs[0].offset, 2048, "at its place in them");
	md_artifact_finish(&artifact);
}

/* ---- what must be refused ---- */

static void assert_refused(const struct md_trace_output *one, const struct md_trace_output *two, const char *why)
{
	struct engine engines[2];
	struct md_artifact artifact;
	struct md_error err = {0};
	const struct md_trace_output *lists[] = {one, two};
	start_both(&engines[0], &engines[1]);
	for (int i = 0; i < 2; i++) {
		builder_alloc(&engines[i].b, MD_ALLOC_HOST, engines[i].bound + 0x40000000, 4096);
		builder_last(&engines[i].b)->sequence = ++engines[i].b.sequence;
		for (const struct md_trace_output *o = lists[i]; o->size; o++)
			say(&engines[i], engines[i].bound + o->address, o->size);
	}
	cr_assert(analyze(&engines[0], &engines[1], &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(strstr(refusal_of(&artifact, "decode", 1), why), "'%s' lacks '%s'",
		  refusal_of(&artifact, "decode", 1), why);
	md_artifact_finish(&artifact);
}

#define LIST(...) ((const struct md_trace_output[]){__VA_ARGS__, {0, 0}})
#define IN_POOL(at) (0x10000000 + (at))

Test(pass_output, should_fail_outputs_that_differ)
{
	assert_refused(LIST({IN_POOL(0), 64}), LIST({IN_POOL(0), 64}, {IN_POOL(64), 64}),
		       "1 outputs, in the second capture 2");
	assert_refused(LIST({IN_POOL(0), 64}), LIST({IN_POOL(0), 128}),
		       "output 0: 64 bytes, in the second capture 128");
	assert_refused(
	    LIST({IN_POOL(0), 64}, {IN_POOL(512), 64}), LIST({IN_POOL(0), 64}, {IN_POOL(1024), 64}),
	    "output 1: at byte 512 of allocation 1 in the first capture and at byte 1024 of allocation 1 in the "
	    "second, which is another place");
	assert_refused(
	    LIST({0, 64}), LIST({IN_POOL(0), 64}),
	    "output 0: at byte 0 of logits in the first capture and at byte 0 of allocation 1 in the second");
	assert_refused(LIST({IN_POOL(0), 64}), LIST({0x20000000, 64}), "byte 0 of allocation 2");
	assert_refused(LIST({IN_POOL(POOL - 32), 64}), LIST({IN_POOL(POOL - 32), 64}),
		       "output 0: byte 32 lies in no live memory (first capture)");
	assert_refused(LIST({IN_POOL(0), 64}), LIST({0x50000000, 64}),
		       "output 0: byte 0 lies in no live memory (second capture)");
	assert_refused(LIST({0x40000000, 64}), LIST({0x40000000, 64}),
		       "output 0: lies in memory that a restore does not own");
}

Test(pass_output, should_fail_an_output_that_is_bound_in_part)
{
	struct engine engines[2];
	struct md_artifact artifact;
	struct md_error err = {0};
	start_both(&engines[0], &engines[1]);
	for (int i = 0; i < 2; i++) {
		builder_bind(&engines[i].b, "inner", engines[i].pool + 4096, 64, MD_BIND_STATE);
		builder_last(&engines[i].b)->sequence = ++engines[i].b.sequence;
		say(&engines[i], engines[i].pool + 4000, 128);
	}
	cr_assert(analyze(&engines[0], &engines[1], &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(strstr(refusal_of(&artifact, "decode", 1), "output 0: byte 96 lies in another binding than byte 0"),
		  "'%s'", refusal_of(&artifact, "decode", 1));
	md_artifact_finish(&artifact);
}

Test(pass_output, should_fail_notes_that_differ)
{
	static const struct {
		const char *one, *two, *why;
	} cases[] = {
	    {"shapes", "shape", "the engine's note has 6 and 5 bytes"},
	    {"shapes", "shaper", "the engine's note differs at byte 5"},
	    {"", "shapes", "the engine's note has 0 and 6 bytes"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct engine one, two;
		struct md_artifact artifact;
		struct md_error err = {0};
		start_both(&one, &two);
		note(&one, cases[i].one);
		note(&two, cases[i].two);
		cr_assert(analyze(&one, &two, &artifact, &err) == MD_OK, "%s", err.message);
		cr_assert_str_eq(refusal_of(&artifact, "decode", 1), cases[i].why);
		md_artifact_finish(&artifact);
	}
}

Test(pass_output, should_fail_facts_that_differ)
{
	static const struct {
		const char *one, *two, *why; /* values of "torch"; NULL: not said */
	} cases[] = {
	    {"2.11", "2.12", "fact \"torch\": first capture has 2.11, second 2.12"},
	    {"2.11", NULL, "fact \"torch\": only the first capture has it (2.11)"},
	    {NULL, "2.12", "fact \"torch\": only the second capture has it (2.12)"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct engine one, two;
		struct md_artifact artifact;
		struct md_error err = {0};
		start_both(&one, &two);
		fact(&one, "a", "same");
		fact(&two, "a", "same");
		if (cases[i].one)
			fact(&one, "torch", cases[i].one);
		if (cases[i].two)
			fact(&two, "torch", cases[i].two);
		fact(&one, "z", "same");
		fact(&two, "z", "same");
		cr_assert_eq(analyze(&one, &two, &artifact, &err), MD_ERR_MISMATCH, "%s passes", cases[i].why);
		cr_assert(strstr(err.message, cases[i].why), "\"%s\" lacks \"%s\"", err.message, cases[i].why);
	}
}
