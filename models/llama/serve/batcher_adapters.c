/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters come into the device's slots piece by piece between two steps, so that running sequences hardly wait. */
#include "models/llama/serve/batcher_steps.h"

/* What takes two milliseconds or so, by several threads and by one. */
#define STAGED_PIECE_BYTES (64u << 20)
#define PIECE_BYTES (16u << 20)

void batcher_leave_slot(struct batcher *batcher, struct serve_request *request)
{
	if (request->adapter_slot >= 0)
		lora_slots_leave(&batcher->slots, request->adapter_slot);
	request->adapter_slot = -1;
}

bool batcher_has_adapter(const struct batcher *batcher, const struct serve_request *request)
{
	return !request->adapter ||
	       (request->adapter_slot >= 0 && lora_slots_ready(&batcher->slots, request->adapter_slot));
}

/* A sequence whose client reads too slowly keeps no slot for which somebody waits. False: there was none. */
static bool preempt_claimed(struct batcher *batcher)
{
	bool some = false;
	for (size_t i = batcher->running_count; i-- > 0;) {
		struct serve_request *request = batcher->running[i];
		if (!request->resting || request->adapter_slot < 0 ||
		    !lora_slots_claimed(&batcher->slots, request->adapter_slot))
			continue;
		batcher_preempt(batcher, request);
		some = true;
	}
	return some;
}

static void run_round(struct batcher *batcher)
{
	lora_slots_begin_round(&batcher->slots);
	for (struct serve_request *request = batcher->waiting; request; request = request->next) {
		if (request->resting)
			batcher_leave_slot(batcher, request);
		else if (request->adapter && request->adapter_slot < 0)
			request->adapter_slot = lora_slots_take(&batcher->slots, request->adapter);
	}
	lora_slots_end_round(&batcher->slots);
}

void batcher_take_slots(struct batcher *batcher)
{
	if (!batcher->slots.count)
		return;
	do
		run_round(batcher);
	while (preempt_claimed(batcher));
}

static int piece_layers(const struct batcher *batcher, const struct lora_slot *slot)
{
	const struct lora_adapter *adapter = &slot->weights->adapter;
	size_t layer = adapter->bytes / (size_t)adapter->layers + 1;
	size_t most = (batcher->copier.threads > 1 ? STAGED_PIECE_BYTES : PIECE_BYTES) / layer + 1;
	int left = adapter->layers - slot->layers;
	return (size_t)left < most ? left : (int)most;
}

enum md_status batcher_copy_adapter(struct batcher *batcher, bool *worked, struct md_error *err)
{
	struct llama_engine *e = batcher->engine;
	int number = lora_slots_copying(&batcher->slots);
	if (number < 0)
		return MD_OK;
	const struct lora_slot *slot = &batcher->slots.slots[number];
	const struct lora_adapter *adapter = &slot->weights->adapter;
	int count = piece_layers(batcher, slot);
	*worked = true;
	MD_FORWARD(lora_copier_put(&batcher->copier, e->stream, number, slot->layers, count, adapter, err));
	if (slot->layers + count == adapter->layers)
		MD_FORWARD(lora_pool_put_entries(&e->lora, e->stream, number, adapter, err));
	for (int i = 0; i < count; i++)
		lora_slots_copied(&batcher->slots, number);
	return MD_OK;
}
