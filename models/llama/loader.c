/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads tensors with several threads. Each takes the next piece, reads it into one of its two buffers, and lets the
 * device copy that buffer while it reads the next piece into the other one:
 *
 *     thread 0   | read A | read B | wait for A's copy, read A | ...
 *     copies              | A 0 | A 1 | B 0 | B 1 | ...
 *
 * The buffers are page-locked, because the device copies from other memory at a fifth of the speed. They are few, because
 * locking pages is slower than copying to them.
 */
#include "models/llama/loader.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/thread.h"

#define PIECE_ELEMENTS (2u << 20) /* 4 MiB there: smaller copies are slower. A multiple of the quantized block of 32 */
#define RAW_ELEMENTS (64u << 10)  /* converted at once: what was read is still in the processor's cache */
#define RAW_BYTES (RAW_ELEMENTS * 4)
#define MOST_THREADS 8
#define BUFFERS 2 /* of each thread */
#define PAGE ((size_t)4096)

struct buffer {
	uint16_t *elements;
	CUevent copied;
	bool in_use; /* copied was recorded, and not waited for */
};

struct load {
	const struct gguf *gguf;
	const struct loader_part *parts;
	size_t count;
	CUcontext context;
	CUstream stream;
	pthread_mutex_t lock;
	/* guarded by the lock; clang can't check members in C */
	size_t part;    /* of the next piece */
	uint64_t first; /* element of the part with which it begins */
	struct md_error error;
};

struct worker {
	struct load *load;
	pthread_t thread;
	bool started;
	struct buffer buffers[BUFFERS];
	uint8_t *raw; /* bytes that have to be converted; NULL until there are some */
};

struct piece {
	const struct gguf_tensor *tensor;
	uint64_t first, count; /* elements */
	CUdeviceptr target;
};

unsigned loader_default_threads(void)
{
	cpu_set_t usable;
	int count = sched_getaffinity(0, sizeof(usable), &usable) ? 1 : CPU_COUNT(&usable);
	return count < 1 ? 1 : count > MOST_THREADS ? MOST_THREADS : (unsigned)count;
}

/* False: all pieces are taken, or the load has failed. */
static bool take_piece(struct load *load, struct piece *out)
{
	pthread_mutex_lock(&load->lock);
	bool some = load->error.status == MD_OK && load->part < load->count;
	if (some) {
		const struct loader_part *part = &load->parts[load->part];
		uint64_t left = part->tensor->elements - load->first;
		*out = (struct piece){.tensor = part->tensor,
				      .first = load->first,
				      .count = left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS,
				      .target = part->target + load->first * 2};
		load->first += out->count;
		if (out->count == left) {
			load->part++;
			load->first = 0;
		}
	}
	pthread_mutex_unlock(&load->lock);
	return some;
}

static void fail(struct load *load, const struct md_error *why)
{
	pthread_mutex_lock(&load->lock);
	if (load->error.status == MD_OK)
		load->error = *why;
	pthread_mutex_unlock(&load->lock);
}

static enum md_status read_elements(struct worker *worker, const struct piece *piece, uint16_t *out,
				    struct md_error *err)
{
	int fd = worker->load->gguf->fd;
	uint64_t offset;
	size_t bytes;
	gguf_locate(piece->tensor, piece->first, piece->count, &offset, &bytes);
	if (piece->tensor->type == GGUF_TENSOR_BF16)
		return md_file_read_at(fd, offset, out, bytes, err);
	if (!worker->raw && !(worker->raw = malloc(RAW_BYTES)))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u bytes", RAW_BYTES);
	for (uint64_t done = 0; done < piece->count; done += RAW_ELEMENTS) {
		uint64_t left = piece->count - done, count = left < RAW_ELEMENTS ? left : RAW_ELEMENTS;
		gguf_locate(piece->tensor, piece->first + done, count, &offset, &bytes);
		MD_FORWARD(md_file_read_at(fd, offset, worker->raw, bytes, err));
		gguf_to_bf16(piece->tensor->type, worker->raw, count, out + done);
	}
	return MD_OK;
}

static enum md_status await_copy(struct buffer *buffer, struct md_error *err)
{
	if (buffer->in_use)
		MD_FORWARD(md_cuda_call(err, cuEventSynchronize, buffer->copied));
	buffer->in_use = false;
	return MD_OK;
}

static enum md_status load_piece(struct worker *worker, const struct piece *piece, struct buffer *buffer,
				 struct md_error *err)
{
	CUstream stream = worker->load->stream;
	enum md_status status = await_copy(buffer, err);
	if (status == MD_OK)
		status = read_elements(worker, piece, buffer->elements, err);
	if (status == MD_OK)
		status =
		    md_cuda_call(err, cuMemcpyHtoDAsync_v2, piece->target, buffer->elements, piece->count * 2, stream);
	if (status == MD_OK)
		status = md_cuda_call(err, cuEventRecord, buffer->copied, stream);
	buffer->in_use = status == MD_OK;
	if (status == MD_OK)
		return MD_OK;
	const struct gguf_string *name = &piece->tensor->name;
	return md_error_prefix(err, "tensor %.*s, elements %llu to %llu", (int)(name->size < 64 ? name->size : 64),
			       name->data, (unsigned long long)piece->first,
			       (unsigned long long)(piece->first + piece->count - 1));
}

static void load_pieces(struct worker *worker)
{
	struct piece piece;
	struct md_error err;
	for (unsigned i = 0; take_piece(worker->load, &piece); i++) {
		if (load_piece(worker, &piece, &worker->buffers[i % BUFFERS], &err) != MD_OK)
			fail(worker->load, &err);
	}
}

static void *run(void *argument)
{
	struct worker *worker = argument;
	struct md_error err;
	if (md_cuda_call(&err, cuCtxSetCurrent, worker->load->context) == MD_OK)
		load_pieces(worker);
	else
		fail(worker->load, &err);
	return NULL;
}

/* A thread that cannot be started leaves its pieces to the others; the calling one is always there. */
static unsigned run_all(struct worker *workers, unsigned threads)
{
	unsigned ran = 1;
	for (unsigned i = 1; i < threads; i++)
		ran += workers[i].started = !md_thread_start(&workers[i].thread, run, &workers[i]);
	load_pieces(&workers[0]);
	for (unsigned i = 1; i < threads; i++)
		if (workers[i].started)
			pthread_join(workers[i].thread, NULL);
	return ran;
}

/* ---- what a load needs -------------------------------------------------------------------------------------------- */

struct staging {
	void *memory;
	bool page_locked;
};

/* One allocation whatever the number of threads, so that a capture sees the same calls with any number of processors. */
static enum md_status take_staging(struct staging *staging, size_t bytes, struct md_error *err)
{
	struct md_error why;
	staging->page_locked = md_cuda_call(&why, cuMemHostAlloc, &staging->memory, bytes, 0) == MD_OK;
	if (staging->page_locked)
		return MD_OK;
	fprintf(stderr, "llama-engine: weights are copied from pageable memory, which is slower: %s, %zu bytes\n",
		why.message, bytes);
	staging->memory = malloc(bytes);
	return staging->memory ? MD_OK : md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %zu bytes", bytes);
}

static void drop_staging(struct staging *staging)
{
	if (staging->page_locked)
		md_cuda_call(NULL, cuMemFreeHost, staging->memory);
	else
		free(staging->memory);
}

static enum md_status open_workers(struct load *load, struct worker *workers, unsigned threads, char *memory,
				   size_t buffer_bytes, struct md_error *err)
{
	MD_FORWARD(md_cuda_call(err, cuStreamCreate, &load->stream, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < threads * BUFFERS; i++) {
		struct buffer *buffer = &workers[i / BUFFERS].buffers[i % BUFFERS];
		buffer->elements = (uint16_t *)(void *)(memory + i * buffer_bytes);
		MD_FORWARD(md_cuda_call(err, cuEventCreate, &buffer->copied, CU_EVENT_DISABLE_TIMING));
	}
	return MD_OK;
}

static void close_workers(struct load *load, struct worker *workers, unsigned threads)
{
	for (unsigned i = 0; i < threads; i++) {
		for (unsigned k = 0; k < BUFFERS; k++)
			if (workers[i].buffers[k].copied)
				md_cuda_call(NULL, cuEventDestroy_v2, workers[i].buffers[k].copied);
		free(workers[i].raw);
	}
	if (load->stream)
		md_cuda_call(NULL, cuStreamDestroy_v2, load->stream);
}

/* Also after a failure the stream is awaited: copies that are on their way read the staging memory. */
static enum md_status run_load(struct load *load, struct worker *workers, unsigned threads, char *memory,
			       size_t buffer_bytes, struct loader_report *report, struct md_error *err)
{
	enum md_status status = open_workers(load, workers, threads, memory, buffer_bytes, err);
	if (status == MD_OK) {
		report->threads = run_all(workers, threads);
		status = md_cuda_call(err, cuStreamSynchronize, load->stream);
		pthread_mutex_lock(&load->lock);
		if (load->error.status != MD_OK) {
			status = load->error.status;
			if (err)
				*err = load->error;
		}
		pthread_mutex_unlock(&load->lock);
	}
	close_workers(load, workers, threads);
	return status;
}

/* Pieces of all parts, the bytes of the largest one, and what is read and written in all. */
static size_t count_pieces(const struct load *load, size_t *largest, struct loader_report *report)
{
	size_t pieces = 0;
	*largest = 0;
	for (size_t i = 0; i < load->count; i++) {
		const struct gguf_tensor *tensor = load->parts[i].tensor;
		size_t piece = tensor->elements < PIECE_ELEMENTS ? (size_t)tensor->elements : PIECE_ELEMENTS;
		pieces += (size_t)((tensor->elements + PIECE_ELEMENTS - 1) / PIECE_ELEMENTS);
		*largest = piece * 2 > *largest ? piece * 2 : *largest;
		report->file_bytes += tensor->size;
		report->device_bytes += tensor->elements * 2;
	}
	return pieces;
}

enum md_status loader_run(const struct gguf *gguf, const struct loader_part *parts, size_t count, CUcontext context,
			  unsigned threads, struct loader_report *report, struct md_error *err)
{
	uint64_t start = md_clock_ns();
	struct load load = {
	    .gguf = gguf, .parts = parts, .count = count, .context = context, .lock = PTHREAD_MUTEX_INITIALIZER};
	struct staging staging = {0};
	size_t largest, pieces;
	*report = (struct loader_report){0};
	pieces = count_pieces(&load, &largest, report);
	if (!pieces)
		return MD_OK;
	threads = threads < pieces ? threads : (unsigned)pieces;
	largest = (largest + PAGE - 1) / PAGE * PAGE;
	struct worker *workers = calloc(threads, sizeof(*workers));
	if (!workers)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u threads", threads);
	for (unsigned i = 0; i < threads; i++)
		workers[i].load = &load;
	report->staging_bytes = threads * BUFFERS * largest;
	enum md_status status = take_staging(&staging, report->staging_bytes, err);
	if (status == MD_OK)
		status = run_load(&load, workers, threads, staging.memory, largest, report, err);
	report->page_locked = staging.page_locked;
	drop_staging(&staging);
	free(workers);
	report->ns = md_clock_ns() - start;
	return status;
}
