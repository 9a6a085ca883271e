/* SPDX-License-Identifier: Apache-2.0 */
/* medusa-inspect --diff: each change of an artifact is told by what it means, and places in tables mean nothing. */
#include "base/array.h"
#include "tools/diff.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/artifact_samples.h"

static char *told(const struct md_artifact *a, const struct md_artifact *b, bool as_json, size_t *count)
{
	struct md_diff diff;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	cr_assert(md_diff_artifacts(a, b, &diff), "memory");
	if (as_json)
		md_diff_print_json(&diff, "A", "B", out);
	else
		md_diff_print(&diff, "A", "B", out);
	*count = diff.real;
	fclose(out);
	md_diff_finish(&diff);
	return text;
}

static void set_text(char **text, const char *value)
{
	free(*text);
	*text = strdup(value);
}

/* ---- one change at a time ---- */

static void change_driver(struct md_artifact *a)
{
	a->fingerprint.driver_version = 12040;
}
static void change_device(struct md_artifact *a)
{
	strcpy(a->fingerprint.device_name, "Another");
}
static void change_fact(struct md_artifact *a)
{
	sample_fact(&a->fingerprint, "torch", "2.12");
}
static void add_fact(struct md_artifact *a)
{
	sample_fact(&a->fingerprint, "zlib", "1");
}
static void change_library(struct md_artifact *a)
{
	set_text(&a->fingerprint.libraries[0].build_id, "77");
}
static void move_library(struct md_artifact *a)
{
	set_text(&a->fingerprint.libraries[0].path, "/usr/lib/lib.so");
}
static void change_binding(struct md_artifact *a)
{
	a->bindings[1].size = 128;
}
static void change_role(struct md_artifact *a)
{
	a->bindings[1].role = MD_BIND_OUTPUT;
}
static void rename_binding(struct md_artifact *a)
{
	set_text(&a->bindings[1].name, "inputs");
}
static void change_arena(struct md_artifact *a)
{
	a->arena_size += 512;
}
static void drop_graph(struct md_artifact *a)
{
	a->graphs[3].batch = 9;
}
static void change_proof(struct md_artifact *a)
{
	a->graphs[0].proof = MD_PROOF_REPLAY;
}
static void change_grid(struct md_artifact *a)
{
	a->graphs[0].nodes[2].grid[1] = 5;
}
static void change_node_kernel(struct md_artifact *a)
{
	a->graphs[0].nodes[2].kernel = 1;
	a->graphs[0].nodes[2].params_size = 256;
	a->graphs[0].nodes[2].params = md_arena_alloc(&a->graphs[0].arena, 256);
}
static void change_constants(struct md_artifact *a)
{
	a->graphs[0].nodes[0].params[16] = 0xaa;
	a->graphs[0].nodes[2].params[17] = 0xbb;
}
/* bytes 20 to 23 of node 0 are noise: what stands behind them in the word is chance */
static void change_beside_noise(struct md_artifact *a)
{
	a->graphs[0].nodes[0].params[23] = 0xaa;
	a->graphs[0].noise[0] = (struct md_noise){0, 20, 3};
}
static void change_before_noise(struct md_artifact *a)
{
	a->graphs[0].nodes[0].params[19] = 0xaa;
}
static void change_noise(struct md_artifact *a)
{
	a->graphs[0].noise[1].at = 28;
}
static void change_pointer(struct md_artifact *a)
{
	a->graphs[0].pointers[0].offset = 8;
}
static void change_target(struct md_artifact *a)
{
	a->graphs[0].pointers[0].alloc = 1;
}
static void drop_pointer(struct md_artifact *a)
{
	a->graphs[0].pointer_count--;
}
static void change_attribute(struct md_artifact *a)
{
	a->graphs[0].nodes[1].attributes[1].value[63] = 1;
}
static void change_edge(struct md_artifact *a)
{
	a->graphs[0].edges[0].type = 0;
}
static void change_copy(struct md_artifact *a)
{
	a->graphs[0].nodes[4].memcpy.width = 77;
}
static void change_words(struct md_artifact *a)
{
	a->graphs[0].noise_words = 2;
	a->graphs[0].constant_words = 19;
}
static void add_words(struct md_artifact *a)
{
	a->graphs[0].constant_words++;
}
static void change_output(struct md_artifact *a)
{
	a->graphs[1].outputs[0].size = 512;
}
static void change_note(struct md_artifact *a)
{
	a->graphs[1].note[7] = 0;
}
static void change_refusal(struct md_artifact *a)
{
	set_text(&a->refusals[0].why, "child graph");
}
static void change_kernel_image(struct md_artifact *a)
{
	a->images[1].hash.bytes[0] ^= 1;
}
static void change_registers(struct md_artifact *a)
{
	a->kernels[0].state.registers = 41;
}
static void rename_kernel(struct md_artifact *a)
{
	set_text(&a->kernels[1].name, "nvjet2");
}
static void change_params(struct md_artifact *a)
{
	a->kernels[0].params[2].size = 20;
}
static void change_content(struct md_artifact *a)
{
	a->contents[0].data[3] = 1;
}
static void change_kv(struct md_artifact *a)
{
	a->kv.blocks = 60;
}
static void drop_kv(struct md_artifact *a)
{
	a->kv.present = false;
}
static void change_provenance(struct md_artifact *a)
{
	set_text(&a->provenance.created, "2026-01-01T00:00:00Z");
	a->provenance.stages[0].ns = 1;
	a->signature.present = true;
}
static void change_nothing(struct md_artifact *a)
{
	(void)a;
}

/* All tables in another order, and everything that points into them. */
static void reorder(struct md_artifact *a)
{
	struct md_artifact_alloc alloc = a->allocs[2];
	a->allocs[2] = a->allocs[3];
	a->allocs[3] = alloc;
	struct md_kernel kernel = a->kernels[0];
	a->kernels[0] = a->kernels[1];
	a->kernels[1] = kernel;
	for (uint32_t g = 0; g < a->graph_count; g++) {
		for (uint32_t i = 0; i < a->graphs[g].node_count; i++)
			if (a->graphs[g].nodes[i].type == MD_NODE_KERNEL)
				a->graphs[g].nodes[i].kernel ^= 1;
		for (uint32_t i = 0; i < a->graphs[g].pointer_count; i++)
			if (a->graphs[g].pointers[i].alloc >= 2)
				a->graphs[g].pointers[i].alloc ^= 1;
		for (uint32_t i = 0; i < a->graphs[g].output_count; i++)
			if (a->graphs[g].outputs[i].alloc == 2 || a->graphs[g].outputs[i].alloc == 3)
				a->graphs[g].outputs[i].alloc ^= 1;
	}
	a->contents[0].alloc ^= 1;
	a->allocs[2].arena_offset = 0;
	a->allocs[3].arena_offset = 8192;
	struct md_artifact_graph graph = a->graphs[0];
	a->graphs[0] = a->graphs[2];
	a->graphs[2] = graph;
}

static const struct change {
	void (*change)(struct md_artifact *artifact);
	size_t count;
	const char *said;
} changes[] = {
    {change_nothing, 0, "\nequal\n"},
    {change_provenance, 0, "made 2026-01-01T00:00:00Z, signed by ed25519:00"},
    {reorder, 0, "\nequal\n"},
    {move_library, 0, "\nequal\n"},
    {change_beside_noise, 0, "\nequal\n"},
    {change_driver, 1, "fingerprint\n  ~ driver version: 13000 -> 12040\n"},
    {change_device, 1, "  ~ device name: Test device -> Another\n"},
    {change_fact, 1, "  ~ fact torch: value: 2.11.0+\"cu130\" -> 2.12\n"},
    {add_fact, 1, "  + fact zlib: 1\n"},
    {change_library, 1, "  ~ library lib.so: build id:  -> 77\n"},
    {change_binding, 1, "bindings\n  ~ input: bytes: 64 -> 128\n"},
    {change_role, 1, "  ~ input: role: input -> output\n"},
    {rename_binding, 2, "  - input: input, 64 bytes\n  + inputs: input, 64 bytes\n"},
    {change_arena, 1, "allocations\n  ~ private bytes: 73728 -> 74240\n"},
    {drop_graph, 2, "graphs\n  - encode/1: 6 nodes, 0 edges\n  + encode/9: 6 nodes, 0 edges\n"},
    {change_proof, 1, "  ~ decode/1: proof: two captures -> replay\n"},
    {change_grid, 1, "decode/1: 1 launches differ in geometry, first node 2 (_Z3addPfS_i): grid 1x1x1 block"},
    {change_node_kernel, 3, "decode/1: _Z3addPfS_i: nodes: 2 -> 1\n  ~ decode/1: nvjet: nodes: 1 -> 2\n"},
    {change_constants, 1, "2 constant words differ, first node 0 (_Z3addPfS_i) byte 16: 0x1 -> 0xaa\n"},
    {change_before_noise, 1, "1 constant words differ, first node 0 (_Z3addPfS_i) byte 16: 0x1 -> 0xaa000001\n"},
    {change_noise, 0, "  ? decode/1: 1 nodes differ in noise, first node 0 (_Z3addPfS_i): 2 words -> 2 words\n"},
    {change_pointer, 1, "1 pointers differ, first node 0 (_Z3addPfS_i) byte 0: weights \"0\"\\x0a\\+0 -> weights"},
    {change_target, 1, "\\+0 -> allocation 1+0\n"},
    {drop_pointer, 1, "1 pointers differ, first node 4 (memcpy) byte 8: private, at 65536+4096 -> no pointer\n"},
    {change_attribute, 1, "1 launches differ in attributes, first node 1 (nvjet): 2 -> 2\n"},
    {change_edge, 1, "  ~ decode/1: edges: 6 -> 6, 1 gone, 1 new\n"},
    {change_copy, 1, "1 copies or sets differ, first node 4 (memcpy): width 4 height 1 -> width 77 height 1\n"},
    {change_words, 0, "graphs\n  ? decode/1: noise words: 1 -> 2\nequal\n"},
    {add_words, 1, "  ~ decode/1: constant and noise words: 21 -> 22\n"},
    {change_output, 1, "decode/2: output 0: place: 1024 bytes at private, at 0+512 -> 512 bytes at private"},
    {change_note, 1, "  ~ decode/2: note: 256 bytes -> 256 other bytes\n"},
    {change_refusal, 1, "left out (no label)/3: why: host node at index 4 -> child graph\n"},
    {change_kernel_image, 3, "kernels\n  ~ _Z3addPfS_i: image: "},
    {change_registers, 1, "  ~ _Z3addPfS_i: registers: 40 -> 41\n"},
    {rename_kernel, 13, "  - nvjet: image not seen\n  + nvjet2: image not seen\n"},
    {change_params, 1, "parameters: 3: 8@0 8@8 24@16 -> 3: 8@0 8@8 20@16\n"},
    {change_content, 1, "contents\n  ~ 1 places differ, first content 0: 100 bytes at private, at 65536+128 -> 100"},
    {change_kv, 1, "kv\n  ~ blocks: 6 -> 60\n"},
    {drop_kv, 1, "  ~ measured: yes -> no\n"},
};

Test(diff, each_change_is_told_by_its_meaning)
{
	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		struct md_artifact a, b;
		size_t count, back;
		sample_artifact(&a);
		sample_artifact(&b);
		changes[i].change(&b);
		char *text = told(&a, &b, false, &count), *reverse = told(&b, &a, false, &back);
		cr_expect(strstr(text, changes[i].said), "no \"%s\" in\n%s", changes[i].said, text);
		cr_expect_eq(count, changes[i].count, "%zu differences, not %zu:\n%s", count, changes[i].count, text);
		cr_expect_eq(back, count, "the other way round:\n%s", reverse);
		free(text);
		free(reverse);
		md_artifact_finish(&a);
		md_artifact_finish(&b);
	}
}

/* A node more in the middle moves all that follow; only itself is told. */
Test(diff, what_is_put_in_between_moves_nothing)
{
	struct md_artifact a, b;
	size_t count;
	large_artifact(&a);
	large_artifact(&b);
	struct md_artifact_graph *graph = &b.graphs[7];
	graph->nodes = md_array_resize(graph->nodes, LARGE_NODES + 1, sizeof(*graph->nodes));
	memmove(&graph->nodes[101], &graph->nodes[100], (LARGE_NODES - 100) * sizeof(*graph->nodes));
	graph->nodes[100] = (struct md_node){.type = MD_NODE_EMPTY, .kernel = MD_NONE};
	graph->node_count++;
	for (uint32_t i = 0; i < graph->edge_count; i++) {
		graph->edges[i].from += graph->edges[i].from >= 100;
		graph->edges[i].to += graph->edges[i].to >= 100;
	}
	for (uint32_t i = 0; i < graph->pointer_count; i++)
		graph->pointers[i].node += graph->pointers[i].node >= 100;
	for (uint32_t i = 0; i < graph->noise_count; i++)
		graph->noise[i].node += graph->noise[i].node >= 100;
	char *text = told(&a, &b, false, &count);
	cr_assert_eq(count, 2, "%s", text);
	cr_assert(strstr(text, "decode/40: nodes: 450 -> 451\n"), "%s", text);
	cr_assert(strstr(text, "decode/40: empty: nodes: 0 -> 1\n"), "%s", text);
	free(text);
	md_artifact_finish(&a);
	md_artifact_finish(&b);
}

Test(diff, json_says_the_same)
{
	struct md_artifact a, b;
	size_t count;
	sample_artifact(&a);
	sample_artifact(&b);
	char *text = told(&a, &b, true, &count);
	cr_assert(strstr(text, "\"equal\": true") && strstr(text, "\"differences\": []"), "%s", text);
	free(text);
	change_constants(&b);
	add_fact(&b);
	text = told(&a, &b, true, &count);
	static const char *const parts[] = {"\"equal\": false",       "\"section\": \"graphs\"",
					    "\"item\": \"decode/1\"", "\"count\": 2",
					    "\"a\": \"0x1\"",         "\"first\": \"node 0 (_Z3addPfS_i) byte 16\"",
					    "\"change\": \"added\"",  "\"what\": null"};
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		cr_assert(strstr(text, parts[i]), "no %s in %s", parts[i], text);
	free(text);
	md_artifact_finish(&a);
	md_artifact_finish(&b);
}

Test(diff, empty_ones_are_equal)
{
	struct md_artifact a = {0}, b = {0};
	size_t count;
	char *text = told(&a, &b, false, &count);
	cr_assert_eq(count, 0, "%s", text);
	free(text);
	sample_artifact(&b);
	text = told(&a, &b, false, &count);
	cr_assert(strstr(text, "  + decode/1: 6 nodes, 6 edges\n"), "%s", text);
	free(text);
	md_artifact_finish(&b);
}

/* ---- many ---- */

enum { MANY = 20000 };

static char *numbered(const char *what, uint32_t i)
{
	char *text;
	cr_assert(asprintf(&text, "%s %" PRIu32, what, i) > 0);
	return text;
}

/* Of everything that has a name so many as a small file can hold, in another order on the other side. */
static void make_many(struct md_artifact *a, bool backwards, bool other)
{
	*a = (struct md_artifact){.binding_count = MANY,
				  .kernel_count = MANY,
				  .image_count = MANY,
				  .graph_count = MANY,
				  .refusal_count = MANY};
	a->bindings = calloc(MANY, sizeof(*a->bindings));
	a->kernels = calloc(MANY, sizeof(*a->kernels));
	a->images = calloc(MANY, sizeof(*a->images));
	a->graphs = calloc(MANY, sizeof(*a->graphs));
	a->refusals = calloc(MANY, sizeof(*a->refusals));
	for (uint32_t at = 0; at < MANY; at++) {
		uint32_t i = backwards ? MANY - 1 - at : at;
		a->bindings[at] = (struct md_binding){.name = numbered("binding", i), .role = 1, .size = 8};
		a->kernels[at] =
		    (struct md_kernel){.name = numbered("one of two", i / 2), .image = i % 3 ? at : MD_NONE};
		a->images[at].hash = md_hash_bytes(&i, sizeof(i));
		a->graphs[at] = (struct md_artifact_graph){.label = strdup("graph"), .batch = i, .proof = 1};
		a->refusals[at] =
		    (struct md_artifact_refusal){.label = strdup("refused"), .batch = i, .why = strdup("why")};
	}
	if (other)
		a->graphs[7].proof = 2;
}

/* Where each of these was looked for among all others, this took minutes. */
Test(diff, many_of_each, .timeout = 120)
{
	struct md_artifact a, b;
	size_t count;
	make_many(&a, false, false);
	make_many(&b, true, true);
	char *text = told(&a, &b, false, &count);
	cr_expect_eq(count, 1, "%zu differences: %.2000s", count, text);
	cr_expect(strstr(text, "graph/19992: proof: two captures -> replay"), "%.2000s", text);
	free(text);
	md_artifact_finish(&a);
	md_artifact_finish(&b);
}
