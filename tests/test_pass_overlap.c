/* SPDX-License-Identifier: Apache-2.0 */
/* Bindings that share memory: which of them must lie the same way again, and how far apart. */
#include <criterion/criterion.h>

#include "analyze/analyze.h"
#include "tests/trace_builder.h"

enum { MOST = 4, SIZE = 0x100000 };

struct bound {
	const char *name;
	uint32_t size, at[2]; /* at: offset in the segment of each capture */
	const char *within;   /* expected; NULL: it shares no memory with a binding that begins before it */
	uint32_t distance;
	bool anew; /* the segment is freed and allocated again before it is bound */
};

#define AT(name_, size_, at_) .name = name_, .size = size_, .at = {at_, at_}

static const struct what {
	const char *name;
	struct bound bounds[MOST]; /* in the order in which they are bound */
	bool alone;                /* there is no second capture */
} cases[] = {
    {.name = "apart", .bounds = {{AT("a", 256, 0)}, {AT("b", 256, 512)}}},
    {.name = "side by side", .bounds = {{AT("a", 256, 0)}, {AT("b", 256, 256)}}},
    {.name = "one byte in common", .bounds = {{AT("a", 257, 0)}, {AT("b", 256, 256), .within = "a", .distance = 256}}},
    {.name = "a pool and a buffer in it",
     .bounds = {{AT("pool", 4096, 0)}, {AT("logits", 256, 1024), .within = "pool", .distance = 1024}}},
    {.name = "tied weights",
     .bounds = {{AT("embedding", 256, 64)}, {AT("head", 256, 64), .within = "embedding", .distance = 0}}},
    {.name = "a later name that begins before",
     .bounds = {{AT("a", 256, 1024), .within = "b", .distance = 512}, {AT("b", 1024, 512)}}},
    {.name = "a chain is measured from its first link",
     .bounds = {{AT("a", 512, 0)},
		{AT("b", 512, 256), .within = "a", .distance = 256},
		{AT("c", 512, 640), .within = "a", .distance = 640}}},
    {.name = "a pool reaches further than the first buffer in it",
     .bounds = {{AT("a", 4096, 0)},
		{AT("b", 256, 256), .within = "a", .distance = 256},
		{AT("c", 256, 2048), .within = "a", .distance = 2048}}},
    {.name = "two chains",
     .bounds = {{AT("a", 512, 0)},
		{AT("b", 256, 256), .within = "a", .distance = 256},
		{AT("c", 512, 1024)},
		{AT("d", 256, 1280), .within = "c", .distance = 256}}},
    {.name = "elsewhere, but together",
     .bounds = {{.name = "a", .size = 512, .at = {0, 4096}},
		{.name = "b", .size = 256, .at = {256, 4352}, .within = "a", .distance = 256}}},
    {.name = "apart in the second capture",
     .bounds = {{AT("a", 512, 0)}, {.name = "b", .size = 512, .at = {256, 4096}}}},
    {.name = "two that share, and one that is elsewhere in the second capture",
     .bounds = {{AT("a", 512, 0)},
		{.name = "b", .size = 1024, .at = {128, 4096}},
		{AT("c", 256, 256), .within = "a", .distance = 256}}},
    {.name = "two that share, below one that moved less",
     .bounds = {{AT("a", 512, 8192)},
		{.name = "b", .size = 512, .at = {0, 4096}},
		{.name = "c", .size = 256, .at = {256, 4352}, .within = "b", .distance = 256}}},
    {.name = "memory that was freed before", .bounds = {{AT("a", 512, 0)}, {AT("b", 512, 0), .anew = true}}},
    {.name = "the same, with the later name first", .bounds = {{AT("b", 512, 0)}, {AT("a", 512, 0), .anew = true}}},
    {.name = "one capture",
     .bounds = {{AT("a", 512, 0)}, {AT("b", 256, 256), .within = "a", .distance = 256}},
     .alone = true},
};

/* Bindings of this role are stored although the graph has the address of the first one alone. */
static void build(struct builder *b, unsigned capture, const struct what *what)
{
	uint64_t base = capture ? 0x710000400000u : 0x700000000000u, first = base + what->bounds[0].at[capture];
	builder_init(b);
	b->trace.process_id = capture;
	uint32_t segment = builder_alloc(b, MD_ALLOC_DEVICE, base, SIZE);
	for (uint32_t i = 0; i < MOST && what->bounds[i].name; i++) {
		const struct bound *bound = &what->bounds[i];
		if (bound->anew) {
			builder_free(b, segment);
			segment = builder_alloc(b, MD_ALLOC_DEVICE, base, SIZE);
		}
		builder_bind(b, bound->name, base + bound->at[capture], bound->size, MD_BIND_STATE);
	}
	builder_kernel(b, builder_image(b, 1), "k", 8);
	builder_graph(b, "decode", 1);
	builder_launch(b, 0, &first, 8);
}

static const struct md_binding *find_binding(const struct md_artifact *artifact, const char *name)
{
	for (uint32_t i = 0; i < artifact->binding_count; i++)
		if (!strcmp(artifact->bindings[i].name, name))
			return &artifact->bindings[i];
	return NULL;
}

static void assert_lies(const struct md_artifact *artifact, const char *name, const struct bound *bound)
{
	const struct md_binding *binding = find_binding(artifact, bound->name);
	cr_assert(binding, "%s: binding %s is stored", name, bound->name);
	cr_assert_eq(binding->overlaps, bound->within != NULL, "%s: %s shares memory: %d", name, bound->name,
		     binding->overlaps);
	if (!bound->within)
		return;
	cr_assert_str_eq(artifact->bindings[binding->within].name, bound->within, "%s: %s lies in %s", name,
			 bound->name, artifact->bindings[binding->within].name);
	cr_assert_eq(binding->distance, bound->distance, "%s: %s begins %llu bytes behind it", name, bound->name,
		     (unsigned long long)binding->distance);
}

static void check(const struct what *what)
{
	struct builder builders[2];
	struct md_artifact artifact;
	struct md_error err = {0};
	build(&builders[0], 0, what);
	build(&builders[1], 1, what);
	enum md_status status =
	    md_analyze(&builders[0].trace, what->alone ? NULL : &builders[1].trace, NULL, &artifact, &err);
	cr_assert_eq(status, MD_OK, "%s: %s", what->name, err.message);
	cr_assert(find_graph(&artifact, "decode", 1), "%s: '%s'", what->name, refusal_of(&artifact, "decode", 1));
	for (uint32_t i = 0; i < MOST && what->bounds[i].name; i++)
		assert_lies(&artifact, what->name, &what->bounds[i]);
	md_artifact_finish(&artifact);
	builder_finish(&builders[0]);
	builder_finish(&builders[1]);
}

Test(pass_overlap, which_bindings_must_lie_the_same_way_again)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		check(&cases[i]);
}
