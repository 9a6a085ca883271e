/* SPDX-License-Identifier: Apache-2.0 */
/* Engines whose graphs hand values on in memory that nobody binds, as those of a model that is cut into pieces do. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/cuda_driver.h"
#include "medusa/medusa.h"
#include "medusa/swap.h"
#include "tests/subjects/image_file.h"

/* clang-format off */
/*
 * Chain after chain of three graphs "a0", "a1", "a2" ("b0" ...) for each batch size: in -> hidden -> hidden -> out, each
 * multiplied by weights and added to. Only in, weights and out are bound. stdout: what was computed and what was to be,
 * the same however the graphs came. stderr: how they came, and why. Kernels: SUBJECT_IMAGE, tests/images/restore_kernels.
 *   CHAINS=2             two of them, with memory of their own
 *   SHARED=1             all batch sizes of a chain have the same hidden memory
 *   SHUFFLED=1           restored graphs of all sizes are launched by turns, layer by layer
 *   REFUSED=LABEL        the engine says that these graphs must not be materialized
 *   UNLABELLED=LABEL     it does not label them in a verification
 *   CARRIES=1            layer 1 adds to what it has left itself
 *   TABLE=1              layer 0 is launched at first, and the others alone from then on
 *   BACKWARD=1           the last graph is captured, and launched, first
 *   ROOM=BYTES           the hidden memory of each layer has so much room
 * and in a cold start alone:
 *   SMALLER=NAME         this buffer is bound with fewer bytes; LATE=1: again, once the first graph is there
 *   LIVE=LABEL           the engine does not ask for these graphs, but captures them
 *   HURRY=1              it does not wait for graphs; NAMELESS=1: nor does it label what it captures
 *   EARLY=1              it launches the last graph of a chain first
 *   SWAPS=1              under medusa-swap run, its memory goes and comes between two launches
 *   SLOW=LABEL/SIZE      it sleeps for 6 s before it asks for that graph
 */
/* clang-format on */
enum { WIDTH = 64, SIZES = 4, LAYERS = 3, MOST = 8, BYTES = MOST * WIDTH * 4 };
static const unsigned sizes[SIZES] = {1, 2, 4, MOST};

#define TRY(entry, ...)                                                                                                \
	do {                                                                                                           \
		CUresult result_ = md_cuda.entry(__VA_ARGS__);                                                         \
		if (result_ != CUDA_SUCCESS) {                                                                         \
			fprintf(stderr, "%s: %s\n", #entry, md_cuda_error_name(result_));                              \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

struct chain {
	char name[2];
	CUdeviceptr in, out, weights[LAYERS], hidden[SIZES][LAYERS - 1];
	CUgraphExec exec[SIZES][LAYERS];
};

static CUstream stream;
static CUmodule module;
static CUfunction scale_add, table_apply;

static const char *setting(const char *name)
{
	const char *value = getenv(name);
	return value ? value : "";
}

static bool is_on(const char *name)
{
	return *setting(name) != 0;
}

static bool cold(void)
{
	return medusa_mode() == MEDUSA_MODE_RESTORE;
}

/* late: only what the engine binds anew, and smaller. */
static void bind(const struct chain *chain, const char *what, CUdeviceptr address, enum medusa_role role, bool late)
{
	bool smaller;
	char name[32];
	snprintf(name, sizeof(name), "%.1s.%s", chain->name, what);
	smaller = cold() && !strcmp(setting("SMALLER"), name) && late == is_on("LATE");
	if ((!late || smaller) && medusa_bind(name, address, smaller ? BYTES / 2 : BYTES, role) != MEDUSA_OK)
		fprintf(stderr, "%s is not bound: %s\n", name, medusa_reason());
}

static void bind_all(const struct chain *chain, bool late)
{
	bind(chain, "in", chain->in, MEDUSA_BIND_INPUT, late);
	bind(chain, "out", chain->out, MEDUSA_BIND_OUTPUT, late);
	bind(chain, "weights0", chain->weights[0], MEDUSA_BIND_CONSTANT, late);
	bind(chain, "weights1", chain->weights[1], MEDUSA_BIND_CONSTANT, late);
	bind(chain, "weights2", chain->weights[2], MEDUSA_BIND_CONSTANT, late);
}

static void make_buffers(struct chain *chain)
{
	float values[MOST * WIDTH];
	for (int i = 0; i < MOST * WIDTH; i++)
		values[i] = 2;
	TRY(cuMemAlloc_v2, &chain->in, BYTES);
	TRY(cuMemAlloc_v2, &chain->out, BYTES);
	for (int l = 0; l < LAYERS; l++) {
		TRY(cuMemAlloc_v2, &chain->weights[l], BYTES);
		TRY(cuMemcpyHtoD_v2, chain->weights[l], values, BYTES);
	}
	TRY(cuMemsetD32_v2, chain->in, 0x3f800000, BYTES / 4);
	for (int s = 0; s < SIZES; s++)
		for (int l = 0; l < LAYERS - 1; l++) {
			if (s && is_on("SHARED"))
				chain->hidden[s][l] = chain->hidden[0][l];
			else
				TRY(cuMemAlloc_v2, &chain->hidden[s][l],
				    is_on("ROOM") ? strtoul(setting("ROOM"), NULL, 10) : BYTES);
		}
	TRY(cuCtxSynchronize);
	bind_all(chain, false);
}

static void record(const struct chain *chain, int s, int layer)
{
	CUdeviceptr from = layer ? chain->hidden[s][layer - 1] : chain->in;
	CUdeviceptr to = layer < LAYERS - 1 ? chain->hidden[s][layer] : chain->out, weights = chain->weights[layer];
	int32_t n = (int32_t)sizes[s] * WIDTH;
	float bias = (float)(layer + 1);
	struct {
		CUdeviceptr sum, table, in;
		int32_t n, noise;
	} all = {to, weights, from, n, 0};
	void *params[] = {&to, &weights, &from, &n, &bias}, *sums[] = {&all};
	if (layer == 1 && is_on("CARRIES"))
		TRY(cuLaunchKernel, table_apply, 1, 1, 1, 1, 1, 1, 0, stream, sums, NULL);
	else
		TRY(cuLaunchKernel, scale_add, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void swap(void)
{
	struct medusa_swap_report out = {.size = sizeof(out)};
	if (medusa_swap_out(NULL, NULL, &out) != MEDUSA_OK || medusa_swap_in(NULL, NULL, NULL) != MEDUSA_OK)
		fprintf(stderr, "the memory did not go and come: %s\n", medusa_reason());
	else
		fprintf(stderr, "out and in: %llu bytes, %llu of them discarded\n", (unsigned long long)out.bytes,
			(unsigned long long)out.discarded);
}

static void launch(const struct chain *chain, int s, int layer)
{
	TRY(cuGraphLaunch, chain->exec[s][layer], stream);
	if (cold() && is_on("SWAPS"))
		swap();
}

static void capture(struct chain *chain, int s, int layer, const char *label)
{
	CUgraph graph;
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	record(chain, s, layer);
	TRY(cuStreamEndCapture, stream, &graph);
	TRY(cuGraphInstantiateWithFlags, &chain->exec[s][layer], graph, 0);
	if (!strcmp(setting("REFUSED"), label))
		medusa_graph_refuse(chain->exec[s][layer], "the engine knows better");
	if ((strcmp(setting("UNLABELLED"), label) || medusa_mode() != MEDUSA_MODE_VERIFY) &&
	    !(cold() && is_on("NAMELESS")))
		if (medusa_graph_label(chain->exec[s][layer], label, sizes[s]) != MEDUSA_OK)
			fprintf(stderr, "%s/%u is not named: %s\n", label, sizes[s], medusa_reason());
	launch(chain, s, layer);
	TRY(cuStreamSynchronize, stream);
}

static bool take(struct chain *chain, int s, int layer, const char *label)
{
	uint64_t wait = cold() && is_on("HURRY") ? 0 : UINT64_MAX;
	char name[32];
	snprintf(name, sizeof(name), "%s/%u", label, sizes[s]);
	if (cold() && !strcmp(setting("SLOW"), name))
		sleep(6);
	if (cold() && !strcmp(setting("LIVE"), label)) {
		fprintf(stderr, "%s/%u is live: it is not asked for\n", label, sizes[s]);
		return false;
	}
	if (medusa_graph_get(label, sizes[s], wait, (void **)&chain->exec[s][layer]) == MEDUSA_OK) {
		fprintf(stderr, "%s/%u came back\n", label, sizes[s]);
		return true;
	}
	fprintf(stderr, "%s/%u is live: %s\n", label, sizes[s], medusa_reason());
	return false;
}

static void get(struct chain *chain, int s, int layer)
{
	char label[16];
	snprintf(label, sizeof(label), "%.1s%d", chain->name, layer);
	if (!take(chain, s, layer, label))
		capture(chain, s, layer, label);
	else if (is_on("LATE") && !s && !layer)
		bind_all(chain, true);
}

static void get_all(struct chain *chain)
{
	for (int s = 0; s < SIZES; s++)
		for (int l = 0; l < LAYERS; l++)
			get(chain, s, is_on("BACKWARD") ? LAYERS - 1 - l : l);
}

/* ---- serving ---- */

static void set_input(const struct chain *chain, float value)
{
	unsigned word;
	memcpy(&word, &value, sizeof(word));
	TRY(cuMemsetD32_v2, chain->in, word, MOST * WIDTH);
	TRY(cuCtxSynchronize);
}

static void check(const struct chain *chain, int s, float value)
{
	float out[2], wanted = 2 * (2 * (2 * value + 1) + 2) + 3;
	TRY(cuStreamSynchronize, stream);
	TRY(cuMemcpyDtoH_v2, &out[0], chain->out, sizeof(float));
	TRY(cuMemcpyDtoH_v2, &out[1], chain->out + (sizes[s] * WIDTH - 1) * sizeof(float), sizeof(float));
	if (is_on("CARRIES")) /* nobody knows, but it is the same in every start */
		wanted = out[0];
	printf("%s/%u: out %g, wanted %g\n", chain->name, sizes[s], out[0] == out[1] ? out[0] : -1, wanted);
}

static void serve(const struct chain *chain, int s, float value)
{
	static float first;
	set_input(chain, value);
	first = first ? first : value;
	for (int l = is_on("TABLE") && value != first; l < LAYERS; l++)
		launch(chain, s, l);
	check(chain, s, is_on("TABLE") ? first : value);
}

/* Layer by layer, the sizes one after the other; with memory of their own they do not disturb each other. */
static void serve_shuffled(const struct chain *chain, float value)
{
	set_input(chain, value);
	for (int l = 0; l < LAYERS - 1; l++)
		for (int s = SIZES; s-- > 0;)
			launch(chain, s, l);
	for (int s = SIZES; s-- > 0;) {
		launch(chain, s, LAYERS - 1);
		check(chain, s, value);
	}
}

static void run(struct chain *chains, int count)
{
	for (int c = 0; c < count && cold() && is_on("EARLY"); c++)
		launch(&chains[c], 0, LAYERS - 1);
	for (int turn = 1; turn < 4; turn++)
		for (int c = 0; c < count; c++) {
			float value = (float)(100 * turn + c);
			if (cold() && is_on("SHUFFLED") && !is_on("SHARED"))
				serve_shuffled(&chains[c], value);
			for (int s = SIZES; s-- > 0 && (!cold() || !is_on("SHUFFLED") || is_on("SHARED"));)
				serve(&chains[c], is_on("TABLE") ? 0 : s, value);
		}
}

static void print_stats(void)
{
	struct medusa_stats stats = {.size = sizeof(stats)};
	if (medusa_stats_read(&stats) == MEDUSA_OK)
		fprintf(stderr, "stats: %u restored + %u refused of %u, %llu nodes\n", stats.graphs_restored,
			stats.graphs_refused, stats.graphs_total, (unsigned long long)stats.nodes);
}

int main(void)
{
	static struct chain chains[2];
	struct md_error err = {0};
	CUcontext context;
	int count = is_on("CHAINS") ? 2 : 1;
	if (md_cuda_load(&err) != MD_OK || md_cuda.cuInit(0) || md_cuda.cuDevicePrimaryCtxRetain(&context, 0) ||
	    md_cuda.cuCtxSetCurrent(context) || md_cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) {
		fprintf(stderr, "no device: %s\n", err.message);
		return 1;
	}
	medusa_fingerprint_add("subject", "group");
	TRY(cuModuleLoadData, &module, read_file(setting("SUBJECT_IMAGE")));
	TRY(cuModuleGetFunction, &scale_add, module, "scale_add");
	TRY(cuModuleGetFunction, &table_apply, module, "table_apply");
	for (int c = 0; c < count; c++) {
		snprintf(chains[c].name, sizeof(chains[c].name), "%c", 'a' + c);
		make_buffers(&chains[c]);
	}
	for (int c = 0; c < count; c++)
		get_all(&chains[c]);
	run(chains, count);
	if (cold())
		print_stats();
	medusa_mark("ready");
	return 0;
}
