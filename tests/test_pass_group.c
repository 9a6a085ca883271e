/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs that hand values on in unbound memory: where they do, and that all of a group are kept, or none. */
#include <criterion/criterion.h>

#include "analyze/analyze.h"
#include "tests/trace_builder.h"

enum { POOL_SIZE = 0x10000, LIST_SIZE = 0x100, H = 0x1000 };

struct range {
	uint64_t offset, size; /* in the pool; size 0: none */
};

static const struct what {
	const char *name;
	struct range handed[2];      /* where the writer is seen to write what the reader reads */
	struct range contents[3];    /* what is known of what it reads */
	bool second;                 /* seen in the second capture alone */
	bool pointer;                /* the contents are an address */
	bool list;                   /* the reader has the address of the memory in other memory alone */
	bool refused;                /* another graph of the group is, by the engine */
	bool alone;                  /* the analysis is not followed by a comparison */
	struct range parts[2];       /* that both have */
	const char *reader, *writer; /* why it is refused; NULL: it is not */
} cases[] = {
    {.name = "all of the contents", .handed = {{H, 16}}, .contents = {{H, 16}}, .parts = {{H, 16}}},
    {.name = "a byte of them", .handed = {{H + 3, 1}}, .contents = {{H, 16}}, .parts = {{H, 16}}},
    {.name = "seen in the second capture",
     .handed = {{H, 16}},
     .contents = {{H, 16}},
     .second = true,
     .parts = {{H, 16}}},
    {.name = "at two places of one", .handed = {{H, 4}, {H + 8, 4}}, .contents = {{H, 16}}, .parts = {{H, 16}}},
    {.name = "of two contents that touch",
     .handed = {{H, 32}},
     .contents = {{H, 16}, {H + 16, 16}},
     .parts = {{H, 16}, {H + 16, 16}}},
    {.name = "of two contents that are apart",
     .handed = {{H, 64}},
     .contents = {{H, 16}, {H + 32, 16}},
     .parts = {{H, 16}, {H + 32, 16}}},
    {.name = "at two places, the later first",
     .handed = {{H + 32, 16}, {H, 16}},
     .contents = {{H, 16}, {H + 32, 16}},
     .parts = {{H, 16}, {H + 32, 16}}},
    {.name = "of one of two contents", .handed = {{H, 16}}, .contents = {{H, 16}, {H + 32, 16}}, .parts = {{H, 16}}},
    {.name = "beside the contents",
     .handed = {{H + 16, 16}},
     .contents = {{H, 16}},
     .reader = "reads unbound memory that graph writer/1 writes, and what it held is not known: the engine must bind",
     .writer =
	 "is in one group with graph reader/1 (they pass values through unbound memory), which is refused: reads"},
    {.name = "of no contents",
     .handed = {{H, 16}},
     .reader = "reads unbound memory that graph writer/1 writes, and what it held is not known: the engine must bind",
     .writer = "is in one group with graph reader/1"},
    {.name = "of addresses",
     .handed = {{H, 16}},
     .contents = {{H, 16}},
     .pointer = true,
     .reader = "reads addresses that graph writer/1 leaves in unbound memory: the engine must bind that memory",
     .writer = "is in one group with graph reader/1"},
    {.name = "reached by an address in memory",
     .handed = {{H, 16}},
     .contents = {{H, 16}},
     .list = true,
     .reader = "reaches unbound memory in which graphs pass values (allocation 0) only through addresses in memory",
     .writer = "is in one group with graph reader/1"},
    {.name = "with one that is refused",
     .handed = {{H, 16}},
     .contents = {{H, 16}},
     .refused = true,
     .reader = "the engine knows better",
     .writer = "is in one group with graph reader/1 (they pass values through unbound memory), which is refused: "},
    {.name = "that nobody compares",
     .handed = {{H, 16}},
     .contents = {{H, 16}},
     .alone = true,
     .reader = "reads unbound memory, and graph writer/1 writes it: the engine must bind it",
     .writer = "writes unbound memory, and graph reader/1 reads it: the engine must bind it"},
};

static uint64_t pool_of(unsigned capture)
{
	return capture ? 0x710000080000u : 0x700000010000u;
}

static void hand(struct builder *b, uint64_t address, uint64_t size)
{
	struct md_trace_handed *handed = builder_grow(&b->trace.handed, &b->trace.handed_count, sizeof(*handed));
	*handed = (struct md_trace_handed){.reader = 2, .writer = 1, .address = address, .size = size};
	handed->sequence = ++b->sequence;
}

static void hand_on(struct builder *b, const struct what *what, unsigned capture)
{
	if (what->second && !capture)
		return;
	hand(b, 0, 0);
	for (int i = 0; i < 2 && what->handed[i].size; i++)
		hand(b, pool_of(capture) + what->handed[i].offset, what->handed[i].size);
}

static void add_contents(struct builder *b, const struct what *what, unsigned capture)
{
	uint64_t pool = pool_of(capture), list = pool + 0x100000, address = pool + H;
	uint64_t words[2] = {what->pointer ? pool + 0x80 : 3, 4};
	for (int i = 0; i < 3 && what->contents[i].size; i++)
		builder_content(b, pool + what->contents[i].offset, words, what->contents[i].size);
	if (what->list)
		builder_content(b, list, &address, sizeof(address));
}

/* "writer", "reader", and "other", which has nothing to do with them. */
static void build(struct builder *b, const struct what *what, unsigned capture)
{
	uint64_t pool = pool_of(capture), list = pool + 0x100000, own = pool + 0x200000;
	builder_init(b);
	b->trace.process_id = capture;
	builder_alloc(b, MD_ALLOC_DEVICE, pool, POOL_SIZE);
	builder_alloc(b, MD_ALLOC_DEVICE, list, LIST_SIZE);
	builder_alloc(b, MD_ALLOC_DEVICE, own, LIST_SIZE);
	builder_kernel(b, builder_image(b, 1), "k", 8);
	builder_graph(b, "writer", 1);
	builder_launch(b, 0, (uint64_t[]){pool + H}, 8);
	builder_graph(b, "reader", 1);
	builder_launch(b, 0, (uint64_t[]){what->list ? list : pool + H}, 8);
	if (what->refused)
		builder_last(b)->refused = builder_text("the engine knows better");
	builder_graph(b, "other", 1);
	builder_launch(b, 0, &own, 8);
	add_contents(b, what, capture);
	hand_on(b, what, capture);
}

static void assert_parts(const struct what *what, const struct md_artifact *artifact, const char *label, bool reads)
{
	const struct md_artifact_graph *graph = find_graph(artifact, label, 1);
	uint32_t count = what->parts[1].size ? 2 : 1;
	cr_assert(graph, "%s: %s is refused: %s", what->name, label, refusal_of(artifact, label, 1));
	cr_assert_neq(graph->group, 0, "%s: %s has a group", what->name, label);
	cr_assert_eq(graph->handed_count, count, "%s: %s has %u parts", what->name, label, graph->handed_count);
	for (uint32_t i = 0; i < count; i++) {
		const struct md_artifact_handed *part = &graph->handed[i];
		uint64_t first = graph->handed[0].offset - what->parts[0].offset;
		cr_assert(part->offset - first == what->parts[i].offset && part->size == what->parts[i].size,
			  "%s: %s, part %u", what->name, label, i);
		cr_assert(part->reads == reads && part->writes != reads, "%s: %s, what it does", what->name, label);
	}
}

static void check(const struct what *what)
{
	const struct md_analyze_options options = {.size = sizeof(options), .keep_doubtful = !what->alone};
	struct md_artifact artifact;
	struct md_error err = {0};
	struct builder one, two;
	build(&one, what, 0);
	build(&two, what, 1);
	cr_assert(md_analyze(&one.trace, &two.trace, &options, &artifact, &err) == MD_OK, "%s: %s", what->name,
		  err.message);
	if (what->reader) {
		cr_assert(strstr(refusal_of(&artifact, "reader", 1), what->reader), "%s: the reader's '%s'", what->name,
			  refusal_of(&artifact, "reader", 1));
		cr_assert(strstr(refusal_of(&artifact, "writer", 1), what->writer), "%s: the writer's '%s'", what->name,
			  refusal_of(&artifact, "writer", 1));
	} else {
		assert_parts(what, &artifact, "reader", true);
		assert_parts(what, &artifact, "writer", false);
		cr_assert_eq(find_graph(&artifact, "reader", 1)->group, find_graph(&artifact, "writer", 1)->group,
			     "%s: one group", what->name);
	}
	const struct md_artifact_graph *other = find_graph(&artifact, "other", 1);
	cr_assert(other && !other->group && !other->handed_count, "%s: the other graph stays by itself: '%s'",
		  what->name, refusal_of(&artifact, "other", 1));
	md_artifact_finish(&artifact);
	builder_finish(&one);
	builder_finish(&two);
}

Test(pass_group, where_values_are_handed_on)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		check(&cases[i]);
}
