/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture: work becomes graph nodes, events fork and join, and what would break a capture invalidates it. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "hostcuda/device.h"
#include "hostcuda/device_state.h"
#include "hostcuda/graph.h"
#include "hostcuda/stream.h"
#include "hostcuda/stream_capture.h"

static struct hc_capture *captures HC_STATE_GUARDED;
static uint64_t next_capture_id HC_STATE_GUARDED;

static const CUgraphEdgeData plain_edge;

void hc_front_clear(struct hc_front *front)
{
	free(front->items);
	*front = (struct hc_front){0};
}

bool hc_front_add(struct hc_front *front, struct hc_node *node, const CUgraphEdgeData *data)
{
	for (size_t i = 0; i < front->count; i++)
		if (front->items[i].node == node)
			return true;
	if (!MD_ARRAY_GROW(front->items, front->count, front->capacity))
		return false;
	front->items[front->count++] = (struct hc_edge_to){node, data ? *data : plain_edge};
	return true;
}

void hc_capture_invalidate(struct hc_capture *capture)
{
	capture->invalid = true;
}

/*
 * A thread may make unsafe calls, unless it captures in a mode other than relaxed, or is itself in global mode while
 * another thread captures in global mode.
 */
CUresult hc_capture_unsafe(void)
{
	if (!__atomic_load_n(&captures, __ATOMIC_ACQUIRE) || hc_thread.mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	HC_STATE_GUARD();
	CUresult result = CUDA_SUCCESS;
	for (struct hc_capture *capture = captures; capture; capture = capture->next) {
		bool own = pthread_equal(capture->thread, pthread_self());
		bool hurt = own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
				: capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
				      hc_thread.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
		if (!hurt)
			continue;
		hc_capture_invalidate(capture);
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return result;
}

/* Work for the legacy stream would order itself against every blocking stream: it breaks their captures. */
static bool legacy_breaks_captures(struct hc_stream *legacy, bool only_ask) HC_STATE_HELD
{
	bool broken = false;
	for (struct hc_stream *stream = legacy->context->streams; stream; stream = stream->next) {
		if (!stream->capture || (stream->flags & CU_STREAM_NON_BLOCKING))
			continue;
		if (!only_ask)
			hc_capture_invalidate(stream->capture);
		broken = true;
	}
	return broken;
}

bool hc_capture_active(struct hc_stream *stream, CUresult *result)
{
	if (!captures)
		return false;
	*result = CUDA_SUCCESS;
	if (stream->capture) {
		if (stream->capture->invalid)
			*result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
		return true;
	}
	if (stream != stream->context->legacy || !legacy_breaks_captures(stream, false))
		return false;
	*result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	return true;
}

/* Adds a filled node to the graph, behind the stream's front, as the new front. Frees the node on failure. */
CUresult hc_capture_append(struct hc_stream *stream, struct hc_node *node, bool programmatic)
{
	HC_STATE_GUARD();
	const CUgraphEdgeData early = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
				       .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
	for (size_t i = 0; i < stream->front.count; i++) {
		const struct hc_edge_to *edge = &stream->front.items[i];
		bool can = programmatic && stream->front.count == 1 && edge->node->type == CU_GRAPH_NODE_TYPE_KERNEL;
		if (!hc_front_add(&node->from, edge->node, can ? &early : &edge->data)) {
			hc_node_free(node);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	HC_TRY(hc_node_attach(node));
	hc_front_clear(&stream->front);
	return hc_front_add(&stream->front, node, NULL) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void enter(struct hc_stream *stream, struct hc_capture *capture) HC_STATE_HELD
{
	stream->capture = capture;
	stream->next_captured = capture->streams;
	capture->streams = stream;
}

static void leave(struct hc_stream *stream) HC_STATE_HELD
{
	struct hc_stream **link = &stream->capture->streams;
	while (*link != stream)
		link = &(*link)->next_captured;
	*link = stream->next_captured;
	stream->capture = NULL;
	hc_front_clear(&stream->front);
}

static CUresult begin(CUstream hStream, CUgraph into, CUstreamCaptureMode mode, struct hc_stream **begun) HC_STATE_HELD
{
	struct hc_stream *stream;
	if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(hc_stream_resolve(hStream, &stream));
	if (stream == stream->context->legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	struct hc_capture *capture = calloc(1, sizeof(*capture));
	struct hc_graph *graph = into ? (struct hc_graph *)into : hc_graph_new();
	if (!capture || !graph) {
		free(capture);
		if (!into)
			hc_graph_free(graph);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*capture = (struct hc_capture){.id = ++next_capture_id,
				       .graph = graph,
				       .owns_graph = !into,
				       .mode = mode,
				       .origin = stream,
				       .thread = pthread_self(),
				       .next = captures};
	__atomic_store_n(&captures, capture, __ATOMIC_RELEASE);
	enter(stream, capture);
	hc_front_clear(&stream->front);
	*begun = stream;
	return CUDA_SUCCESS;
}

CUresult hc_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
	HC_STATE_GUARD();
	struct hc_stream *stream;
	return begin(hStream, NULL, mode, &stream);
}

CUresult hc_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
					const CUgraphEdgeData *dependencyData, size_t numDependencies,
					CUstreamCaptureMode mode)
{
	HC_STATE_GUARD();
	struct hc_stream *stream;
	if (hc_handle_kind(hGraph) != HC_GRAPH || (numDependencies && !dependencies))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < numDependencies; i++)
		if (hc_handle_kind(dependencies[i]) != HC_NODE ||
		    ((struct hc_node *)dependencies[i])->graph != (struct hc_graph *)hGraph)
			return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(begin(hStream, hGraph, mode, &stream));
	for (size_t i = 0; i < numDependencies; i++)
		if (!hc_front_add(&stream->front, (struct hc_node *)dependencies[i],
				  dependencyData ? &dependencyData[i] : NULL))
			stream->capture->invalid = true;
	return CUDA_SUCCESS;
}

/* Marks every node that the front depends on, and the front itself. */
static bool mark_ancestors(const struct hc_front *front, size_t node_count, uint64_t mark)
{
	struct hc_node **stack = malloc((node_count + 1) * sizeof(*stack));
	size_t depth = 0;
	if (!stack)
		return false;
	for (const struct hc_front *edges = front;;) {
		for (size_t i = 0; i < edges->count; i++) {
			struct hc_node *node = edges->items[i].node;
			if (node->mark == mark)
				continue;
			node->mark = mark;
			stack[depth++] = node;
		}
		if (!depth)
			break;
		edges = &stack[--depth]->from;
	}
	free(stack);
	return true;
}

/* Work that was forked to another stream must have joined the first stream again. */
static bool all_joined(const struct hc_capture *capture) HC_STATE_HELD
{
	static uint64_t last_mark HC_STATE_GUARDED = (uint64_t)1 << 32;
	uint64_t mark = ++last_mark;
	if (!mark_ancestors(&capture->origin->front, capture->graph->count, mark))
		return false;
	for (struct hc_stream *stream = capture->streams; stream; stream = stream->next_captured)
		for (size_t i = 0; i < stream->front.count; i++)
			if (stream->front.items[i].node->mark != mark)
				return false;
	return true;
}

/* Takes the capture apart; the graph stays with the caller. */
static struct hc_graph *capture_close(struct hc_capture *capture) HC_STATE_HELD
{
	struct hc_graph *graph = capture->graph;
	while (capture->streams)
		leave(capture->streams);
	struct hc_capture **link = &captures;
	while (*link != capture)
		link = &(*link)->next;
	__atomic_store_n(link, capture->next, __ATOMIC_RELEASE);
	free(capture);
	return graph;
}

CUresult hc_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	HC_STATE_GUARD();
	struct hc_stream *stream;
	if (!phGraph)
		return CUDA_ERROR_INVALID_VALUE;
	*phGraph = NULL;
	HC_TRY(hc_stream_resolve(hStream, &stream));
	struct hc_capture *capture = stream->capture;
	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	if (stream != capture->origin) {
		hc_capture_invalidate(capture);
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	CUresult result = capture->invalid       ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
			  : !all_joined(capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
						 : CUDA_SUCCESS;
	bool owned = capture->owns_graph;
	struct hc_graph *graph = capture_close(capture);
	if (result == CUDA_SUCCESS)
		*phGraph = (CUgraph)graph;
	else if (owned)
		hc_graph_free(graph);
	return result;
}

/* A stream is destroyed in the middle of a capture. */
void hc_capture_drop_stream(struct hc_stream *stream)
{
	HC_STATE_GUARD();
	struct hc_capture *capture = stream->capture;
	if (!capture)
		return;
	hc_capture_invalidate(capture);
	if (stream == capture->origin) {
		bool owned = capture->owns_graph;
		struct hc_graph *graph = capture_close(capture);
		if (owned)
			hc_graph_free(graph);
	} else {
		leave(stream);
	}
}

static struct hc_capture *capture_with_id(uint64_t id) HC_STATE_HELD
{
	for (struct hc_capture *capture = captures; capture; capture = capture->next)
		if (capture->id == id)
			return capture;
	return NULL;
}

/* A wait on an event of a capture draws the stream into it; a wait by a captured stream needs an event of
 * the same one. */
CUresult hc_event_capture_wait(struct hc_stream *stream, struct hc_event *event)
{
	HC_STATE_GUARD();
	struct hc_capture *of_event = event->capture ? capture_with_id(event->capture_id) : NULL;
	if (!of_event) {
		if (!stream->capture)
			return CUDA_ERROR_CAPTURED_EVENT; /* its capture has ended: the event never ran */
		hc_capture_invalidate(stream->capture);
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	if (of_event->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (stream == stream->context->legacy) {
		hc_capture_invalidate(of_event);
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (stream->capture && stream->capture != of_event) {
		hc_capture_invalidate(stream->capture);
		hc_capture_invalidate(of_event);
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (!stream->capture)
		enter(stream, of_event);
	for (size_t i = 0; i < event->front.count; i++)
		if (!hc_front_add(&stream->front, event->front.items[i].node, &event->front.items[i].data))
			return CUDA_ERROR_OUT_OF_MEMORY;
	return CUDA_SUCCESS;
}

CUresult hc_cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
	HC_STATE_GUARD();
	struct hc_stream *stream;
	if (!captureStatus)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(hc_stream_resolve(hStream, &stream));
	if (captures && stream == stream->context->legacy && legacy_breaks_captures(stream, true))
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	*captureStatus = !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
			 : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
						    : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	return CUDA_SUCCESS;
}

/* Copies the front into arrays of the stream, which are valid until the next such call. */
static CUresult tell_front(struct hc_stream *stream) HC_STATE_HELD
{
	size_t count = stream->front.count;
	if (!MD_ARRAY_EXTEND(stream->told_nodes, count))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!MD_ARRAY_EXTEND(stream->told_data, count))
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < count; i++) {
		stream->told_nodes[i] = (CUgraphNode)stream->front.items[i].node;
		stream->told_data[i] = stream->front.items[i].data;
	}
	return CUDA_SUCCESS;
}

CUresult hc_cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
				      CUgraph *graph_out, const CUgraphNode **dependencies_out,
				      const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out)
{
	HC_STATE_GUARD();
	struct hc_stream *stream;
	HC_TRY(hc_cuStreamIsCapturing(hStream, captureStatus_out));
	HC_TRY(hc_stream_resolve(hStream, &stream));
	if (*captureStatus_out != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_SUCCESS;
	HC_TRY(tell_front(stream));
	if (id_out)
		*id_out = stream->capture->id;
	if (graph_out)
		*graph_out = (CUgraph)stream->capture->graph;
	if (dependencies_out)
		*dependencies_out = stream->told_nodes;
	if (edgeData_out)
		*edgeData_out = stream->told_data;
	if (numDependencies_out)
		*numDependencies_out = stream->front.count;
	return CUDA_SUCCESS;
}

CUresult hc_cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
				      CUgraph *graph_out, const CUgraphNode **dependencies_out,
				      size_t *numDependencies_out)
{
	return hc_cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out, dependencies_out, NULL,
					    numDependencies_out);
}

CUresult hc_cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
						 const CUgraphEdgeData *dependencyData, size_t numDependencies,
						 unsigned int flags)
{
	HC_STATE_GUARD();
	struct hc_stream *stream;
	if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (numDependencies && !dependencies))
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(hc_stream_resolve(hStream, &stream));
	if (!stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	for (size_t i = 0; i < numDependencies; i++)
		if (hc_handle_kind(dependencies[i]) != HC_NODE ||
		    ((struct hc_node *)dependencies[i])->graph != stream->capture->graph)
			return CUDA_ERROR_INVALID_VALUE;
	if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		hc_front_clear(&stream->front);
	for (size_t i = 0; i < numDependencies; i++)
		if (!hc_front_add(&stream->front, (struct hc_node *)dependencies[i],
				  dependencyData ? &dependencyData[i] : NULL))
			return CUDA_ERROR_OUT_OF_MEMORY;
	return CUDA_SUCCESS;
}

CUresult hc_cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies, size_t numDependencies,
					      unsigned int flags)
{
	return hc_cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, NULL, numDependencies, flags);
}

CUresult hc_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	CUstreamCaptureMode before = hc_thread.mode;
	hc_thread.mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}
