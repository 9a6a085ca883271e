/* SPDX-License-Identifier: Apache-2.0 */
/* What the scheduler asks to stop: a request of a batch, or a copy that takes too long. */
#include "simulator/model/model_state.h"

static uint32_t find_batch(const struct md_sim_model *model, uint64_t id)
{
	for (uint32_t i = 0; i < model->batch_count; i++)
		if (model->batches[i].live && model->batches[i].id == id)
			return i;
	return NONE;
}

static uint32_t find_transfer(const struct md_sim_model *model, uint64_t id)
{
	for (uint32_t i = 0; i < model->transfer_count; i++)
		if (model->transfers[i].live && model->transfers[i].id == id)
			return i;
	return NONE;
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
	uint32_t batch = find_batch(model, action->batch);
	for (uint32_t i = batch == NONE ? 0 : model->batches[batch].ended;
	     batch != NONE && i < model->batches[batch].count; i++) {
		if (model->batches[batch].requests[i] != action->request)
			continue;
		md_sim_model_request_stop(model, batch, i);
		return;
	}
}
