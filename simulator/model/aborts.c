/* SPDX-License-Identifier: Apache-2.0 */
/* What the scheduler asks to stop: a request of a batch, or a copy that takes too long. */
#include "simulator/model/model_state.h"

static uint32_t find_transfer(const struct md_sim_model *model, uint64_t id)
{
	for (uint32_t i = 0; i < model->transfer_count; i++)
		if (model->transfers[i].live && model->transfers[i].id == id)
			return i;
	return NONE;
}

/* False: the batch does not run it. */
static bool stop(struct md_sim_model *model, uint32_t index, uint64_t request)
{
	const struct batch *batch = &model->batches[index];
	for (uint32_t i = batch->ended; i < batch->count; i++) {
		if (batch->requests[i] != request)
			continue;
		md_sim_model_request_stop(model, index, i);
		return true;
	}
	return false;
}

void md_sim_model_abort(struct md_sim_model *model, const struct medusa_sched_action *action)
{
	if (action->transfer) {
		uint32_t transfer = find_transfer(model, action->transfer);
		/* an eviction ends by itself */
		if (transfer != NONE && model->transfers[transfer].stage != STAGE_LEAVING)
			md_sim_model_transfer_failed(model, transfer);
		return;
	}
	for (uint32_t i = 0; i < model->batch_count; i++) {
		const struct batch *batch = &model->batches[i];
		if (batch->live && batch->id == action->batch && stop(model, i, action->request))
			return;
	}
}
