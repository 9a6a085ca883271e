/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses between two bindings that lie side by side: whose they are, as other launches of the kernel show. */
#include <criterion/criterion.h>

#include "analyze/analyze.h"
#include "tests/trace_builder.h"

/*
 * a and b side by side, memory that nobody bound, c, more of that, d, e and f side by side. e and f are an allocation of
 * their own, which lies elsewhere in the second capture with `parts`.
 */
enum { A = 0x0000, B = 0x1000, C = 0x3000, D = 0x5000, E = 0x6000, F = 0x7000, OUT = 0x9000 };
enum { SIZE = 0x1000, PARTED = 0x8000 };

static const struct {
	const char *name;
	uint32_t offset;
} bindings[] = {{"a", A}, {"b", B}, {"c", C}, {"d", D}, {"e", E}, {"f", F}, {"out", OUT}};

struct launch {
	uint32_t kernel, one, two; /* offsets of its addresses, at bytes 8 and 16; 0, 0: no launch */
};

static const struct {
	const char *name;
	struct launch others[2]; /* beside one of kernel 0 with A and B */
	bool parts, alone;
	const char *before; /* b must begin where it ends; NULL: nowhere */
	const char *owner;  /* of the address between */
	uint32_t offset;    /* there */
} cases[] = {
    {"nothing else", {{0}}, false, false, "a", "b", 0},
    {"a beginning elsewhere", {{0, C, D}}, false, false, NULL, "b", 0},
    {"the same, of the second kernel", {{1, C, D}}, false, false, "a", "b", 0},
    {"the same, at the other byte", {{0, D, 0x100}}, false, false, "a", "b", 0},
    {"the same, inside of a binding", {{0, C, D + 8}}, false, false, "a", "b", 0},
    {"an end elsewhere", {{0, D, E}}, true, false, NULL, "a", SIZE},
    {"an end of which the beginning is nowhere", {{0, C, E}}, true, false, "a", "b", 0},
    {"both", {{0, C, D}, {0, D + 16, E}}, true, false, "a", "b", 0},
    {"the end of two that lie side by side", {{0, D, F}}, false, false, "a", "b", 0},
    {"the end of memory that nobody bound", {{0, D - 0x800, D}}, false, false, "a", "b", 0},
    {"the same, with another binding in between", {{0, D - 0x800, E}}, false, false, "a", "b", 0},
    {"one behind memory that nobody bound, and others before", {{0, C + 16, D}}, false, false, NULL, "b", 0},
    {"nothing from here to here", {{0, OUT, OUT}}, false, false, "a", "b", 0},
    {"a beginning right behind another binding", {{0, C, E}}, false, false, "a", "b", 0},
    {"one capture alone", {{0, C, D}}, false, true, "a", "b", 0},
};

static void build(struct builder *b, unsigned capture, const struct launch *others, bool parts)
{
	uint64_t base = capture ? 0x710000080000u : 0x700000010000u, moved = capture && parts ? PARTED : 0;
	uint32_t kernels[2], image;
	builder_init(b);
	builder_alloc(b, MD_ALLOC_DEVICE, base, E);
	builder_alloc(b, MD_ALLOC_DEVICE, base + E + moved, 2 * SIZE);
	builder_alloc(b, MD_ALLOC_DEVICE, base + OUT, SIZE);
	for (size_t i = 0; i < sizeof(bindings) / sizeof(bindings[0]); i++)
		builder_bind(b, bindings[i].name,
			     base + bindings[i].offset +
				 (bindings[i].offset == E || bindings[i].offset == F ? moved : 0),
			     SIZE, MD_BIND_CONSTANT);
	image = builder_image(b, 1);
	kernels[0] = builder_kernel(b, image, "first", 24);
	kernels[1] = builder_kernel(b, image, "second", 24);
	builder_graph(b, "decode", 1);
	builder_launch(b, kernels[0], (uint64_t[]){base + OUT, base + A, base + B}, 24);
	for (size_t i = 0; i < 2 && others[i].two; i++) {
		builder_graph(b, "decode", (uint32_t)i + 2);
		builder_launch(b, kernels[others[i].kernel],
			       (uint64_t[]){base + OUT, base + others[i].one, base + others[i].two}, 24);
	}
}

static const struct md_binding *binding_named(const struct md_artifact *artifact, const char *name)
{
	for (uint32_t i = 0; i < artifact->binding_count; i++)
		if (!strcmp(artifact->bindings[i].name, name))
			return &artifact->bindings[i];
	return NULL;
}

static void check(const struct md_artifact *artifact, size_t i)
{
	const struct md_artifact_graph *graph = find_graph(artifact, "decode", 1);
	const struct md_binding *behind = binding_named(artifact, "b");
	cr_assert(graph && graph->pointer_count == 3, "%s: %s", cases[i].name, refusal_of(artifact, "decode", 1));
	const struct md_pointer *pointer = &graph->pointers[2];
	const char *owner = artifact->bindings[artifact->allocs[pointer->alloc].binding].name;
	bool adjoins = behind && behind->adjoins;
	cr_assert_str_eq(owner, cases[i].owner, "%s", cases[i].name);
	cr_assert_eq(pointer->offset, cases[i].offset, "%s", cases[i].name);
	cr_assert_eq(adjoins, cases[i].before != NULL, "%s", cases[i].name);
	if (adjoins)
		cr_assert_str_eq(artifact->bindings[behind->before].name, cases[i].before, "%s", cases[i].name);
}

Test(border_evidence, other_launches_show_whose_an_address_is)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct builder one, two;
		struct md_artifact artifact;
		struct md_error err = {0};
		build(&one, 0, cases[i].others, cases[i].parts);
		build(&two, 1, cases[i].others, cases[i].parts);
		cr_assert(md_analyze(&one.trace, cases[i].alone ? NULL : &two.trace, NULL, &artifact, &err) == MD_OK,
			  "%s: %s", cases[i].name, err.message);
		check(&artifact, i);
		md_artifact_finish(&artifact);
		builder_finish(&one);
		builder_finish(&two);
	}
}
