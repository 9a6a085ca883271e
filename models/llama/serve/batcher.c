/* SPDX-License-Identifier: Apache-2.0 */
/* Each step prefills at most one piece of a prompt, and then decodes one token for each sequence that is ready. */
#include "models/llama/serve/batcher.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "models/llama/serve/batcher_steps.h"
#include "models/llama/serve/sampler.h"

size_t batcher_context(const struct llama_engine *engine)
{
	size_t context = (size_t)engine->limits.max_context;
	size_t blocks = (size_t)(engine->kv_blocks - 1) * (size_t)engine->model->shape.block_size;
	return context < blocks ? context : blocks;
}

enum md_status batcher_init(struct batcher *batcher, struct md_error *err)
{
	const struct llama_engine *e = batcher->engine;
	size_t batch = (size_t)e->limits.max_batch;
	uint64_t secret = 0;
	if (getrandom(&secret, sizeof(secret), 0) != (ssize_t)sizeof(secret))
		return md_error_set(err, MD_ERR_IO, "getrandom gave no bytes");
	batcher->running = calloc(batch, sizeof(struct serve_request *));
	batcher->rows = calloc(batch, sizeof(struct serve_request *));
	batcher->free_slots = calloc(batch, sizeof(*batcher->free_slots));
	batcher->next = calloc(batch, sizeof(*batcher->next));
	batcher->logits = malloc((size_t)e->model->shape.vocabulary * sizeof(*batcher->logits));
	batcher->draw_room = malloc(sampler_room_bytes(e->model->shape.vocabulary));
	if (!batcher->running || !batcher->rows || !batcher->free_slots || !batcher->next || !batcher->logits ||
	    !batcher->draw_room ||
	    !kv_blocks_init(&batcher->blocks, e->kv_blocks, e->model->shape.block_size, secret) ||
	    !lora_slots_init(&batcher->slots, e->lora.slots, e->model->shape.layers, &batcher->counts->lora)) {
		batcher_finish(batcher);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for serving batches of %zu", batch);
	}
	for (int slot = e->limits.max_batch - 1; slot >= 0; slot--)
		batcher->free_slots[batcher->free_slot_count++] = slot;
	batcher->moved = true;
	enum md_status status = lora_copier_init(&batcher->copier, &batcher->engine->lora, e->device->context, err);
	if (status != MD_OK)
		batcher_finish(batcher);
	return status;
}

void batcher_finish(struct batcher *batcher)
{
	kv_blocks_finish(&batcher->blocks);
	lora_slots_finish(&batcher->slots);
	lora_copier_finish(&batcher->copier);
	free(batcher->running);
	free(batcher->rows);
	free(batcher->free_slots);
	free(batcher->next);
	free(batcher->logits);
	free(batcher->draw_room);
}

/* ---- requests come and go ---- */

static void leave_blocks(struct batcher *batcher, struct serve_request *request)
{
	/* the last ones first: others begin with the same blocks more often than they end with them */
	while (request->block_count)
		kv_blocks_leave(&batcher->blocks, request->blocks[--request->block_count]);
	request->computed = request->named = 0;
	request->name = 0;
	if (request->slot >= 0)
		batcher->free_slots[batcher->free_slot_count++] = request->slot;
	request->slot = -1;
	batcher->moved = true;
}

static void remove_running(struct batcher *batcher, struct serve_request *request)
{
	size_t kept = 0;
	for (size_t i = 0; i < batcher->running_count; i++)
		if (batcher->running[i] != request)
			batcher->running[kept++] = batcher->running[i];
	batcher->running_count = kept;
}

void batcher_end(struct batcher *batcher, struct serve_request *request, enum serve_finish finish)
{
	remove_running(batcher, request);
	leave_blocks(batcher, request);
	batcher_leave_slot(batcher, request);
	serve_mailbox_tell(batcher->mailbox, request, request->count - request->prompt_count, finish);
}

void batcher_preempt(struct batcher *batcher, struct serve_request *request)
{
	remove_running(batcher, request);
	leave_blocks(batcher, request);
	batcher_leave_slot(batcher, request);
	request->running = false;
	request->next = batcher->waiting;
	batcher->waiting = request;
	batcher->waiting_count++;
	batcher->counts->preemptions++;
}

/* Who gives way: the last one that waits for its client, else the last one. */
static struct serve_request *victim(const struct batcher *batcher)
{
	for (size_t i = batcher->running_count; i-- > 0;)
		if (batcher->running[i]->resting)
			return batcher->running[i];
	return batcher->running[batcher->running_count - 1];
}

static void receive(struct batcher *batcher, struct serve_request *arrived)
{
	struct serve_request **end = &batcher->waiting;
	while (*end)
		end = &(*end)->next;
	for (; arrived; arrived = arrived->next_arrived, batcher->waiting_count++) {
		arrived->next = NULL;
		*end = arrived;
		end = &arrived->next;
	}
}

static void drop_cancelled(struct batcher *batcher)
{
	for (size_t i = batcher->running_count; i-- > 0;)
		if (batcher->running[i]->cancelled)
			batcher_end(batcher, batcher->running[i], SERVE_CANCELLED);
	for (struct serve_request **at = &batcher->waiting; *at;) {
		struct serve_request *request = *at;
		if (!request->cancelled) {
			at = &request->next;
			continue;
		}
		*at = request->next;
		batcher->waiting_count--;
		batcher_end(batcher, request, SERVE_CANCELLED);
	}
}

/* ---- admission ---- */

/* Whole blocks that are there already. The last token is computed in any case, for its logits. */
static void reuse_blocks(struct batcher *batcher, struct serve_request *request)
{
	size_t size = (size_t)batcher->blocks.size;
	while (request->computed + size < request->count) {
		const int32_t *tokens = request->tokens + request->computed;
		uint64_t name = kv_blocks_name(&batcher->blocks, request->name, tokens);
		int block = kv_blocks_find(&batcher->blocks, name, request->name, tokens);
		if (block < 0)
			break;
		request->blocks[request->block_count++] = block;
		request->computed += size;
		request->named++;
		request->name = name;
	}
	if (request->count == request->prompt_count)
		request->reused = request->computed;
}

static size_t blocks_for(const struct batcher *batcher, size_t positions)
{
	return (positions + (size_t)batcher->blocks.size - 1) / (size_t)batcher->blocks.size;
}

/* With one block to spare while others run, so that it does not have to give way at once. */
static bool admit(struct batcher *batcher, struct serve_request *request)
{
	size_t wanted = blocks_for(batcher, request->count);
	request->name = request->adapter ? kv_blocks_root(&batcher->blocks, request->adapter->version) : 0;
	reuse_blocks(batcher, request);
	if (wanted - request->block_count + (batcher->running_count > 0) > (size_t)batcher->blocks.free_count) {
		leave_blocks(batcher, request);
		return false;
	}
	while (request->block_count < wanted)
		request->blocks[request->block_count++] = kv_blocks_take(&batcher->blocks);
	request->slot = batcher->free_slots[--batcher->free_slot_count];
	batcher->running[batcher->running_count++] = request;
	request->running = true;
	batcher->counts->asked_tokens += request->count;
	batcher->counts->reused_tokens += request->computed;
	return true;
}

/* In the order in which they came; those that wait for their client or for their adapter are passed by. */
static struct serve_request **first_awake(struct batcher *batcher)
{
	struct serve_request **at = &batcher->waiting;
	while (*at && ((*at)->resting || !batcher_has_adapter(batcher, *at)))
		at = &(*at)->next;
	return at;
}

/* A sequence whose client reads too slowly gives way to others. */
static bool preempt_resting(struct batcher *batcher)
{
	struct serve_request *last = batcher->running_count ? victim(batcher) : NULL;
	if (!last || !last->resting)
		return false;
	batcher_preempt(batcher, last);
	return true;
}

static enum md_status admit_waiting(struct batcher *batcher, struct md_error *err)
{
	for (;;) {
		struct serve_request **at = first_awake(batcher), *request = *at;
		if (!request)
			break;
		if (batcher->free_slot_count && admit(batcher, request)) {
			*at = request->next;
			batcher->waiting_count--;
			MD_FORWARD(batcher_upload_blocks(batcher, request, 0, err));
		} else if (!preempt_resting(batcher)) {
			break;
		}
	}
	return MD_OK;
}

/* A block for the position that comes next. False: the sequence itself had to give way. */
static enum md_status grow(struct batcher *batcher, struct serve_request *request, bool *there, struct md_error *err)
{
	size_t wanted = blocks_for(batcher, request->count);
	*there = true;
	while (request->block_count < wanted) {
		int block = kv_blocks_take(&batcher->blocks);
		if (block >= 0) {
			request->blocks[request->block_count++] = block;
			MD_FORWARD(batcher_upload_blocks(batcher, request, request->block_count - 1, err));
			continue;
		}
		struct serve_request *other = victim(batcher);
		batcher_preempt(batcher, other);
		if (other == request) {
			*there = false;
			return MD_OK;
		}
	}
	return MD_OK;
}

/* ---- steps ---- */

static bool is_ready(const struct serve_request *request)
{
	return !request->resting && request->count - request->computed == 1;
}

static enum md_status prefill_one(struct batcher *batcher, bool *worked, struct md_error *err)
{
	for (size_t i = 0; i < batcher->running_count; i++) {
		struct serve_request *request = batcher->running[i];
		if (request->resting || is_ready(request))
			continue;
		*worked = true;
		return batcher_prefill(batcher, request, err);
	}
	return MD_OK;
}

static size_t place_of(const struct batcher *batcher, const struct serve_request *request)
{
	size_t i = 0;
	while (batcher->running[i] != request)
		i++;
	return i;
}

/* Each ready sequence gets the block that it needs; others may have to leave for that, wherever they stand. */
static enum md_status grow_ready(struct batcher *batcher, struct md_error *err)
{
	for (size_t i = 0; i < batcher->running_count; i++) {
		struct serve_request *request = batcher->running[i];
		bool there = true;
		if (!is_ready(request))
			continue;
		MD_FORWARD(grow(batcher, request, &there, err));
		if (!there)
			break; /* it was the last one */
		i = place_of(batcher, request);
	}
	return MD_OK;
}

static void choose_rows(struct batcher *batcher)
{
	size_t count = 0;
	for (size_t i = 0; i < batcher->running_count; i++) {
		if (!is_ready(batcher->running[i]))
			continue;
		batcher->moved |= count >= batcher->row_count || batcher->rows[count] != batcher->running[i];
		batcher->rows[count++] = batcher->running[i];
	}
	batcher->moved |= count != batcher->row_count;
	batcher->row_count = count;
}

/* What the other thread may change at any time holds for a whole step. */
static void note_resting(struct batcher *batcher)
{
	for (size_t i = 0; i < batcher->running_count; i++)
		batcher->running[i]->resting = batcher->running[i]->held;
	for (struct serve_request *request = batcher->waiting; request; request = request->next)
		request->resting = request->held;
}

static void publish(struct batcher *batcher)
{
	batcher->counts->running = batcher->running_count;
	batcher->counts->waiting = batcher->waiting_count;
	batcher->counts->free_blocks = (size_t)batcher->blocks.free_count;
}

static enum md_status step(struct batcher *batcher, bool *worked, struct md_error *err)
{
	*worked = false;
	drop_cancelled(batcher);
	note_resting(batcher);
	batcher_take_slots(batcher);
	MD_FORWARD(batcher_copy_adapter(batcher, worked, err));
	MD_FORWARD(admit_waiting(batcher, err));
	publish(batcher);
	MD_FORWARD(prefill_one(batcher, worked, err));
	MD_FORWARD(grow_ready(batcher, err));
	choose_rows(batcher);
	if (batcher->row_count) {
		*worked = true;
		MD_FORWARD(batcher_decode(batcher, err));
	}
	publish(batcher);
	return MD_OK;
}

static void fail_all(struct batcher *batcher)
{
	while (batcher->running_count)
		batcher_end(batcher, batcher->running[0], SERVE_FAILED);
	while (batcher->waiting) {
		struct serve_request *request = batcher->waiting;
		batcher->waiting = request->next;
		batcher_end(batcher, request, SERVE_FAILED);
	}
	batcher->waiting_count = 0;
	publish(batcher);
}

enum md_status batcher_run(struct batcher *batcher, struct md_error *err)
{
	enum md_status status = MD_OK;
	bool stopped = false, worked = true;
	while (!stopped && status == MD_OK) {
		receive(batcher, serve_mailbox_take(batcher->mailbox, !worked, &stopped));
		if (!stopped)
			status = step(batcher, &worked, err);
	}
	fail_all(batcher);
	return status;
}
