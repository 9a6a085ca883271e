/* SPDX-License-Identifier: Apache-2.0 */
/* An engine whose graphs have two buffers, side by side or apart. Kernels: tests/images/border_kernels.c. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "medusa/medusa.h"
#include "tests/subjects/image_file.h"
#include "tests/subjects/subject.h"

/*
 * argv: image, then for each graph KERNEL or KERNEL:apart. Kernels: affine, unread, lookup, far, either with the second
 * buffer; total, total1 to total4, length, endless, and range (which is either) with the first buffer's end. stdout: what the graphs computed, and what is right.
 * stderr: how it came by them. SUBJECT_APART: all buffers lie apart; SUBJECT_STATE: the second ones are state.
 */
enum { WORDS = 1024, BYTES = WORDS * 4, PAD = 64 << 10, REPLAYS = 3, FAR = 1 << 28 /* as in the kernel */ };

static CUstream stream;
static CUmodule module;
static CUdeviceptr input;

struct graph {
	const char *kind;
	unsigned number;
	CUdeviceptr out, first, second;
	int32_t first_words[WORDS], second_words[WORDS];
	CUgraphExec exec;
};

static CUdeviceptr bind(const char *name, unsigned number, CUdeviceptr address, enum medusa_role role)
{
	char text[32];
	snprintf(text, sizeof(text), "%s%u", name, number);
	if (medusa_bind(text, address, BYTES, role) != MEDUSA_OK)
		fprintf(stderr, "%s is not bound: %s\n", text, medusa_reason());
	return address;
}

/* The end of a buffer that lies by itself is nothing else's beginning. */
static CUdeviceptr take_alone(void)
{
	CUdeviceptr address;
	TRY(cuMemAlloc_v2, &address, PAD);
	return address + PAD - BYTES;
}

static bool is(const struct graph *g, const char *kind)
{
	return !strncmp(g->kind, kind, strlen(kind));
}

static void place(struct graph *g)
{
	const char *state = getenv("SUBJECT_STATE");
	if (getenv("SUBJECT_APART") || strstr(g->kind, ":apart")) {
		g->second = take_alone();
		g->first = take_alone();
	} else {
		TRY(cuMemAlloc_v2, &g->first, 2 * (size_t)BYTES);
		g->second = g->first + BYTES;
	}
	g->out = take_alone();
	for (int i = 0; i < WORDS; i++) {
		g->first_words[i] = (i + (int)g->number) % 7 + 1;
		g->second_words[i] = is(g, "far") ? i % 2 + FAR : is(g, "lookup") ? i % 2 : i % 5 + 1;
	}
	TRY(cuMemcpyHtoD_v2, g->first, g->first_words, BYTES);
	TRY(cuMemcpyHtoD_v2, g->second, g->second_words, BYTES);
	bind("out", g->number, g->out, MEDUSA_BIND_OUTPUT);
	bind("first", g->number, g->first, MEDUSA_BIND_CONSTANT);
	bind("second", g->number, g->second, state ? MEDUSA_BIND_STATE : MEDUSA_BIND_CONSTANT);
}

static bool has_end(const struct graph *g)
{
	return is(g, "total") || is(g, "range") || is(g, "length") || is(g, "endless");
}

static void capture(struct graph *g)
{
	CUdeviceptr second = has_end(g) ? g->first + BYTES : g->second;
	int32_t n = WORDS, is_end = has_end(g);
	void *params[] = {&g->out, &input, &g->first, &second, &n, &is_end};
	CUfunction function;
	char name[32];
	snprintf(name, sizeof(name), "%s", is(g, "range") ? "either" : g->kind);
	name[strcspn(name, ":")] = '\0';
	TRY(cuModuleGetFunction, &function, module, name);
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	TRY(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
	g->exec = end_capture(stream);
	medusa_graph_label(g->exec, "step", g->number);
}

static int32_t right(const struct graph *g, int i, int32_t in)
{
	int32_t sum = 0;
	for (int k = 0; k < WORDS; k++)
		sum += g->first_words[k];
	if (is(g, "length") || is(g, "endless"))
		return in + WORDS;
	if (has_end(g))
		return in + sum;
	if (is(g, "unread"))
		return in * g->first_words[i];
	if (is(g, "lookup"))
		return in * g->first_words[g->second_words[i]];
	if (is(g, "far"))
		return in * g->first_words[g->second_words[i] - FAR];
	return in * g->first_words[i] + g->second_words[i];
}

static void replay(struct graph *g)
{
	int32_t values[WORDS], found[WORDS];
	for (int turn = 1; turn <= REPLAYS; turn++) {
		int wrong = 0;
		for (int i = 0; i < WORDS; i++)
			values[i] = i % 11 + turn * 3;
		TRY(cuMemcpyHtoD_v2, input, values, BYTES);
		TRY(cuCtxSynchronize);
		TRY(cuGraphLaunch, g->exec, stream);
		TRY(cuStreamSynchronize, stream);
		TRY(cuMemcpyDtoH_v2, found, g->out, BYTES);
		for (int i = 0; i < WORDS; i++)
			wrong += found[i] != right(g, i, values[i]);
		printf("%u %s: %d wrong\n", g->number, g->kind, wrong);
	}
}

int main(int argc, char *argv[])
{
	struct graph *graphs = calloc((size_t)argc, sizeof(*graphs));
	if (argc < 3 || !graphs)
		return 1;
	load_driver();
	open_context();
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	void *image = read_file(argv[1]);
	TRY(cuModuleLoadData, &module, image);
	input = bind("input", 0, take_alone(), MEDUSA_BIND_INPUT);
	for (int i = 2; i < argc; i++) {
		graphs[i] = (struct graph){.kind = argv[i], .number = (unsigned)i - 1};
		place(&graphs[i]);
	}
	for (int i = 2; i < argc; i++) {
		bool restored =
		    medusa_graph_get("step", graphs[i].number, UINT64_MAX, (void **)&graphs[i].exec) == MEDUSA_OK;
		fprintf(stderr, "graph %u is %s %s\n", graphs[i].number, restored ? "restored" : "live",
			restored ? "" : medusa_reason());
		if (!restored)
			capture(&graphs[i]);
		replay(&graphs[i]);
	}
	free(image);
	free(graphs);
	return 0;
}
