/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers: copies over links in stages, contexts that are created, evictions that take time. */
#include <stdlib.h>

#include "base/array.h"
#include "simulator/model/model_state.h"

/* One link for each PCIe switch, which the first GPU on that switch adds. */
static bool uplink_of(struct md_sim_model *model, uint32_t gpu)
{
	const struct md_sim_node *node = model->node;
	if (node->switch_bytes_per_s <= 0)
		return true;
	for (uint32_t other = 0; other < gpu; other++) {
		if (node->gpus[other].pcie_switch == node->gpus[gpu].pcie_switch) {
			model->gpus[gpu].uplink = model->gpus[other].uplink;
			return true;
		}
	}
	return md_sim_links_add(&model->links, node->switch_bytes_per_s, &model->gpus[gpu].uplink);
}

bool md_sim_model_links(struct md_sim_model *model)
{
	const struct md_sim_node *node = model->node;
	size_t pairs = (size_t)node->gpu_count * node->gpu_count;
	if (!md_sim_links_add(&model->links, node->cold_bytes_per_s, &model->disk))
		return false;
	for (uint32_t gpu = 0; gpu < node->gpu_count; gpu++) {
		model->gpus[gpu].uplink = MD_SIM_NO_LINK;
		if (!md_sim_links_add(&model->links, node->host_bytes_per_s, &model->gpus[gpu].link) ||
		    !uplink_of(model, gpu))
			return false;
	}
	model->peer_links = malloc((pairs + 1) * sizeof(*model->peer_links));
	if (!model->peer_links)
		return false;
	for (size_t i = 0; i < pairs; i++) {
		model->peer_links[i] = MD_SIM_NO_LINK;
		if (node->peer_bytes_per_s && node->peer_bytes_per_s[i] > 0 &&
		    !md_sim_links_add(&model->links, node->peer_bytes_per_s[i], &model->peer_links[i]))
			return false;
	}
	return true;
}

static uint32_t transfer_new(struct md_sim_model *model, const struct medusa_sched_action *action)
{
	uint32_t index = model->free_transfer;
	if (index != NONE) {
		model->free_transfer = model->transfers[index].next_free;
	} else {
		if (!MD_ARRAY_GROW(model->transfers, model->transfer_count, model->transfer_capacity)) {
			model->failed = true;
			return NONE;
		}
		index = model->transfer_count++;
		model->transfers[index].generation = 0;
	}
	struct transfer *transfer = &model->transfers[index];
	*transfer = (struct transfer){
	    .id = action->transfer,
	    .order = model->orders++,
	    .artifact = md_sim_model_artifact(model, action->artifact, action->function, action->backbone),
	    .place = action->gpu == NONE ? model->node->gpu_count : action->gpu,
	    .peer = NONE,
	    .function = action->function,
	    .backbone = action->backbone,
	    .kind = (uint8_t)action->artifact,
	    .source = (uint8_t)action->source,
	    .live = true,
	    .to_host = action->to_host != 0,
	    .bytes = action->bytes,
	    .ready_at = model->now,
	    .generation = transfer->generation + 1};
	return index;
}

static void transfer_free(struct md_sim_model *model, uint32_t index)
{
	struct transfer *transfer = &model->transfers[index];
	if (transfer->peer != NONE)
		md_sim_model_copy(model, transfer->peer, transfer->artifact)->pins--;
	transfer->live = false;
	transfer->generation++;
	transfer->next_free = model->free_transfer;
	model->free_transfer = index;
}

static void delay(struct md_sim_model *model, uint32_t index, uint64_t ns)
{
	struct transfer *transfer = &model->transfers[index];
	transfer->stage = STAGE_DELAY;
	md_sim_model_plan(model, model->now + ns, AGENDA_TRANSFER, index, ++transfer->generation);
}

/* The library is loaded before the context is created with it. */
static void make(struct md_sim_model *model, uint32_t index)
{
	struct transfer *transfer = &model->transfers[index];
	uint32_t library = md_sim_model_artifact(model, MEDUSA_SCHED_CLASS_LIBRARY, transfer->function, NONE);
	if (md_sim_model_copy(model, model->node->gpu_count, library)->state == COPY_COMING)
		transfer->stage = STAGE_LIBRARY;
	else
		delay(model, index, model->functions->functions[transfer->function].spec.context_ns);
}

static uint64_t cold_ns(const struct md_sim_model *model, const struct transfer *transfer)
{
	if (transfer->kind == MEDUSA_SCHED_CLASS_BACKBONE)
		return model->functions->backbones[transfer->backbone].spec.cold_ns;
	const struct medusa_sched_function *spec = &model->functions->functions[transfer->function].spec;
	/* library and weights have one cold start time together: it belongs to the library if there is one */
	return transfer->kind == MEDUSA_SCHED_CLASS_LIBRARY || !spec->library_bytes ? spec->cold_ns : 0;
}

/* How long an engine takes that is not loaded over the links; 0: it is a copy. */
static uint64_t loads_for(const struct md_sim_model *model, const struct transfer *transfer)
{
	bool engine = transfer->kind == MEDUSA_SCHED_CLASS_BACKBONE && transfer->source != MEDUSA_SCHED_SOURCE_PEER &&
		      transfer->place < model->node->gpu_count;
	return engine ? model->functions->backbones[transfer->backbone].spec.load_ns : 0;
}

static double copied_bytes(const struct md_sim_model *model, const struct transfer *transfer)
{
	if (loads_for(model, transfer))
		return 0;
	if (transfer->kind != MEDUSA_SCHED_CLASS_WEIGHTS)
		return (double)transfer->bytes;
	const struct timing *timing = &model->timings[transfer->function];
	return transfer->source == MEDUSA_SCHED_SOURCE_PEER ? timing->peer_bytes : timing->host_bytes;
}

/* The delay before anything is copied: the driver's allocations, and the fixed time of a cold start. */
static uint64_t first_delay(struct md_sim_model *model, const struct transfer *transfer)
{
	uint64_t ns = transfer->source == MEDUSA_SCHED_SOURCE_COLD ? cold_ns(model, transfer) : 0;
	ns += loads_for(model, transfer);
	if (transfer->place < model->node->gpu_count && transfer->kind == MEDUSA_SCHED_CLASS_WEIGHTS)
		ns += md_sim_model_allocate(model, transfer->place, transfer->function, transfer->bytes);
	return ns;
}

static void check_source(struct md_sim_model *model, struct transfer *transfer, uint32_t peer)
{
	uint32_t from = transfer->source == MEDUSA_SCHED_SOURCE_PEER ? peer : model->node->gpu_count;
	if (transfer->source == MEDUSA_SCHED_SOURCE_COLD || transfer->source == MEDUSA_SCHED_SOURCE_MADE)
		return;
	if (from > model->node->gpu_count || md_sim_model_copy(model, from, transfer->artifact)->state != COPY_THERE) {
		md_sim_model_complain(model, "transfer %llu copies from where its artifact is not",
				      (unsigned long long)transfer->id);
		return;
	}
	if (transfer->source != MEDUSA_SCHED_SOURCE_PEER)
		return;
	if (model->peer_links[(size_t)peer * model->node->gpu_count + transfer->place] == MD_SIM_NO_LINK)
		md_sim_model_complain(model, "transfer %llu copies between GPUs %u and %u, which have no link",
				      (unsigned long long)transfer->id, peer, transfer->place);
	transfer->peer = peer;
	md_sim_model_copy(model, peer, transfer->artifact)->pins++;
}

void md_sim_model_bring(struct md_sim_model *model, const struct medusa_sched_action *action)
{
	uint32_t index = transfer_new(model, action);
	if (index == NONE)
		return;
	struct transfer *transfer = &model->transfers[index];
	struct copy *copy = md_sim_model_copy(model, transfer->place, transfer->artifact);
	if (copy->state != COPY_ABSENT)
		md_sim_model_complain(model, "transfer %llu brings what is there, or on its way",
				      (unsigned long long)transfer->id);
	/* the residue of an evicted context becomes part of the new one */
	md_sim_model_free(model, transfer->place, copy->residue);
	md_sim_model_leave(model, transfer->place, copy, 0);
	*copy = (struct copy){.state = COPY_COMING, .transfer = index};
	md_sim_model_use(model, transfer->place, transfer->bytes);
	check_source(model, transfer, action->peer);
	transfer->copied = copied_bytes(model, transfer);
	if (transfer->source == MEDUSA_SCHED_SOURCE_MADE) {
		make(model, index);
		return;
	}
	uint64_t ns = first_delay(model, transfer);
	transfer->ready_at = model->now + ns;
	if (transfer->kind == MEDUSA_SCHED_CLASS_WEIGHTS && transfer->source != MEDUSA_SCHED_SOURCE_COLD) {
		const struct timing *timing = &model->timings[transfer->function];
		transfer->ready_at +=
		    transfer->source == MEDUSA_SCHED_SOURCE_PEER ? timing->peer_head : timing->host_head;
	}
	if (ns)
		delay(model, index, ns);
	else
		md_sim_model_transfer_next(model, index);
}

static void flow(struct md_sim_model *model, uint32_t index, uint8_t stage, double bytes, uint32_t first,
		 uint32_t second)
{
	model->transfers[index].stage = stage;
	if (!md_sim_links_start(&model->links, model->now, bytes, first, second, index))
		model->failed = true;
}

static void wake_contexts(struct md_sim_model *model, uint32_t library)
{
	for (uint32_t i = 0; i < model->transfer_count; i++) {
		const struct transfer *transfer = &model->transfers[i];
		if (transfer->live && transfer->kind == MEDUSA_SCHED_CLASS_CONTEXT &&
		    transfer->stage == STAGE_LIBRARY &&
		    md_sim_model_artifact(model, MEDUSA_SCHED_CLASS_LIBRARY, transfer->function, NONE) == library)
			make(model, i);
	}
}

static void transfer_done(struct md_sim_model *model, uint32_t index)
{
	struct transfer *transfer = &model->transfers[index];
	uint32_t place = transfer->place, artifact = transfer->artifact;
	bool library = transfer->kind == MEDUSA_SCHED_CLASS_LIBRARY;
	struct medusa_sched_event *event = md_sim_model_emit(model, MEDUSA_SCHED_EVENT_TRANSFER_DONE);
	if (event)
		event->transfer = transfer->id;
	md_sim_model_copy(model, place, artifact)->state = COPY_THERE;
	/* what came from the disk has passed through host memory, and may stay there */
	if (transfer->to_host)
		md_sim_model_copy(model, model->node->gpu_count, artifact)->state = COPY_THERE;
	transfer_free(model, index);
	if (library)
		wake_contexts(model, artifact);
	md_sim_model_arrived(model, place, artifact);
}

static void leave_books(struct md_sim_model *model, const struct transfer *transfer)
{
	md_sim_model_free(model, transfer->place, transfer->bytes);
	if (transfer->place < model->node->gpu_count && transfer->kind == MEDUSA_SCHED_CLASS_WEIGHTS)
		md_sim_model_release(model, transfer->place, transfer->function, transfer->bytes);
}

static void transfer_left(struct md_sim_model *model, uint32_t index)
{
	struct transfer *transfer = &model->transfers[index];
	struct medusa_sched_event *event = md_sim_model_emit(model, MEDUSA_SCHED_EVENT_EVICTED);
	if (event)
		event->transfer = transfer->id;
	md_sim_model_copy(model, transfer->place, transfer->artifact)->state = COPY_ABSENT;
	leave_books(model, transfer);
	transfer_free(model, index);
}

/* The stages: delay; disk, if it is cold; then the link to the GPU, if a GPU is the destination. */
void md_sim_model_transfer_next(struct md_sim_model *model, uint32_t index)
{
	struct transfer *transfer = &model->transfers[index];
	uint32_t gpus = model->node->gpu_count, place = transfer->place;
	if (transfer->stage == STAGE_DISK || transfer->stage == STAGE_LINK)
		md_sim_links_stop(&model->links, model->now, index);
	if (transfer->stage == STAGE_LEAVING)
		transfer_left(model, index);
	else if (transfer->source == MEDUSA_SCHED_SOURCE_MADE || transfer->stage == STAGE_LINK)
		transfer_done(model, index);
	else if (transfer->source == MEDUSA_SCHED_SOURCE_COLD && transfer->stage != STAGE_DISK)
		flow(model, index, STAGE_DISK, (double)transfer->bytes, model->disk, MD_SIM_NO_LINK);
	else if (place == gpus)
		transfer_done(model, index);
	else if (transfer->source == MEDUSA_SCHED_SOURCE_PEER && transfer->peer != NONE)
		flow(model, index, STAGE_LINK, transfer->copied,
		     model->peer_links[(size_t)transfer->peer * gpus + place], MD_SIM_NO_LINK);
	else
		flow(model, index, STAGE_LINK, transfer->copied, model->gpus[place].link, model->gpus[place].uplink);
}

void md_sim_model_transfer_drop(struct md_sim_model *model, uint32_t index)
{
	struct transfer *transfer = &model->transfers[index];
	uint32_t artifact = transfer->artifact;
	bool library = transfer->kind == MEDUSA_SCHED_CLASS_LIBRARY;
	if (transfer->stage == STAGE_DISK || transfer->stage == STAGE_LINK)
		md_sim_links_stop(&model->links, model->now, index);
	md_sim_model_copy(model, transfer->place, artifact)->state = COPY_ABSENT;
	leave_books(model, transfer);
	transfer_free(model, index);
	if (library)
		wake_contexts(model, artifact);
}

static void check_removal(struct md_sim_model *model, const struct copy *copy, uint32_t place, uint32_t artifact)
{
	if (copy->pins)
		md_sim_model_complain(model, "artifact %u leaves place %u while it is in use", artifact, place);
	if (copy->state != COPY_THERE && !copy->residue)
		md_sim_model_complain(model, "artifact %u leaves place %u, where it is not", artifact, place);
}

static uint64_t residue_of(const struct md_sim_model *model, const struct medusa_sched_action *action)
{
	if (action->type != MEDUSA_SCHED_ACTION_EVICT || action->artifact != MEDUSA_SCHED_CLASS_CONTEXT ||
	    action->gpu == NONE)
		return 0;
	return model->functions->functions[action->function].spec.residue_bytes;
}

static uint64_t eviction_ns(const struct md_sim_model *model, const struct medusa_sched_action *action)
{
	if (action->artifact == MEDUSA_SCHED_CLASS_BACKBONE)
		return model->functions->backbones[action->backbone].spec.evict_ns;
	return model->functions->functions[action->function].spec.evict_ns;
}

void md_sim_model_remove(struct md_sim_model *model, const struct medusa_sched_action *action)
{
	uint32_t place = action->gpu == NONE ? model->node->gpu_count : action->gpu;
	uint32_t artifact = md_sim_model_artifact(model, action->artifact, action->function, action->backbone);
	struct copy *copy = md_sim_model_copy(model, place, artifact);
	check_removal(model, copy, place, artifact);
	md_sim_model_leave(model, place, copy, residue_of(model, action));
	if (action->transfer) {
		uint32_t index = transfer_new(model, action);
		if (index == NONE)
			return;
		copy->state = COPY_LEAVING;
		copy->transfer = index;
		model->transfers[index].stage = STAGE_LEAVING;
		md_sim_model_plan(model, model->now + eviction_ns(model, action), AGENDA_TRANSFER, index,
				  model->transfers[index].generation);
		return;
	}
	copy->state = COPY_ABSENT;
	md_sim_model_free(model, place, action->bytes);
	if (action->gpu != NONE && action->artifact == MEDUSA_SCHED_CLASS_WEIGHTS)
		md_sim_model_release(model, place, action->function, action->bytes);
}
