/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events: their entry points. The work itself is in queue.c, capture in stream_capture.c. */
#include <stdlib.h>

#include "hostcuda/context.h"
#include "hostcuda/device.h"
#include "hostcuda/device_state.h"
#include "hostcuda/graph.h"
#include "hostcuda/queue.h"
#include "hostcuda/stream.h"
#include "hostcuda/stream_capture.h"

static CUresult own_stream(struct hc_context *context, struct hc_stream **stream)
{
	if (!hc_thread.own || hc_thread.own_context != context->id) {
		HC_TRY(hc_stream_make(context, CU_STREAM_DEFAULT, 0, &hc_thread.own));
		hc_thread.own_context = context->id;
	}
	*stream = hc_thread.own;
	return CUDA_SUCCESS;
}

CUresult hc_stream_resolve(CUstream handle, struct hc_stream **stream)
{
	HC_STATE_GUARD();
	struct hc_context *context = hc_context_current();
	if (handle == CU_STREAM_PER_THREAD || (!handle && hc_thread.per_thread))
		return own_stream(context, stream);
	if (!handle || handle == CU_STREAM_LEGACY) {
		*stream = context->legacy;
		return CUDA_SUCCESS;
	}
	if (hc_handle_kind(handle) != HC_STREAM)
		return CUDA_ERROR_INVALID_HANDLE;
	*stream = (struct hc_stream *)handle;
	return CUDA_SUCCESS;
}

CUresult hc_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
	struct hc_stream *stream;
	if (!phStream || flags > CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
	HC_TRY(hc_stream_make(hc_context_current(), flags, priority, &stream));
	*phStream = (CUstream)stream;
	return CUDA_SUCCESS;
}

CUresult hc_cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
	return hc_cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult hc_cuStreamDestroy_v2(CUstream hStream)
{
	if (hc_handle_kind(hStream) != HC_STREAM)
		return CUDA_ERROR_INVALID_HANDLE;
	hc_stream_finish((struct hc_stream *)hStream);
	return CUDA_SUCCESS;
}

/* Waiting for a stream under capture, or asking about it, breaks the capture. */
static CUresult refuse_captured(struct hc_stream *stream)
{
	CUresult result;
	HC_STATE_GUARD();
	if (!hc_capture_active(stream, &result))
		return CUDA_SUCCESS;
	if (stream->capture)
		hc_capture_invalidate(stream->capture);
	return result == CUDA_SUCCESS ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : result;
}

CUresult hc_cuStreamSynchronize(CUstream hStream)
{
	struct hc_stream *stream;
	HC_TRY(hc_stream_resolve(hStream, &stream));
	HC_TRY(refuse_captured(stream));
	return hc_stream_join(stream);
}

CUresult hc_cuStreamQuery(CUstream hStream)
{
	struct hc_stream *stream;
	HC_TRY(hc_stream_resolve(hStream, &stream));
	HC_TRY(refuse_captured(stream));
	HC_STATE_GUARD();
	bool busy = false, legacy = stream == stream->context->legacy;
	for (struct hc_stream *other = stream->context->streams; other; other = other->next) {
		if (other != stream && !(legacy && !(other->flags & CU_STREAM_NON_BLOCKING)))
			continue;
		struct hc_op *last = hc_stream_last(other);
		busy |= last != NULL;
		hc_op_unref(last);
	}
	HC_TRY(hc_context_sticky(stream->context));
	return busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult hc_cuStreamGetPriority(CUstream hStream, int *priority)
{
	struct hc_stream *stream;
	if (!priority)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(hc_stream_resolve(hStream, &stream));
	*priority = stream->priority;
	return CUDA_SUCCESS;
}

CUresult hc_cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
	struct hc_stream *stream;
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(hc_stream_resolve(hStream, &stream));
	*flags = stream->flags;
	return CUDA_SUCCESS;
}

CUresult hc_cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
	struct hc_stream *stream;
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(hc_stream_resolve(hStream, &stream));
	*pctx = (CUcontext)stream->context;
	return CUDA_SUCCESS;
}

/* ---- host functions ---- */
static CUresult run_host(struct hc_op *op)
{
	op->host.call(op->host.data);
	return CUDA_SUCCESS;
}

/* Callbacks run after an error, too, and receive it. */
static CUresult run_callback(struct hc_op *op)
{
	op->host.callback(op->host.stream, hc_context_sticky(op->context), op->host.data);
	return CUDA_SUCCESS;
}

CUresult hc_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
	struct hc_stream *stream;
	CUresult result;
	if (!fn)
		return CUDA_ERROR_INVALID_VALUE;
	HC_STATE_GUARD();
	HC_TRY(hc_stream_resolve(hStream, &stream));
	if (hc_capture_active(stream, &result)) {
		struct hc_node *node;
		HC_TRY(result);
		HC_TRY(hc_node_new(stream->capture->graph, CU_GRAPH_NODE_TYPE_HOST, &node));
		node->host = (CUDA_HOST_NODE_PARAMS){fn, userData};
		return hc_capture_append(stream, node, false);
	}
	struct hc_op *op = hc_op_new(run_host, NULL);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->host.call = fn;
	op->host.data = userData;
	return hc_op_submit(stream, op);
}

CUresult hc_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
	struct hc_stream *stream;
	if (!callback || flags)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(hc_stream_resolve(hStream, &stream));
	HC_TRY(refuse_captured(stream));
	struct hc_op *op = hc_op_new(run_callback, NULL);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->always = true;
	op->host.callback = callback;
	op->host.stream = hStream;
	op->host.data = userData;
	return hc_op_submit(stream, op);
}

/* ---- events ---- */
CUresult hc_cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
	if (!phEvent || Flags > 7)
		return CUDA_ERROR_INVALID_VALUE;
	struct hc_event *event = calloc(1, sizeof(*event));
	if (!event || !hc_handle_add(event, HC_EVENT)) {
		free(event);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	event->context = hc_context_current();
	event->flags = Flags;
	*phEvent = (CUevent)event;
	return CUDA_SUCCESS;
}

static struct hc_event *event_of(CUevent handle)
{
	return hc_handle_kind(handle) == HC_EVENT ? (struct hc_event *)handle : NULL;
}

CUresult hc_cuEventDestroy_v2(CUevent hEvent)
{
	HC_STATE_GUARD();
	struct hc_event *event = event_of(hEvent);
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	hc_handle_remove(event);
	hc_op_unref(event->op);
	hc_front_clear(&event->front);
	free(event);
	return CUDA_SUCCESS;
}

static CUresult record_captured(struct hc_event *event, struct hc_stream *stream) HC_STATE_HELD
{
	hc_front_clear(&event->front);
	for (size_t i = 0; i < stream->front.count; i++)
		if (!hc_front_add(&event->front, stream->front.items[i].node, NULL))
			return CUDA_ERROR_OUT_OF_MEMORY;
	event->capture = stream->capture;
	event->capture_id = stream->capture->id;
	return CUDA_SUCCESS;
}

CUresult hc_cuEventRecord(CUevent hEvent, CUstream hStream)
{
	HC_STATE_GUARD();
	struct hc_event *event = event_of(hEvent);
	struct hc_stream *stream;
	CUresult result;
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	HC_TRY(hc_stream_resolve(hStream, &stream));
	if (stream->context != event->context)
		return CUDA_ERROR_INVALID_HANDLE;
	if (hc_capture_active(stream, &result))
		return result == CUDA_SUCCESS ? record_captured(event, stream) : result;
	struct hc_op *kept;
	HC_TRY(hc_op_submit_keep(stream, hc_op_new(NULL, NULL), &kept));
	hc_op_unref(event->op);
	event->op = kept;
	event->capture = NULL;
	hc_front_clear(&event->front);
	return CUDA_SUCCESS;
}

/* An external record inside a capture becomes a node, which records the event when the graph runs. */
CUresult hc_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
	HC_STATE_GUARD();
	struct hc_event *event = event_of(hEvent);
	struct hc_stream *stream;
	CUresult result;
	if (flags > CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags != CU_EVENT_RECORD_EXTERNAL)
		return hc_cuEventRecord(hEvent, hStream);
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	HC_TRY(hc_stream_resolve(hStream, &stream));
	if (!hc_capture_active(stream, &result))
		return CUDA_ERROR_ILLEGAL_STATE;
	HC_TRY(result);
	struct hc_node *node;
	HC_TRY(hc_node_new(stream->capture->graph, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &node));
	node->event = event;
	return hc_capture_append(stream, node, false);
}

CUresult hc_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
	HC_STATE_GUARD();
	struct hc_event *event = event_of(hEvent);
	struct hc_stream *stream;
	CUresult result;
	if (Flags > CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	HC_TRY(hc_stream_resolve(hStream, &stream));
	bool captured = hc_capture_active(stream, &result);
	if (captured)
		HC_TRY(result);
	if (captured && Flags == CU_EVENT_WAIT_EXTERNAL) {
		struct hc_node *node;
		HC_TRY(hc_node_new(stream->capture->graph, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &node));
		node->event = event;
		return hc_capture_append(stream, node, false);
	}
	if (captured || event->capture)
		return hc_event_capture_wait(stream, event);
	struct hc_op *op = hc_op_new(NULL, NULL);
	if (op && !hc_op_wait_for(op, event->op)) {
		hc_op_unref(op);
		op = NULL;
	}
	return hc_op_submit(stream, op);
}

/* The marker of the last record (a reference), or NULL; an event that belongs to a capture cannot be waited for. */
static CUresult event_op(CUevent handle, struct hc_op **op)
{
	HC_STATE_GUARD();
	struct hc_event *event = event_of(handle);
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->capture)
		return CUDA_ERROR_CAPTURED_EVENT;
	*op = hc_op_ref(event->op);
	return hc_context_sticky(event->context);
}

CUresult hc_cuEventQuery(CUevent hEvent)
{
	struct hc_op *op = NULL;
	CUresult result = event_op(hEvent, &op);
	if (result == CUDA_SUCCESS && op && !hc_op_done(op))
		result = CUDA_ERROR_NOT_READY;
	hc_op_unref(op);
	return result;
}

CUresult hc_cuEventSynchronize(CUevent hEvent)
{
	struct hc_op *op = NULL;
	CUresult result = event_op(hEvent, &op);
	if (result != CUDA_SUCCESS || !op) {
		hc_op_unref(op);
		return result;
	}
	struct hc_context *context = op->context;
	hc_op_join(op);
	return hc_context_sticky(context);
}

CUresult hc_cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	HC_STATE_GUARD();
	struct hc_event *start = event_of(hStart), *end = event_of(hEnd);
	if (!pMilliseconds)
		return CUDA_ERROR_INVALID_VALUE;
	if (!start || !end || !start->op || !end->op || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!hc_op_done(start->op) || !hc_op_done(end->op))
		return CUDA_ERROR_NOT_READY;
	*pMilliseconds = (float)((double)((int64_t)end->op->done_ns - (int64_t)start->op->done_ns) / 1e6);
	return CUDA_SUCCESS;
}

CUresult hc_cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	return hc_cuEventElapsedTime(pMilliseconds, hStart, hEnd);
}
