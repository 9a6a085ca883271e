/* SPDX-License-Identifier: Apache-2.0 */
/* What lies beside contents that graphs read: how far it is kept as a table,
 * and when its graph is refused. */
#include <criterion/criterion.h>

#include "analyze/analyze.h"
#include "tests/trace_builder.h"

/* A graph has the addresses A and B of a pool. What it reads is 8 bytes at
 * READ; the rest is what the cases say. */
enum {
	SIZE = 0x4000,
	A = 0x1000,
	READ = A + 64,
	B = 0x2000,
	MIDDLE = A + 0x800,
	READ_SIZE = 8,
	ADDRESS_AT = A + 0x100
};

struct range {
	uint64_t offset, size; /* in the pool; size 0: none */
};

static const struct what {
	const char *name;
	struct range filled; /* with other bytes than 0 */
	struct range bound, written;
	uint64_t saved; /* bytes of the pool that are saved from its begin on; 0: all
			   of it */
	bool unread;    /* no graph reads anything of it */
	bool copied;    /* by the engine, what is filled */
	bool differs;   /* in the second capture */
	bool once;      /* nothing is saved in the second capture */
	bool address;   /* the filled bytes hold one, of the pool itself */
	bool unknown, untested;
	uint64_t kept[3], left[3]; /* bytes that are, and are not, in the artifact; 0: none */
	struct md_untouched untouched;
	const char *refused; /* NULL: it is not */
} cases[] = {
    {.name = "zeros", .kept = {READ}, .left = {A, READ + READ_SIZE}, .untouched = {SIZE - B, 1}},
    {.name = "all of a table", .filled = {A, B - A}, .kept = {A, READ + READ_SIZE, B - 1}, .untouched = {SIZE - B, 1}},
    {.name = "up to the next address",
     .filled = {0, SIZE},
     .kept = {A, B - 1},
     .left = {A - 1, B},
     .untouched = {SIZE - B, 1}},
    {.name = "up to a binding",
     .filled = {A, B - A},
     .bound = {MIDDLE, 0x100},
     .kept = {A, MIDDLE - 1},
     .left = {MIDDLE, MIDDLE + 0x100, B - 1},
     .untouched = {SIZE - B, 1}},
    {.name = "up to what a graph writes",
     .filled = {A, B - A},
     .written = {MIDDLE, 8},
     .kept = {A, MIDDLE - 1},
     .left = {MIDDLE, MIDDLE + 8, B - 1},
     .untouched = {SIZE - B, 1}},
    {.name = "zeros at its end",
     .filled = {A, 0x200},
     .kept = {A, A + 0x1ff},
     .left = {A + 0x200, B - 1},
     .untouched = {SIZE - B, 1}},
    {.name = "an address in it", .filled = {A, B - A}, .address = true, .kept = {A, B - 1}, .untouched = {SIZE - B, 1}},
    {.name = "not saved to its end",
     .filled = {A, 0x200},
     .saved = MIDDLE,
     .refused = "unbound memory: it is too large to be saved; no recorded input makes "
		"the graph read bytes 4168 to "
		"8191 of allocation 0 (16384 bytes), but another input may: bind it"},
    {.name = "saved to its end", .filled = {A, 0x200}, .saved = B, .kept = {A, A + 0x1ff}, .untouched = {SIZE - B, 1}},
    {.name = "another one in the second capture",
     .filled = {A, B - A},
     .differs = true,
     .refused = "differs between the captures"},
    {.name = "not known what the graph writes",
     .unknown = true,
     .refused = "what it writes beside contents in unbound memory is not known"},
    {.name = "not tested what the graph writes",
     .filled = {A, B - A},
     .unknown = true,
     .untested = true,
     .kept = {A, B - 1},
     .untouched = {SIZE - B, 1}},
    {.name = "that nobody reads", .unread = true, .filled = {A, B - A}, .left = {A, B - 1}, .untouched = {SIZE - A, 2}},
    {.name = "that nobody reads, and the engine has copied",
     .unread = true,
     .filled = {A, B - A},
     .copied = true,
     .kept = {A, B - 1},
     .untouched = {SIZE - B, 1}},
    {.name = "that the engine has copied, and the second capture has not saved",
     .unread = true,
     .filled = {A, B - A},
     .copied = true,
     .once = true,
     .left = {A, B - 1},
     .untouched = {SIZE - A, 2}},
    {.name = "that the engine has copied, and another one in the second capture",
     .unread = true,
     .filled = {A, B - A},
     .copied = true,
     .differs = true,
     .left = {A, B - 1},
     .untouched = {SIZE - A, 2}},
};

static void save(struct builder *b, uint64_t address, uint64_t size, const uint8_t *data, bool copied)
{
	struct md_trace_unread *unread = builder_grow(&b->trace.unread, &b->trace.unread_count, sizeof(*unread));
	*unread = (struct md_trace_unread){++b->sequence, address, size, NULL, copied};
	if (!data)
		return;
	unread->data = malloc(size);
	cr_assert(unread->data, "memory for the test");
	memcpy(unread->data, data, size);
}

static void save_all(struct builder *b, uint64_t pool, unsigned capture, const struct what *what)
{
	uint64_t size = what->saved ? what->saved : SIZE, end = what->filled.offset + what->filled.size;
	uint64_t address = pool + B;
	static uint8_t data[SIZE];
	memset(data, 0, sizeof(data));
	memset(data + what->filled.offset, 7, what->filled.size);
	memcpy(data + READ, &(uint64_t){3}, READ_SIZE);
	if (what->differs && capture)
		data[MIDDLE] = 8;
	if (what->address)
		memcpy(data + ADDRESS_AT, &address, sizeof(address));
	if (!what->unread)
		builder_content(b, pool + READ, data + READ, READ_SIZE);
	if (what->once && capture)
		return;
	save(b, pool, size, what->copied ? NULL : data, false);
	if (what->copied)
		save(b, pool + what->filled.offset, end - what->filled.offset, data + what->filled.offset, true);
}

static void build(struct builder *b, unsigned capture, const struct what *what)
{
	uint64_t pool = capture ? 0x710000080000u : 0x700000010000u;
	struct md_trace_graph *graph;
	builder_init(b);
	b->trace.process_id = capture;
	builder_alloc(b, MD_ALLOC_DEVICE, pool, SIZE);
	if (what->bound.size)
		builder_bind(b, "bound", pool + what->bound.offset, what->bound.size, MD_BIND_STATE);
	builder_kernel(b, builder_image(b, 1), "k", 16);
	builder_graph(b, "decode", 1);
	builder_launch(b, 0, (uint64_t[]){pool + A, pool + B}, 16);
	graph = builder_last(b);
	graph->probe = what->untested ? 0 : MD_PROBE_CLEAN;
	graph->written_known = !what->unknown;
	if (what->written.size) {
		struct md_trace_range *range = builder_grow(&graph->written, &graph->written_count, sizeof(*range));
		*range = (struct md_trace_range){pool + what->written.offset, what->written.size};
	}
	builder_graph(b, "other", 1); /* of which it is known */
	builder_launch(b, 0, (uint64_t[]){1, 2}, 16);
	builder_last(b)->probe = MD_PROBE_CLEAN;
	builder_last(b)->written_known = true;
	save_all(b, pool, capture, what);
}

static bool is_kept(const struct md_artifact *artifact, uint64_t offset)
{
	for (uint32_t i = 0; i < artifact->content_count; i++) {
		const struct md_artifact_content *content = &artifact->contents[i];
		if (offset >= content->offset && offset - content->offset < content->size)
			return true;
	}
	return false;
}

static uint32_t pointers(const struct md_artifact *artifact)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < artifact->content_count; i++)
		count += artifact->contents[i].pointer_count;
	return count;
}

static void assert_kept(const struct what *what, const struct md_artifact *artifact,
			const struct md_untouched *untouched)
{
	cr_assert_str_eq(refusal_of(artifact, "decode", 1), "", "%s", what->name);
	for (int i = 0; i < 3; i++) {
		cr_assert(!what->kept[i] || is_kept(artifact, what->kept[i]), "%s: byte %llu is kept", what->name,
			  (unsigned long long)what->kept[i]);
		cr_assert(!what->left[i] || !is_kept(artifact, what->left[i]), "%s: byte %llu is not kept", what->name,
			  (unsigned long long)what->left[i]);
	}
	cr_assert_eq(pointers(artifact), what->address, "%s: addresses", what->name);
	cr_assert(untouched->bytes == what->untouched.bytes && untouched->places == what->untouched.places,
		  "%s: %llu bytes at %u places are untouched", what->name, (unsigned long long)untouched->bytes,
		  untouched->places);
}

static void check(const struct what *what)
{
	struct md_untouched untouched = {0};
	const struct md_analyze_options options = {.size = sizeof(options), .untouched = &untouched};
	struct md_artifact artifact;
	struct md_error err = {0};
	struct builder one, two;
	build(&one, 0, what);
	build(&two, 1, what);
	cr_assert(md_analyze(&one.trace, &two.trace, &options, &artifact, &err) == MD_OK, "%s: %s", what->name,
		  err.message);
	if (what->refused)
		cr_assert(strstr(refusal_of(&artifact, "decode", 1), what->refused), "%s: got '%s'", what->name,
			  refusal_of(&artifact, "decode", 1));
	else
		assert_kept(what, &artifact, &untouched);
	cr_assert(find_graph(&artifact, "other", 1), "%s: the other graph stays: '%s'", what->name,
		  refusal_of(&artifact, "other", 1));
	md_artifact_finish(&artifact);
	builder_finish(&one);
	builder_finish(&two);
}

Test(pass_table, how_far_a_table_reaches)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		check(&cases[i]);
}
