/* SPDX-License-Identifier: Apache-2.0 */
/* Doubtful words in an artifact: written, read and printed as they are, and refused where they cannot be. */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/array.h"
#include "format/artifact/artifact.h"
#include "tests/artifact_samples.h"

static char folder[64], path[128];

static void setup(void)
{
	strcpy(folder, "/tmp/medusa-artifact-XXXXXX");
	cr_assert(mkdtemp(folder), "a folder for the test");
	snprintf(path, sizeof(path), "%s/a.medusa", folder);
}

static void teardown(void)
{
	unlink(path);
	rmdir(folder);
}

TestSuite(doubtful, .init = setup, .fini = teardown);

static bool same_word(const struct md_doubtful *x, const struct md_doubtful *y)
{
	return x->node == y->node && x->at == y->at && x->alloc == y->alloc && x->offset == y->offset &&
	       x->order[0] == y->order[0] && x->order[1] == y->order[1] && x->place[0] == y->place[0] &&
	       x->place[1] == y->place[1];
}

static void assert_same(const struct md_artifact *a, const struct md_artifact *b)
{
	for (uint32_t i = 0; i < a->graph_count; i++) {
		const struct md_artifact_graph *x = &a->graphs[i], *y = &b->graphs[i];
		cr_assert(x->doubtful_count == y->doubtful_count, "graph %u: %u and %u doubtful words", i,
			  x->doubtful_count, y->doubtful_count);
		for (uint32_t w = 0; w < x->doubtful_count; w++)
			cr_assert(same_word(&x->doubtful[w], &y->doubtful[w]), "graph %u: word %u is the same", i, w);
	}
}

Test(doubtful, written_and_read)
{
	struct md_artifact artifact, read;
	struct md_error err;
	uint64_t required = 0;
	sample_artifact(&artifact);
	sample_doubtful(&artifact.graphs[1]);
	cr_assert(md_artifact_write(&artifact, path, NULL, &err) == MD_OK, "%s", err.message);
	cr_assert(md_artifact_read(path, &read, NULL, &err) == MD_OK, "%s", err.message);
	assert_same(&artifact, &read);
	cr_assert(md_artifact_doubtful(&read) == &read.graphs[1], "the graph with doubtful words is found");
	FILE *file = fopen(path, "rb");
	cr_assert(file && !fseek(file, 16, SEEK_SET) && fread(&required, 8, 1, file) == 1, "the header");
	fclose(file);
	cr_assert(required & 32, "a reader that does not know doubtful words must not read it");
	md_artifact_finish(&artifact);
	md_artifact_finish(&read);
}

Test(doubtful, printed_and_parsed)
{
	struct md_artifact artifact, read;
	struct md_error err;
	FILE *text = tmpfile();
	sample_artifact(&artifact);
	sample_doubtful(&artifact.graphs[0]);
	cr_assert(text && md_artifact_print_text(&artifact, text, &err) == MD_OK, "%s", err.message);
	rewind(text);
	cr_assert(md_artifact_parse_text(text, &read, &err) == MD_OK, "%s", err.message);
	assert_same(&artifact, &read);
	fclose(text);
	md_artifact_finish(&artifact);
	md_artifact_finish(&read);
}

static void spoil_node(struct md_artifact_graph *graph)
{
	graph->doubtful[1].node = 99;
}
static void spoil_type(struct md_artifact_graph *graph)
{
	graph->doubtful[1].node = 3;
	graph->doubtful[1].at = 0;
}
static void spoil_at(struct md_artifact_graph *graph)
{
	graph->doubtful[0].at = graph->nodes[0].params_size - 7;
}
static void spoil_wrapped(struct md_artifact_graph *graph)
{
	graph->doubtful[0].at = UINT32_MAX;
}
static void spoil_order(struct md_artifact_graph *graph)
{
	graph->doubtful[1].node = 0;
	graph->doubtful[1].at = 28;
}
static void spoil_alloc(struct md_artifact_graph *graph)
{
	graph->doubtful[0].alloc = 99;
}
static void spoil_offset(struct md_artifact_graph *graph)
{
	graph->doubtful[1].offset = 8;
}
static void spoil_pointer(struct md_artifact_graph *graph)
{
	graph->doubtful[1].at = 120;
}
static void spoil_noise(struct md_artifact_graph *graph)
{
	graph->doubtful[0].at = 16;
}
static void spoil_count(struct md_artifact_graph *graph)
{
	graph->doubtful = md_array_resize(graph->doubtful, MD_DOUBTFUL_MAX + 1, sizeof(*graph->doubtful));
	graph->doubtful_count = MD_DOUBTFUL_MAX + 1;
}

Test(doubtful, should_fail_words_that_cannot_be)
{
	static const struct {
		void (*spoil)(struct md_artifact_graph *graph);
		const char *message;
	} cases[] = {
	    {spoil_node, "lies outside of a kernel's parameters"},
	    {spoil_type, "lies outside of a kernel's parameters"},
	    {spoil_at, "lies outside of a kernel's parameters"},
	    {spoil_wrapped, "lies outside of a kernel's parameters"},
	    {spoil_order, "is not behind the one before"},
	    {spoil_alloc, "points into an allocation that is not there"},
	    {spoil_offset, "points into an allocation that is not there"},
	    {spoil_pointer, "is a pointer or noise as well"},
	    {spoil_noise, "is a pointer or noise as well"},
	    {spoil_count, "has 1025 doubtful words, at most 1024"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct md_artifact artifact;
		struct md_error err = {0};
		sample_artifact(&artifact);
		sample_doubtful(&artifact.graphs[0]);
		cases[i].spoil(&artifact.graphs[0]);
		cr_assert(md_artifact_write(&artifact, path, NULL, &err) == MD_ERR_CORRUPT, "%s", cases[i].message);
		cr_assert(strstr(err.message, cases[i].message), "'%s' says '%s'", err.message, cases[i].message);
		cr_assert(access(path, F_OK), "nothing is written");
		md_artifact_finish(&artifact);
	}
}
