/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a graph whose memory was given away between its launch and its test. */
#include <criterion/criterion.h>

#include "analyze/analyze.h"
#include "tests/trace_builder.h"

#define SIZE 0x1000u

enum next { NOBODY, SOMEBODY, BOUND, CONTENTS, SHARED };

static const struct {
	const char *name;
	enum next next;
	bool tested;
	const char *message; /* "": not refused */
} cases[] = {
    {"nobody has it", NOBODY, true, ""},
    {"whatever is there", SOMEBODY, true, ""},
    {"bound", BOUND, true, "its addresses were allocation 1's then, which is bound"},
    {"contents", CONTENTS, true, "its addresses were allocation 1's then, whose contents it needs"},
    {"shared", SHARED, true, "its addresses were allocation 1's then, which a restore does not own"},
    {"not tested", CONTENTS, false, ""},
};

static void build(struct builder *b, unsigned capture, enum next next, bool tested)
{
	uint64_t address = capture ? 0x710000080000u : 0x700000010000u, data = 3;
	uint32_t old, kernel;
	builder_init(b);
	old = builder_alloc(b, MD_ALLOC_DEVICE, address, SIZE);
	kernel = builder_kernel(b, builder_image(b, 1), "k", 8);
	builder_graph(b, "decode", 1);
	builder_launch(b, kernel, &address, 8);
	builder_free(b, old);
	if (next != NOBODY)
		builder_alloc(b, next == SHARED ? MD_ALLOC_SHARED : MD_ALLOC_DEVICE, address, SIZE);
	if (next == BOUND)
		builder_bind(b, "another", address, SIZE, MD_BIND_STATE);
	if (next == CONTENTS)
		builder_content(b, address + 64, &data, 8);
	if (tested) {
		builder_last(b)->probe = MD_PROBE_CLEAN;
		builder_last(b)->probe_sequence = ++b->sequence;
	}
}

Test(pass_admit, memory_that_was_given_away)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct builder one, two;
		struct md_artifact artifact;
		struct md_error err;
		build(&one, 0, cases[i].next, cases[i].tested);
		build(&two, 1, cases[i].next, cases[i].tested);
		cr_assert(md_analyze(&one.trace, &two.trace, NULL, &artifact, &err) == MD_OK, "%s: %s", cases[i].name,
			  err.message);
		if (*cases[i].message)
			cr_assert(strstr(refusal_of(&artifact, "decode", 1), cases[i].message), "%s: got '%s'",
				  cases[i].name, refusal_of(&artifact, "decode", 1));
		else
			cr_assert_str_eq(refusal_of(&artifact, "decode", 1), "", "%s", cases[i].name);
		md_artifact_finish(&artifact);
		builder_finish(&one);
		builder_finish(&two);
	}
}
