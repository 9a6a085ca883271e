/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of modules: which value is stored with the image, when only the engine's own copy will do, and graphs whose
 * replays write one. */
#include <criterion/criterion.h>

#include "analyze/analyze.h"
#include "tests/trace_builder.h"

enum { SIZE = 16, POOL_SIZE = 0x1000 };

struct value {
	uint64_t words[2]; /* POINTER: an address in the pool, which lies elsewhere in each capture */
	bool none;         /* the engine writes it between replays: a value without bytes */
};

#define POINTER 1u
#define VALUES(...)                                                                                                    \
	{                                                                                                              \
		__VA_ARGS__                                                                                            \
	}
#define ONE                                                                                                            \
	{                                                                                                              \
		.words = { 7, 8 }                                                                                      \
	}
#define OTHER                                                                                                          \
	{                                                                                                              \
		.words = { 7, 9 }                                                                                      \
	}

static const struct what {
	const char *name;
	bool written[2];           /* in that capture, as it says */
	struct value values[2][3]; /* that it saw, one after the other */
	uint32_t count[2];         /* of them */
	bool copies;               /* two modules of the image */
	bool elsewhere;            /* written in an image that only the second capture has */
	enum { STORED, OWN_COPY, IMAGE_ALONE } expected;
	uint64_t last; /* word of what is stored */
} cases[] = {
    {.name = "not written", .expected = IMAGE_ALONE},
    {.name = "one value",
     .written = {true, true},
     .values = {VALUES(ONE), VALUES(ONE)},
     .count = {1, 1},
     .expected = STORED,
     .last = 8},
    {.name = "one value, seen again",
     .written = {true, true},
     .values = {VALUES(ONE, ONE), VALUES(ONE)},
     .count = {2, 1},
     .expected = STORED,
     .last = 8},
    {.name = "no value", .written = {true, true}, .expected = OWN_COPY},
    {.name = "written in the second capture alone", .written = {false, true}, .expected = OWN_COPY},
    {.name = "another value later",
     .written = {true, true},
     .values = {VALUES(ONE, OTHER), VALUES(ONE, OTHER)},
     .count = {2, 2},
     .expected = OWN_COPY},
    {.name = "another value in the second capture",
     .written = {true, true},
     .values = {VALUES(ONE), VALUES(OTHER)},
     .count = {1, 1},
     .expected = OWN_COPY},
    {.name = "another value later in the second capture",
     .written = {true, true},
     .values = {VALUES(ONE), VALUES(OTHER, ONE)},
     .count = {1, 2},
     .expected = OWN_COPY},
    {.name = "set between replays",
     .written = {true, true},
     .values = {VALUES(ONE, {.none = true}), VALUES(ONE, {.none = true})},
     .count = {2, 2},
     .expected = OWN_COPY},
    {.name = "a table that is filled with addresses",
     .written = {true, true},
     .values = {VALUES({.words = {0, 8}}, {.words = {POINTER, 8}}), VALUES({.words = {POINTER, 8}})},
     .count = {2, 1},
     .expected = STORED,
     .last = 8},
    {.name = "a table that is filled with numbers",
     .written = {true, true},
     .values = {VALUES({.words = {0, 8}}, {.words = {5, 8}}), VALUES({.words = {5, 8}})},
     .count = {2, 1},
     .expected = OWN_COPY},
    {.name = "two tables, one of which is filled",
     .written = {true, true},
     .values = {VALUES({.words = {0, 8}}, {.words = {POINTER, 8}}), VALUES({.words = {POINTER, 8}})},
     .count = {2, 1},
     .copies = true,
     .expected = OWN_COPY},
    {.name = "in an image that the first capture does not have", .elsewhere = true, .expected = IMAGE_ALONE},
};

static void add_global(struct builder *b, uint64_t address)
{
	struct md_trace_global *global;
	builder_alloc(b, MD_ALLOC_GLOBAL, address, SIZE);
	global = builder_grow(&b->trace.globals, &b->trace.global_count, sizeof(*global));
	*global = (struct md_trace_global){0, builder_text("v"), ++b->sequence, address, SIZE};
}

static void add_written(struct builder *b, uint32_t image)
{
	struct md_trace_variable *written =
	    builder_grow(&b->trace.variables, &b->trace.variable_count, sizeof(*written));
	*written = (struct md_trace_variable){image, builder_text("v")};
}

static void add_value(struct builder *b, const struct value *from, uint64_t pool)
{
	struct md_trace_value *value = builder_grow(&b->trace.values, &b->trace.value_count, sizeof(*value));
	uint64_t words[2] = {from->words[0] == POINTER ? pool + 64 : from->words[0], from->words[1]};
	*value = (struct md_trace_value){0, builder_text("v"), ++b->sequence, from->none ? 0 : SIZE, NULL};
	if (from->none)
		return;
	value->data = malloc(SIZE);
	cr_assert(value->data, "memory for the test");
	memcpy(value->data, words, SIZE);
}

static uint64_t pool_of(unsigned capture)
{
	return capture ? 0x710000080000u : 0x700000010000u;
}

/* A graph for each of two images: only the first image has the variable. */
static void build(struct builder *b, unsigned capture)
{
	uint64_t pool = pool_of(capture);
	builder_init(b);
	b->trace.process_id = capture;
	builder_alloc(b, MD_ALLOC_DEVICE, pool, POOL_SIZE);
	builder_kernel(b, builder_image(b, 1), "k", 8);
	builder_kernel(b, builder_image(b, 2), "j", 8);
	builder_graph(b, "decode", 1);
	builder_launch(b, 0, &pool, 8);
	builder_graph(b, "other", 1);
	builder_launch(b, 1, &pool, 8);
}

static void say(struct builder *b, unsigned capture, const struct what *what)
{
	uint64_t place = pool_of(capture) + 0x100000;
	add_global(b, place);
	if (what->copies)
		add_global(b, place + 0x1000);
	if (what->written[capture])
		add_written(b, 0);
	if (what->elsewhere && capture)
		add_written(b, builder_image(b, 3));
	for (uint32_t i = 0; i < what->count[capture]; i++)
		add_value(b, &what->values[capture][i], pool_of(capture));
}

static const struct md_image *image_of(const struct md_artifact *artifact, uint8_t fill)
{
	uint8_t bytes[64];
	struct md_hash hash;
	memset(bytes, fill, sizeof(bytes));
	hash = md_hash_bytes(bytes, sizeof(bytes));
	for (uint32_t i = 0; i < artifact->image_count; i++)
		if (md_hash_equal(&artifact->images[i].hash, &hash))
			return &artifact->images[i];
	return NULL;
}

static void check(const struct what *what)
{
	struct md_artifact artifact;
	struct md_error err = {0};
	struct builder one, two;
	build(&one, 0);
	build(&two, 1);
	say(&one, 0, what);
	say(&two, 1, what);
	cr_assert(md_analyze(&one.trace, &two.trace, NULL, &artifact, &err) == MD_OK, "%s: %s", what->name,
		  err.message);
	const struct md_image *image = image_of(&artifact, 1), *other = image_of(&artifact, 2);
	cr_assert(find_graph(&artifact, "decode", 1) && find_graph(&artifact, "other", 1), "%s: '%s'", what->name,
		  refusal_of(&artifact, "decode", 1));
	cr_assert(image && other && !other->variable && !other->value_count, "%s: the other image has none",
		  what->name);
	cr_assert_eq(image->value_count, what->expected == STORED, "%s: %u values", what->name, image->value_count);
	cr_assert_eq(image->variable != NULL, what->expected == OWN_COPY, "%s: only the engine's copy", what->name);
	if (what->expected == STORED)
		cr_assert(!strcmp(image->values->name, "v") && image->values->size == SIZE &&
			      !memcmp(image->values->data + 8, &what->last, 8),
			  "%s: the value", what->name);
	md_artifact_finish(&artifact);
	builder_finish(&one);
	builder_finish(&two);
}

Test(pass_variable, which_value_goes_with_the_image)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		check(&cases[i]);
}

/* ---- replays that write one ---- */

static const struct replay {
	const char *name;
	unsigned capture;
	uint64_t graph; /* by its id: 1 and 2 are there */
	const char *why;
} replays[] = {
    {"itself", 0, 1, "node 0 (k): replays of graph decode/1 write variable v of its module"},
    {"a graph of another image", 0, 2, "node 0 (k): replays of graph other/1 write variable v of its module"},
    {"a graph that nobody knows", 0, 99, "node 0 (k): replays of graph number 99 write variable v of its module"},
    {"in the second capture", 1, 1, "node 0 (k): replays of graph decode/1 write variable v of its module"},
};

Test(pass_variable, should_fail_graphs_of_an_image_whose_variable_replays_write)
{
	for (size_t i = 0; i < sizeof(replays) / sizeof(*replays); i++) {
		struct builder builders[2];
		struct md_artifact artifact;
		struct md_error err = {0};
		build(&builders[0], 0);
		build(&builders[1], 1);
		struct md_trace *trace = &builders[replays[i].capture].trace;
		struct md_trace_replayed *replayed =
		    builder_grow(&trace->replayed, &trace->replayed_count, sizeof(*replayed));
		*replayed = (struct md_trace_replayed){0, builder_text("v"), replays[i].graph};
		cr_assert(md_analyze(&builders[0].trace, &builders[1].trace, NULL, &artifact, &err) == MD_OK, "%s: %s",
			  replays[i].name, err.message);
		cr_assert(strstr(refusal_of(&artifact, "decode", 1), replays[i].why), "%s: got '%s'", replays[i].name,
			  refusal_of(&artifact, "decode", 1));
		cr_assert(find_graph(&artifact, "other", 1), "%s: the other image's graph stays", replays[i].name);
		md_artifact_finish(&artifact);
		builder_finish(&builders[0]);
		builder_finish(&builders[1]);
	}
}
