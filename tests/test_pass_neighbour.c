/* SPDX-License-Identifier: Apache-2.0 */
/* Bindings that lie side by side: when a launch has the address between the two, they must do so again. */
#include <criterion/criterion.h>

#include "analyze/analyze.h"
#include "tests/trace_builder.h"

enum { SIZE = 0x100000, KV_AT = 4096, KV_SIZE = 1024, LOGITS_SIZE = 1024, BORDER = KV_AT + KV_SIZE, FAR = 0x8000 };
enum { ZERO, SEGMENT }; /* no offsets: the word 0, and the beginning of the segment */

/* The words stand in a launch; in a copy from one to the other; in a launch with an access policy window at the second. */
enum form { LAUNCH, COPY, WINDOW };

/* Binding kv ends at the border. Binding logits begins there, or `gap` bytes behind it in that capture. */
static const struct what {
	const char *name;
	uint32_t words[2], others[2]; /* offsets in the segment, of a launch and of a second one */
	uint32_t gap[2];
	enum form form;
	bool alone;      /* there is no second capture */
	bool unprovable; /* the graph is refused */
	bool adjoins;    /* expected of logits */
} cases[] = {
    {.name = "the beginning of one and the border", .words = {KV_AT, BORDER}, .adjoins = true},
    {.name = "the border first", .words = {BORDER, KV_AT}, .adjoins = true},
    {.name = "the inside of one and the border", .words = {KV_AT + 64, BORDER}, .adjoins = true},
    {.name = "in the second launch", .words = {KV_AT, KV_AT}, .others = {KV_AT, BORDER}, .adjoins = true},
    {.name = "one capture", .words = {KV_AT, BORDER}, .alone = true, .adjoins = true},
    {.name = "the border in both launches, the other binding in one",
     .words = {FAR, BORDER},
     .others = {KV_AT, BORDER},
     .adjoins = true},
    {.name = "the border alone", .words = {BORDER, BORDER}},
    {.name = "the border, and memory of neither", .words = {BORDER, FAR}},
    {.name = "one, and the beginning of memory of neither", .words = {KV_AT, SEGMENT}},
    {.name = "one and the inside of the other", .words = {KV_AT, BORDER + 8}},
    {.name = "in two launches", .words = {KV_AT, ZERO}, .others = {BORDER, ZERO}},
    {.name = "apart", .words = {KV_AT, BORDER + 256}, .gap = {256, 256}},
    {.name = "apart in the first capture", .words = {KV_AT, BORDER}, .gap = {256, 0}},
    {.name = "apart in the second capture", .words = {KV_AT, BORDER}, .gap = {0, 256}},
    {.name = "a copy from one to the other", .words = {KV_AT, BORDER}, .form = COPY},
    {.name = "an access policy window of the other", .words = {KV_AT, BORDER}, .form = WINDOW},
    {.name = "in a graph that is refused", .words = {KV_AT, BORDER}, .unprovable = true},
};

static uint64_t word_of(uint64_t base, uint32_t at, uint32_t gap)
{
	if (at == ZERO)
		return 0;
	if (at == SEGMENT)
		return base;
	return base + at + (at == BORDER ? gap : 0); /* the beginning of logits moves with that binding */
}

static void add_copy(struct builder *b, const uint64_t words[2])
{
	builder_node(b, MD_NODE_MEMCPY)->memcpy = (struct md_memcpy){
	    .src = words[0], .dst = words[1], .src_type = 2, .dst_type = 2, .width = 32, .height = 1, .depth = 1};
}

static void build(struct builder *b, unsigned capture, const struct what *what)
{
	uint64_t base = capture ? 0x710000400000u : 0x700000000000u, words[2], others[2];
	uint32_t gap = what->gap[capture];
	for (int i = 0; i < 2; i++) {
		words[i] = word_of(base, what->words[i], gap);
		others[i] = word_of(base, what->others[i], gap);
	}
	builder_init(b);
	b->trace.process_id = capture;
	builder_alloc(b, MD_ALLOC_DEVICE, base, SIZE);
	builder_bind(b, "kv", base + KV_AT, KV_SIZE, MD_BIND_STATE);
	builder_bind(b, "logits", base + BORDER + gap, LOGITS_SIZE, MD_BIND_STATE);
	builder_kernel(b, builder_image(b, 1), "k", 16);
	builder_graph(b, "decode", 1);
	if (what->form == COPY)
		add_copy(b, words);
	else
		builder_launch(b, 0, what->form == WINDOW ? (uint64_t[]){words[0], 0} : words, 16);
	if (what->form == WINDOW)
		builder_attribute(b, MD_ATTRIBUTE_WINDOW, (uint64_t[]){words[1], 64}, 16);
	builder_launch(b, 0, others, 16);
	if (what->unprovable) /* in one binding, at another offset in each capture */
		builder_launch(b, 0, (uint64_t[]){base + KV_AT + 8 + 64 * capture, 0}, 16);
}

static const struct md_binding *find_binding(const struct md_artifact *artifact, const char *name)
{
	for (uint32_t i = 0; i < artifact->binding_count; i++)
		if (!strcmp(artifact->bindings[i].name, name))
			return &artifact->bindings[i];
	return NULL;
}

static void assert_adjoins(const struct md_artifact *artifact, const struct what *what)
{
	const struct md_binding *kv = find_binding(artifact, "kv"), *logits = find_binding(artifact, "logits");
	cr_assert(kv && logits, "%s: both bindings are stored", what->name);
	cr_assert_not(kv->adjoins, "%s: nothing lies before kv", what->name);
	cr_assert_eq(logits->adjoins, what->adjoins, "%s: logits must lie behind kv: %d", what->name, logits->adjoins);
	if (what->adjoins)
		cr_assert(&artifact->bindings[logits->before] == kv, "%s: behind binding %u", what->name,
			  logits->before);
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
	cr_assert_eq(find_graph(&artifact, "decode", 1) == NULL, what->unprovable, "%s: '%s'", what->name,
		     refusal_of(&artifact, "decode", 1));
	assert_adjoins(&artifact, what);
	md_artifact_finish(&artifact);
	builder_finish(&builders[0]);
	builder_finish(&builders[1]);
}

Test(pass_neighbour, which_bindings_must_lie_side_by_side_again)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		check(&cases[i]);
}
