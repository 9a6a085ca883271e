/* SPDX-License-Identifier: Apache-2.0 */
/* Executable graphs: a plan is a graph's deep copy in topological order; launches hold the plan they were made with. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "hostcuda/context.h"
#include "hostcuda/copy.h"
#include "hostcuda/device.h"
#include "hostcuda/device_state.h"
#include "hostcuda/executor.h"
#include "hostcuda/graph.h"
#include "hostcuda/graph_node.h"
#include "hostcuda/graph_print.h"
#include "hostcuda/queue.h"
#include "hostcuda/stream.h"
#include "hostcuda/stream_capture.h"

struct hc_plan {
	int refs;
	struct hc_graph *graph;
	size_t *order;             /* positions of nodes, each after those it depends on */
	struct hc_plan **children; /* by position; NULL but for child graphs */
	CUgraphNode *sources;      /* by position: the node this one was copied from */
	bool *disabled;            /* by position */
};

struct exec {
	struct hc_plan *plan HC_STATE_GUARDED;
	struct hc_op *last HC_STATE_GUARDED; /* of its launches; a reference, or NULL */
	unsigned long long flags;
};

static void plan_unref(struct hc_plan *plan)
{
	if (!plan || __atomic_sub_fetch(&plan->refs, 1, __ATOMIC_ACQ_REL))
		return;
	for (size_t i = 0; plan->children && i < plan->graph->count; i++)
		plan_unref(plan->children[i]);
	hc_graph_free(plan->graph);
	free(plan->order);
	free(plan->children);
	free(plan->sources);
	free(plan->disabled);
	free(plan);
}

/* Kahn's algorithm, ready nodes in order of creation. False when there is a cycle. */
static bool sort_nodes(const struct hc_graph *graph, size_t *order)
{
	size_t count = graph->count, edges = 0, done = 0, ready = 0;
	for (size_t i = 0; i < count; i++)
		edges += graph->nodes[i]->from.count;
	size_t *waiting = calloc(count + 1, sizeof(*waiting)), *first = calloc(count + 2, sizeof(*first));
	size_t *targets = calloc(edges + 1, sizeof(*targets));
	bool sorted = waiting && first && targets;
	for (size_t i = 0; sorted && i < count; i++) {
		waiting[i] = graph->nodes[i]->from.count;
		for (size_t j = 0; j < waiting[i]; j++)
			first[graph->nodes[i]->from.items[j].node->id + 2]++;
		if (!waiting[i])
			order[ready++] = i;
	}
	for (size_t i = 2; sorted && i < count + 2; i++)
		first[i] += first[i - 1];
	for (size_t i = 0; sorted && i < count; i++)
		for (size_t j = 0; j < graph->nodes[i]->from.count; j++)
			targets[first[graph->nodes[i]->from.items[j].node->id + 1]++] = i;
	for (; sorted && done < ready; done++)
		for (size_t e = first[order[done]]; e < first[order[done] + 1]; e++)
			if (!--waiting[targets[e]])
				order[ready++] = targets[e];
	free(waiting);
	free(first);
	free(targets);
	return sorted && ready == count;
}

static CUresult plan_make(const struct hc_graph *graph, struct hc_plan **made)
{
	struct hc_plan *plan = calloc(1, sizeof(*plan));
	if (!plan)
		return CUDA_ERROR_OUT_OF_MEMORY;
	plan->refs = 1;
	CUresult result = hc_graph_copy(graph, &plan->graph);
	if (result != CUDA_SUCCESS) {
		free(plan);
		return result;
	}
	plan->graph->borrowed = true;
	plan->order = calloc(graph->count + 1, sizeof(*plan->order));
	plan->children = calloc(graph->count + 1, sizeof(struct hc_plan *));
	plan->sources = calloc(graph->count + 1, sizeof(*plan->sources));
	plan->disabled = calloc(graph->count + 1, sizeof(*plan->disabled));
	if (!plan->order || !plan->children || !plan->sources || !plan->disabled)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	else if (!sort_nodes(plan->graph, plan->order))
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; result == CUDA_SUCCESS && i < graph->count; i++) {
		plan->sources[i] = (CUgraphNode)graph->nodes[i];
		if (graph->nodes[i]->type == CU_GRAPH_NODE_TYPE_GRAPH)
			result = plan_make(graph->nodes[i]->child, &plan->children[i]);
	}
	if (result != CUDA_SUCCESS) {
		plan_unref(plan);
		return result;
	}
	*made = plan;
	return CUDA_SUCCESS;
}

/* ---- events of a launch ---- */
/*
 * As on a device, a launch has recorded the events of its graph as soon as the call returns: who waits for one of them
 * from then on waits for the node that records it in this launch. Its own nodes wait for what was recorded last before
 * the launch, or by the launch's nodes that come first.
 */
struct hc_launch_event {  /* of each node that has an event, in the order in which they run */
	struct hc_op *op; /* a reference: what the node marks as done, or waits for (NULL: nothing was ever recorded) */
	bool recorded;    /* by the launch */
};

struct launch {
	struct hc_op *op;
	size_t at; /* the next one of its events */
};

static bool is_event(const struct hc_node *node)
{
	return node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD || node->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT;
}

static size_t count_events(const struct hc_plan *plan)
{
	size_t count = 0;
	for (size_t i = 0; i < plan->graph->count; i++)
		if (!plan->disabled[i])
			count += plan->children[i] ? count_events(plan->children[i]) : is_event(plan->graph->nodes[i]);
	return count;
}

static bool note_event(const struct hc_node *node, struct hc_op *launch) HC_STATE_HELD
{
	struct hc_event *event = hc_handle_kind(node->event) == HC_EVENT ? node->event : NULL;
	struct hc_launch_event *noted = &launch->graph.events[launch->graph.event_count];
	noted->recorded = node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
	noted->op = noted->recorded ? hc_op_new(NULL, NULL) : event ? hc_op_ref(event->op) : NULL;
	if (noted->recorded && !noted->op)
		return false;
	launch->graph.event_count++;
	if (!noted->recorded || !event)
		return true;
	noted->op->context = event->context;
	hc_op_unref(event->op);
	event->op = hc_op_ref(noted->op);
	return true;
}

static bool note_events(const struct hc_plan *plan, struct hc_op *launch) HC_STATE_HELD
{
	bool noted = true;
	for (size_t i = 0; noted && i < plan->graph->count; i++) {
		size_t n = plan->order[i];
		if (plan->disabled[n])
			continue;
		if (plan->children[n])
			noted = note_events(plan->children[n], launch);
		else if (is_event(plan->graph->nodes[n]))
			noted = note_event(plan->graph->nodes[n], launch);
	}
	return noted;
}

/* ---- running ---- */
static void run_event(struct launch *launch)
{
	const struct hc_launch_event *event = &launch->op->graph.events[launch->at++];
	if (event->recorded)
		hc_op_finish(event->op);
	else if (event->op)
		hc_op_join(hc_op_ref(event->op));
}

/* Memory that was mapped again since the node was made may let others reach it. */
static CUresult copy_node(const struct hc_node *node)
{
	hc_state_lock();
	bool good = !node->memcpy.device || hc_copy_reaches(node->memcpy.device, &node->memcpy.copy);
	hc_state_unlock();
	return good ? hc_execute_copy(&node->memcpy.copy) : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static CUresult run_plan(const struct hc_plan *plan, struct hc_context *context, struct launch *launch)
{
	for (size_t i = 0; i < plan->graph->count; i++) {
		const struct hc_node *node = plan->graph->nodes[plan->order[i]];
		CUresult result = CUDA_SUCCESS;
		if (plan->disabled[plan->order[i]])
			continue;
		switch (node->type) {
		case CU_GRAPH_NODE_TYPE_KERNEL:
			result = hc_execute_launch(&node->kernel.launch, context);
			break;
		case CU_GRAPH_NODE_TYPE_MEMCPY:
			result = copy_node(node);
			break;
		case CU_GRAPH_NODE_TYPE_MEMSET:
			result = hc_execute_fill(&node->memset.fill);
			break;
		case CU_GRAPH_NODE_TYPE_HOST:
			node->host.fn(node->host.userData);
			break;
		case CU_GRAPH_NODE_TYPE_GRAPH:
			result = run_plan(plan->children[plan->order[i]], context, launch);
			break;
		case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
			run_event(launch);
			break;
		default:
			break;
		}
		if (result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

static CUresult run_graph(struct hc_op *op)
{
	struct launch launch = {.op = op};
	return run_plan(op->graph.plan, op->context, &launch);
}

/* Whoever waits for an event of a launch that has failed, or never ran, goes on. */
static void release_graph(struct hc_op *op)
{
	for (size_t i = 0; i < op->graph.event_count; i++) {
		if (op->graph.events[i].recorded)
			hc_op_finish(op->graph.events[i].op);
		hc_op_unref(op->graph.events[i].op);
	}
	free(op->graph.events);
	plan_unref(op->graph.plan);
}

/* ---- entry points ---- */
static struct exec *exec_of(CUgraphExec handle)
{
	return hc_handle_kind(handle) == HC_EXEC ? (struct exec *)handle : NULL;
}

CUresult hc_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
	HC_STATE_GUARD();
	const unsigned long long known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
					 CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
					 CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
	if (!phGraphExec || hc_handle_kind(hGraph) != HC_GRAPH ||
	    (flags & ~(known | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)))
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		return CUDA_ERROR_NOT_SUPPORTED;
	struct exec *exec = calloc(1, sizeof(*exec));
	if (!exec)
		return CUDA_ERROR_OUT_OF_MEMORY;
	exec->flags = flags;
	CUresult result = plan_make((struct hc_graph *)hGraph, &exec->plan);
	if (result == CUDA_SUCCESS && !hc_handle_add(exec, HC_EXEC)) {
		plan_unref(exec->plan);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result != CUDA_SUCCESS) {
		free(exec);
		return result;
	}
	*phGraphExec = (CUgraphExec)exec;
	hc_graph_print((struct hc_graph *)hGraph);
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
					 CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	if (!instantiateParams)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = hc_cuGraphInstantiateWithFlags(phGraphExec, hGraph, instantiateParams->flags);
	instantiateParams->hErrNode_out = NULL;
	instantiateParams->result_out = result == CUDA_SUCCESS               ? CUDA_GRAPH_INSTANTIATE_SUCCESS
					: result == CUDA_ERROR_INVALID_VALUE ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
									     : CUDA_GRAPH_INSTANTIATE_ERROR;
	return result;
}

/* Launches that are under way keep their plan. */
CUresult hc_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	HC_STATE_GUARD();
	struct exec *exec = exec_of(hGraphExec);
	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	hc_handle_remove(exec);
	hc_op_unref(exec->last);
	plan_unref(exec->plan);
	free(exec);
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphUpload(CUgraphExec hGraph, CUstream hStream)
{
	struct hc_stream *stream;
	if (!exec_of(hGraph))
		return CUDA_ERROR_INVALID_VALUE;
	return hc_stream_resolve(hStream, &stream); /* the plan lies in host memory already */
}

static CUresult capture_graph(struct hc_stream *stream, const struct exec *exec) HC_STATE_HELD
{
	struct hc_node *node;
	HC_TRY(hc_node_new(stream->capture->graph, CU_GRAPH_NODE_TYPE_GRAPH, &node));
	CUresult result = hc_graph_copy(exec->plan->graph, &node->child);
	if (result != CUDA_SUCCESS) {
		hc_node_free(node);
		return result;
	}
	node->child->borrowed = true;
	return hc_capture_append(stream, node, false);
}

CUresult hc_cuGraphLaunch(CUgraphExec hGraph, CUstream hStream)
{
	HC_STATE_GUARD();
	struct exec *exec = exec_of(hGraph);
	struct hc_stream *stream;
	CUresult result;
	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(hc_stream_resolve(hStream, &stream));
	if (hc_capture_active(stream, &result))
		return result == CUDA_SUCCESS ? capture_graph(stream, exec) : result;
	struct hc_op *op = hc_op_new(run_graph, release_graph), *kept;
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->graph.plan = exec->plan;
	op->graph.events = calloc(count_events(exec->plan) + 1, sizeof(*op->graph.events));
	__atomic_add_fetch(&exec->plan->refs, 1, __ATOMIC_RELAXED);
	if (!op->graph.events || !hc_op_wait_for(op, exec->last) || !note_events(exec->plan, op)) {
		hc_op_unref(op);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	HC_TRY(hc_op_submit_keep(stream, op, &kept));
	hc_op_unref(exec->last);
	exec->last = kept;
	return CUDA_SUCCESS;
}

/* ---- updates ---- */
/* Whether node i of both graphs has the same type and the same dependencies. */
static CUgraphExecUpdateResult compare_node(const struct hc_graph *old, const struct hc_graph *new, size_t i)
{
	const struct hc_node *a = old->nodes[i], *b = new->nodes[i];
	if (a->type != b->type)
		return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
	if (a->from.count != b->from.count)
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (size_t j = 0; j < a->from.count; j++) {
		bool found = false;
		for (size_t k = 0; k < b->from.count; k++)
			found |= a->from.items[j].node->id == b->from.items[k].node->id &&
				 !memcmp(&a->from.items[j].data, &b->from.items[k].data, sizeof(CUgraphEdgeData));
		if (!found)
			return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	}
	return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUgraphExecUpdateResult compare_graphs(const struct hc_graph *old, const struct hc_graph *new, CUgraphNode *node)
{
	*node = NULL;
	if (old->count != new->count)
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (size_t i = 0; i < old->count; i++) {
		CUgraphExecUpdateResult result = compare_node(old, new, i);
		if (result == CU_GRAPH_EXEC_UPDATE_SUCCESS && old->nodes[i]->type == CU_GRAPH_NODE_TYPE_GRAPH)
			result = compare_graphs(old->nodes[i]->child, new->nodes[i]->child, node);
		if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
			if (!*node)
				*node = (CUgraphNode) new->nodes[i];
			return result;
		}
	}
	return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* Callers name nodes by those of the graph that the executable was first made from, so these names are kept. */
static void keep_sources(struct hc_plan *to, struct hc_plan *from)
{
	CUgraphNode *sources = to->sources;
	to->sources = from->sources;
	from->sources = sources;
	memcpy(to->disabled, from->disabled, to->graph->count * sizeof(*to->disabled));
	for (size_t i = 0; i < to->graph->count; i++)
		if (to->children[i])
			keep_sources(to->children[i], from->children[i]);
}

CUresult hc_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)
{
	HC_STATE_GUARD();
	struct exec *exec = exec_of(hGraphExec);
	if (!exec || hc_handle_kind(hGraph) != HC_GRAPH || !resultInfo)
		return CUDA_ERROR_INVALID_VALUE;
	resultInfo->errorFromNode = NULL;
	resultInfo->result = compare_graphs(exec->plan->graph, (struct hc_graph *)hGraph, &resultInfo->errorNode);
	if (resultInfo->result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	struct hc_plan *plan;
	HC_TRY(plan_make((struct hc_graph *)hGraph, &plan));
	keep_sources(plan, exec->plan);
	plan_unref(exec->plan);
	exec->plan = plan;
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
			      CUgraphExecUpdateResult *updateResult_out)
{
	CUgraphExecUpdateResultInfo info = {0};
	CUresult result = hc_cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
	if (hErrorNode_out)
		*hErrorNode_out = info.errorNode;
	if (updateResult_out)
		*updateResult_out = info.result;
	return result;
}

/* The plan's copy of a node of the source graph, child graphs included. */
static struct hc_node *planned_node(struct hc_plan *plan, CUgraphNode source)
{
	for (size_t i = 0; i < plan->graph->count; i++) {
		if (plan->sources[i] == source)
			return plan->graph->nodes[i];
		struct hc_node *inner = plan->children[i] ? planned_node(plan->children[i], source) : NULL;
		if (inner)
			return inner;
	}
	return NULL;
}

/* The plan's copy of a node, ready to be changed: the plan is copied first if a launch still uses it. */
static CUresult begin_change(CUgraphExec handle, CUgraphNode source, CUgraphNodeType type,
			     struct hc_node **node) HC_STATE_HELD
{
	struct exec *exec = exec_of(handle);
	struct hc_plan *plan;
	*node = exec ? planned_node(exec->plan, source) : NULL;
	if (!*node || (*node)->type != type)
		return CUDA_ERROR_INVALID_VALUE;
	if (__atomic_load_n(&exec->plan->refs, __ATOMIC_ACQUIRE) == 1)
		return CUDA_SUCCESS;
	HC_TRY(plan_make(exec->plan->graph, &plan));
	keep_sources(plan, exec->plan);
	plan_unref(exec->plan);
	exec->plan = plan;
	*node = planned_node(plan, source);
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
					      const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	HC_STATE_GUARD();
	struct hc_node *node;
	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(begin_change(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_KERNEL, &node));
	return hc_node_set_kernel(node, nodeParams);
}

CUresult hc_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams,
					   CUcontext ctx)
{
	HC_STATE_GUARD();
	struct hc_node *node;
	if (!copyParams || (ctx && hc_handle_kind(ctx) != HC_CONTEXT))
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(begin_change(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMCPY, &node));
	struct hc_copy copy;
	HC_TRY(hc_copy_make(copyParams, &copy));
	if (!hc_copy_reaches((ctx ? (const struct hc_context *)ctx : hc_context_current())->device, &copy))
		return CUDA_ERROR_INVALID_VALUE;
	node->memcpy.params = *copyParams;
	node->memcpy.copy = copy;
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
					   const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	HC_STATE_GUARD();
	struct hc_node *node;
	if (!memsetParams || (ctx && hc_handle_kind(ctx) != HC_CONTEXT))
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(begin_change(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMSET, &node));
	node->memset.params = *memsetParams;
	return hc_fill_make(memsetParams, &node->memset.fill);
}

/* This call changes kernel nodes only; no caller here has needed it for other types. */
CUresult hc_cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	CUDA_KERNEL_NODE_PARAMS params;
	if (!nodeParams || nodeParams->type != CU_GRAPH_NODE_TYPE_KERNEL)
		return CUDA_ERROR_NOT_SUPPORTED;
	memcpy(&params, &nodeParams->kernel, sizeof(params));
	return hc_cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &params);
}

static CUresult change_event(CUgraphExec exec, CUgraphNode source, CUgraphNodeType type, CUevent event)
{
	HC_STATE_GUARD();
	struct hc_node *node;
	if (hc_handle_kind(event) != HC_EVENT)
		return CUDA_ERROR_INVALID_VALUE;
	HC_TRY(begin_change(exec, source, type, &node));
	node->event = (struct hc_event *)event;
	return CUDA_SUCCESS;
}

CUresult hc_cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
	return change_event(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult hc_cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
	return change_event(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

/* Nodes of child graphs are not affected. */
CUresult hc_cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
	HC_STATE_GUARD();
	struct exec *exec = exec_of(hGraphExec);
	for (size_t i = 0; exec && i < exec->plan->graph->count; i++) {
		struct hc_node *node = exec->plan->graph->nodes[i];
		if (exec->plan->sources[i] != hNode)
			continue;
		if (node->type != CU_GRAPH_NODE_TYPE_KERNEL && node->type != CU_GRAPH_NODE_TYPE_MEMCPY &&
		    node->type != CU_GRAPH_NODE_TYPE_MEMSET)
			return CUDA_ERROR_INVALID_VALUE;
		HC_TRY(begin_change(hGraphExec, hNode, node->type, &node));
		exec->plan->disabled[i] = !isEnabled;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}
