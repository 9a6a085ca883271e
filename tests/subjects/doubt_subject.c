/* SPDX-License-Identifier: Apache-2.0 */
/* An engine whose allocator takes other ones of equal blocks in the second capture. argv: image, "swap" or "keep", then
 * what each further graph does with a word that changes its block. */
#define _DEFAULT_SOURCE /* strsep */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/subjects/stepper.h"

/*
 * Two tables lie in two blocks of one size that nobody binds. swap: each lies in the other's block in the second
 * capture. keep: they stay, and the graphs behind the first one have a word that points into the first block in the
 * first, and to the same place of the second block in the second capture: ignored, read, peeked (is it NULL?),
 * followed (read unless it is NULL), touched (read for nothing) or written. ignored+peeked: a graph of two nodes, each
 * with such a word, of which the second one adds to what the first one leaves.
 * SUBJECT_BINDS_NOTHING: input and output are not bound.
 */
enum { BLOCK_BYTES = 65536, AT = 1024, ENTRIES = 8, KINDS = 6 };

static const char *const kinds[KINDS] = {"ignored", "read", "peeked", "followed", "touched", "written"};
static CUdeviceptr blocks[2], tables[2];

static bool is_second(void)
{
	return getenv("MEDUSA_SHIFT") != NULL;
}

static void fill_tables(void)
{
	float values[ENTRIES];
	for (unsigned t = 0; t < 2; t++) {
		for (unsigned i = 0; i < ENTRIES; i++)
			values[i] = (float)(1 + i + 10 * t);
		TRY(cuMemsetD8_v2, tables[t], 0, BLOCK_BYTES);
		TRY(cuMemcpyHtoD_v2, tables[t], values, sizeof(values));
		for (unsigned i = 0; i < ENTRIES; i++)
			values[i] = 100; /* the same in both */
		TRY(cuMemcpyHtoD_v2, tables[t] + AT, values, sizeof(values));
	}
}

static void set_up(const char *path, bool swap)
{
	set_up_stepper(path, "doubt");
	for (unsigned i = 0; i < 2; i++)
		TRY(cuMemAlloc_v2, &blocks[i], BLOCK_BYTES);
	for (unsigned i = 0; i < 2; i++)
		tables[i] = blocks[swap && is_second() ? 1 - i : i];
	fill_tables();
	if (!getenv("SUBJECT_BINDS_NOTHING"))
		bind_stepper();
}

/* Captures a node for each kind in words; each but the first one adds to the output. */
static CUgraphExec capture_nodes(CUdeviceptr table, CUdeviceptr word, const char *words)
{
	int32_t n = WIDTH, kind;
	CUdeviceptr from = input;
	void *params[] = {&output, &from, &table, &word, &n, &kind};
	char text[2048], *rest = text, *one;
	snprintf(text, sizeof(text), "%s", words);
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	while ((one = strsep(&rest, "+"))) {
		kind = kind_among(kinds, KINDS, one);
		TRY(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
		from = output;
	}
	return end_capture(stream);
}

static void step(unsigned batch, CUdeviceptr table, CUdeviceptr word, const char *words)
{
	CUgraphExec exec = ask_for_step(batch);
	if (!exec) {
		exec = capture_nodes(table, word, words);
		medusa_graph_label(exec, "step", batch);
	}
	replay_step(exec, batch);
}

int main(int argc, char *argv[])
{
	if (argc < 3) {
		fprintf(stderr, "image and mode are wanted\n");
		return 1;
	}
	load_driver();
	open_context();
	set_up(argv[1], !strcmp(argv[2], "swap"));
	step(1, tables[0], tables[1], "read");
	step(2, tables[1], tables[0], "read");
	for (int i = 3; i < argc; i++)
		step((unsigned)i, tables[0], blocks[is_second()] + AT, argv[i]);
	return 0;
}
