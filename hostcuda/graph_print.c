/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HOSTCUDA_GRAPHS=FILE: prints a line for each graph that is instantiated; equal graphs of two processes have equal
 * lines.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <string.h>

#include "base/file.h"
#include "hostcuda/device_state.h"
#include "hostcuda/graph_node.h"
#include "hostcuda/graph_print.h"
#include "hostcuda/memory.h"

struct print {
	FILE *out;
	const struct hc_event *events[64]; /* in the order of their first use */
	unsigned event_count;
};

static unsigned event_number(struct print *print, const struct hc_event *event)
{
	unsigned i = 0;
	while (i < print->event_count && print->events[i] != event)
		i++;
	if (i == print->event_count && i < sizeof(print->events) / sizeof(print->events[0]))
		print->events[print->event_count++] = event;
	return i;
}

/* Addresses differ between processes; an offset in an allocation does not. */
static void print_place(struct print *print, uint64_t address) HC_STATE_HELD
{
	const struct hc_memory *memory = hc_memory_at(address);
	if (memory)
		fprintf(print->out, " in %zu bytes at %" PRIu64, memory->size, address - memory->address);
	else
		fprintf(print->out, " elsewhere");
}

static void print_attribute(struct print *print, CUlaunchAttributeID id,
			    const CUlaunchAttributeValue *value) HC_STATE_HELD
{
	static const uint8_t zero[sizeof(*value)];
	size_t from = id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW ? 8 : 0;
	const uint8_t *bytes = (const uint8_t *)value;
	if (!memcmp(value, zero, sizeof(zero)))
		return;
	fprintf(print->out, " attribute %u", (unsigned)id);
	if (from)
		print_place(print, (uintptr_t)value->accessPolicyWindow.base_ptr);
	fprintf(print->out, " ");
	for (size_t i = from; i < 32; i++)
		fprintf(print->out, "%02x", bytes[i]);
}

/* The attributes that were set on the function, because nodes do not carry them. */
static void print_function(struct print *print, const struct hc_function *function)
{
	const struct hc_attributes *told = &function->attributes;
	if ((unsigned)told->max_dynamic != HC_DEFAULT_DYNAMIC_SHARED || told->carveout >= 0 ||
	    told->non_portable_cluster)
		fprintf(print->out, " function %d,%d,%d", told->max_dynamic, told->carveout,
			told->non_portable_cluster);
}

static void print_kernel(struct print *print, const struct hc_node *node) HC_STATE_HELD
{
	const struct hc_launch *launch = &node->kernel.launch;
	fprintf(print->out, " %s grid %u,%u,%u block %u,%u,%u shared %u%s", launch->symbol->name, launch->grid[0],
		launch->grid[1], launch->grid[2], launch->block[0], launch->block[1], launch->block[2], launch->shared,
		node->kernel.from_extra ? " extra" : "");
	print_function(print, (const struct hc_function *)node->kernel.func);
	for (unsigned id = 1; id < 32; id++) {
		CUlaunchAttributeValue value;
		if (hc_node_tell_attribute(node, (CUlaunchAttributeID)id, &value))
			print_attribute(print, (CUlaunchAttributeID)id, &value);
	}
}

static void print_graph(struct print *print, const struct hc_graph *graph) HC_STATE_HELD;

static void print_node(struct print *print, const struct hc_node *node) HC_STATE_HELD
{
	fprintf(print->out, " [%" PRIu64 " type %d", node->id, (int)node->type);
	if (node->type == CU_GRAPH_NODE_TYPE_KERNEL)
		print_kernel(print, node);
	else if (node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD || node->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT)
		fprintf(print->out, " event %u", event_number(print, node->event));
	else if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
		print_graph(print, node->child);
	fprintf(print->out, "]");
	for (size_t i = 0; i < node->from.count; i++) {
		const CUgraphEdgeData *data = &node->from.items[i].data;
		fprintf(print->out, " <%" PRIu64 ":%u,%u,%u", node->from.items[i].node->id, data->from_port,
			data->to_port, data->type);
	}
}

static void print_graph(struct print *print, const struct hc_graph *graph)
{
	fprintf(print->out, " %zu nodes", graph->count);
	for (size_t i = 0; i < graph->count; i++)
		print_node(print, graph->nodes[i]);
}

void hc_graph_print(const struct hc_graph *graph)
{
	const char *path = secure_getenv("HOSTCUDA_GRAPHS");
	int fd = path && *path ? md_file_open_append(path, false) : -1;
	struct print print = {.out = fd >= 0 ? fdopen(fd, "a") : NULL};
	if (!print.out) {
		if (fd >= 0)
			close(fd);
		return;
	}
	print_graph(&print, graph);
	fputc('\n', print.out);
	fclose(print.out);
}
