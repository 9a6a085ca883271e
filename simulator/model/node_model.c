/* SPDX-License-Identifier: Apache-2.0 */
/* The clock of the node model: what is due, what follows from it, and how memory is accounted for. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "simulator/model/model_state.h"

struct medusa_sched_event *md_sim_model_emit(struct md_sim_model *model, enum medusa_sched_event_type type)
{
	if (model->event_head == model->event_count)
		model->event_head = model->event_count = 0;
	if (!MD_ARRAY_GROW(model->events, model->event_count, model->event_capacity)) {
		model->failed = true;
		return NULL;
	}
	struct medusa_sched_event *event = &model->events[model->event_count++];
	*event = (struct medusa_sched_event){.type = type, .now = model->now};
	return event;
}

void md_sim_model_complain(struct md_sim_model *model, const char *format, ...)
{
	va_list arguments;
	if (model->complaints++)
		return;
	va_start(arguments, format);
	vsnprintf(model->complaint, sizeof(model->complaint), format, arguments);
	va_end(arguments);
}

void md_sim_model_plan(struct md_sim_model *model, uint64_t at, uint32_t kind, uint32_t index, uint32_t generation)
{
	if (!md_sim_agenda_add(&model->agenda, at, kind, index, generation))
		model->failed = true;
}

uint32_t md_sim_model_artifact(const struct md_sim_model *model, int kind, uint32_t function, uint32_t backbone)
{
	if (kind == MEDUSA_SCHED_CLASS_BACKBONE)
		return backbone;
	return model->functions->backbone_count + function * MEDUSA_SCHED_CLASS_LIBRARY +
	       (uint32_t)(kind - MEDUSA_SCHED_CLASS_WEIGHTS);
}

void md_sim_model_use(struct md_sim_model *model, uint32_t place, uint64_t bytes)
{
	if (place == model->node->gpu_count)
		return;
	struct gpu *gpu = &model->gpus[place];
	gpu->used += bytes;
	if (bytes && gpu->used > gpu->limit)
		md_sim_model_complain(model, "GPU %u holds %llu bytes and has %llu", place,
				      (unsigned long long)gpu->used, (unsigned long long)gpu->limit);
}

void md_sim_model_free(struct md_sim_model *model, uint32_t place, uint64_t bytes)
{
	if (place == model->node->gpu_count)
		return;
	struct gpu *gpu = &model->gpus[place];
	if (bytes > gpu->used)
		md_sim_model_complain(model, "GPU %u frees %llu bytes of %llu", place, (unsigned long long)bytes,
				      (unsigned long long)gpu->used);
	gpu->used -= bytes < gpu->used ? bytes : gpu->used;
}

void md_sim_model_leave(struct md_sim_model *model, uint32_t place, struct copy *copy, uint64_t bytes)
{
	if (place < model->node->gpu_count) {
		model->gpus[place].residues -= copy->residue;
		model->gpus[place].residues += bytes;
	}
	copy->residue = bytes;
}

static void in_host(struct md_sim_model *model, int kind, uint32_t function, uint32_t backbone)
{
	uint32_t artifact = md_sim_model_artifact(model, kind, function, backbone);
	md_sim_model_copy(model, model->node->gpu_count, artifact)->state = COPY_THERE;
}

/* Room for functions, with what they need more than there is set to 0. */
static bool reserve(struct md_sim_model *model, uint32_t count)
{
	uint32_t had = model->function_room, room = had + had / 2 > count ? had + had / 2 : count;
	size_t places = (size_t)model->node->gpu_count + 1, backbones = model->functions->backbone_count;
	size_t artifacts = backbones + (size_t)room * MEDUSA_SCHED_CLASS_LIBRARY;
	if (had && count <= had)
		return true;
	struct timing *timings = md_array_resize(model->timings, (uint64_t)room + 1, sizeof(*timings));
	model->timings = timings ? timings : model->timings;
	double *billed = md_array_resize(model->billed, (uint64_t)room + 1, sizeof(*billed));
	model->billed = billed ? billed : model->billed;
	struct copy *copies = md_array_resize(model->copies, places * artifacts + 1, sizeof(*copies));
	model->copies = copies ? copies : model->copies;
	if (!timings || !billed || !copies)
		return false;
	size_t old = had ? places * (backbones + (size_t)had * MEDUSA_SCHED_CLASS_LIBRARY) : 0;
	memset(copies + old, 0, (places * artifacts + 1 - old) * sizeof(*copies));
	memset(billed + had, 0, (room + 1 - had) * sizeof(*billed));
	model->function_room = room;
	return true;
}

bool md_sim_model_add_functions(struct md_sim_model *model)
{
	const struct md_sim_functions *functions = model->functions;
	if (!reserve(model, functions->count))
		return false;
	md_sim_model_time(model, model->function_count);
	for (; model->function_count < functions->count; model->function_count++) {
		if (!functions->functions[model->function_count].spec.in_host)
			continue;
		in_host(model, MEDUSA_SCHED_CLASS_WEIGHTS, model->function_count, NONE);
		in_host(model, MEDUSA_SCHED_CLASS_LIBRARY, model->function_count, NONE);
	}
	return true;
}

/* "All functions are warmed up": what is configured as in host memory is there; GPUs are empty. */
static void warm_start(struct md_sim_model *model)
{
	for (uint32_t gpu = 0; gpu < model->node->gpu_count; gpu++) {
		model->gpus[gpu].present = true;
		model->gpus[gpu].limit = model->node->gpus[gpu].memory_bytes;
	}
	for (uint32_t i = 0; i < model->functions->backbone_count; i++)
		if (model->functions->backbones[i].spec.in_host)
			in_host(model, MEDUSA_SCHED_CLASS_BACKBONE, 0, i);
}

enum md_status md_sim_model_create(const struct md_sim_model_options *options, struct md_sim_model **created,
				   struct md_error *err)
{
	struct md_sim_model *model = calloc(1, sizeof(*model));
	if (!model)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a node model");
	model->options = *options;
	model->node = options->node;
	model->report_lag = model->node->report_lag_ns;
	model->functions = options->functions;
	model->free_transfer = model->free_batch = NONE;
	model->gpus = calloc(model->node->gpu_count + 1, sizeof(*model->gpus));
	if (!model->gpus || !md_sim_model_add_functions(model) || !md_sim_model_links(model) ||
	    !md_sim_model_blocks(model)) {
		md_sim_model_destroy(model);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for a model of %u functions on %u GPUs",
				    options->functions->count, options->node->gpu_count);
	}
	warm_start(model);
	for (size_t i = 0; i < options->fault_count; i++)
		md_sim_model_plan(model, options->faults[i].now, AGENDA_FAULT, (uint32_t)i, 0);
	if (model->node->report_every_ns)
		md_sim_model_plan(model, model->node->report_every_ns, AGENDA_MEASURE, 0, 0);
	*created = model;
	return MD_OK;
}

void md_sim_model_destroy(struct md_sim_model *model)
{
	if (!model)
		return;
	for (uint32_t gpu = 0; model->gpus && gpu < model->node->gpu_count; gpu++) {
		free(model->gpus[gpu].batches);
		free(model->gpus[gpu].blocks);
	}
	for (uint32_t i = 0; i < model->batch_count; i++) {
		free(model->batches[i].requests);
		free(model->batches[i].tokens);
	}
	md_sim_agenda_finish(&model->agenda);
	md_sim_links_finish(&model->links);
	free(model->peer_links);
	free(model->gpus);
	free(model->timings);
	free(model->billed);
	free(model->copies);
	free(model->transfers);
	free(model->batches);
	free(model->events);
	free(model->reports);
	free(model);
}

void md_sim_model_apply(struct md_sim_model *model, uint64_t now, const struct medusa_sched_action *const *actions,
			size_t count)
{
	model->now = now;
	for (size_t i = 0; i < count && !model->failed; i++) {
		switch (actions[i]->type) {
		case MEDUSA_SCHED_ACTION_SWAP_IN:
		case MEDUSA_SCHED_ACTION_PRELOAD:
			md_sim_model_bring(model, actions[i]);
			break;
		case MEDUSA_SCHED_ACTION_EVICT:
		case MEDUSA_SCHED_ACTION_OFFLOAD:
			md_sim_model_remove(model, actions[i]);
			break;
		case MEDUSA_SCHED_ACTION_ABORT:
			md_sim_model_abort(model, actions[i]);
			break;
		default:
			break;
		}
	}
	/* a batch can determine what it waits for only when all of that has been sent for */
	for (size_t i = 0; i < count && !model->failed; i++)
		if (actions[i]->type == MEDUSA_SCHED_ACTION_RUN || actions[i]->type == MEDUSA_SCHED_ACTION_JOIN)
			md_sim_model_run(model, actions[i]);
}

static bool stale(const struct md_sim_model *model, const struct md_sim_entry *entry)
{
	switch (entry->kind) {
	case AGENDA_COMPUTED:
	case AGENDA_BEGIN:
		return model->batches[entry->index].generation != entry->generation;
	case AGENDA_TRANSFER:
		return model->transfers[entry->index].generation != entry->generation;
	default:
		return false;
	}
}

static const struct md_sim_entry *first_entry(struct md_sim_model *model)
{
	const struct md_sim_entry *entry;
	while ((entry = md_sim_agenda_first(&model->agenda)) && stale(model, entry))
		md_sim_agenda_pop(&model->agenda);
	return entry;
}

bool md_sim_model_due(struct md_sim_model *model, uint64_t *at)
{
	const struct md_sim_entry *entry = first_entry(model);
	uint64_t end;
	uint32_t transfer;
	if (model->failed)
		return false;
	if (model->event_head < model->event_count) {
		*at = model->now;
		return true;
	}
	bool copies = md_sim_links_next(&model->links, &end, &transfer) && end != UINT64_MAX;
	if (!entry && !copies)
		return false;
	*at = !entry || (copies && end <= entry->at) ? end : entry->at;
	return true;
}

static bool is_work(const struct md_sim_entry *entry)
{
	return entry->kind == AGENDA_COMPUTED || entry->kind == AGENDA_BEGIN || entry->kind == AGENDA_TRANSFER;
}

bool md_sim_model_works(const struct md_sim_model *model)
{
	uint64_t end;
	uint32_t transfer;
	if (md_sim_links_next(&model->links, &end, &transfer) && end != UINT64_MAX)
		return true;
	for (size_t i = 0; i < model->agenda.count; i++)
		if (is_work(&model->agenda.entries[i]) && !stale(model, &model->agenda.entries[i]))
			return true;
	return false;
}

static bool is_report(const struct md_sim_entry *entry)
{
	return entry->kind == AGENDA_MEASURE || entry->kind == AGENDA_REPORT;
}

void md_sim_model_leave_out(struct md_sim_model *model, uint64_t until)
{
	const struct md_sim_entry *first = first_entry(model);
	uint64_t step = MD_SIM_ROUNDS_LEFT_OUT * model->node->report_every_ns;
	if (!first || !is_report(first) || !step || model->event_head < model->event_count || md_sim_model_works(model))
		return;
	for (size_t i = 0; i < model->agenda.count; i++) {
		const struct md_sim_entry *entry = &model->agenda.entries[i];
		if (!is_report(entry) && !stale(model, entry) && entry->at < until)
			until = entry->at;
	}
	if (until > first->at && until - first->at >= step)
		md_sim_model_delay_reports(model, (until - first->at) / step * step);
}

uint64_t md_sim_model_ended(const struct md_sim_model *model)
{
	return model->ended;
}

static void happen(struct md_sim_model *model, struct md_sim_entry entry)
{
	model->ended += is_work(&entry);
	switch (entry.kind) {
	case AGENDA_COMPUTED:
		md_sim_model_computed(model, entry.index);
		break;
	case AGENDA_BEGIN:
		md_sim_model_begin(model, entry.index);
		break;
	case AGENDA_TRANSFER:
		md_sim_model_transfer_next(model, entry.index);
		break;
	case AGENDA_FAULT:
		md_sim_model_fault(model, entry.index);
		break;
	case AGENDA_MEASURE:
		md_sim_model_measure(model);
		break;
	case AGENDA_REPORT:
		md_sim_model_report(model);
		break;
	}
}

/* Copies end before other events of the same time, so that what waits for them finds them. */
void md_sim_model_advance(struct md_sim_model *model)
{
	const struct md_sim_entry *entry = first_entry(model);
	uint64_t end = UINT64_MAX;
	uint32_t transfer;
	/* events that follow from actions at once are taken before time passes */
	if (model->event_head < model->event_count)
		return;
	if (md_sim_links_next(&model->links, &end, &transfer) && end != UINT64_MAX && (!entry || end <= entry->at)) {
		model->now = end;
		model->ended++;
		md_sim_model_transfer_next(model, transfer);
		return;
	}
	if (!entry)
		return;
	struct md_sim_entry taken = *entry;
	md_sim_agenda_pop(&model->agenda);
	model->now = taken.at;
	happen(model, taken);
}

bool md_sim_model_event(struct md_sim_model *model, struct medusa_sched_event *event)
{
	if (model->event_head == model->event_count)
		return false;
	*event = model->events[model->event_head++];
	return true;
}

bool md_sim_model_failed(const struct md_sim_model *model)
{
	return model->failed;
}

const char *md_sim_model_complaint(const struct md_sim_model *model, uint64_t *count)
{
	if (count)
		*count = model->complaints;
	return model->complaints ? model->complaint : NULL;
}

void md_sim_model_memory(const struct md_sim_model *model, uint32_t gpu, struct md_sim_memory *memory)
{
	const struct gpu *place = &model->gpus[gpu];
	*memory = (struct md_sim_memory){.residues = place->residues};
	for (uint32_t i = 0; i < place->count; i++)
		memory->kv += model->batches[place->batches[i]].kv_bytes;
	if (place->used > memory->kv + memory->residues)
		memory->artifacts = place->used - memory->kv - memory->residues;
	if (place->present && place->limit > place->used)
		memory->free = place->limit - place->used;
}

/* What has no bytes is brought by nobody, and missed by nobody. */
static enum copy_state state_at(const struct md_sim_model *model, uint32_t place, int kind, uint32_t function)
{
	const struct medusa_sched_function *spec = &model->functions->functions[function].spec;
	uint32_t artifact = md_sim_model_artifact(model, kind, function, NONE);
	if (!(kind == MEDUSA_SCHED_CLASS_WEIGHTS ? spec->weight_bytes : spec->context_bytes))
		return COPY_THERE;
	return (enum copy_state)md_sim_model_copy((struct md_sim_model *)model, place, artifact)->state;
}

uint32_t md_sim_model_cold_copies(const struct md_sim_model *model)
{
	return model->links.links[model->disk].flows;
}

enum md_sim_where md_sim_model_where(const struct md_sim_model *model, uint32_t function)
{
	uint32_t host = model->node->gpu_count;
	bool in_host = state_at(model, host, MEDUSA_SCHED_CLASS_WEIGHTS, function) == COPY_THERE, comes = false;
	for (uint32_t gpu = 0; gpu < host; gpu++) {
		enum copy_state weights = state_at(model, gpu, MEDUSA_SCHED_CLASS_WEIGHTS, function);
		enum copy_state context = state_at(model, gpu, MEDUSA_SCHED_CLASS_CONTEXT, function);
		if (weights == COPY_THERE && context == COPY_THERE)
			return MD_SIM_ON_GPU;
		comes |= weights == COPY_COMING || (weights == COPY_THERE && context == COPY_COMING);
	}
	if (comes)
		return in_host ? MD_SIM_RETURNING : MD_SIM_LOADING;
	return in_host ? MD_SIM_IN_HOST : MD_SIM_ON_DISK;
}

uint64_t md_sim_model_running(const struct md_sim_model *model)
{
	uint64_t running = 0;
	for (uint32_t gpu = 0; gpu < model->node->gpu_count; gpu++) {
		const struct gpu *place = &model->gpus[gpu];
		for (uint32_t i = 0; i < place->count; i++)
			running += model->batches[place->batches[i]].count - model->batches[place->batches[i]].ended;
	}
	return running;
}

uint64_t md_sim_model_used_bytes(const struct md_sim_model *model, uint32_t gpu)
{
	return model->gpus[gpu].used;
}

double md_sim_model_busy_s(const struct md_sim_model *model, uint32_t gpu)
{
	const struct gpu *place = &model->gpus[gpu];
	return (place->busy + (place->count ? (double)(model->now - place->since) : 0)) / 1e9;
}

double md_sim_model_billed_s(const struct md_sim_model *model, uint32_t function)
{
	return model->billed[function] / 1e9;
}
