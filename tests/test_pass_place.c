/* SPDX-License-Identifier: Apache-2.0 */
/* Bindings and private memory: each pointer ends up relative to what a restore will know. */
#include <criterion/criterion.h>

#include "analyze/analyze.h"
#include "tests/trace_builder.h"

#define SEGMENT1 0x700000000000u
#define SEGMENT2 0x710000400000u
#define SIZE 0x100000u

struct setup {
	struct builder b[2];
	struct md_artifact artifact;
};

static uint64_t base_of(unsigned capture)
{
	return capture ? SEGMENT2 : SEGMENT1;
}

/* One segment; the caller binds, then launches. */
static void start(struct builder *b, unsigned capture)
{
	builder_init(b);
	builder_alloc(b, MD_ALLOC_DEVICE, base_of(capture), SIZE);
	builder_kernel(b, builder_image(b, 1), "k", 8);
}

static void launch(struct builder *b, uint64_t word)
{
	if (!b->trace.graph_count)
		builder_graph(b, "decode", 1);
	builder_launch(b, 0, &word, 8);
}

static void analyze(struct setup *setup)
{
	struct md_error err;
	cr_assert(md_analyze(&setup->b[0].trace, &setup->b[1].trace, NULL, &setup->artifact, &err) == MD_OK, "%s",
		  err.message);
	cr_assert(md_artifact_check(&setup->artifact, &err) == MD_OK, "a valid artifact: %s", err.message);
}

static void finish(struct setup *setup)
{
	md_artifact_finish(&setup->artifact);
	builder_finish(&setup->b[0]);
	builder_finish(&setup->b[1]);
}

/* Pointer number `index` of the only graph leads to binding `name` (NULL: private memory) at offset. */
static void assert_leads_to(const struct md_artifact *artifact, uint32_t index, const char *name, int64_t offset)
{
	const struct md_artifact_graph *graph = find_graph(artifact, "decode", 1);
	const struct md_artifact_alloc *alloc;
	cr_assert(graph, "refused: %s", refusal_of(artifact, "decode", 1));
	cr_assert(index < graph->pointer_count, "%u pointers", graph->pointer_count);
	alloc = &artifact->allocs[graph->pointers[index].alloc];
	cr_assert((alloc->class == MD_CLASS_BOUND) == (name != NULL), "pointer %u is %sbound", index,
		  name ? "not " : "");
	if (name)
		cr_assert(strcmp(artifact->bindings[alloc->binding].name, name) == 0, "pointer %u leads to %s, not %s",
			  index, artifact->bindings[alloc->binding].name, name);
	cr_assert(graph->pointers[index].offset == offset, "pointer %u at %lld, not %lld", index,
		  (long long)graph->pointers[index].offset, (long long)offset);
}

static void assert_refused(const struct md_artifact *artifact, const char *message)
{
	cr_assert(strstr(refusal_of(artifact, "decode", 1), message), "'%s' says '%s'",
		  refusal_of(artifact, "decode", 1), message);
}

Test(pass_place, bound_sub_ranges_and_the_private_rest)
{
	struct setup s;
	for (unsigned c = 0; c < 2; c++) {
		uint64_t base = base_of(c);
		start(&s.b[c], c);
		builder_bind(&s.b[c], "weights", base + 0x1000, 0x4000, MD_BIND_CONSTANT);
		builder_bind(&s.b[c], "weights.layer1", base + 0x2000, 0x800, MD_BIND_CONSTANT);
		launch(&s.b[c], base + 0x1010);
		launch(&s.b[c], base + 0x2010);
		launch(&s.b[c], base + 0x2810);
		launch(&s.b[c], base + 0x8000);
		launch(&s.b[c], base + SIZE);
		/* bound after the launches: holds for them as well */
		builder_bind(&s.b[c], "tail", base + SIZE - 0x100, 0x100, MD_BIND_INPUT);
		builder_bind(&s.b[c], "unused", base + 0x9000, 0x100, MD_BIND_CONSTANT);
		builder_bind(&s.b[c], "out", base + 0xa000, 0x100, MD_BIND_OUTPUT);
	}
	analyze(&s);
	assert_leads_to(&s.artifact, 0, "weights", 0x10);
	assert_leads_to(&s.artifact, 1, "weights.layer1", 0x10);
	assert_leads_to(&s.artifact, 2, "weights", 0x1810);
	assert_leads_to(&s.artifact, 3, NULL, 0x8000);
	assert_leads_to(&s.artifact, 4, "tail", 0x100);
	cr_assert(s.artifact.binding_count == 4, "unused weights are left out, an output is not: %u",
		  s.artifact.binding_count);
	cr_assert(s.artifact.arena_size == SIZE, "the private part keeps its allocation's size");
	finish(&s);
}

/* Two bindings that changed places in their segment: the binding counts, not the segment's offset. */
Test(pass_place, a_binding_moves_by_itself)
{
	struct setup s;
	for (unsigned c = 0; c < 2; c++) {
		start(&s.b[c], c);
		builder_bind(&s.b[c], "kv", base_of(c) + (c ? 0x9000 : 0x1000), 0x800, MD_BIND_STATE);
		launch(&s.b[c], base_of(c) + (c ? 0x9000 : 0x1000) + 0x20);
	}
	analyze(&s);
	assert_leads_to(&s.artifact, 0, "kv", 0x20);
	finish(&s);
}

Test(pass_place, the_same_place_under_another_name_is_refused)
{
	struct setup s;
	for (unsigned c = 0; c < 2; c++) {
		start(&s.b[c], c);
		builder_bind(&s.b[c], c ? "b" : "a", base_of(c) + 0x1000, 0x800, MD_BIND_STATE);
		launch(&s.b[c], base_of(c) + 0x1020);
	}
	analyze(&s);
	assert_refused(&s.artifact, "binding a+32 in the first capture and into binding b+32");
	finish(&s);
}

Test(pass_place, another_size_is_another_binding)
{
	struct setup s;
	for (unsigned c = 0; c < 2; c++) {
		start(&s.b[c], c);
		builder_bind(&s.b[c], "kv", base_of(c) + 0x1000, c ? 0x900 : 0x800, MD_BIND_STATE);
		launch(&s.b[c], base_of(c) + 0x1020);
	}
	analyze(&s);
	assert_refused(&s.artifact, "binding kv+32");
	finish(&s);
}

Test(pass_place, memory_that_was_bound_elsewhere_later_is_refused)
{
	struct setup s;
	for (unsigned c = 0; c < 2; c++) {
		start(&s.b[c], c);
		builder_bind(&s.b[c], "kv", base_of(c) + 0x1000, 0x800, MD_BIND_STATE);
		launch(&s.b[c], base_of(c) + 0x1020);
		builder_bind(&s.b[c], "kv", base_of(c) + 0x4000, 0x800, MD_BIND_STATE);
	}
	analyze(&s);
	assert_refused(&s.artifact, "binding kv, which was bound elsewhere afterwards");
	finish(&s);
}

Test(pass_place, bound_memory_that_nobody_recorded)
{
	struct setup s;
	for (unsigned c = 0; c < 2; c++) {
		uint64_t foreign = c ? 0x660000000000 : 0x650000001000;
		start(&s.b[c], c);
		launch(&s.b[c], foreign + 8);
		builder_bind(&s.b[c], "foreign", foreign, 0x800, MD_BIND_STATE);
	}
	analyze(&s);
	assert_leads_to(&s.artifact, 0, "foreign", 8);
	finish(&s);
}

static const struct family_case {
	enum md_alloc_family family;
	const char *message; /* NULL: can be private */
} families[] = {
    {MD_ALLOC_DEVICE, NULL},
    {MD_ALLOC_PITCH, NULL},
    {MD_ALLOC_ASYNC, NULL},
    {MD_ALLOC_VMM, NULL},
    {MD_ALLOC_MANAGED, "points to managed memory"},
    {MD_ALLOC_HOST, "points to host memory"},
    {MD_ALLOC_GLOBAL, "points to a module global"},
};

Test(pass_place, host_memory_and_globals_are_refused)
{
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
		struct setup s;
		for (unsigned c = 0; c < 2; c++) {
			uint64_t address = c ? 0x660000000000 : 0x650000001000;
			start(&s.b[c], c);
			builder_alloc(&s.b[c], families[i].family, address, 0x300);
			launch(&s.b[c], address + 8);
		}
		analyze(&s);
		if (families[i].message) {
			assert_refused(&s.artifact, families[i].message);
			assert_refused(&s.artifact, "node 0: byte 0");
		} else {
			assert_leads_to(&s.artifact, 0, NULL, 8);
			cr_assert(s.artifact.arena_size == 0x400, "rounded up to 512: %llu",
				  (unsigned long long)s.artifact.arena_size);
		}
		finish(&s);
	}
}

/* A tensor may lie across mappings, with a pointer into the first alone: they stay neighbours. */
Test(pass_place, mappings_side_by_side_stay_neighbours)
{
	struct setup s;
	for (unsigned c = 0; c < 2; c++) {
		uint64_t range = c ? 0x660000000000 : 0x650000200000;
		start(&s.b[c], c);
		for (unsigned i = 0; i < 4; i++)
			builder_alloc(&s.b[c], MD_ALLOC_VMM, range + i * 0x200000, 0x200000);
		builder_bind(&s.b[c], "kv", range, 0x200000, MD_BIND_STATE);
		launch(&s.b[c], range + 0x200000 + 64);
		launch(&s.b[c], range + 0x600000 + 64);
		launch(&s.b[c], range + 32);
	}
	analyze(&s);
	assert_leads_to(&s.artifact, 0, NULL, 64);
	assert_leads_to(&s.artifact, 1, NULL, 0x400000 + 64);
	assert_leads_to(&s.artifact, 2, "kv", 32);
	cr_assert(s.artifact.arena_size == 0x600000, "three mappings, the bound one not among them: %#llx",
		  (unsigned long long)s.artifact.arena_size);
	finish(&s);
}

/* A binding across two mappings is one binding. */
Test(pass_place, a_binding_may_span_mappings)
{
	struct setup s;
	for (unsigned c = 0; c < 2; c++) {
		uint64_t range = c ? 0x660000000000 : 0x650000200000;
		start(&s.b[c], c);
		for (unsigned i = 0; i < 2; i++)
			builder_alloc(&s.b[c], MD_ALLOC_VMM, range + i * 0x200000, 0x200000);
		builder_bind(&s.b[c], "kv", range + 0x1000, 0x300000, MD_BIND_STATE);
		launch(&s.b[c], range + 0x200000);
		launch(&s.b[c], range + 0x301000);
	}
	analyze(&s);
	assert_leads_to(&s.artifact, 0, "kv", 0x1ff000);
	assert_leads_to(&s.artifact, 1, NULL, 0x301000);
	finish(&s);
}
