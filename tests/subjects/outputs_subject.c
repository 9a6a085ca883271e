/* SPDX-License-Identifier: Apache-2.0 */
/* An engine whose outputs lie in memory of its graphs, with notes and facts, in one process or in workers. argv[1]:
 * image. */
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "medusa/medusa.h"
#include "tests/subjects/image_file.h"
#include "tests/subjects/subject.h"

/*
 * stdout: what it computed, the same however it came by its graphs. stderr: how it came by them. Environment:
 *   SUBJECT_LABEL=TEXT   of its graphs ("step")
 *   SUBJECT_ENGINE=V     the value of fact "engine" ("1")
 *   SUBJECT_CODE=V       of fact "code"; empty: it is not said
 *   SUBJECT_SAYS_AFTER=1 facts are said once the artifact is open
 *   SUBJECT_MORE=V       of a third fact, "more"
 *   SUBJECT_LATE=V       what fact "engine" is said to be once the first graph was asked for
 *   SUBJECT_REFUSE=WHY   of the graph of batch 2, before it is labelled; SUBJECT_REFUSE_LATE: after it was replayed
 *   SUBJECT_SHORT=1      output 0 is said to be four bytes shorter
 *   SUBJECT_FEW=1        output 1 is not said
 *   SUBJECT_HELPER=1     a graph is captured and replayed that is never labelled
 *   SUBJECT_LOOKS=1      it looks at the device and ends; SUBJECT_STARTS=1: it starts another one that does so
 *   SUBJECT_WAITS=FILE   it makes that file once it has its graphs, and waits until it is gone
 *   SUBJECT_WORKER=fork|spawn|twins   the work is done by a child; twins: by two at the same time
 *   SUBJECT_KILLS=9|15   the child is complete after its replays, says so, and is killed by this signal once the parent
 *                        has heard of it; SUBJECT_SERVES=1: the parent never ends by itself; SUBJECT_MARK=NAME
 *                        SUBJECT_EARLY=1: it says so before its replays
 *   SUBJECT_READY=FD     the parent's pipe, which it sets for its worker: there the worker says that it is complete
 *   SUBJECT_OPEN=1       in a verification, another stream captures while the graph of batch 3 is labelled, and from then on
 */
enum { GRAPHS = 3, WIDTH = 64, FLOATS = GRAPHS * WIDTH, BYTES = FLOATS * 4, REPLAYS = 5 };
/* Graph memory: what is computed in between, then two outputs. The third one is a view of bound memory. */
enum { POOL_BYTES = 8192, AT_FIRST = 1024, AT_SECOND = 4096, OUTPUTS = 3 };

static CUdeviceptr weights, input, state, pool, table;
static CUfunction scale_add, table_apply;
static CUstream stream;
static CUmodule module;
static void *image;

struct graph {
	CUgraphExec exec;
	CUdeviceptr outputs[OUTPUTS];
	size_t sizes[OUTPUTS];
};

static const char *setting(const char *name, const char *otherwise)
{
	const char *value = getenv(name);
	return value ? value : otherwise;
}

static const char *label(void)
{
	return setting("SUBJECT_LABEL", "step");
}

/* ---- a live graph ---- */

static void warm_up(void)
{
	float values[16];
	if (pool)
		return;
	TRY(cuModuleLoadData, &module, image);
	TRY(cuModuleGetFunction, &scale_add, module, "scale_add");
	TRY(cuModuleGetFunction, &table_apply, module, "table_apply");
	TRY(cuMemAlloc_v2, &pool, POOL_BYTES);
	TRY(cuMemAlloc_v2, &table, sizeof(values));
	for (int i = 0; i < 16; i++)
		values[i] = 1.0f / (float)(1 + i);
	TRY(cuMemcpyHtoD_v2, table, values, sizeof(values));
}

/* first = table * in; second = weights * first + bias; state = second, of which the third output is the last row */
static void enqueue(unsigned batch)
{
	int32_t n = (int32_t)(batch * WIDTH);
	float bias = 0.25f;
	CUdeviceptr first = pool + AT_FIRST, second = pool + AT_SECOND;
	struct {
		CUdeviceptr out, table, in;
		int32_t n, noise;
	} packed = {first, table, input, n, (int32_t)getpid()};
	size_t size = sizeof(packed);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			 CU_LAUNCH_PARAM_END};
	void *params[] = {&second, &weights, &first, &n, &bias};
	TRY(cuMemsetD32Async, first, 0, batch * WIDTH, stream);
	TRY(cuLaunchKernel, table_apply, 1, 1, 1, 32, 1, 1, 0, stream, NULL, extra);
	TRY(cuLaunchKernel, scale_add, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
	TRY(cuMemcpyDtoDAsync_v2, state, second, batch * WIDTH * 4u, stream);
}

static void taken(int result)
{
	if (result != MEDUSA_OK)
		fprintf(stderr, "not taken: %d %s\n", result, medusa_reason());
}

static void say_outputs(struct graph *graph, unsigned batch)
{
	char note[64];
	size_t size = batch * WIDTH * 4u;
	*graph = (struct graph){.exec = graph->exec,
				.outputs = {pool + AT_FIRST, pool + AT_SECOND, state + size - WIDTH * 4u},
				.sizes = {size, size, WIDTH * 4u}};
	for (unsigned i = 0; i < OUTPUTS; i++)
		if (i != 1 || !getenv("SUBJECT_FEW"))
			taken(medusa_graph_output(NULL, i, graph->outputs[i],
						  graph->sizes[i] - (i == 0 && getenv("SUBJECT_SHORT") ? 4u : 0u)));
	snprintf(note, sizeof(note), "rows %u of %d floats", batch, (int)WIDTH);
	taken(medusa_graph_note(NULL, note, strlen(note)));
}

/* As an adapter does that wants to know where its library keeps random state: replayed once, and kept. */
static void capture_helper(void)
{
	CUgraphExec exec;
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	TRY(cuMemsetD32Async, pool, (unsigned)getpid(), 1, stream);
	exec = end_capture(stream);
	TRY(cuGraphLaunch, exec, stream);
	TRY(cuStreamSynchronize, stream);
}

static void leave_a_capture_open(void)
{
	CUstream other;
	TRY(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
	TRY(cuStreamBeginCapture_v2, other, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static void capture(struct graph *graph, unsigned batch)
{
	warm_up();
	if (batch == 1 && getenv("SUBJECT_HELPER"))
		capture_helper();
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	enqueue(batch);
	graph->exec = end_capture(stream);
	say_outputs(graph, batch);
	if (batch == 2 && getenv("SUBJECT_REFUSE"))
		taken(medusa_graph_refuse(NULL, getenv("SUBJECT_REFUSE")));
	if (batch == GRAPHS && getenv("SUBJECT_OPEN") && medusa_mode() == MEDUSA_MODE_VERIFY)
		leave_a_capture_open();
	taken(medusa_graph_label(NULL, label(), batch));
}

/* ---- a restored one ---- */

static void take_outputs(struct graph *graph, unsigned batch)
{
	const void *note = NULL;
	size_t size = 0;
	for (unsigned i = 0; i < OUTPUTS; i++)
		if (medusa_graph_output_get(label(), batch, i, &graph->outputs[i], &graph->sizes[i]) != MEDUSA_OK) {
			fprintf(stderr, "output %u: %s\n", i, medusa_reason());
			exit(4);
		}
	if (medusa_graph_note_get(label(), batch, &note, &size) != MEDUSA_OK)
		exit(5);
	fprintf(stderr, "note %u: %.*s\n", batch, (int)size, note ? (const char *)note : "");
	fprintf(stderr, "no output %u: %d %s\n", batch,
		medusa_graph_output_get(label(), batch, OUTPUTS, &graph->outputs[0], &graph->sizes[0]),
		medusa_reason());
}

static void make_graph(struct graph *graph, unsigned batch)
{
	CUdeviceptr address;
	size_t size;
	void *exec = NULL;
	int result = medusa_graph_get(label(), batch, UINT64_MAX, &exec);
	fprintf(stderr, "graph %u %s %d %s\n", batch, result == MEDUSA_OK ? "restored" : "live", result,
		result == MEDUSA_OK ? "" : medusa_reason());
	graph->exec = exec;
	if (result == MEDUSA_OK) {
		take_outputs(graph, batch);
		return;
	}
	fprintf(stderr, "outputs of a live graph: %d\n", medusa_graph_output_get(label(), batch, 0, &address, &size));
	capture(graph, batch);
}

static void print_output(const struct graph *graph, unsigned batch, unsigned index)
{
	float values[FLOATS];
	uint64_t sum = 1469598103934665603u;
	if (graph->sizes[index] > sizeof(values))
		exit(6);
	TRY(cuMemcpyDtoH_v2, values, graph->outputs[index], graph->sizes[index]);
	for (size_t i = 0; i < graph->sizes[index]; i++)
		sum = (sum ^ ((uint8_t *)values)[i]) * 1099511628211u;
	printf("%u output %u: %zu bytes %016" PRIx64 " %.6g\n", batch, index, graph->sizes[index], sum,
	       (double)values[graph->sizes[index] / 4 - 1]);
}

static void replay(const struct graph *graph, unsigned batch)
{
	for (unsigned turn = 0; turn < REPLAYS; turn++) {
		float values[FLOATS];
		for (unsigned i = 0; i < FLOATS; i++)
			values[i] = (float)((i * 31u + turn * 17u + batch) % 101u);
		TRY(cuMemcpyHtoD_v2, input, values, BYTES);
		TRY(cuCtxSynchronize); /* copies from pageable memory, for which the stream does not wait */
		TRY(cuGraphLaunch, graph->exec, stream);
		TRY(cuStreamSynchronize, stream);
		for (unsigned i = 0; i < OUTPUTS; i++)
			print_output(graph, batch, i);
	}
}

/* ---- a life ---- */

static unsigned mapped_images(void)
{
	MD_AUTO_FILE FILE *maps = fopen("/proc/self/maps", "re");
	char line[4352];
	unsigned found = 0;
	while (maps && fgets(line, sizeof(line), maps))
		found += strstr(line, "hostcuda-image") && strstr(line, "r-xp");
	return found;
}

static void set_up(void)
{
	float values[FLOATS];
	TRY(cuMemAlloc_v2, &weights, BYTES);
	TRY(cuMemAlloc_v2, &input, BYTES);
	TRY(cuMemAlloc_v2, &state, BYTES);
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	for (unsigned i = 0; i < FLOATS; i++)
		values[i] = 0.5f + (float)(i % 7u);
	TRY(cuMemcpyHtoD_v2, weights, values, BYTES);
	TRY(cuMemsetD8_v2, state, 0, BYTES);
	medusa_bind("weights", weights, BYTES, MEDUSA_BIND_CONSTANT);
	medusa_bind("input", input, BYTES, MEDUSA_BIND_INPUT);
	medusa_bind("state", state, BYTES, MEDUSA_BIND_STATE);
}

/*
 * Everything of the engine's own goes; what is held then is the library's. hostcuda keeps nothing for itself. What is
 * free when the engine begins says nothing: the library may have begun before.
 */
static void tear_down(const struct graph *graphs)
{
	CUdeviceptr all[] = {weights, input, state, pool, table};
	CUdeviceptr address = 0;
	size_t now = 0, total = 0, size = 0;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i])
			TRY(cuMemFree_v2, all[i]);
	for (unsigned batch = 1; module && batch <= GRAPHS; batch++)
		if (graphs[batch].sizes[0] && graphs[batch].outputs[0] == pool + AT_FIRST)
			TRY(cuGraphExecDestroy, graphs[batch].exec);
	if (module)
		TRY(cuModuleUnload, module);
	TRY(cuMemGetInfo_v2, &now, &total);
	fprintf(stderr, "held=%zu images=%u\n", total - now, mapped_images());
	medusa_release();
	TRY(cuMemGetInfo_v2, &now, &total);
	fprintf(stderr, "held after release=%zu images=%u\n", total - now, mapped_images());
	fprintf(stderr, "output after release: %d\n", medusa_graph_output_get(label(), 1, 0, &address, &size));
}

/* A restore has planned its graphs: it would say that a fact is wrong now, and not later. */
static void wait_until_open(void)
{
	struct medusa_stats stats = {.size = sizeof(stats)};
	for (int i = 0; i < 30000 && medusa_stats_read(&stats) == MEDUSA_OK && !stats.graphs_total; i++)
		usleep(10000);
}

static void look(void)
{
	fflush(NULL);
	if (system("SUBJECT_LOOKS=1 SUBJECT_STARTS= /proc/$PPID/exe none") != 0)
		exit(7);
}

static void wait_while_there(const char *path)
{
	FILE *file = fopen(path, "w");
	if (!file || fclose(file))
		exit(8);
	while (access(path, F_OK) == 0)
		usleep(10000);
}

/* As an engine core that serves from now on: somebody ends it. */
static void say_ready(void)
{
	medusa_mark(setting("SUBJECT_MARK", "complete"));
	fflush(NULL);
	if (write(atoi(getenv("SUBJECT_READY")), "r", 1) != 1)
		exit(9);
	for (;;)
		pause();
}

static int live(const char *path)
{
	struct graph graphs[GRAPHS + 1] = {0};
	load_driver();
	open_context();
	if (*setting("SUBJECT_LOOKS", ""))
		return 0;
	image = read_file(path);
	if (getenv("SUBJECT_SAYS_AFTER"))
		wait_until_open();
	medusa_fingerprint_add("engine", setting("SUBJECT_ENGINE", "1"));
	if (*setting("SUBJECT_CODE", "abc"))
		medusa_fingerprint_add("code", setting("SUBJECT_CODE", "abc"));
	if (getenv("SUBJECT_MORE"))
		medusa_fingerprint_add("more", getenv("SUBJECT_MORE"));
	set_up();
	for (unsigned batch = 1; batch <= GRAPHS; batch++) {
		make_graph(&graphs[batch], batch);
		if (batch == 1 && getenv("SUBJECT_LATE"))
			fprintf(stderr, "late: %d %s\n", medusa_fingerprint_add("engine", getenv("SUBJECT_LATE")),
				medusa_reason());
	}
	if (*setting("SUBJECT_STARTS", ""))
		look();
	if (getenv("SUBJECT_WAITS"))
		wait_while_there(getenv("SUBJECT_WAITS"));
	if (getenv("SUBJECT_EARLY"))
		say_ready();
	for (unsigned batch = 1; batch <= GRAPHS; batch++) {
		replay(&graphs[batch], batch);
		if (batch == 2 && getenv("SUBJECT_REFUSE_LATE"))
			medusa_graph_refuse(graphs[batch].exec, getenv("SUBJECT_REFUSE_LATE"));
	}
	if (getenv("SUBJECT_READY"))
		say_ready();
	tear_down(graphs);
	free(image);
	return 0;
}

/* ---- workers: the parent has not touched CUDA ---- */

static pid_t start_worker(char **argv, bool spawned)
{
	fflush(NULL);
	pid_t child = fork();
	if (child)
		return child;
	if (!spawned)
		exit(live(argv[1]));
	unsetenv("SUBJECT_WORKER");
	execv("/proc/self/exe", argv);
	_exit(127);
}

static int wait_for(pid_t child)
{
	int status = 0;
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

/* As vLLM's server does with its engine core, which it starts before it uses the device itself. */
static int kill_when_ready(char **argv, bool spawned, int number)
{
	int ends[2], status = 0;
	char text[16], byte;
	if (pipe(ends))
		return 10;
	snprintf(text, sizeof(text), "%d", ends[1]);
	setenv("SUBJECT_READY", text, 1);
	pid_t child = start_worker(argv, spawned);
	close(ends[1]);
	if (child <= 0 || read(ends[0], &byte, 1) != 1)
		return 11;
	while (getenv("SUBJECT_SERVES"))
		pause();
	kill(child, number);
	return waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == number ? 0 : 12;
}

int main(int argc, char **argv)
{
	const char *worker = getenv("SUBJECT_WORKER");
	const unsigned wanted[] = {3, 1};
	if (argc < 2)
		return 2;
	if (!worker)
		return live(argv[1]);
	fprintf(stderr, "mode %d\n", (int)medusa_mode());
	medusa_graph_want(label(), wanted, 2);
	medusa_fingerprint_add("launcher", "a parent");
	medusa_stage("launch", 1000000);
	if (getenv("SUBJECT_KILLS"))
		return kill_when_ready(argv, !strcmp(worker, "spawn"), atoi(getenv("SUBJECT_KILLS")));
	pid_t first = start_worker(argv, !strcmp(worker, "spawn"));
	int result = strcmp(worker, "twins") ? 0 : wait_for(start_worker(argv, false));
	int other = wait_for(first);
	return result ? result : other;
}
