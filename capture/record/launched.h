/* SPDX-License-Identifier: Apache-2.0 */
/* Launches and copies, counted, and which call made which node of a graph. */
#ifndef MD_CAPTURE_RECORD_LAUNCHED_H
#define MD_CAPTURE_RECORD_LAUNCHED_H

#include "capture/capture.h"
#include "format/attributes.h"

/* A kernel's parameter layout, which never changes; kernel is MD_NONE if the kernel is unknown. */
struct md_capture_layout {
	uint32_t kernel, param_count;
	const struct md_param *params;
};
/* Hot: no lock, no allocation once the kernel is known. */
struct md_capture_layout md_capture_launch_count(CUfunction func);
void md_capture_launches_put(void) MD_CAPTURE_HELD;                         /* totals to the trace */
void md_capture_transfer_count(enum md_transfer_kind kind, uint64_t bytes); /* hot: two atomic additions */
void md_capture_transfers_put(void) MD_CAPTURE_HELD;                        /* totals to the trace */

/* The recorded call that made a node; some attributes cannot be read back from the node. */
struct md_capture_memo {
	uint64_t sequence; /* 0: the call was not seen */
	CUcontext context; /* the context of the node; NULL: not known */
	bool green;        /* the context is a green one, which has a part of the device */
	bool opaque;       /* a child graph, with attributes that can't be read back */
	bool updatable;    /* the node can be updated from the device */
	uint32_t strange;  /* a launch attribute that Medusa does not know; 0: none */
	uint32_t attribute_count;
	struct md_attribute attributes[MD_NODE_ATTRIBUTES];
};
void md_capture_stream_begun(CUstream stream);
void md_capture_stream_ending(CUstream stream); /* after cuStreamEndCapture, whatever it returned */
/* Links the node that the last call put at the end of a capturing stream with that call. */
void md_capture_node_note(CUstream stream, const CUlaunchAttribute *attributes, unsigned count);
/* A call on the graph set the node's parameters; everything else that is recorded of the node stays. */
void md_capture_node_touched(CUgraphNode node);
/* Forgets earlier records: the handle may have been another node's. context: the node's own, or NULL. */
void md_capture_node_added(CUgraphNode node, CUcontext context);
void md_capture_node_forget(CUgraphNode node);
void md_capture_node_alike(CUgraphNode node, CUgraphNode from); /* it was given all attributes of `from` */
/* An attribute was set on the node: kept if it is one of those that can't be read back. */
void md_capture_node_attribute(CUgraphNode node, CUlaunchAttributeID id, const CUlaunchAttributeValue *value);
/* The copy's nodes get the records of the graph's nodes. */
void md_capture_graph_copied(CUgraph graph, CUgraph copy);
void md_capture_child_added(CUgraphNode node, CUgraph graph);
void md_capture_graph_launched(CUgraphExec exec, CUstream stream);                    /* inside of a stream capture */
const struct md_capture_memo *md_capture_node_memo(CUgraphNode node) MD_CAPTURE_HELD; /* NULL */
void md_capture_graph_forget(CUgraph graph);                                          /* before cuGraphDestroy */

#endif
