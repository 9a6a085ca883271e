/* SPDX-License-Identifier: Apache-2.0 */
/* Verify mode: the engine captures live, and each labelled graph's outputs are compared with its restored twin's. */
#define MD_LOG_DOMAIN "verify"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "restore/restore.h"

#define LAUNCHES_COMPARED 3

struct labelled {
	CUgraphExec exec; /* NULL once destroyed */
	char *label;      /* owned */
	unsigned batch, compared, launches;
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct labelled *table;
static size_t table_count, table_room;
static uint64_t noise_seed = 0x6d65647573610001u;

/* ---- the report ---- */

static void append(const char *line, size_t size)
{
	const char *path = md_restore.report;
	MD_AUTO_FD int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
	if (path && (fd < 0 || write(fd, line, size) != (ssize_t)size))
		md_warn("report %s: %s", path, strerror(errno));
}

static void report(const char *label, unsigned batch, const char *verdict, uint64_t bytes, const char *reason)
{
	char line[1024];
	int size = snprintf(line, sizeof(line) - 1, "%.256s\t%u\t%s\t%llu\t%s", label, batch, verdict,
			    (unsigned long long)bytes, reason);
	if (size < 0)
		return;
	if ((size_t)size >= sizeof(line) - 1)
		size = sizeof(line) - 2;
	line[size++] = '\n';
	append(line, (size_t)size);
	md_log(strcmp(verdict, "fail") ? MD_LOG_INFO : MD_LOG_WARN, MD_LOG_DOMAIN, "graph %s/%u: %s %s", label, batch,
	       verdict, reason);
}

/* ---- the restored twin; holds work ---- */

static enum md_status resolve_all(struct md_restore *r, struct md_restore_graph *graph, struct md_error *err)
{
	for (uint32_t i = 0; i < graph->kernel_count; i++) {
		struct md_restore_kernel *kernel = &r->kernels[graph->kernels[i]];
		if (kernel->state == MD_KERNEL_PENDING || kernel->state == MD_KERNEL_TRIGGER)
			md_restore_kernel_resolve(r, graph->kernels[i]);
		if (kernel->state != MD_KERNEL_RESOLVED)
			return md_error_set(err, kernel->reason.status, "%s", kernel->reason.message);
	}
	return MD_OK;
}

static enum md_status make_twin(struct md_restore *r, struct md_restore_graph *graph, uint64_t seed,
				struct md_restore_graph *twin, struct md_error *err)
{
	*twin = *graph;
	twin->graph = NULL;
	twin->exec = NULL;
	md_restore_patch_noise(twin, seed);
	return md_restore_stages_run(md_restore_graph_stages, md_restore_graph_stage_count, r, twin, err);
}

static enum md_status replay(CUgraphExec exec, CUstream stream, struct md_error *err)
{
	MD_FORWARD(md_cuda_call(err, cuGraphLaunch, exec, stream));
	return md_cuda_call(err, cuStreamSynchronize, stream);
}

/* One restored replay with the private memory and the noise bytes at these values, against what the live graph left. */
static enum md_status compare_twin(struct md_restore *r, struct md_restore_graph *graph, uint8_t poison, uint64_t seed,
				   struct md_verify_memory *memory, uint64_t *bytes, struct md_error *err)
{
	struct md_restore_graph twin;
	enum md_status status = make_twin(r, graph, seed, &twin, err);
	if (status == MD_OK && r->arena)
		status = md_cuda_call(err, cuMemsetD8Async, r->arena, poison, r->artifact.arena_size, r->stream);
	if (status == MD_OK)
		status = md_restore_contents_place(r, &twin, true, err);
	if (status == MD_OK)
		status = replay(twin.exec, r->stream, err);
	if (status == MD_OK)
		status = md_verify_memory_compare(memory, r->stream, bytes, err);
	md_restore_stages_undo(md_restore_graph_stages, md_restore_graph_stage_count, r, &twin);
	if (status != MD_OK)
		md_error_prefix(err, "private memory 0x%02x, noise %s", poison, seed ? "random" : "zero");
	return status;
}

static enum md_status compare_twins(struct md_restore *r, struct md_restore_graph *graph,
				    struct md_verify_memory *memory, uint64_t *bytes, struct md_error *err)
{
	MD_FORWARD(compare_twin(r, graph, 0x00, 0, memory, bytes, err));
	MD_FORWARD(compare_twin(r, graph, 0xff, noise_seed++, memory, bytes, err));
	return md_verify_constants_check(memory, r->stream, err);
}

/*
 * However it went, everything is put back. What restored graphs left in sampled state is overwritten by a live replay,
 * which must leave what the first one left: else that state is not written idempotently, and nothing was shown.
 */
static enum md_status put_back(struct md_restore *r, CUgraphExec live, struct md_verify_memory *memory,
			       enum md_status status, struct md_error *err)
{
	struct md_error lost = {0};
	uint64_t unused = 0;
	enum md_status back = md_verify_memory_check_rest(memory, r->stream, &lost);
	if (back != MD_OK && status == MD_OK)
		status = md_error_set(err, back, "outside of what the live graph writes: %s", lost.message);
	if (!memory->sampled_count || (back != MD_OK && back != MD_ERR_MISMATCH))
		return status;
	lost = (struct md_error){0};
	back = replay(live, r->stream, &lost);
	if (back == MD_OK)
		back = md_verify_memory_compare(memory, r->stream, &unused, &lost);
	if (back == MD_ERR_MISMATCH)
		return md_error_set(err, back,
				    "two live replays differ; state that is sampled may not be written idempotently: "
				    "%s",
				    lost.message);
	if (back != MD_OK && status == MD_OK)
		return md_error_set(err, back, "%s", lost.message);
	return status;
}

static enum md_status compare(struct md_restore *r, struct md_restore_graph *graph, CUgraphExec live,
			      struct md_verify_memory *memory, uint64_t *bytes, struct md_error *err)
{
	MD_FORWARD(md_verify_constants_check(memory, r->stream, err));
	MD_FORWARD(md_verify_memory_save(memory, r->stream, err));
	enum md_status status = replay(live, r->stream, err);
	if (status == MD_OK)
		status = md_verify_memory_take_live(memory, r->stream, err);
	if (status != MD_OK)
		md_error_prefix(err, "live replay");
	else
		status = compare_twins(r, graph, memory, bytes, err);
	return put_back(r, live, memory, status, err);
}

/* Prepares everything; what fails up to here says nothing about right or wrong: skipped. */
static void verify(struct md_restore *r, const struct labelled *which)
{
	struct md_error err = {0};
	struct md_verify_memory memory = {0};
	uint64_t bytes = 0;
	const char *verdict = "skipped";
	pthread_mutex_lock(&r->lock);
	md_restore_wait_open(r, UINT64_MAX);
	r->trigger_done = true; /* the engine's own warm-up was the trigger */
	struct md_restore_graph *graph =
	    r->phase == MD_PHASE_OPEN ? md_restore_find(r, which->label, which->batch) : NULL;
	if (r->phase != MD_PHASE_OPEN)
		md_error_set(&err, MD_ERR_NOT_FOUND, "%s", r->failure.message);
	else if (!graph)
		md_error_set(&err, MD_ERR_NOT_FOUND, "the artifact has no such graph");
	else if (graph->state == MD_GRAPH_REFUSED)
		err = graph->reason;
	else
		md_restore_bindings_check(r, graph, &err);
	pthread_mutex_unlock(&r->lock);
	if (!err.status && resolve_all(r, graph, &err) == MD_OK && md_cuda_call(&err, cuCtxSynchronize) == MD_OK &&
	    md_verify_memory_init(&memory, r, &err) == MD_OK)
		verdict = compare(r, graph, which->exec, &memory, &bytes, &err) == MD_OK ? "pass" : "fail";
	if (!err.status)
		md_verify_memory_name_sampled(&memory, err.message, sizeof(err.message));
	if (graph)
		md_restore_patch_noise(graph, 0);
	md_verify_memory_finish(&memory);
	report(which->label, which->batch, verdict, bytes, err.message);
}

static bool compare_now(const struct labelled *which)
{
	struct md_restore *r = &md_restore;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUcontext popped;
	if (atomic_load(&r->captures)) /* synchronizing would break it */
		return false;
	pthread_mutex_lock(&r->work);
	bool pushed = r->context && md_cuda.cuCtxPushCurrent_v2(r->context) == CUDA_SUCCESS;
	if (pushed) {
		md_cuda.cuThreadExchangeStreamCaptureMode(&mode);
		verify(r, which);
		md_cuda.cuThreadExchangeStreamCaptureMode(&mode);
		md_cuda.cuCtxPopCurrent_v2(&popped);
	}
	pthread_mutex_unlock(&r->work);
	return pushed;
}

/* ---- which executables are labelled ---- */

static struct labelled *add(CUgraphExec exec, const char *label, unsigned batch)
{
	if (table_count == table_room) {
		size_t room = table_room ? table_room * 2 : 64;
		struct labelled *grown = realloc(table, room * sizeof(*grown));
		if (!grown)
			return NULL;
		table = grown;
		table_room = room;
	}
	char *copy = strdup(label);
	if (!copy)
		return NULL;
	table[table_count] = (struct labelled){.exec = exec, .label = copy, .batch = batch};
	return &table[table_count++];
}

void md_verify_label(CUgraphExec exec, const char *label, unsigned batch)
{
	pthread_mutex_lock(&table_lock);
	struct labelled *entry = add(exec, label, batch);
	if (!entry)
		md_warn("no memory to verify graph %s/%u", label, batch);
	else if (compare_now(entry))
		entry->compared++;
	pthread_mutex_unlock(&table_lock);
}

void md_verify_launch(CUgraphExec exec)
{
	pthread_mutex_lock(&table_lock);
	for (size_t i = 0; i < table_count; i++) {
		struct labelled *entry = &table[i];
		if (entry->exec != exec || entry->launches >= LAUNCHES_COMPARED)
			continue;
		if (compare_now(entry)) {
			entry->launches++;
			entry->compared++;
		}
	}
	pthread_mutex_unlock(&table_lock);
}

void md_verify_forget(CUgraphExec exec)
{
	pthread_mutex_lock(&table_lock);
	for (size_t i = 0; i < table_count; i++)
		if (table[i].exec == exec)
			table[i].exec = NULL;
	pthread_mutex_unlock(&table_lock);
}

void md_verify_end(void)
{
	pthread_mutex_lock(&table_lock);
	for (size_t i = 0; i < table_count; i++)
		if (!table[i].compared)
			report(table[i].label, table[i].batch, "skipped", 0, "a stream capture was always in progress");
	append("end\n", 4);
	pthread_mutex_unlock(&table_lock);
}
