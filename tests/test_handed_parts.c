/* SPDX-License-Identifier: Apache-2.0 */
/* Memory through which graphs hand values on, in an artifact: written, read, and refused when it makes no sense. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/artifact_samples.h"

static char path[64];

static void name_file(void)
{
	snprintf(path, sizeof(path), "/tmp/medusa-handed-%d.medusa", (int)getpid());
}

static void remove_file(void)
{
	unlink(path);
}

TestSuite(handed_parts, .init = name_file, .fini = remove_file);

static void assert_same(const struct md_artifact *a, const struct md_artifact *b)
{
	for (uint32_t i = 0; i < a->graph_count; i++) {
		const struct md_artifact_graph *x = &a->graphs[i], *y = &b->graphs[i];
		cr_assert(x->group == y->group && x->handed_count == y->handed_count, "graph %u is of the same group",
			  i);
		for (uint32_t k = 0; k < x->handed_count; k++)
			cr_assert(
			    x->handed[k].alloc == y->handed[k].alloc && x->handed[k].offset == y->handed[k].offset &&
				x->handed[k].size == y->handed[k].size && x->handed[k].reads == y->handed[k].reads &&
				x->handed[k].writes == y->handed[k].writes,
			    "graph %u: part %u is the same", i, k);
	}
}

Test(handed_parts, written_and_read)
{
	struct md_artifact artifact, read;
	struct md_error err;
	uint64_t required = 0;
	sample_artifact(&artifact);
	sample_group(&artifact);
	cr_assert(md_artifact_write(&artifact, path, NULL, &err) == MD_OK, "%s", err.message);
	cr_assert(md_artifact_read(path, &read, NULL, &err) == MD_OK, "%s", err.message);
	assert_same(&artifact, &read);
	FILE *file = fopen(path, "rb");
	cr_assert(file && !fseek(file, 16, SEEK_SET) && fread(&required, 8, 1, file) == 1, "the header");
	fclose(file);
	cr_assert(required & 2048, "a reader that does not know groups must not read it");
	md_artifact_finish(&artifact);
	md_artifact_finish(&read);
}

Test(handed_parts, printed_and_parsed)
{
	struct md_artifact artifact, read;
	struct md_error err;
	FILE *text = tmpfile();
	sample_artifact(&artifact);
	sample_group(&artifact);
	cr_assert(text && md_artifact_print_text(&artifact, text, &err) == MD_OK, "%s", err.message);
	rewind(text);
	cr_assert(md_artifact_parse_text(text, &read, &err) == MD_OK, "%s", err.message);
	assert_same(&artifact, &read);
	fclose(text);
	md_artifact_finish(&artifact);
	md_artifact_finish(&read);
}

static void spoil_alloc(struct md_artifact *a)
{
	a->graphs[0].handed[1].alloc = 9;
}
static void spoil_class(struct md_artifact *a)
{
	a->graphs[0].handed[0].alloc = 0;
}
static void spoil_size(struct md_artifact *a)
{
	a->graphs[1].handed[1].size = UINT64_MAX;
}
static void spoil_empty(struct md_artifact *a)
{
	a->graphs[1].handed[1].size = 0;
}
static void spoil_order(struct md_artifact *a)
{
	a->graphs[0].handed[1].offset = 4095;
}
static void spoil_use(struct md_artifact *a)
{
	a->graphs[0].handed[1].reads = false;
}
static void spoil_pointers(struct md_artifact *a)
{
	for (uint32_t i = 0; i < a->graphs[1].pointer_count; i++)
		if (a->graphs[1].pointers[i].alloc == 2)
			a->graphs[1].pointers[i].alloc = 3;
}
static void spoil_group(struct md_artifact *a)
{
	a->graphs[0].group = 0;
}
static void spoil_member(struct md_artifact *a)
{
	a->graphs[1].group = 8;
}
static void spoil_reader(struct md_artifact *a)
{
	a->graphs[1].handed[0].reads = false;
	a->graphs[1].handed[0].writes = true;
}
static void spoil_place(struct md_artifact *a)
{
	a->graphs[1].handed[1].offset = 16384;
}

static const struct {
	const char *message;
	void (*spoil)(struct md_artifact *artifact);
} spoils[] = {
    {"handed memory 1 of graph decode/1 lies outside of a private allocation", spoil_alloc},
    {"handed memory 0 of graph decode/1 lies outside of a private allocation", spoil_class},
    {"handed memory 1 of graph decode/2 lies outside of a private allocation", spoil_size},
    {"handed memory 1 of graph decode/2 lies outside of a private allocation", spoil_empty},
    {"handed memory 1 of graph decode/1 is not behind the one before", spoil_order},
    {"handed memory 1 of graph decode/1 is neither read nor written", spoil_use},
    {"handed memory 0 of graph decode/2 lies in an allocation that the graph has no pointer to", spoil_pointers},
    {"graph decode/1 of group 0 has 2 parts of memory to hand on", spoil_group},
    {"handed memory 0 of graph decode/1 is not written by one graph of its group and read by another", spoil_member},
    {"handed memory 0 of graph decode/1 is not written by one graph of its group and read by another", spoil_reader},
    {"handed memory 1 of graph decode/1 is not written by one graph of its group and read by another", spoil_place},
};

Test(handed_parts, should_fail_what_makes_no_sense)
{
	for (size_t i = 0; i < sizeof(spoils) / sizeof(*spoils); i++) {
		struct md_artifact artifact;
		struct md_error err = {0};
		sample_artifact(&artifact);
		sample_group(&artifact);
		cr_assert(md_artifact_check(&artifact, &err) == MD_OK, "%s", err.message);
		spoils[i].spoil(&artifact);
		cr_expect(md_artifact_check(&artifact, &err) == MD_ERR_CORRUPT, "case %zu is refused", i);
		cr_expect(strstr(err.message, spoils[i].message), "case %zu: %s", i, err.message);
		md_artifact_finish(&artifact);
	}
}
