/* SPDX-License-Identifier: Apache-2.0 */
/* Injected failures of a node, and memory reports of its driver, which arrive late. */
#include <stdlib.h>
#include <string.h>

#include "simulator/model/model_state.h"

void md_sim_model_transfer_failed(struct md_sim_model *model, uint32_t index)
{
	struct transfer *transfer = &model->transfers[index];
	uint32_t place = transfer->place, artifact = transfer->artifact;
	struct medusa_sched_event *event = md_sim_model_emit(model, MEDUSA_SCHED_EVENT_TRANSFER_FAILED);
	if (event)
		event->transfer = transfer->id;
	/* the scheduler knows which batches waited for it, so these end without a report */
	for (uint32_t i = 0; i < model->batch_count; i++) {
		const struct batch *batch = &model->batches[i];
		bool waits = false;
		for (int kind = 0; batch->live && kind < BATCH_NEEDS; kind++)
			waits |= batch->coming[kind] && batch->needs[kind] == artifact &&
				 (kind == MEDUSA_SCHED_CLASS_LIBRARY || batch->gpu == place);
		if (waits)
			md_sim_model_batch_drop(model, i);
	}
	md_sim_model_transfer_drop(model, index);
}

/* Fails transfers that read a copy that is lost; the caller then removes the copy. artifact NONE: any. */
static void readers_fail(struct md_sim_model *model, uint32_t gpu, uint32_t artifact)
{
	for (uint32_t i = 0; i < model->transfer_count; i++) {
		const struct transfer *transfer = &model->transfers[i];
		if (transfer->live && transfer->peer == gpu && (artifact == NONE || transfer->artifact == artifact))
			md_sim_model_transfer_failed(model, i);
	}
}

static void gpu_lost(struct md_sim_model *model, uint32_t index)
{
	struct gpu *gpu = &model->gpus[index];
	while (gpu->count)
		md_sim_model_batch_drop(model, gpu->batches[gpu->count - 1]);
	for (uint32_t i = 0; i < model->transfer_count; i++)
		if (model->transfers[i].live && model->transfers[i].place == index)
			md_sim_model_transfer_drop(model, i);
	readers_fail(model, index, NONE);
	uint32_t artifacts =
	    model->functions->backbone_count + model->function_count * (uint32_t)MEDUSA_SCHED_CLASS_LIBRARY;
	for (uint32_t artifact = 0; artifact < artifacts; artifact++)
		*md_sim_model_copy(model, index, artifact) = (struct copy){0};
	gpu->used = gpu->residues = 0;
	gpu->present = false;
	gpu->block_bytes = 0;
	if (gpu->blocks && model->functions->model_count)
		memset(gpu->blocks, 0, model->functions->model_count * sizeof(*gpu->blocks));
}

static void backbone_failed(struct md_sim_model *model, uint32_t gpu, uint32_t backbone)
{
	uint32_t artifact = md_sim_model_artifact(model, MEDUSA_SCHED_CLASS_BACKBONE, 0, backbone);
	struct copy *copy = md_sim_model_copy(model, gpu, artifact);
	for (uint32_t i = model->gpus[gpu].count; i-- > 0;) {
		uint32_t batch = model->gpus[gpu].batches[i];
		if (model->batches[batch].needs[MEDUSA_SCHED_CLASS_BACKBONE] == artifact)
			md_sim_model_batch_drop(model, batch);
	}
	readers_fail(model, gpu, artifact);
	/* what is there is useless, and is removed when the scheduler offloads it */
	if (copy->state == COPY_COMING)
		md_sim_model_transfer_failed(model, copy->transfer);
}

static uint32_t oldest_transfer(const struct md_sim_model *model, uint32_t gpu)
{
	uint32_t oldest = NONE;
	for (uint32_t i = 0; i < model->transfer_count; i++) {
		const struct transfer *transfer = &model->transfers[i];
		if (transfer->live && transfer->place == gpu && transfer->stage != STAGE_LEAVING &&
		    (oldest == NONE || transfer->order < model->transfers[oldest].order))
			oldest = i;
	}
	return oldest;
}

static void forward(struct md_sim_model *model, const struct medusa_sched_event *fault)
{
	struct medusa_sched_event *event = md_sim_model_emit(model, fault->type);
	if (!event)
		return;
	*event = *fault;
	event->now = model->now;
}

static void batch_failed(struct md_sim_model *model, uint32_t gpu)
{
	if (!model->gpus[gpu].count)
		return;
	uint64_t id = model->batches[model->gpus[gpu].batches[0]].id;
	struct medusa_sched_event *event = md_sim_model_emit(model, MEDUSA_SCHED_EVENT_BATCH_FAILED);
	if (event)
		event->batch = id;
	/* what has joined it fails with it */
	for (uint32_t i = model->gpus[gpu].count; i-- > 0;)
		if (model->batches[model->gpus[gpu].batches[i]].id == id)
			md_sim_model_batch_drop(model, model->gpus[gpu].batches[i]);
}

void md_sim_model_fault(struct md_sim_model *model, uint32_t index)
{
	const struct medusa_sched_event *fault = &model->options.faults[index];
	uint32_t victim;
	switch (fault->type) {
	case MEDUSA_SCHED_EVENT_TRANSFER_FAILED:
		victim = oldest_transfer(model, fault->gpu);
		if (victim != NONE)
			md_sim_model_transfer_failed(model, victim);
		return;
	case MEDUSA_SCHED_EVENT_BATCH_FAILED:
		batch_failed(model, fault->gpu);
		return;
	case MEDUSA_SCHED_EVENT_GPU_LOST:
		if (!model->gpus[fault->gpu].present)
			return;
		/* The loss is reported first, because it explains the transfers that fail. */
		forward(model, fault);
		gpu_lost(model, fault->gpu);
		return;
	case MEDUSA_SCHED_EVENT_GPU_BACK:
		/* it also ends the draining of a GPU that was there all the time */
		model->gpus[fault->gpu].present = true;
		break;
	case MEDUSA_SCHED_EVENT_BACKBONE_FAILED:
		forward(model, fault);
		backbone_failed(model, fault->gpu, fault->backbone);
		return;
	case MEDUSA_SCHED_EVENT_MEMORY_REPORT:
		model->report_lag = fault->bytes;
		return;
	case MEDUSA_SCHED_EVENT_MEMORY_LIMIT:
		model->gpus[fault->gpu].limit = fault->bytes;
		break;
	default:
		break;
	}
	forward(model, fault);
}

static bool report_add(struct md_sim_model *model, struct report report)
{
	if (model->report_count == model->report_capacity) {
		size_t capacity = model->report_capacity ? model->report_capacity * 2 : 64;
		struct report *grown = malloc(capacity * sizeof(*grown));
		if (!grown)
			return false;
		for (size_t i = 0; i < model->report_count; i++)
			grown[i] = model->reports[(model->report_head + i) % model->report_capacity];
		free(model->reports);
		model->reports = grown;
		model->report_capacity = capacity;
		model->report_head = 0;
	}
	model->reports[(model->report_head + model->report_count++) % model->report_capacity] = report;
	return true;
}

void md_sim_model_measure(struct md_sim_model *model)
{
	uint64_t at = model->now + model->report_lag;
	/* a report does not overtake the one before it, also when the lag has become shorter */
	model->reported = at > model->reported ? at : model->reported;
	for (uint32_t gpu = 0; gpu < model->node->gpu_count; gpu++) {
		if (!report_add(model, (struct report){gpu, model->gpus[gpu].used, model->now})) {
			model->failed = true;
			return;
		}
		md_sim_model_plan(model, model->reported, AGENDA_REPORT, 0, 0);
	}
	md_sim_model_plan(model, model->now + model->node->report_every_ns, AGENDA_MEASURE, 0, 0);
}

void md_sim_model_report(struct md_sim_model *model)
{
	struct report report = model->reports[model->report_head];
	model->report_head = (model->report_head + 1) % model->report_capacity;
	model->report_count--;
	if (!model->gpus[report.gpu].present)
		return;
	struct medusa_sched_event *event = md_sim_model_emit(model, MEDUSA_SCHED_EVENT_MEMORY_REPORT);
	if (!event)
		return;
	event->gpu = report.gpu;
	event->bytes = report.bytes;
	event->as_of = report.as_of;
}

void md_sim_model_delay_reports(struct md_sim_model *model, uint64_t by)
{
	md_sim_agenda_delay(&model->agenda, 1u << AGENDA_MEASURE | 1u << AGENDA_REPORT, by);
	for (size_t i = 0; i < model->report_count; i++)
		model->reports[(model->report_head + i) % model->report_capacity].as_of += by;
	model->reported += by;
}
