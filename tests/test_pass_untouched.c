/* SPDX-License-Identifier: Apache-2.0 */
/* Unbound memory that a graph has the address of, that no replay used, and that the engine uses outside of graphs. */
#include <criterion/criterion.h>

#include "analyze/analyze.h"
#include "tests/trace_builder.h"

/*
 * Of one allocation, graph decode has the addresses A, B, OUT and OTHER in parameters of their own; IN_STRUCT in a
 * struct; COPIED in a copy node. Graph other has NEXT. [BOUND, C) is bound, and decode has the addresses BOUND + INSIDE and C;
 * [OUT, OUT + OUT_SIZE) is a declared output; the contents at TABLE hold the address POINTED. No graph has an address in
 * the second allocation, which lies right behind the first.
 */
enum {
	INSIDE = 0x10,
	A = 0x1000,
	POINTED = 0x1800,
	B = 0x2000,
	BOUND = 0x3000,
	C = 0x3800,
	OUT = 0x4000,
	OUT_SIZE = 0x400
};
enum { NEXT = 0x5000, IN_STRUCT = 0x6000, COPIED = 0x7000, OTHER = 0x8000, TABLE = 0x8100, SIZE = 0x10000 };

enum how { NOT_AT_ALL, GIVEN, GIVEN_IN_STRUCT, GIVEN_RANGE, READ_BY_CALL, WRITTEN_BY_CALL };

static const struct what {
	const char *name;
	enum how how;                  /* the engine uses memory of the graph */
	uint64_t at;                   /* in the allocation */
	uint64_t size;                 /* READ_BY_CALL, WRITTEN_BY_CALL, GIVEN_RANGE */
	struct md_trace_range written; /* by replays of decode, in the allocation; size 0: nothing */
	uint64_t content;              /* that a replay of decode needs, 8 bytes; 0: none */
	bool unread;                   /* the memory from A to B is beside contents and not read */
	bool bare;                     /* there are no contents */
	bool early, freed, unknown, broken, second, alone;
	const char *refused; /* decode, with this in the reason; "": not refused */
} cases[] = {
    {.name = "nothing", .refused = ""},
    {.name = "the address",
     .how = GIVEN,
     .at = A,
     .refused = "kernel own is given, outside of graphs, unbound memory of which the graph has the address (allocation "
		"0, byte 4096): no replay has used that memory, but for other inputs the graph may: bind it"},
    {.name = "behind the address", .how = GIVEN, .at = A + 8, .refused = "(allocation 0, byte 4104)"},
    {.name = "the last byte before the next address", .how = GIVEN, .at = B - 1, .refused = "byte 8191)"},
    {.name = "the next address", .how = GIVEN, .at = B, .refused = "byte 8192)"},
    {.name = "in front of all addresses", .how = GIVEN, .at = A - 1, .refused = ""},
    {.name = "the last byte before a binding", .how = GIVEN, .at = BOUND - 1, .refused = "byte 12287)"},
    {.name = "bound", .how = READ_BY_CALL, .at = BOUND, .size = 8, .refused = ""},
    {.name = "from inside a binding to behind it",
     .how = READ_BY_CALL,
     .at = C - 8,
     .size = 16,
     .refused = "byte 14336)"},
    {.name = "from inside a binding to its end", .how = READ_BY_CALL, .at = C - 8, .size = 8, .refused = ""},
    {.name = "across a binding", .how = READ_BY_CALL, .at = BOUND - 8, .size = 16, .refused = "byte 12280)"},
    {.name = "another graph's", .how = GIVEN, .at = NEXT, .refused = ""},
    {.name = "in a struct of the engine's", .how = GIVEN_IN_STRUCT, .at = A, .refused = ""},
    {.name = "any address of a range", .how = GIVEN_RANGE, .at = A, .size = 8, .refused = ""},
    {.name = "in a struct of the graph", .how = GIVEN, .at = IN_STRUCT, .refused = ""},
    {.name = "of a copy node", .how = GIVEN, .at = COPIED, .refused = ""},
    {.name = "an address in contents", .how = GIVEN, .at = POINTED, .refused = "(allocation 0, byte 6144)"},
    {.name = "read by a call",
     .how = READ_BY_CALL,
     .at = A,
     .size = 8,
     .refused = "cuMemcpyDtoH_v2 reads unbound memory of which the graph has the address (allocation 0, byte 4096)"},
    {.name = "written by a call",
     .how = WRITTEN_BY_CALL,
     .at = A,
     .size = 8,
     .refused = "cuMemcpyDtoH_v2 writes unbound memory of which the graph has the address (allocation 0, byte 4096)"},
    {.name = "a call from the front", .how = READ_BY_CALL, .at = A - 8, .size = 16, .refused = "byte 4096)"},
    {.name = "a call that ends at the address", .how = READ_BY_CALL, .at = A - 8, .size = 8, .refused = ""},
    {.name = "an output", .how = READ_BY_CALL, .at = OUT, .size = OUT_SIZE, .refused = ""},
    {.name = "the end of an output", .how = READ_BY_CALL, .at = OUT + OUT_SIZE - 1, .size = 1, .refused = ""},
    {.name = "from inside an output to behind it",
     .how = READ_BY_CALL,
     .at = OUT,
     .size = OUT_SIZE + 8,
     .refused = "byte 17408)"},
    {.name = "from the middle of an output to behind it",
     .how = READ_BY_CALL,
     .at = OUT + 8,
     .size = OUT_SIZE,
     .refused = "byte 17408)"},
    {.name = "behind an output", .how = READ_BY_CALL, .at = OUT + OUT_SIZE, .size = 8, .refused = "byte 17408)"},
    {.name = "a replay wrote it", .how = READ_BY_CALL, .at = A, .size = 8, .written = {A + 7, 1}, .refused = ""},
    {.name = "a replay wrote right behind it",
     .how = READ_BY_CALL,
     .at = A,
     .size = 8,
     .written = {A + 8, 1},
     .refused = "byte 4096)"},
    {.name = "a replay wrote elsewhere behind the address, the call begins there",
     .how = READ_BY_CALL,
     .at = A + 64,
     .size = 8,
     .written = {A, 8},
     .refused = ""},
    {.name = "a replay wrote before the address",
     .how = READ_BY_CALL,
     .at = A,
     .size = 8,
     .written = {A - 8, 8},
     .refused = "byte 4096)"},
    {.name = "a replay needed it", .how = READ_BY_CALL, .at = A, .size = 8, .content = A, .refused = ""},
    {.name = "a replay needed what lies behind it",
     .how = READ_BY_CALL,
     .at = A,
     .size = 8,
     .content = A + 8,
     .refused = "byte 4096)"},
    {.name = "a replay needed what lies in front of the address",
     .how = READ_BY_CALL,
     .at = B,
     .size = 8,
     .content = POINTED + 8,
     .refused = "byte 8192)"},
    {.name = "kept, although no replay read it",
     .how = READ_BY_CALL,
     .at = A,
     .size = 8,
     .content = A + 64,
     .unread = true,
     .refused = "byte 4096)"},
    {.name = "a replay wrote behind the next address, the call begins behind the first",
     .how = READ_BY_CALL,
     .at = POINTED + 64,
     .size = 8,
     .written = {B, 8},
     .refused = "byte 6208)"},
    {.name = "a replay wrote behind an address in contents, the call begins before",
     .how = READ_BY_CALL,
     .at = A + 64,
     .size = 8,
     .written = {POINTED, 8},
     .refused = "byte 4160)"},
    {.name = "as far from the allocation's beginning as an address of the binding from its own",
     .how = READ_BY_CALL,
     .at = INSIDE,
     .size = 8,
     .refused = ""},
    {.name = "in another allocation", .how = READ_BY_CALL, .at = SIZE + A, .size = 8, .refused = ""},
    {.name = "a replay needed contents of another allocation",
     .how = READ_BY_CALL,
     .at = A,
     .size = 8,
     .content = SIZE + A,
     .refused = "byte 4096)"},
    {.name = "before there was the graph", .how = GIVEN, .at = A, .early = true, .refused = ""},
    {.name = "before there was the graph, in the second capture",
     .how = GIVEN,
     .at = A,
     .early = true,
     .second = true,
     .refused = ""},
    {.name = "freed by then", .how = READ_BY_CALL, .at = A, .size = SIZE - A, .freed = true, .refused = ""},
    {.name = "without contents", .how = READ_BY_CALL, .at = A, .size = 8, .bare = true, .refused = "byte 4096)"},
    {.name = "what the graph writes is not known",
     .how = READ_BY_CALL,
     .at = A,
     .size = 8,
     .bare = true,
     .unknown = true,
     .refused = ""},
    {.name = "refused already", .how = GIVEN, .at = A, .broken = true, .refused = "host node at index 12"},
    {.name = "in the second capture", .how = GIVEN, .at = A, .second = true, .refused = "byte 4096)"},
    {.name = "one capture alone", .how = GIVEN, .at = A, .alone = true, .refused = "byte 4096)"},
};

static void add_params(struct builder *b, uint32_t kernel, uint32_t count)
{
	struct md_kernel *k = &b->trace.kernels[kernel];
	for (uint32_t i = 1; i < count; i++) {
		struct md_param *param = builder_grow(&k->params, &k->param_count, sizeof(*param));
		*param = (struct md_param){.offset = 8 * i, .size = 8};
	}
}

static void use(struct builder *b, uint64_t pool, const struct what *what, uint64_t sequence)
{
	if (what->how >= READ_BY_CALL) {
		struct md_trace_handed *handed =
		    builder_grow(&b->trace.handed, &b->trace.handed_count, sizeof(*handed));
		*handed = (struct md_trace_handed){.reader = what->how == WRITTEN_BY_CALL ? MD_ANY_GRAPH : 0,
						   .writer = what->how == READ_BY_CALL ? MD_ANY_GRAPH : 0,
						   .call = builder_text("cuMemcpyDtoH_v2"),
						   .address = pool + what->at,
						   .size = what->size,
						   .sequence = sequence};
	} else if (what->how != NOT_AT_ALL) {
		struct md_trace_given *given = builder_grow(&b->trace.given, &b->trace.given_count, sizeof(*given));
		*given = (struct md_trace_given){.kernel = what->how == GIVEN_RANGE ? MD_NONE
							   : what->how == GIVEN     ? 1
										    : 2,
						 .address = pool + what->at,
						 .size = what->size,
						 .sequence = sequence,
						 .offset = what->how == GIVEN_RANGE ? MD_NONE : 0};
	}
}

static void add_decode(struct builder *b, uint64_t pool, const struct what *what)
{
	builder_graph(b, "decode", 1);
	builder_launch(b, 0,
		       (uint64_t[]){pool + A, pool + B, pool + OUT, pool + OTHER, pool + BOUND + INSIDE, pool + C}, 48);
	builder_launch(b, 2, (uint64_t[]){pool + IN_STRUCT, 0}, 16);
	builder_node(b, MD_NODE_MEMCPY)->memcpy = (struct md_memcpy){.src = pool + BOUND,
								     .dst = pool + COPIED,
								     .src_type = 2,
								     .dst_type = 2,
								     .width = 32,
								     .height = 1,
								     .depth = 1};
	struct md_trace_graph *graph = builder_last(b);
	struct md_trace_output *output = builder_grow(&graph->outputs, &graph->output_count, sizeof(*output));
	*output = (struct md_trace_output){pool + OUT, OUT_SIZE};
	graph->probe = MD_PROBE_CLEAN;
	graph->written_known = !what->unknown;
	graph->refused = what->broken ? builder_text("host node at index 12") : NULL;
	if (what->written.size) {
		struct md_trace_range *range = builder_grow(&graph->written, &graph->written_count, sizeof(*range));
		*range = (struct md_trace_range){pool + what->written.address, what->written.size};
	}
}

static void add_unread(struct builder *b, uint64_t address, uint64_t size, const void *data)
{
	struct md_trace_unread *unread = builder_grow(&b->trace.unread, &b->trace.unread_count, sizeof(*unread));
	*unread = (struct md_trace_unread){b->sequence, address, size, data ? malloc(size) : NULL, false};
	if (data) {
		cr_assert(unread->data, "memory for the test");
		memcpy(unread->data, data, size);
	}
}

static void add_contents(struct builder *b, uint64_t pool, const struct what *what)
{
	if (what->bare)
		return;
	builder_content(b, pool + TABLE, (uint64_t[]){pool + POINTED}, 8);
	if (what->content)
		builder_content(b, pool + what->content, (uint64_t[]){3}, 8);
	add_unread(b, pool, SIZE, NULL);
	add_unread(b, pool + SIZE, SIZE, NULL);
	if (what->unread)
		add_unread(b, pool + A, 8, (uint64_t[]){5});
}

static void build(struct builder *b, unsigned capture, const struct what *what)
{
	uint64_t pool = capture ? 0x710000080000u : 0x700000010000u;
	uint32_t image;
	builder_init(b);
	b->trace.process_id = capture;
	b->sequence = 1000 * capture;
	builder_alloc(b, MD_ALLOC_DEVICE, pool, SIZE);
	builder_alloc(b, MD_ALLOC_DEVICE, pool + SIZE, SIZE);
	builder_bind(b, "bound", pool + BOUND, C - BOUND, MD_BIND_STATE);
	image = builder_image(b, 1);
	add_params(b, builder_kernel(b, image, "k", 8), 6);
	builder_kernel(b, image, "own", 8);
	builder_kernel(b, image, "with_struct", 16);
	add_decode(b, pool, what);
	uint64_t made = builder_last(b)->sequence;
	builder_graph(b, "other", 1);
	builder_launch(b, 1, (uint64_t[]){pool + NEXT}, 8);
	builder_last(b)->probe = MD_PROBE_CLEAN;
	builder_last(b)->written_known = true;
	add_contents(b, pool, what);
	if (what->freed)
		builder_free(b, 0);
	if (!what->second || capture)
		use(b, pool, what, what->early ? made - 1 : ++b->sequence);
}

static void check(const struct what *what)
{
	struct builder builders[2];
	/* else the pass before refuses graphs whose contents a kernel may write */
	const struct md_analyze_options options = {.size = sizeof(options), .accept_unvaried = true};
	struct md_artifact artifact;
	struct md_error err = {0};
	build(&builders[0], 0, what);
	build(&builders[1], 1, what);
	enum md_status status =
	    md_analyze(&builders[0].trace, what->alone ? NULL : &builders[1].trace, &options, &artifact, &err);
	cr_assert_eq(status, MD_OK, "%s: %s", what->name, err.message);
	const char *got = refusal_of(&artifact, "decode", 1);
	if (!*what->refused)
		cr_assert_str_eq(got, "", "%s: got '%s'", what->name, got);
	else
		cr_assert(strstr(got, what->refused), "%s: got '%s'", what->name, got);
	md_artifact_finish(&artifact);
	builder_finish(&builders[0]);
	builder_finish(&builders[1]);
}

Test(pass_untouched, what_the_engine_uses_and_no_replay)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		check(&cases[i]);
}
