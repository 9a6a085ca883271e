/* SPDX-License-Identifier: Apache-2.0 */
/* Permanent contents: words that are pointers are found, and what cannot be proven refuses the graphs that use it. */
#include <criterion/criterion.h>

#include "analyze/analyze.h"
#include "tests/trace_builder.h"

#define LIST1 0x700000100000u
#define LIST2 0x710000180000u
#define DATA1 0x700010000000u
#define DATA2 0x710018000000u
#define HOST1 0x7f0000000000u
#define HOST2 0x7f1000000000u

/* A graph that gets a list of two words by pointer; the list's words are the case. */
static void build(struct builder *b, unsigned capture, const uint64_t words[2], bool saved)
{
	uint64_t list = capture ? LIST2 : LIST1, deep = 5;
	uint32_t kernel;
	builder_init(b);
	builder_alloc(b, MD_ALLOC_DEVICE, list, 0x100);
	builder_alloc(b, MD_ALLOC_DEVICE, capture ? DATA2 : DATA1, 0x200);
	builder_alloc(b, MD_ALLOC_HOST, capture ? HOST2 : HOST1, 0x1000);
	kernel = builder_kernel(b, builder_image(b, 1), "batched", 8);
	builder_graph(b, "decode", 1);
	builder_launch(b, kernel, &list, 8);
	builder_graph(b, "other", 1);
	builder_launch(b, kernel, &(uint64_t){9}, 8);
	if (saved)
		builder_content(b, list + 16, words, 16);
	builder_content(b, (capture ? DATA2 : DATA1) + 8, &deep, 8);
}

static void analyze(const uint64_t one_words[2], const uint64_t two_words[2], bool both, struct md_artifact *artifact)
{
	struct builder one, two;
	struct md_error err;
	build(&one, 0, one_words, true);
	build(&two, 1, two_words, both);
	cr_assert(md_analyze(&one.trace, &two.trace, NULL, artifact, &err) == MD_OK, "%s", err.message);
	builder_finish(&one);
	builder_finish(&two);
}

static const struct md_artifact_content *list_content(const struct md_artifact *artifact)
{
	for (uint32_t i = 0; i < artifact->content_count; i++) {
		if (artifact->allocs[artifact->contents[i].alloc].order == 0)
			return &artifact->contents[i];
	}
	return NULL;
}

static void assert_list(const struct md_artifact *artifact)
{
	const struct md_artifact_content *content = list_content(artifact);
	cr_assert(content, "the list's contents are kept: '%s'", refusal_of(artifact, "decode", 1));
	cr_assert(content->offset == 16 && content->size == 16, "at their place in the private allocation");
	cr_assert(content->pointer_count == 1 && content->pointers[0].at == 0 && content->pointers[0].node == MD_NONE,
		  "its first word is a pointer");
	cr_assert(artifact->allocs[content->pointers[0].alloc].order == 1 && content->pointers[0].offset == 64,
		  "into the data");
	cr_assert(memcmp(content->data, "\0\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 16) == 0,
		  "the pointer is zeroed, the 3 stays");
	cr_assert(artifact->content_count == 2, "and what the list points to keeps its own contents");
	cr_assert(artifact->arena_size == 1024, "both allocations are private: %llu",
		  (unsigned long long)artifact->arena_size);
}

Test(pass_content, pointers_inside_contents)
{
	const uint64_t one[] = {DATA1 + 64, 3}, two[] = {DATA2 + 64, 3};
	struct md_artifact artifact;
	analyze(one, two, true, &artifact);
	assert_list(&artifact);
	md_artifact_finish(&artifact);
}

Test(pass_content, saved_in_one_capture_goes_by_liveness)
{
	const uint64_t one[] = {DATA1 + 64, 3}, two[] = {0, 0};
	struct md_artifact artifact;
	analyze(one, two, false, &artifact);
	assert_list(&artifact);
	md_artifact_finish(&artifact);
}

/* The poison test may find more, or less, of the same table in another start. */
Test(pass_content, should_fail_a_difference_in_what_both_saved_of_other_extents)
{
	const uint64_t same[] = {3, 4}, other[] = {3, 5};
	struct builder one, two;
	struct md_artifact artifact;
	struct md_error err;
	build(&one, 0, same, true);
	build(&two, 1, other, false);
	builder_content(&two, LIST2 + 24, &other[1], 8);
	cr_assert(md_analyze(&one.trace, &two.trace, NULL, &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(strstr(refusal_of(&artifact, "decode", 1), "byte 24: differs between the captures"), "got '%s'",
		  refusal_of(&artifact, "decode", 1));
	md_artifact_finish(&artifact);
	builder_finish(&one);
	builder_finish(&two);
}

static const struct refusal_case {
	const char *name;
	uint64_t one, two;
	const char *message;
} refusals[] = {
    {"difference", 1, 2, "unprovable: contents of allocation 0 (256 bytes), byte 24: differs between the captures"},
    {"host pointer", HOST1, HOST2, "byte 24, point to host memory"},
};

Test(pass_content, refuses_the_graphs_that_use_it)
{
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		const uint64_t one[] = {DATA1 + 64, refusals[i].one}, two[] = {DATA2 + 64, refusals[i].two};
		struct md_artifact artifact;
		analyze(one, two, true, &artifact);
		cr_assert(strstr(refusal_of(&artifact, "decode", 1), refusals[i].message), "%s: '%s'", refusals[i].name,
			  refusal_of(&artifact, "decode", 1));
		cr_assert(find_graph(&artifact, "other", 1), "%s: a graph that does not use it stays",
			  refusals[i].name);
		cr_assert(artifact.content_count == 0 && artifact.arena_size == 0, "%s: nothing else is kept",
			  refusals[i].name);
		md_artifact_finish(&artifact);
	}
}

Test(pass_content, contents_of_unrecorded_memory_refuse_graphs_that_need_contents)
{
	struct builder b;
	struct md_artifact artifact;
	struct md_error err;
	build(&b, 0, (const uint64_t[]){1, 2}, true);
	builder_content(&b, 0x123450000, "abcdefgh", 8);
	b.trace.graphs[0].probe = MD_PROBE_CONTENT_SAVED;
	cr_assert(md_analyze(&b.trace, NULL, NULL, &artifact, &err) == MD_OK, "%s", err.message);
	cr_assert(strstr(refusal_of(&artifact, "decode", 1), "contents at 0x123450000"), "'%s'",
		  refusal_of(&artifact, "decode", 1));
	cr_assert(find_graph(&artifact, "other", 1), "a graph that needs none stays");
	md_artifact_finish(&artifact);
	builder_finish(&b);
}
