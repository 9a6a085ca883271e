/* SPDX-License-Identifier: Apache-2.0 */
/* Early binding (Torpor, section 7, Native): one process per function, placed on a GPU once and never moved. */
#include <stdlib.h>

#include "simulator/run/run_state.h"

#define NONE MEDUSA_SCHED_NONE

struct process {
	uint32_t gpu; /* NONE: fits on no GPU */
	double part;
	uint32_t first, last; /* list of waiting requests; NONE: empty */
	bool busy;
};

struct md_sim_native {
	const struct md_sim_workload *workload;
	struct process *processes;
	uint32_t *next; /* by request: the next one in its function's queue */
	uint64_t batches;
	uint64_t *held; /* bytes, by GPU */
	struct medusa_sched_stats stats;
	struct medusa_sched_action action; /* the action of this step, if any */
	const struct medusa_sched_action *actions[1];
	uint64_t request;
	size_t count;
};

static uint64_t bytes_of(const struct md_sim_node *node, const struct md_sim_functions *functions, uint32_t i)
{
	const struct md_sim_function *function = &functions->functions[i];
	const struct medusa_sched_function *spec = &function->spec;
	if (function->native_bytes)
		return function->native_bytes;
	uint64_t backbone = spec->backbone == NONE ? 0 : functions->backbones[spec->backbone].spec.bytes;
	return backbone + spec->weight_bytes + spec->context_bytes + node->native_instance_bytes;
}

static void place(struct md_sim_native *native, const struct md_sim_node *node,
		  const struct md_sim_functions *functions, uint64_t *left)
{
	uint32_t turn = 0;
	for (uint32_t i = 0; i < functions->count; i++) {
		struct process *process = &native->processes[i];
		uint64_t bytes = bytes_of(node, functions, i);
		*process = (struct process){.gpu = NONE, .first = NONE, .last = NONE};
		for (uint32_t tried = 0; tried < node->gpu_count; tried++) {
			uint32_t gpu = (turn + tried) % node->gpu_count;
			if (left[gpu] < bytes)
				continue;
			left[gpu] -= bytes;
			native->held[gpu] += bytes;
			process->gpu = gpu;
			process->part = (double)bytes / (double)node->gpus[gpu].memory_bytes;
			turn = gpu + 1;
			break;
		}
	}
}

enum md_status md_sim_native_create(const struct md_sim_node *node, const struct md_sim_functions *functions,
				    const struct md_sim_workload *workload, struct md_sim_native **created,
				    struct md_error *err)
{
	struct md_sim_native *native = calloc(1, sizeof(*native));
	uint64_t *left = malloc((node->gpu_count + 1) * sizeof(*left));
	if (native) {
		native->workload = workload;
		native->stats.size = sizeof(native->stats);
		native->processes = malloc((functions->count + 1) * sizeof(*native->processes));
		native->next = malloc((workload->count + 1) * sizeof(*native->next));
		native->held = calloc(node->gpu_count + 1, sizeof(*native->held));
	}
	if (!native || !left || !native->processes || !native->next || !native->held) {
		free(left);
		md_sim_native_destroy(native);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %u processes", functions->count);
	}
	for (uint32_t gpu = 0; gpu < node->gpu_count; gpu++)
		left[gpu] = node->gpus[gpu].memory_bytes;
	place(native, node, functions, left);
	free(left);
	*created = native;
	return MD_OK;
}

void md_sim_native_destroy(struct md_sim_native *native)
{
	if (!native)
		return;
	free(native->processes);
	free(native->next);
	free(native->held);
	free(native);
}

static void reject(struct md_sim_native *native, uint64_t request, enum medusa_sched_reason reason)
{
	native->stats.rejected++;
	native->count = 1;
	native->action = (struct medusa_sched_action){.type = MEDUSA_SCHED_ACTION_REJECT,
						      .request = request,
						      .function = native->workload->requests[request].function,
						      .reason = reason};
}

static void start(struct md_sim_native *native, uint32_t function)
{
	struct process *process = &native->processes[function];
	if (process->busy || process->first == NONE)
		return;
	native->request = process->first;
	process->first = native->next[process->first];
	process->busy = true;
	native->stats.runs++;
	native->count = 1;
	native->action = (struct medusa_sched_action){.type = MEDUSA_SCHED_ACTION_RUN,
						      .function = function,
						      .gpu = process->gpu,
						      .batch = ++native->batches,
						      .requests = &native->request,
						      .request_count = 1};
}

static void arrive(struct md_sim_native *native, const struct medusa_sched_event *event)
{
	struct process *process = &native->processes[event->function];
	uint32_t request = (uint32_t)event->request;
	native->stats.arrivals++;
	if (process->gpu == NONE) {
		reject(native, request, MEDUSA_SCHED_REASON_NEVER_FITS);
		return;
	}
	native->next[request] = NONE;
	if (process->first == NONE)
		process->first = request;
	else
		native->next[process->last] = request;
	process->last = request;
	start(native, event->function);
}

void md_sim_native_step(struct md_sim_native *native, const struct medusa_sched_event *event,
			const struct medusa_sched_action *const **actions, size_t *count)
{
	native->count = 0;
	if (event->type == MEDUSA_SCHED_EVENT_ARRIVAL) {
		arrive(native, event);
	} else if (event->type == MEDUSA_SCHED_EVENT_DONE) {
		native->stats.served++;
		native->processes[event->function].busy = false;
		start(native, event->function);
	}
	native->actions[0] = &native->action;
	*actions = native->actions;
	*count = native->count;
}

void md_sim_native_stats(const struct md_sim_native *native, struct medusa_sched_stats *stats)
{
	*stats = native->stats;
}

double md_sim_native_part(const struct md_sim_native *native, uint32_t function)
{
	return native->processes[function].gpu == NONE ? 0 : native->processes[function].part;
}

uint64_t md_sim_native_bytes(const struct md_sim_native *native, uint32_t gpu)
{
	return native->held[gpu];
}
