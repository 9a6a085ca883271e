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

static void set_done(struct hc_op *op) HC_QUEUE_HELD
{
	op->done_ns = md_clock_ns();
	__atomic_store_n(&op->done, true, __ATOMIC_RELEASE);
}

static void *work(void *argument)
{
	struct hc_stream *stream = argument;
	pthread_mutex_lock(&hc_queue_mutex);
	while (stream->head || !stream->stopping) {
		struct hc_op *op = stream->head;
		if (!op) {
			pthread_cond_wait(&stream->wake, &hc_queue_mutex);
			continue;
		}
		for (size_t i = 0; i < op->wait_count; i++)
			while (!hc_op_done(op->waits[i]))
				pthread_cond_wait(&some_done, &hc_queue_mutex);
		pthread_mutex_unlock(&hc_queue_mutex);
		run_op(op);
		pthread_mutex_lock(&hc_queue_mutex);
		stream->head = op->next;
		if (!stream->head)
			stream->tail = NULL;
		set_done(op);
		pthread_mutex_unlock(&hc_queue_mutex);
		pthread_cond_broadcast(&some_done);
		hc_op_unref(op);
		pthread_mutex_lock(&hc_queue_mutex);
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

CUresult hc_op_submit_keep(struct hc_stream *stream, struct hc_op *op, struct hc_op **kept)
{
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	HC_STATE_GUARD();
	pthread_mutex_lock(&hc_queue_mutex);
	if (kept)
		*kept = hc_op_ref(op);
	bool queued = enqueue(stream, op);
	pthread_mutex_unlock(&hc_queue_mutex);
	if (queued) {
		pthread_cond_signal(&stream->wake); /* the state lock keeps the stream */
	} else {
		if (kept)
			hc_op_unref(*kept);
		hc_op_unref(op);
	}
	return queued ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hc_op_submit(struct hc_stream *stream, struct hc_op *op)
{
	return hc_op_submit_keep(stream, op, NULL);
}

void hc_op_join(struct hc_op *op)
{
	pthread_mutex_lock(&hc_queue_mutex);
	while (!hc_op_done(op))
		pthread_cond_wait(&some_done, &hc_queue_mutex);
	pthread_mutex_unlock(&hc_queue_mutex);
	hc_op_unref(op);
}

void hc_op_finish(struct hc_op *op)
{
	pthread_mutex_lock(&hc_queue_mutex);
	if (!hc_op_done(op))
		set_done(op);
	pthread_mutex_unlock(&hc_queue_mutex);
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
	struct hc_op *last;
	if (stream == context->legacy) {
		struct hc_op *marker = hc_op_new(NULL, NULL);
		HC_TRY(hc_op_submit_keep(stream, marker, &last));
	} else {
		last = hc_stream_last(stream);
	}
	if (last)
		hc_op_join(last);
	return hc_context_sticky(context);
}
