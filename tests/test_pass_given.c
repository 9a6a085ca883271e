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
	bool unknown, early, second, accept; /* what it writes; when; in the second capture alone */
	const char *refused;                 /* of the first graph; "": not refused */
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

static const struct what cases[] = {
    {.name = "nothing there", .offset = A, .refused = ""},
    {.name = "written", .offset = A, .written = ALL_OF_A, .refused = "writes 4096)"},
    {.name = "written in part", .offset = B - 8, .written = {{A, 8}}, .refused = "writes 8184)"},
    {.name = "written beyond", .offset = A, .written = {{B, 8}}, .refused = "writes 8192)"},
    {.name = "written beyond, another one between", .offset = A, .between = A + 8, .written = {{B, 8}}, .refused = ""},
    {.name = "in front of it", .offset = 0, .written = ALL_OF_A, .refused = "writes 4096)"},
    {.name = "in front, another one between", .offset = 0, .between = 8, .written = ALL_OF_A, .refused = ""},
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
};

static void give(struct builder *b, uint64_t pool, const struct what *what, uint64_t sequence)
{
	struct md_trace_given *given = builder_grow(&b->trace.given, &b->trace.given_count, sizeof(*given));

	*given = (struct md_trace_given){what->size ? MD_NONE : 1, pool + what->offset, what->size, sequence};
	if (!what->between)
		return;
	given = builder_grow(&b->trace.given, &b->trace.given_count, sizeof(*given));
	*given = (struct md_trace_given){1, pool + what->between, 0, 1}; /* before there was any graph */
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
		give(b, pool, what, what->early ? made - 1 : ++b->sequence);
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
	md_artifact_finish(&artifact);
	builder_finish(&one);
	builder_finish(&two);
}

Test(pass_given, how_far_both_reach)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		check(&cases[i]);
}
