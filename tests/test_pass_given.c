/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels outside of graphs are given of memory that graphs use: how far each of the two reaches, and what
 * follows. */
#include <criterion/criterion.h>

#include "analyze/analyze.h"
#include "tests/trace_builder.h"

/* A graph has the addresses A and B of a pool, and another graph has C; [BOUND, C) is bound; D is an output of the
 * first. */
enum { SIZE = 0x10000, A = 0x1000, B = 0x2000, BOUND = 0x3000, C = 0x4000, D = 0x5000, D_SIZE = 0x800, END = 0x6000 };

struct what {
	const char *name;
	uint64_t offset, size;            /* what a kernel is given */
	struct md_trace_range written[2]; /* by the first graph, in the pool; size 0: none */
	uint64_t content, between;        /* that is kept, 0: none; another address that a kernel is given, 0: none */
	bool stale;                       /* that other one is an old address in scratch memory */
	bool unknown, early, second, accept; /* what it writes; when; in the second capture alone */
	struct md_trace_range scratch[3];    /* that only graphs use, as the engine has said; size 0: none */
	enum { PLAIN, IN_STRUCT } param;     /* of what a kernel is given */
	enum { BEFORE, AFTER, ENDED, OF_ANOTHER, UNSAID } said; /* when, as the launch was made */
	const char *refused;                                    /* of the first graph; "": not refused */
};

static const char *const writes =
    "kernel own, used outside of graphs, is given memory that the graph writes (allocation 0, byte ";
static const char *const reads =
    "kernel own, used outside of graphs, is given memory that the graph reads (allocation 0, byte ";
#define ALL_OF_A                                                                                                       \
	{                                                                                                              \
		{A, B - A},                                                                                            \
		{                                                                                                      \
			0, 0                                                                                           \
		}                                                                                                      \
	}

#define SCRATCH_A .scratch = {{A, B - A}}, .param = IN_STRUCT

static const struct what cases[] = {
    {.name = "nothing there", .offset = A, .refused = ""},
    {.name = "written", .offset = A, .written = ALL_OF_A, .refused = "writes 4096)"},
    {.name = "written in part", .offset = B - 8, .written = {{A, 8}}, .refused = "writes 8184)"},
    {.name = "written beyond", .offset = A, .written = {{B, 8}}, .refused = "writes 8192)"},
    {.name = "written beyond, another one between", .offset = A, .between = A + 8, .written = {{B, 8}}, .refused = ""},
    {.name = "in front of it", .offset = 0, .written = ALL_OF_A, .refused = "writes 4096)"},
    {.name = "in front, another one between", .offset = 0, .between = 8, .written = ALL_OF_A, .refused = ""},
    {.name = "in front, an old address between",
     .offset = 0,
     .between = 8,
     .stale = true,
     .written = ALL_OF_A,
     .refused = "writes 4096)"},
    {.name = "behind, in another graph's", .offset = C, .written = ALL_OF_A, .refused = ""},
    {.name = "bound", .offset = BOUND, .written = {{A, C - A}}, .refused = ""},
    {.name = "in front of a binding", .offset = BOUND - 8, .written = {{C, 8}}, .refused = ""},
    {.name = "a declared output", .offset = D + 8, .written = {{D, D_SIZE}}, .refused = ""},
    {.name = "behind a declared output", .offset = D + D_SIZE, .written = {{D, D_SIZE}}, .refused = ""},
    {.name = "behind it, written", .offset = D + D_SIZE, .written = {{D, D_SIZE + 8}}, .refused = "writes 22528)"},
    {.name = "a declared output that is kept", .offset = D, .content = D + 64, .refused = "reads 20480)"},
    {.name = "behind an output, kept",
     .offset = D,
     .content = D + D_SIZE + 64,
     .written = {{D, D_SIZE}},
     .refused = ""},
    {.name = "kept", .offset = A, .content = A + 64, .refused = "reads 4096)"},
    {.name = "kept, and accepted", .offset = A, .content = A + 64, .accept = true, .refused = ""},
    {.name = "written, and accepted", .offset = A, .written = ALL_OF_A, .accept = true, .refused = "writes 4096)"},
    {.name = "kept elsewhere", .offset = A, .between = B, .content = B + 64, .refused = ""},
    {.name = "not known what it writes", .offset = A, .unknown = true, .refused = "writes 4096)"},
    {.name = "before the graph was made", .offset = A, .written = ALL_OF_A, .early = true, .refused = ""},
    {.name = "in the second capture", .offset = A, .written = ALL_OF_A, .second = true, .refused = "writes 4096)"},
    {.name = "all of it",
     .offset = 0,
     .size = SIZE,
     .written = {{D + D_SIZE, 8}},
     .refused = "a kernel, used outside of graphs"},
    {.name = "a pointer", .offset = A, .written = ALL_OF_A, .refused = "in parameter 0 (bytes 0..7): bind it"},
    {.name = "in a struct",
     .offset = A,
     .written = ALL_OF_A,
     .param = IN_STRUCT,
     .refused = "(allocation 0, byte 4096) in parameter 0, a struct (bytes 16..23): bind it, or declare it with "
		"medusa_graph_output; if nobody has set these bytes"},
    {.name = "in scratch memory", .offset = A, .written = ALL_OF_A, SCRATCH_A, .refused = ""},
    {.name = "in scratch memory, in the second capture",
     .offset = A,
     .written = ALL_OF_A,
     SCRATCH_A,
     .second = true,
     .refused = ""},
    {.name = "in scratch memory, a pointer",
     .offset = A,
     .written = ALL_OF_A,
     .scratch = {{A, B - A}},
     .refused = "in parameter 0 (bytes 0..7): bind it, or declare it with medusa_graph_output; medusa_graph_scratch "
		"does not cover"},
    {.name = "in scratch memory, said later",
     .offset = A,
     .written = ALL_OF_A,
     SCRATCH_A,
     .said = AFTER,
     .refused = "writes 4096)"},
    {.name = "in scratch memory that ended",
     .offset = A,
     .written = ALL_OF_A,
     SCRATCH_A,
     .said = ENDED,
     .refused = "writes 4096)"},
    {.name = "in scratch memory of what was there before",
     .offset = A,
     .written = ALL_OF_A,
     SCRATCH_A,
     .said = OF_ANOTHER,
     .refused = "writes 4096)"},
    {.name = "in scratch memory, but not when it was launched",
     .offset = A,
     .written = ALL_OF_A,
     SCRATCH_A,
     .said = UNSAID,
     .refused = "writes 4096)"},
    {.name = "in scratch memory, written behind it",
     .offset = A,
     .written = {{B, 8}},
     SCRATCH_A,
     .refused = "writes 8192)"},
    {.name = "in scratch memory of two parts",
     .offset = A,
     .written = {{A, B - A + 8}},
     .scratch = {{B, 8}, {A, 0x800}, {A + 0x800, 0x800}},
     .param = IN_STRUCT,
     .refused = ""},
    {.name = "in scratch memory with a part between",
     .offset = A,
     .written = {{A, B - A}},
     .scratch = {{A, 0x800}, {A + 0x808, 0x7f8}},
     .param = IN_STRUCT,
     .refused = "writes 4096)"},
    {.name = "in scratch memory with an output behind it",
     .offset = C,
     .written = {{C, 8}, {D, D_SIZE}},
     .scratch = {{C, D - C}},
     .param = IN_STRUCT,
     .refused = ""},
    {.name = "in scratch memory with more than an output behind it",
     .offset = C,
     .written = {{C, 8}, {D, D_SIZE + 8}},
     .scratch = {{C, D - C}},
     .param = IN_STRUCT,
     .refused = "writes 20480)"},
    {.name = "in scratch memory, kept", .offset = A, .content = A + 64, SCRATCH_A, .refused = ""},
    {.name = "in scratch memory, kept behind it", .offset = A, .content = B + 64, SCRATCH_A, .refused = "reads 8192)"},
    {.name = "in scratch memory that is an output, kept",
     .offset = D,
     .content = D + 64,
     .scratch = {{D, D_SIZE}},
     .param = IN_STRUCT,
     .refused = "reads 20480)"},
    {.name = "in scratch memory, beside what is none",
     .offset = A,
     .between = A + 8,
     .written = ALL_OF_A,
     SCRATCH_A,
     .refused = ""},
};

static void state(struct builder *b, uint64_t address, uint64_t size, uint64_t sequence)
{
	struct md_trace_scratch *said = builder_grow(&b->trace.scratch, &b->trace.scratch_count, sizeof(*said));
	*said = (struct md_trace_scratch){address, size, sequence};
}

static void give(struct builder *b, uint64_t pool, const struct what *what, uint64_t sequence)
{
	struct md_trace_given *given = builder_grow(&b->trace.given, &b->trace.given_count, sizeof(*given));
	*given = (struct md_trace_given){.kernel = what->size ? MD_NONE : 1 + (uint32_t)what->param,
					 .address = pool + what->offset,
					 .size = what->size,
					 .sequence = sequence,
					 .offset = what->size    ? MD_NONE
						   : what->param ? 16
								 : 0,
					 .scratch = what->scratch[0].size && what->said != UNSAID};
	if (!what->between)
		return;
	given = builder_grow(&b->trace.given, &b->trace.given_count, sizeof(*given));
	*given = (struct md_trace_given){.kernel = what->stale ? 2 : 1,
					 .address = pool + what->between,
					 .sequence = 1, /* before there was any graph */
					 .offset = what->stale ? 16 : MD_NONE,
					 .scratch = what->stale};
}

static void give_and_state(struct builder *b, uint64_t pool, const struct what *what, uint64_t sequence)
{
	for (int i = 0; i < 3 && what->scratch[i].size; i++)
		state(b, pool + what->scratch[i].address, what->scratch[i].size,
		      what->said == AFTER        ? sequence + 1
		      : what->said == OF_ANOTHER ? 0
						 : sequence - 1);
	if (what->said == ENDED)
		state(b, 0, 0, sequence - 1);
	give(b, pool, what, sequence);
}

static void graph(struct builder *b, const char *label, uint64_t pool, uint64_t one, uint64_t two, uint64_t three)
{
	builder_graph(b, label, 1);
	builder_launch(b, 0, (uint64_t[]){pool + one, pool + two, pool + three}, 24);
	builder_last(b)->probe = MD_PROBE_CLEAN;
	builder_last(b)->written_known = true;
}

static void build(struct builder *b, unsigned capture, const struct what *what)
{
	uint64_t pool = capture ? 0x710000080000u : 0x700000010000u, data = 3;
	uint32_t image;
	builder_init(b);
	b->trace.process_id = capture;
	builder_alloc(b, MD_ALLOC_DEVICE, pool, SIZE);
	builder_bind(b, "bound", pool + BOUND, C - BOUND, MD_BIND_STATE);
	image = builder_image(b, 1);
	builder_kernel(b, image, "k", 24);
	builder_kernel(b, image, "own", 8);
	builder_kernel(b, image, "own", 32);
	graph(b, "decode", pool, A, B, D);
	struct md_trace_graph *first = builder_last(b);
	struct md_trace_output *output = builder_grow(&first->outputs, &first->output_count, sizeof(*output));
	*output = (struct md_trace_output){pool + D, D_SIZE};
	for (int i = 0; i < 2 && what->written[i].size; i++) {
		struct md_trace_range *range = builder_grow(&first->written, &first->written_count, sizeof(*range));
		*range = (struct md_trace_range){pool + what->written[i].address, what->written[i].size};
	}
	first->written_known = !what->unknown;
	uint64_t made = first->sequence;
	graph(b, "other", pool, C, END, C);
	if (what->content) {
		struct md_trace_unread *rest = builder_grow(&b->trace.unread, &b->trace.unread_count, sizeof(*rest));
		builder_content(b, pool + what->content, &data, 8);
		*rest = (struct md_trace_unread){b->sequence, pool, SIZE, NULL, false};
	}
	if (!what->second || capture)
		give_and_state(b, pool, what, what->early ? made - 1 : (b->sequence += 2));
}

static void check(const struct what *what)
{
	const struct md_analyze_options options = {.size = sizeof(options), .accept_unvaried = what->accept};
	struct md_artifact artifact;
	struct builder one, two;
	struct md_error err;
	char wanted[256];
	build(&one, 0, what);
	build(&two, 1, what);
	cr_assert(md_analyze(&one.trace, &two.trace, &options, &artifact, &err) == MD_OK, "%s: %s", what->name,
		  err.message);
	const char *got = refusal_of(&artifact, "decode", 1);
	snprintf(wanted, sizeof(wanted), "%s",
		 !strncmp(what->refused, "writes ", 7)  ? writes
		 : !strncmp(what->refused, "reads ", 6) ? reads
							: what->refused);
	if (!*what->refused)
		cr_assert_str_eq(got, "", "%s", what->name);
	else
		cr_assert(strstr(got, wanted) &&
			      (!strchr(what->refused, ')') || strstr(got, strchr(what->refused, ' ') + 1)),
			  "%s: got '%s'", what->name, got);
	if (!*what->refused)
		cr_assert_eq(artifact.provenance.scratch_addresses, what->scratch[0].size != 0, "%s", what->name);
	md_artifact_finish(&artifact);
	builder_finish(&one);
	builder_finish(&two);
}

Test(pass_given, how_far_both_reach)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		check(&cases[i]);
}
