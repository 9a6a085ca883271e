/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of an engine that several processes are (WORLD_SIZE, or two). argv: the engine's image, the collective library's image, the rank, where
 * the ranks meet. stdout: what was computed, the same however it came by its graphs; stderr: how it came by them.
 *
 * With "-" in place of where they meet, ranks do not communicate, there may be any number of them, and each has four
 * graphs local/1 ... local/4. SUBJECT_AT=BATCH=ACTION says what is done in place of asking for one of these: die, stop (the
 * process stops, and goes on when it is continued), skip (neither ask nor capture), take (capture without asking), late
 * (ask 3 s later), child (a child asks for it first), close (all descriptors), release, exit, none (do not wait).
 * SUBJECT_REFUSES=1: the engine refuses its graphs when it has captured them. A rank of the form forkN: the process forks
 * N ranks, which set RANK and WORLD_SIZE for themselves, and waits for them.
 * SUBJECT_HOLE: what lies in a struct's word that no kernel reads, in the graph `holed`: other (an address of the library's
 * memory, elsewhere in each run; in a launch before it a small number), same (at the same place in each run), first (as
 * "other", but no launch comes before it). Without it, zero.
 * SUBJECT_LAUNCH=KIND=ACTION: before the first launch of that graph the process dies (die), sleeps for 4 s (late), stops until
 * it is continued (stop), or has N ms to live (N); "say" and "stop" say which process it is. SUBJECT_ASK=KIND=ACTION: before it is asked for.
 * SUBJECT_UNSTEADY: a number in the graph `pooled` is another one in the second capture.
 * SUBJECT_COMMUNICATORS: two (the graph `pooled` uses both), exchanged (likewise, and they are made in the other order), again (one
 * is made and closed before the one that is used), between (it is closed and made again before `pooled` is asked for), later (another
 * one is made then).
 * SUBJECT_NAMES=KIND=NAME: this graph has another label; without NAME it has none, and is not asked for.
 * SUBJECT_BINDS: state (what kernels of the library are handed is bound), list (the table of the graph `listed`).
 * SUBJECT_READS: own, other (the graph `listed` reads memory that other ranks write, or this one writes for another), bound (own,
 * and that is bound).
 * SUBJECT_SHARES=KIND: the graph's memory (of `pooled`) is handed to other processes when it has been captured, as vLLM registers buffers.
 * SUBJECT_DEVICES: own (each rank has the device of its number), other (ranks have the devices in the other order).
 * SUBJECT_KV: the rank asks for the KV capacity first, and measures it by a forward that communicates, unless this is "alone".
 * SUBJECT_TAKEN=BYTES: so much memory is taken in a restore and a verification, as if by another process.
 * SUBJECT_SHIFTED=NAME=VALUE: this variable is set in the second capture alone.
 * SUBJECT_TOGETHER=PREFIX=RANKS: a rank that is done waits for the others, as a job's ranks do: for files PREFIX.RANK.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "medusa/medusa.h"
#include "tests/subjects/image_file.h"
#include "tests/subjects/subject.h" /* it says which of the driver's names cuda.h declares */

#include "tests/collective/collective.h"
#include "tests/collective/runtime_alloc.h"

enum { N = 64, BYTES = N * 4, REPLAYS = 3 };

static CUdeviceptr in, out, temporary, table, list, pool, weights;
static unsigned rank;
static CUfunction step, range;
static CUstream stream;
static struct collective *ranks, *second;

static void add(CUdeviceptr to, CUdeviceptr from, float factor)
{
	int32_t n = N;
	void *params[] = {&to, &from, &factor, &n};
	TRY(cuLaunchKernel, step, 4, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

static void sum_by(struct collective *by, CUdeviceptr data)
{
	if (collective_sum(by, data, N, stream) != CUDA_SUCCESS)
		exit(1);
}

static void sum(CUdeviceptr data)
{
	sum_by(ranks, data);
}

/* What graphs find there is saved with them, though nobody binds it. */
static void fill_tables(void)
{
	float values[N];
	for (unsigned i = 0; i < N; i++)
		values[i] = (float)(i % 5);
	TRY(cuMemcpyHtoD_v2, table, values, BYTES);
	for (unsigned i = 0; i < N; i++)
		values[i] = (float)((i + 3 * rank) % 7);
	TRY(cuMemcpyHtoD_v2, weights, values, BYTES);
}

/* Memory of the graph's own, and no other rank. */
static void local(void)
{
	TRY(cuMemsetD32Async, temporary, 0, N, stream);
	add(temporary, in, 2);
	add(out, temporary, 1);
}

/* All of its memory is bound, or the collective library's. */
static void reduced(void)
{
	add(out, in, 3);
	sum(out);
}

/* Both; and a test of one rank would take other replays than that of the other. */
static void deep(void)
{
	if (rank)
		add(out, table, 2);
	TRY(cuMemsetD32Async, temporary, 0, N, stream);
	add(temporary, in, 2);
	sum(temporary);
	add(out, temporary, 1);
}

/* Memory of the graph's own that all ranks have alike, with contents that must be saved, on both sides of a sum. */
static void pooled(void)
{
	TRY(cuMemsetD32Async, pool, 0, N, stream);
	add(pool, in, getenv("SUBJECT_UNSTEADY") && getenv("MEDUSA_SHIFT") ? 3 : 2);
	add(pool, weights, 1);
	sum(pool);
	add(pool, weights, 4);
	sum_by(second ? second : ranks, pool);
	add(out, pool, 1);
}

/* The graph's memory leads to the library's. */
static void listed(void)
{
	add(out, list, 1);
}

/* The struct of the kernel nodes_range; nothing reads `hole`. */
static void add_range(uint64_t hole)
{
	struct {
		int32_t odd, rows;
		CUdeviceptr out;
		uint64_t hole;
		CUdeviceptr in, end;
	} all = {0, N, out, hole, in, in + BYTES};
	void *params[] = {&all};
	TRY(cuLaunchKernel, range, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void holed(void)
{
	const char *how = getenv("SUBJECT_HOLE");
	bool shifted = getenv("MEDUSA_SHIFT") != NULL, third = medusa_mode() == MEDUSA_MODE_VERIFY;
	uint64_t place = !how || !strcmp(how, "same") ? 8 : shifted ? 16 : third ? 24 : 32;
	add_range(how ? collective_memory(ranks) + place : 0);
}

static const struct {
	const char *name;
	void (*enqueue)(void);
} kinds[] = {{"local", local},   {"reduced", reduced}, {"deep", deep},
	     {"listed", listed}, {"holed", holed},     {"pooled", pooled}};

static const char *label_of(unsigned kind)
{
	const char *said = getenv("SUBJECT_NAMES");
	size_t length = strlen(kinds[kind].name);
	if (!said || strncmp(said, kinds[kind].name, length) || said[length] != '=')
		return kinds[kind].name;
	return said + length + 1;
}

static CUgraphExec captured_live(unsigned kind, unsigned batch)
{
	TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	kinds[kind].enqueue();
	CUgraphExec captured = end_capture(stream);
	if (*label_of(kind))
		medusa_graph_label(captured, label_of(kind), batch);
	const char *shares = getenv("SUBJECT_SHARES");
	CUipcMemHandle handle;
	if (shares && !strcmp(shares, kinds[kind].name))
		TRY(cuIpcGetMemHandle, &handle, pool);
	if (getenv("SUBJECT_REFUSES"))
		medusa_graph_refuse(captured, "the test wants it");
	return captured;
}

static void before(const char *what, unsigned kind)
{
	const char *said = getenv(what), *name = kinds[kind].name;
	size_t length = strlen(name);
	if (!said || strncmp(said, name, length) || said[length] != '=')
		return;
	said += length + 1;
	if (!strcmp(said, "die"))
		raise(SIGKILL);
	if (!strcmp(said, "stop") || !strcmp(said, "say"))
		fprintf(stderr, "rank %u is process %d\n", rank, (int)getpid());
	if (!strcmp(said, "stop"))
		raise(SIGSTOP);
	else if (!strcmp(said, "late"))
		sleep(4);
	else if (strcmp(said, "say") != 0)
		ualarm((useconds_t)atoi(said) * 1000, 0); /* and nobody handles that signal */
}

static CUgraphExec made(unsigned kind, unsigned batch, uint64_t timeout_ns)
{
	void *exec = NULL;
	char name[64];
	snprintf(name, sizeof(name), batch == 1 ? "%s" : "%s/%u", kinds[kind].name, batch);
	before("SUBJECT_ASK", kind);
	if (*label_of(kind) && medusa_graph_get(label_of(kind), batch, timeout_ns, &exec) == MEDUSA_OK) {
		fprintf(stderr, "%s restored\n", name);
		return exec;
	}
	fprintf(stderr, "%s live: %s\n", name, medusa_reason());
	return captured_live(kind, batch);
}

/* Graphs and live calls take turns. */
static void replay(unsigned kind, unsigned batch, CUgraphExec exec)
{
	float values[N];
	uint64_t hash = 1469598103934665603u;
	for (unsigned turn = 0; turn < REPLAYS; turn++) {
		for (unsigned i = 0; i < N; i++)
			values[i] = (float)((i * 7 + turn * 5 + kind + batch + 3 * rank) % 31);
		TRY(cuMemcpyHtoD_v2, in, values, BYTES);
		TRY(cuMemsetD8_v2, out, 0, BYTES);
		TRY(cuCtxSynchronize);
		if (!turn)
			before("SUBJECT_LAUNCH", kind);
		TRY(cuGraphLaunch, exec, stream);
		if (ranks)
			sum(out);
		TRY(cuStreamSynchronize, stream);
		TRY(cuMemcpyDtoH_v2, values, out, BYTES);
		for (unsigned i = 0; i < BYTES; i++)
			hash = (hash ^ ((uint8_t *)values)[i]) * 1099511628211u;
	}
	printf("%s/%u %016" PRIx64 " %g\n", kinds[kind].name, batch, hash, (double)values[N - 1]);
}

/* ---- ranks that do not communicate ---- */

static void ask_in_child(unsigned batch)
{
	pid_t child = fork();
	if (!child) {
		void *exec;
		_exit(medusa_graph_get("local", batch, UINT64_MAX, &exec) == MEDUSA_OK);
	}
	int status;
	waitpid(child, &status, 0);
	if (status)
		fprintf(stderr, "the child has got a graph\n");
}

static void arrive(int waits)
{
	const char *together = getenv("SUBJECT_TOGETHER"), *count = together ? strrchr(together, '=') : NULL;
	char path[512];
	for (unsigned i = 0; count && i < (unsigned)atoi(count + 1); i++) {
		unsigned other = (rank + i) % (unsigned)atoi(count + 1);
		snprintf(path, sizeof(path), "%.*s.%u", (int)(count - together), together, other);
		if (!i)
			fclose(fopen(path, "w"));
		for (unsigned turn = 0; waits && turn < 2000 && access(path, F_OK); turn++)
			usleep(10000);
	}
}

/* False: there is no such graph. */
static int act(const char *action, unsigned batch)
{
	if (!strcmp(action, "die") || !strcmp(action, "exit"))
		arrive(0);
	if (!strcmp(action, "die"))
		raise(SIGKILL);
	if (!strcmp(action, "stop"))
		raise(SIGSTOP);
	if (!strcmp(action, "exit"))
		exit(0);
	if (!strcmp(action, "late"))
		sleep(3);
	if (!strcmp(action, "release"))
		medusa_release();
	if (!strcmp(action, "child"))
		ask_in_child(batch);
	if (!strcmp(action, "close"))
		for (int fd = 3; fd < 1024; fd++)
			close(fd);
	if (!strcmp(action, "take"))
		replay(0, batch, captured_live(0, batch));
	return strcmp(action, "take") && strcmp(action, "skip");
}

static void run_apart(void)
{
	const char *at = getenv("SUBJECT_AT");
	for (unsigned batch = 1; batch <= 4; batch++) {
		const char *action = at && (unsigned)(at[0] - '0') == batch ? at + 2 : "";
		if (act(action, batch))
			replay(0, batch, made(0, batch, strcmp(action, "none") ? UINT64_MAX : 0));
	}
	arrive(1);
}

static unsigned rank_count(void)
{
	const char *all = getenv("WORLD_SIZE");
	return all ? (unsigned)atoi(all) : 2;
}

static struct collective *opened(const char *socket_path, const void *image)
{
	struct collective *with = collective_open(socket_path, (int)rank, (int)rank_count(), image);
	if (!with)
		exit(1);
	return with;
}

static void open_communicators(const char *socket_path, const void *image)
{
	const char *how = getenv("SUBJECT_COMMUNICATORS");
	struct collective *first = opened(socket_path, image);
	if (how && !strcmp(how, "again")) {
		collective_close(first);
		first = opened(socket_path, image);
	}
	if (how && (!strcmp(how, "two") || !strcmp(how, "exchanged")))
		second = opened(socket_path, image);
	ranks = first;
	if (how && !strcmp(how, "exchanged")) {
		ranks = second;
		second = first;
	}
}

static int measure(void *unused)
{
	CUdeviceptr activations;
	(void)unused;
	TRY(cuMemAlloc_v2, &activations, BYTES);
	TRY(cuMemsetD8_v2, activations, 0, BYTES);
	TRY(cuCtxSynchronize);
	if (strcmp(getenv("SUBJECT_KV"), "alone") != 0)
		sum(activations);
	TRY(cuStreamSynchronize, stream);
	TRY(cuMemFree_v2, activations);
	return 0;
}

static void ask_capacity(void)
{
	const char *taken = getenv("SUBJECT_TAKEN");
	struct medusa_kv_request request = {
	    .size = sizeof(request), .key = "ranks", .block_bytes = 1 << 20, .utilization = 0.8, .profile = measure};
	struct medusa_kv kv = {.size = sizeof(kv)};
	CUdeviceptr other;
	if (taken && medusa_mode() != MEDUSA_MODE_CAPTURE)
		TRY(cuMemAlloc_v2, &other, strtoull(taken, NULL, 10));
	if (medusa_kv_capacity(&request, &kv) != MEDUSA_OK)
		fprintf(stderr, "no capacity: %s\n", medusa_reason());
	else
		fprintf(stderr, "capacity %s: %s\n", kv.from_profile ? "answered" : "measured", medusa_reason());
}

static void open_again(const char *socket_path, const void *image)
{
	TRY(cuCtxSynchronize);
	collective_close(ranks);
	ranks = opened(socket_path, image);
}

static void run_together(const char *socket_path, const void *image)
{
	const char *how = getenv("SUBJECT_COMMUNICATORS");
	struct collective *another = NULL;
	open_communicators(socket_path, image);
	if (getenv("SUBJECT_KV") && *getenv("SUBJECT_KV"))
		ask_capacity();
	CUdeviceptr leads_to = collective_memory(ranks);
	TRY(cuMemAlloc_v2, &list, BYTES + sizeof(leads_to));
	TRY(cuMemsetD8_v2, list, 0, BYTES);
	TRY(cuMemcpyHtoD_v2, list + BYTES, &leads_to, sizeof(leads_to));
	const char *binds = getenv("SUBJECT_BINDS");
	if (binds && !strcmp(binds, "state"))
		medusa_bind("state", collective_memory(ranks), collective_memory_bytes(), MEDUSA_BIND_STATE);
	if (binds && !strcmp(binds, "list"))
		medusa_bind("list", list, BYTES + sizeof(leads_to), MEDUSA_BIND_INPUT);
	const char *reads = getenv("SUBJECT_READS");
	if (reads)
		list = collective_inbox(ranks, (int)(strcmp(reads, "other") ? rank : (rank + 1) % rank_count()));
	if (reads && !strcmp(reads, "bound"))
		medusa_bind("inbox", list, BYTES, MEDUSA_BIND_INPUT);
	if (getenv("SUBJECT_HOLE") && strcmp(getenv("SUBJECT_HOLE"), "first")) {
		add_range(5);
		TRY(cuStreamSynchronize, stream);
	}
	for (unsigned kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
		if (how && !strcmp(how, "between") && kinds[kind].enqueue == pooled)
			open_again(socket_path, image);
		if (how && !strcmp(how, "later") && kinds[kind].enqueue == pooled)
			another = opened(socket_path, image);
		replay(kind, 1, made(kind, 1, UINT64_MAX));
	}
	if (second)
		collective_close(second);
	if (another)
		collective_close(another);
	collective_close(ranks);
}

/* Returns in each rank; the process itself ends when they have. */
static void fork_ranks(const char *count)
{
	int failed = 0, status;
	setenv("WORLD_SIZE", count, 1);
	setenv("MASTER_PORT", "29500", 1);
	for (rank = 0; rank < (unsigned)atoi(count); rank++) {
		char number[12];
		snprintf(number, sizeof(number), "%u", rank);
		setenv("RANK", number, 1);
		if (!fork())
			return;
	}
	while (wait(&status) > 0)
		failed |= status;
	exit(failed != 0);
}

static void set_shifted(void)
{
	char text[128];
	const char *said = getenv("SUBJECT_SHIFTED");
	snprintf(text, sizeof(text), "%s", said ? said : "");
	char *value = strchr(text, '=');
	if (!value || !getenv("MEDUSA_SHIFT"))
		return;
	*value++ = 0;
	setenv(text, value, 1);
}

static CUdevice own_device(void)
{
	const char *how = getenv("SUBJECT_DEVICES");
	if (!how)
		return 0;
	return (CUdevice)(strcmp(how, "own") ? rank_count() - 1 - rank : rank);
}

int main(int argc, char **argv)
{
	CUmodule module;
	if (argc < 5)
		return 2;
	if (!strncmp(argv[3], "fork", 4))
		fork_ranks(argv[3] + 4);
	else
		rank = (unsigned)atoi(argv[3]);
	set_shifted();
	load_driver();
	open_context_on(own_device());
	void *images[2] = {read_file(argv[1]), read_file(argv[2])};
	TRY(cuModuleLoadData, &module, images[0]);
	TRY(cuModuleGetFunction, &step, module, "nodes_step");
	TRY(cuModuleGetFunction, &range, module, "nodes_range");
	TRY(cuMemAlloc_v2, &in, BYTES);
	TRY(cuMemAlloc_v2, &out, BYTES);
	if (runtime_alloc(&temporary, BYTES) != CUDA_SUCCESS || runtime_alloc(&table, BYTES) != CUDA_SUCCESS)
		return 1;
	TRY(cuMemAlloc_v2, &pool, BYTES);
	TRY(cuMemAlloc_v2, &weights, BYTES);
	fill_tables();
	TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	medusa_bind("in", in, BYTES, MEDUSA_BIND_INPUT);
	medusa_bind("out", out, BYTES, MEDUSA_BIND_STATE);
	if (strcmp(argv[4], "-"))
		run_together(argv[4], images[1]);
	else
		run_apart();
	return 0;
}
