/* SPDX-License-Identifier: Apache-2.0 */
/* Work queues: every stream has a thread that takes its operations in order, each after those it waits for. */
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/thread.h"
#include "hostcuda/context.h"
#include "hostcuda/device.h"
#include "hostcuda/device_state.h"
#include "hostcuda/executor.h"
#include "hostcuda/queue.h"
#include "hostcuda/stream_capture.h"

pthread_mutex_t hc_queue_mutex = PTHREAD_MUTEX_INITIALIZER;
/* Threads that wait are called without the lock: they would wake up only to wait for it. */
static pthread_cond_t some_done = PTHREAD_COND_INITIALIZER;

struct hc_op *hc_op_new(CUresult (*run)(struct hc_op *), void (*release)(struct hc_op *))
{
	struct hc_op *op = calloc(1, sizeof(*op));
	if (!op)
		return NULL;
	op->refs = 1;
	op->run = run;
	op->release = release;
	return op;
}

static void drop_waits(struct hc_op *op)
{
	for (size_t i = 0; i < op->wait_count; i++)
		hc_op_unref(op->waits[i]);
	free(op->waits);
	op->waits = NULL;
	op->wait_count = 0;
}

void hc_op_unref(struct hc_op *op)
{
	if (!op || __atomic_sub_fetch(&op->refs, 1, __ATOMIC_ACQ_REL))
		return;
	drop_waits(op);
	if (op->release)
		op->release(op);
	free(op->owned);
	free(op);
}

struct hc_op *hc_op_ref(struct hc_op *op)
{
	if (op)
		__atomic_add_fetch(&op->refs, 1, __ATOMIC_RELAXED);
	return op;
}

bool hc_op_done(struct hc_op *op)
{
	return __atomic_load_n(&op->done, __ATOMIC_ACQUIRE);
}

bool hc_op_wait_for(struct hc_op *op, struct hc_op *other)
{
	if (!other || hc_op_done(other))
		return true;
	if (!MD_ARRAY_EXTEND(op->waits, op->wait_count))
		return false;
	op->waits[op->wait_count++] = hc_op_ref(other);
	return true;
}

static void run_op(struct hc_op *op)
{
	if (op->run && (op->always || hc_context_sticky(op->context) == CUDA_SUCCESS)) {
		CUresult result = op->run(op);
		if (result != CUDA_SUCCESS)
			hc_context_fail(op->context, result);
	}
	drop_waits(op);
	if (op->release)
		op->release(op);
	op->release = NULL;
	free(op->owned);
	op->owned = NULL;
}

/* Whether somebody waits, and is to be called once the lock is free. */
static bool set_done(struct hc_op *op) HC_QUEUE_HELD
{
	op->done_ns = md_clock_ns();
	__atomic_store_n(&op->done, true, __ATOMIC_RELEASE);
	return op->awaited;
}

static void await(struct hc_op *op) HC_QUEUE_HELD
{
	while (!hc_op_done(op)) {
		op->awaited = true;
		pthread_cond_wait(&some_done, &hc_queue_mutex);
	}
}

/* Runs the head of the stream's queue, whose turn it is. */
static void run_head(struct hc_stream *stream) HC_QUEUE_HELD
{
	struct hc_op *op = stream->head;
	pthread_mutex_unlock(&hc_queue_mutex);
	run_op(op);
	pthread_mutex_lock(&hc_queue_mutex);
	stream->head = op->next;
	if (!stream->head)
		stream->tail = NULL;
	bool awaited = set_done(op);
	pthread_mutex_unlock(&hc_queue_mutex);
	if (awaited)
		pthread_cond_broadcast(&some_done);
	hc_op_unref(op);
	pthread_mutex_lock(&hc_queue_mutex);
}

static void *work(void *argument)
{
	struct hc_stream *stream = argument;
	pthread_mutex_lock(&hc_queue_mutex);
	while (stream->head || !stream->stopping) {
		struct hc_op *op = stream->head;
		if (!op || stream->lent) {
			pthread_cond_wait(&stream->wake, &hc_queue_mutex);
			continue;
		}
		for (size_t i = 0; i < op->wait_count; i++)
			await(op->waits[i]);
		run_head(stream);
	}
	pthread_mutex_unlock(&hc_queue_mutex);
	hc_executor_leave();
	return NULL;
}

/* The legacy stream and the blocking streams of a context wait for each other. */
static bool order_with_legacy(struct hc_stream *stream, struct hc_op *op) HC_STATE_HELD HC_QUEUE_HELD
{
	struct hc_context *context = stream->context;
	if (stream->flags & CU_STREAM_NON_BLOCKING)
		return true;
	if (stream != context->legacy)
		return hc_op_wait_for(op, context->legacy->last);
	for (struct hc_stream *other = context->streams; other; other = other->next)
		if (other != stream && !(other->flags & CU_STREAM_NON_BLOCKING) && !hc_op_wait_for(op, other->last))
			return false;
	return true;
}

static bool enqueue(struct hc_stream *stream, struct hc_op *op) HC_STATE_HELD HC_QUEUE_HELD
{
	if (!order_with_legacy(stream, op))
		return false;
	if (!stream->started) {
		hc_executor_start();
		if (md_thread_start(&stream->worker, work, stream))
			return false;
		stream->started = true;
	}
	op->context = stream->context;
	*(stream->tail ? &stream->tail->next : &stream->head) = op;
	stream->tail = op;
	struct hc_op *before = stream->last;
	stream->last = hc_op_ref(op);
	hc_op_unref(before);
	return true;
}

/* Takes over op, also when it returns false: then it is in no queue. */
static bool submit(struct hc_stream *stream, struct hc_op *op, struct hc_op **kept) HC_STATE_HELD HC_QUEUE_HELD
{
	if (kept)
		*kept = hc_op_ref(op);
	if (enqueue(stream, op))
		return true;
	if (kept)
		hc_op_unref(*kept);
	hc_op_unref(op);
	return false;
}

/*
 * Lends the stream to this thread if the turn of op, which has just been queued, is now: nothing is before it, and all
 * that it waits for is done. The stream's own thread takes nothing from the queue until run_lent.
 */
static bool lend(struct hc_stream *stream, const struct hc_op *op) HC_QUEUE_HELD
{
	for (size_t i = 0; i < op->wait_count; i++)
		if (!hc_op_done(op->waits[i]))
			return false;
	return stream->lent = stream->head == op;
}

static void run_lent(struct hc_stream *stream) HC_QUEUE_HELD
{
	run_head(stream);
	stream->lent = false;
	if (stream->head || stream->stopping)
		pthread_cond_signal(&stream->wake); /* with the lock: it keeps the stream */
}

/* A marker whose turn is now is over at once. */
CUresult hc_op_submit_keep(struct hc_stream *stream, struct hc_op *op, struct hc_op **kept)
{
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	HC_STATE_GUARD();
	pthread_mutex_lock(&hc_queue_mutex);
	bool marker = !op->run, queued = submit(stream, op, kept), lent = queued && marker && lend(stream, op);
	if (lent)
		run_lent(stream);
	pthread_mutex_unlock(&hc_queue_mutex);
	if (queued && !lent)
		pthread_cond_signal(&stream->wake); /* the state lock keeps the stream */
	return queued ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hc_op_submit(struct hc_stream *stream, struct hc_op *op)
{
	return hc_op_submit_keep(stream, op, NULL);
}

/* For a small copy, two switches between threads take longer than all else: what has its turn is run by the caller. */
CUresult hc_op_do(struct hc_stream *stream, struct hc_op *op)
{
	struct hc_op *kept;
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	hc_state_lock();
	pthread_mutex_lock(&hc_queue_mutex);
	bool queued = submit(stream, op, &kept);
	if (queued && lend(stream, op)) {
		hc_state_unlock(); /* calls of other threads go on meanwhile */
		run_lent(stream);
		pthread_mutex_unlock(&hc_queue_mutex);
	} else {
		pthread_mutex_unlock(&hc_queue_mutex);
		if (queued)
			pthread_cond_signal(&stream->wake);
		hc_state_unlock();
	}
	if (!queued)
		return CUDA_ERROR_OUT_OF_MEMORY;
	hc_op_join(kept);
	return CUDA_SUCCESS;
}

void hc_op_join(struct hc_op *op)
{
	pthread_mutex_lock(&hc_queue_mutex);
	await(op);
	pthread_mutex_unlock(&hc_queue_mutex);
	hc_op_unref(op);
}

void hc_op_finish(struct hc_op *op)
{
	pthread_mutex_lock(&hc_queue_mutex);
	bool awaited = !hc_op_done(op) && set_done(op);
	pthread_mutex_unlock(&hc_queue_mutex);
	if (awaited)
		pthread_cond_broadcast(&some_done);
}

struct hc_op *hc_stream_last(struct hc_stream *stream)
{
	pthread_mutex_lock(&hc_queue_mutex);
	struct hc_op *last = stream->last && !hc_op_done(stream->last) ? hc_op_ref(stream->last) : NULL;
	pthread_mutex_unlock(&hc_queue_mutex);
	return last;
}

CUresult hc_stream_make(struct hc_context *context, unsigned flags, int priority, struct hc_stream **made)
{
	struct hc_stream *stream = calloc(1, sizeof(*stream));
	if (!stream || !hc_handle_add(stream, HC_STREAM)) {
		free(stream);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	HC_STATE_GUARD();
	stream->context = context;
	stream->flags = flags;
	stream->priority = priority;
	pthread_cond_init(&stream->wake, NULL);
	stream->next = context->streams;
	context->streams = stream;
	*made = stream;
	return CUDA_SUCCESS;
}

/* Called when no list and no handle leads to the stream any more; only its worker still uses it. */
static void stream_free(struct hc_stream *stream) MD_LOCKS_UNCHECKED
{
	if (stream->started)
		pthread_join(stream->worker, NULL);
	hc_op_unref(stream->last);
	hc_front_clear(&stream->front);
	pthread_cond_destroy(&stream->wake);
	free(stream->told_nodes);
	free(stream->told_data);
	free(stream);
}

void hc_stream_finish(struct hc_stream *stream)
{
	hc_state_lock();
	hc_handle_remove(stream);
	hc_capture_drop_stream(stream);
	struct hc_stream **link = &stream->context->streams;
	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	hc_state_unlock();

	pthread_mutex_lock(&hc_queue_mutex);
	stream->stopping = true;
	pthread_cond_signal(&stream->wake);
	pthread_mutex_unlock(&hc_queue_mutex);
	stream_free(stream);
}

/* For the legacy stream, a marker is queued, which waits for the blocking streams, too. */
CUresult hc_stream_join(struct hc_stream *stream)
{
	struct hc_context *context = stream->context;
	if (stream == context->legacy) {
		HC_TRY(hc_op_do(stream, hc_op_new(NULL, NULL)));
		return hc_context_sticky(context);
	}
	struct hc_op *last = hc_stream_last(stream);
	if (last)
		hc_op_join(last);
	return hc_context_sticky(context);
}
