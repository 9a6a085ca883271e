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

static const struct what {
	const char *name;
	struct launch others[2]; /* beside one of kernel 0 with A and B */
	bool parts, alone;
	bool drifts;  /* the first address of the others is elsewhere in the second capture, which replay has to tell */
	bool refused; /* the graphs of the others are */
	const char *before; /* b must begin where it ends; NULL: nowhere */
	const char *owner;  /* of the address between; NULL: b */
	uint32_t offset;    /* there */
} cases[] = {
    {.name = "nothing else", .before = "a"},
    {.name = "a beginning elsewhere", .others = {{0, C, D}}},
    {.name = "the same, of the second kernel", .others = {{1, C, D}}, .before = "a"},
    {.name = "the same, at the other byte", .others = {{0, D, 0x100}}, .before = "a"},
    {.name = "the same, inside of a binding", .others = {{0, C, D + 8}}, .before = "a"},
    {.name = "an end elsewhere", .others = {{0, D, E}}, .parts = true, .owner = "a", .offset = SIZE},
    {.name = "an end of which the beginning is nowhere", .others = {{0, C, E}}, .parts = true, .before = "a"},
    {.name = "both", .others = {{0, C, D}, {0, D + 16, E}}, .parts = true, .before = "a"},
    {.name = "the end of two that lie side by side", .others = {{0, D, F}}, .before = "a"},
    {.name = "the end of memory that nobody bound", .others = {{0, D - 0x800, D}}, .before = "a"},
    {.name = "the same, with another binding in between", .others = {{0, D - 0x800, E}}, .before = "a"},
    {.name = "one behind memory that nobody bound, and others before", .others = {{0, C + 16, D}}},
    {.name = "nothing from here to here", .others = {{0, OUT, OUT}}, .before = "a"},
    {.name = "a beginning right behind another binding", .others = {{0, C, E}}, .before = "a"},
    {.name = "in a graph that is refused", .others = {{0, C, D}}, .refused = true, .before = "a"},
    {.name = "with another address in doubt", .others = {{0, C, D}}, .drifts = true, .before = "a"},
    {.name = "one capture alone", .others = {{0, C, D}}, .alone = true, .before = "a"},
};

static void build(struct builder *b, unsigned capture, const struct what *what)
{
	uint64_t base = capture ? 0x710000080000u : 0x700000010000u, moved = capture && what->parts ? PARTED : 0;
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
	for (uint32_t i = 0; i < 2 && what->others[i].two; i++) {
		const struct launch *launch = &what->others[i];
		uint64_t one = base + launch->one + (what->drifts ? 64 * capture : 0);
		builder_graph(b, "decode", i + 2);
		builder_launch(b, kernels[launch->kernel], (uint64_t[]){base + OUT, one, base + launch->two}, 24);
		if (what->refused)
			builder_launch(b, kernels[1], (uint64_t[]){base + C + 64 * capture, 0, 0}, 24);
	}
}

static const struct md_binding *binding_named(const struct md_artifact *artifact, const char *name)
{
	for (uint32_t i = 0; i < artifact->binding_count; i++)
		if (!strcmp(artifact->bindings[i].name, name))
			return &artifact->bindings[i];
	return NULL;
}

static void check(const struct md_artifact *artifact, const struct what *what)
{
	const struct md_artifact_graph *graph = find_graph(artifact, "decode", 1);
	const struct md_binding *behind = binding_named(artifact, "b");
	cr_assert(graph && graph->pointer_count == 3, "%s: %s", what->name, refusal_of(artifact, "decode", 1));
	const struct md_pointer *pointer = &graph->pointers[2];
	const char *owner = artifact->bindings[artifact->allocs[pointer->alloc].binding].name;
	bool adjoins = behind && behind->adjoins;
	cr_assert_str_eq(owner, what->owner ? what->owner : "b", "%s", what->name);
	cr_assert_eq(pointer->offset, what->offset, "%s", what->name);
	cr_assert_eq(adjoins, what->before != NULL, "%s", what->name);
	if (adjoins)
		cr_assert_str_eq(artifact->bindings[behind->before].name, what->before, "%s", what->name);
	cr_assert_eq(find_graph(artifact, "decode", 2) == NULL, what->refused || !what->others[0].two, "%s",
		     what->name);
}

Test(border_evidence, other_launches_show_whose_an_address_is)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct md_analyze_options options = {.size = sizeof(options), .keep_doubtful = cases[i].drifts};
		struct builder one, two;
		struct md_artifact artifact;
		struct md_error err = {0};
		build(&one, 0, &cases[i]);
		build(&two, 1, &cases[i]);
		enum md_status status =
		    md_analyze(&one.trace, cases[i].alone ? NULL : &two.trace, &options, &artifact, &err);
		cr_assert_eq(status, MD_OK, "%s: %s", cases[i].name, err.message);
		check(&artifact, &cases[i]);
		md_artifact_finish(&artifact);
		builder_finish(&one);
		builder_finish(&two);
	}
}
